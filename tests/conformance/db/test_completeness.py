"""Over random histories, coverage and health are what a recount of the raw rows gives."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from kfm.datasets.completeness import CompletenessReader
from kfm.db.ledger import Ledger
from kfm.db.window_facts import WindowReader
from kfm.model.completeness import Dismissal
from kfm.model.records import GateResult, Run
from kfm.model.requests import UpdateRequest
from kfm.model.settings import DatasetSettings, Expect, Settings, SourceSettings
from tests.conformance.db.ledgers import (
    START_MS,
    Desk,
    digest,
    entry,
    invocation,
    memory_store,
    new_run,
    postgres_store,
)
from tests.conformance.db.test_windows import SOURCE, held
from tests.stand_ins import FakeClock

DAY_MS = 86_400_000
DAYS = 8
REFUSAL = GateResult(gate="licence", allowed=False, reason="Not commercial.")
SETTINGS = Settings(
    datasets=(DatasetSettings(id="ks-streamflow"),),
    sources=(
        SourceSettings(
            id=SOURCE,
            dataset="ks-streamflow",
            kind="files",
            folder="in",
            expect=Expect(since="2026-01-03", within="P2D"),
        ),
    ),
)
NOW_MS = START_MS + DAYS * DAY_MS


class History:
    """Random work on some windows, one of them at a time."""

    def __init__(self, store: Ledger, seed: int, tick: Any) -> None:
        self.store, self.desk, self.rng, self.tick = store, Desk(store), random.Random(seed), tick
        self.number = 0
        self.running: set[int] = set()
        self.asked: dict[int, list[str]] = {}

    def play(self, steps: int) -> None:
        kinds = (
            self.succeed,
            self.fail,
            self.begin,
            self.refuse,
            self.find_done,
            self.ask,
            self.cancel,
            self.dismiss,
        )
        for _ in range(steps):
            self.tick()
            self.number += 1
            self.rng.choice(kinds)(self.rng.randrange(DAYS + 2))  # the last of them are not over yet

    def _run(self, day: int) -> Run | None:
        if day in self.running:
            return None
        start_ms = START_MS + day * DAY_MS
        run = new_run(f"run {self.number}", window_start_ms=start_ms, window_end_ms=start_ms + DAY_MS)
        answer = self.desk.admit(run, scope=f"day:{day}")
        assert answer.answer == "admitted"
        return answer.run

    def succeed(self, day: int) -> None:
        run = self._run(day)
        if run is not None:
            found = self.rng.choice(("data", "data", "empty", "absent"))
            text = f"{self.number}" if found == "data" and self.rng.random() < 0.7 else None
            self.desk.promote(run, text, found=found, scope=f"day:{day}")

    def fail(self, day: int) -> None:
        run = self._run(day)
        if run is not None:
            more = {"held": held(run.run_id)} if self.rng.random() < 0.4 else {}
            self.desk.fail(run, scope=f"day:{day}", **more)

    def begin(self, day: int) -> None:
        if self.rng.random() < 0.3 and self._run(day) is not None:
            self.running.add(day)

    def _call(self, day: int, run: Run | None, **changes: Any) -> None:
        start_ms = START_MS + day * DAY_MS
        window = {"window_start_ms": start_ms, "window_end_ms": start_ms + DAY_MS}
        made = invocation(10_000 + self.number, run, requested_at_ms=self.store.now_ms(), **window, **changes)
        self.store.record_invocation(made)

    def refuse(self, day: int) -> None:
        if self.rng.random() < 0.5:
            self._call(day, None, outcome="refused", gates=(REFUSAL,))
        else:
            self._call(day, None, outcome="failed", reason_code="KFM403")

    def find_done(self, day: int) -> None:
        done = [
            run
            for run in self.store.runs(status="success", limit=1000)
            if run.window_start_ms == START_MS + day * DAY_MS
        ]
        if done:
            self._call(day, self.rng.choice(done), outcome="noop")

    def ask(self, day: int) -> None:
        start_ms = START_MS + day * DAY_MS
        request = UpdateRequest(
            request_id=f"request-{self.number}",
            key=digest(f"request {self.number}"),
            kind="manual",
            source_id=SOURCE,
            dataset_id="ks-streamflow",
            window_start_ms=start_ms,
            window_end_ms=start_ms + DAY_MS,
            actor="ada",
            accepted_at_ms=self.store.now_ms(),
            blocked_by=self.rng.choice((None, "switch", "not-yet")),
        )
        self.store.requests().accept([request])
        self.asked.setdefault(day, []).append(request.request_id)

    def cancel(self, day: int) -> None:
        for request_id in self.asked.pop(day, []):
            self.store.requests().cancel(request_id, "no")

    def dismiss(self, day: int) -> None:
        start_ms = START_MS + day * DAY_MS
        one = Dismissal(
            source_id=SOURCE,
            dataset_id="ks-streamflow",
            start_ms=start_ms,
            end_ms=start_ms + DAY_MS,
            actor="a",
            rationale="b",
        )
        windows = self.store.windows()
        if self.rng.random() < 0.6:
            if windows.dismiss([one], entry("window-dismissed")).answer == "dismissed":
                self.asked.pop(day, None)
        else:
            windows.undismiss([one], entry("undone"))


# --- the recount ---------------------------------------------------------------------


def recounted(store: Ledger, now_ms: int) -> dict[tuple[int, int], tuple[str, bool, bool]]:
    """State, whether it is late, and whether it has data, of each window, straight from the rows."""
    runs = store.runs(limit=10_000)
    calls = [call for _, call in store.invocations_since(0, 10_000)]
    requests = store.request_reader().requests(limit=10_000)
    settled = {(one.start_ms, one.end_ms): one for one in store.window_reader().settled(SOURCE)}
    declared = {
        (START_MS + day * DAY_MS, START_MS + (day + 1) * DAY_MS)
        for day in range(2, (now_ms - START_MS) // DAY_MS)
    }
    seen = {
        (one.window_start_ms, one.window_end_ms)
        for one in (*runs, *calls, *requests)
        if one.window_start_ms is not None
    }
    found = {}
    for span in declared | seen | set(settled):
        mine = [run for run in runs if (run.window_start_ms, run.window_end_ms) == span]
        asked = [one for one in requests if (one.window_start_ms, one.window_end_ms) == span]
        called = [call for call in calls if (call.window_start_ms, call.window_end_ms) == span]
        state, has_data = _state(store, span, mine, asked, called, settled.get(span), now_ms)
        due_ms = span[1] + 2 * DAY_MS
        open_ended = state not in ("published", "unchanged", "empty", "dismissed")
        moving = state in ("running", "waiting") and span not in declared
        found[span] = (state, open_ended and not moving and not has_data and now_ms >= due_ms, has_data)
    return found


def _state(
    store: Ledger, span: Any, runs: Any, asked: Any, calls: Any, settled: Any, now_ms: int
) -> tuple[str, bool]:
    under_way = any(run.status == "running" for run in runs)
    ended = sorted(
        (run for run in runs if run.status != "running"), key=lambda run: (-run.end_time_ms, run.run_id)
    )
    last = ended[0] if ended else None
    last_call = next(
        (
            one
            for one in reversed(calls)
            if one.outcome in ("refused", "noop") or (one.outcome == "failed" and one.run_id is None)
        ),
        None,
    )
    if (
        not under_way
        and last_call is not None
        and last_call.outcome == "noop"
        and last is not None
        and last.status == "failed"
    ):
        again = store.run(last_call.run_id)
        if again is not None and last_call.requested_at_ms >= last.end_time_ms:
            last = again
    if last is not None and last.outcome == "absent" and not under_way:
        # It has found nothing, and taken nothing away.
        with_data = ("published", "unchanged", "empty")
        last = next((run for run in ended if run.outcome in with_data), last)
    there = last.outcome if last is not None and last.status == "success" and not under_way else None
    has_data = there in ("published", "unchanged", "empty")
    if settled is not None and (there in (None, "absent") or last.end_time_ms <= settled.settled_at_ms):
        return "dismissed", has_data
    if under_way:
        return "running", has_data
    failed_since = (
        last_call is not None
        and last_call.outcome == "failed"
        and last is not None
        and last_call.requested_at_ms > last.end_time_ms
    )
    if has_data and not failed_since:
        return str(there), True
    if last is not None and last.status == "failed" and store.held(state="held", subject=last.run_id):
        return "quarantined", has_data
    waiting = sorted(
        (one for one in asked if one.state == "open"), key=lambda one: (one.accepted_at_ms, one.request_id)
    )
    is_due = now_ms >= span[1] + 2 * DAY_MS
    if waiting:
        if waiting[-1].blocked_by != "not-yet":
            return "waiting", has_data
        return "overdue" if is_due else "waiting", has_data
    broken = [(one.ended_at_ms, 2, "refused") for one in asked if one.state == "cancelled"]
    if last_call is not None and last_call.outcome == "refused":
        broken.append((last_call.requested_at_ms, 2, "refused"))
    if last_call is not None and last_call.outcome == "failed":
        broken.append((last_call.requested_at_ms, 1, "failed"))
    if last is not None and last.status == "failed":
        broken.append((last.end_time_ms, 0, "failed"))
    newest = max(broken, default=None)
    if newest is not None and not (
        last is not None and last.status == "success" and last.end_time_ms > newest[0]
    ):
        return newest[2], has_data
    return "missing" if is_due else "waiting", has_data


def _reader(store: Ledger, now_ms: int) -> CompletenessReader:
    return CompletenessReader(
        SETTINGS, store, now_ms, schedules=tuple, is_dead=lambda _: False, latency_ms=lambda _: None
    )


def compare(store: Ledger, now_ms: int) -> None:
    reader = _reader(store, now_ms)
    reader.__dict__["_alive"] = frozenset(run.run_id for run in store.runs(status="running", limit=1000))
    coverage, expected = reader.coverage("ks-streamflow"), recounted(store, now_ms)
    states = {(one.start_ms, one.end_ms): (one.state, one.is_late, one.has_data) for one in coverage.windows}
    assert states == expected
    assert coverage.health.counts == Counter(state for state, *_ in expected.values())
    assert coverage.health == reader.health("ks-streamflow")
    broken = any(state in ("failed", "quarantined", "refused") for state, *_ in expected.values())
    there = [
        end
        for (_, end), (state, _, has_data) in expected.items()
        if state in ("published", "unchanged", "empty") or has_data
    ]
    late = [end for (_, end), (_, is_late, _) in expected.items() if is_late]
    if broken:
        verdict = "failing"
    elif any(not there or end >= max(there) for end in late):
        verdict = "late"
    elif late:
        verdict = "incomplete"
    else:
        verdict = "fresh" if store.heads() else "never"
    assert coverage.health.state == verdict
    is_open = [
        end
        for (_, end), (state, _, has_data) in expected.items()
        if state not in ("published", "unchanged", "empty", "dismissed") and not has_data
    ]
    settled = [end for (_, end) in expected if not is_open or end < min(is_open)]
    assert coverage.health.watermark_ms == max(settled, default=None)


@pytest.mark.req("DAT-1")
@pytest.mark.parametrize("seed", range(40))
def test_a_recount_of_random_histories_gives_the_same(seed: int) -> None:
    """States, lateness, counts, health and watermark, on a ledger in memory."""
    clock = FakeClock(NOW_MS - DAY_MS)
    store = memory_store(clock)
    history = History(store, seed, lambda: clock.sleep_ms(1000))
    for _ in range(4):
        history.play(12)
        compare(store, store.now_ms())
    store.close()


@pytest.mark.req("DAT-1")
@pytest.mark.parametrize("seed", range(4))
def test_the_same_on_postgresql(seed: int, postgres_schema: Any) -> None:
    """The same queries give the same there, where the server's clock counts."""
    store = postgres_store(postgres_schema())
    history = History(store, seed, lambda: None)
    for _ in range(3):
        history.play(15)
        compare(store, store.now_ms())
    store.close()


@pytest.mark.req("GRO-3")
def test_a_report_reads_the_windows_of_a_source_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Health, failures and coverage, as a status and a page of the console ask for them, are one look at what
    may be years of windows; and each is what it is by itself."""
    clock = FakeClock(NOW_MS - DAY_MS)
    store = memory_store(clock)
    History(store, 7, lambda: clock.sleep_ms(1000)).play(40)
    now_ms, looks = store.now_ms(), []
    alone = (
        _reader(store, now_ms).health("ks-streamflow"),
        _reader(store, now_ms).failed_runs(),
        _reader(store, now_ms).coverage("ks-streamflow"),
    )
    facts = WindowReader.facts
    monkeypatch.setattr(WindowReader, "facts", lambda *given: looks.append(given[1]) or facts(*given))
    reader = _reader(store, now_ms)
    asked = (reader.health("ks-streamflow"), reader.failed_runs(), reader.coverage("ks-streamflow"))
    assert asked == alone
    assert alone[1], "this history has a failure"
    assert looks == [SOURCE]
    store.close()
