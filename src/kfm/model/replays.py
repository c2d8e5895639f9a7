"""Replays: which units are meant, which of them may come back, and what was seen at that time. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import nsmallest
from typing import Any, Literal

import msgspec

from kfm.model.canonical import canonical_bytes
from kfm.model.errors import UsageError
from kfm.model.input_hash import sha256_text
from kfm.model.records import Record
from kfm.model.retry import policy_for
from kfm.model.settings import IngestPolicy
from kfm.model.units import UnitTransition

DIGEST_TAG, OLDER_TAG = "replay-plan/2", "replay-plan/1"  # of digests; the older one holds less of a unit
DLQ_DRAIN, BACKFILL = "dlq-drain", "backfill"  # what draining and reconciling say of themselves
REASONS = ("none", DLQ_DRAIN, "incident", BACKFILL, "test")
Mode = Literal["failed-only", "repair-and-replace", "backfill"]
MODES: tuple[Mode, ...] = ("failed-only", "repair-and-replace", "backfill")
# Which states a mode is about.
STATUSES: dict[Mode, tuple[str, ...]] = {
    "failed-only": ("failed",),
    "backfill": ("failed", "quarantined"),
    "repair-and-replace": ("failed", "quarantined", "succeeded"),
}
MISMATCH = "REPLAY_MISMATCH"
BEYOND = "more than --limit allows"
REPLAY_ID_CHARS = 32
NO_SCOPE_REMEDY = (
    "Say which units are meant: --dataset, --dataset-in, --error-code, --unit, --event-time-start or "
    "--created-after. A status, an end or a number of attempts only narrows."
)


class Selection(Record, frozen=True, omit_defaults=True):
    """Which units a replay is about. An empty field does not narrow."""

    datasets: tuple[str, ...] = ()
    statuses: tuple[str, ...] = ()
    error_codes: tuple[str, ...] = ()
    event_time_start_ms: int | None = None
    event_time_end_ms: int | None = None  # not included
    created_after_ms: int | None = None
    created_before_ms: int | None = None
    attempts_max: int | None = None
    wal_ids: tuple[str, ...] = ()

    @property
    def has_scope(self) -> bool:
        """States and numbers of attempts alone mean everything that ever failed."""
        return bool(
            self.datasets
            or self.error_codes
            or self.wal_ids
            or self.event_time_start_ms is not None
            or self.created_after_ms is not None
        )


class Chosen(Record, frozen=True):
    """A unit as it was when it was selected. Field order is column order."""

    wal_id: str
    version: int
    dataset: str
    status: str
    error_code: str | None
    attempts: int
    grants: int
    object_uri: str


class ReplaySummary(Record, frozen=True):
    """What lists say of a plan."""

    units: int
    by_dataset: dict[str, int]
    left_out: dict[str, int]
    needs_approval: bool
    made_at_ms: int


class ReplayPlan(Record, frozen=True):
    """Exactly what would be replayed."""

    kfm: Literal["replay-plan/1"]
    mode: Mode
    reason: str
    selection: Selection
    units: tuple[Chosen, ...]
    left_out: dict[str, int]  # why → how many of those that were selected
    by_dataset: dict[str, int]
    by_error_code: dict[str, int]
    by_status: dict[str, int]
    made_at_ms: int
    digest: str

    @property
    def needs_approval(self) -> bool:
        """What had ended comes back, and what is published is replaced, only with a second person's yes."""
        return bool(self.units) and (
            self.mode == "repair-and-replace" or any(unit.status != "failed" for unit in self.units)
        )

    @property
    def summary(self) -> ReplaySummary:
        return ReplaySummary(
            units=len(self.units),
            by_dataset=self.by_dataset,
            left_out=self.left_out,
            needs_approval=self.needs_approval,
            made_at_ms=self.made_at_ms,
        )

    @property
    def replay_id(self) -> str:
        """The same plan is the same replay, whichever process carries it out."""
        return self.digest.removeprefix("sha256:")[:REPLAY_ID_CHARS]


class ReplaySpec(Record, frozen=True, omit_defaults=True):
    """A replay specification: kept, and planned from as often as needed. It freezes nothing."""

    kfm: Literal["replay-spec/1"]
    selection: Selection
    mode: Mode = "failed-only"
    reason: str = "none"
    limit: int | None = None


class Replay(Record, frozen=True):
    """One replay on record. Field order is column order."""

    replay_id: str
    digest: str
    plan: ReplayPlan
    mode: str
    reason: str
    rationale: str
    requested_by: str
    state: Literal["requested", "running", "done"]  # requested: a second person has to agree first
    created_at_ms: int
    updated_at_ms: int
    name: str | None = None
    served: int | None = None  # 1: services carry it out; 0: a person has stopped that; None: commands do
    rate_milli: int | None = None  # units per 1,000 seconds

    @property
    def summary(self) -> ReplaySummary:
        return self.plan.summary

    @property
    def rate(self) -> float | None:
        """Units a second."""
        return None if self.rate_milli is None else self.rate_milli / 1000


class ListedReplay(Record, frozen=True):
    """A replay without the units of its plan."""

    replay_id: str
    digest: str
    mode: str
    reason: str
    rationale: str
    requested_by: str
    state: Literal["requested", "running", "done"]
    created_at_ms: int
    updated_at_ms: int
    name: str | None
    served: int | None
    rate_milli: int | None
    summary: ReplaySummary


