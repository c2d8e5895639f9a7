"""Completeness: which windows are expected of a source, what became of each, and how a dataset is.

The expectation comes first: windows follow from schedules or from a declared cadence, never from the rows
that exist. A window that no record mentions is as visible as one that was published.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Literal, get_args

from kfm.model.records import Record, RunOutcome, Window
from kfm.model.settings import Expect, Settings, SourceSettings
from kfm.model.times import MS_MAX, is_all_time

# Calendars are imported where windows are counted: `kfm status` of a project without schedules needs none.
if TYPE_CHECKING:
    from kfm.model.feeds import SettledHours
    from kfm.model.schedules import Schedule

WindowState = Literal[
    "published",
    "unchanged",
    "empty",
    "running",
    "waiting",
    "overdue",
    "failed",
    "quarantined",
    "refused",
    "missing",
    "withdrawn",
    "dismissed",
]
WINDOW_STATES: tuple[WindowState, ...] = get_args(WindowState)
SETTLED = frozenset[WindowState](("published", "unchanged", "empty", "withdrawn", "dismissed"))
BROKEN = frozenset[WindowState](("failed", "quarantined", "refused"))
# What `kfm run --missing` asks for unless states are named: everything past its time that has no end.
ASKED_FOR: tuple[WindowState, ...] = ("overdue", "failed", "quarantined", "refused", "missing")

THERE = frozenset[WindowState](("published", "unchanged", "empty"))

Removal = Literal["rolled-back", "withdrawal-lifted"]
REMOVALS: Mapping[str, Removal] = {"rollback": "rolled-back", "withdraw": "withdrawal-lifted"}

HealthState = Literal["failing", "late", "incomplete", "retired", "withdrawn", "paused", "never", "fresh"]
HEALTH_RANK: tuple[HealthState, ...] = get_args(HealthState)  # the worst first

WINDOWS_MAX = 100_000  # expected windows that one call looks at


# --- what is expected ----------------------------------------------------------------


class Expectation(Record, frozen=True):
    """What is expected of one source: windows since a moment, each due at a time."""

    source: SourceSettings
    since_ms: int  # scheduled times, or ends of windows where none asks, count from here on
    schedules: tuple[Schedule, ...] = ()  # enabled ones of the source
    latency_ms: int | None = None  # of the contract: data is there so long after its window

    @property
    def rule(self) -> Expect:
        return self.source.expect or Expect()

    @property
    def is_expected(self) -> bool:
        """Is anything expected of it at all?"""
        return bool(self.schedules) or self.source.expect is not None


class ExpectedWindow(Record, frozen=True):
    """One window that is expected. It is late after `due_ms`; until `until_ms` it is asked for by itself."""

    source_id: str
    start_ms: int
    end_ms: int
    asked_ms: int  # from when on it is asked for
    due_ms: int
    until_ms: int
    by_request: bool = False  # no schedule or cadence expects it: it was asked for


def rule_of(source: SourceSettings) -> str:
    """Which windows are expected of a source, in a few words: since when is remembered once for each."""
    every = source.expect.every if source.expect is not None else None
    return f"{every or source.window} {source.time_zone}"


def overdue_rule(source: SourceSettings) -> str:
    """By what its windows are looked at for being overdue: with another rule it begins anew."""
    since = source.expect.since if source.expect is not None else None
    return f"{rule_of(source)} {since}" if since is not None else rule_of(source)


def expectation_rules(settings: Settings) -> list[tuple[str, str]]:
    """Which windows are expected of each source; of the members of a sync none but the sync's."""
    members = {member for source in settings.sources for member in source.members}
    return [(source.id, rule_of(source)) for source in settings.sources if source.id not in members]


def since_ms(source: SourceSettings, configured_ms: int) -> int:
    """From when on windows are expected: as declared, else since the source was configured."""
    declared = source.expect.since if source.expect is not None else None
    if declared is None:
        return configured_ms
    from kfm.model.windows import parse_instant

    return parse_instant(declared, source.time_zone)


