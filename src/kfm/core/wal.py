"""What goes into the write-ahead ledger of units and comes out of it, besides the unit itself."""

from __future__ import annotations

from typing import Any, Literal

from kfm.core.catalogue import Entry
from kfm.core.holding import Held
from kfm.core.records import Record, Unit

Reissue = Literal["update", "ignore"]
Removing = Literal["keep", "remove"]


class Content(Record, frozen=True, gc=False):
    """Which bytes an object has, as its announcement, a listing or a HEAD tells. All may be unknown."""

    etag: str | None = None
    sequencer: str | None = None  # orders the versions of one key
    size: int | None = None
    version_id: str | None = None


class Stored(Record, frozen=True):
    """A unit, and what the ledger keeps beside its fields."""

    unit: Unit
    etag: str | None
    sequencer: str | None
    size: int | None
    version_id: str | None
    content_version: int  # counts the different bytes that were announced under its key
    done_version: int  # the last that succeeded; 0: none
    lease_until_ms: int
    not_before_ms: int
    grants: int  # of this content version
    grant_attempts: int
    granted_at_ms: int  # when the grant's first attempt began
    alone: int
    removed: int
    unclear: int
    replacing: int
    trail: str  # numbers of its history's pages

    @property
    def content(self) -> Content:
        return Content(etag=self.etag, sequencer=self.sequencer, size=self.size, version_id=self.version_id)


class Known(Record, frozen=True):
    """What the ledger says of a unit's bytes. Field order is column order."""

    wal_id: str
    status: str
    etag: str | None
    size: int | None
    removed: int


# --- intake --------------------------------------------------------------------------


class Taken(Record, frozen=True, gc=False):
    """An announced object, on its way into the ledger."""

    unit: Unit
    content: Content
    reissue: Reissue = "update"  # what becomes of new bytes under a known key


class Gone(Record, frozen=True):
    """An announced removal."""

    wal_id: str
    sequencer: str | None
    event_time_ms: int | None
    removing: Removing = "keep"
    unit: Unit | None = None  # kept as a tombstone where the object was never announced: that may still come


class Rejected(Record, frozen=True):
    """A record of a message that is not taken in: a dead letter."""

    envelope_hash: str  # sha256:HEX of the message's body
    index: int  # which record of the message; 0 for the message as a whole
    queue: str
    error_code: str
    error: str
    body: str | None = None  # with escapes for what is no UTF-8; None: it was too large


class Intake(Record, frozen=True):
    """All that some messages said: durable together, acknowledged then."""

    taken: tuple[Taken, ...] = ()
    gone: tuple[Gone, ...] = ()
    rejected: tuple[Rejected, ...] = ()


class IntakeReport(Record, frozen=True):
    """What became of it."""

    created: int = 0
    duplicate: int = 0
    reissued: int = 0
    stale: int = 0  # older than what is known, or a re-issue that the policy leaves alone
    removed: int = 0
    dead: int = 0


# --- work ----------------------------------------------------------------------------


class Lane(Record, frozen=True):
    """Units that are claimed together. Those that may be poison come one by one."""

    dataset: str
    provider: str
    alone: int = 0
    due_ms: int = 0  # of the first unit in it; nothing is looked for there before


class Claimed(Record, frozen=True, gc=False):
    """A unit under our lease: as much of it as its operators need. Field order is column order."""

    wal_id: str
    version: int  # the fence
    dataset: str
    provider: str
    queue: str
    object_uri: str
    event_time_ms: int | None
    attempts: int
    replay_reason: str | None
    extra: str  # canonical JSON, as stored
    etag: str | None
    sequencer: str | None
    size: int | None
    version_id: str | None
    content_version: int
    done_version: int  # the last content version that succeeded; 0: none
    grants: int
    grant_attempts: int  # this one included
    granted_at_ms: int  # when the grant's first attempt began
    alone: int  # 1: claimed by itself, since its last batch did not come back
    removed: int  # 1: its object is gone, as far as is known; 2: and its item is to go with it
    unclear: int  # 1: which of two versions is newer is not known; a HEAD decides
    replacing: int  # 1: an approved repair, whose outcome may differ from the one before
    claimed_at_ms: int = 0

    @property
    def content(self) -> Content:
        return Content(etag=self.etag, sequencer=self.sequencer, size=self.size, version_id=self.version_id)


class Done(Record, frozen=True, gc=False):
    """A unit's success: what its operators found, and the entry that the catalogue gets."""

    claimed: Claimed
    integrity_status: str
    metadata_status: str
    provenance_status: str
    entry: Entry | None  # None: its object is gone, and so is its item
    extra: str | None = None  # None: as it was
    content: Content | None = None  # what a HEAD told, where the announcement was wrong or silent


class Undone(Record, frozen=True):
    """A unit's failure, and what was decided about it."""

    claimed: Claimed
    error_code: str
    error_message: str  # redacted
    error_class: str
    fate: Literal["retry", "spent", "quarantine"]
    reason: str
    not_before_ms: int | None = None  # of the next attempt, where there is one
    charged: bool = True  # False: an open circuit refused it, or it was put back untried
    extra: str | None = None
    integrity_status: str = "unknown"
    metadata_status: str = "unknown"
    held: Held | None = None


class Finish(Record, frozen=True):
    """The end of a batch: effects and final statuses are one transaction."""

    done: tuple[Done, ...] = ()
    undone: tuple[Undone, ...] = ()
    policy_epoch: int | None = None  # that the gates were asked at; None: whatever it is
    replicas: tuple[str, ...] = ()  # external catalogues that follow ours
    downstream: tuple[tuple[str, str], ...] = ()  # (dataset, source): who waits for what
    lineage: bool = True  # post a letter for what ended


class Claim(Record, frozen=True):
    """A wish for work."""

    lane: Lane
    limit: int
    worker_id: str
    ingest_run_id: str
    lease_ms: int
    policy_epoch: int | None = None  # that the gates were asked at; None: whatever it is


class Finished(Record, frozen=True):
    """What landed. A unit that is missing here was lost to somebody else, with all its effects."""

    succeeded: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    epoch_moved: bool = False  # nothing landed: ask the gates again


class Exchanged(Record, frozen=True):
    """What one transaction took in, ended and claimed."""

    finished: Finished = Finished()
    claimed: tuple[Claimed, ...] = ()
    waited: int = 0  # how many of them had been taken in before
    created: int = 0
    left: tuple[Taken, ...] = ()  # known before, or not looked at since the epoch had moved: not taken in


class Page(Record, frozen=True):
    """One leaf of the history: the same transition of one or many units, in one transaction."""

    number: int
    event: str
    status: str
    at_ms: int
    worker_id: str | None
    members: tuple[tuple[Any, ...], ...]  # wal_id, version, attempts, then what the event tells


class Move(Record, frozen=True):
    """One transition of one unit, as its history tells it."""

    version: int
    status: str
    event: str
    at_ms: int
    worker_id: str | None
    attempts: int
    details: dict[str, Any]


class Wanted(Record, frozen=True):
    """Which units are asked for. What is empty asks for nothing."""

    dataset: str = ""
    status: str = ""
    error_code: str = ""
    since_ms: int = 0  # changed since
    limit: int = 100


class DeadMessage(Record, frozen=True):
    """A record of a message that was not taken in. Field order is column order."""

    envelope_hash: str
    record_index: int
    queue: str
    error_code: str
    error: str
    times: int  # how often it came
    first_at_ms: int
    last_at_ms: int
    state: str
    body: str | None = None
