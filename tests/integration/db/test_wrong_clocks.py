"""On PostgreSQL a process whose own clock is wrong does what any other does, when any other does."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from kfm.app import App
from kfm.cli.doctor import _skew
from kfm.config.loader import Loaded, load
from kfm.model.records import Window
from kfm.model.requests import UpdateRequest
from kfm.model.schedules import Schedule
from kfm.runs.kernel import RunRequest
from kfm.service.runner import make_dispatcher, recover
from kfm.service.scheduler import make_scheduler
from kfm.system import SystemClock
from tests.conformance.db.ledgers import Desk, alive
from tests.integration.service.project import asked
from tests.unruly import Answer, Unruly, unruly_server

pytestmark = pytest.mark.req("FLT-1")
MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
CONFIG = """\
version: 1
datasets:
  - id: rivers
    title: Rivers
    rights:
      license: CC0-1.0
      attribution: The people of Kansas
      care: {label: Public, level: public}
sources:
  - {id: river, dataset: rivers, kind: http, url: "%s", window: P1D}
"""
ASKED_MS = 5 * MINUTE_MS
HOURLY = Schedule(id="hourly", source="river", every_ms=HOUR_MS)
wrong = pytest.mark.parametrize("ahead_ms", [-DAY_MS, DAY_MS], ids=["a day behind", "a day ahead"])


@pytest.fixture
def server() -> Iterator[Unruly]:
    with unruly_server() as unruly:
        yield unruly


@pytest.fixture
def loaded(tmp_path: Path, postgres_database: str, server: Unruly, monkeypatch: pytest.MonkeyPatch) -> Loaded:
    monkeypatch.setenv("KFM_STORE", postgres_database)
    url = server.on("/flow.csv", Answer(503, headers={"Retry-After": "300"}))
    (tmp_path / "kfm.yml").write_text(CONFIG % url)
    return load(str(tmp_path / "kfm.yml"))


@contextmanager
def process(loaded: Loaded, monkeypatch: pytest.MonkeyPatch, ahead_ms: int) -> Iterator[App]:
    """A process whose clock is that far from the server's. The clock that nothing sets goes on."""
    right = SystemClock.now_ms
    with monkeypatch.context() as patch:
        patch.setattr(SystemClock, "now_ms", lambda self: right(self) + ahead_ms)
        app = App(loaded, read_only=False, progress=None)
        try:
            yield app
        finally:
            app.close()


def now(app: App, request: UpdateRequest) -> UpdateRequest:
    found = app.ledger.request_reader().request(request.request_id)
    assert found is not None
    return found


def _let_pass(dsn: str, passed_ms: int) -> None:
    """What waits has waited so long."""
    with psycopg.connect(dsn) as connection:
        for table in ("requests", "retry_states"):
            connection.execute(f"UPDATE {table} SET not_before_ms = not_before_ms - {passed_ms}")


@wrong
@pytest.mark.req("RET-5")
def test_a_wait_and_a_budget_are_the_server_s(
    loaded: Loaded, postgres_database: str, monkeypatch: pytest.MonkeyPatch, ahead_ms: int
) -> None:
    """Minutes that upstream asks for are minutes by the server's clock; no other process is earlier, whatever
    its clock says; and when they are over, another attempt is made, since no budget has ended."""
    request = asked("one", window_start_ms=0, window_end_ms=DAY_MS)
    with process(loaded, monkeypatch, ahead_ms) as app:
        store = app.kernel.store
        store.requests().accept([request])
        assert make_dispatcher(app).step() is not None
        waiting = now(app, request)
        state = app.ledger.retry_state(waiting.run_id or "")
        assert state is not None
        assert (waiting.state, state.fate, state.grant_attempts) == ("open", "retry", 1)
        assert state.not_before_ms is not None
        for until_ms in (waiting.not_before_ms, state.not_before_ms):
            assert ASKED_MS - MINUTE_MS < until_ms - store.now_ms() <= ASKED_MS
    with process(loaded, monkeypatch, -ahead_ms) as app:
        recover(app)
        assert make_dispatcher(app).step() is None
        _let_pass(postgres_database, ASKED_MS)
        assert make_dispatcher(app).step() is not None
        state = app.ledger.retry_state(waiting.run_id or "")
        assert state is not None
        assert (state.fate, state.grant_attempts) == ("retry", 2)


@wrong
def test_leases_and_claims_are_the_server_s(
    loaded: Loaded, monkeypatch: pytest.MonkeyPatch, ahead_ms: int
) -> None:
    """What one process holds no other takes, whichever of them is ahead."""
    with process(loaded, monkeypatch, ahead_ms) as app:
        store = app.kernel.store
        desk = Desk(store)
        desk.promote(desk.admitted("one"))
        held = desk.admitted("two")
        store.requests().accept([asked("one")])
        assert store.requests().claim("w1", MINUTE_MS, alive) is not None
        assert store.claim_messages("openlineage", 100, MINUTE_MS) != []
    with process(loaded, monkeypatch, -ahead_ms) as app:
        store = app.kernel.store
        assert store.reap(alive) == []
        assert store.requests().claim("w2", MINUTE_MS, alive) is None
        assert store.claim_messages("openlineage", 100, MINUTE_MS) == []
        assert [one.run_id for one in store.runs(status="running")] == [held.run_id]


@wrong
@pytest.mark.req("UPD-13")
def test_scheduled_times_are_the_server_s(
    loaded: Loaded, monkeypatch: pytest.MonkeyPatch, ahead_ms: int
) -> None:
    """A process that is ahead begins none before it comes, and what one that is behind has seen first has no
    arrears."""
    for each_ms in (ahead_ms, 0, -ahead_ms):
        with process(loaded, monkeypatch, each_ms) as app:
            make_scheduler(app, [HOURLY]).step()
            store = app.kernel.store
            assert store.requests().requests() == []
            state = store.schedule_states().states()["hourly"]
            assert abs(state.cursor_ms - store.now_ms()) < MINUTE_MS


@wrong
def test_windows_are_the_server_s(loaded: Loaded, monkeypatch: pytest.MonkeyPatch, ahead_ms: int) -> None:
    """The newest day that is over is the same for all."""

    def newest(each_ms: int) -> Window:
        with process(loaded, monkeypatch, each_ms) as app:
            return app.subject(RunRequest(source_id="river")).window

    before, found, after = newest(0), newest(ahead_ms), newest(0)
    assert found in (before, after)


def test_the_doctor_tells_how_far_a_clock_is_from_the_server_s(
    loaded: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few seconds are a warning. What the two are compared by is one question, so that a slow answer is
    none."""
    for ahead_ms, state, text in (
        (0, "ok", r"[\d.]+ m?s from the database server's"),
        (DAY_MS + MINUTE_MS // 2, "warn", r"24 h 0 min ahead of the database server's"),
        (-10 * MINUTE_MS, "warn", r"(10 min 0|9 min \d+) s behind the database server's"),
    ):
        with process(loaded, monkeypatch, ahead_ms) as app:
            app.kernel.store.now_ms()
            found = _skew(app)
        assert (found.name, found.state) == ("clock", state)
        assert re.fullmatch(text, found.message)
        assert (found.fix is None) == (state == "ok")
