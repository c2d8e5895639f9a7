"""Bringing units back: a plan that is frozen, and its units, batch by batch, each with a receipt.

Whoever only looks and whoever does it decide by the same function. Receipts land with the units that they
are about, so whoever is killed in between is followed by anybody who runs the same plan again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from kfm.core.errors import PlanDrifted, ReplayTooLarge, SwitchThrown, UsageError
from kfm.core.records import GateResult, GovernanceEntry, Record
from kfm.core.replays import (
    NO_SCOPE_REMEDY,
    STATUSES,
    Mode,
    Replay,
    ReplayPlan,
    Selection,
    check_plan,
    check_reason,
    make_plan,
)
from kfm.core.settings import Ingest
from kfm.core.times import rfc3339
from kfm.core.wording import counted
from kfm.ingest_ports import ReplayReader, Replays
from kfm.ports import Clock

BATCH_SIZE = 100
NAMED_MAX = 3


class Pace(Record, frozen=True):
    """How fast, and how far."""

    batch_size: int = BATCH_SIZE
    max_batches: int | None = None
    rate: float | None = None  # units a second


class Person(Record, frozen=True):
    """Who carries it out, and why."""

    actor: str
    rationale: str
    ticket: str | None = None
    claimed_actor: str | None = None


class Carried(Record, frozen=True):
    """What carrying it out came to, this time."""

    replay: Replay
    receipts: dict[str, int]  # all that were ever given; '' are the units that wait
    batches: int
    stopped: dict[str, str] = {}  # dataset → which switch stands in the way

    @property
    def waiting(self) -> int:
        return self.receipts.get("", 0)


@dataclass(frozen=True)
class Replaying:
    """Everything that replays need, chosen by the wiring."""

    settings: Ingest
    replays: Replays
    gate: Callable[[str], GateResult]  # may units of this dataset be brought back
    clock: Clock
    now_ms: Callable[[], int]  # of the ledger
    note: Callable[[list[GovernanceEntry]], None] = lambda _entries: None  # who took one up again


# --- planning --------------------------------------------------------------------------


def whole(selection: Selection, mode: Mode) -> Selection:
    """With the states that the mode is about, where none were named. Without scope it is refused."""
    if not selection.has_scope:
        raise UsageError(
            "A replay without scope would mean everything that ever failed.", remedy=NO_SCOPE_REMEDY
        )
    return selection if selection.statuses else replace(selection, statuses=STATUSES[mode])


def plan(
    reader: ReplayReader,
    settings: Ingest,
    selection: Selection,
    *,
    mode: Mode,
    reason: str,
    limit: int | None,
    now_ms: int,
) -> ReplayPlan:
    """Exactly what would be replayed now. Without --limit a selection beyond the cap is refused."""
    selection = whole(selection, mode)
    check_reason(reason, settings.replay_reasons)
    cap = settings.replays_max
    chosen = reader.select(selection, cap + 1)
    if len(chosen) > cap and limit is None:
        raise ReplayTooLarge(
            f"More than {counted(cap, 'unit')} are selected, and one replay has at most that."
        )
    if limit is not None and limit > cap:
        raise ReplayTooLarge(f"--limit {limit} is beyond the cap of {counted(cap, 'unit')} a replay.")
    return make_plan(
        selection, chosen, mode=mode, reason=reason, policy_of=settings.policy_of, now_ms=now_ms, limit=limit
    )


def require_current(reader: ReplayReader, settings: Ingest, made: ReplayPlan) -> None:
    """Would the same be decided now about exactly these units? If not, nothing is done."""
    check_plan(made)
    check_reason(made.reason, settings.replay_reasons)
    if not made.units:
        raise UsageError("The plan has no units, so there is nothing to replay.")
    if len(made.units) > settings.replays_max:
        raise ReplayTooLarge(
            f"The plan has {counted(len(made.units), 'unit')}; one replay has at most {settings.replays_max}."
        )
    named = Selection(wal_ids=tuple(unit.wal_id for unit in made.units))
    now = make_plan(
        named,
        reader.select(named, len(made.units)),
        mode=made.mode,
        reason=made.reason,
        policy_of=settings.policy_of,
        now_ms=made.made_at_ms,
    )
    as_they_are = {unit.wal_id: (unit.version, unit.status) for unit in now.units}
    changed = [
        unit.wal_id for unit in made.units if as_they_are.get(unit.wal_id) != (unit.version, unit.status)
    ]
    if changed:
        raise drifted(made, changed)


def drifted(made: ReplayPlan, changed: Sequence[str]) -> PlanDrifted:
    names = ", ".join(changed[:NAMED_MAX]) + (", …" if len(changed) > NAMED_MAX else "")
    return PlanDrifted(
        f"plan made at {rfc3339(made.made_at_ms)}, {counted(len(changed), 'unit')} changed since: {names}",
        remedy="Make a new plan with `kfm replay dry-run`, read it, run that. Nothing was replayed.",
    )


# --- carrying out ----------------------------------------------------------------------


def begin(kernel: Replaying, made: ReplayPlan, by: Person) -> Replay:
    """On record from here on. One that was begun before is found, and goes on whatever moved since."""
    known = kernel.replays.replay(made.replay_id)
    if known is None or known.state == "requested":
        require_current(kernel.replays, kernel.settings, made)
        _require_open(kernel, made)
        entry = _entry("replay", made, by, kernel.now_ms(), {"units": len(made.units)})
        changed = kernel.replays.begin(made, rationale=by.rationale, requested_by=by.actor, entry=entry)
        if changed:
            raise drifted(made, changed)
        known = kernel.replays.replay(made.replay_id)
    elif known.state == "running":
        kernel.note([_entry("replay-resumed", made, by, kernel.now_ms(), {})])
    assert known is not None, "it was begun"
    return known


def carry_out(
    kernel: Replaying,
    replay: Replay,
    pace: Pace,
    by: Person,
    progress: Callable[[int], None] = lambda _units: None,
) -> Carried:
    """Batch by batch, until every unit has its receipt, or as far as switches and the pace let it go."""
    made, stopped, after, batches = replay.plan, {}, "", 0
    done = replay.state == "done"
    for _ in range(len(made.units) + 1):  # each step gets at least one unit further
        if done or (pace.max_batches is not None and batches >= pace.max_batches):
            break
        began_ms = kernel.clock.monotonic_ms()
        stopped = _stopped(kernel, made)
        if len(stopped) == len(made.by_dataset):
            break
        step = kernel.replays.step(
            replay,
            pace.batch_size,
            after=after,
            stopped=stopped,
            ended=lambda counts, at_ms: _entry("replay-ended", made, by, at_ms, {"receipts": counts}),
        )
        done, after, given = step.done, step.last, sum(step.receipts.values())
        batches += bool(given)
        progress(given)
        if step.looked_at < pace.batch_size:
            break  # what is left belongs to datasets that are stopped
        if not done and pace.rate is not None:
            _rest(kernel.clock, began_ms, given / pace.rate)
    known = kernel.replays.replay(replay.replay_id)
    assert known is not None, "replays are never removed"
    return Carried(
        replay=known,
        receipts=kernel.replays.tally(replay.replay_id),
        batches=batches,
        stopped={} if done else stopped,
    )


def _rest(clock: Clock, began_ms: int, wanted_s: float) -> None:
    left_ms = round(wanted_s * 1000) - (clock.monotonic_ms() - began_ms)
    if left_ms > 0:
        clock.sleep_ms(left_ms)


def _stopped(kernel: Replaying, made: ReplayPlan) -> dict[str, str]:
    gates = {dataset: kernel.gate(dataset) for dataset in made.by_dataset}
    return {dataset: gate.reason for dataset, gate in gates.items() if not gate.allowed}


def _require_open(kernel: Replaying, made: ReplayPlan) -> None:
    stopped = _stopped(kernel, made)
    if stopped and len(stopped) == len(made.by_dataset):
        raise SwitchThrown(next(iter(stopped.values())))


def _entry(kind: str, made: ReplayPlan, by: Person, at_ms: int, facts: dict[str, object]) -> GovernanceEntry:
    return GovernanceEntry(
        kind=kind,
        subject=made.replay_id,
        actor=by.actor,
        recorded_at_ms=at_ms,
        rationale=by.rationale,
        ticket=by.ticket,
        details={
            "digest": made.digest,
            "mode": made.mode,
            "reason": made.reason,
            "by_dataset": made.by_dataset,
            "claimed_actor": by.claimed_actor,
            **facts,
        },
    )