def expected_windows(
    expectation: Expectation, now_ms: int, start_ms: int | None = None, end_ms: int | None = None
) -> Iterator[ExpectedWindow]:
    """The windows that have been asked for up to now, or that are over where none asks, in order; those that
    touch a span, where one is given. No more than the newest `WINDOWS_MAX`."""
    if not expectation.is_expected:
        return
    first_ms = expectation.since_ms if start_ms is None else max(start_ms, expectation.since_ms)
    for window, asked_ms, next_ms in _windows(expectation, first_ms, now_ms, end_ms):
        if start_ms is not None and window.end_ms <= start_ms:
            continue
        if end_ms is not None and window.start_ms >= end_ms:
            continue
        within_ms = _within_ms(expectation, window)
        due_ms = _due_ms(expectation, window, asked_ms, next_ms, within_ms)
        yield ExpectedWindow(
            source_id=expectation.source.id,
            start_ms=window.start_ms,
            end_ms=window.end_ms,
            asked_ms=asked_ms,
            due_ms=due_ms,
            until_ms=due_ms if within_ms is None else max(due_ms, within_ms),
        )


def until_ms(expectation: Expectation, now_ms: int) -> int:
    """Up to, not including, when the same windows are expected as now; `now_ms` where that can't be told."""
    from kfm.model.schedules import next_instant, period_of
    from kfm.model.windows import NO_WINDOW, window_of

    source, spec = expectation.source, expectation.rule.every or expectation.source.window
    if expectation.schedules:
        lengths_ms = [_length_ms(period_of(one, source, now_ms)) for one in expectation.schedules]
        times_ms = [next_instant(one, now_ms) for one in expectation.schedules]
    elif spec != NO_WINDOW:
        window = window_of(spec, source.time_zone, now_ms)
        lengths_ms, times_ms = [_length_ms(window)], [window.end_ms]
    else:
        return MS_MAX
    # Of more than `WINDOWS_MAX` the oldest fall out; half of them, because months differ in length.
    full_ms = expectation.since_ms + WINDOWS_MAX // 2 * min(lengths_ms)
    return max(now_ms, min([full_ms, *(at_ms for at_ms in times_ms if at_ms is not None)]))


def asked_window(
    source_id: str, start_ms: int, end_ms: int, asked_ms: int, expectation: Expectation | None = None
) -> ExpectedWindow:
    """A window that no schedule or cadence expects by now, once it was asked for. Its data has to be there
    then; not before the window has ended, nor before its source owes it."""
    due_ms = asked_ms
    if not is_all_time(start_ms, end_ms):
        due_ms = max(asked_ms, end_ms, _owed_ms(expectation, start_ms, end_ms) if expectation else 0)
    return ExpectedWindow(
        source_id=source_id,
        start_ms=start_ms,
        end_ms=end_ms,
        asked_ms=asked_ms,
        due_ms=due_ms,
        until_ms=due_ms,
        by_request=True,
    )


def _owed_ms(expectation: Expectation, start_ms: int, end_ms: int) -> int:
    """When a window will be due that is not expected yet; 0: nothing says so."""
    rule = expectation.source.expect
    if expectation.latency_ms is not None or (rule is not None and (rule.by or rule.within)):
        window = Window(start_ms=start_ms, end_ms=end_ms, spec=expectation.source.window)
        return _due_ms(expectation, window, end_ms, None, _within_ms(expectation, window))
    # A schedule asks for a window while it is the last complete one.
    soon_ms = end_ms + 2 * (end_ms - start_ms)
    if soon_ms <= expectation.since_ms:
        return 0
    for one in expected_windows(expectation, soon_ms, start_ms, end_ms):
        if (one.start_ms, one.end_ms) == (start_ms, end_ms):
            return one.due_ms
    return 0


Asking = tuple[Window, int, int | None]  # a window, the first moment that asks for it, the moment after that


def _windows(expectation: Expectation, first_ms: int, now_ms: int, end_ms: int | None) -> Iterator[Asking]:
    """Each window once, in order."""
    if not expectation.schedules:
        yield from _tiles(expectation, first_ms, now_ms, end_ms)
        return
    found: dict[tuple[int, int], Asking] = {}
    for schedule in expectation.schedules:
        for one in _scheduled(schedule, expectation.source, first_ms, now_ms, end_ms):
            known = found.get((one[0].start_ms, one[0].end_ms))
            if known is None or one[1] < known[1]:
                found[one[0].start_ms, one[0].end_ms] = one
    yield from (found[span] for span in sorted(found))


