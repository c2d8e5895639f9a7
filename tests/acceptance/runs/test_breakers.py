"""A provider in trouble, as people and their schedules meet it: `kfm run` against a server that fails."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import apsw
import pytest
from msgspec.structs import replace

from kfm.db.ledger import Ledger
from kfm.model.breaker import COOLDOWN_MS, Breaker, on_failure
from kfm.model.times import rfc3339
from kfm.system import SystemClock
from tests.acceptance.runs.conftest import Ended, Inside
from tests.conformance.db.ledgers import sqlite_store

pytestmark = pytest.mark.req("RET-7")

FORCED = ("--actor", "ann", "--rationale", "again", "--ticket", "OPS-1")

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
        self.retry_after: str | None = None
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
        if provider.retry_after is not None:
            self.send_header("Retry-After", provider.retry_after)
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


def test_a_provider_may_have_limits_of_its_own(down: Inside, provider: Provider) -> None:
    """Two failures open it, for twenty seconds: every place that tells of it says so."""
    text = (down.folder / "kfm.yml").read_text()
    down.write("kfm.yml", f"{text}\nproviders:\n  gauges: {{failures: 2, cool_down_seconds: 20}}\n")
    assert down.run().code == 4
    assert len(provider.asked) == 2
    assert stored(down).state == "open"
    next_try = rfc3339((stored(down).opened_at_ms or 0) + 20_000)
    (listed,) = down.kfm("breaker", "list", "--json").document["breakers"]
    assert listed["next_try"] == next_try
    assert down.kfm("status", "--json").document["breakers"][0]["next_try"] == next_try
    refused = down.run().result["error"]
    assert refused["code"] == "KFM408"
    provider.status = 200
    cool_down(down, 20_000)
    assert down.run().code == 0
    shown = down.kfm("config", "show", "--origin").out
    assert re.search(r"providers\.gauges\.cool_down_seconds +20(\.0)? +kfm\.yml:\d+", shown), shown


NODES = """\
import kfm

p = kfm.Pipeline("levels")

@p.node("one", inputs=["{url}"])
def one():
    return 1

@p.node("two", inputs=["{url}"])
def two():
    return 2
"""


@pytest.mark.req("RET-3")
@pytest.mark.parametrize("governed", [False, True])
def test_inputs_of_nodes_pass_the_circuit(
    project: Inside, provider: Provider, monkeypatch: pytest.MonkeyPatch, governed: bool
) -> None:
    """An address is asked once a pipeline run; its trouble opens a circuit, and the next run asks nothing."""
    monkeypatch.setattr(SystemClock, "sleep_ms", lambda _self, _delay_ms: None)
    project.write("nodes.py", NODES.replace("{url}", f"http://127.0.0.1:{provider.port}/levels.csv"))
    project.configure(extra='pipeline: "nodes.py:p", output_version: "1"')

    def run() -> Ended:
        return project.run("--force", *FORCED) if governed else project.kfm("pipeline", "run", "nodes.py")

    for _ in range(2):
        assert run().code != 0
        assert provider.asked == ["HEAD"] * 3
    listed = project.kfm("breaker", "list").out
    assert re.search(rf"127\.0\.0\.1:{provider.port} +open +3 ", listed), listed
    reset = project.kfm("breaker", "reset", f"127.0.0.1:{provider.port}", "--rationale", "it is well")
    assert reset.code == 0, reset
    provider.status = 200
    ended = run()
    assert ended.code == 0, ended
    assert provider.asked == ["HEAD"] * 4


@pytest.mark.req("RET-5")
def test_upstreams_own_time_spares_the_circuit(down: Inside, provider: Provider) -> None:
    """A provider that answers 429 with Retry-After is asked again then; no circuit opens."""
    provider.status, provider.retry_after = 429, "100"
    for _ in range(4):
        ended = down.run()
        assert (ended.code, ended.result["error"]["code"]) == (4, "KFM404"), ended
    assert len(provider.asked) == 4
    assert "no circuit is open" in down.kfm("breaker", "list").out


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


def test_a_reset_wakes_what_waited(down: Inside, provider: Provider) -> None:
    """A request that was put off until the circuit's next try is due within seconds of a reset."""
    hour = (datetime.now(UTC).hour + 12) % 24  # nothing fires while the test looks on
    down.write(
        "cron.yml", f'version: 1\nschedules:\n  - {{id: days, source: notes, cron: "0 {hour} * * *"}}\n'
    )
    down.kfm("schedule", "run-due")
    store = ledger(down)
    for _ in range(3):
        store.change_breaker("gauges", on_failure)
    store.close()
    database = apsw.Connection(str(down.state / "kfm.db"))
    database.execute("UPDATE schedules SET cursor_ms = cursor_ms - 86400000; DELETE FROM instants")
    database.close()
    down.kfm("schedule", "run-due")
    ((put_off_ms,),) = down.rows("SELECT not_before_ms FROM requests WHERE state = 'open'")
    assert put_off_ms > SystemClock().now_ms() + COOLDOWN_MS - 60_000
    assert provider.asked == []
    assert down.kfm("breaker", "reset", "gauges", "--rationale", "it is well").code == 0
    ((due_ms,),) = down.rows("SELECT not_before_ms FROM requests WHERE state = 'open'")
    assert due_ms <= SystemClock().now_ms() + 10_000


def test_a_pipeline_s_own_calls_pass_shared_circuits(project: Inside) -> None:
    """`kfm.call` inside a pipeline counts in the ledger, not in the process that ends with the run."""
    import kfm
    from kfm.calls.runtime import HERE

    assert kfm.call is not None  # which brings the clock and the process's own circuits
    before = HERE.breakers
    project.write("look.py", PIPELINE)
    project.configure(extra="pipeline: look.py:run")
    for _ in range(3):
        assert project.run().code == 1
    store = ledger(project)
    assert store.breaker("elsewhere").state == "open"
    store.close()
    assert "elsewhere is tried again at" in project.run().result["error"]["message"]
    assert HERE.breakers is before, "what was replaced for the run is back"


@pytest.mark.req("WAL-14")
def test_automatic_retries_wait_for_the_circuit_without_a_trace(down: Inside, provider: Provider) -> None:
    """What is due while the circuit is open is put off to the next trial; no invocation is recorded."""
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
