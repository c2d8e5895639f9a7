"""Replays, put together: plans made and carried out, and dead-letter queues emptied."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kfm.core.errors import UsageError
from kfm.core.gates import replay_gate
from kfm.core.records import GateResult, GovernanceEntry, Record
from kfm.core.replays import (
    DLQ_DRAIN,
    Chosen,
    ReplayPlan,
    ReplaySpec,
    Selection,
    check_reason,
    ineligible,
)
from kfm.core.wal import IntakeReport
from kfm.engine.draining import DeadLetters
from kfm.engine.replaying import Carried, Pace, Person, Replaying, begin, carry_out, plan, whole
from kfm.ingest.draining import Drained, drain

if TYPE_CHECKING:
    from kfm.core.holding import Approval
    from kfm.ingest_ports import Message, Queue, ReplayReader
    from kfm.wiring.app import App

IDS_MAX = 1_000  # looked up at once


def replaying(app: App) -> Replaying:
    store = app.kernel.store

    def gate(dataset: str) -> GateResult:
        return replay_gate(store.switches(), dataset, app.settings.domain_of(dataset))

    return Replaying(
        settings=app.settings.ingest,
        replays=store.replays(),
        gate=gate,
        clock=app.clock,
        now_ms=store.now_ms,
        note=store.append_governance,
    )


def selected(app: App, spec: ReplaySpec, limit: int) -> list[tuple[Chosen, str | None]]:
    """Units that are meant, each with why it would not come back; None: it would."""
    ingest = app.settings.ingest
    selection = whole(spec.selection, spec.mode)
    check_reason(spec.reason, ingest.replay_reasons)
    _require_known(app, selection)
    chosen = app.ledger.replay_reader().select(selection, limit)
    return [(unit, ineligible(unit, spec.mode, ingest.policy_of(unit.dataset))) for unit in chosen]


def plan_of(app: App, spec: ReplaySpec) -> ReplayPlan:
    """For those who only look, and for those who go on: the same."""
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
    )


def _require_known(app: App, selection: Selection) -> None:
    """A name that is nobody's selects nothing, which would look like good news."""
    unknown = set(selection.datasets) - {dataset for dataset, _ in app.ledger.unit_reader().unit_counts()}
    if not unknown:
        return
    from kfm.configuration.shape import nearest
    from kfm.wiring.ingest import registry_of

    known = registry_of(app).names
    for name in sorted(unknown - known):
        raise UsageError(
            f"There is no dataset `{name[:80]}`{nearest(name[:80], sorted(known))}",
            remedy="`kfm nodd datasets` lists those that are known.",
        )


def run_plan(
    app: App,
    made: ReplayPlan,
    pace: Pace,
    by: Person,
    progress: Callable[[int], None] = lambda _units: None,
) -> Carried:
    kernel = replaying(app)
    return carry_out(kernel, begin(kernel, made, by), pace, by, progress)


def person(app: App, rationale: str, ticket: str | None, claimed_actor: str | None) -> Person:
    """What people say is kept for good, so without what must not be kept."""
    said = app.loaded.discretion.said
    return Person(
        actor=app.actor,
        rationale=said(rationale),
        ticket=ticket and said(ticket),
        claimed_actor=claimed_actor and said(claimed_actor),
    )


def has_approval(app: App, made: ReplayPlan) -> bool:
    """May it be begun, or was it? The store asks once more, in its own transaction."""
    store = app.kernel.store
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


def ask(app: App, made: ReplayPlan, by: Person) -> Approval:
    from kfm.wiring.approvals import request_replay

    return request_replay(app, made, rationale=by.rationale, ticket=by.ticket, claimed_actor=by.claimed_actor)


# --- dead-letter queues ----------------------------------------------------------------


class DrainReport(Record, frozen=True):
    """What became of a dead-letter queue's messages, and of the units that they are about."""

    queue: str
    drained: Drained
    report: IntakeReport
    replayed: int  # units that had failed for good, and were announced in there
    left_failed: int  # those of them that could not be brought back


def drain_queue(
    app: App,
    name: str,
    url: str | None,
    limit: int,
    by: Person,
    progress: Callable[[int], None] = lambda _messages: None,
) -> DrainReport:
    """Take in what a dead-letter queue holds; failed units that it is about get another chance."""
    from kfm.wiring.ingest import IngestPlace

    place = IngestPlace(app)
    queue, check = place.dead_letters(name, url)
    letters = DeadLetters(place.kernel(), queue.name, check)

    def hand_on(messages: list[Message]) -> list[str]:
        durable = letters.hand_on(messages)
        progress(len(messages))
        return durable

    try:
        _note_drain(app, "queue-drain", queue, by, {"limit": limit})
        drained = drain(queue, hand_on, messages_max=limit)
    finally:
        queue.close()
        place.close()
    replayed, left = _bring_back(app, letters.announced, by)
    facts = {"received": drained.received, "durable": drained.durable, "left": drained.left}
    _note_drain(app, "queue-drained", queue, by, {**facts, "replayed": replayed})
    return DrainReport(
        queue=name, drained=drained, report=letters.report, replayed=replayed, left_failed=left
    )


def _bring_back(app: App, announced: set[str], by: Person) -> tuple[int, int]:
    """Units that wait for a drain: out of attempts, with an error that may have passed."""
    reader, names = app.kernel.store.replay_reader(), sorted(announced)
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
            now_ms=app.kernel.store.now_ms(),
        )
        left += sum(made.left_out.values())
        if made.units:
            carried = run_plan(app, made, Pace(), by)
            replayed += carried.receipts.get("replayed", 0)
            left += carried.waiting
    return replayed, left


def _note_drain(app: App, kind: str, queue: Queue, by: Person, facts: dict[str, int]) -> None:
    store = app.kernel.store
    entry = GovernanceEntry(
        kind=kind,
        subject=queue.name,
        actor=by.actor,
        recorded_at_ms=store.now_ms(),
        rationale=by.rationale,
        ticket=by.ticket,
        details={"reason": DLQ_DRAIN, "claimed_actor": by.claimed_actor, **facts},
    )
    store.append_governance([entry])