def _scheduled(
    schedule: Schedule, source: SourceSettings, first_ms: int, now_ms: int, end_ms: int | None
) -> Iterator[Asking]:
    """The windows that one schedule asks for. Its times before the next window is complete ask for the same
    one again, and are passed over."""
    from kfm.model.schedules import instants, next_instant, period_of
    from kfm.model.windows import NO_WINDOW, SNAPSHOT, next_window

    if source.window == NO_WINDOW:  # all its times ask for the same
        at_ms = next(instants(schedule, first_ms, now_ms + 1), None)
        if at_ms is not None:
            yield SNAPSHOT, at_ms, next_instant(schedule, at_ms)
        return
    length_ms = _length_ms(period_of(schedule, source, now_ms))
    times = instants(schedule, max(first_ms, now_ms - WINDOWS_MAX * length_ms), now_ms + 1)
    at_ms = next(times, None)
    while at_ms is not None:
        window = period_of(schedule, source, at_ms)
        if end_ms is not None and window.start_ms >= end_ms:
            return
        complete_ms = next_window(window, source.time_zone).end_ms
        again_ms = next(times, None)
        yield window, at_ms, next_instant(schedule, at_ms) if again_ms is None else again_ms
        while again_ms is not None and again_ms < complete_ms:
            again_ms = next(times, None)
        at_ms = again_ms


def _tiles(expectation: Expectation, first_ms: int, now_ms: int, end_ms: int | None) -> Iterator[Asking]:
    """Every aligned window that is over, where no schedule asks."""
    from kfm.model.windows import NO_WINDOW, next_window, window_of

    source, spec = expectation.source, expectation.rule.every or expectation.source.window
    if spec == NO_WINDOW:
        return  # nothing says when it should have changed
    length_ms = _length_ms(window_of(spec, source.time_zone, now_ms))
    window = window_of(spec, source.time_zone, max(first_ms, now_ms - WINDOWS_MAX * length_ms))
    for _ in range(WINDOWS_MAX + 1):
        if window.end_ms > now_ms or (end_ms is not None and window.start_ms >= end_ms):
            return
        following = next_window(window, source.time_zone)
        if window.end_ms > expectation.since_ms:
            yield window, window.end_ms, following.end_ms
        window = following


def _length_ms(window: Window) -> int:
    return max(window.end_ms - window.start_ms, 1)


def _due_ms(
    expectation: Expectation, window: Window, asked_ms: int, next_ms: int | None, within_ms: int | None
) -> int:
    """When a window is late: as declared, else by its contract, else when it would be asked for again."""
    rule = expectation.rule
    if is_all_time(window.start_ms, window.end_ms):
        return max(asked_ms, next_ms or 0)
    if rule.by is not None:
        from kfm.model.windows import time_of_day

        return time_of_day(rule.by, expectation.source.time_zone, window.end_ms)
    if within_ms is not None:
        return within_ms
    if expectation.latency_ms is not None:
        return window.end_ms + expectation.latency_ms
    return max(asked_ms, next_ms if next_ms is not None else 0)


def _within_ms(expectation: Expectation, window: Window) -> int | None:
    """Until when it has to be there, where that is declared by a length."""
    within = expectation.rule.within
    if within is None or is_all_time(window.start_ms, window.end_ms):
        return None
    return _later(within, expectation.source.time_zone)(window.end_ms)


@lru_cache(maxsize=64)  # a source may have years of windows, all with one rule
def _later(length: str, zone: str) -> Callable[[int], int]:
    from kfm.model.windows import parse_duration, shifted

    return partial(shifted, duration=parse_duration(length), zone=zone)


# --- what became of it ---------------------------------------------------------------


