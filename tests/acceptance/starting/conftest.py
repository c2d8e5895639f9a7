"""Projects in which every trigger can be pulled, killed and pulled again, by commands and files."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import apsw
import pytest

from kfm.model.webhook_signatures import sign_kfm
from tests.acceptance.runs.conftest import Inside
from tests.acceptance.runs.conftest import valid as valid  # a fixture
from tests.acceptance.service.served import SECRET, body
from tests.crash.project import RIGHTS, WINDOW, Ended, finish, table

KILLED = -9
SECONDS_MAX = 20.0
HOUR_MS = 3_600_000
BY_A_PERSON = ("--now", "--rationale", "looked: the mail was not sent")

CONFIG = """\
version: 1
environment: test
lease: {{seconds: 1}}
serve: {{runners: 1}}
datasets:
  - {{id: levels, title: Levels, domain: hydrology, rights: {rights}}}
  - {{id: gauges, title: Gauges, domain: hydrology, rights: {rights}}}
sources:
  - {{id: notes, dataset: levels, {source}, follows: [nexrad-l2]{more}}}
  - {{id: other, dataset: gauges, {source}}}
publish:
  - {{kind: local, path: published}}
ingest:
  coalesce_seconds: 0
  queues:
    - {{name: spool, kind: folder, path: spool}}
