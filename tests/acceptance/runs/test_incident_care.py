"""What people do about incidents: owners, escalation, acknowledge, silence, mail and chat, by command."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.runs.conftest import Inside
from tests.acceptance.runs.hooked import (
    FILE,
    PIPELINE,
    Check,
    Hooked,
    change,
    changes,
    corrected,
    hooks,
    lines,
)
from tests.mail_server import HOST, PASSWORD, USER, MailServer, certificate, serving_mail

pytestmark = pytest.mark.req("DAT-10")

PAGER = "{kind: file, name: pager, path: out/pager.jsonl, escalation: true}"
CARE = "owner: {name: Water desk, contact: water@example.org}, escalate: {after: PT4H, to: [pager]}"


def configured(project: Inside, *lines: str, dataset: str = CARE) -> None:
    """A dataset with an owner, whose incidents go to these hooks."""
    project.configure(extra=PIPELINE, more=hooks(*lines))
    path = project.folder / "kfm.yml"
    text = path.read_text()
    path.write_text(text.replace("id: levels,", f"id: levels, {dataset},", 1))


@pytest.fixture
def cared(wrong: Inside) -> Inside:
    configured(wrong, FILE, PAGER)
    assert wrong.run().code == 1
    return wrong


def incident_id(project: Inside) -> str:
    (found,) = project.kfm("incident", "list", "--json").document["incidents"]
    return str(found["incident_id"])


def hours_pass(project: Inside, hours: int = 5) -> None:
    """As if it had opened so much earlier."""
    change(project, f"UPDATE incidents SET opened_at_ms = opened_at_ms - {hours * 3_600_000}")


# --- owner and escalation ----------------------------------------------------------------


def test_the_owner_and_the_next_step_are_told(cared: Inside, valid: Check) -> None:
    """In every notification: who answers for it, what to do, the command, and who can run it."""
    (told,) = lines(cared)
    valid("incident", told)
    data = told["data"]
    ((run_id,),) = cared.rows("SELECT run_id FROM runs")
    assert data["owner"] == {"name": "Water desk", "contact": "water@example.org"}
    assert data["next_step"]["command"] == f"kfm explain {run_id}"
    assert cared.kfm(*data["next_step"]["command"].split()[1:]).code == 0
    shown = cared.kfm("incident", "show", data["incident_id"], "--json").document
    valid("cli-incident-show", shown)
    assert shown["next_step"] == data["next_step"]
    assert f"kfm explain {run_id}" in cared.kfm("incident", "show", data["incident_id"]).out


def test_what_no_one_acknowledges_is_escalated_once(cared: Inside, valid: Check) -> None:
    """After its time and not before, to the hooks of the dataset; the end is told to all."""
    assert cared.kfm("incident", "deliver").code == 0
    assert lines(cared, "out/pager.jsonl") == []
    hours_pass(cared)
    for _ in range(2):
        assert cared.kfm("incident", "deliver").code == 0
    (escalated,) = lines(cared, "out/pager.jsonl")
    valid("incident", escalated)
    assert (escalated["type"], escalated["data"]["change"]) == ("incident.escalated", "escalated")
    assert changes(lines(cared)) == ["open"]
    assert "escalated" in cared.kfm("incident", "list").out
    corrected(cared)
    assert cared.run("--force", "--rationale", "mended", "--ticket", "T-1").code == 0
    assert changes(lines(cared, "out/pager.jsonl")) == ["escalated", "resolved"]
    assert changes(lines(cared)) == ["open", "resolved"]


def test_only_what_a_hook_got_is_shown_as_told(cared: Inside, valid: Check) -> None:
    """Neither what is not meant for a hook, nor what was told of an earlier time of the same cause."""

    def told() -> list[tuple[str, str]]:
        shown = cared.kfm("incident", "show", incident_id(cared), "--json").document
        valid("cli-incident-show", shown)
        return [(one["change"], one["hook"]) for one in shown["told"]]

    assert told() == [("open", "file")]
    hours_pass(cared)
    assert cared.kfm("incident", "deliver").code == 0
    assert told() == [("open", "file"), ("escalated", "pager")]
    wanted = incident_id(cared)
    assert cared.kfm("incident", "close", wanted, "--rationale", "seen to").code == 0
    assert cared.run("--force", "--rationale", "again", "--ticket", "T-1").code == 1
    assert incident_id(cared) != wanted
    assert told() == [("open", "file")]
    said = cared.kfm("incident", "show", incident_id(cared)).out
    assert "pager" not in said
    assert "occurrence    2" in said


def test_what_is_acknowledged_is_not_escalated(cared: Inside, valid: Check) -> None:
    """With a rationale, once; it is in the chain, in list, show and status."""
    wanted = incident_id(cared)
    assert cared.kfm("incident", "ack", wanted).code == 3
    ended = cared.kfm("incident", "ack", wanted[:8], "--rationale", "I look into it", "--json")
    assert ended.code == 0, ended
    valid("cli-incident-ack", ended.document)
    assert ended.document["incident"]["state"] == "open"
    assert ended.document["incident"]["acknowledged_by"]
    assert cared.kfm("incident", "ack", wanted, "--rationale", "me, too").code == 2
    hours_pass(cared)
    assert cared.kfm("incident", "deliver").code == 0
    assert lines(cared, "out/pager.jsonl") == []
    assert len(cared.governance("incident-acknowledged")) == 1
    assert "acknowledged" in cared.kfm("incident", "list").out
    assert "acknowledged by" in cared.kfm("incident", "show", wanted).out
    status = cared.kfm("status", "--json").document
    valid("cli-status", status)
    assert status["incidents"][0]["acknowledged_at"]
    assert cared.kfm("audit", "verify").code == 0


# --- silence -----------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["dataset", "incident"])
def test_a_silence_by_command(cared: Inside, valid: Check, by: str) -> None:
    """Nothing is sent; list, show and status say until when; its end tells the present state once."""
    wanted = "levels" if by == "dataset" else incident_id(cared)
    assert cared.kfm("incident", "silence", wanted, "--for", "PT8H").code == 3
    ended = cared.kfm("incident", "silence", wanted, "--for", "PT8H", "--rationale", "known", "--json")
    assert ended.code == 0, ended
    valid("cli-incident-silence", ended.document)
    assert ended.document["scope"].startswith(f"{by}:")
    hours_pass(cared)
    assert cared.kfm("incident", "deliver").code == 0
    assert (changes(lines(cared)), lines(cared, "out/pager.jsonl")) == (["open"], [])
    listed = cared.kfm("incident", "list", "--json").document
    valid("cli-incident-list", listed)
    assert listed["incidents"][0]["silenced_until"] == ended.document["silence"]["until"]
    assert "silenced until" in cared.kfm("incident", "show", incident_id(cared)).out
    change(cared, "UPDATE silences SET until_ms = 1")
    for _ in range(2):
        assert cared.kfm("incident", "deliver").code == 0
    assert changes(lines(cared)) == ["open", "reminded"]
    assert changes(lines(cared, "out/pager.jsonl")) == ["escalated"], "its time had passed meanwhile"
    assert len(cared.governance("incident-silenced")) == 1


def test_a_silence_is_ended_by_command(cared: Inside, valid: Check) -> None:
    """At once, with a reminder; a silence that is not there can't be ended."""
    cared.kfm("incident", "silence", "levels", "--until", "2099-01-01T00:00:00Z", "--rationale", "too long")
    assert cared.rows("SELECT COUNT(*) FROM silences") == [(0,)]
    assert cared.kfm("incident", "silence", "levels", "--for", "P1D", "--rationale", "known").code == 0
    ended = cared.kfm("incident", "silence", "levels", "--end", "--rationale", "mended", "--json")
    assert ended.code == 0, ended
    valid("cli-incident-silence", ended.document)
    assert changes(lines(cared)) == ["open", "reminded"]
    assert cared.kfm("incident", "silence", "levels", "--end", "--rationale", "again").code == 2
    assert cared.kfm("incident", "silence", "levels", "--rationale", "until when").code == 2
    assert cared.kfm("incident", "silence", "no-such", "--for", "P1D", "--rationale", "x").code == 2