class WindowFacts(Record, frozen=True):
    """What the ledger knows of one window of one source. All of it may be absent."""

    # The newest run of the window, whatever revision or version of the pipeline.
    run_id: str | None = None
    run_status: Literal["running", "success", "failed"] | None = None
    run_started_ms: int | None = None
    run_ended_ms: int | None = None
    run_error: str | None = None
    is_live: bool = True  # of a running one: its lease holds
    outcome: RunOutcome | None = None  # of a successful one
    held_code: str | None = None  # why the run, or the request that became none, is quarantined
    is_promised: bool = False  # another attempt will be made by itself
    # The newest request for the window that has no end.
    request_id: str | None = None
    request_state: Literal["open", "running", "awaiting-approval"] | None = None
    requested_ms: int | None = None
    blocked_by: str | None = None
    not_before_ms: int | None = None
    # The newest refusal or cancellation, and the newest failure before there was a run.
    refused_ms: int | None = None
    refused_by: str | None = None  # the gate
    failed_ms: int | None = None
    failed_by: str | None = None  # the error
    found_ms: int | None = None  # when it was last asked for and found done
    absent_ms: int | None = None  # when it was last asked for until its time was over, in vain
    # What a person settled, and when.
    settled: Literal["dismissed", "withdrawn"] | None = None
    settled_ms: int | None = None
    settled_why: str | None = None
    # What a change by a person made of its data since.
    removed: Removal | None = None  # readers saw it once; why they do not, and nothing has come since
    removed_ms: int | None = None
    is_older: bool = False  # a rollback shows an earlier revision; its run is named

    @property
    def asked_ms(self) -> int | None:
        """When the window was asked for, as far as these facts tell."""
        first_ms = self.run_started_ms
        for at_ms in (self.requested_ms, self.refused_ms, self.failed_ms, self.absent_ms):
            if at_ms is not None and (first_ms is None or at_ms < first_ms):
                first_ms = at_ms
        return first_ms

    @property
    def has_data(self) -> bool:
        return self.run_status == "success" and self.outcome not in (None, "absent")

    @property
    def failed_since(self) -> bool:
        """Has the newest look at upstream failed, though there is data?"""
        if self.failed_ms is None or not self.has_data:
            return False
        return self.failed_ms > max(self.run_ended_ms or 0, self.found_ms or 0)


NOTHING = WindowFacts()


class SettledWindow(Record, frozen=True):
    """A window that a person settled, and why."""

    source_id: str
    start_ms: int
    end_ms: int
    kind: Literal["dismissed", "withdrawn"]
    settled_at_ms: int
    actor: str
    rationale: str
    ticket: str | None = None
    dataset_id: str = ""  # that its source fed then


class Dismissal(Record, frozen=True):
    """A window that a person settles: no data will come."""

    source_id: str
    dataset_id: str
    start_ms: int
    end_ms: int
    actor: str
    rationale: str
    ticket: str | None = None


class DismissAnswer(Record, frozen=True):
    """Whether windows were dismissed, or expected again; if not, which one is why."""

    answer: Literal["dismissed", "undone", "running", "halted", "withdrawn", "not-dismissed"]
    window: Dismissal | None = None


class WindowVerdict(Record, frozen=True):
    """The state of one expected window, with the facts that it follows from."""

    source_id: str
    start_ms: int
    end_ms: int
    state: WindowState
    due_ms: int
    is_late: bool = False  # it is past its time, and has no end
    waiting_for: str | None = None  # retry, approval, not-yet, circuit:NAME, switch:SCOPE, …
    at_ms: int | None = None  # since when it is so, where that is on record
    run_id: str | None = None
    request_id: str | None = None
    code: str | None = None  # the error, the gate, or the change that took its data away
    reason: str | None = None  # of a settled one, as the person who settled it gave it
    objects: int | None = None  # of a product's hour: how many are there
    objects_min: int | None = None  # and how many have to be
    has_data: bool = False  # in whichever state: of one that failed, what was there before

    @property
    def is_all_time(self) -> bool:
        """Is it the one window of a source without windows?"""
        return is_all_time(self.start_ms, self.end_ms)

    @property
    def is_settled(self) -> bool:
        return self.state in SETTLED or self.has_data

    @property
    def needs_overdue(self) -> bool:
        """Is it past its time, and no other incident tells of it?"""
        told = self.state in ("failed", "quarantined", "running") or self.waiting_for == "approval"
        return self.is_late and not told


def verdict(expected: ExpectedWindow, facts: WindowFacts, now_ms: int) -> WindowVerdict:
    """The state of an expected window.

    What a person settled holds until newer data is there. Work under way comes before what it may mend; an
    end that needs a person before an absence.
    """
    state, waiting_for, at_ms, code = _state(expected, facts, now_ms)
    moving = expected.by_request and state in ("running", "waiting")  # what was just asked for is not late
    return WindowVerdict(
        source_id=expected.source_id,
        start_ms=expected.start_ms,
        end_ms=expected.end_ms,
        state=state,
        due_ms=expected.due_ms,
        is_late=state not in SETTLED and not moving and not facts.has_data and now_ms >= expected.due_ms,
        waiting_for=waiting_for,
        at_ms=at_ms,
        run_id=None if facts.failed_since else facts.run_id,  # that one is not what failed
        request_id=facts.request_id,
        code=code,
        reason=facts.settled_why if state in ("dismissed", "withdrawn") else None,
        has_data=facts.has_data and facts.settled != "withdrawn",
    )


