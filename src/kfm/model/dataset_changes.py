"""Rollback, withdrawal, retirement: what each removes, what it keeps from coming back. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from kfm.model.records import GovernanceEntry, Item, Lock, Promotion, Record, Switch
from kfm.model.times import rfc3339

if TYPE_CHECKING:
    from kfm.model.versions import Version
    from kfm.model.window_rules import Rewindow

ChangeKind = Literal["rollback", "withdraw", "retire", "lift", "rename", "rewindow"]
PurgeState = Literal["outstanding", "done", "out-of-reach"]
OBJECTS = "objects"  # the place of a purge that is no target: the object store


class DatasetChange(Record, frozen=True):
    """One change, as it was applied. What it promoted carries its id in the place of a run's."""

    change_id: str
    dataset_id: str
    kind: ChangeKind
    base_sequence: int  # the head that the plan was made for
    sequence: int | None  # the version that it made; None: a lift of before, when lifts made none
    to_sequence: int | None  # of a rollback: the version whose content it put back
    digest: str  # of the plan
    actor: str
    rationale: str
    ticket: str | None
    changed_at_ms: int
    plan: str  # the plan as canonical JSON


class ChangeTime(Record, frozen=True):
    """A change that made a version: when, and of which."""

    change_id: str
    kind: ChangeKind
    base_sequence: int
    sequence: int
    changed_at_ms: int


class Withdrawal(Record, frozen=True):
    """What of a dataset may not be published: a span of time, or all of it. Kept also when it is lifted."""

    change_id: str
    dataset_id: str
    source_id: str  # "": of every source
    start_ms: int | None  # None: all of the dataset
    end_ms: int | None
    retires: bool
    purge: bool
    reason: str
    since_sequence: int  # the first version without it
    withdrawn_at_ms: int
    until_sequence: int | None = None  # lifted: the first version that may hold it again
    lifted_by: str | None = None
    target: str = ""  # from this target alone, which does not take the dataset any more; "": everywhere

    @property
    def is_active(self) -> bool:
        return self.lifted_by is None

    @property
    def is_whole(self) -> bool:
        """Is all of the dataset withdrawn?"""
        return self.start_ms is None and not self.source_id

    def covers(self, source_id: str, start_ms: int, end_ms: int) -> bool:
        """Is anything of this window of a source withdrawn? Spans are half open; touching is no overlap."""
        if self.source_id and self.source_id != source_id:
            return False
        if self.start_ms is None or self.end_ms is None:
            return True
        return start_ms < self.end_ms and self.start_ms < max(end_ms, start_ms + 1)

    def holds(self, item: Item) -> bool:
        return self.covers(item.source_id, item.window_start_ms, item.window_end_ms)


class TombstonedPromotion(Promotion, frozen=True):
    """The head of a dataset of which something is withdrawn, as a target is given it."""

    tombstone: dict[str, Any]  # the document that stands in the place of what is withdrawn


class Purge(Record, frozen=True):
    """The removal of withdrawn bytes at one place, and how far it is."""

    change_id: str
    dataset_id: str
    place: str  # "objects", or the name of a target after "target:"
    state: PurgeState
    removed: int = 0
    detail: str = ""
    changed_at_ms: int = 0


class ApplyChange(Record, frozen=True):
    """One change, to be applied in one transaction."""

    change: DatasetChange
    scopes: tuple[str, ...]  # the locks that a run of the dataset may hold
    collections: int  # the fence of garbage collection when the objects were looked at
    version_id: str | None  # None, as is the version: none is made
    version: Version | None
    withdrawal: Withdrawal | None = None
    lifts: tuple[str, ...] = ()
    pause: Switch | None = None
    targets: tuple[str, ...] = ()  # that have to show it
    places: tuple[str, ...] = ()  # where bytes have to go
    approval: tuple[str, str] | None = None  # request and digest
    entries: tuple[GovernanceEntry, ...] = ()
    new_name: str | None = None  # what readers find the dataset by from this version on
    rewindow: Rewindow | None = None


