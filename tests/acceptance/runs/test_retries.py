"""Failed runs that are tried again, given up, and let go: as people meet it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import apsw
import pytest

from tests.acceptance.runs.conftest import Inside
from tests.crash.project import finish

SLOW = 'def publish(context):\n    raise TimeoutError("no answer")\n'
WRONG = 'def publish(context):\n    raise ValueError("riddles")\n'
FINE = """\
def publish(context):
    for one in context.inputs:
        context.publisher.write_file(one.path, one.fetched)
"""
DUE = """\
UPDATE retry_states SET not_before_ms = 1;
UPDATE requests SET not_before_ms = 1 WHERE state = 'open';
"""
REASONS = ("--rationale", "the flood is now", "--ticket", "OPS-7")


@pytest.fixture
def failing(project: Inside) -> Inside:
    """A project whose pipeline fails with an error that may pass."""
    project.write("pipeline.py", SLOW)
    project.configure(extra='pipeline: "pipeline.py:publish", output_version: "1"')
    ended = project.run()
    assert ended.code == 1, ended
    return project


def change(project: Inside, sql: str) -> None:
    connection = apsw.Connection(str(project.state / "kfm.db"))
    connection.set_busy_timeout(5000)
    connection.execute(sql)
    connection.close()


def make_due(project: Inside) -> None:
    """Let the time of every promised attempt have come."""
    change(project, DUE)


def run_id(project: Inside) -> str:
    ((only,),) = project.rows("SELECT run_id FROM runs")
    return str(only)


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Who runs the commands."""
    return lambda name: monkeypatch.setattr("kfm.config.loader.actor", lambda: name)


@pytest.mark.req("TRG-1", "CLI-1")
def test_the_failure_says_when_it_is_tried_again(failing: Inside, valid: Callable[[str, Any], None]) -> None:
    """The advice names the time; before that time there is nothing to do."""
    ((not_before_ms, fate),) = failing.rows("SELECT not_before_ms, fate FROM retry_states")
    assert fate == "retry"
    early = failing.kfm("retry", "--due", "--json")
    assert early.code == 0, early
    valid("cli-retry", early.document)
    (waiting,) = early.document["waiting"]
    assert waiting["run_id"] == run_id(failing)
    assert failing.rows("SELECT attempts FROM runs") == [(1,)]
    advice = failing.run().result["advice"]
    assert advice.startswith("The next automatic attempt is not made before ")
    assert "4 attempts are free until" in advice
    listed = failing.kfm("retry", "--list")
    assert run_id(failing)[:13] in listed.out
    assert not_before_ms > 0


@pytest.mark.req("TRG-1", "RET-11")
def test_a_source_may_have_a_budget_of_its_own(project: Inside) -> None:
    """Two attempts where the matrix has six: told, kept, explained, and held to."""
    project.write("pipeline.py", SLOW)
    own = "retry: {budget_seconds: 600, manual: {attempts: 2, base_seconds: 1}}"
    project.configure(extra=f'pipeline: "pipeline.py:publish", output_version: "1", {own}')
    assert "1 attempt is free until" in project.run().result["advice"]
    assert "1 of 2 attempts are used and 1 left" in project.kfm("explain", run_id(project)).out
    assert "Its budget of 10 min" in project.kfm("explain", run_id(project)).out
    make_due(project)
    project.kfm("retry", "--due")
    assert project.rows("SELECT fate, reason FROM retry_states") == [("spent", "attempts-spent")]
    assert "used up its budget" in project.run().result["reason"]
    assert project.kfm("compliance").code == 0
    change(project, "UPDATE runs SET attempts = 3")
    assert "2 are free" in project.kfm("compliance").out


@pytest.mark.req("TRG-1", "RET-3")
def test_what_is_due_is_tried(failing: Inside, valid: Callable[[str, Any], None]) -> None:
    """The same run, the next attempt, as a retry; once it succeeds nothing is ahead."""
    make_due(failing)
    again = failing.kfm("retry", "--due", "--json")
    assert again.code == 1, again
    valid("cli-retry", again.document)
    failing.write("pipeline.py", FINE)
    make_due(failing)
    ended = failing.kfm("retry", "--due", "--json")
    assert ended.code == 0, ended
    assert ended.result["word"] == "published"
    assert failing.rows("SELECT status, attempts FROM runs") == [("success", 3)]
    assert failing.rows("SELECT trigger_type, claimed_actor FROM invocations ORDER BY number") == [
        ("manual", None),
        ("retry", "kfm"),
        ("retry", "kfm"),
    ]
    assert failing.rows("SELECT * FROM retry_states") == []
    assert failing.kfm("compliance").code == 0


