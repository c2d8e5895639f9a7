"""Changes from the console: forms of the API's operations, each done once, by who may, from its own page."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

import click
import pytest

from kfm.cli.command_line import kfm
from kfm.web.api.operation_table import OPERATIONS
from kfm.web.console.actions import ACTIONS, BY_NAME
from tests.browser.filled import TOKENS, Filled
from tests.integration.web.console.reading import Parsed, Reader

REASON = "the provider has mended it"


@pytest.fixture(scope="module")
def acted(tmp_path_factory: pytest.TempPathFactory) -> Filled:
    """A project of its own: these tests change it."""
    return Filled(tmp_path_factory.mktemp("acted") / "project", people=True)


@pytest.fixture
def operator(acted: Filled) -> Reader:
    return _signed_in(acted, "ann")


def _signed_in(filled: Filled, who: str) -> Reader:
    reader = Reader(filled.context)
    reader.ask("sign-in", "POST", data={"token": TOKENS[who]})
    return reader


def _form(page: Parsed) -> dict[str, str]:
    """What a browser would send of the form of a change, as it is shown."""
    return {
        str(attrs["name"]): str(attrs.get("value") or "")
        for tag, attrs in page.tags
        if tag == "input" and attrs.get("name") and attrs.get("name") != "q"
    }


def _entries(filled: Filled, kind: str) -> list[Any]:
    with filled.context.reader() as ledger:
        return [one for one in ledger.governance(limit=500) if one.kind == kind]


def _paths(filled: Filled) -> Mapping[str, str]:
    """An address for each kind of subject that the project has."""
    with filled.context.reader() as ledger:
        incident = ledger.incidents(state="open", limit=1)[0].incident_id
        approval = ledger.approvals(state="requested", limit=1)[0].request_id
    return {
        "run_id": filled.failed_id,
        "dataset_id": "rivers",
        "schedule_id": filled.context.schedules[0].id,
        "held_id": filled.held_id,
        "incident_id": incident,
        "provider": "host:example.org",
        "scope": "dataset:rivers",
        "replay_id": filled.replay_id,
        "request_id": approval,
        "feed_id": "hrrr",
        "message": "d" * 64,
    }


def _address(filled: Filled, name: str) -> str:
    ids = dict(_paths(filled))
    operation = BY_NAME[name]
    if operation.path.startswith("/requests"):
        ids["request_id"] = filled.request_id
    wanted = {field: ids[field] for field in operation.fields}
    if name == "startUpdate":
        wanted["source"] = "gauges"
    return f"do/{name}?" + "&".join(f"{key}={value}" for key, value in wanted.items())


def test_every_change_of_the_api_is_a_form() -> None:
    """Whatever can be changed over the API can be changed from a page; what can't is named here."""
    changes = {operation.name for operation in OPERATIONS if operation.method == "POST"}
    assert changes - set(ACTIONS) == {
        "stand",
        "planReplay",
        "askForMissing",
    }  # plans have a page of their own


@pytest.mark.parametrize("name", sorted(ACTIONS))
@pytest.mark.req("GOV-3")
def test_a_form_says_what_will_happen_and_how_else_it_is_done(
    acted: Filled, operator: Reader, name: str
) -> None:
    """Effect, reason, the same as a command that the parser takes, and as a request."""
    page = operator.page(_address(acted, name))
    assert ACTIONS[name].effect in page.text
    commands = [text for text in page.commands() if text.startswith("kfm ")]
    assert commands
    _parse(commands[-1].replace("POSITION", "paused"))
    assert any(text.startswith("curl ") and "$KFM_TOKEN" in text for text in page.commands())
    for token in TOKENS.values():
        assert token not in page.text


def _parse(text: str) -> None:
    """A command line that the parser refuses raises; nothing is run."""
    words = shlex.split(text)[1:]
    command: Any = kfm
    with click.Context(kfm) as context:
        while isinstance(command, click.Group):
            name = words.pop(0)
            command = command.get_command(context, name)
            assert command is not None, text
        if "--digest" not in words and "--to VERSION" not in text:
            words += ["--to", "1"] if text.startswith("kfm rollback") and "--to" not in words else []
            words += (
                ["--from", "2026-01-01"]
                if text.startswith("kfm schedule backfill") and "--from" not in words
                else []
            )
        command.make_parser(context).parse_args(args=words)


@pytest.mark.req("GOV-3")
def test_a_change_is_made_once_however_often_the_form_is_sent(acted: Filled, operator: Reader) -> None:
    """Its receipt is the same, and the audit log has one entry, in the name of the session's person."""
    page = operator.page(_address(acted, "pauseSchedule"))
    form = _form(page) | {"rationale": REASON}
    before = len(_entries(acted, "schedule-paused"))
    first = operator.ask("do/pauseSchedule", "POST", data=form)
    second = operator.ask("do/pauseSchedule", "POST", data=form)
    assert (first.status_code, second.status_code) == (200, 200)
    assert "Pause: done." in Parsed(first.text).text
    entries = _entries(acted, "schedule-paused")
    assert len(entries) == before + 1
    assert (entries[0].actor, entries[0].rationale) == ("ann", REASON)
    again = operator.page(_address(acted, "resumeSchedule"))
    assert "paused" in again.text
    operator.ask("do/resumeSchedule", "POST", data=_form(again) | {"rationale": REASON})