class ToldChange(Record, frozen=True):
    """A change as its lineage events tell of it: the version that it made, and those that it came from."""

    change: DatasetChange
    version_id: str
    came_from: tuple[str, ...]  # ids of the version before it; of a rollback also of what it put back
    withdrawal: Withdrawal | None = None
    lifts: tuple[str, ...] = ()

    @property
    def lifecycle(self) -> Literal["ALTER", "DROP", "OVERWRITE", "TRUNCATE"]:
        """What became of the dataset, in the words of OpenLineage."""
        one = self.withdrawal
        if self.change.kind in ("lift", "rename", "rewindow") or (one is not None and one.target):
            return "ALTER"
        if one is None or not one.is_whole:
            return "OVERWRITE"
        return "DROP" if one.retires else "TRUNCATE"


class ApplyResult(Record, frozen=True):
    """Whether a change was applied; if not, what has changed since its plan was made."""

    answer: Literal[
        "applied", "head-moved", "busy", "collected", "not-approved", "lifted", "name-taken", "rewindowed"
    ]
    sequence: int | None = None
    lock: Lock | None = None


# --- what is withdrawn -------------------------------------------------------------------


def active(withdrawals: Iterable[Withdrawal]) -> tuple[Withdrawal, ...]:
    return tuple(one for one in withdrawals if one.is_active)


def at_version(withdrawals: Iterable[Withdrawal], sequence: int) -> tuple[Withdrawal, ...]:
    """Those that a version shows: the same at any time, so that its documents have the same bytes."""
    return tuple(
        one
        for one in withdrawals
        if one.since_sequence <= sequence and (one.until_sequence is None or sequence < one.until_sequence)
    )


def withdrawn_items(
    items: Iterable[Item], withdrawals: Iterable[Withdrawal]
) -> list[tuple[Item, Withdrawal]]:
    """The items that a withdrawal keeps from being published, each with the first that does."""
    known = tuple(withdrawals)
    found = ((item, next((one for one in known if one.holds(item)), None)) for item in items)
    return [(item, one) for item, one in found if one is not None]


def without(version: Version, withdrawal: Withdrawal) -> Version:
    """The version without what is withdrawn."""
    from kfm.model.versions import edited  # late: most of what reads withdrawals makes no version

    gone = [item.id for item in version.items() if withdrawal.holds(item)]
    return edited(version, version.header, dict.fromkeys(gone))


def purged(sequence: int, version: Version, withdrawals: Iterable[Withdrawal]) -> Withdrawal | None:
    """The purge that removed the bytes of this version; None if none did. Lifting brings no byte back."""
    for one in withdrawals:
        if one.purge and sequence < one.since_sequence and any(map(one.holds, version.items())):
            return one
    return None


def against_rollback(
    sequence: int, version: Version, withdrawals: Sequence[Withdrawal]
) -> tuple[Withdrawal, Literal["purged", "withdrawn"]] | None:
    """Why this version may not be put back; None if it may. Of what is withdrawn as a whole none may, also
    none that is empty: readers have the tombstone."""
    gone = purged(sequence, version, withdrawals)
    if gone is not None:
        return gone, "purged"
    known = active(withdrawals)
    whole = next((one for one in known if one.is_whole and not one.target), None)
    if whole is not None:
        return whole, "withdrawn"
    held = withdrawn_items(version.items(), known)
    return (held[0][1], "withdrawn") if held else None


def whole(withdrawals: Iterable[Withdrawal]) -> tuple[Withdrawal, ...]:
    """Those in force that leave nothing of the dataset; none: there is something to be read."""
    return tuple(one for one in active(withdrawals) if one.is_whole and not one.target)


def gone_from(sequence: int, version: Version, withdrawals: Sequence[Withdrawal]) -> tuple[Withdrawal, ...]:
    """Why readers do not get this version: all of the dataset is withdrawn, or what the version holds was
    purged or is withdrawn."""
    lost = purged(sequence, version, withdrawals)
    held = (one for _, one in withdrawn_items(version.items(), active(withdrawals)))
    found = (*whole(withdrawals), *((lost,) if lost is not None else ()), *held)
    return tuple({one.change_id: one for one in found}.values())