Stated = tuple[WindowState, str | None, int | None, str | None]  # state, waiting for, since, code


def _state(expected: ExpectedWindow, facts: WindowFacts, now_ms: int) -> Stated:
    there = facts.outcome if facts.has_data and facts.outcome != "absent" else None
    ended_ms = facts.run_ended_ms or 0
    if facts.settled is not None and not (there and ended_ms > (facts.settled_ms or 0)):
        return facts.settled, None, facts.settled_ms, None
    if (facts.run_status == "running" and facts.is_live) or facts.request_state == "running":
        return "running", None, facts.run_started_ms, None
    if there is not None and not facts.failed_since:
        return there, None, facts.run_ended_ms, REMOVALS["rollback"] if facts.is_older else None
    if facts.request_state == "awaiting-approval":
        return "waiting", "approval", facts.requested_ms, None
    if facts.held_code is not None:
        return "quarantined", None, facts.run_ended_ms or facts.failed_ms, facts.held_code
    if facts.request_state == "open" or facts.is_promised:
        if facts.blocked_by != "not-yet":
            waits_for = facts.blocked_by or ("retry" if facts.is_promised else "turn")
            return "waiting", waits_for, facts.not_before_ms, facts.run_error
        return _absent(expected, facts, now_ms, is_asked=True)
    return _broken(facts) or _absent(expected, facts, now_ms, is_asked=False)


def _broken(facts: WindowFacts) -> Stated | None:
    """The newest end without data that nothing mends by itself; None: the newest is an absence, or none."""
    ends: list[tuple[int, int, Stated]] = []
    # What did not come when it was asked for after a refusal had passed the gates.
    if facts.refused_ms is not None and facts.refused_ms >= (facts.absent_ms or 0):
        ends.append((facts.refused_ms, 2, ("refused", None, facts.refused_ms, facts.refused_by)))
    if facts.failed_ms is not None:
        ends.append((facts.failed_ms, 1, ("failed", None, facts.failed_ms, facts.failed_by)))
    if facts.run_status in ("failed", "running"):  # running without a lease: its process died
        at_ms = facts.run_ended_ms if facts.run_status == "failed" else facts.run_started_ms
        ends.append((at_ms or 0, 0, ("failed", None, at_ms, facts.run_error)))
    if not ends:
        return None
    newest = max(ends, key=lambda one: one[:2])
    looked_ms = facts.run_ended_ms if facts.run_status == "success" else None
    return None if looked_ms is not None and looked_ms > newest[0] else newest[2]


def _absent(expected: ExpectedWindow, facts: WindowFacts, now_ms: int, *, is_asked: bool) -> Stated:
    if now_ms < expected.due_ms:
        return "waiting", "not-yet", facts.not_before_ms, None
    state: WindowState = "overdue" if is_asked or now_ms < expected.until_ms else "missing"
    if facts.removed is not None:
        return state, None, facts.removed_ms, facts.removed
    return state, None, expected.due_ms, None


# --- how a dataset is ----------------------------------------------------------------


class HealthCause(Record, frozen=True):
    """One reason why a dataset is not fresh, with the windows that it is about."""

    health: HealthState
    state: WindowState | None  # None: it is about no window, as a pause
    code: str | None  # the error, the gate or what is waited for
    windows: int
    first_ms: int | None = None  # start of the first of these windows
    since_ms: int | None = None
    run_id: str | None = None  # of the newest of them


class DatasetHealth(Record, frozen=True):
    """How a dataset is: one word, the causes by rank, and the counts behind them."""

    dataset_id: str
    state: HealthState
    causes: tuple[HealthCause, ...]
    counts: Mapping[str, int]  # by state, of all expected windows
    expected: int
    watermark_ms: int | None  # every expected window that ends by then is settled
    newest_ms: int | None  # end of the newest window that is there
    lag_ms: int | None  # how long the oldest window that is due and not there is overdue; 0: none is