@pytest.mark.req("TRG-1")
def test_two_processes_make_one_attempt(failing: Inside) -> None:
    """Both ask for what is due at the same instant; it is made once, and neither ends in trouble."""
    failing.write("pipeline.py", FINE)
    make_due(failing)
    both = [failing.start("retry", "--due", "--json") for _ in range(2)]
    ended = [finish(one) for one in both]
    assert [one.code for one in ended] == [0, 0], ended
    assert failing.rows("SELECT status, attempts FROM runs") == [("success", 2)]


@pytest.mark.req("TRG-1")
def test_who_comes_too_late_makes_no_attempt(failing: Inside) -> None:
    """An attempt that was due when it was claimed, and was made by another since, is not made again, also
    where the next one is due by now."""
    from kfm.app import open_app
    from kfm.config.loader import load
    from kfm.service.runner import ServedRuns

    make_due(failing)
    with failing._surroundings(), open_app(load(None, {})) as app:
        claimed = app.writer.requests().claim("late", -1, lambda _worker: False)  # it has lapsed already
        assert claimed is not None
        assert failing.kfm("retry", "--due").code == 1
        assert ServedRuns(app).run(claimed, None).word == "waiting"
        make_due(failing)
        late = ServedRuns(app).run(claimed, None)
    assert (late.outcome, late.word) == ("busy", "busy")
    assert failing.rows("SELECT attempts FROM runs") == [(2,)]


@pytest.mark.req("TRG-1")
def test_a_killed_run_is_judged_by_the_next_process(failing: Inside) -> None:
    """Its attempt counts, its budget goes on, and its next attempt waits for its time."""
    change(failing, "UPDATE runs SET attempts = 2, error_code = 'WORKER_DIED'")
    ended = failing.kfm("retry", "--due", "--json")
    assert ended.code == 0, ended
    ((attempt, used, fate),) = failing.rows("SELECT attempt, grant_attempts, fate FROM retry_states")
    assert (attempt, used, fate) == (2, 2, "retry")
    assert failing.rows("SELECT attempts FROM runs") == [(2,)]


@pytest.mark.req("TRG-1", "TRG-7")
def test_a_budget_that_ran_out_while_no_process_looked(failing: Inside) -> None:
    """The attempt that was promised is made, also late; no further one: the run becomes a dead letter."""
    make_due(failing)
    change(failing, "UPDATE retry_states SET granted_at_ms = 1")
    ended = failing.kfm("retry", "--due", "--json")
    assert ended.code == 1, ended
    assert ended.result["run_id"] == run_id(failing)
    assert failing.rows("SELECT attempts FROM runs") == [(2,)]
    assert failing.rows("SELECT kind, reason FROM held") == [("dead-letter", "budget-spent")]
    assert len(failing.governance("dead-letter")) == 1
    assert failing.rows("SELECT state, outcome FROM requests") == [("done", "failed")]
    make_due(failing)
    assert failing.kfm("retry", "--due", "--json").document["results"] == []


@pytest.mark.req("UPD-10", "TRG-1")
def test_past_the_budget_a_retry_is_governed(failing: Inside) -> None:
    """`kfm retry RUN` is free until the budget is spent; then reasons grant a new one, on record."""
    run = run_id(failing)
    for _ in range(5):
        assert failing.kfm("retry", run[:8], "--json").code == 1
    assert failing.rows("SELECT kind, attempts FROM held") == [("dead-letter", 6)]
    spent = failing.kfm("retry", run, "--json")
    assert (spent.code, spent.result["error"]["code"]) == (3, "KFM305"), spent
    assert failing.kfm("retry", run, "--json", *REASONS).code == 1
    (entry,) = failing.governance("governed-retry")
    assert (entry["rationale"], entry["ticket"]) == REASONS[1::2]
    ((grants, used, fate),) = failing.rows("SELECT grants, grant_attempts, fate FROM retry_states")
    assert (grants, used, fate) == (2, 1, "retry")
    assert failing.rows("SELECT state FROM held") == [("resolved",)]
    assert failing.kfm("retry", run, "--json").code == 1
    assert failing.kfm("compliance").code == 0


