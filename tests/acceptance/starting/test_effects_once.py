"""Effects on the outside after kill -9: never a second one without a person."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.acceptance.starting.conftest import BY_A_PERSON, Starter, Starting, make_due
from tests.crash.project import WINDOW

pytestmark = pytest.mark.req("RET-6")

# How a source says that its work must not be repeated, and how its pipeline then acts.
KINDS = {"source": ("idempotent: false", "act"), "call": ("", "mail")}


@pytest.fixture(params=sorted(KINDS))
def acting(request: pytest.FixtureRequest, project: Starting) -> str:
    """The word for the effect of a pipeline that must not be repeated: as a whole, or one call of it."""
    more, word = KINDS[request.param]
    project.set_up(more)
    return word


def kill_after_the_effect(project: Starting, word: str, *command: str) -> None:
    project.mode(word, "die")
    project.killed(*command)
    assert len(project.effects) == 1
    project.mode(word)


def killed_by_webhook(project: Starting, word: str) -> str:
    request = project.hook("first")
    kill_after_the_effect(project, word, "schedule", "run-due")
    return request


def killed_by_hand(project: Starting, word: str) -> None:
    kill_after_the_effect(project, word, "run", "--source", "notes", "--window", WINDOW)


def look_again(project: Starting, command: tuple[str, ...] = ("schedule", "run-due")) -> None:
    """The next runner; its first round may only judge what the dead process left."""
    for _ in range(2):
        make_due(project)
        project.kfm(*command)


def test_its_request_does_not_repeat_it(project: Starting, starter: Starter) -> None:
    """A webhook, a scheduled time or arrivals whose runner was killed after the effect of a source with
    `idempotent: false`: the next runner acts no more, and the request ends as refused."""
    project.set_up("idempotent: false")
    starter.ask(1)
    kill_after_the_effect(project, "act", *starter.command)
    look_again(project, starter.command)
    assert len(project.effects) == 1
    assert starter.request().ended == ("done", "failed")
    assert project.promoted == []


def test_its_request_does_not_repeat_a_call(project: Starting, starter: Starter) -> None:
    """The same for one `kfm.call(idempotent=False)` of a pipeline that may else be repeated."""
    starter.ask(1)
    kill_after_the_effect(project, "mail", *starter.command)
    look_again(project, starter.command)
    assert len(project.effects) == 1
    assert starter.request().ended == ("done", "failed")
    assert project.promoted == []


def retry_due(project: Starting) -> None:
    look_again(project, ("retry", "--due"))


def next_webhook(project: Starting) -> None:
    project.hook("second")
    look_again(project)


def next_arrival(project: Starting) -> None:
    project.announce(1)
    look_again(project, ("worker", "--until-idle"))


def run_without_terminal(project: Starting) -> None:
    project.run("--source", "notes")
    project.run("--source", "notes")


@pytest.mark.parametrize("machine", [retry_due, next_webhook, next_arrival, run_without_terminal])
def test_no_other_machine_repeats_it(
    project: Starting, acting: str, machine: Callable[[Starting], None]
) -> None:
    """Whatever asks for the work of a killed run that has acted, nothing acts a second time."""
    killed_by_hand(project, acting)
    machine(project)
    assert len(project.effects) == 1
    assert project.promoted == []


def test_a_machine_is_refused(project: Starting, acting: str) -> None:
    """`kfm run` without a terminal, and a webhook, are told that a person has to look."""
    killed_by_hand(project, acting)
    look_again(project)
    ended = project.run("--source", "notes")
    assert ended.code == 3, ended
    request = project.hook("second")
    project.work_off()
    assert project.request(request).ended == ("done", "refused")


@pytest.mark.req("TRG-7")
def test_a_person_is_told(project: Starting, acting: str) -> None:
    """What may have acted is quarantined, with an incident."""
    request = killed_by_webhook(project, acting)
    look_again(project)
    assert project.request(request).ended == ("done", "failed")
    ((run_id,),) = project.rows("SELECT run_id FROM runs")
    assert project.rows("SELECT subject FROM held WHERE state = 'held'") == [(run_id,)]
    assert project.rows("SELECT count(*) FROM incidents WHERE state = 'open'") == [(1,)]
    assert len(project.effects) == 1


@pytest.mark.req("GOV-3")
def test_a_person_may_repeat_it(project: Starting, acting: str) -> None:
    """`kfm run --now --rationale` goes on, and the reason is kept."""
    killed_by_webhook(project, acting)
    look_again(project)
    assert len(project.effects) == 1
    ended = project.run("--source", "notes", *BY_A_PERSON)
    assert ended.code == 0, ended
    assert (len(project.effects), len(project.promoted)) == (2, 1)
    assert (BY_A_PERSON[-1],) in project.rows("SELECT rationale FROM invocations")


@pytest.mark.req("GOV-3")
@pytest.mark.usefixtures("terminal")
def test_at_a_terminal_it_takes_a_reason(project: Starting, acting: str) -> None:
    """A person who does not say why is refused; one who does goes on."""
    killed_by_hand(project, acting)
    refused = project.run("--source", "notes")
    assert refused.code == 3, refused
    assert len(project.effects) == 1
    ended = project.run("--source", "notes", "--rationale", "the mail was not sent")
    assert ended.code == 0, ended
    assert (len(project.effects), len(project.promoted)) == (2, 1)


def test_the_intent_is_durable_before_the_effect(project: Starting, acting: str) -> None:
    """At the moment of the effect, another connection to the ledger reads what is about to be done."""
    project.mode(acting)
    ended = project.run("--source", "notes")
    assert ended.code == 0, ended
    assert project.effects == ["1"]


def test_before_its_first_effect_it_is_retried(project: Starting) -> None:
    """A run that was killed before its `kfm.call(idempotent=False)` has not acted: it is tried again."""
    project.mode("die")
    project.killed("run", "--source", "notes", "--window", WINDOW)
    project.mode("mail")
    retry_due(project)
    assert (len(project.effects), len(project.promoted)) == (1, 1)