"""
SOURCE = (
    '{kind}, window: P1D, pipeline: "pipeline.py:publish", output_version: "1", '
    "webhook: {{secrets: [env:HOOK_SECRET]{webhook}}}"
)
FILES = 'kind: files, folder: incoming, pattern: "*.csv"'

# What the pipeline does is in a file, so that its code, and with it the work, stays the same.
PIPELINE = '''\
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import apsw

import kfm

SECONDS = 6  # longer than the interval of renewals


def intents():
    """What the ledger has of intents to act, seen from outside of the run."""
    connection = apsw.Connection(".kfm/kfm.db", flags=apsw.SQLITE_OPEN_READWRITE)
    connection.set_busy_timeout(5000)
    try:
        return connection.execute("SELECT count(*) FROM acts").fetchall()[0][0]
    except apsw.SQLError as error:
        return str(error)
    finally:
        connection.close()


def act():
    with open("effects.log", "a") as file:
        file.write(f"{intents()}\\n")


def outlast_the_claim():
    """The claim has lapsed, unless it is renewed; then another runner looks for work."""
    Path("mode").write_text("")
    connection = apsw.Connection(".kfm/kfm.db")
    connection.set_busy_timeout(5000)
    connection.execute("UPDATE requests SET claim_until_ms = 1 WHERE state = 'running'")
    ends = time.monotonic() + SECONDS
    while time.monotonic() < ends:
        ((lapsed,),) = connection.execute("SELECT count(*) FROM requests WHERE claim_until_ms = 1").fetchall()
        if not lapsed:
            break
        time.sleep(0.01)
    connection.close()
    subprocess.run([sys.executable, "-m", "kfm", "schedule", "run-due"], stdin=subprocess.DEVNULL)


def publish(context):
    mode = Path("mode").read_text().split()
    with open("executions.log", "a") as file:
        file.write("preview\\n" if context.dry_run else "run\\n")
    if "act" in mode:
        act()
    if "mail" in mode:
        kfm.call(act, provider="mail", idempotent=False)
    if "long" in mode:
        outlast_the_claim()
    if "die" in mode:
        os.kill(os.getpid(), signal.SIGKILL)
    for one in context.inputs:
        if b"slow" in one.read() or "slow" in mode:
            raise TimeoutError("no answer")
        if b"riddles" in one.read() or "wrong" in mode:
            json.loads("riddles")
        context.publisher.write_file(one.path, one.fetched)
'''


class Starting(Inside):
    """One project; its triggers are pulled from outside."""

    # --- what is configured ---

    def set_up(self, more: str = "", *, webhook: str = "", kind: str = FILES) -> Starting:
        """Write kfm.yml; `more` are fields of the source `notes`, `webhook` of the webhooks."""
        source = SOURCE.format(kind=kind, webhook=f", {webhook}" if webhook else "")
        text = CONFIG.format(rights=RIGHTS, source=source, more=f", {more}" if more else "")
        self.write("kfm.yml", text)
        return self

    def mode(self, *words: str) -> None:
        """What the pipeline does from now on: act, mail, long, die, slow, wrong; nothing: it publishes."""
        self.write("mode", " ".join(words))

    def upstream_changes(self) -> None:
        self.write("incoming/new.csv", table("new", 2))

    # --- triggers ---

    def hook(self, uuid: str, source: str = "notes", window: str = WINDOW) -> str:
        """A signed webhook, accepted by the web application; the id of its request."""
        from starlette.testclient import TestClient

        from kfm.config.loader import load
        from kfm.web.request_context import WebContext
        from kfm.web.web_app import WebApplication

        sent = body(uuid, source_id=source, metadata={"window": window})
        headers = {"content-type": "application/json", "x-kfm-signature": sign_kfm(SECRET.encode(), sent)}
        with self._surroundings():
            web = WebApplication(WebContext(load(None, {}))).asgi(())
            with TestClient(web, base_url="http://127.0.0.1") as client:
                answer = client.post(f"/hooks/{source}", content=sent, headers=headers)
        assert answer.status_code == 202, answer.text
        return str(answer.json()["request_id"])

    def schedule(self, *names: str) -> None:
        """Schedules that fired an hour ago, and won't for a year; accounted for until now."""
        at = datetime.now(UTC) - timedelta(hours=1)
        cron = f"{at.minute} {at.hour} {at.day} {at.month} *"
        lines = [f'  - {{id: {name}, source: notes, cron: "{cron}"}}\n' for name in names]
        self.write("cron.yml", "version: 1\nschedules:\n" + "".join(lines))
        assert self.kfm("schedule", "run-due").code == 0

    def fire(self, name: str) -> None:
        """The scheduled time has come, and is not accounted for."""
        of = f"WHERE schedule_id = '{name}'"
        change(
            self,
            f"UPDATE schedules SET cursor_ms = cursor_ms - {2 * HOUR_MS} {of}",
            f"UPDATE instants SET last_ms = last_ms - {2 * HOUR_MS} {of} AND became = 'redefined'",
        )

    def announce(self, second: int) -> None:
        """A message in the queue: a new object of the window's day."""
        stamp = f"20260101_0000{second:02d}"
        found = {
            "key": f"2026/01/01/KTLX/KTLX{stamp}_V06",
            "size": 1,
            "eTag": f"{second:032x}",
            "sequencer": f"{second:016X}",
        }
        record = {
            "eventVersion": "2.1",
            "eventSource": "aws:s3",
            "awsRegion": "us-east-1",
            "eventTime": "2026-01-03T01:00:00.000Z",
            "eventName": "ObjectCreated:Put",
            "s3": {"bucket": {"name": "unidata-nexrad-level2"}, "object": found},
        }
        self.write(f"spool/{second}.json", json.dumps({"Records": [record]}))

    # --- what works off ---

    def work_off(self) -> Ended:
        """Every request that is due, by one runner that then ends."""
        return self.kfm("schedule", "run-due", "--json")

    def retry_due(self) -> Ended:
        return self.kfm("retry", "--due", "--json")

    def killed(self, *arguments: str) -> None:
        """A command in a process of its own, in which the pipeline kills it."""
        ended = finish(self.start(*arguments), SECONDS_MAX)
        assert ended.code == KILLED, ended

    def approve(self, request_id: str) -> None:
        ended = self.kfm("approve", request_id, "--rationale", "looked at it")
        assert ended.code == 0, ended

    # --- what is there ---

    def lines(self, name: str) -> list[str]:
        path = self.folder / name
        return path.read_text().splitlines() if path.exists() else []

    @property
    def effects(self) -> list[str]:
        """One line for each effect on the outside: how many intents the ledger had by then."""
        return self.lines("effects.log")

    @property
    def executions(self) -> list[str]:
        """One word for each time that the pipeline began: preview or run."""
        return self.lines("executions.log")

    @property
    def promoted(self) -> list[str]:
        """The versions that were ever a head, the oldest first."""
        return [row[0] for row in self.rows("SELECT version_id FROM promotions ORDER BY sequence")]

    def attempts(self) -> list[tuple[Any, ...]]:
        return self.rows("SELECT status, attempts FROM runs ORDER BY start_time_ms, revision")

    def request(self, request_id: str) -> Request:
        (row,) = self.rows(
            f"SELECT {', '.join(Request._fields)} FROM requests WHERE request_id = ?", request_id
        )
        return Request(*row)

    def requests(self, kind: str) -> list[Request]:
        """The requests of one kind, in the order in which they were accepted."""
        found = self.rows(
            f"SELECT {', '.join(Request._fields)} FROM requests WHERE kind = ? "
            "ORDER BY accepted_at_ms, instant_ms, schedule_id",
            kind,
        )
        return [Request(*row) for row in found]


class Request(NamedTuple):
    """A row of `requests`, as far as these tests look."""

    request_id: str
    kind: str
    state: str
    outcome: str | None
    reason: str | None
    run_id: str | None
    plan_digest: str | None
    not_before_ms: int
    window_start_ms: int

    @property
    def is_settled(self) -> bool:
        return self.state in ("done", "cancelled")

    @property
    def ended(self) -> tuple[str, str | None]:
        return self.state, self.outcome


