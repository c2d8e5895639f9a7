"""What taking in announced objects needs from outside: queues, bytes, the ledger of units, the catalogue."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, Protocol

from kfm.core.bursts import Burst, BurstState
from kfm.core.catalogue import CollectionFigures, Item, Owed, Search
from kfm.core.evidence import Letter
from kfm.core.holding import Approval
from kfm.core.records import GovernanceEntry, ObjectStat, Record, Unit, Window
from kfm.core.replays import Chosen, Receipt, Replay, ReplayPlan, Selection, Stepped
from kfm.core.sealing import SealedPage
from kfm.core.wal import (
    Claim,
    Claimed,
    DeadMessage,
    Exchanged,
    Finish,
    Finished,
    Intake,
    IntakeReport,
    Known,
    Lane,
    Move,
    Stored,
    Taken,
    Wanted,
)


class Message(Record, frozen=True, gc=False):
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

    @property
    def ended(self) -> bool:
        """Silence means that nothing is left. False: an input that is still open, and may only be slow."""

    def receive(self, limit: int, wait_ms: int) -> list[Message]:
        """Up to `limit` messages; waits that long if there are none. Raises BackendUnavailable."""

    def acknowledge(self, receipts: Sequence[str]) -> list[str]:
        """These are durable elsewhere. Those that could not be acknowledged come back, and come again."""

    def put_back(self, receipts: Sequence[str]) -> None:
        """Nothing was done with these: let others have them at once, as far as the queue can."""

    def close(self) -> None: ...


class Certificates(Protocol):
    """Where topics keep the certificates that they sign with."""

    def fetch(self, url: str) -> bytes:
        """The bytes at exactly this address, which the caller has checked. Raises UpstreamUnavailable;
        unless its fact `transient` is true, the answer is final."""


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
    def stored(self, wal_id: str) -> Stored | None:
        """The unit, and what the ledger keeps beside it."""

    def history_of(self, wal_id: str) -> list[Move]: ...
    def letters_of(self, wal_id: str) -> list[Letter]:
        """Those that tell of the ends of its attempts, and of others that ended with it, in their order."""

    def contents(self, wal_ids: Sequence[str]) -> dict[str, Known]: ...
    def totals(self) -> dict[tuple[str, str], tuple[int, int | None]]:
        """(dataset, name) → amount and the newest time, from counters."""

    def find_units(self, wanted: Wanted) -> list[Unit]:
        """The newest first."""

    def oldest_open(self, dataset: str) -> Stored | None:
        """The unit that waits or is worked on and is of the earliest time."""

    def pages_between(self, first: int, last: int, limit: int) -> list[SealedPage]:
        """Pages of the history by their numbers, as they are stored."""

    def pages_written(self, after: int = 0) -> int: ...
    def dead_messages(self, state: str = "held", error_code: str = "", limit: int = 100) -> list[DeadMessage]:
        """Without their bodies, the newest first."""

    def dead_message(self, envelope_hash: str) -> list[DeadMessage]:
        """Its records, each with its body."""

    def lanes(self) -> list[Lane]:
        """Where units wait, each with the time at which its first is due."""

    def unit_counts(self) -> dict[tuple[str, str], int]:
        """(dataset, status) → units, from counters, not by counting."""


class Wal(WalReader, Protocol):
    """Each method is one transaction."""

    def take_in(self, intake: Intake) -> IntakeReport: ...
    def turn(self, finish: Finish | None, claim: Claim | None) -> tuple[Finished, list[Claimed]]:
        """End what was worked on and take what comes next. Effects and statuses land together."""

    def exchange(self, finish: Finish | None, claim: Claim | None, fresh: Sequence[Taken]) -> Exchanged:
        """A turn that also takes in what is new, and claims of that what the claim has room for."""

    def reap_units(
        self, unit_random: float, dead: Callable[[str], bool] | None = None, *, lineage: bool = True
    ) -> int:
        """Units whose lease has lapsed, or whose worker is known to be gone, fail and are tried again."""

    def release_dead(self, envelope_hash: str, entry: GovernanceEntry) -> int:
        """Nobody has to look at it any more; how many records it has."""

    def fold_counts(self, limit: int = 10_000) -> int:
        """Add deltas up; how many there were."""


class UnitImporter(Protocol):
    """A ledger that takes over records of another one."""

    def bring_in(self, units: Sequence[Unit], actor: str, rationale: str) -> int:
        """As they are, those that are not known yet, in one transaction; how many."""


class StacReplica(Protocol):
    """An external STAC API with transactions. Raises UpstreamUnavailable or CollectorRefused."""

    def ensure_collection(self, body: dict[str, Any]) -> None:
        """Made if it is not there, replaced if it is."""

    def put_item(self, body: dict[str, Any]) -> None:
        """Made or replaced."""

    def delete_item(self, collection_id: str, item_id: str) -> None:
        """Also if there is none."""

    def revisions(self, collection_id: str, ids: Sequence[str]) -> dict[str, int | None]:
        """Item → its `kfm:revision`, of those that are there; None: it has none."""

    def items(self, collection_id: str) -> Iterator[tuple[str, int | None]]:
        """All of a collection, each with its `kfm:revision`."""

    def close(self) -> None: ...


class Replicas(Protocol):
    """Which items each replica has still to be told of. Each method is one transaction."""

    def claim(self, replica: str, limit: int, claim_ms: int) -> list[Owed]:
        """The longest due; nobody else has them before the claim ends."""

    def delivered(self, replica: str, done: Iterable[tuple[Owed, int]]) -> None:
        """Each with the revision that was sent. What is wanted since then, or came of a claim that was over,
        is due again."""

    def put_back(
        self, replica: str, owed: Iterable[Owed], not_before_ms: int, *, charged: bool = True
    ) -> None:
        """For later. What was not tried is not charged."""

    def again(self, replica: str, items: Iterable[tuple[str, str, int]]) -> None:
        """(collection, item, revision): deliver these once more, whatever was sent before."""

    def backlog(self, replica: str) -> int: ...
    def now_ms(self) -> int:
        """The time that claims live by."""


class Bursts(Protocol):
    """Arrivals that sources follow, gathered until their window closes. Each method is one transaction."""

    def close_due(self, window_ms: int, period: Callable[[str, int], Window]) -> int:
        """Close the windows that have been open long enough; how many bursts that made."""

    def claim(self, limit: int, claim_ms: int) -> list[Burst]:
        """Open ones; not handed out again before the claim ends."""

    def settle(
        self, burst: Burst, state: BurstState, run_id: str | None = None, not_before_ms: int = 0
    ) -> None:
        """What became of it; one that stays open comes again, not before that time."""

    def recent(self, limit: int = 50) -> list[Burst]:
        """The newest first."""


class ReplayReader(Protocol):
    """Replays, and which units one would be about."""

    def select(self, selection: Selection, limit: int) -> list[Chosen]:
        """In the order of their ids; ask for one more to see whether there are more."""

    def replay(self, replay_id: str) -> Replay | None: ...
    def replays(self, limit: int = 50) -> list[Replay]:
        """The newest first."""

    def find(self, start: str, limit: int = 2) -> list[str]:
        """Ids of replays that begin so."""

    def receipts(self, replay_id: str, after: str = "", limit: int = 1000) -> list[Receipt]: ...
    def tally(self, replay_id: str) -> dict[str, int]:
        """Receipt → how many; '' are those that wait."""

    def since(self, replay_id: str) -> dict[str, int]:
        """Status now → how many of those that were replayed."""

    def moved(self, replay_id: str, limit: int = 1000) -> list[str]:
        """Units without a receipt that are not as they were planned."""


class Replays(ReplayReader, Protocol):
    """Each method is one transaction."""

    def request(
        self, plan: ReplayPlan, approval: Approval, entry: GovernanceEntry, *, rationale: str
    ) -> list[str]:
        """Freeze the plan and ask for a second person; nothing, if units changed since: those come back."""

    def begin(
        self, plan: ReplayPlan, *, rationale: str, requested_by: str, entry: GovernanceEntry
    ) -> list[str]:
        """Freeze the plan, unless it was begun before; nothing, if units changed since: those come back."""

    def step(
        self,
        replay: Replay,
        limit: int,
        *,
        after: str = "",
        stopped: Collection[str] = (),
        ended: Callable[[dict[str, int], int], GovernanceEntry],
    ) -> Stepped:
        """The next units come back, each with its receipt, in one transaction. One process at a time."""


class CatalogueReader(Protocol):
    """Our own catalogue, to be searched."""

    def find_items(self, search: Search) -> list[Item]: ...
    def item(self, collection_id: str, item_id: str) -> Item | None: ...
    def collections(self) -> list[CollectionFigures]:
        """Those that have an item to be seen. Extents cover all that were ever to be seen."""

    def collection_ids(self) -> list[str]:
        """Also of those that have none any more."""
