"""Incidents as people meet them: real commands, a real server, a file; hooks that fail, hang or die."""

from __future__ import annotations

import base64
import json
import os
import stat
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import apsw
import pytest

from tests.acceptance.kernel.conftest import Inside

pytestmark = pytest.mark.req("TRG-7")

WRONG = 'def publish(context):\n    raise ValueError("riddles")\n'
FINE = """\
def publish(context):
    for one in context.inputs:
        context.publisher.write_file(one.path, one.fetched)
"""
PIPELINE = 'pipeline: "pipeline.py:publish", output_version: "1"'
SECRET = "whsec_" + base64.b64encode(b"a secret of twenty-four.").decode()
KEEPER = """\
#!/bin/sh
cat >> told.jsonl
echo >> told.jsonl
echo noise on stdout
"""
Check = Callable[[str, Any], None]


class Hooked:
    """A server that keeps what it was sent and answers as it is told."""

    def __init__(self) -> None:
        self.got: list[tuple[dict[str, str], bytes]] = []
        self.status = 204
        self.hang = threading.Event()
        self.hang.set()
        hooked = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                hooked.got.append(({name.lower(): value for name, value in self.headers.items()}, body))
                hooked.hang.wait(20)
                self.send_response(hooked.status)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_words: Any) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/hook"

    def bodies(self) -> list[dict[str, Any]]:
        return [json.loads(body) for _, body in self.got]


@pytest.fixture
def hooked() -> Iterator[Hooked]:
    made = Hooked()
    thread = threading.Thread(target=made.server.serve_forever, daemon=True)
    thread.start()
    yield made
    made.hang.set()
    made.server.shutdown()
    made.server.server_close()


def hooks(*lines: str) -> str:
    return "incidents:\n" + "".join(f"  - {line}\n" for line in lines)


FILE = "{kind: file, path: out/incidents.jsonl}"
COMMAND = "{kind: command, command: [./keeper.sh]}"


def webhook(hooked: Hooked, more: str = "") -> str:
    return f'{{kind: webhook, url: "{hooked.url}", secret: env:HOOK_SECRET{more}}}'


@pytest.fixture
def wrong(project: Inside) -> Inside:
    """A pipeline that can't succeed."""
    project.write("pipeline.py", WRONG)
    project.write("keeper.sh", KEEPER)
    os.chmod(project.folder / "keeper.sh", 0o700)
    project.env["HOOK_SECRET"] = SECRET
    project.configure(extra=PIPELINE, more=hooks(FILE))
    return project


def lines(project: Inside, name: str = "out/incidents.jsonl") -> list[dict[str, Any]]:
    path = project.folder / name
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def changes(told: list[dict[str, Any]]) -> list[str]:
    return [one["data"]["change"] for one in told]


def change(project: Inside, sql: str) -> None:
    connection = apsw.Connection(str(project.state / "kfm.db"))
    connection.set_busy_timeout(5000)
    connection.execute(sql)
    connection.close()


def corrected(project: Inside) -> None:
    project.write("pipeline.py", FINE)
    project.write("incoming/c.csv", (project.folder / "incoming/a.csv").read_text())


def test_every_kind_of_hook_is_told_of_opening_and_end(wrong: Inside, hooked: Hooked, valid: Check) -> None:
    """A command, a webhook and a file get the same bytes, once each, when a run is held and when all is well."""
    wrong.configure(extra=PIPELINE, more=hooks(FILE, COMMAND, webhook(hooked)))
    failed = wrong.run()
    assert failed.code == 1, failed
    assert "noise" not in failed.out
    assert (
        changes(lines(wrong)) == changes(lines(wrong, "told.jsonl")) == changes(hooked.bodies()) == ["open"]
    )
    assert wrong.run("--force", "--rationale", "again", "--ticket", "T-1").code == 1
    corrected(wrong)
    ended = wrong.run("--force", "--rationale", "mended", "--ticket", "T-1")
    assert ended.code == 0, ended
    told = lines(wrong)
    assert changes(told) == ["open", "resolved"]
    assert lines(wrong, "told.jsonl") == hooked.bodies() == told
    for one in told:
        valid("incident", one)
    first, last = (one["data"] for one in told)
    assert first["incident_id"] == last["incident_id"]
    assert (first["about"], first["name"], first["severity"]) == ("dataset", "levels", "error")
    assert "riddles" in first["message"]
    assert last["affected"] == 1
    assert last["held"] == 0
    assert wrong.rows("SELECT COUNT(*) FROM outbox WHERE topic = 'incident' AND delivered_at_ms IS NULL") == [
        (0,)
    ]