# --- the configuration -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dataset", "hook", "words"),
    [
        ("escalate: {after: PT4H, to: [pagr]}", PAGER, "there is no hook `pagr`"),
        ("escalate: {after: 4h, to: [pager]}", PAGER, "`after` must be a length of time"),
        ("escalate: {after: PT4H, to: []}", PAGER, "`to` must name a hook"),
        ("owner: {name: ''}", PAGER, "`name` must be one line"),
        ("lock: dataset", "{kind: file, path: a, datasets: [levls]}", "there is no dataset `levls`"),
        ("lock: dataset", "{kind: file, path: a, kinds: [overdu]}", "there is no kind of incident `overdu`"),
        ("lock: dataset", "{kind: file, path: a, escalation: true, kinds: [halt]}", "can't choose further"),
        ("lock: dataset", "{kind: email, host: mail}", "needs `sender`"),
        (
            "lock: dataset",
            "{kind: email, host: mail, sender: a@b, to: [here]}",
            "`to` must be an e-mail address",
        ),
        (
            "lock: dataset",
            "{kind: email, host: mail, sender: a@b, to: [c@d], user: env:U}",
            "`user` and `password` go together",
        ),
        (
            "lock: dataset",
            "{kind: email, host: mail, sender: a@b, to: [c@d], security: none, user: env:U, password: env:P}",
            "are sent only with",
        ),
        (
            "lock: dataset",
            "{kind: email, host: mail, sender: a@b, to: [c@d], user: me, password: plain-words}",
            "`password` holds a secret",
        ),
        ("lock: dataset", "{kind: chat, url: 'https://chat.example.org/T0/B0'}", "`url` is a secret"),
        ("lock: dataset", "{kind: file, path: a, host: mail}", "`host` does not apply"),
    ],
)
def test_mistakes_are_found_before_a_run(project: Inside, dataset: str, hook: str, words: str) -> None:
    """Each with its place; no secret and no address is repeated."""
    configured(project, hook, dataset=dataset)
    ended = project.kfm("config", "check")
    assert ended.code == 2
    assert words in ended.err + ended.out
    assert "plain-words" not in ended.err + ended.out
    assert "/T0/B0" not in ended.err + ended.out


