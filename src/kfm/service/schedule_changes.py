"""Schedules: paused, resumed and backfilled by a person."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from kfm.model.canonical import canonical_bytes
from kfm.model.errors import Busy
from kfm.model.input_hash import sha256_text
from kfm.model.masked_names import names_by_dataset
from kfm.model.records import governance_entry, justified
from kfm.model.scheduled_times import (
    BACKFILL,
    EXAMINED_MAX,
    BackfillTime,
    Expected,
    account,
    asking_again,
    backfill,
    coverage,
    request_for,
)
from kfm.model.schedules import Instant, ScheduleState
from kfm.model.times import rfc3339
from kfm.model.window_plans import PlannedWindow, window_plan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kfm.app import App
    from kfm.model.requests import UpdateRequest
    from kfm.model.schedules import Schedule

BACKFILL_TAG = "backfill/1"
ROUNDS_MAX = 20  # a schedule of every second moves meanwhile


def set_paused(
    app: App,
    schedule: Schedule,
    paused: bool,
    *,
    rationale: str,
    claimed_actor: str | None = None,
    ticket: str | None = None,
) -> tuple[ScheduleState, bool]:
    """Pause or resume; the state now, and whether that changed anything."""
    by = justified(app.loaded.discretion.said, app.actor, rationale, ticket, claimed_actor)
    states = app.kernel.store.schedule_states()
    for _ in range(ROUNDS_MAX):
        seen = states.states().get(schedule.id)
        if seen is None:
            _first_sight(app, schedule)
            continue
        if (seen.paused_at_ms is not None) == paused:
            return seen, False
        now_ms = app.kernel.store.now_ms()
        entry = governance_entry(
            "schedule-paused" if paused else "schedule-resumed",
            f"schedule:{schedule.id}",
            now_ms,
            by,
            source_id=schedule.source,
            while_paused=schedule.while_paused,
            accounted_until=rfc3339(seen.cursor_ms),
        )
        state = replace(
            seen,
            version=seen.version + 1,
            paused_at_ms=now_ms if paused else None,
            paused_by=app.actor if paused else None,
            rationale=by.rationale if paused else None,
            updated_at_ms=now_ms,
        )
        if states.set_paused(seen, state, entry):
            return state, True
    raise Busy(f"The schedule {schedule.id} kept moving.")


def _first_sight(app: App, schedule: Schedule) -> None:
    """Make the schedule known to the ledger: an unknown one can be neither paused nor backfilled."""
    store = app.kernel.store
    source = app.settings.source(schedule.source)
    store.remember_names(names_by_dataset(app.settings, [schedule]))
    step = account(
        replace(schedule, enabled=True), source, None, [], store.now_ms(), late_ms=0, actor=app.actor
    )
    assert step is not None
    store.schedule_states().account(step)


def plan_backfill(
    app: App, schedule: Schedule, start_ms: int, end_ms: int, *, only_missed: bool
) -> list[BackfillTime]:
    """The scheduled times of a span that can be backfilled, with what they became. Reads only."""
    reader = app.ledger.schedule_reader()
    state = reader.states().get(schedule.id)  # first: rows up to its cursor are there then
    return backfill(
        schedule,
        app.settings.source(schedule.source),
        start_ms,
        end_ms,
        reader.instants(schedule.id, start_ms, end_ms, EXAMINED_MAX + 1),
        only_missed=only_missed,
        state=state,
        now_ms=app.ledger.now_ms(),
        refused={
            (one.window_start_ms, one.window_end_ms): one
            for one in app.ledger.request_reader().refused_of(schedule.id, EXAMINED_MAX)
        },
    )


def make_backfill(
    app: App,
    schedule: Schedule,
    planned: Sequence[BackfillTime],
    *,
    rationale: str,
    claimed_actor: str | None = None,
    ticket: str | None = None,
    name: str | None = None,
    plan_id: str | None = None,
) -> list[UpdateRequest]:
    """Make requests for the planned times that have none; returns those that were made."""
    store = app.kernel.store
    if schedule.id not in store.schedule_states().states():
        # First: else a scheduler that sees it later could account for these, too.
        _first_sight(app, schedule)
    cursor_ms = store.schedule_states().states()[schedule.id].cursor_ms
    now_ms = store.now_ms()
    by = justified(app.loaded.discretion.said, app.actor, rationale, ticket, claimed_actor)
    source = app.settings.source(schedule.source)
    wanted = [
        replace(
            request_for(schedule, source, one.instant_ms, now_ms, app.actor)
            if one.repeats is None
            else asking_again(one.repeats, now_ms, app.actor),
            not_before_ms=now_ms,  # what is on time was due earlier, and goes first
            rationale=by.rationale,
            ticket=by.ticket,
            claimed_actor=by.claimed_actor or f"schedule:{schedule.id}",
            details={BACKFILL: True},
        )
        for one in planned
        if not one.has_request and one.instant_ms <= cursor_ms
    ]
    if not wanted:
        return []
    rows = [
        Instant(
            schedule_id=schedule.id,
            instant_ms=one.instant_ms,
            last_ms=one.instant_ms,
            became="backfilled",
            request_id=one.request_id,
            reason=f"Backfilled by {app.actor}.",
            at_ms=now_ms,
        )
        for one in wanted
        if one.instant_ms is not None  # what is asked for again has its scheduled time
    ]
    chosen = [one for one in planned if not one.has_request and one.instant_ms <= cursor_ms]
    entry = governance_entry(
        "backfill",
        f"schedule:{schedule.id}",
        now_ms,
        by,
        source_id=schedule.source,
        instants=len(wanted),
        first=rfc3339(chosen[0].instant_ms),
        last=rfc3339(chosen[-1].instant_ms),
    )
    asked = {(one.window_start_ms, one.window_end_ms): one.request_id for one in wanted}
    listed = window_plan(
        plan_id or app.ids.new(),
        "backfill",
        backfill_digest(schedule, planned),
        schedule.id,
        [
            PlannedWindow(
                source_id=source.id,
                dataset_id=source.dataset,
                start_ms=one.window_start_ms,
                end_ms=one.window_end_ms,
                instant_ms=one.instant_ms,
                was=one.fate,
                why="",
                request_id=asked.get((one.window_start_ms, one.window_end_ms)),
            )
            for one in chosen
        ],
        [
            "it has a request" if one.has_request else "it is not due yet"
            for one in planned
            if one not in chosen
        ],
        by,
        now_ms,
        name and app.loaded.discretion.said(name),
    )
    return store.schedule_states().backfill(rows, wanted, entry, listed)


def backfill_digest(schedule: Schedule, planned: Sequence[BackfillTime]) -> str:
    """Of the scheduled times that would be asked for, and what they became."""
    listed = [[rfc3339(one.instant_ms), one.fate] for one in planned if not one.has_request]
    return sha256_text(canonical_bytes({"kfm": BACKFILL_TAG, "schedule": schedule.id, "instants": listed}))


def history(app: App, schedule: Schedule, start_ms: int, end_ms: int, limit: int) -> list[Expected]:
    """What became of the scheduled times of a span."""
    reader = app.ledger.schedule_reader()
    state = reader.states().get(schedule.id)  # first: rows up to its cursor are there then
    return coverage(
        schedule,
        app.settings.source(schedule.source),
        reader.instants(schedule.id, start_ms, end_ms, EXAMINED_MAX),
        start_ms,
        end_ms,
        state=state,
        now_ms=app.ledger.now_ms(),
        late_ms=app.settings.serve.late_ms,
        limit=limit,
    )
