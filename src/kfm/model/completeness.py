"""Completeness: which windows are expected of a source, what became of each, and how a dataset is.

The expectation comes first: windows follow from schedules or from a declared cadence, never from the rows
that exist. A window that no record mentions is as visible as one that was published.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

from kfm.model.records import Record, Window
from kfm.model.schedules import Schedule, instants, next_instant, period_of
from kfm.model.settings import Expect, SourceSettings
from kfm.model.windows import next_window, parse_duration, parse_instant, shifted, time_of_day, window_of

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
WINDOW_STATES: tuple[WindowState, ...] = (
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
)
SETTLED = frozenset[WindowState](("published", "unchanged", "empty", "withdrawn", "dismissed"))
BROKEN = frozenset[WindowState](("failed", "quarantined", "refused"))
ABSENT = frozenset[WindowState](("overdue", "missing"))
# What `kfm run --missing` asks for unless states are named: everything past its time that has no end.
ASKED_FOR: tuple[WindowState, ...] = ("overdue", "failed", "quarantined", "refused", "missing")

HealthState = Literal["failing", "late", "incomplete", "paused", "never", "fresh"]
HEALTH_RANK: tuple[HealthState, ...] = ("failing", "late", "incomplete", "paused", "never", "fresh")

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


def since_ms(source: SourceSettings, configured_ms: int) -> int:
    """From when on windows are expected: as declared, else since the source was configured."""
    declared = source.expect.since if source.expect is not None else None
    return configured_ms if declared is None else parse_instant(declared, source.time_zone)


def expected_windows(
    expectation: Expectation, now_ms: int, start_ms: int | None = None, end_ms: int | None = None
) -> Iterator[ExpectedWindow]:
    """The windows that have been asked for up to now, or that are over where none asks, in order; those that
    touch a span, where one is given."""
    if not expectation.is_expected:
        return
    first_ms = expectation.since_ms if start_ms is None else max(start_ms, expectation.since_ms)
    for window, asked_ms, next_ms in _windows(expectation, first_ms, now_ms):
        if start_ms is not None and window.end_ms <= start_ms:
            continue
        if end_ms is not None and window.start_ms >= end_ms:
            continue
        due_ms = _due_ms(expectation, window, asked_ms, next_ms)
        yield ExpectedWindow(
            source_id=expectation.source.id,
            start_ms=window.start_ms,
            end_ms=window.end_ms,
            asked_ms=asked_ms,
            due_ms=due_ms,
            until_ms=max(due_ms, _until_ms(expectation, window)),
        )


def _windows(
    expectation: Expectation, first_ms: int, now_ms: int
) -> Iterator[tuple[Window, int, int | None]]:
    """Each window once, in order, with the first moment that asks for it and the moment after that."""
    source = expectation.source
    if not expectation.schedules:
        yield from _tiles(expectation, first_ms, now_ms)
        return
    found: dict[tuple[int, int], tuple[Window, int, int | None]] = {}
    for schedule in expectation.schedules:
        for at_ms in instants(schedule, first_ms, now_ms + 1):
            window = period_of(schedule, source, at_ms)
            known = found.get((window.start_ms, window.end_ms))
            if known is None or at_ms < known[1]:
                found[window.start_ms, window.end_ms] = (window, at_ms, next_instant(schedule, at_ms))
            if len(found) >= WINDOWS_MAX:
                break
    yield from (found[span] for span in sorted(found))


def _tiles(expectation: Expectation, first_ms: int, now_ms: int) -> Iterator[tuple[Window, int, int | None]]:
    """Every aligned window that is over, where no schedule asks."""
    source, spec = expectation.source, expectation.rule.every or expectation.source.window
    window = window_of(spec, source.time_zone, first_ms)
    for _ in range(WINDOWS_MAX):
        if window.end_ms > now_ms:
            return
        following = next_window(window, source.time_zone)
        if window.end_ms > expectation.since_ms:
            yield window, window.end_ms, following.end_ms
        window = following


def _due_ms(expectation: Expectation, window: Window, asked_ms: int, next_ms: int | None) -> int:
    """When a window is late: as declared, else by its contract, else when it would be asked for again."""
    rule, zone = expectation.rule, expectation.source.time_zone
    if rule.by is not None:
        return time_of_day(rule.by, zone, window.end_ms)
    if rule.within is not None:
        return shifted(window.end_ms, parse_duration(rule.within), zone)
    if expectation.latency_ms is not None:
        return window.end_ms + expectation.latency_ms
    return max(asked_ms, next_ms if next_ms is not None else 0)


def _until_ms(expectation: Expectation, window: Window) -> int:
    within = expectation.rule.within
    if within is None:
        return 0
    return shifted(window.end_ms, parse_duration(within), expectation.source.time_zone)


# --- what became of it ---------------------------------------------------------------


class WindowFacts(Record, frozen=True):
    """What the ledger knows of one window of one source. All of it may be absent."""

    # The newest run of the window, whatever revision or version of the pipeline.
    run_id: str | None = None
    run_status: Literal["running", "success", "failed"] | None = None
    run_ended_ms: int | None = None
    run_error: str | None = None
    is_live: bool = True  # of a running one: its lease holds
    outcome: Literal["published", "unchanged", "empty", "absent"] | None = None  # of a successful one
    is_held: bool = False  # its failure is quarantined, or a dead letter
    is_promised: bool = False  # another attempt will be made by itself
    # The newest request for the window that has no end.
    request_id: str | None = None
    request_state: Literal["open", "running", "awaiting-approval"] | None = None
    blocked_by: str | None = None
    not_before_ms: int | None = None
    # The newest refusal or cancellation, if it is newer than the run.
    refused_ms: int | None = None
    refused_by: str | None = None  # the gate
    # What a person settled, and when.
    settled: Literal["dismissed", "withdrawn"] | None = None
    settled_ms: int | None = None


NOTHING = WindowFacts()


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
    code: str | None = None  # the error or the gate

    @property
    def is_settled(self) -> bool:
        return self.state in SETTLED


def verdict(expected: ExpectedWindow, facts: WindowFacts, now_ms: int) -> WindowVerdict:
    """The state of an expected window.

    What a person settled holds until newer data is there. Work under way comes before what it may mend; an
    end that needs a person before an absence.
    """
    state, waiting_for, at_ms, code = _state(expected, facts, now_ms)
    return WindowVerdict(
        source_id=expected.source_id,
        start_ms=expected.start_ms,
        end_ms=expected.end_ms,
        state=state,
        due_ms=expected.due_ms,
        is_late=state not in SETTLED and now_ms >= expected.due_ms,
        waiting_for=waiting_for,
        at_ms=at_ms,
        run_id=facts.run_id,
        request_id=facts.request_id,
        code=code,
    )


def _state(
    expected: ExpectedWindow, facts: WindowFacts, now_ms: int
) -> tuple[WindowState, str | None, int | None, str | None]:
    ended_ms = facts.run_ended_ms or 0
    if facts.settled is not None and not (
        facts.run_status == "success" and ended_ms > (facts.settled_ms or 0)
    ):
        return facts.settled, None, facts.settled_ms, None
    if (facts.run_status == "running" and facts.is_live) or facts.request_state == "running":
        return "running", None, None, None
    done = facts.outcome if facts.run_status == "success" else None
    if done in ("published", "unchanged", "empty"):
        return done, None, facts.run_ended_ms, None
    if facts.request_state == "awaiting-approval":
        return "waiting", "approval", None, None
    if facts.run_status == "failed" and facts.is_held:
        return "quarantined", None, facts.run_ended_ms, facts.run_error
    is_asked = facts.request_state == "open" or facts.is_promised
    if is_asked and facts.blocked_by != "not-yet":
        return "waiting", facts.blocked_by or "turn", facts.not_before_ms, facts.run_error
    if facts.refused_ms is not None and facts.refused_ms >= ended_ms and not is_asked:
        return "refused", None, facts.refused_ms, facts.refused_by
    if (
        facts.run_status in ("failed", "running") and not is_asked
    ):  # running without a lease: its process died
        return "failed", None, facts.run_ended_ms, facts.run_error
    if now_ms < expected.due_ms:
        return "waiting", "not-yet", facts.not_before_ms, None
    return ("overdue" if is_asked or now_ms < expected.until_ms else "missing"), None, expected.due_ms, None


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
) -> DatasetHealth:
    """How a dataset is, of all its expected windows. `is_published`: it has a head.

    Failing comes before late, late before incomplete (older holes under newer data), and those before a
    pause that was set on purpose.
    """
    listed = sorted(verdicts, key=lambda one: (one.end_ms, one.source_id))
    counts: dict[str, int] = {}
    for one in listed:
        counts[one.state] = counts.get(one.state, 0) + 1
    newest_ms = max(
        (one.end_ms for one in listed if one.state in ("published", "unchanged", "empty")), default=None
    )
    causes = [*_window_causes(listed, newest_ms), *_pause_causes(pauses)]
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
        expected=len(listed),
        watermark_ms=_watermark_ms(listed),
        newest_ms=newest_ms,
        lag_ms=None if not listed else max((now_ms - due_ms for due_ms in lagging), default=0),
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
            gathered.setdefault((effect, one.state, one.code or one.waiting_for), []).append(one)
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


def _watermark_ms(listed: Sequence[WindowVerdict]) -> int | None:
    reached: int | None = None
    for one in listed:
        if not one.is_settled:
            return reached
        reached = one.end_ms
    return reached
