"""Replays: a frozen plan brings units back, batch by batch, each with a receipt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec.structs import replace

from kfm.model.errors import PlanDrifted, ReplayTooLarge, SwitchThrown, UsageError
from kfm.model.gates import replay_gate
from kfm.model.plan_cells import UnitsCell
from kfm.model.quantities import counted
from kfm.model.records import (
    BY_KFM,
    GateResult,
    GovernanceEntry,
    Justification,
    Record,
    governance_entry,
    justified,
)
from kfm.model.replays import (
    DLQ_DRAIN,
    NO_SCOPE_REMEDY,
    STATUSES,
    Chosen,
    Mode,
    Replay,
    ReplayPlan,
    ReplaySpec,
    Selection,
    check_plan,
    check_reason,
    ineligible,
    make_plan,
    shipped_grants,
)
from kfm.model.retry_budgets import unit_policy
from kfm.model.settings import Ingest
from kfm.model.times import rfc3339
from kfm.model.units import IntakeReport
from kfm.nodd.dead_letters import DeadLetters, DrainCounts, drain
from kfm.ports import Clock

if TYPE_CHECKING:
    from kfm.app import App
    from kfm.db.replays import ReplayReader, Replays
    from kfm.ports import Queue, QueueMessage


BATCH_SIZE = 100
SERVED_MAX = 100  # replays that services carry out at once
NAMED_MAX = 3


class ReplayPace(Record, frozen=True):
    """How fast, and how far."""

    batch_size: int = BATCH_SIZE
    max_batches: int | None = None
    rate: float | None = None  # units a second


class ReplayReport(Record, frozen=True):
    """What one execution of a replay did."""

    replay: Replay
    receipts: dict[str, int]  # all that were ever given; '' counts the units that wait
    batches: int
    stopped: dict[str, str] = {}  # dataset → the switch that blocks it

    @property
    def waiting(self) -> int:
        return self.receipts.get("", 0)


@dataclass(frozen=True)
class ReplayContext:
    """Dependencies of replays."""

    settings: Ingest
    replays: Replays
    gate: Callable[[str], GateResult]  # may units of this dataset be replayed
    clock: Clock
    now_ms: Callable[[], int]  # of the ledger
    grants_of: Callable[[str], int] = shipped_grants  # of a dataset's units
    note: Callable[[list[GovernanceEntry]], None] = lambda _entries: None  # who resumed one


# --- planning --------------------------------------------------------------------------


def whole(selection: Selection, mode: Mode) -> Selection:
    """With the states that the mode is about, where none were named. Without scope it is refused."""
    if not selection.has_scope:
        raise UsageError(
            "A replay without scope would mean everything that ever failed.", remedy=NO_SCOPE_REMEDY
        )
    if selection.statuses or selection.wal_ids:  # of a unit that is named it is said why it is left out
        return selection
    return replace(selection, statuses=STATUSES[mode])


def plan(
    reader: ReplayReader,
    settings: Ingest,
    selection: Selection,
    *,
    mode: Mode,
    reason: str,
    limit: int | None,
    now_ms: int,
    grants_of: Callable[[str], int] = shipped_grants,
) -> ReplayPlan:
    """Exactly what would be replayed now. Without --limit a selection beyond the cap is refused."""
    selection = whole(selection, mode)
    check_reason(reason, settings.replay_reasons)
    cap = settings.replays_max
    chosen = reader.select_all(selection) if limit is not None else reader.select(selection, cap + 1)
    if isinstance(chosen, list) and len(chosen) > cap:
        raise ReplayTooLarge(
            f"More than {counted(cap, 'unit')} are selected, and one replay has at most that."
        )
    if limit is not None and limit > cap:
        raise ReplayTooLarge(f"--limit {limit} is beyond the cap of {counted(cap, 'unit')} a replay.")
    return make_plan(
        selection,
        chosen,
        mode=mode,
        reason=reason,
        policy_of=settings.policy_of,
        now_ms=now_ms,
        limit=limit,
        grants_of=grants_of,
    )


def require_current(
    reader: ReplayReader,
    settings: Ingest,
    made: ReplayPlan,
    grants_of: Callable[[str], int] = shipped_grants,
) -> None:
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
        grants_of=grants_of,
    )
    as_they_are = {unit.wal_id: unit for unit in now.units}
    changed = [unit.wal_id for unit in made.units if as_they_are.get(unit.wal_id) != unit]
    if changed:
        raise drifted(made, changed)


def drifted(made: ReplayPlan, changed: Sequence[str]) -> PlanDrifted:
    names = ", ".join(changed[:NAMED_MAX]) + (", …" if len(changed) > NAMED_MAX else "")
    return PlanDrifted(
        f"plan made at {rfc3339(made.made_at_ms)}, {counted(len(changed), 'unit')} changed since: {names}",
        remedy="Make a new plan with `kfm replay dry-run`, read it, run that. Nothing was replayed.",
    )


# --- executing ----------------------------------------------------------------------


def begin(context: ReplayContext, made: ReplayPlan, by: Justification) -> Replay:
    """Record its start. One that was started before is found, and goes on whatever changed since."""
    known = context.replays.replay(made.replay_id)
    if known is None or known.state == "requested":
        require_current(context.replays, context.settings, made, context.grants_of)
        _require_open(context, made)
        entry = _entry("replay", made, by, context.now_ms(), {"units": len(made.units)})
        changed = context.replays.begin(
            made, rationale=by.rationale or "", requested_by=by.actor, entry=entry
        )
        if changed:
            raise drifted(made, changed)
        known = context.replays.replay(made.replay_id)
    elif known.state == "running":
        context.note([_entry("replay-resumed", made, by, context.now_ms(), {})])
    assert known is not None, "it was begun"
    return known


def execute(
    context: ReplayContext,
    replay: Replay,
    pace: ReplayPace,
    by: Justification,
    progress: Callable[[int], None] = lambda _units: None,
) -> ReplayReport:
    """Batch by batch, until every unit has its receipt, or as far as switches and the pace let it go."""
    made, stopped, after, batches = replay.plan, {}, "", 0
    done = replay.state == "done"
    for _ in range(len(made.units) + 1):  # each step gets at least one unit further
        if done or (pace.max_batches is not None and batches >= pace.max_batches):
            break
        began_ms = context.clock.monotonic_ms()
        stopped = _stopped(context, made)
        if len(stopped) == len(made.by_dataset):
            break
        step = context.replays.step(
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
            _rest(context.clock, began_ms, given / pace.rate)
    known = context.replays.replay(replay.replay_id)
    assert known is not None, "replays are never removed"
    return ReplayReport(
        replay=known,
        receipts=context.replays.tally(replay.replay_id),
        batches=batches,
        stopped={} if done else stopped,
    )


def _rest(clock: Clock, began_ms: int, wanted_s: float) -> None:
    left_ms = round(wanted_s * 1000) - (clock.monotonic_ms() - began_ms)
    if left_ms > 0:
        clock.sleep_ms(left_ms)


def _stopped(context: ReplayContext, made: ReplayPlan) -> dict[str, str]:
    gates = {dataset: context.gate(dataset) for dataset in made.by_dataset}
    return {dataset: gate.reason for dataset, gate in gates.items() if not gate.allowed}


def _require_open(context: ReplayContext, made: ReplayPlan) -> None:
    stopped = _stopped(context, made)
    if stopped and len(stopped) == len(made.by_dataset):
        raise SwitchThrown(next(iter(stopped.values())))


def _entry(
    kind: str, made: ReplayPlan, by: Justification, at_ms: int, facts: dict[str, object]
) -> GovernanceEntry:
    return governance_entry(
        kind,
        made.replay_id,
        at_ms,
        by,
        digest=made.digest,
        mode=made.mode,
        reason=made.reason,
        by_dataset=made.by_dataset,
        **facts,
    )


IDS_MAX = 1_000  # looked up at once


def freeze(app: App, made: ReplayPlan, by: Justification, name: str | None) -> Replay:
    """Keep a plan, to be carried out later: exactly these units. One that was kept before is found."""
    context = replay_context(app)
    if context.replays.replay(made.replay_id) is None:
        require_current(context.replays, context.settings, made, context.grants_of)
        entry = _entry("replay-planned", made, by, context.now_ms(), {"units": len(made.units)})
        changed = context.replays.freeze(
            made, entry, rationale=by.rationale or "", requested_by=by.actor, name=name
        )
        if changed:
            raise drifted(made, changed)
    known = context.replays.replay(made.replay_id)
    assert known is not None, "it was kept"
    return known


def have_served(app: App, made: ReplayPlan, by: Justification, rate: float | None) -> Replay:
    """Begin a replay, or go on with one; services carry it out, at most so many units a second."""
    context = replay_context(app)
    replay = begin(context, made, by)
    milli = None if rate is None else max(1, round(rate * 1000))
    if replay.state == "running":
        context.replays.serve(replay.replay_id, 1, milli, None)
    known = context.replays.replay(replay.replay_id)
    assert known is not None, "it was begun"
    return known


def stop(app: App, replay: Replay, by: Justification) -> Replay | None:
    """Services leave a replay alone until a person goes on with it; None: it is not under way."""
    context = replay_context(app)
    entry = _entry("replay-stopped", replay.plan, by, context.now_ms(), {})
    if not context.replays.serve(replay.replay_id, 0, replay.rate_milli, entry):
        return None
    return context.replays.replay(replay.replay_id)


def carry_on(app: App, stopping: Callable[[], bool] = lambda: False) -> int:
    """Carry out what services are to, as far as paces and switches let it go now; units with a receipt."""
    context, given = replay_context(app), 0
    for replay_id in context.replays.to_serve(SERVED_MAX):
        while not stopping() and (receipts := _served(context, replay_id)):
            given += receipts
    return given


def _served(context: ReplayContext, replay_id: str) -> int:
    """One batch of a replay, unless another service has made it; units with a receipt."""
    replay = context.replays.replay(replay_id)
    if replay is None or replay.state != "running" or replay.served != 1:
        return 0
    made, limit = replay.plan, BATCH_SIZE
    if replay.rate is not None:
        limit = min(BATCH_SIZE, int(replay.rate * (context.now_ms() - replay.updated_at_ms) / 1000))
    stopped = _stopped(context, made)
    after = ""
    for _ in range(len(made.units)):
        if limit < 1 or len(stopped) == len(made.by_dataset):
            break
        step = context.replays.step(
            replay,
            limit,
            after=after,
            stopped=stopped,
            ended=lambda counts, at_ms: _entry("replay-ended", made, BY_KFM, at_ms, {"receipts": counts}),
            is_served=True,
        )
        if step.receipts or step.done or step.looked_at < limit:
            return sum(step.receipts.values())
        after = step.last  # all of these belong to datasets that are stopped
    return 0


def units_in(app: App, cells: Sequence[UnitsCell]) -> tuple[str, ...]:
    """Units of these cells that have failed or are quarantined."""
    reader, cap = app.ledger.replay_reader(), app.settings.ingest.replays_max
    found: set[str] = set()
    for cell in cells:
        _require_known(app, Selection(datasets=(cell.dataset,)))
        found.update(reader.in_cell(cell.dataset, cell.product, cell.start_ms, cell.end_ms, cap + 1))
    if len(found) > cap:
        raise ReplayTooLarge(
            f"More than {counted(cap, 'unit')} are selected, and one replay has at most that."
        )
    if not found:
        raise UsageError("No unit of these cells has failed or is quarantined: there is nothing to replay.")
    return tuple(sorted(found))


def replay_context(app: App) -> ReplayContext:
    store = app.writer

    def gate(dataset: str) -> GateResult:
        return replay_gate(store.switches(), dataset, app.settings.domain_of(dataset))

    return ReplayContext(
        settings=app.settings.ingest,
        replays=store.replays(),
        gate=gate,
        clock=app.clock,
        now_ms=store.now_ms,
        grants_of=grants_of(app),
        note=store.append_governance,
    )


def grants_of(app: App) -> Callable[[str], int]:
    """How many grants a content version of a dataset's units has, as configured."""
    return lambda dataset: unit_policy(app.settings, dataset).grants_max


