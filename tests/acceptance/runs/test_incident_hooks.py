"""Hooks: real commands, a real server, a file; hooks that fail, hang or die."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable
from importlib import metadata
from typing import Any

import pytest

from tests.acceptance.runs.conftest import Inside
from tests.acceptance.runs.hooked import (
    COMMAND,
    FILE,
    KEEPER,
    PIPELINE,
    SECRET,
    Check,
    Hooked,
    change,
    changes,
    corrected,
    hooks,
    lines,
    webhook,
)
from tests.crash.project import WINDOW

pytestmark = pytest.mark.req("TRG-7")


def test_every_kind_of_hook_is_told_of_opening_and_end(wrong: Inside, hooked: Hooked, valid: Check) -> None:
    """A command, a webhook and a file get the same, once each: when a run is held, and when all is well."""
    wrong.configure(extra=PIPELINE, more=hooks(FILE, COMMAND, webhook(hooked)))
    failed = wrong.run()
    assert failed.code == 1, failed
    assert "noise" not in failed.out
    assert (
        changes(lines(wrong)) == changes(lines(wrong, "told.jsonl")) == changes(hooked.bodies()) == ["open"]
    )
    again = wrong.run("--force", "--rationale", "again", "--ticket", "T-1")
    assert again.code == 1, again
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
    assert last["affected"] == 2  # a force makes a run of its own; the cause is the same
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
    """What one hook was told it is not told again because another is down; that one is told later."""
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
        ("[./no-such-command]", "can't be started"),
        ("[sh, -c, 'sleep 60 & sleep 60']", "did not end within 0.3 s"),
    ],
)
def test_a_command_in_trouble_is_one_line(wrong: Inside, command: str, words: str) -> None:
    """Failing, killed, missing, hanging: the run ends as it would, one line says so, the change waits."""
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


def test_a_run_killed_while_it_tells_loses_nothing(wrong: Inside) -> None:
    """Killed in the middle of a hook: the run's end stands, and the change is told again with its id."""
    wrong.write("keeper.sh", KEEPER + "[ -e well ] || { touch begun; sleep 2; }\n")
    wrong.configure(extra=PIPELINE, more=hooks(COMMAND))
    process = wrong.start("run", "--json", "--window", WINDOW)
    until = time.monotonic() + 60
    while not (wrong.folder / "begun").exists() and time.monotonic() < until:
        time.sleep(0.01)
    process.kill()
    process.communicate()
    assert wrong.rows("SELECT status FROM runs") == [("failed",)]
    wrong.write("well", "")
    assert wrong.kfm("incident", "deliver").code == 0
    first, second = lines(wrong, "told.jsonl")
    assert first == second


class Pigeon:
    """A plugin's notifier."""

    sent: list[tuple[str, bytes]] = []

    def __init__(self, hook: Any, secret: Callable[[str], str]) -> None:
        self.fails = secret(hook.options.get("mood", "fine")) == "sulky"

    def notify(self, change_id: str, body: bytes) -> None:
        if self.fails:
            raise RuntimeError("not today")
        self.sent.append((change_id, body))

    def close(self) -> None: ...


def test_a_plugin_is_told_as_the_others_are(wrong: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    """A notifier of an installed distribution, by its name; what it raises is one line."""
    point = metadata.EntryPoint("pigeon", f"{__name__}:Pigeon", "kfm.notifiers")
    monkeypatch.setattr(metadata, "entry_points", lambda group: [point] if group == "kfm.notifiers" else [])
    Pigeon.sent.clear()
    wrong.env["MOOD"] = "sulky"
    wrong.configure(extra=PIPELINE, more=hooks("{kind: pigeon, options: {mood: env:MOOD}}"))
    failed = wrong.run()
    assert "RuntimeError: not today" in failed.err
    wrong.env["MOOD"] = "fine"
    assert wrong.kfm("incident", "deliver").code == 0
    ((change_id, body),) = Pigeon.sent
    assert json.loads(body)["id"] == change_id
