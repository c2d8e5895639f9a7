"""Catch-up leaves no hole: over any outages, refusals, overlaps and caps, each window is asked for."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kfm.db.ledger import Ledger
from kfm.model.requests import RequestOutcome
from kfm.model.scheduled_times import LEFT_TO
from kfm.model.schedules import MissedPolicy, Overlap, Schedule, instants, period_of
from kfm.model.settings import SourceSettings
from kfm.service.scheduler import Scheduler
from tests.simulation import shortcuts
from tests.simulation.seeds import FixedClock

pytestmark = pytest.mark.req("DAT-2", "TRG-6")

HOUR_MS = 3_600_000
START_MS = 1_773_000_000_000
LATE_MS = 60_000
EVER_MS = 400 * 24 * HOUR_MS
PATTERNS = ("*/15 * * * *", "5 * * * *", "0 6 * * *", "30 1-3 * * *", "0 */7 * * *")

# Hours that pass, how many requests are worked off then, what the gates say, and whether a person cancels.
EVENTS = st.lists(
    st.tuples(
        st.one_of(st.sampled_from([0.25, 1.0, 2.0]), st.integers(1, 60).map(float)),
        st.integers(0, 12),
        st.booleans(),
    ),
    max_size=8,
)


class Service:
    """A scheduler on a real ledger, with requests that are worked off when the test says so."""

    def __init__(self, schedule: Schedule, source: SourceSettings, database: object) -> None:
        self.schedule, self.source = schedule, source
        self.store = Ledger(database)  # type: ignore[arg-type]
        self.now_ms = START_MS
        self.done: Counter[tuple[int, int]] = Counter()
        self.epoch = 0
        self._scheduler = self.restarted()

    def restarted(self) -> Scheduler:
        self._scheduler = Scheduler(
            self.store.schedule_states(),
            self.store.requests(),
            [self.schedule],
            {"s": self.source},
            now_ms=lambda: self.now_ms,
            late_ms=LATE_MS,
            actor="serve",
            is_touched=lambda _source, start_ms, end_ms: (start_ms, end_ms) in self.done,
            grounds=lambda: lambda _source: str(self.epoch),
        )
        return self._scheduler

    def _step(self) -> None:
        requests = self.store.requests()
        before = {one.request_id for one in requests.unsettled_of("i")}
        self._scheduler.step()
        spans = Counter(
            (one.window_start_ms, one.window_end_ms)
            for one in requests.unsettled_of("i")
            if one.request_id not in before and LEFT_TO in one.details
        )
        assert not any(self.done[span] for span in spans), "asked for although it is done"
        assert max(spans.values(), default=1) == 1, "asked for twice"
        assert spans.total() <= self.schedule.missed.cap

    def live(self, hours: float, works_off: int, refuses: bool) -> None:
        self.now_ms += round(hours * HOUR_MS)
        self._step()
        requests = self.store.requests()
        for _ in range(works_off):
            one = requests.claim("w", EVER_MS, lambda _worker: False)
            if one is None:
                return
            if one.cancel is not None:
                requests.settle(
                    one, RequestOutcome(state="cancelled", outcome="cancelled", reason=one.cancel)
                )
                continue
            span = (one.window_start_ms, one.window_end_ms)
            # The ledger finds done windows by their runs, which are not made here.
            is_refused = refuses and not self.done[span]
            outcome = "refused" if is_refused else "success"
            self.done[span] += not is_refused
            self.done += Counter()
            requests.settle(one, RequestOutcome(state="done", outcome=outcome, reason=outcome))


@settings(max_examples=20, deadline=None)
@given(
    st.sampled_from(PATTERNS),
    st.sampled_from(["PT1H", "PT6H", "P1D"]),
    st.sampled_from(["all", "last"]),
    st.sampled_from(get_args(Overlap)),
    st.integers(1, 4),
    EVENTS,
)
def test_every_window_is_asked_for_in_the_end(
    cron: str, window: str, run: str, overlap: Overlap, cap: int, events: list[tuple[float, int, bool]]
) -> None:
    """Whatever happens meanwhile, once a service runs again each window that a scheduled time has asked for
    since the schedule was first seen is worked off, and by catch-up no window twice."""
    policy = MissedPolicy(run=run, within_ms=EVER_MS, cap=cap)  # type: ignore[arg-type]
    schedule = Schedule(id="i", source="s", cron=cron, overlap=overlap, missed=policy)
    source = SourceSettings(id="s", dataset="d", kind="files", window=window)
    with closing(shortcuts.new_ledger(FixedClock())) as database:
        service = Service(schedule, source, database)
        service.live(0, 0, False)
        for hours, works_off, refuses in events:
            if hours > 3:
                service.restarted()
            service.live(hours, works_off, refuses)
        ends_ms = service.now_ms
        expected = {
            (span.start_ms, span.end_ms)
            for at_ms in instants(schedule, START_MS + 1, ends_ms - LATE_MS)
            for span in [period_of(schedule, source, at_ms)]
        }
        for _ in range(3 * len(expected) + 20):  # of daily ones a day passes each time
            if expected <= service.done.keys():
                break
            following_ms = next(instants(schedule, service.now_ms + 1)) - service.now_ms
            service.live(following_ms / HOUR_MS, 50, False)
        assert expected - service.done.keys() == set()


def test_without_catch_up_nothing_is_asked_for() -> None:
    """`missed: {run: none}` lets go of what was missed."""
    schedule = Schedule(id="i", source="s", cron="5 * * * *", missed=MissedPolicy(run="none"))
    source = SourceSettings(id="s", dataset="d", kind="files", window="PT1H")
    with closing(shortcuts.new_ledger(FixedClock())) as database:
        service = Service(schedule, source, database)
        service.live(0, 0, False)
        service.live(30.5, 50, False)
        service.live(1, 50, False)
        assert len(service.done) <= 1
