"""Explains a schedule: what it waits for, who can change that, and its last scheduled time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kfm.model.quantities import duration, moment, stopped
from kfm.model.schedules import Schedule, ScheduleState, next_instant
from kfm.model.settings import Settings
from kfm.reports.blockers import blockers_of, lifting
from kfm.reports.explain.sentences import Explanation, Ref, Sentence, of_link
from kfm.reports.state_words import of_scheduled_time

if TYPE_CHECKING:
    from kfm.db.ledger_reader import LedgerReader
    from kfm.model.schedules import Instant

SUBJECT = "schedule:"  # what entries of the audit log about one begin with
LINKS_MAX = 5
STARTERS = "start `kfm serve`, or call `kfm schedule run-due`"


def find_schedule(schedules: Sequence[Schedule], wanted: str) -> Schedule | None:
    """By its name, also as `schedule:NAME`: a source or a dataset may have the same."""
    name = wanted.removeprefix(SUBJECT)
    return next((one for one in schedules if one.id == name), None)


def explain_schedule(
    ledger: LedgerReader, settings: Settings, schedule: Schedule, now_ms: int
) -> Explanation:
    reader = ledger.schedule_reader()
    state = reader.states().get(schedule.id)
    source = settings.source(schedule.source)
    blocker = next(blockers_of(settings, ledger, source.dataset, now_ms, source.id), None)
    name = f"Schedule {schedule.id} of dataset {source.dataset}"
    if not schedule.enabled:
        reason = f"{name} is disabled: the maintainer of the configuration sets `enabled: true`."
    elif state is not None and state.paused_at_ms is not None:
        since = f"since {moment(state.paused_at_ms)} by {state.paused_by}: {state.rationale}"
        command = f"kfm schedule resume {schedule.id} --rationale TEXT"
        reason = f"{name} is paused {stopped(since)} Who can lift it: an operator: `{command}`."
    elif blocker is not None:
        reason = f"{name} fires, and its runs wait: {stopped(blocker.sentence)} {lifting(blocker)}"
    else:
        reason = f"{name} {_next(schedule, state, now_ms)}"
    ref = Ref(type="schedule", id=schedule.id)
    how = f"by {schedule.cron}" if schedule.cron else f"every {duration(schedule.every_ms or 0)}"
    chain = [
        Sentence(
            text=f"It asks for runs of source {source.id}, {how} ({schedule.time_zone}).",
            record=ref,
        ),
        *(_last(ledger, one, ref) for one in reader.instants_before(schedule.id, now_ms + 1, 1)),
        *(
            of_link(
                stopped(
                    f"{link.entry.actor}, {link.entry.kind} at {moment(link.entry.recorded_at_ms)}: "
                    f"{link.entry.rationale or 'no reason was given'}"
                ),
                link,
            )
            for link in ledger.links(f"{SUBJECT}{schedule.id}", LINKS_MAX)
        ),
    ]
    return Explanation(
        kind="schedule", id=schedule.id, reason=Sentence(text=reason, record=ref), chain=tuple(chain)
    )


def _next(schedule: Schedule, state: ScheduleState | None, now_ms: int) -> str:
    """When it fires, or since when it should have."""
    if state is None:
        return f"has not been looked at yet: {STARTERS}."
    next_ms = next_instant(schedule, state.cursor_ms)
    if next_ms is None:
        return "has no scheduled time left."
    if next_ms <= now_ms:
        return f"is due since {moment(next_ms)}, and nothing looks at it: {STARTERS}."
    then = f"waits for its next scheduled time, {moment(next_ms)}"
    return f"{then}; a service fires it, or `kfm schedule run-due`."


def _last(ledger: LedgerReader, last: Instant, ref: Ref) -> Sentence:
    request = ledger.request_reader().request(last.request_id) if last.request_id else None
    word = of_scheduled_time(
        last.became,
        state=request.state if request else None,
        outcome=request.outcome if request else None,
        blocked_by=request.blocked_by if request else None,
    )
    why = f" ({last.reason})" if last.reason else ""
    text = f"Its last scheduled time was {moment(last.last_ms)}: {word}{why}"
    if request is None:
        return Sentence(text=stopped(text), record=ref)
    return Sentence(
        text=f"{text}, by request {request.request_id}.", record=Ref(type="request", id=request.request_id)
    )