def selected(app: App, spec: ReplaySpec, limit: int) -> list[tuple[Chosen, str | None]]:
    """Selected units, each with the reason why it would not be replayed; None: it would be."""
    ingest = app.settings.ingest
    selection = whole(spec.selection, spec.mode)
    check_reason(spec.reason, ingest.replay_reasons)
    _require_known(app, selection)
    chosen = app.ledger.replay_reader().select(selection, limit)
    most = grants_of(app)
    return [
        (unit, ineligible(unit, spec.mode, ingest.policy_of(unit.dataset), most(unit.dataset)))
        for unit in chosen
    ]


def plan_of(app: App, spec: ReplaySpec) -> ReplayPlan:
    """The plan of a replay: the same for a dry run and for the replay."""
    reader: ReplayReader = app.ledger.replay_reader()
    _require_known(app, spec.selection)
    return plan(
        reader,
        app.settings.ingest,
        spec.selection,
        mode=spec.mode,
        reason=spec.reason,
        limit=spec.limit,
        now_ms=app.ledger.now_ms(),
        grants_of=grants_of(app),
    )


def _require_known(app: App, selection: Selection) -> None:
    """An unknown name would select nothing, which would look like success."""
    if selection.wal_ids:
        named = Selection(wal_ids=selection.wal_ids)
        found = {unit.wal_id for unit in app.ledger.replay_reader().select_all(named)}
        for wal_id in sorted(set(selection.wal_ids) - found):
            raise UsageError(f"There is no unit `{wal_id}`.", remedy="`kfm nodd units` lists them.")
    unknown = set(selection.datasets) - {dataset for dataset, _ in app.ledger.unit_reader().unit_counts()}
    if not unknown:
        return
    from kfm.model.quantities import did_you_mean
    from kfm.nodd.ingest import registry_of

    known = registry_of(app).names
    for name in sorted(unknown - known):
        raise UsageError(
            f"There is no dataset `{name[:80]}`{did_you_mean(name[:80], sorted(known))}",
            remedy="`kfm nodd datasets` lists those that are known.",
        )