def test_a_webhook_is_signed_as_others_check_it(wrong: Inside, hooked: Hooked) -> None:
    """A Standard Webhooks library accepts what is sent, and nothing that was touched."""
    library = pytest.importorskip("standardwebhooks")
    wrong.configure(extra=PIPELINE, more=hooks(webhook(hooked)))
    wrong.run()
    ((headers, body),) = hooked.got
    assert library.Webhook(SECRET).verify(body, headers) == json.loads(body)
    assert headers["webhook-id"] == json.loads(body)["id"]
    with pytest.raises(library.WebhookVerificationError):
        library.Webhook(SECRET).verify(body.replace(b"levels", b"lovels"), headers)


def test_two_secrets_sign_side_by_side(wrong: Inside, hooked: Hooked) -> None:
    """While a secret is replaced, receivers with the old one and with the new one both accept."""
    library = pytest.importorskip("standardwebhooks")
    other = "whsec_" + base64.b64encode(b"another of twenty-four..").decode()
    wrong.env["HOOK_SECRET"] = f"{SECRET} {other}"
    wrong.configure(extra=PIPELINE, more=hooks(webhook(hooked)))
    wrong.run()
    ((headers, body),) = hooked.got
    for secret in (SECRET, other):
        library.Webhook(secret).verify(body, headers)


def test_a_dead_hook_costs_the_others_nothing(wrong: Inside, hooked: Hooked, valid: Check) -> None:
    """What one hook was told it is not told again because another is down; that one is told when it is back."""
    hooked.status = 503
    wrong.configure(extra=PIPELINE, more=hooks(webhook(hooked), FILE))
    failed = wrong.run()
    assert failed.code == 1
    (line,) = [line for line in failed.err.splitlines() if line.startswith("incidents:")]
    assert "webhook" in line
    assert "503" in line
    assert changes(lines(wrong)) == ["open"]
    again = wrong.kfm("incident", "deliver", "--json")
    assert again.code == 4, again
    valid("cli-incident-deliver", again.document)
    assert changes(lines(wrong)) == ["open"]
    hooked.status = 200
    assert wrong.kfm("incident", "deliver").code == 0
    assert changes(lines(wrong)) == ["open"]
    ids = {headers["webhook-id"] for headers, _ in hooked.got}
    assert len(ids) == 1
    assert len(hooked.got) == 3
    told = wrong.kfm("incident", "deliver", "--json").document
    assert [(each["sent"], each["waiting"]) for each in told["hooks"]] == [(0, 0), (0, 0)]


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("[sh, -c, 'echo no route >&2; exit 7']", "exit code 7: no route"),
        ("[sh, -c, 'kill -9 $$']", "signal 9"),
        ("[./nobody]", "can't be started"),
        ("[sh, -c, 'sleep 60 & sleep 60']", "did not end within 0.3 s"),
    ],
)
def test_a_command_in_trouble_is_one_line(wrong: Inside, command: str, words: str) -> None:
    """Failing, killed, missing or hanging: the run ends as it would, one line says so, and the change waits."""
    wrong.configure(
        extra=PIPELINE, more=hooks(f"{{kind: command, command: {command}, timeout_seconds: 0.3}}")
    )
    failed = wrong.run()
    assert failed.code == 1
    (line,) = [line for line in failed.err.splitlines() if line.startswith("incidents:")]
    assert words in line
    assert wrong.rows("SELECT delivered_at_ms FROM outbox WHERE topic = 'incident'") == [(None,)]