def change(project: Inside, *statements: str) -> None:
    connection = apsw.Connection(str(project.state / "kfm.db"))
    connection.set_busy_timeout(5000)
    for sql in statements:
        connection.execute(sql)
    connection.close()


def make_due(project: Inside) -> None:
    """Whatever waits for a time has waited long enough."""
    waiting = {
        "retry_states": "UPDATE retry_states SET not_before_ms = 1 WHERE fate = 'retry'",
        "requests": "UPDATE requests SET not_before_ms = 1 WHERE state = 'open'",
        "bursts": "UPDATE bursts SET not_before_ms = 1 WHERE state = 'open'",
    }
    tables = {name for (name,) in project.rows("SELECT name FROM sqlite_master WHERE type = 'table'")}
    change(project, *(sql for table, sql in waiting.items() if table in tables))


# --- starters: the same questions for each -------------------------------------------------


class Starter:
    """One kind of machine that asks for the work of `notes`; the same work each time."""

    kind = "webhook"
    command: tuple[str, ...] = ("schedule", "run-due", "--json")

    def __init__(self, project: Starting) -> None:
        self.project = project

    def prepare(self) -> None: ...

    def ask(self, number: int) -> None:
        self.project.hook(f"message-{number}")

    def work_off(self) -> Ended:
        return self.project.kfm(*self.command)

    def killed(self) -> None:
        self.project.killed(*self.command)

    def request(self, number: int = 1) -> Request:
        found = self.project.requests(self.kind)
        assert len(found) >= number, f"{self.kind}: {len(found)} requests"
        return found[number - 1]

    @property
    def window(self) -> str:
        return WINDOW


class Cron(Starter):
    kind = "cron"

    def prepare(self) -> None:
        self.project.schedule(*(f"schedule-{number}" for number in range(1, 5)))

    def ask(self, number: int) -> None:
        self.project.fire(f"schedule-{number}")

    @property
    def window(self) -> str:
        day = datetime.fromtimestamp(self.request().window_start_ms / 1000, UTC)
        return f"{day:%Y-%m-%d}/P1D"


class Arrivals(Starter):
    kind = "upstream-event"
    command = ("worker", "--until-idle", "--json")

    def ask(self, number: int) -> None:
        self.project.announce(number)


STARTERS = {one.kind: one for one in (Starter, Cron, Arrivals)}


@pytest.fixture
def project(tmp_path: Path) -> Starting:
    """Two sources with webhooks, one of which also follows announced objects; a pipeline that obeys."""
    made = Starting(tmp_path / "project")
    made.env["HOOK_SECRET"] = SECRET
    made.set_up()
    made.write("pipeline.py", PIPELINE)
    made.write("incoming/a.csv", table("a", 3))
    (made.folder / "spool").mkdir()
    made.mode()
    return made


@pytest.fixture(params=sorted(STARTERS))
def starter(request: pytest.FixtureRequest, project: Starting) -> Starter:
    """Each machine in turn."""
    made = STARTERS[request.param](project)
    made.prepare()
    return made


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Claims are renewed every few milliseconds, and waits of this process take hardly any time."""
    from kfm.system import SystemClock

    monkeypatch.setattr("kfm.service.runner.KEEP_MS", 20, raising=False)
    wait = SystemClock.sleep_ms
    monkeypatch.setattr(SystemClock, "sleep_ms", lambda self, delay_ms: wait(self, min(delay_ms, 20)))


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands of this process are typed by a person."""
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))


# --- an upstream that has had enough -------------------------------------------------------


class Throttling:
    """An upstream over HTTP that answers as it is told, and counts who asks."""

    def __init__(self) -> None:
        self.status, self.headers, self.asked = 503, dict[str, str](), 0
        upstream = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, format: str, *args: Any) -> None: ...

            def do_GET(self) -> None:
                upstream.asked += 1
                sent = table("gauge", 3) if upstream.status == 200 else b""
                self.send_response_only(upstream.status)
                for name, value in {**upstream.headers, "Content-Length": str(len(sent))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(sent if self.command == "GET" else b"")

            do_HEAD = do_GET  # noqa: N815 - http.server's names

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.kind = f'kind: http, url: "http://127.0.0.1:{self.server.server_port}/levels.csv"'

    def wants(self, seconds: int) -> None:
        """To be left in peace for so long."""
        self.status, self.headers = 503, {"Retry-After": str(seconds)}


@pytest.fixture
def throttling() -> Iterator[Throttling]:
    made = Throttling()
    threading.Thread(target=made.server.serve_forever, args=(0.05,), daemon=True).start()
    yield made
    made.server.shutdown()
    made.server.server_close()