def test_a_run_that_succeeded_is_not_retried(failing: Inside) -> None:
    """There is nothing to do, and that is fine."""
    failing.write("pipeline.py", FINE)
    assert failing.kfm("retry", run_id(failing)).code == 0
    done = failing.kfm("retry", run_id(failing))
    assert (done.code, "nothing to retry" in done.err) == (0, True)
    assert failing.rows("SELECT attempts FROM runs") == [(2,)]


@pytest.mark.parametrize(
    "arguments", [(), ("--due", "--list"), ("--watch",), ("feed", "--due"), ("00000000",)]
)
def test_what_cannot_be_meant(failing: Inside, arguments: tuple[str, ...]) -> None:
    """One thing at a time; a run must exist."""
    assert failing.kfm("retry", *arguments).code == 2


def test_new_code_is_other_work(project: Inside, valid: Callable[[str, Any], None]) -> None:
    """A run is not retried with code that it was not begun with; the way out is named. Its promised attempt
    is given up, on record."""
    project.write("pipeline.py", SLOW)
    project.configure(extra='pipeline: "pipeline.py:publish"')
    project.run()
    project.write("pipeline.py", FINE)
    told = project.kfm("retry", run_id(project), "--json")
    assert (told.code, "kfm run --source notes --window" in told.document["remedy"]) == (2, True)
    make_due(project)
    ended = project.kfm("retry", "--due", "--json")
    assert ended.code == 0, ended
    valid("cli-retry", ended.document)
    assert [one["word"] for one in ended.document["passed"]] == ["given-up"]
    assert project.rows("SELECT attempts FROM runs") == [(1,)]
    assert project.rows("SELECT kind, reason FROM held") == [("dead-letter", "code-changed")]
    assert project.rows("SELECT state, outcome FROM requests") == [("done", "failed")]
    assert project.run().code == 0
    assert project.rows("SELECT state FROM held") == [("resolved",)]


def test_a_switch_keeps_retries_from_starting(failing: Inside, valid: Callable[[str, Any], None]) -> None:
    """What is due waits, without a line in the ledger for each look, and is charged for none. Lifting the
    switch wakes it."""
    failing.kfm("switch", "set", "paused", "--all", "--rationale", "storm")
    for _ in range(2):
        make_due(failing)
        ended = failing.kfm("retry", "--due", "--json")
        assert (ended.code, [one["word"] for one in ended.document["passed"]]) == (0, ["waiting"])
        valid("cli-retry", ended.document)
        assert failing.rows("SELECT state, blocked_by, tries FROM requests") == [("open", "switch", 1)]
    assert failing.rows("SELECT count(*) FROM invocations") == [(1,)]
    change(failing, f"UPDATE requests SET not_before_ms = {2**53}")
    failing.kfm("switch", "set", "running", "--all", "--rationale", "over")
    ((woken_ms,),) = failing.rows("SELECT not_before_ms - accepted_at_ms FROM requests")
    assert woken_ms < 60_000
    make_due(failing)
    assert len(failing.kfm("retry", "--due", "--json").document["results"]) == 1


@pytest.mark.req("RET-6")
def test_work_that_acts_on_the_outside_is_not_retried(project: Inside) -> None:
    """Declared not idempotent, it is given up at once and says why; a person may go on and answers for it."""
    project.write("pipeline.py", SLOW)
    project.configure(extra='pipeline: "pipeline.py:publish", output_version: "1", idempotent: false')
    ended = project.run()
    assert "idempotent: false" in ended.result["advice"]
    assert project.rows("SELECT kind, reason FROM held") == [("dead-letter", "not-idempotent")]
    make_due(project)
    assert project.kfm("retry", "--due", "--json").document["results"] == []
    project.write("pipeline.py", FINE)
    unanswered = project.run()
    assert (unanswered.code, unanswered.result["error"]["code"]) == (3, "KFM314"), unanswered
    assert project.rows("SELECT attempts FROM runs") == [(1,)]
    assert project.run("--rationale", "nothing was sent").code == 0


# --- Retry-After -------------------------------------------------------------------------