def test_a_hanging_server_does_not_hold_the_run(wrong: Inside, hooked: Hooked) -> None:
    """A webhook that never answers costs its timeout, once; the next run does not wait for it at once."""
    hooked.hang.clear()
    wrong.configure(extra=PIPELINE, more=hooks(webhook(hooked, ", timeout_seconds: 0.3")))
    failed = wrong.run()
    assert failed.code == 1
    assert "did not answer in time" in failed.err
    assert len(hooked.got) == 1
    hooked.hang.set()
    assert wrong.kfm("incident", "deliver").code == 0
    assert len({headers["webhook-id"] for headers, _ in hooked.got}) == 1


def test_a_process_that_dies_between_telling_and_noting_tells_again(wrong: Inside) -> None:
    """At least once: what was told but not noted is told again, with the same id and the same bytes."""
    wrong.run()
    change(wrong, "UPDATE hook_deliveries SET delivered_at_ms = NULL")
    change(wrong, "UPDATE outbox SET delivered_at_ms = NULL WHERE topic = 'incident'")
    assert wrong.kfm("incident", "deliver").code == 0
    first, second = lines(wrong)
    assert first == second


def test_a_restricted_dataset_is_not_named(wrong: Inside, hooked: Hooked) -> None:
    """Neither its id nor the message leaves the machine; here they can be read, by the same incident id."""
    wrong.configure(extra=PIPELINE, more=hooks(FILE, COMMAND, webhook(hooked)))
    wrong.run()
    change(wrong, "DELETE FROM outbox WHERE topic = 'incident'")
    (wrong.folder / "out/incidents.jsonl").unlink()
    rights = '{license: CC0-1.0, care: {label: "Sacred", level: restricted}}'
    wrong.configure(extra=PIPELINE.replace('"1"', '"2"'), rights=rights, more=hooks(FILE))
    # It got this far before its rights were known: what is held of it is judged by what they are now.
    change(wrong, "DELETE FROM incident_subjects")
    change(wrong, "DELETE FROM incidents")
    from kfm.config import load
    from kfm.core.commits import Judge
    from kfm.wiring import open_app

    with open_app(load(str(wrong.folder / "kfm.yml"))) as app:
        run = app.ledger.runs()[0]
        seen = app.ledger.retry_state(run.run_id)
        (held,) = app.ledger.held()
        assert app.kernel.store.judge(Judge(run=run, seen=seen, retry=seen, held=held))
        app.tell_incidents()
    text = (wrong.folder / "out/incidents.jsonl").read_text()
    (told,) = lines(wrong)
    assert "levels" not in text
    assert "riddles" not in text
    assert told["data"]["masked"]
    assert told["data"]["name"].startswith("masked-")
    shown = wrong.kfm("incident", "show", told["data"]["incident_id"])
    assert "levels" in shown.out
    assert "riddles" in shown.out


def test_incidents_are_listed_shown_and_in_status(wrong: Inside, valid: Check) -> None:
    """What is open is in the list and in status, with its runs and who was told; then it is not."""
    empty = wrong.kfm("incident", "list", "--json")
    valid("cli-incident-list", empty.document)
    assert empty.document["incidents"] == []
    wrong.run()
    listed = wrong.kfm("incident", "list", "--json").document
    valid("cli-incident-list", listed)
    (incident,) = listed["incidents"]
    shown = wrong.kfm("incident", "show", incident["incident_id"][:8], "--json").document
    valid("cli-incident-show", shown)
    assert shown["subjects"] == [run_id for (run_id,) in wrong.rows("SELECT run_id FROM runs")]
    assert [(one["change"], one["hook"]) for one in shown["told"]] == [("open", "file")]
    status = wrong.kfm("status", "--json").document
    valid("cli-status", status)
    assert status["incidents"] == [incident]
    assert "error: dataset levels" in wrong.kfm("status").out
    corrected(wrong)
    assert wrong.run("--force", "--rationale", "mended", "--ticket", "T-1").code == 0
    assert wrong.kfm("status", "--json").document["incidents"] == []
    assert wrong.kfm("incident", "list").out == "no incident is open\n"
    everything = wrong.kfm("incident", "list", "--all", "--json").document["incidents"]
    assert [one["state"] for one in everything] == ["resolved"]
    assert wrong.kfm("incident", "show", "no").code == 2
    assert wrong.kfm("incident", "show", "ffffffff").code == 2


