"""Accounting for scheduled times: each gets exactly one fate; coverage, backfill, watermarks."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Literal

from msgspec.structs import replace

from kfm.model.errors import UsageError
from kfm.model.keys import key_of, request_id, schedule_instant_key
from kfm.model.quantities import counted, duration, moment
from kfm.model.records import Record, Window
from kfm.model.requests import NOT_YET, UpdateRequest
from kfm.model.schedules import (
    Accounting,
    Became,
    Instant,
    Schedule,
    ScheduleState,
    due_ms,
    instants,
    latest_instants,
    missed_instants,
    period_of,
    windows_between,
)
from kfm.model.settings import SourceSettings
from kfm.model.times import AHEAD_MS

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
    schedule: Schedule, source: SourceSettings, instant_ms: int, now_ms: int, actor: str
) -> UpdateRequest:
    """The request for a scheduled time. Its key is the time's, so it can't be accepted twice."""
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
        rationale=schedule.rationale,
        ticket=schedule.ticket,
        accepted_at_ms=now_ms,
        schedule_id=schedule.id,
        instant_ms=instant_ms,
    )


def account(
    schedule: Schedule,
    source: SourceSettings,
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
    waiting = {
        (one.window_start_ms, one.window_end_ms): one.request_id
        for one in unsettled
        if one.state == "open" and one.blocked_by == NOT_YET
    }
    step = _Step(schedule, source, state, now_ms, actor, waiting)
    late_until_ms = _late_until_ms(schedule, state.cursor_ms, now_ms - late_ms)
    on_time = _on_time(schedule, max(late_until_ms, state.cursor_ms), now_ms)
    redefined = state.definition != definition_of(schedule)
    others = [
        one
        for one in unsettled
        if not one.details.get(BACKFILL) and not one.is_set_aside
        # What waits for a person keeps nothing else waiting; a newer one is to end it only where it ends all.
        if one.state != "awaiting-approval" or schedule.overlap == "cancel-older"
    ]
    if redefined:
        if late_until_ms > state.cursor_ms:
            step.leave_out("redefined", state.cursor_ms + 1, late_until_ms, REDEFINED)
    elif late_until_ms > state.cursor_ms and schedule.enabled:
        step.late(late_until_ms, on_time, others)
    step.on_time(on_time, others)
    if not step.rows and not redefined:
        return None
    return step.accounting(others)


def is_ahead(state: ScheduleState, now_ms: int) -> bool:
    """Was it accounted for by a clock that was ahead?"""
    return state.cursor_ms > now_ms + AHEAD_MS


def taken_back(state: ScheduleState, now_ms: int) -> Accounting:
    """It goes on from the present. What the false time made of times ahead is decided anew when they come."""
    left_ms, version = min(state.left_ms, now_ms), state.version + 1
    now = replace(state, cursor_ms=now_ms, left_ms=left_ms, version=version, updated_at_ms=now_ms)
    return Accounting(seen=state, state=now)


def went_on(state: ScheduleState, last: Instant | None, now_ms: int) -> ScheduleState:
    """The state after a clock that was behind has taken it back: what has its row by now is accounted for.
    `last`: the newest row that begins by now."""
    if last is None or last.at_ms > now_ms or not state.cursor_ms < last.last_ms <= now_ms:
        return state
    return replace(state, cursor_ms=last.last_ms)


def _first_sight(schedule: Schedule, now_ms: int) -> Accounting:
    """Nothing before this was promised."""
    state = ScheduleState(
        schedule_id=schedule.id,
        definition=definition_of(schedule),
        cursor_ms=now_ms,
        version=1,
        updated_at_ms=now_ms,
        left_ms=now_ms,
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


def is_before_first_seen(row: Instant) -> bool:
    """Is this the row for all that came before the schedule was known? Only that one begins at the epoch."""
    return row.became == "redefined" and row.instant_ms <= 0


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
        self,
        schedule: Schedule,
        source: SourceSettings,
        state: ScheduleState,
        now_ms: int,
        actor: str,
        waiting: Mapping[tuple[int, int], str],
    ) -> None:
        """`waiting`: windows whose data has not come yet, with the request that asks again."""
        self._waiting = waiting
        self._schedule, self._source, self._state = schedule, source, state
        self._now_ms, self._actor = now_ms, actor
        self.rows: list[Instant] = []
        self._requests: list[UpdateRequest] = []

    @property
    def _drops(self) -> bool:
        return self._state.paused_at_ms is not None

    # --- late ----------------------------------------------------------------------------

    def late(self, until_ms: int, on_time: tuple[int, ...], others: Sequence[UpdateRequest]) -> None:
        """No scheduler ran in time: the catch-up policy decides which missed times become requests."""
        schedule, policy = self._schedule, self._schedule.missed
        reasons = {
            "policy": "Missed; its policy has no catch-up.",
            "window": f"Missed more than {duration(policy.within_ms)} ago, which its policy lets go.",
            "cap": f"Missed; its policy catches up {counted(policy.cap, 'window')} at once, oldest first.",
            "shared": "Missed; an earlier one asks for the same window.",
        }
        room = max(0, policy.cap - len(others))
        if policy.run == "last":
            reasons["policy"] = "Missed; the last one is caught up, and the windows of the others follow."
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
        missed = missed_instants(schedule, self._source, self._state.cursor_ms, until_ms, self._now_ms)
        became: Became = "dropped" if self._drops else "missed"
        run, left_out = deque(missed.run_ms), deque(missed.left_out)
        while run or left_out:
            if run and (not left_out or run[0] < left_out[0].first_ms):
                self._open(run.popleft(), "Missed, and caught up.")
            else:
                span = left_out.popleft()
                self.leave_out(became, span.first_ms, span.last_ms, reasons[span.reason])

    @property
    def _dropped(self) -> str:
        return "The schedule is paused, and drops what comes meanwhile."

    # --- on time -------------------------------------------------------------------------

    def on_time(self, found: tuple[int, ...], others: Sequence[UpdateRequest]) -> None:
        """What comes while earlier requests have no end: the policy for overlaps.

        Catch-up requests of this step do not count as overlap: neither is at fault.
        """
        overlap = self._schedule.overlap
        if self._drops:
            if found:
                self.leave_out("dropped", found[0], found[-1], self._dropped)
            return
        if self._waiting:
            found = self._beside_waiting(found)
        if overlap == "cancel-older":
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

    def _beside_waiting(self, found: tuple[int, ...]) -> tuple[int, ...]:
        """Instants that come first and whose window is waited for already ask for nothing new; the others."""
        for number, instant_ms in enumerate(found):
            window = period_of(self._schedule, self._source, instant_ms)
            request_id = self._waiting.get((window.start_ms, window.end_ms))
            if request_id is None:  # later ones ask for later windows
                return found[number:]
            self._skip(instant_ms, f"Request {request_id} waits for the data of the same window.")
        return ()

    # --- rows ----------------------------------------------------------------------------

    def _open(self, instant_ms: int, reason: str | None = None) -> str:
        request = request_for(self._schedule, self._source, instant_ms, self._now_ms, self._actor)
        self._requests.append(request)
        self._row("request", instant_ms, instant_ms, reason, request.request_id)
        return request.request_id

    def _skip(self, instant_ms: int, reason: str) -> None:
        last = self.rows[-1] if self.rows else None
        if last is not None and (last.became, last.reason) == ("skipped", reason):
            self.rows[-1] = replace(last, last_ms=instant_ms)
        else:
            self.leave_out("skipped", instant_ms, instant_ms, reason)

    def leave_out(self, became: Became, first_ms: int, last_ms: int, reason: str) -> None:
        self._row(became, first_ms, last_ms, reason, None)

    def _row(
        self, became: Became, first_ms: int, last_ms: int, reason: str | None, request_id: str | None
    ) -> None:
        assert not self.rows or first_ms > self.rows[-1].last_ms, "an instant would have two fates"
        row = Instant(
            schedule_id=self._schedule.id,
            instant_ms=first_ms,
            last_ms=last_ms,
            became=became,
            request_id=request_id,
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


COVERAGE_MAX = 10_000
BACKFILL_MAX = 1_000
EXAMINED_MAX = 100_000  # instants that one call looks at

# unaccounted: it is past, and there is no word of it · held: it waits for the schedule's resumption ·
# pending: it is due just now, or its jitter is not over · coming: it lies ahead
Fate = Became | Literal["unaccounted", "held", "pending", "coming"]


class Expected(Record, frozen=True):
    """One instant of a schedule, and what it became."""

    schedule_id: str
    instant_ms: int
    window_start_ms: int
    window_end_ms: int
    fate: Fate
    request_id: str | None = None
    reason: str | None = None
    before_first_seen: bool = False  # no process knew the schedule yet; its row is a redefinition, too


class BackfillTime(Record, frozen=True):
    """A missed time that a backfill can cover."""

    instant_ms: int
    window_start_ms: int
    window_end_ms: int
    fate: Fate
    request_id: str  # the one that it has, or would get
    has_request: bool
    before_first_seen: bool = False
    repeats: UpdateRequest | None = None  # its request was refused or overtaken: it is asked for again


def coverage(
    schedule: Schedule,
    source: SourceSettings,
    rows: Sequence[Instant],
    start_ms: int,
    end_ms: int,
    *,
    state: ScheduleState | None,
    now_ms: int,
    late_ms: int = 60_000,
    limit: int = COVERAGE_MAX,
) -> list[Expected]:
    """The instants of a span, at most `limit` of them, from the first on; `rows` are those that touch it."""
    known = _Known(rows)
    found = []
    for instant_ms in islice(instants(schedule, start_ms, end_ms), limit):
        row = known.of(instant_ms)
        window = period_of(schedule, source, instant_ms)
        found.append(
            Expected(
                schedule_id=schedule.id,
                instant_ms=instant_ms,
                window_start_ms=window.start_ms,
                window_end_ms=window.end_ms,
                fate=row.became if row else _without(schedule, state, instant_ms, now_ms, late_ms),
                request_id=row.request_id if row else None,
                reason=row.reason if row else None,
                before_first_seen=row is not None and is_before_first_seen(row),
            )
        )
    return found


def _without(
    schedule: Schedule, state: ScheduleState | None, instant_ms: int, now_ms: int, late_ms: int
) -> Fate:
    """What an instant without a row is."""
    if instant_ms > now_ms:
        return "coming"
    if state is None or instant_ms <= state.cursor_ms or not schedule.enabled:
        return "unaccounted"
    if is_held(schedule, state):
        return "held"
    return "pending" if instant_ms + schedule.jitter_ms + late_ms >= now_ms else "unaccounted"


def backfill(
    schedule: Schedule,
    source: SourceSettings,
    start_ms: int,
    end_ms: int,
    known: Sequence[Instant],
    *,
    only_missed: bool,
    state: ScheduleState | None,
    now_ms: int,
    limit: int = BACKFILL_MAX,
    refused: Mapping[tuple[int, int], UpdateRequest] = {},
) -> list[BackfillTime]:
    """The instants of a span that have come, or only those that became no request; at most `limit`.

    Those after the cursor are left to the schedule itself: it will account for them. A request that exists is
    reported, not made again: an instant has one for good. Windows in `refused` are asked for again, once.
    """
    until_ms = now_ms if state is None else min(now_ms, state.cursor_ms)
    index, again = _Known(known), dict(refused)
    found: list[BackfillTime] = []
    for number, instant_ms in enumerate(instants(schedule, start_ms, min(end_ms, until_ms + 1))):
        if len(found) >= limit:
            break
        if number >= EXAMINED_MAX:
            raise UsageError(
                f"There are more than {EXAMINED_MAX:,} instants of {schedule.id} in this span.",
                remedy="Take a shorter one.",
            )
        row = index.of(instant_ms)
        has_request = row is not None and row.request_id is not None
        window = period_of(schedule, source, instant_ms)
        repeats = again.pop((window.start_ms, window.end_ms), None) if has_request else None
        if only_missed and has_request and repeats is None:
            continue
        own_id = request_id(schedule_instant_key(schedule.id, instant_ms))
        found.append(
            BackfillTime(
                instant_ms=instant_ms,
                window_start_ms=window.start_ms,
                window_end_ms=window.end_ms,
                fate=row.became if row else "unaccounted",
                request_id=own_id if repeats is None else asking_again(repeats, now_ms, "").request_id,
                has_request=has_request and repeats is None,
                before_first_seen=row is not None and is_before_first_seen(row),
                repeats=repeats,
            )
        )
    return found


class _Known:
    """Rows by instant. A backfill lies within the span that was missed, and counts first."""

    def __init__(self, rows: Sequence[Instant]) -> None:
        self._single = {one.instant_ms: one for one in rows if one.instant_ms == one.last_ms}
        self._spans = sorted(
            (one for one in rows if one.instant_ms != one.last_ms), key=lambda one: one.instant_ms
        )
        self._firsts = [one.instant_ms for one in self._spans]

    def of(self, instant_ms: int) -> Instant | None:
        single = self._single.get(instant_ms)
        if single is not None:
            return single
        at = bisect_right(self._firsts, instant_ms) - 1
        return self._spans[at] if at >= 0 and instant_ms <= self._spans[at].last_ms else None


LEFT_TAG = "left/1"
AGAIN_TAG = "again/1"
IN_TIME_TAG = "in-time/1"
LEFT = ("missed", "skipped")
LEFT_TO = "left_to"  # in a request's details: the request that it came with, or that it repeats


def left_windows(
    schedule: Schedule, source: SourceSettings, rows: Sequence[Instant], after_ms: int, before_ms: int
) -> Iterator[tuple[int, Window]]:
    """Windows that instants of a span have left, the oldest first, each with the first of these instants.

    `rows` are those that touch the span, in order. How far back is the schedule's rule for what was missed,
    counted from when it was found so: what waits for its turn does not grow too old meanwhile. One without
    catch-up leaves nothing.
    """
    if schedule.missed.run == "none":
        return
    for row in rows:
        if row.became in LEFT:
            first_ms = max(row.instant_ms, after_ms + 1, row.at_ms - schedule.missed.within_ms)
            yield from windows_between(schedule, source, first_ms, min(row.last_ms + 1, before_ms))


def asking_for(request: UpdateRequest, window: Window) -> UpdateRequest:
    """The request for a window that was left: once, whichever scheduled time comes first."""
    named = {"window_start_ms": window.start_ms, "window_end_ms": window.end_ms}
    return replace(
        _past(request, {"kfm": LEFT_TAG, "schedule_id": request.schedule_id, **named}),
        **named,
        rationale="Left by a scheduled time that was missed or skipped.",
    )


def asking_again(refused: UpdateRequest, now_ms: int, actor: str) -> UpdateRequest:
    """The request for a window whose last one was refused or overtaken: once for each of these."""
    return replace(
        _past(refused, {"kfm": AGAIN_TAG, "request_id": refused.request_id}),
        actor=actor,
        accepted_at_ms=now_ms,
        rationale="Its last request was refused or overtaken.",
    )


def asking_in_time(early: UpdateRequest) -> UpdateRequest:
    """The request for a scheduled time that was asked for before it came, by a clock that was ahead."""
    key = key_of({"kfm": IN_TIME_TAG, "request_id": early.request_id})
    return replace(early, request_id=request_id(key), key=key)


def _past(request: UpdateRequest, named: dict[str, object]) -> UpdateRequest:
    key = key_of(named)
    return UpdateRequest(
        request_id=request_id(key),
        key=key,
        kind="cron",
        source_id=request.source_id,
        dataset_id=request.dataset_id,
        window_start_ms=request.window_start_ms,
        window_end_ms=request.window_end_ms,
        actor=request.actor,
        claimed_actor=request.claimed_actor,
        accepted_at_ms=request.accepted_at_ms,
        schedule_id=request.schedule_id,
        rationale=request.rationale,
        ticket=request.ticket,
        details={BACKFILL: True, LEFT_TO: request.request_id},
    )