@pytest.fixture
def throttling() -> Iterator[tuple[str, dict[str, str]]]:
    """An upstream that wants us to come back later."""
    headers: dict[str, str] = {}

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None: ...

        def do_GET(self) -> None:
            self.send_response_only(503)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_HEAD = do_GET  # noqa: N815 - http.server's names

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/levels.csv", headers
    server.shutdown()
    server.server_close()


@pytest.mark.req("RET-5")
@pytest.mark.parametrize(("seconds", "fate"), [(3600, "retry"), (86_400, "spent")])
def test_a_long_wait_is_the_runs_own(
    project: Inside, throttling: tuple[str, dict[str, str]], seconds: int, fate: str
) -> None:
    """More than 30 s is not waited in the call; more than the budget ends it now, and says so."""
    url, headers = throttling
    headers["Retry-After"] = str(seconds)
    project.configure(source=f'{{id: notes, dataset: levels, kind: http, url: "{url}"}}')
    ended = project.run()
    assert ended.code == 4, ended
    ((wait_ms, found, kind),) = project.rows(
        "SELECT not_before_ms - updated_at_ms, fate, error_class FROM retry_states"
    )
    assert (found, kind) == (fate, "HTTP_503")
    assert abs(wait_ms - seconds * 1000) < 30_000
    if fate == "spent":
        assert "more time than its budget" in ended.result["advice"]
        assert project.rows("SELECT reason FROM held") == [("retry-after-exceeds-budget",)]


# --- quarantine and release --------------------------------------------------------------


@pytest.fixture
def quarantined(project: Inside, account: Callable[[str], None]) -> Inside:
    account("ada")
    project.write("pipeline.py", WRONG)
    project.configure(extra='pipeline: "pipeline.py:publish", output_version: "1"')
    assert project.run().code == 1
    return project


@pytest.mark.req("RET-2", "TRG-7", "RET-9")
def test_quarantine_has_what_a_replay_needs(quarantined: Inside, valid: Callable[[str, Any], None]) -> None:
    """Held in the end's own transaction, with an entry in the audit log; listed and shown."""
    listed = quarantined.kfm("quarantine", "list", "--json")
    valid("cli-quarantine-list", listed.document)
    (held,) = listed.document["held"]
    ((fingerprint, key, version),) = quarantined.rows(
        "SELECT (SELECT fingerprint FROM inputs), idempotency_key, pipeline_version FROM runs"
    )
    assert held["payload_hash"] == fingerprint
    assert (held["idempotency_key"], held["code_sha"]) == (key, version)
    assert held["source_ids"] == ["file:incoming/a.csv", "file:incoming/b.csv"]
    assert (held["kind"], held["attempts"], held["error_classes"]) == ("quarantine", 1, ["unknown"])
    (entry,) = quarantined.governance("quarantine")
    facts = json.loads(entry["details"])
    assert (facts["attempts"], facts["error_classes"], facts["care_label"]) == (1, ["unknown"], "Public")
    assert facts["dataset_id"] == "levels"
    shown = quarantined.kfm("quarantine", "show", run_id(quarantined)[:8], "--json")
    valid("cli-quarantine-show", shown.document)
    assert shown.document["held"] == held
    assert held["next_step"]["code"] == "correct"
    assert held["next_step"]["command"] in quarantined.kfm("quarantine", "show", held["held_id"]).out
    assert quarantined.kfm("retry", "--due", "--json").document["results"] == []


