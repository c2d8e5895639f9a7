"""Accounting for the instants of a schedule: each that comes gets exactly one fate.

`account` looks at one schedule at one moment and says what is to be written: a request for an instant that
is to be run, a row with a reason for every other. The write compares what was seen, so any number of
processes may do this at once, also with different ideas of the schedule: who comes second sees a cursor that
has moved. Nothing is counted one by one that can be told as a span, and a pass has a limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from msgspec.structs import replace

from kfm.core.keys import key_of, request_id, schedule_instant_key
from kfm.core.requests import UpdateRequest
from kfm.core.schedule_states import Accounting, Became, Instant, ScheduleState
from kfm.core.schedules import Schedule, due_ms, instants, latest_instants, missed_instants, period_of
from kfm.core.settings import Source
from kfm.core.wording import counted, duration, moment

DEFINITION_TAG = "definition/1"
INSTANTS_MAX = 500  # on time, in one pass; the cursor moves on with the next
FIRST_SEEN = "The schedule was not known before."
REDEFINED = "The schedule was defined otherwise, or switched off in its file."
BACKFILL = "backfill"  # in a request's details: overlap is not its concern


def definition_of(schedule: Schedule) -> str:
    """What its instants follow from, as a digest; how they are treated is no part of it."""
    document: dict[str, object] = {"kfm": DEFINITION_TAG}
    if not schedule.enabled:
        document["enabled"] = False
    elif schedule.every_ms is not None:
        document |= {"every_ms": schedule.every_ms, "phase_ms": schedule.anchor_ms % schedule.every_ms}
    else:
        document |= {"cron": schedule.cron, "time_zone": schedule.time_zone}
    return key_of(document)


def is_held(schedule: Schedule, state: ScheduleState) -> bool:
    """Is it paused so that what comes waits for the resumption?"""
    return state.paused_at_ms is not None and schedule.while_paused == "hold"


def next_due_ms(schedule: Schedule, state: ScheduleState) -> int | None:
    """When the first instant that is not accounted for is due; None: none, or it waits for a resumption."""
    if not schedule.enabled or is_held(schedule, state):
        return None
    following = next(instants(schedule, state.cursor_ms + 1), None)
    return None if following is None else due_ms(schedule, following)


def request_for(
    schedule: Schedule, source: Source, instant_ms: int, now_ms: int, actor: str
) -> UpdateRequest:
    """The wish that an instant is. Its key is the instant's, so it can't be accepted twice."""
    window = period_of(schedule, source, instant_ms)
    key = schedule_instant_key(schedule.id, instant_ms)
    return UpdateRequest(
        request_id=request_id(key),
        key=key,
        kind="cron",
        source_id=source.id,
        dataset_id=source.dataset,
        window_start_ms=window.start_ms,
        window_end_ms=window.end_ms,
        actor=actor,
        claimed_actor=f"schedule:{schedule.id}",
        accepted_at_ms=now_ms,
        schedule_id=schedule.id,
        instant_ms=instant_ms,
    )


def account(
    schedule: Schedule,
    source: Source,
    state: ScheduleState | None,
    unsettled: Sequence[UpdateRequest],
    now_ms: int,
    *,
    late_ms: int,
    actor: str,
) -> Accounting | None:
    """One step: what becomes of the instants that have come; None if there is nothing to do yet.

    `unsettled` are the schedule's requests without an end, `late_ms` how late an instant still is on time.
    """
    if state is None:
        return _first_sight(schedule, now_ms) if schedule.enabled else None
    if is_held(schedule, state):
        return None
    step = _Step(schedule, source, state, now_ms, actor)
    late_until_ms = _late_until_ms(schedule, state.cursor_ms, now_ms - late_ms)
    on_time = _on_time(schedule, max(late_until_ms, state.cursor_ms), now_ms)
    redefined = state.definition != definition_of(schedule)
    others = [one for one in unsettled if not one.details.get(BACKFILL)]
    if redefined:
        if late_until_ms > state.cursor_ms:
            step.leave_out("redefined", state.cursor_ms + 1, late_until_ms, REDEFINED)
    elif late_until_ms > state.cursor_ms and schedule.enabled:
        step.late(late_until_ms, on_time, others)
    step.on_time(on_time, others)
    if not step.rows and not redefined:
        return None
    return step.accounting(others)


def _first_sight(schedule: Schedule, now_ms: int) -> Accounting:
    """Nothing before this was promised."""
    state = ScheduleState(
        schedule_id=schedule.id,
        definition=definition_of(schedule),
        cursor_ms=now_ms,
        version=1,
        updated_at_ms=now_ms,
    )
    before = Instant(
        schedule_id=schedule.id,
        instant_ms=min(0, now_ms),
        last_ms=now_ms,
        became="redefined",
        reason=FIRST_SEEN,
        at_ms=now_ms,
    )
    return Accounting(seen=None, state=state, instants=(before,))


def _late_until_ms(schedule: Schedule, after_ms: int, edge_ms: int) -> int:
    """Up to here, instants were due before the edge. Only the last before it can be due after it."""
    if schedule.jitter_ms and schedule.enabled and edge_ms > after_ms + 1:
        for last_ms in latest_instants(schedule, after_ms + 1, edge_ms, 1):
            if due_ms(schedule, last_ms) >= edge_ms:
                return last_ms - 1
    return edge_ms - 1


def _on_time(schedule: Schedule, after_ms: int, now_ms: int) -> tuple[int, ...]:
    """Instants that are due and not late. Only the last that has come can still wait for its jitter."""
    if not schedule.enabled:
        return ()
    found = tuple(islice(instants(schedule, after_ms + 1, now_ms + 1), INSTANTS_MAX))
    if found and due_ms(schedule, found[-1]) > now_ms:
        return found[:-1]
    return found


class _Step:
    """What is written together."""

    def __init__(
        self, schedule: Schedule, source: Source, state: ScheduleState, now_ms: int, actor: str
    ) -> None:
        self._schedule, self._source, self._state = schedule, source, state
        self._now_ms, self._actor = now_ms, actor
        self.rows: list[Instant] = []
        self._requests: list[UpdateRequest] = []

    @property
    def _drops(self) -> bool:
        return self._state.paused_at_ms is not None

    # --- late ----------------------------------------------------------------------------

    def late(self, until_ms: int, on_time: tuple[int, ...], others: Sequence[UpdateRequest]) -> None:
        """Nobody was there in time: the policy for missed instants says which are made up for."""
        schedule, policy = self._schedule, self._schedule.missed
        reasons = {
            "policy": "Missed, and its policy makes up for none.",
            "window": f"Missed more than {duration(policy.within_ms)} ago, which its policy lets go.",
            "cap": f"Missed, and its policy makes up for {policy.cap} at once.",
        }
        room = max(0, policy.cap - len(others))
        if policy.run == "last":
            reasons["policy"] = "Missed, and its policy makes up for the last one only."
        if self._drops:
            schedule = replace(schedule, missed=replace(policy, run="none"))
            reasons["policy"] = self._dropped
        elif policy.run == "last" and on_time:
            schedule = replace(schedule, missed=replace(policy, run="none"))
            reasons["policy"] += f" The instant of {moment(on_time[-1])} is on time."
        elif policy.run != "none" and not room:
            schedule = replace(schedule, missed=replace(policy, run="none"))
            reasons["policy"] = (
                f"Missed, and {counted(len(others), 'request')} of the schedule have no end yet."
            )
        elif room < policy.cap:
            schedule = replace(schedule, missed=replace(policy, cap=room))
        missed = missed_instants(schedule, self._state.cursor_ms, until_ms, self._now_ms)
        became: Became = "dropped" if self._drops else "missed"
        for span in missed.left_out:
            self.leave_out(became, span.first_ms, span.last_ms, reasons[span.reason])
        for instant_ms in missed.run_ms:
            self._open(instant_ms, "Missed, and made up for.")

    @property
    def _dropped(self) -> str:
        return "The schedule is paused, and drops what comes meanwhile."

    # --- on time -------------------------------------------------------------------------

    def on_time(self, found: tuple[int, ...], others: Sequence[UpdateRequest]) -> None:
        """What comes while earlier requests have no end: the policy for overlaps.

        What was made up for in this step is in nobody's way: it would be the fault of neither.
        """
        overlap = self._schedule.overlap
        if self._drops:
            if found:
                self.leave_out("dropped", found[0], found[-1], self._dropped)
        elif overlap == "cancel-older":
            for instant_ms in found[:-1]:
                self._skip(instant_ms, f"Overtaken by the instant of {moment(found[-1])}.")
            for instant_ms in found[-1:]:
                self._open(instant_ms)
        else:
            ahead = [one.request_id for one in others]
            places = 1 if overlap == "skip" else 2
            for instant_ms in found:
                if len(ahead) < places:
                    ahead.append(self._open(instant_ms))
                elif overlap == "skip":
                    self._skip(instant_ms, f"Request {ahead[0]} has no end yet.")
                else:
                    self._skip(instant_ms, f"Request {ahead[-1]} waits already.")

    # --- rows ----------------------------------------------------------------------------

    def _open(self, instant_ms: int, reason: str | None = None) -> str:
        wish = request_for(self._schedule, self._source, instant_ms, self._now_ms, self._actor)
        self._requests.append(wish)
        self._row("request", instant_ms, instant_ms, reason, wish.request_id)
        return wish.request_id

    def _skip(self, instant_ms: int, reason: str) -> None:
        last = self.rows[-1] if self.rows else None
        if last is not None and (last.became, last.reason) == ("skipped", reason):
            self.rows[-1] = replace(last, last_ms=instant_ms)
        else:
            self.leave_out("skipped", instant_ms, instant_ms, reason)

    def leave_out(self, became: Became, first_ms: int, last_ms: int, reason: str) -> None:
        self._row(became, first_ms, last_ms, reason, None)

    def _row(self, became: Became, first_ms: int, last_ms: int, reason: str | None, wish: str | None) -> None:
        assert not self.rows or first_ms > self.rows[-1].last_ms, "an instant would have two fates"
        row = Instant(
            schedule_id=self._schedule.id,
            instant_ms=first_ms,
            last_ms=last_ms,
            became=became,
            request_id=wish,
            reason=reason,
            at_ms=self._now_ms,
        )
        self.rows.append(row)

    def accounting(self, others: Sequence[UpdateRequest]) -> Accounting:
        state = self._state
        cancels: tuple[tuple[str, str], ...] = ()
        if self._requests and self._schedule.overlap == "cancel-older":
            newest = moment(self._requests[-1].instant_ms or 0)
            reason = f"Overtaken by the instant of {newest} of {self._schedule.id}."
            cancels = tuple((one.request_id, reason) for one in others if one.cancel is None)
        return Accounting(
            seen=state,
            state=replace(
                state,
                definition=definition_of(self._schedule),
                cursor_ms=max(state.cursor_ms, self.rows[-1].last_ms if self.rows else 0),
                version=state.version + 1,
                updated_at_ms=self._now_ms,
            ),
            instants=tuple(self.rows),
            requests=tuple(self._requests),
            cancels=cancels,
        )