# --- mail and chat, from the run to the server -------------------------------------------


@pytest.fixture
def mail(tmp_path: Path) -> Iterator[MailServer]:
    with serving_mail(certificate(tmp_path), sign_in=True) as served:
        yield served


def email(server: MailServer, more: str = "") -> str:
    return (
        f"{{kind: email, host: {HOST}, port: {server.port}, ca_file: ../mail.crt, user: env:MAIL_USER, "
        f"password: env:MAIL_PASSWORD, sender: kfm@example.org, to: [water@example.org]{more}}}"
    )


def test_a_run_that_fails_is_mailed(wrong: Inside, mail: MailServer, hooked: Hooked) -> None:
    """From the quarantined run to the mail server and the chat; then its end, in the same thread."""
    wrong.env |= {"MAIL_USER": USER, "MAIL_PASSWORD": PASSWORD, "CHAT": hooked.url}
    configured(wrong, email(mail), "{kind: chat, url: env:CHAT}", PAGER)
    assert wrong.run().code == 1
    corrected(wrong)
    assert wrong.run("--force", "--rationale", "mended", "--ticket", "T-1").code == 0
    first, last = mail.mails
    assert first["Subject"].startswith("[kfm test] opened, error: dataset levels: KFM607")
    assert "Owner: Water desk, water@example.org" in first.get_content()
    assert (last["References"], mail.encrypted) == (first["References"], [True, True])
    assert [one["text"].split(",")[0] for one in hooked.bodies()] == ["opened", "resolved"]


def test_a_mail_server_that_is_down_is_tried_again(wrong: Inside, mail: MailServer) -> None:
    """The run ends as it would; one line names the hook and no address; the mail comes later, once."""
    wrong.env |= {"MAIL_USER": USER, "MAIL_PASSWORD": PASSWORD}
    configured(wrong, email(mail, ", name: desk"), FILE, PAGER)
    mail.data_answer = "451 busy"
    failed = wrong.run()
    assert failed.code == 1
    (line,) = [line for line in failed.err.splitlines() if line.startswith("incidents:")]
    assert "hook desk" in line
    assert "451" in line
    assert "water@example.org" not in failed.err
    assert changes(lines(wrong)) == ["open"]
    again = wrong.kfm("incident", "deliver")
    assert again.code == 4
    mail.data_answer = "250 OK"
    assert wrong.kfm("incident", "deliver").code == 0
    assert len(mail.mails) == 1
    assert [(tries,) for (tries,) in wrong.rows("SELECT tries FROM hook_deliveries WHERE hook = 'desk'")] == [
        (3,)
    ]


def test_a_hook_is_tried_by_command(wrong: Inside, mail: MailServer, hooked: Hooked, valid: Check) -> None:
    """A test notification reaches any hook, is said to be one, and leaves no incident."""
    wrong.env |= {"MAIL_USER": USER, "MAIL_PASSWORD": PASSWORD, "CHAT": hooked.url}
    configured(wrong, email(mail), "{kind: chat, url: env:CHAT}", FILE, PAGER)
    for hook in ("email", "chat", "file", "pager"):
        ended = wrong.kfm("incident", "test", hook, "--json")
        assert ended.code == 0, ended
        valid("cli-incident-test", ended.document)
    valid("incident", lines(wrong)[0])
    assert lines(wrong)[0]["type"] == "incident.test"
    assert "test of hook email" in mail.mails[0]["Subject"]
    assert "test of hook chat" in hooked.bodies()[0]["text"]
    assert wrong.kfm("incident", "list", "--all", "--json").document["incidents"] == []
    hooked.status = 500
    failed = wrong.kfm("incident", "test", "chat", "--json")
    assert (failed.code, "500" in failed.document["trouble"]) == (4, True)
    assert wrong.kfm("incident", "test", "emial").code == 2


def test_doctor_signs_in_and_sends_nothing(wrong: Inside, mail: MailServer) -> None:
    """A mail server that can't be used is found before it is needed."""
    wrong.env |= {"MAIL_USER": USER, "MAIL_PASSWORD": PASSWORD}
    configured(wrong, email(mail), PAGER)

    def found() -> list[tuple[str, str]]:
        document = json.loads(wrong.kfm("doctor", "--json").out)
        each = [one for one in document["checks"] if one["name"] == "incidents"]
        return [(one["state"], one["message"]) for one in each]

    assert ("ok", "email can be used") in found()
    wrong.env["MAIL_PASSWORD"] = "wrong-password"
    ((level, text),) = [one for one in found() if one[1].startswith("email")]
    assert level == "fail"
    assert "refused user or password (535)" in text
    assert "wrong-password" not in text
    assert mail.mails == []