class Pause(Record, frozen=True):
    """Why nothing begins, on purpose: a switch, a paused schedule."""

    code: str
    since_ms: int | None


def health(
    dataset_id: str,
    verdicts: Iterable[WindowVerdict],
    now_ms: int,
    *,
    is_published: bool,
    pauses: Sequence[Pause] = (),
    before: Sequence[SettledHours] = (),
    gone: HealthCause | None = None,
) -> DatasetHealth:
    """How a dataset is, of all its expected windows. `is_published`: it has a head. `before`: windows that
    are published, beside those that have a verdict. `gone`: all of it is withdrawn, so that none is open.

    Failing comes before late, late before incomplete (older holes under newer data), and those before what
    was done on purpose: a withdrawal of all of it, a pause.
    """
    listed = sorted(verdicts, key=lambda one: (one.end_ms, one.source_id))
    counts: dict[str, int] = {}
    for one in listed:
        counts[one.state] = counts.get(one.state, 0) + 1
    there = sum(one.count for one in before)
    if there:
        counts["published"] = counts.get("published", 0) + there
    ends = [one.end_ms for one in listed if (one.state in THERE or one.has_data) and not one.is_all_time]
    ends += [end_ms for one in before if (end_ms := one.last_end_ms()) is not None]
    newest_ms = max(ends, default=None)
    causes = [*_window_causes(listed, newest_ms), *_pause_causes(pauses)]
    if gone is not None:
        causes.append(gone)
    if not is_published and not any(one.health == "failing" for one in causes):
        causes.append(HealthCause(health="never", state=None, code=None, windows=0))
    causes.sort(
        key=lambda one: (HEALTH_RANK.index(one.health), -(one.windows), one.first_ms or 0, one.code or "")
    )
    lagging = [one.due_ms for one in listed if one.is_late]
    return DatasetHealth(
        dataset_id=dataset_id,
        state=causes[0].health if causes else "fresh",
        causes=tuple(causes),
        counts=counts,
        expected=len(listed) + there,
        watermark_ms=_watermark_ms(listed, before),
        newest_ms=newest_ms,
        lag_ms=None if not listed and not there else max((now_ms - due_ms for due_ms in lagging), default=0),
    )


def health_of(one: WindowVerdict, newest_ms: int | None) -> HealthState | None:
    """What one window makes of its dataset; None: nothing that matters."""
    if one.state in BROKEN:
        return "failing"
    if not one.is_late:
        return None
    return "incomplete" if newest_ms is not None and one.end_ms < newest_ms else "late"


def _window_causes(listed: Sequence[WindowVerdict], newest_ms: int | None) -> Iterator[HealthCause]:
    """The windows that matter, gathered by what is wrong with them."""
    gathered: dict[tuple[HealthState, WindowState, str | None], list[WindowVerdict]] = {}
    for one in listed:
        effect = health_of(one, newest_ms)
        if effect is not None:
            what = (
                one.code or (one.waiting_for or "").partition(":")[0] or None
            )  # no names: it is shown to all
            gathered.setdefault((effect, one.state, what), []).append(one)
    for (effect, state, code), found in gathered.items():
        known = [one.at_ms for one in found if one.at_ms is not None]
        yield HealthCause(
            health=effect,
            state=state,
            code=code,
            windows=len(found),
            first_ms=found[0].start_ms,
            since_ms=min(known, default=min(one.due_ms for one in found)),
            run_id=found[-1].run_id,
        )


def _pause_causes(pauses: Sequence[Pause]) -> Iterator[HealthCause]:
    for pause in pauses:
        yield HealthCause(health="paused", state=None, code=pause.code, windows=0, since_ms=pause.since_ms)


def _watermark_ms(listed: Sequence[WindowVerdict], before: Sequence[SettledHours]) -> int | None:
    """Up to the first window that is open, in the order of their ends and sources."""
    reached: int | None = None
    is_open: WindowVerdict | None = None
    for one in listed:
        if one.is_all_time:
            continue  # of a source without windows: nothing is reached by it
        if not one.is_settled:
            is_open = one
            break
        reached = one.end_ms
    for known in before:
        limit_ms = None
        if is_open is not None:
            limit_ms = is_open.end_ms - (known.source_id > is_open.source_id)
        end_ms = known.last_end_ms(limit_ms)
        if end_ms is not None and (reached is None or end_ms > reached):
            reached = end_ms
    return reached