@pytest.mark.req("GOV-3")
def test_a_release_takes_two(
    quarantined: Inside, valid: Callable[[str, Any], None], account: Callable[[str], None]
) -> None:
    """Asked for by one, approved by another; then it is due with a new grant. Each step is on record."""
    run = run_id(quarantined)
    assert quarantined.kfm("quarantine", "release", run[:8]).code == 3
    asked = quarantined.kfm("quarantine", "release", run[:8], "--json", "--rationale", "the sensor is new")
    assert asked.code == 3, asked
    valid("cli-quarantine-release", asked.document)
    request = asked.document["request"]["request_id"]
    valid("cli-approve-list", quarantined.kfm("approve", "--json").document)
    own = quarantined.kfm("approve", request, "--json", "--rationale", "me, too", "--actor", "bob")
    assert (own.code, own.document["code"]) == (3, "KFM311"), own
    account("bob")
    assert quarantined.kfm("approve", request).code == 3
    approved = quarantined.kfm("approve", request, "--json", "--rationale", "seen it")
    assert approved.code == 0, approved
    valid("cli-approve", approved.document)
    assert (approved.document["held"]["state"], approved.document["held"]["released_by"]) == (
        "released",
        "bob",
    )
    again = quarantined.kfm("approve", request, "--json", "--rationale", "twice")
    assert (again.code, again.document["code"]) == (3, "KFM311"), again
    for kind, actor in (("release-requested", "ada"), ("approval", "bob"), ("release", "ada")):
        assert [entry["actor"] for entry in quarantined.governance(kind)] == [actor], kind
    quarantined.write("pipeline.py", FINE)
    ended = quarantined.kfm("retry", "--due", "--json")
    assert (ended.code, ended.result["word"]) == (0, "published"), ended
    assert quarantined.kfm("compliance").code == 0
    assert quarantined.kfm("audit", "verify").code == 0


@pytest.mark.req("GOV-3")
def test_an_approval_does_not_outlive_what_it_was_for(
    quarantined: Inside, account: Callable[[str], None]
) -> None:
    """Another failure since: what was asked for is not what is held now."""
    asked = quarantined.kfm("quarantine", "release", run_id(quarantined), "--json", "--rationale", "try")
    request = asked.document["request"]["request_id"]
    assert quarantined.run().code == 1
    account("bob")
    late = quarantined.kfm("approve", request, "--json", "--rationale", "fine")
    assert (late.code, late.document["code"]) == (3, "KFM311"), late
    assert quarantined.rows("SELECT state FROM held") == [("held",)]


@pytest.mark.req("UPD-5")
def test_a_person_who_put_it_right_just_runs_it(quarantined: Inside) -> None:
    """Within the budget no approval is needed; the entry is resolved by the run."""
    quarantined.write("pipeline.py", FINE)
    assert quarantined.run().code == 0
    assert quarantined.rows("SELECT state, released_by FROM held") == [("resolved", run_id(quarantined))]
    assert quarantined.kfm("quarantine", "list").out == "nothing is quarantined\n"
    assert quarantined.kfm("compliance").code == 0


def test_a_cancelled_run_is_not_held(project: Inside) -> None:
    """The person who stopped it knows; and nothing starts it again but a person."""
    project.write("pipeline.py", "def publish(context):\n    raise KeyboardInterrupt\n")
    project.configure(extra='pipeline: "pipeline.py:publish"')
    assert project.run().code == 130
    assert project.rows("SELECT * FROM held") == []
    assert project.rows("SELECT fate, reason FROM retry_states") == [("spent", "stopped")]


# --- compliance --------------------------------------------------------------------------


@pytest.mark.req("RET-11")
@pytest.mark.parametrize(
    ("sql", "rule"),
    [
        ("DELETE FROM attempts WHERE attempt = 1 AND node = ''", "telemetry-missing"),
        ("UPDATE attempts SET error_class = NULL WHERE attempt = 1", "telemetry-missing"),
        (
            "UPDATE attempts SET retryable = 0, error_class = 'schema' WHERE attempt = 1",
            "forbidden-class-retried",
        ),
        ("UPDATE runs SET attempts = 7", "over-maximum"),
    ],
)
def test_a_breach_is_found(failing: Inside, valid: Callable[[str, Any], None], sql: str, rule: str) -> None:
    """Each rule that is broken in the ledger is a finding that names the run, and fails the command."""
    make_due(failing)
    failing.kfm("retry", "--due")
    sound = failing.kfm("compliance", "--json")
    assert (sound.code, sound.document["findings"]) == (0, [])
    (record,) = sound.document["sequences"]
    assert (record["attempts"], record["errors"], record["final_status"]) == (2, ["timeout"] * 2, "failure")
    change(failing, sql)
    found = failing.kfm("compliance", "--json")
    assert found.code == 1
    valid("cli-compliance", found.document)
    assert rule in {finding["rule"] for finding in found.document["findings"]}
    assert {finding["run_id"] for finding in found.document["findings"]} == {run_id(failing)}
    assert run_id(failing)[:13] in failing.kfm("compliance").out
    assert failing.kfm("compliance", "--since", "2999-01-01T00:00:00Z").code == 0
