"""`kfm explain`: the first line is what blocks it now, who can lift that, and the command."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from kfm.db.ledger import Ledger
from kfm.model.breaker import Breaker
from kfm.system import SystemClock
from tests.acceptance.runs.conftest import Inside
from tests.acceptance.runs.test_governance import PUBLISH_FORBIDDEN
from tests.conformance.db.ledgers import sqlite_store

pytestmark = pytest.mark.req("RS-12")

SCHEDULES = "schedules:\n  - {id: nightly, source: notes, cron: '0 3 * * *'}\n"
WHY = ("--rationale", "the gauge lies")


@contextmanager
def ledger(project: Inside) -> Iterator[Ledger]:
    with closing(sqlite_store(str(project.folder / ".kfm" / "kfm.db"), SystemClock())) as store:
        yield store


def first_line(project: Inside, wanted: str) -> str:
    explained = project.kfm("explain", wanted)
    assert explained.code == 0, explained
    return explained.out.splitlines()[0]


def open_circuit(project: Inside, provider: str) -> None:
    """As three failures in a row would."""
    with ledger(project) as store:
        now_ms = store.now_ms()

        def opened(_seen: Breaker, _now_ms: int) -> Breaker:
            return Breaker(
                provider=provider, state="open", failures=3, opened_at_ms=now_ms, tripped_at_ms=now_ms
            )

        store.change_breaker(provider, opened)


def test_a_dataset_that_is_paused_begins_with_the_pause(project: Inside) -> None:
    """Not with its last publication, however long ago that was; its source says the same."""
    project.run()
    project.kfm("switch", "set", "paused", "--dataset", "levels", *WHY)
    for wanted in ("levels", "notes"):
        line = first_line(project, wanted)
        assert "is blocked by kill switch on dataset levels, paused by" in line
        assert "the gauge lies" in line
        assert "an operator: `kfm switch set running --dataset levels --rationale TEXT`" in line
    lines = project.kfm("explain", "levels").out.splitlines()
    assert "published version 1" in lines[1]
    project.kfm("switch", "set", "running", "--dataset", "levels", *WHY)
    assert "published version 1" in first_line(project, "levels")


@pytest.mark.req("RET-7")
def test_an_open_circuit_is_named_as_the_blocker(project: Inside) -> None:
    """Of a dataset, of its source, of the provider itself and of its incident; the command closes it."""
    source = '{id: notes, dataset: levels, kind: http, url: "http://127.0.0.1:9/x.csv", provider: gauges}'
    project.run()
    project.configure(source=source)
    open_circuit(project, "gauges")
    for wanted in ("levels", "notes", "gauges", "provider:gauges"):
        line = first_line(project, wanted)
        assert "3 failures in a row" in line
        assert "it is probed by itself; an operator can close it: `kfm breaker reset gauges" in line
    other = f"{source}\n  - {{id: beside, dataset: levels, kind: files, folder: incoming}}"
    project.configure(source=other)
    assert "3 failures in a row" not in first_line(project, "beside")
    (incident,) = project.kfm("incident", "list", "--json").document["incidents"]
    assert "kfm breaker reset gauges" in first_line(project, incident["incident_id"][:8])
    assert project.kfm("breaker", "reset", "gauges", *WHY).code == 0
    assert "is called as usual" in first_line(project, "gauges")
    assert "is resolved since" in first_line(project, incident["incident_id"][:8])


@pytest.mark.req("UPD-13")
def test_a_schedule_says_what_it_waits_for(project: Inside) -> None:
    """Its next time, its pause, or what blocks its dataset; with who can change that and how."""
    project.write("cron.yml", SCHEDULES)
    project.run()
    assert "has not been looked at yet: start `kfm serve`" in first_line(project, "nightly")
    project.kfm("schedule", "run-due")
    assert "waits for its next scheduled time" in first_line(project, "schedule:nightly")
    project.kfm("schedule", "pause", "nightly", *WHY)
    line = first_line(project, "nightly")
    assert "is paused since" in line
    assert "the gauge lies" in line
    assert "an operator: `kfm schedule resume nightly --rationale TEXT`" in line
    project.kfm("schedule", "resume", "nightly", *WHY)
    project.kfm("switch", "set", "stopped", "--all", *WHY)
    assert "`kfm switch set running --all --rationale TEXT`" in first_line(project, "nightly")
    project.write("cron.yml", SCHEDULES.replace("id: nightly", "id: nightly, enabled: false"))
    assert "is disabled" in first_line(project, "nightly")


def test_an_incident_names_the_next_step_of_its_run(wrong: Inside) -> None:
    """What is open is told with what it needs; what is not known is refused."""
    wrong.run()
    (incident,) = wrong.kfm("incident", "list", "--json").document["incidents"]
    line = first_line(wrong, incident["incident_id"])
    assert "is open: error: dataset levels" in line
    assert "It is resolved once its window succeeds. Next: " in line
    assert wrong.kfm("explain", "schedule:none").code == 2


@pytest.mark.req("GOV-3")
def test_an_approval_is_explained_in_each_state(project: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting, with who may give it; rejected, with the reason. A second request is the first."""
    project.configure(rights="{license: CC0-1.0, care: {label: Burials, level: restricted}}")
    ask = ("approvals", "request", "--source", "notes", "--window", "2026-01-01/P1D", *WHY, "--json")
    request = project.kfm(*ask).document["request"]
    again = project.kfm(*ask)
    assert again.document["request"] == request
    assert "the same was requested at" in again.err
    assert len(project.rows("SELECT * FROM approvals")) == 1
    line = first_line(project, request["request_id"][:13])
    assert f"another person than {request['requested_by']}" in line
    assert f"`kfm approvals approve {request['request_id']} --rationale TEXT`" in line
    monkeypatch.setattr("kfm.config.loader.actor", lambda: "bob")
    assert project.kfm("approvals", "reject", request["request_id"], "--rationale", "not now").code == 0
    assert "was rejected by bob at" in first_line(project, request["request_id"])
    assert project.kfm(*ask).document["request"]["request_id"] != request["request_id"]


@pytest.mark.req("UPD-9")
def test_a_halt_comes_before_the_pause_that_it_set(project: Inside) -> None:
    """Lifting the pause alone starts nothing, so it is not offered; nor are attempts called free."""
    project.write("own.cedar", PUBLISH_FORBIDDEN)
    project.configure(more="policies: [own.cedar]")
    halted = project.kfm("run")
    assert "KFM302" in halted.err
    assert "attempts are free" not in halted.err
    assert "no attempt begins before a second person has approved its release" in halted.err
    headline = project.kfm("status").out.splitlines()[0]
    assert "halt of dataset levels for review" in headline
    assert "kfm quarantine resume" in project.kfm("status").out
    assert "halt of dataset levels for review" in first_line(project, "levels")
