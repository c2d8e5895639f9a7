"""From accepted requests to runs, with a real ledger, real files and the admission that every call passes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Literal

import pytest

from kfm.app import App, open_app
from kfm.config.loader import Loaded
from kfm.model.errors import NotApproved
from kfm.model.requests import UpdateRequest
from kfm.runs import plan as plans
from kfm.service.approvals import approve
from kfm.service.dispatcher import Dispatcher
from kfm.service.runner import ServedRuns, ServiceOptions, ServiceThreads, make_dispatcher
from tests.integration.service.project import asked, eventually, make, opened


@pytest.fixture
def loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Loaded:
    monkeypatch.setenv("RIVER_SECRET", "s" * 32)
    return make(tmp_path)


@pytest.fixture
def app(loaded: Loaded) -> Iterator[App]:
    app = opened(loaded)
    yield app
    app.close()


def dispatcher(app: App) -> Dispatcher:
    return make_dispatcher(app)


def claimed_by(app: App, worker: str, claim_ms: int) -> UpdateRequest:
    found = app.kernel.store.requests().claim(worker, claim_ms, app.liveness.is_dead)
    assert found is not None
    return found


def now(app: App, request: UpdateRequest) -> UpdateRequest:
    found = app.ledger.request_reader().request(request.request_id)
    assert found is not None
    return found


@pytest.mark.req("TRG-4", "UPD-12")
def test_a_request_becomes_a_run(app: App) -> None:
    """An accepted request has one run under its own key, and what it changed was on record before."""
    request = asked("one")
    app.kernel.store.requests().accept([request])
    assert dispatcher(app).step() is not None
    ended = now(app, request)
    assert (ended.state, ended.outcome) == ("done", "success")
    run = app.ledger.run(ended.run_id or "")
    assert run is not None
    assert (run.trigger_type, run.idempotency_key, run.status) == ("webhook", request.key, "success")
    text = app.ledger.request_reader().preview(ended.plan_digest or "")
    assert text is not None
    plan = plans.read(text.encode())
    assert plan.header.version_id == run.version_id
    assert [change.name for change in plan.changes if change.what == "asset"] != []
    assert dispatcher(app).step() is None


@pytest.mark.req("TRG-2")
@pytest.mark.parametrize("kind", ["webhook", "cron", "manual"])
def test_a_lost_runner_changes_nothing_twice(kind: str, app: App, loaded: Loaded) -> None:
    """The promotion ends the request, too: if a runner dies right after it, there is nothing left to do, also
    when upstream has moved on since."""
    request = asked("one", **({} if kind == "webhook" else {"kind": kind, "request_uuid": None}))
    store = app.kernel.store
    store.requests().accept([request])
    report = ServedRuns(app).run(claimed_by(app, "lost", -1), None)  # its claim has lapsed already
    assert report.run is not None
    Path(loaded.folder, "incoming", "b.csv").write_text("day,flow\n2,3\n")
    assert dispatcher(app).step() is None
    ended = now(app, request)
    assert (ended.state, ended.outcome, ended.run_id) == ("done", "success", report.run.run_id)
    assert len(app.ledger.runs()) == 1


@pytest.mark.req("TRG-2")
@pytest.mark.parametrize("kind", ["webhook", "cron"])
def test_a_runner_that_overslept_begins_nothing(kind: str, app: App, loaded: Loaded) -> None:
    """A runner that was stopped between its claim and admission finds that the request is another's, or done,
    also if upstream has moved on: it gets no second run."""
    request = asked("one", **({} if kind == "webhook" else {"kind": kind, "request_uuid": None}))
    store = app.kernel.store
    store.requests().accept([request])
    claimed = claimed_by(app, "stopped", -1)  # it has lapsed already
    taken = claimed_by(app, "other", 60_000)
    late = ServedRuns(app).run(claimed, None)
    assert (late.outcome, late.run) == ("busy", None)
    done = ServedRuns(app).run(taken, None)
    assert done.outcome == "success"
    Path(loaded.folder, "incoming", "b.csv").write_text("day,flow\n2,3\n")
    again = ServedRuns(app).run(taken, None)
    assert (again.outcome, again.run) == ("busy", None)
    assert done.run is not None
    assert now(app, request).run_id == done.run.run_id
    assert len(app.ledger.runs()) == 1


def test_two_requests_for_the_same_work(app: App) -> None:
    """The second finds the work done, and says so with the run that did it."""
    first, second = asked("one"), asked("two")
    app.kernel.store.requests().accept([first, second])
    made = dispatcher(app)
    while made.step() is not None:
        pass
    assert {now(app, first).outcome, now(app, second).outcome} == {"success", "noop"}
    assert now(app, first).run_id == now(app, second).run_id


@pytest.mark.req("GOV-1")
@pytest.mark.parametrize("position", ["paused", "stopped"])
def test_a_thrown_switch_delays(app: App, position: Literal["paused", "stopped"]) -> None:
    """While a switch is thrown a request waits, with the command that lifts it; it is never refused."""
    request = asked("one")
    app.kernel.store.requests().accept([request])
    app.set_switch("dataset:rivers", position, rationale="maintenance", actor="ann")
    assert dispatcher(app).step() is not None
    waiting = now(app, request)
    assert (waiting.state, waiting.blocked_by) == ("open", "switch")
    assert f"rivers is {position}" in (waiting.reason or "")
    assert "`kfm switch set running --dataset rivers" in (waiting.reason or "")
    assert waiting.not_before_ms > app.kernel.store.now_ms()
    assert app.ledger.runs() == []


def test_a_source_that_is_gone(app: App) -> None:
    """A request for a source that the configuration has no more ends as refused."""
    request = asked("one", source_id="lake")
    app.kernel.store.requests().accept([request])
    dispatcher(app).step()
    assert (now(app, request).outcome, now(app, request).run_id) == ("refused", None)


def test_a_cancelled_request(app: App) -> None:
    """A runner that is told to stop before it begins begins nothing."""
    request = asked("one", cancel="a later one covers it")
    app.kernel.store.requests().accept([request])
    dispatcher(app).step()
    assert (now(app, request).state, now(app, request).reason) == ("cancelled", "a later one covers it")
    assert app.ledger.runs() == []


@pytest.mark.req("TRG-4", "GOV-3")
def test_an_approval_is_for_one_preview(app: App, loaded: Loaded) -> None:
    """A request that needs it waits with its preview until a second person agrees; then just that happens."""
    request = asked("one", needs_approval=True)
    app.kernel.store.requests().accept([request])
    dispatcher(app).step()
    waiting = now(app, request)
    assert waiting.state == "awaiting-approval"
    assert app.ledger.runs() == []
    (approval,) = app.ledger.approvals(state="requested")
    assert approval.digest == waiting.plan_digest
    approve(app, approval, actor="ben", rationale="looked at it")
    dispatcher(app).step()
    ended = now(app, request)
    assert (ended.state, ended.outcome) == ("done", "success")
    run = app.ledger.run(ended.run_id or "")
    assert run is not None
    text = app.ledger.request_reader().preview(approval.digest) or ""
    assert run.version_id == plans.read(text.encode()).header.version_id


@pytest.mark.req("TRG-4")
def test_what_was_not_approved_does_not_happen(app: App, loaded: Loaded) -> None:
    """If upstream moves after the yes, nothing is published."""
    request = asked("one", needs_approval=True)
    app.kernel.store.requests().accept([request])
    dispatcher(app).step()
    (approval,) = app.ledger.approvals(state="requested")
    approve(app, approval, actor="ben", rationale="looked at it")
    Path(loaded.folder, "incoming", "b.csv").write_text("day,flow\n2,3\n")
    dispatcher(app).step()
    assert now(app, request).outcome == "refused"
    assert app.ledger.head("rivers") is None
    with pytest.raises(NotApproved):
        approve(app, app.ledger.approvals(subject=request.request_id)[0], actor="eve", rationale="again")


def test_the_service_works_off_what_comes(loaded: Loaded, caplog: pytest.LogCaptureFixture) -> None:
    """Threads take up what is accepted, and end when they are asked to."""
    caplog.set_level("INFO", "kfm")
    service = ServiceThreads(loaded, ServiceOptions(), partial(open_app, loaded))
    app = opened(loaded)
    try:
        service.start()
        requests = [asked(str(number)) for number in range(5)]
        app.kernel.store.requests().accept(requests)
        service.wake()
        eventually(
            lambda: all(now(app, one).is_settled for one in requests),
            f"not all requests have an end: {caplog.text}",
        )
        service.stop()
        assert service.join() == []
        assert {now(app, one).run_id for one in requests} == {app.ledger.runs()[0].run_id}
    finally:
        service.stop()
        app.close()
