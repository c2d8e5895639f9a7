"""State folder of an environment: the one way in which its ledger, objects and liveness are opened."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from kfm.db.connection import (
    POSTGRES,
    kept_connections,
    make_folder,
    open_database,
    open_ledger,
    open_side,
    open_store,
    sqlite_path,
)
from kfm.model.errors import KfmError
from kfm.system import FlockLiveness, PosixFiles, SystemClock, SystemIds, SystemRng

if TYPE_CHECKING:
    from kfm.config.loader import Loaded
    from kfm.db.ledger import Ledger
    from kfm.db.ledger_reader import LedgerReader
    from kfm.db.moves import Side
    from kfm.db.postgres import PostgresDatabase
    from kfm.db.queries import Upgrading
    from kfm.db.sqlite import SqliteDatabase
    from kfm.model.incidents import IncidentRenderer
    from kfm.objects.local import LocalObjects
    from kfm.objects.remote import RemoteObjects
    from kfm.ports import Bucket, Clock, CollectableObjects, Emitter, Objects


class StateFolder:
    """The folder, and the database of its ledger: a file in it, or an address."""

    def __init__(
        self,
        path: str,
        store: str | None = None,
        clock: Clock | None = None,
        connections: int | None = None,
    ) -> None:
        self.path = path
        self._store = store
        self._connections = connections  # of this process to the ledger's server; None: the default
        self.upgrading: Upgrading | None = None  # shows how far a ledger of an earlier kfm is upgraded
        self.clock: Clock = clock or SystemClock()
        self.ids = SystemIds()
        self.rng = SystemRng()
        self.files = PosixFiles()
        self.liveness = FlockLiveness(f"{path}/workers")

    @classmethod
    def of(cls, loaded: Loaded, clock: Clock | None = None) -> StateFolder:
        state = loaded.resolve(loaded.settings.state).rstrip("/")
        return cls(state, loaded.store, clock, loaded.settings.limits.store_connections)

    def open_reader(self) -> LedgerReader:
        """The ledger for reading; nothing is made, also where there is none yet."""
        return open_ledger(self._store, self.path, self.clock, connections=self._connections)

    def open_ledger(
        self,
        emitter: Emitter | None = None,
        renderer: IncidentRenderer | None = None,
        *,
        urgent: bool = False,
    ) -> Ledger:
        """The ledger, with its folder, made or migrated as needed. `urgent`: for the renewal of leases."""
        make_folder(self.path)
        return open_store(
            self._store,
            self.path,
            self.clock,
            emitter,
            renderer,
            self.upgrading,
            connections=self._connections,
            urgent=urgent,
        )

    def open_for_renewals(self) -> Ledger:
        """The ledger for a heartbeat: it does not wait for others of this process."""
        return self.open_ledger(urgent=True)

    def kept_connections(self) -> AbstractContextManager[None]:
        """The connections of a service to the ledger's server, kept as long as this lasts."""
        return kept_connections(self._store, self._connections)

    @property
    def ledger_path(self) -> str | None:
        """Where the ledger's file is; None: it is on a server."""
        if self._store is not None and self._store.startswith(POSTGRES):
            return None
        return sqlite_path(self._store, self.path)

    def open_database(self) -> PostgresDatabase | SqliteDatabase:
        """The ledger's database as it is, whatever its schema."""
        return open_database(self._store, self.path, self.clock)

    @property
    def place(self) -> str:
        """Where the ledger is, without secrets."""
        if self._store is not None and self._store.startswith(POSTGRES):
            from kfm.db.postgres_pool import place_of

            return place_of(self._store)
        return f"sqlite:{sqlite_path(self._store, self.path)}"

    def open_side(self, *, fill: bool = False) -> Side:
        """The ledger as one end of a copy."""
        make_folder(self.path)
        return open_side(self._store, self.path, self.clock, fill=fill)

    def objects(self, loaded: Loaded) -> CollectableObjects:
        """The object store that the settings name."""
        address = loaded.settings.objects
        if address is None:
            return self.local_objects()
        return _in_bucket(loaded, address)

    def values(self, loaded: Loaded | None) -> Objects:
        """Where nodes of pipelines keep their values: the store of the settings; and those of before, from
        when all of them were in the folder."""
        if loaded is None or loaded.settings.objects is None:
            return self.local_objects()
        from kfm.objects.bucket_with_folder import BucketWithFolder

        return BucketWithFolder(_in_bucket(loaded, loaded.settings.objects), self.local_objects())

    def local_objects(self) -> LocalObjects:
        from kfm.objects.local import LocalObjects

        return LocalObjects(self.files, f"{self.path}/objects", self.ids)

    def release(self, ledger: LedgerReader, worker_id: str) -> None:
        """End this worker's sign of life, unless it still holds a lock.

        Then it stays until the process ends, and the lock can be taken over from then on.
        """
        try:
            holders = [lock.holder for lock in ledger.locks()]
        except KfmError:
            return
        if not any(holder is not None and holder.worker_id == worker_id for holder in holders):
            self.liveness.close()


def _in_bucket(loaded: Loaded, address: str) -> RemoteObjects:
    from kfm.objects.remote import RemoteObjects

    return RemoteObjects(open_bucket(loaded, address, loaded.settings.objects_options))


def open_bucket(
    loaded: Loaded, address: str, options: Mapping[str, str], timeout_ms: int | None = None
) -> Bucket:
    """A bucket, its options' references resolved."""
    from kfm.objects import bucket_client

    return bucket_client.open_bucket(
        address,
        {name: loaded.secret(value) for name, value in options.items()},
        timeout_ms=timeout_ms or loaded.settings.limits.call_timeout_ms,
        discreet=loaded.discretion,
    )
