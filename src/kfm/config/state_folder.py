"""State folder of an environment: the one way in which its ledger, objects and liveness are opened."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfm.db.connection import make_folder, open_ledger, open_store
from kfm.model.errors import KfmError
from kfm.system import FlockLiveness, PosixFiles, SystemClock, SystemIds, SystemRng

if TYPE_CHECKING:
    from kfm.config.loader import Loaded
    from kfm.db.ledger import Ledger
    from kfm.db.ledger_reader import LedgerReader
    from kfm.model.incidents import IncidentRenderer
    from kfm.objects.local import LocalObjects
    from kfm.ports import Clock, Emitter


class StateFolder:
    """The folder, and the database of its ledger: a file in it, or an address."""

    def __init__(self, path: str, store: str | None = None, clock: Clock | None = None) -> None:
        self.path = path
        self._store = store
        self.clock: Clock = clock or SystemClock()
        self.ids = SystemIds()
        self.rng = SystemRng()
        self.files = PosixFiles()
        self.liveness = FlockLiveness(f"{path}/workers")

    @classmethod
    def of(cls, loaded: Loaded, clock: Clock | None = None) -> StateFolder:
        return cls(loaded.resolve(loaded.settings.state).rstrip("/"), loaded.store, clock)

    def open_reader(self) -> LedgerReader:
        """The ledger for reading; nothing is made, also where there is none yet."""
        return open_ledger(self._store, self.path, self.clock)

    def open_ledger(self, emitter: Emitter | None = None, renderer: IncidentRenderer | None = None) -> Ledger:
        """The ledger, with its folder, made or migrated as needed."""
        make_folder(self.path)
        return open_store(self._store, self.path, self.clock, emitter, renderer)

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
