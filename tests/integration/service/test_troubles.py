"""What stands in a request's way is waited for, told with its way out, and not counted against it."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kfm.app import App, open_app
from kfm.cli.logs import choose_levels, stderr_logging
from kfm.config.loader import Loaded, load
from kfm.model.errors import LEDGER, BackendUnavailable
from kfm.model.requests import UpdateRequest
from kfm.model.retry import policy_for
from kfm.service import runner
from kfm.service.runner import ServiceOptions, ServiceThreads, make_dispatcher
from tests.integration.service.project import asked, eventually, make, opened


@pytest.fixture
def loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Loaded:
    monkeypatch.setenv("RIVER_SECRET", "s" * 32)
    return make(tmp_path / "project")


@pytest.fixture
def app(loaded: Loaded) -> Iterator[App]:
    app = opened(loaded)
    yield app
    app.close()


def step(app: App) -> None:
    """What a runner does next; what waits is due."""
    change(app, "UPDATE requests SET not_before_ms = 0 WHERE state = 'open'")
    assert make_dispatcher(app).step() is not None


def change(app: App, sql: str) -> None:
    database: Any = app.kernel.store._database
    database._connection.execute(sql)


def now(app: App, request: UpdateRequest) -> UpdateRequest:
    found = app.ledger.request_reader().request(request.request_id)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("scope", "option"), [("dataset:rivers", "--dataset rivers"), ("all", "--all")], ids=["one", "all"]
)
def test_a_pause_names_the_command_that_ends_it_and_uses_no_try_up(app: App, scope: str, option: str) -> None:
    """However long a pause lasts, what waited for it has all its tries left; it says what lifts the pause."""
    request = asked("one")
    app.kernel.store.requests().accept([request])
    app.set_switch(scope, "paused", rationale="maintenance", actor="ann")
    for _ in range(3):
        step(app)
    waiting = now(app, request)
    assert (waiting.state, waiting.tries) == ("open", 0)
    assert f"`kfm switch set running {option} --rationale TEXT`" in (waiting.reason or "")
    app.set_switch(scope, "running", rationale="done", actor="ann")
    step(app)
    assert (now(app, request).outcome, now(app, request).tries) == ("success", 1)


def test_previews_that_take_their_runner_along_come_to_an_end(app: App) -> None:
    """A request whose preview kills its runner is given up after the attempts of its trigger, so that a
    service can go on without it; it is in quarantine."""
    request = asked("one", needs_approval=True)
    requests = app.kernel.store.requests()
    requests.accept([request])
    for number in range(policy_for("webhook").attempts_max):
        assert requests.claim(f"killed-{number}", -1, lambda _: False)
    step(app)
    ended = now(app, request)
    assert (ended.state, ended.outcome) == ("done", "failed")
    assert "preview" in (ended.reason or "")
    assert [one.kind for one in app.ledger.held()] == ["quarantine"]
    assert app.ledger.runs() == []


def test_a_source_that_only_another_service_knows(app: App) -> None:
    """While services are exchanged one by one, those with the older file leave the new source to the others;
    what no service knows for minutes is refused."""
    accepted_ms = app.kernel.store.now_ms()
    request = asked("one", source_id="lake", accepted_at_ms=accepted_ms)
    app.kernel.store.requests().accept([request])
    step(app)
    waiting = now(app, request)
    assert (waiting.state, waiting.tries) == ("open", 0)
    assert "lake" in (waiting.reason or "")
    change(app, "UPDATE requests SET accepted_at_ms = accepted_at_ms - 600000")
    step(app)
    assert (now(app, request).state, now(app, request).outcome) == ("done", "refused")


def test_a_ledger_that_was_replaced_is_opened_anew(loaded: Loaded, caplog: pytest.LogCaptureFixture) -> None:
    """Every part notices that the file under its name is another, also if it had nothing to write."""
    opened(loaded).close()
    service = ServiceThreads(loaded, ServiceOptions(worker=False), partial(open_app, loaded))
    service.start()
    try:
        eventually(lambda: len(service._places) >= 5, "all parts have the ledger open")
        shutil.rmtree(loaded.resolve(loaded.settings.state))
        app = opened(load(loaded.path))
        try:
            request = asked("one")
            app.kernel.store.requests().accept([request])
            eventually(lambda: now(app, request).state == "done", caplog.text)
            assert now(app, request).outcome == "success"
        finally:
            app.close()
    finally:
        service.stop()
        service.join()


@pytest.mark.req("UPD-13")
def test_a_hiccup_of_the_ledger_is_one_line(
    loaded: Loaded, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every part of the service meets it, some more than once: one line says so, one that all go on."""
    opened(loaded).close()
    monkeypatch.setattr(runner, "TROUBLE_MS", 1)
    met: list[str] = []

    def opening(**options: Any) -> Any:
        if len(met) < 12:
            met.append(threading.current_thread().name)
            raise BackendUnavailable(f"try {len(met)}: the connection was closed.", backend=LEDGER)
        return open_app(loaded, **options)

    service = ServiceThreads(loaded, ServiceOptions(worker=False), opening)
    with stderr_logging("text"):
        choose_levels(verbose=0, quiet=False, service=True)
        service.start()
        try:
            eventually(lambda: len(service._places) >= 5 and not service._troubles, "all parts are well")
        finally:
            service.stop()
            service.join()
    lines = capsys.readouterr().err.splitlines()
    assert len(set(met)) > 1
    assert len([line for line in lines if "the connection was closed." in line]) == 1
    assert len([line for line in lines if line.endswith(": goes on")]) <= 1
