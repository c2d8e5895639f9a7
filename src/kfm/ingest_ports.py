"""What taking in announced objects needs from outside: queues, upstream's bytes, the ledger, the catalogue."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from kfm.core.catalogue import CollectionFigures, Item, Search
from kfm.core.records import ObjectStat, Record, Unit
from kfm.core.wal import Claimed, Content, Finish, Finished, Intake, IntakeReport, Lane, Move


class Message(Record, frozen=True):
    """One message of a queue. The receipt is what acknowledges it."""

    receipt: str
    body: bytes
    message_id: str
    receives: int = 1  # how often it was handed out, as far as the queue knows


class Queue(Protocol):
    """A queue of announcements. At least once, in any order."""

    @property
    def name(self) -> str:
        """The logical name, which units keep."""

    def receive(self, limit: int, wait_ms: int) -> list[Message]:
        """Up to `limit` messages; waits that long if there are none. Raises BackendUnavailable."""

    def acknowledge(self, receipts: Sequence[str]) -> list[str]:
        """These are durable elsewhere. Those that could not be acknowledged come back, and come again."""

    def put_back(self, receipts: Sequence[str]) -> None:
        """Nothing was done with these: let others have them at once, as far as the queue can."""

    def close(self) -> None: ...


class Upstream(Protocol):
    """The announced objects themselves: never fetched whole unless a policy asks."""

    def head(self, object_uri: str) -> ObjectStat | None:
        """None if there is no such object."""

    def read(self, object_uri: str, start: int, length: int) -> bytes:
        """A range; fewer bytes at the end of the object."""

    def stream(self, object_uri: str) -> Iterator[bytes]: ...
    def list(self, provider: str, bucket: str, prefix: str) -> Iterator[ObjectStat]: ...


class WalReader(Protocol):
    """The units, to be looked at."""

    def unit(self, wal_id: str) -> Unit | None: ...
    def history_of(self, wal_id: str) -> list[Move]: ...
    def unit_counts(self) -> dict[tuple[str, str], int]:
        """(dataset, status) → units, from counters, not by counting."""


class Wal(WalReader, Protocol):
    """Each method is one transaction."""

    def take_in(self, intake: Intake) -> IntakeReport: ...
    def lanes(self) -> list[Lane]:
        """Where units are due now."""

    def claim_units(
        self, lane: Lane, limit: int, *, worker_id: str, ingest_run_id: str, lease_ms: int
    ) -> list[Claimed]: ...
    def finish_units(self, finish: Finish) -> Finished: ...
    def reap_units(self, limit: int = 1000) -> int:
        """Units whose lease has lapsed fail, and are tried again; how many."""

    def next_due_ms(self) -> int | None:
        """When the next unit is due, now or later; None if none waits."""


class CatalogueReader(Protocol):
    """Our own catalogue, to be searched."""

    def find_items(self, search: Search) -> list[Item]: ...
    def item(self, collection_id: str, item_id: str) -> Item | None: ...
    def collections(self) -> list[CollectionFigures]: ...


__all__ = ["CatalogueReader", "Content", "Message", "Queue", "Upstream", "Wal", "WalReader"]