def blobs_of(versions: Iterable[Version]) -> frozenset[str]:
    """The objects that these need. What several of them have in common is read once."""
    seen = set[str]()
    return frozenset(
        asset.sha256 for version in versions for item in version.unseen(seen) for asset in item.assets
    )


def purgeable(gone: Iterable[Version], kept: Iterable[Version]) -> frozenset[str]:
    """The blobs that may go: of versions that are gone, and of none that is kept."""
    return blobs_of(gone) - blobs_of(kept)


def only_removes(shown: Version | None, head: Version) -> bool:
    """Does the head hold nothing that readers do not see already? Such a version may always be shown."""
    return all(now is None for _, now in head.changed_items(shown))


# --- what readers are told ---------------------------------------------------------------


def tombstone(dataset_id: str, sequence: int, withdrawals: Sequence[Withdrawal]) -> dict[str, Any] | None:
    """The document that stands where data was; None: nothing of this version is withdrawn."""
    if not withdrawals:
        return None
    whole = any(one.is_whole for one in withdrawals)
    retired = any(one.retires for one in withdrawals)
    return {
        "tombstone": 1,
        "dataset_id": dataset_id,
        "sequence": sequence,
        "state": "retired" if retired else "withdrawn" if whole else "partly-withdrawn",
        "withdrawn": [told(one) for one in withdrawals],
    }


def told(one: Withdrawal) -> dict[str, Any]:
    """What readers learn of a withdrawal."""
    found: dict[str, Any] = {
        "reason": one.reason,
        "at": rfc3339(one.withdrawn_at_ms),
        "since_sequence": one.since_sequence,
        "purged": one.purge,
    }
    if one.source_id:
        found["source_id"] = one.source_id
    if one.start_ms is not None and one.end_ms is not None:
        found |= {"window_start": rfc3339(one.start_ms), "window_end": rfc3339(one.end_ms)}
    return found


def span_words(one: Withdrawal) -> str:
    """What is withdrawn, for people."""
    what = "all of it"
    if one.start_ms is not None and one.end_ms is not None:
        what = f"{rfc3339(one.start_ms)}/{rfc3339(one.end_ms)}"
    what = f"{what} from {one.source_id}" if one.source_id else what
    return f"{what} at target {one.target}" if one.target else what


def withdrawn_sentence(one: Withdrawal) -> str:
    """What is withdrawn of which dataset, and since when, as the beginning of a sentence."""
    what, since = one.dataset_id, f"since version {one.since_sequence}"
    if one.retires:
        return f"{what} is retired {since}"
    if one.source_id:
        what = f"What {one.source_id} brought to {what}"
    if one.start_ms is not None and one.end_ms is not None:
        span = f"{rfc3339(one.start_ms)}/{rfc3339(one.end_ms)}"
        what = f"{what} in {span}" if one.source_id else f"{span} of {what}"
    where = f" from target {one.target}" if one.target else ""
    whole = " as a whole" if one.is_whole and not one.target else ""
    return f"{what} is withdrawn{whole}{where} {since}"


def lift_command(one: Withdrawal) -> str:
    """The command that lets this be published again."""
    parts = [f"kfm withdraw {one.dataset_id}"]
    if one.start_ms is not None and one.end_ms is not None:
        parts.append(f"--window {rfc3339(one.start_ms)}/{rfc3339(one.end_ms)}")
    if one.source_id:
        parts.append(f"--source {one.source_id}")
    if one.target:
        parts.append(f"--target {one.target}")
    return f"{' '.join(parts)} --lift --yes --rationale TEXT"


def withdraw_command(dataset_id: str) -> str:
    """The command that shows what would be taken down, and how to do it."""
    return f"kfm withdraw {dataset_id}"


def must_go(head: Promotion | None, shows: bool, care_level: str | None, consent: str | None) -> str | None:
    """Why a dataset that readers can still see has to be withdrawn; None if it has not."""
    if head is None or not shows:
        return None
    if care_level == "blocked":
        return "its CARE level is blocked"
    if consent == "withdrawn":
        return "consent is withdrawn"
    return None