@pytest.mark.parametrize("reason", ["", "TEXT", "…"])
def test_a_change_without_a_reason_is_not_made(acted: Filled, operator: Reader, reason: str) -> None:
    """What was typed stays in the form, with what is wrong."""
    form = _form(operator.page(_address(acted, "setSwitch"))) | {
        "rationale": reason,
        "position": "stopped",
        "ticket": "OPS-7",
    }
    answer = operator.ask("do/setSwitch", "POST", data=form)
    page = Parsed(answer.text)
    assert answer.status_code == 422
    assert "OPS-7" in answer.text
    assert [attrs for _, attrs in page.tags if attrs.get("role") == "alert"]
    with acted.context.reader() as ledger:
        assert not [one for one in ledger.switches() if one.scope == "dataset:rivers"]


@pytest.mark.parametrize(
    "headers", [{"Origin": "null"}, {"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}]
)
@pytest.mark.req("GOV-3")
def test_a_form_of_another_site_changes_nothing(
    acted: Filled, operator: Reader, headers: dict[str, str]
) -> None:
    """Not with the cookie of a person who may, and not from a page without an origin."""
    form = _form(operator.page(_address(acted, "setSwitch"))) | {"rationale": REASON, "position": "stopped"}
    answer = operator.ask("do/setSwitch", "POST", data=form, headers=headers)
    assert answer.status_code == 403
    with acted.context.reader() as ledger:
        assert not [one for one in ledger.switches() if one.scope == "dataset:rivers"]


@pytest.mark.req("GOV-3")
def test_who_may_only_read_sees_who_could(acted: Filled) -> None:
    """The form names the role and who has it; sent nevertheless, it is refused and on record."""
    reader = _signed_in(acted, "cy")
    page = reader.page(f"do/retryRun?run_id={acted.run_id}")
    assert "needs the role operate: ann" in page.text
    assert not [attrs for tag, attrs in page.tags if tag == "textarea"]
    form = {"run_id": acted.run_id, "rationale": REASON, "key": "k" * 20}
    answer = reader.ask("do/retryRun", "POST", data=form)
    assert answer.status_code == 403
    assert [one for one in _entries(acted, "role-refused") if one.actor == "cy"]


@pytest.mark.req("GOV-3")
def test_a_change_that_readers_will_see_is_previewed_and_its_name_is_typed(
    acted: Filled, operator: Reader
) -> None:
    """A withdrawal shows its plan first, and is made in exactly that form, once its name was typed."""
    page = operator.page("do/withdraw?dataset_id=rivers")
    form = _form(page) | {"rationale": REASON}
    assert form["digest"].startswith("sha256:")
    assert "version" in page.text
    untyped = operator.ask("do/withdraw", "POST", data=form | {"typed": "river"})
    assert untyped.status_code == 400
    drifted = operator.ask(
        "do/withdraw", "POST", data=form | {"typed": "rivers", "digest": "sha256:" + "0" * 64}
    )
    assert drifted.status_code == 409
    form |= {"key": _form(Parsed(drifted.text))["key"]}
    done = operator.ask("do/withdraw", "POST", data=form | {"typed": "rivers"})
    assert done.status_code == 200, Parsed(done.text).text
    assert "Withdraw: done." in Parsed(done.text).text
    lifted = operator.page("do/lift?dataset_id=rivers")
    assert _form(lifted)["digest"].startswith("sha256:")


@pytest.mark.parametrize(
    "path",
    [
        "do/nothing",
        "do/retryRun",
        "do/retryRun?run_id=%00",
        "do/retryRun?run_id=0123456789ab",
        "do/pauseSchedule?schedule_id=x",
    ],
)
def test_forms_of_nothing_are_not_there(operator: Reader, path: str) -> None:
    """An address without a subject, or of one that is not on record, is a page that says so."""
    operator.page(path, 404)


def test_pages_offer_what_can_be_done_about_them(acted: Filled, operator: Reader) -> None:
    """Of a run its next step, and no other change; a schedule is paused, a dataset run."""
    run = operator.page(f"runs/{acted.failed_id}")
    assert "Its release was requested; another person approves it" in run.text
    assert "Approve needs the role approve: root" in run.text
    assert not [link for link in run.links() if "/console/do/" in link]
    offered = " ".join(operator.page("datasets/wells").links())
    for name in ("startUpdate", "setSwitch", "silenceDataset"):
        assert f"/console/do/{name}?" in offered
    schedule = acted.context.schedules[0].id
    assert "/console/do/backfillSchedule?" in " ".join(operator.page(f"schedules/{schedule}").links())
    assert "/console/do/" in " ".join(operator.page("").links())
