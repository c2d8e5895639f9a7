"""Retries of runs that a message began: as complete as a first attempt, and one does not stop the others."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.acceptance.starting.conftest import SECONDS_MAX, Starter, Starting, make_due
from tests.crash.project import Ended, finish

Valid = Callable[[str, Any], None]


@pytest.fixture(params=["webhook", "upstream-event"])
def failed(request: pytest.FixtureRequest, project: Starting) -> Starter:
    """A run that a message began, and whose first attempt failed with what may pass."""
    from tests.acceptance.starting.conftest import STARTERS

    starter = STARTERS[request.param](project)
    project.mode("slow")
    starter.ask(1)
    starter.work_off()
    assert project.attempts() == [("failed", 1)]
    project.mode()
    make_due(project)
    return starter


def run_id(project: Starting) -> str:
    ((only,),) = project.rows("SELECT run_id FROM runs")
    return str(only)


def due(project: Starting) -> Ended:
    return project.retry_due()


def by_id(project: Starting) -> Ended:
    return project.kfm("retry", run_id(project), "--json")


def document(project: Starting, attempt: int) -> dict[str, Any]:
    """What an attempt has left of its keys."""
    path = project.state / "runs" / run_id(project) / f"attempt-{attempt}" / "idempotency.json"
    assert path.exists(), f"attempt {attempt} left no idempotency.json"
    found: dict[str, Any] = json.loads(path.read_bytes())
    return found


def triggers(project: Starting) -> list[dict[str, Any]]:
    """What lineage has of the trigger, by attempt."""
    shown = project.kfm("lineage", "show", run_id(project), "--events", "--json").document
    return [
        event["run"]["facets"]["kfmTrigger"]
        for event in shown
        if event["eventType"] == "START" and "kfmTrigger" in event["run"]["facets"]
    ]


@pytest.mark.req("TRG-1")
@pytest.mark.parametrize("retried", [due, by_id])
def test_a_retry_that_publishes_says_so(
    project: Starting, failed: Starter, retried: Callable[[Starting], Ended]
) -> None:
    """Exit code 0, one result, published."""
    ended = retried(project)
    assert project.attempts() == [("success", 2)]
    assert ended.code == 0, ended
    assert ended.result["word"] == "published"


@pytest.mark.req("UPD-11", "TRG-8")
@pytest.mark.parametrize("retried", [due, by_id])
def test_a_retry_leaves_its_keys(
    project: Starting, failed: Starter, retried: Callable[[Starting], Ended], valid: Valid
) -> None:
    """idempotency.json is there, valid, and its trigger is the message that asked."""
    retried(project)
    first, second = document(project, 1), document(project, 2)
    valid("idempotency", second)
    assert second["key_documents"]["trigger"] == first["key_documents"]["trigger"]
    assert second["idempotency_key"] == first["idempotency_key"]


@pytest.mark.req("TRG-5")
def test_lineage_keeps_the_facts_of_the_trigger(project: Starting, failed: Starter) -> None:
    """The attempt that succeeds tells as much of what asked as the first one did."""
    due(project)
    assert project.attempts() == [("success", 2)]
    first, second = triggers(project)
    facts = first.keys() - {"type"}
    assert {name: second.get(name) for name in facts} == {name: first[name] for name in facts}


@pytest.mark.req("TRG-1")
def test_one_retry_does_not_stop_the_others(project: Starting) -> None:
    """`kfm retry --due` goes on to what else is due."""
    project.mode("slow")
    for source in ("notes", "other"):
        project.hook(f"of-{source}", source)
        project.work_off()
    assert project.attempts() == [("failed", 1)] * 2
    project.mode()
    make_due(project)
    ended = project.retry_due()
    assert project.attempts() == [("success", 2)] * 2
    assert (ended.code, [one["word"] for one in ended.document["results"]]) == (0, ["published"] * 2)


@pytest.mark.req("TRG-1")
def test_who_watches_goes_on(project: Starting, failed: Starter) -> None:
    """`kfm retry --due --watch` outlives a message's retry, and ends well when it is stopped."""
    watching = project.start("retry", "--due", "--watch")
    ends = time.monotonic() + SECONDS_MAX
    while project.attempts() != [("success", 2)]:
        assert time.monotonic() < ends, "nothing was retried"
        time.sleep(0.01)
    folder = project.state / "runs" / run_id(project) / "attempt-2"
    while not (folder / "idempotency.json").exists() and watching.poll() is None:
        assert time.monotonic() < ends, "its attempt has no end"
        time.sleep(0.01)
    watching.send_signal(signal.SIGTERM)
    ended = finish(watching, SECONDS_MAX)
    assert ended.code == 0, ended
