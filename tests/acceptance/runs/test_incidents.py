"""Incidents as people meet them: what is told of whom, lists, the end, configuration."""

from __future__ import annotations

import os
import stat

import pytest

from tests.acceptance.runs.conftest import Inside
from tests.acceptance.runs.hooked import (
    COMMAND,
    FILE,
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
from tests.acceptance.runs.test_governance import PUBLISH_FORBIDDEN

pytestmark = pytest.mark.req("TRG-7")


def test_a_provider_that_is_reset_is_told_as_resolved(wrong: Inside) -> None:
    """The circuit's incident ends in the transaction of the reset, and hooks hear of it then."""
    from kfm.app import open_app
    from kfm.config.loader import load
    from kfm.model import breaker as rules

    with open_app(load(str(wrong.folder / "kfm.yml"))) as app:
        for _ in range(rules.FAILURES_MAX):
            app.kernel.store.change_breaker("api.example.org", rules.on_failure)
    ended = wrong.kfm("breaker", "reset", "api.example.org", "--rationale", "they say it is fixed")
    assert ended.code == 0, ended
    told = lines(wrong)
    assert changes(told) == ["open", "resolved"]
    assert [one["data"]["name"] for one in told] == ["api.example.org"] * 2


def test_a_restricted_dataset_is_not_named(wrong: Inside, hooked: Hooked) -> None:
    """Neither its id nor the message leaves the machine; here they can be read, by the same incident id."""
    wrong.configure(extra=PIPELINE, more=hooks(FILE, COMMAND, webhook(hooked)))
    wrong.run()
    change(wrong, "DELETE FROM outbox WHERE topic = 'incident'")
    (wrong.folder / "out/incidents.jsonl").unlink()
    rights = '{license: CC0-1.0, care: {label: "Sacred", level: restricted}}'
    wrong.configure(extra=PIPELINE.replace('"1"', '"2"'), rights=rights, more=hooks(FILE))
    # It got this far before its rights were known: what is held of it is judged by what they are now.
    change(wrong, "DELETE FROM hook_deliveries")
    change(wrong, "DELETE FROM incident_subjects")
    change(wrong, "DELETE FROM incidents")
    from kfm.app import open_app
    from kfm.config.loader import load
    from kfm.model.runs import Judge

    with open_app(load(str(wrong.folder / "kfm.yml"))) as app:
        run = app.ledger.runs()[0]
        seen = app.ledger.retry_state(run.run_id)
        (held,) = app.ledger.held()
        assert app.kernel.store.judge(Judge(run=run, seen=seen, retry=seen, held=held))
        app.deliver_incidents()
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
    """A CARE violation in flight is an incident of the highest severity."""
    project.write("own.cedar", PUBLISH_FORBIDDEN)
    project.configure(more="policies: [own.cedar]\n" + hooks(FILE))
    assert project.run().code == 3
    (told,) = lines(project)
    assert (told["data"]["kind"], told["data"]["severity"]) == ("halt", "critical")
    assert told["data"]["error_code"] == "KFM302"


def test_an_incident_that_no_run_will_end_is_closed_by_a_person(wrong: Inside, valid: Check) -> None:
    """With a reason, which is kept in the chain; the hooks are told; what is held stays held."""
    wrong.run()
    (incident,) = wrong.kfm("incident", "list", "--json").document["incidents"]
    assert wrong.kfm("incident", "close", incident["incident_id"]).code == 3
    ended = wrong.kfm("incident", "close", incident["incident_id"], "--rationale", "taken out", "--json")
    assert ended.code == 0, ended
    valid("cli-incident-close", ended.document)
    assert ended.document["incident"]["state"] == "resolved"
    assert changes(lines(wrong)) == ["open", "resolved"]
    assert len(wrong.governance("incident-closed")) == 1
    assert len(wrong.kfm("quarantine", "list", "--json").document["held"]) == 1
    assert wrong.kfm("incident", "close", incident["incident_id"], "--rationale", "again").code == 2
    assert wrong.kfm("audit", "verify").code == 0


def test_a_new_hook_is_not_told_of_what_is_past(wrong: Inside) -> None:
    """A hook that is added after an incident is not flooded with what happened before it."""
    wrong.configure(extra=PIPELINE)
    wrong.run()
    wrong.configure(extra=PIPELINE, more=hooks(FILE))
    assert wrong.kfm("incident", "deliver").code == 0
    assert lines(wrong) == []


@pytest.mark.req("CLI-1")
def test_delivery_without_hooks_says_how_to_add_one(project: Inside) -> None:
    """Delivery without a hook is a fault of the configuration."""
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
    """What can be used is ok, what can't is a failure; no hook gets a notification by it."""
    more = hooks(FILE, COMMAND, webhook(hooked), "{kind: command, name: lost, command: [./no-such-command]}")
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
