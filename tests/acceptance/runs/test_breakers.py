"""A provider in trouble, as people and their schedules meet it: `kfm run` against a server that fails."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from msgspec.structs import replace

from kfm.db.ledger import Ledger
from kfm.model.breaker import COOLDOWN_MS, Breaker
from kfm.system import SystemClock
from tests.acceptance.runs.conftest import Inside
from tests.conformance.db.ledgers import sqlite_store

pytestmark = pytest.mark.req("RET-7")

PIPELINE = """\
import kfm

@kfm.call(provider="elsewhere", idempotent=True, attempts=1)
def look() -> None:
    raise ConnectionResetError("gone")

def run(context):
    look()
"""


class Provider:
    """Answers what it is told to, and counts who asked."""

    def __init__(self) -> None:
        self.status = 503
        self.head_status: int | None = None  # where it differs
        self.asked: list[str] = []
        self.port = 0


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    provider: Provider


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def log_message(self, format: str, *args: Any) -> None: ...

    def _answer(self) -> None:
        provider = self.server.provider
        provider.asked.append(self.command)
        body = b"gauge,level\na,1\n"
        heading = self.command == "HEAD" and provider.head_status is not None
        self.send_response_only((provider.head_status or 0) if heading else provider.status)
        self.send_header("ETag", '"one"')
        self.send_header("Content-Type", "text/csv")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    do_GET = do_HEAD = _answer  # noqa: N815 - http.server's names


@pytest.fixture
def provider() -> Iterator[Provider]:
    with _Server(("127.0.0.1", 0), _Handler) as server:
        server.provider = Provider()
        server.provider.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield server.provider
        server.shutdown()
        thread.join()


@pytest.fixture
def down(project: Inside, provider: Provider) -> Inside:
    """A project whose only source's provider fails."""
    url = f"http://127.0.0.1:{provider.port}/levels.csv"
    project.configure(source=f'{{id: notes, dataset: levels, kind: http, url: "{url}", provider: gauges}}')
    return project


def ledger(project: Inside) -> Ledger:
    return sqlite_store(str(project.folder / ".kfm" / "kfm.db"), SystemClock())


def stored(project: Inside) -> Breaker:
    store = ledger(project)
    try:
        return store.breaker("gauges")
    finally:
        store.close()


def cool_down(project: Inside, span_ms: int = COOLDOWN_MS) -> None:
    """As if so much time had passed."""

    def older(breaker: Breaker, _now_ms: int) -> Breaker:
        return replace(
            breaker,
            opened_at_ms=(breaker.opened_at_ms or 0) - span_ms,
            tripped_at_ms=(breaker.tripped_at_ms or 0) - span_ms,
        )

    store = ledger(project)
    store.change_breaker("gauges", older)
    store.close()


@pytest.mark.req("WAL-14")
def test_an_open_circuit_spends_no_attempt_and_closes_by_itself(
    down: Inside, provider: Provider, valid: Callable[[str, Any], None]
) -> None:
    """Three failures end the run and open the circuit; invocations are refused then; one probe closes it."""
    failed = down.run()
    assert (failed.code, failed.result["error"]["code"]) == (4, "KFM404"), failed
    assert len(provider.asked) == 3, "the third failure ends the call tier's tries, too"
    assert stored(down).state == "open"

    for _ in range(2):
        refused = down.run()
        assert (refused.code, refused.result["error"]["code"]) == (4, "KFM408"), refused
    assert len(provider.asked) == 3, "nothing went out"
    assert down.rows("SELECT status, attempts FROM runs") == [("failed", 1)]
    assert down.rows("SELECT outcome FROM invocations ORDER BY number") == [("failed",)] * 3
    assert down.rows("SELECT COUNT(*) FROM attempts WHERE node = ''") == [(1,)]

    status = down.kfm("status", "--json").document
    valid("cli-status", status)
    assert status["headline"]["state"] == "blocked"
    assert status["headline"]["command"] == "kfm breaker reset gauges --rationale TEXT"
    assert [each["provider"] for each in status["breakers"]] == ["gauges"]
    assert "circuit of gauges is open: 3 failures in a row" in down.kfm("status").out
    listed = down.kfm("breaker", "list", "--json").document
    valid("cli-breaker-list", listed)
    assert [each["state"] for each in listed["breakers"]] == ["open"]
    assert 'kfm_breaker_state{provider="gauges"} 2' in down.kfm("metrics").out

    provider.status = 200
    cool_down(down)
    assert down.run().result["word"] == "published"
    assert (stored(down).state, stored(down).fence) == ("closed", 1)
    assert down.rows("SELECT status, attempts FROM runs") == [("success", 2)]
    assert down.kfm("status", "--json").document["headline"]["state"] == "clear"