class Receipt(Record, frozen=True):
    """What the replay did with one unit, and how that unit is now. Field order is column order."""

    wal_id: str
    version: int  # as it was planned
    receipt: Literal["replayed", "drifted"] | None  # None: not yet
    at_ms: int | None
    dataset: str | None = None  # from here on: None where there is no such unit any more
    object_uri: str | None = None
    status: str | None = None
    error_code: str | None = None
    attempts: int | None = None


class Stepped(Record, frozen=True):
    """What one batch of a replay came to."""

    looked_at: int  # units that had no receipt yet
    last: str  # the last of them
    receipts: dict[str, int]
    done: bool  # every unit of the plan has its receipt


def shipped_grants(_dataset: str) -> int:
    """Grants of one content version, where nothing is configured."""
    return policy_for("upstream-event").grants_max


def make_plan(
    selection: Selection,
    chosen: Iterable[Chosen],
    *,
    mode: Mode,
    reason: str,
    policy_of: Callable[[str], IngestPolicy],
    now_ms: int,
    limit: int | None = None,
    grants_of: Callable[[str], int] = shipped_grants,
) -> ReplayPlan:
    """The one decision about what is replayed, for those who only look and for those who do it.

    Of `chosen`, however many they are, no more than --limit are kept at once.
    """
    left_out: Counter[str] = Counter()

    def eligible() -> Iterator[Chosen]:
        for unit in chosen:
            why = ineligible(unit, mode, policy_of(unit.dataset), grants_of(unit.dataset))
            left_out[why or BEYOND] += 1
            if why is None:
                yield unit

    units = sorted(eligible(), key=_id) if limit is None else nsmallest(limit, eligible(), key=_id)
    left_out[BEYOND] -= len(units)
    left_out = +left_out  # without what counts nothing
    by_dataset, by_error_code, by_status = _counts(units)
    return ReplayPlan(
        kfm="replay-plan/1",
        mode=mode,
        reason=reason,
        selection=selection,
        units=tuple(units),
        left_out=dict(sorted(left_out.items())),
        by_dataset=by_dataset,
        by_error_code=by_error_code,
        by_status=by_status,
        made_at_ms=now_ms,
        digest=digest_of(mode, reason, units),
    )


def ineligible(unit: Chosen, mode: Mode, policy: IngestPolicy, grants_max: int) -> str | None:
    """Why a unit is not replayed; None: it is."""
    if unit.status not in STATUSES[mode]:
        return f"it is {unit.status}"
    if unit.status == "quarantined" and not policy.may_end_quarantine(unit.error_code):
        return "no policy lets its quarantine end (`replay_quarantined`)"
    if unit.grants >= grants_max:
        return f"its grants are used up: {grants_max} (`retry.grants` of its policy)"
    return None


def digest_of(mode: str, reason: str, units: Sequence[Chosen], tag: str = DIGEST_TAG) -> str:
    """Of what is done to which units, each as it was seen."""
    seen: list[Any] = [list(msgspec.structs.astuple(unit)) for unit in units]
    if tag == OLDER_TAG:
        seen = [[unit.wal_id, unit.version, unit.status] for unit in units]
    document = {"kfm": tag, "mode": mode, "reason": reason, "units": seen}
    return sha256_text(canonical_bytes(document))


def check_plan(plan: ReplayPlan) -> None:
    """A plan that was edited is not valid. What an older digest leaves out is compared with the ledger."""
    ids = [unit.wal_id for unit in plan.units]
    digests = [digest_of(plan.mode, plan.reason, plan.units, tag) for tag in (DIGEST_TAG, OLDER_TAG)]
    counts = plan.by_dataset, plan.by_error_code, plan.by_status
    as_made = ids == sorted(set(ids)) and plan.digest in digests and counts == _counts(plan.units)
    if not as_made or any(unit.status not in STATUSES[plan.mode] for unit in plan.units):
        raise UsageError(
            "The plan is not as it was made: its digest does not fit.",
            remedy="Make a new one with `kfm replay dry-run`.",
        )


def check_reason(reason: str, governed: Sequence[str] = ()) -> None:
    if reason not in REASONS and reason not in governed:
        known = ", ".join((*REASONS, *governed))
        raise UsageError(f"`{reason[:64]}` is no reason for a replay.", remedy=f"Give one of: {known}.")


def differing(history: Sequence[UnitTransition]) -> dict[str, tuple[Any, Any]]:
    """Field by field what the last replay would have made of a unit: (is, would be). Empty: no mismatch."""
    for move in reversed(history):
        if move.event in ("succeeded", "failed"):
            if move.details.get("error_code") != MISMATCH:
                return {}
            pairs = ((name, pair) for name, pair in move.details.items() if isinstance(pair, list))
            return {name: (pair[0], pair[1]) for name, pair in sorted(pairs) if len(pair) == 2}
    return {}


def _id(unit: Chosen) -> str:
    return unit.wal_id


def _counts(units: Sequence[Chosen]) -> tuple[dict[str, int], dict[str, int], dict[str, int]]:
    """By dataset, by error code, by status."""
    return (
        _counted(unit.dataset for unit in units),
        _counted(unit.error_code or "-" for unit in units),
        _counted(unit.status for unit in units),
    )


def _counted(values: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(values).items()))
