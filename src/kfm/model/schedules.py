"""Schedules: when one fires, what each scheduled time means, and how far it is accounted for."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from datetime import date, datetime
from itertools import islice
from typing import TYPE_CHECKING, Literal

from kfm.model.errors import ConfigError, WindowError
from kfm.model.records import Record, Window
from kfm.model.requests import UpdateRequest
from kfm.model.times import MS_MAX, MS_MIN, rfc3339, stretches
from kfm.model.windows import DAY_MS, asked_window, next_window

if TYPE_CHECKING:
    from kfm.model.settings import SourceSettings


Overlap = Literal["skip", "queue-one", "cancel-older"]
Which = Literal["all", "last", "none"]
Paused = Literal["hold", "drop"]

JITTER_TAG = "jitter/1"
EXPRESSION_CHARS_MAX = 200
MINUTE_MS = 60_000
IDLE_DAYS_MAX = 60 * 366  # the rarest date, a fifth Monday in February, comes every 28 or 40 years
FIELDS = ("minute", "hour", "day of the month", "month", "day of the week")
# Clocks were never set back by more than a day: what was shown earlier than this can't come back.
LOOK_BACK_MS = 2 * DAY_MS
_LOOK_BACKS_MS = tuple(days * DAY_MS for days in (1 / 24, 1, 32, 400, 5 * 366, 60 * 366))
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - what clocks show has no zone
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_LAST_DAY = date.max.toordinal()


class MissedPolicy(Record, frozen=True):
    """The catch-up policy: what becomes of missed scheduled times."""

    run: Which = "last"
    within_ms: int = 7 * DAY_MS
    cap: int = 10


class Schedule(Record, frozen=True):
    """When one source is brought up to date. Either `cron` or `every_ms` is set."""

    id: str
    source: str
    cron: str | None = None
    every_ms: int | None = None
    anchor_ms: int = 0
    time_zone: str = "UTC"
    window: str | None = None  # None: the source's
    jitter_ms: int = 0
    overlap: Overlap = "skip"
    missed: MissedPolicy = MissedPolicy()
    while_paused: Paused = "hold"
    enabled: bool = True
    rationale: str | None = None  # of each request, for policies that ask for one
    ticket: str | None = None


# --- expressions -------------------------------------------------------------------------


def expression_problem(expression: str) -> str | None:
    """What is wrong with a cron expression, as a clause; None if nothing is."""
    from cronsim import CronSim, CronSimError

    parts = expression.split()
    if len(expression) > EXPRESSION_CHARS_MAX:
        return f"it has more than {EXPRESSION_CHARS_MAX} characters"
    if len(parts) != len(FIELDS):
        return f"it has {len(parts)} fields, not five: {', '.join(FIELDS)}"
    for index, part in enumerate(parts):
        alone = ["*"] * len(FIELDS)
        alone[index] = part
        try:
            CronSim(" ".join(alone), _EPOCH)
        except (CronSimError, AssertionError, ValueError, LookupError, TypeError):
            return f"`{part[:40]}` can't be the {FIELDS[index]}"
    try:
        CronSim(expression, _EPOCH)
    except CronSimError:
        return "no date matches it"
    return None if next(_matching(expression, 0), None) is not None else "no date matches it"


def is_continuous(expression: str) -> bool:
    """Does it fire in every hour, and so follow real time rather than fixed local times?"""
    hours, _minutes, _is_day = _read(expression)
    return len(hours) == 24


def times_of_day(expression: str) -> list[int]:
    """The minutes of a day, in order, in which it fires where the clocks run evenly."""
    hours, minutes, _is_day = _read(expression)
    return [hour * 60 + minute for hour in sorted(hours) for minute in sorted(minutes)]


def _read(expression: str) -> tuple[set[int], set[int], Callable[[date], bool]]:
    """Its hours, its minutes, and whether a day is one of its days.

    cronsim reads expressions; it is not loaded for one that fires every day at times that are plain numbers.
    """
    minute, hour, *days = expression.split()
    if days == ["*", "*", "*"]:
        hours, minutes = _numbers(hour, 24), _numbers(minute, 60)
        if hours and minutes:
            return hours, minutes, lambda _day: True
    from cronsim import CronSim

    rule = CronSim(expression, _EPOCH)
    return rule.hours, rule.minutes, lambda day: day.month in rule.months and rule.match_day(day)


def _numbers(field: str, end: int) -> set[int]:
    """The numbers that a field lists, or all for `*`; none: it says more than that, or nothing valid."""
    if field == "*":
        return set(range(end))
    terms = field.split(",")
    if not all(term.isascii() and term.isdecimal() for term in terms):
        return set()
    found = set(map(int, terms))
    return found if max(found) < end else set()


# --- instants ----------------------------------------------------------------------------


def instants(schedule: Schedule, start_ms: int, end_ms: int = MS_MAX) -> Iterator[int]:
    """The instants from `start_ms` up to, not including, `end_ms`. Whether it is enabled is not asked."""
    if schedule.every_ms is not None:
        return _on_the_grid(schedule.every_ms, schedule.anchor_ms, start_ms, end_ms)
    if schedule.cron is None:
        raise ConfigError(f"Schedule {schedule.id} has neither `cron` nor `every`.")
    return _by_the_clock(schedule.cron, schedule.time_zone, start_ms, end_ms)


def next_instant(schedule: Schedule, after_ms: int) -> int | None:
    """The first instant after a moment."""
    return next(instants(schedule, after_ms + 1), None)


def latest_instants(schedule: Schedule, start_ms: int, end_ms: int, count: int) -> tuple[int, ...]:
    """The last so many instants of a span, in order; no more of it is looked at than needed."""
    if schedule.every_ms is not None:
        last_ms = end_ms - 1 - (end_ms - 1 - schedule.anchor_ms) % schedule.every_ms
        from_ms = max(start_ms, last_ms - (count - 1) * schedule.every_ms)
        return tuple(instants(schedule, from_ms, end_ms))
    found: deque[int] = deque(maxlen=count)
    for look_back_ms in _LOOK_BACKS_MS:
        from_ms = max(start_ms, int(end_ms - look_back_ms), MS_MIN + LOOK_BACK_MS)
        found.clear()
        found.extend(instants(schedule, from_ms, end_ms))
        if len(found) == count or from_ms != int(end_ms - look_back_ms):
            break
    return tuple(found)


def _on_the_grid(every_ms: int, anchor_ms: int, start_ms: int, end_ms: int) -> Iterator[int]:
    first_ms = start_ms + (anchor_ms - start_ms) % every_ms
    return iter(range(first_ms, end_ms, every_ms))


def _by_the_clock(expression: str, zone: str, start_ms: int, end_ms: int) -> Iterator[int]:
    """Stretch by stretch of even time: matching times are counted on the local clock, then placed.

    `matching` runs on over a change of the clocks. Times that they skip are placed at the beginning of the
    next stretch, times that they show again have been placed already; only a pattern that follows real time
    begins anew at what the clock shows then.
    """
    continuous = is_continuous(expression)
    last_ms = matched_ms = reached_ms = None
    matching: Iterator[int] = iter(())
    for stretch in stretches(zone, max(start_ms - LOOK_BACK_MS, MS_MIN + DAY_MS), end_ms):
        shown_ms = stretch.shown_start_ms
        if reached_ms is None or (continuous and shown_ms != reached_ms):
            matching = _matching(expression, shown_ms)
            matched_ms = next(matching, None)
        reached_ms = stretch.shown_end_ms
        while matched_ms is not None and matched_ms < reached_ms:
            instant_ms = max(matched_ms, shown_ms) - stretch.offset_ms
            if instant_ms >= start_ms and instant_ms != last_ms:
                yield instant_ms
            last_ms = instant_ms
            matched_ms = next(matching, None)


def _matching(expression: str, shown_ms: int) -> Iterator[int]:
    """What a clock that runs evenly shows when the expression matches, from a moment on.

    The times of a day are the same on each of its days.
    """
    _hours, _minutes, is_day = _read(expression)
    times_ms = [minute * MINUTE_MS for minute in times_of_day(expression)]
    number = _EPOCH_DAY + shown_ms // DAY_MS
    idle_days = 0
    while idle_days < IDLE_DAYS_MAX and number <= _LAST_DAY:
        if is_day(date.fromordinal(number)):
            midnight_ms = (number - _EPOCH_DAY) * DAY_MS
            yield from (at for time_ms in times_ms if (at := midnight_ms + time_ms) >= shown_ms)
            idle_days = 0
        idle_days, number = idle_days + 1, number + 1


# --- what an instant means ---------------------------------------------------------------


def period_of(schedule: Schedule, source: "SourceSettings", instant_ms: int) -> Window:
    """The span that an instant asks for: the last window of the source that is complete by then.

    Counted from the instant itself, never from when its run begins: neither jitter nor a late start moves it.
    """
    return asked_window(schedule.window, source.window, source.time_zone, instant_ms)


def due_ms(schedule: Schedule, instant_ms: int) -> int:
    """When an instant's run is to begin: later by its jitter, always before the next instant.

    The delay follows from the schedule's id and the instant, so that every process finds the same one.
    """
    if not schedule.jitter_ms:
        return instant_ms
    from hashlib import sha256  # late: most schedules have no jitter

    from kfm.model.canonical import canonical_bytes

    following_ms = next_instant(schedule, instant_ms)
    room_ms = schedule.jitter_ms + 1
    if following_ms is not None:
        room_ms = min(room_ms, following_ms - instant_ms)
    document = {"kfm": JITTER_TAG, "schedule_id": schedule.id, "utc_instant": rfc3339(instant_ms)}
    drawn = int.from_bytes(sha256(canonical_bytes(document)).digest()[:8], "big")
    return instant_ms + (drawn * room_ms >> 64)


def windows_between(
    schedule: Schedule, source: "SourceSettings", start_ms: int, end_ms: int
) -> Iterator[tuple[int, Window]]:
    """Each window that the instants of a span ask for, with the first of them. A window that many share is
    passed in one stride."""
    at_ms = next(instants(schedule, start_ms, end_ms), None)
    while at_ms is not None:
        window = period_of(schedule, source, at_ms)
        yield at_ms, window
        try:  # before the window after it is over, no instant asks for another
            following_ms = next_window(window, source.time_zone).end_ms
        except WindowError:
            return
        at_ms = next(instants(schedule, max(at_ms + 1, following_ms), end_ms), None)


Why = Literal["policy", "window", "cap", "shared"]


class LeftOut(Record, frozen=True):
    """Missed times without a request of their own: all from the first to the last."""

    first_ms: int
    last_ms: int
    reason: Why


class Missed(Record, frozen=True):
    """Which missed times are caught up and which are not: together all of the span."""

    run_ms: tuple[int, ...] = ()
    left_out: tuple[LeftOut, ...] = ()


def missed_instants(
    schedule: Schedule, source: "SourceSettings", after_ms: int, until_ms: int, at_ms: int | None = None
) -> Missed:
    """What to do about the instants after one moment up to and including another, at that other moment.

    Of those that are not too old at `at_ms`, or at the end, the last is caught up; with `all`, the first of
    each window, as many windows as the cap allows, the oldest first.
    """
    policy, end_ms = schedule.missed, until_ms + 1
    since_ms = min(max(after_ms + 1, (until_ms if at_ms is None else at_ms) - policy.within_ms), end_ms)
    if policy.run == "none":
        return Missed(left_out=_left_out(schedule, ((after_ms + 1, end_ms, "policy"),)))
    if policy.run == "last":
        run_ms = latest_instants(schedule, since_ms, end_ms, 1)
    else:
        found = islice(windows_between(schedule, source, since_ms, end_ms), policy.cap)
        run_ms = tuple(first_ms for first_ms, _ in found)
    spans: list[tuple[int, int, Why]] = [(after_ms + 1, since_ms, "window")]
    reached_ms, why = since_ms, "policy" if policy.run == "last" else "shared"
    for each_ms in run_ms:
        spans.append((reached_ms, each_ms, why))  # type: ignore[arg-type]
        reached_ms = each_ms + 1
    spans += _after(schedule, source, run_ms, end_ms)
    return Missed(run_ms=run_ms, left_out=_left_out(schedule, spans))


def _after(
    schedule: Schedule, source: "SourceSettings", run_ms: tuple[int, ...], end_ms: int
) -> list[tuple[int, int, Why]]:
    """What follows the last one that is caught up: the rest of its window, and what the cap leaves."""
    if not run_ms:
        return []
    following = islice(windows_between(schedule, source, run_ms[-1], end_ms), 1, 2)
    next_ms = next((first_ms for first_ms, _ in following), end_ms)
    return [(run_ms[-1] + 1, next_ms, "shared"), (next_ms, end_ms, "cap")]


def _left_out(schedule: Schedule, spans: Iterable[tuple[int, int, Why]]) -> tuple[LeftOut, ...]:
    found = []
    for start_ms, end_ms, reason in spans:
        first_ms = next(instants(schedule, start_ms, end_ms), None)
        if first_ms is not None:
            (last_ms,) = latest_instants(schedule, first_ms, end_ms, 1)
            found.append(LeftOut(first_ms=first_ms, last_ms=last_ms, reason=reason))
    return tuple(found)


Became = Literal["request", "skipped", "missed", "dropped", "redefined", "backfilled"]


class ScheduleState(Record, frozen=True):
    """Where a schedule stands. Every instant up to the cursor has its row."""

    schedule_id: str
    definition: str  # digest of what its instants follow from
    cursor_ms: int
    version: int
    paused_at_ms: int | None = None
    paused_by: str | None = None
    rationale: str | None = None  # of the pause
    updated_at_ms: int = 0
    left_ms: int = 0  # each window that an instant up to here has left was asked for
    grounds: str | None = None  # digest of what gates decide by, when refused windows were last asked for


class Instant(Record, frozen=True):
    """One instant that has come, or, where it became no request, all from the first to the last."""

    schedule_id: str
    instant_ms: int
    last_ms: int
    became: Became
    request_id: str | None = None
    reason: str | None = None
    at_ms: int = 0


class Accounting(Record, frozen=True):
    """One step of one schedule: written together, or not at all if the state was moved by another."""

    seen: ScheduleState | None
    state: ScheduleState
    instants: tuple[Instant, ...] = ()
    requests: tuple[UpdateRequest, ...] = ()
    cancels: tuple[tuple[str, str], ...] = ()  # request, and why it is to stop: a newer one overtakes it