def run_plan(
    app: App,
    made: ReplayPlan,
    pace: ReplayPace,
    by: Justification,
    progress: Callable[[int], None] = lambda _units: None,
) -> ReplayReport:
    context = replay_context(app)
    return execute(context, begin(context, made, by), pace, by, progress)


def person(app: App, rationale: str, ticket: str | None, claimed_actor: str | None) -> Justification:
    """Who asks and why, redacted: it is kept for good."""
    return justified(app.loaded.discretion.said, app.actor, rationale, ticket, claimed_actor)


def has_approval(app: App, made: ReplayPlan) -> bool:
    """May it be begun, or was it? The store asks once more, in its own transaction."""
    store = app.writer
    known = store.replays().replay(made.replay_id)
    if known is not None and known.state != "requested":
        return True
    now_ms = store.now_ms()
    return any(
        one.kind == "replay"
        and one.digest == made.digest
        and one.used_at_ms is None
        and (one.expires_at_ms or 0) > now_ms
        for one in store.approvals(state="approved", subject=made.replay_id)
    )


# --- dead-letter queues ----------------------------------------------------------------


class DrainReport(Record, frozen=True):
    """Outcome of a drain: the messages of the dead-letter queue, and the units that they announce."""

    queue: str
    drained: DrainCounts
    report: IntakeReport
    replayed: int  # units that had failed for good, and were announced in there
    left_failed: int  # those of them that could not be replayed