def test_a_probe_that_fails_is_one_call(down: Inside, provider: Provider) -> None:
    """After the cool-down one request goes out, and the circuit is open again."""
    down.run()
    cool_down(down)
    assert down.run().code == 4
    assert len(provider.asked) == 4
    assert (stored(down).state, stored(down).fence) == ("open", 1)
    assert down.run().result["error"]["code"] == "KFM408"
    assert len(provider.asked) == 4


@pytest.mark.req("RET-8")
def test_the_evidence_says_that_a_circuit_opened(down: Inside, provider: Provider) -> None:
    """A fetch whose last failure opened the circuit is told as such."""
    provider.head_status = 200
    assert down.run().code == 4
    assert provider.asked == ["HEAD", "GET", "GET", "GET"]
    rows = down.rows("SELECT outcome, circuit_open FROM retries ORDER BY number")
    assert rows == [("retried", 0), ("retried", 0), ("gave-up", 1)]


def test_nothing_new_begins_while_a_circuit_is_open(down: Inside, provider: Provider) -> None:
    """Other work of the same provider gets no run and no key, and a dry-run calls no provider."""
    down.run()
    other = down.kfm("run", "--source", "notes", "--window", "2025-03-01/2025-03-02", "--json")
    assert (other.code, other.result["error"]["code"]) == (4, "KFM408"), other
    assert other.result["run_id"] is None
    assert len(down.rows("SELECT run_id FROM runs")) == 1
    dry = down.kfm("diff", "--json")
    assert (dry.code, "KFM408" in dry.out) == (4, True), dry
    assert len(provider.asked) == 3


def test_a_refusal_of_ours_is_no_trouble_of_the_provider(down: Inside, provider: Provider) -> None:
    """404 and 403 are answers: they count for nothing, however often they come."""
    provider.status = 404
    for _ in range(4):
        assert down.run().result["error"]["code"] == "KFM404"
    assert stored(down) == Breaker(provider="gauges")


@pytest.mark.req("GOV-2")
def test_a_reset_needs_a_reason_and_is_on_record(
    down: Inside, provider: Provider, valid: Callable[[str, Any], None]
) -> None:
    """A person who closes a circuit says why; from then on the provider is called."""
    down.run()
    assert down.kfm("breaker", "reset", "gauges").code == 3
    unknown = down.kfm("breaker", "reset", "gauge", "--rationale", "x")
    assert unknown.code == 2
    assert "gauges" in unknown.err
    done = down.kfm("breaker", "reset", "gauges", "--rationale", "they called", "--ticket", "T-1", "--json")
    assert done.code == 0, done
    valid("cli-breaker-reset", done.document)
    assert (done.document["breaker"]["state"], done.document["was"]) == ("closed", "open")
    entries = down.rows("SELECT subject, rationale, ticket FROM governance WHERE kind = 'breaker-reset'")
    assert entries == [("provider:gauges", "they called", "T-1")]
    provider.status = 200
    assert down.run().result["word"] == "published"
    assert down.kfm("audit", "verify").code == 0


def test_a_pipeline_s_own_calls_pass_shared_circuits(project: Inside) -> None:
    """`kfm.call` inside a pipeline counts in the ledger, not in the process that ends with the run."""
    project.write("look.py", PIPELINE)
    project.configure(extra="pipeline: look.py:run")
    for _ in range(3):
        assert project.run().code == 1
    store = ledger(project)
    assert store.breaker("elsewhere").state == "open"
    store.close()
    assert "elsewhere is tried again at" in project.run().result["error"]["message"]
    import kfm
    from kfm.calls.breakers import LocalBreakers
    from kfm.calls.runtime import HERE

    assert kfm.call is not None
    assert isinstance(HERE.breakers, LocalBreakers), "what was replaced for the run is back"


@pytest.mark.req("WAL-14")
def test_automatic_retries_wait_for_the_circuit_without_a_trace(down: Inside, provider: Provider) -> None:
    """What is due while the circuit is open is put off to the next trial; no invocation is recorded."""
    import apsw

    down.run()
    database = apsw.Connection(str(down.folder / ".kfm" / "kfm.db"))
    database.execute("UPDATE retry_states SET not_before_ms = 0; UPDATE requests SET not_before_ms = 0")
    database.close()
    calls = down.rows("SELECT COUNT(*) FROM invocations")
    ended = down.kfm("retry", "--due")
    assert ended.code in (0, 3, 4, 5), ended
    assert len(provider.asked) == 3
    assert down.rows("SELECT COUNT(*) FROM invocations") == calls
    next_try_ms = (stored(down).opened_at_ms or 0) + COOLDOWN_MS
    assert down.rows("SELECT fate FROM retry_states") == [("retry",)]
    found = down.rows("SELECT state, not_before_ms, tries, blocked_by FROM requests")
    ((state, not_before_ms, tries, blocked_by),) = found
    assert (state, tries, blocked_by) == ("open", 1, "circuit:gauges")
    assert abs(not_before_ms - next_try_ms) < 1000
