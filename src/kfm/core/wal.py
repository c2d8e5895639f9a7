"""What goes into the write-ahead ledger of units and comes out of it, besides the unit itself."""

from __future__ import annotations

from typing import Any, Literal

from kfm.core.holding import Held
from kfm.core.records import Record, Unit

Reissue = Literal["update", "ignore"]
Removing = Literal["keep", "remove"]


class Content(Record, frozen=True):
    """Which bytes an object has, as its announcement, a listing or a HEAD tells. All may be unknown."""

    etag: str | None = None
    sequencer: str | None = None  # orders the versions of one key
    size: int | None = None
    version_id: str | None = None


# --- intake --------------------------------------------------------------------------


class Taken(Record, frozen=True):
    """An announced object, on its way into the ledger."""

    unit: Unit
    content: Content
    reissue: Reissue = "update"  # what becomes of new bytes under a known key
    listed: bool = False  # from a listing: it can't tell which of two versions is newer


class Gone(Record, frozen=True):
    """An announced removal."""

    wal_id: str
    sequencer: str | None
    event_time_ms: int | None
    removing: Removing = "keep"


class Rejected(Record, frozen=True):
    """A record of a message that is not taken in: a dead letter."""

    envelope_hash: str  # sha256:HEX of the message's body
    index: int  # which record of the message; 0 for the message as a whole
    queue: str
    error_code: str
    error: str
    body: str | None = None  # bounded; None: it was too large, or is no text


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
    alone: bool = False


class Claimed(Record, frozen=True):
    """A unit under our lease. Its `version` is the fence."""

    unit: Unit
    content: Content
    content_version: int
    done_version: int  # the last one that succeeded; 0: none
    grants: int
    grant_attempts: int  # this one included
    granted_at_ms: int
    alone: bool


class Done(Record, frozen=True):
    """A unit's success: what its operators found, and the entry that the catalogue gets."""

    claimed: Claimed
    integrity_status: str
    metadata_status: str
    provenance_status: str
    entry: Any  # core.catalogue.Entry
    extra: dict[str, Any] | None = None  # None: as it was
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
    integrity_status: str = "unknown"
    metadata_status: str = "unknown"
    held: Held | None = None


class Finish(Record, frozen=True):
    """The end of a batch: effects and final statuses are one transaction."""

    done: tuple[Done, ...] = ()
    undone: tuple[Undone, ...] = ()
    policy_epoch: int | None = None


class Finished(Record, frozen=True):
    """What landed. A unit that is missing here was lost to somebody else, with all its effects."""

    succeeded: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    epoch_moved: bool = False  # nothing landed: ask the gates again


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