def test_a_halt_is_critical(project: Inside) -> None:
    """A CARE violation in flight opens an incident of the highest severity, in the halt's own transaction."""
    consent = (
        '{license: CC0-1.0, care: {label: "Public"}, sovereignty: {authority: "The council", consent: %s}}'
    )
    project.write("pipeline.py", FINE)
    project.configure(extra=PIPELINE, rights=consent % "granted", more=hooks(FILE))
    from kfm.config import load
    from kfm.core.errors import Halted
    from kfm.engine.requests import RunRequest
    from kfm.wiring import open_app

    def withdrawn(*_arguments: Any, **_options: Any) -> None:
        raise Halted("The council has withdrawn its consent.")

    with open_app(load(str(project.folder / "kfm.yml"))) as app:
        app.kernel  # noqa: B018 - made before it is bent
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("kfm.runs.pipeline.run_pipeline", withdrawn, raising=False)
            patch.setattr(type(app), "_pipeline", lambda *_: withdrawn)
            report = app.run(RunRequest(source_id="notes", actor="ada"))
        app.tell_incidents()
    if not isinstance(report.error, Halted):
        pytest.fail(f"{report.error!r}")
    (told,) = lines(project)
    assert (told["data"]["kind"], told["data"]["severity"]) == ("halt", "critical")


def test_nobody_is_told_later_of_what_is_past(wrong: Inside) -> None:
    """A hook that is added after an incident is not flooded with what happened before it."""
    wrong.configure(extra=PIPELINE)
    wrong.run()
    wrong.configure(extra=PIPELINE, more=hooks(FILE))
    assert wrong.kfm("incident", "deliver").code == 0
    assert lines(wrong) == []


@pytest.mark.req("CLI-1")
def test_delivery_without_hooks_says_how_to_add_one(project: Inside) -> None:
    """Nobody to tell is a question of configuration."""
    ended = project.kfm("incident", "deliver")
    assert ended.code == 2
    assert "incidents:" in ended.err


@pytest.mark.parametrize(
    ("hook", "words"),
    [
        ("{kind: command}", "needs `command`"),
        ("{kind: webhook, url: 'http://127.0.0.1/'}", "needs `secret`"),
        (f"{{kind: webhook, url: 'http://127.0.0.1/', secret: {SECRET}}}", "holds a secret"),
        ("{kind: webhook, url: 'ftp://127.0.0.1/', secret: env:A}", "must begin with"),
        ("{kind: file, path: a, url: 'http://127.0.0.1/'}", "does not apply"),
        ("{kind: pigeon}", "no kind of hook"),
        ("{kind: file, path: a, timeout_seconds: 0}", "timeout_seconds"),
        ("{kind: file, path: a}\n  - {kind: file, path: b}", "two hooks are called `file`"),
    ],
)
def test_a_wrong_hook_is_refused_before_anything_runs(project: Inside, hook: str, words: str) -> None:
    """The configuration says what is wrong with a hook, and never repeats a secret."""
    project.configure(more=hooks(hook))
    ended = project.kfm("config", "check")
    assert ended.code == 2
    assert words in ended.err
    assert SECRET not in ended.err + ended.out


def test_the_doctor_looks_at_hooks(wrong: Inside, hooked: Hooked) -> None:
    """What can be used is ok, what can't is a failure; nobody is told anything by it."""
    more = hooks(FILE, COMMAND, webhook(hooked), "{kind: command, name: lost, command: [./nobody]}")
    wrong.configure(extra=PIPELINE, more=more)
    found = wrong.kfm("doctor", "--json", "--offline").document["checks"]
    told = {
        each["message"].split(":")[0].split()[0]: each["state"]
        for each in found
        if each["name"] == "incidents"
    }
    assert told == {"file": "ok", "command": "ok", "webhook": "ok", "lost": "fail"}
    assert hooked.got == []
    assert stat.S_ISREG(os.stat(wrong.folder / "keeper.sh").st_mode)
