"""A pipeline that calls a provider by itself: `kfm.call` under `kfm run`, against a server that fails."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from kfm.db.ledger import Ledger
from kfm.system import SystemClock
from tests.acceptance.runs.conftest import Inside
from tests.acceptance.runs.test_retries import change
from tests.conformance.db.ledgers import sqlite_store

PIPELINE = """\
import urllib.request

import kfm

@kfm.call(provider="gauges", timeout=10{options})
def look(timeout):
    with urllib.request.urlopen("{url}", timeout=timeout) as answer:
        return answer.read()

def publish(context):
    context.log(f"left {{kfm.deadline():.0f}}")
    look()
    {more}
    for one in context.inputs:
        context.publisher.write_file(one.path, one.fetched)
"""
IDEMPOTENT = ", idempotent=True"


class Elsewhere:
    """Answers as it is told, one answer after the other; the last one for good."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, dict[str, str]]] = []
        self.asked = 0
        self.url = ""


@pytest.fixture
def elsewhere() -> Iterator[Elsewhere]:
    told = Elsewhere()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None: ...

        def do_GET(self) -> None:
            told.asked += 1
            status, headers = told.answers[0] if len(told.answers) == 1 else told.answers.pop(0)
            self.send_response_only(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", "0")
            self.end_headers()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    told.url = f"http://127.0.0.1:{server.server_port}/"
    yield told
    server.shutdown()
    server.server_close()


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every wait is over at once."""
    monkeypatch.setattr(SystemClock, "sleep_ms", lambda _self, _delay_ms: None)


@pytest.fixture
def calling(project: Inside, elsewhere: Elsewhere) -> Callable[..., Inside]:
    """A project whose pipeline calls."""

    def made(options: str = IDEMPOTENT, more: str = "", source: str = "") -> Inside:
        project.write("look.py", PIPELINE.format(options=options, url=elsewhere.url, more=more))
        project.configure(extra=f'pipeline: "look.py:publish", output_version: "1"{source}')
        return project

    return made


def ledger(project: Inside) -> Ledger:
    return sqlite_store(str(project.folder / ".kfm" / "kfm.db"), SystemClock())


@pytest.mark.req("RET-3", "RET-8")
def test_tries_of_a_pipeline_s_own_call_are_on_record(
    calling: Callable[..., Inside], elsewhere: Elsewhere
) -> None:
    """Each failed try is a row of the run's evidence, with its node, class and wait; and the run goes on."""
    elsewhere.answers = [(503, {}), (503, {}), (200, {})]
    project = calling()
    ended = project.run()
    assert ended.result["word"] == "published", ended
    rows = project.rows(
        "SELECT attempt, node, call_number, try_number, error_class, retryable, outcome, circuit_open "
        "FROM retries"
    )
    assert [row[:2] for row in rows] == [(1, "transform")] * 2
    assert len({row[2] for row in rows}) == 1, "the tries of one call"
    assert [row[3:] for row in rows] == [
        (1, "HTTP_503", 1, "retried", 0),
        (2, "HTTP_503", 1, "retried", 0),
    ]
    checked = project.kfm("compliance", "--json")
    assert checked.code == 0, checked
    (sequence,) = checked.document["sequences"]
    assert (sequence["stage"], sequence["attempts"], sequence["final_status"]) == ("transform", 3, "success")
    assert sequence["errors"] == ["HTTP_503", "HTTP_503"]
    told = project.kfm("explain", ended.result["run_id"]).out
    assert "step transform, a call was retried 2 times" in told
    events = (project.folder / ended.result["artifacts"] / "event_log.jsonl").read_text()
    assert "look: HTTPError: HTTP Error 503" in events


@pytest.mark.req("RET-3", "RET-8")
def test_a_call_that_gives_up_is_the_run_s_business(
    calling: Callable[..., Inside], elsewhere: Elsewhere
) -> None:
    """Three failures open the circuit: the last row says so, and the run waits until it may go on."""
    elsewhere.answers = [(503, {})]
    project = calling()
    ended = project.run()
    assert ended.code == 1, ended
    assert elsewhere.asked == 3
    assert project.rows("SELECT try_number, outcome, circuit_open FROM retries ORDER BY number") == [
        (1, "retried", 0),
        (2, "retried", 0),
        (3, "gave-up", 1),
    ]
    ((fate, kind, wait_ms),) = project.rows(
        "SELECT fate, error_class, not_before_ms - updated_at_ms FROM retry_states"
    )
    assert (fate, kind) == ("retry", "HTTP_503")
    assert wait_ms >= 290_000, "not while the circuit is open"
    (sequence,) = project.kfm("compliance", "--json").document["sequences"]
    assert (sequence["circuit_open"], sequence["final_status"]) == (True, "failure")


@pytest.mark.req("RET-5", "TRG-1")
@pytest.mark.parametrize(("seconds", "fate"), [(3600, "retry"), (86_400, "spent")])
def test_a_long_wait_is_handed_to_the_run(
    calling: Callable[..., Inside], elsewhere: Elsewhere, seconds: int, fate: str
) -> None:
    """More than 30 s is the run's not-before; what does not fit in its budget ends it now, and says so."""
    elsewhere.answers = [(429, {"Retry-After": str(seconds)})]
    project = calling()
    ended = project.run()
    assert (ended.code, elsewhere.asked) == (1, 1), ended
    ((found, kind, wait_ms),) = project.rows(
        "SELECT fate, error_class, not_before_ms - updated_at_ms FROM retry_states"
    )
    assert (found, kind) == (fate, "HTTP_429")
    assert abs(wait_ms - seconds * 1000) < 30_000
    assert project.rows("SELECT try_number, outcome, retryable FROM retries") == [(1, "gave-up", 1)]
    if fate == "spent":
        assert "more time than its budget" in ended.result["advice"]
        assert project.rows("SELECT kind, reason FROM held") == [
            ("dead-letter", "retry-after-exceeds-budget")
        ]


@pytest.mark.req("RET-3", "RET-4")
def test_the_run_s_budget_is_the_calls_deadline(calling: Callable[..., Inside], elsewhere: Elsewhere) -> None:
    """A pipeline's calls see what is left; a wait that would outlast it is not begun, and says so."""
    elsewhere.answers = [(503, {})]
    project = calling(options=IDEMPOTENT + ", attempts=2")
    first = project.run()
    events = (project.folder / first.result["artifacts"] / "event_log.jsonl").read_text()
    left = int(events.partition("left ")[2].partition('"')[0])
    assert 6 * 3600 - 60 < left <= 6 * 3600, "the budget of a person's run"
    assert elsewhere.asked == 2

    budget_ms, left_ms = 6 * 3600 * 1000, 8_000
    change(
        project,
        f"UPDATE retry_states SET granted_at_ms = (strftime('%s','now') * 1000) - {budget_ms} + {left_ms}",
    )
    change(project, "DELETE FROM breakers")
    elsewhere.answers = [(503, {"Retry-After": "20"})]
    second = project.run()
    assert (second.code, elsewhere.asked) == (1, 3), "no second try: twenty seconds are not left"
    assert project.rows("SELECT try_number, outcome FROM retries WHERE attempt = 2") == [(1, "gave-up")]
    assert project.rows("SELECT fate FROM retry_states") == [("spent",)]
    assert project.rows("SELECT reason FROM held") in (
        [("retry-after-exceeds-budget",)],
        [("budget-spent",)],
    )


@pytest.mark.req("RET-6")
def test_a_call_that_may_not_be_repeated_ends_the_retries(
    calling: Callable[..., Inside], elsewhere: Elsewhere
) -> None:
    """Once it was made, nothing runs the pipeline again by itself: not even after a failure elsewhere."""
    elsewhere.answers = [(200, {})]
    project = calling(options=", idempotent=False", more='raise TimeoutError("later")')
    ended = project.run()
    assert ended.code == 1, ended
    assert project.rows("SELECT fate, reason FROM retry_states") == [("spent", "acted")]
    assert project.rows("SELECT kind, reason FROM held") == [("dead-letter", "acted")]
    assert "kfm.call(…, idempotent=True)" in ended.result["advice"]
    assert project.run().code == 3, "a person has to look"
    assert project.run("--rationale", "it did not arrive").code == 1
    assert project.rows("SELECT attempts FROM runs") == [(2,)]


@pytest.mark.req("RET-6")
def test_a_call_that_says_nothing_is_tried_once_and_the_run_again(
    calling: Callable[..., Inside], elsewhere: Elsewhere
) -> None:
    """It is not declared to be repeatable within seconds; for the run its source's declaration counts."""
    elsewhere.answers = [(503, {})]
    project = calling(options="")
    ended = project.run()
    assert (ended.code, elsewhere.asked) == (1, 1), ended
    assert project.rows("SELECT try_number, outcome FROM retries") == [(1, "gave-up")]
    assert project.rows("SELECT fate, error_class FROM retry_states") == [("retry", "HTTP_503")]
    assert "a call was not tried again" in project.kfm("explain", ended.result["run_id"]).out


def test_no_observer_is_left_after_the_run(calling: Callable[..., Inside], elsewhere: Elsewhere) -> None:
    """What was put in place for a run is gone with it."""
    from kfm.calls.runtime import HERE, deadline

    elsewhere.answers = [(200, {})]
    assert calling().run().code == 0
    assert (HERE.observer, HERE.watches, deadline()) == (None, [], None)