def drain_queue(
    app: App,
    name: str,
    url: str | None,
    limit: int,
    by: Justification,
    progress: Callable[[int], None] = lambda _messages: None,
) -> DrainReport:
    """Take in the messages of a dead-letter queue; failed units that they announce are replayed."""
    from kfm.nodd.ingest import NoddIngest

    ingest = NoddIngest(app)
    queue, check = ingest.dead_letters(name, url)
    dead_letters = DeadLetters(ingest.context(), queue.name, check)

    def take_in(messages: list[QueueMessage]) -> list[str]:
        durable = dead_letters.take_in(messages)
        progress(len(messages))
        return durable

    try:
        _record_drain(app, "queue-drain", queue, by, {"limit": limit})
        drained = drain(queue, take_in, messages_max=limit)
    finally:
        queue.close()
        ingest.close()
    replayed, left = _replay_failed(app, dead_letters.announced, by)
    facts = {"received": drained.received, "durable": drained.durable, "left": drained.left}
    _record_drain(app, "queue-drained", queue, by, {**facts, "replayed": replayed})
    return DrainReport(
        queue=name, drained=drained, report=dead_letters.report, replayed=replayed, left_failed=left
    )


def _replay_failed(app: App, announced: set[str], by: Justification) -> tuple[int, int]:
    """Replay units that are out of attempts, with an error that may have been transient."""
    reader, names = app.writer.replay_reader(), sorted(announced)
    replayed = left = 0
    for start in range(0, len(names), IDS_MAX):
        selection = Selection(wal_ids=tuple(names[start : start + IDS_MAX]), statuses=("failed",))
        made = plan(
            reader,
            app.settings.ingest,
            selection,
            mode="failed-only",
            reason=DLQ_DRAIN,
            limit=app.settings.ingest.replays_max,
            now_ms=app.writer.now_ms(),
            grants_of=grants_of(app),
        )
        left += sum(made.left_out.values())
        if made.units:
            report = run_plan(app, made, ReplayPace(), by)
            replayed += report.receipts.get("replayed", 0)
            left += report.waiting
    return replayed, left


def _record_drain(app: App, kind: str, queue: Queue, by: Justification, facts: dict[str, int]) -> None:
    store = app.writer
    entry = governance_entry(kind, queue.name, store.now_ms(), by, reason=DLQ_DRAIN, **facts)
    store.append_governance([entry])
