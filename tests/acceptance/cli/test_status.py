"""`kfm status`: the first line is the answer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kfm.cli.command_line import run_command_line
from kfm.cli.status_fast import quick_status, read_session
from kfm.model.breaker import Breaker
from kfm.model.incidents import Incident
from kfm.model.quarantine import Ahead
from kfm.model.runs import Backlog
from tests.acceptance.cli.conftest import Called
from tests.acceptance.cli.fakes import DAY_MS, NOW_MS, PROMOTION, FakeApp, make_lock, make_run, make_switch

Kfm = Callable[..., Called]
Valid = Callable[[str, Any], None]
INCIDENT = Incident(
    cause="sha256:" + "c" * 64,
    incident_id="ddc70641-3bfa-5000-8000-000000000000",
    about="dataset",
    name="levels",
    kind="dead-letter",
    error_class="timeout",
    error_code="KFM607",
    message="no answer",
    subject="run",
    state="open",
    occurrence=1,
    changes=1,
    affected=1,
    opened_at_ms=NOW_MS,
    last_at_ms=NOW_MS,
)


def first(called: Called) -> str:
    return called.out.splitlines()[0]


def test_nothing_has_run_yet(kfm: Kfm, project: Path) -> None:
    """Before the first run, with no state at all, status says what to do, and leaves no trace."""
    before = sorted(project.rglob("*"))
    assert first(kfm("status")) == "nothing has run yet: kfm run"
    assert [path for path in sorted(project.rglob("*")) if "cache" not in path.parts] == before


def test_all_clear(kfm: Kfm, app: FakeApp, valid: Valid) -> None:
    """With nothing in the way the first line is two words."""
    app.ledger.lists = {"runs": [make_run()], "heads": [PROMOTION], "projected": {("levels", "local"): 3}}
    assert first(kfm("status")) == "all clear"
    document = kfm("status", "--json").document
    valid("status", document)
    assert document["datasets"][0]["version"] == 3


@pytest.mark.req("TRG-7")
def test_all_is_not_clear_while_an_incident_is_open(kfm: Kfm, app: FakeApp, valid: Valid) -> None:
    """Its run may be under way again, or its source gone: until it is resolved, the first line names it."""
    app.ledger.lists = {
        "runs": [make_run()],
        "heads": [PROMOTION],
        "projected": {("levels", "local"): 3},
        "incidents": [INCIDENT],
    }
    line = first(kfm("status"))
    assert line.startswith("failing: warning: dataset levels: KFM607 (timeout), 1 run dead-lettered")
    assert f"kfm incident show {INCIDENT.incident_id[:13]}" in line
    document = kfm("status", "--json").document
    valid("status", document)
    assert document["headline"]["state"] == "failing"


@pytest.mark.req("UPD-15")
def test_events_that_wait_are_told(kfm: Kfm, app: FakeApp, valid: Valid) -> None:
    """A collector that is down is seen: how many events wait, since when, and what sends them."""
    app.ledger.waiting = Backlog(waiting=3, oldest_ms=NOW_MS)
    called = kfm("status")
    assert "not delivered yet:" in called.out
    assert "3 lineage events since 2" in called.out
    document = kfm("status", "--json").document
    valid("status", document)
    assert document["lineage"]["waiting"] == 3


@pytest.mark.req("TRG-1", "TRG-7")
def test_failed_work_has_a_line_of_its_own(kfm: Kfm, app: FakeApp, valid: Valid) -> None:
    """How much is held and since when; which run is tried next and when; each with its command."""
    app.ledger.failed = Ahead(
        held=2,
        held_since_ms=NOW_MS - DAY_MS,
        waiting=3,
        next_run_id="0123456789abcdef",
        next_dataset_id="levels",
        next_at_ms=NOW_MS + DAY_MS,
    )
    called = kfm("status")
    assert "2 quarantined, the oldest since" in called.out
    assert "`kfm quarantine list`" in called.out
    assert "of levels is tried again, due at" in called.out
    assert "2 more after it: `kfm retry --due`" in called.out
    document = kfm("status", "--json").document
    valid("status", document)
    assert (document["held"]["count"], document["next_retry"]["waiting"]) == (2, 3)
    app.ledger.failed = Ahead(held=1, held_since_ms=NOW_MS, waiting=1, next_run_id="01", next_at_ms=NOW_MS)
    assert "  1 quarantined, " in kfm("status").out
    assert "due since" in kfm("status").out


@pytest.mark.req("RET-7")
def test_a_provider_whose_circuit_is_open_is_named(kfm: Kfm, app: FakeApp, valid: Valid) -> None:
    """It is told before the failures that it causes: since when, until when, and how to end it."""
    breaker = Breaker(
        provider="my gauges",
        state="open",
        failures=4,
        opened_at_ms=NOW_MS - 1000,
        tripped_at_ms=NOW_MS - 400_000,
    )
    app.ledger.lists = {"runs": [make_run()], "breakers": [breaker, Breaker(provider="calm", failures=1)]}
    line = first(kfm("status"))
    said = "circuit of my gauges is open: 4 failures in a row, down since 2"
    assert line.startswith(f"blocked by a provider: {said}")
    assert line.endswith("`kfm breaker reset 'my gauges' --rationale TEXT`")
    document = kfm("status", "--json").document
    valid("status", document)
    assert [each["provider"] for each in document["breakers"]] == ["my gauges"]

    app.ledger.lists["breakers"] = [
        Breaker(provider="my gauges", tripped_at_ms=NOW_MS - 400_000, closed_at_ms=NOW_MS - 1000),
        Breaker(provider="long ago", tripped_at_ms=1, closed_at_ms=2),
    ]
    called = kfm("status")
    assert "blocked" not in first(called)
    assert "my gauges is called as usual; what waited comes back until" in called.out
    assert "long ago" not in called.out


@pytest.mark.req("GOV-1", "CLI-1")
def test_a_switch_is_the_first_line(kfm: Kfm, app: FakeApp, valid: Valid) -> None:
    """Blocked: by what, by whom, since when, and the command that lifts it."""
    app.ledger.lists = {"runs": [make_run(status="failed")], "switches": [make_switch()]}
    assert first(kfm("status")) == (
        "blocked by kill switch on dataset levels, paused by ana since 2026-01-01 23:59:00 UTC: "
        "the gauge is broken: an operator can lift it with "
        "`kfm switch set running --dataset levels --rationale TEXT`"
    )
    valid("status", kfm("status", "--json").document)


@pytest.mark.req("DAT-1")
def test_a_pause_on_purpose_does_not_hide_what_fails(kfm: Kfm, app: FakeApp, project: Path) -> None:
    """What fails comes before a pause of another dataset, and after an emergency stop."""
    text = (project / "kfm.yml").read_text()
    other = "  - {id: wells, domain: geology, rights: {license: CC0-1.0, care: {label: Public}}}\n"
    (project / "kfm.yml").write_text(text.replace("sources:\n", f"{other}sources:\n"))
    paused = [make_switch(scope="dataset:wells"), make_switch(scope="domain:geology")]
    app.ledger.lists = {"runs": [make_run(status="failed")], "switches": paused}
    assert first(kfm("status")).startswith("failing: dataset levels")
    app.ledger.lists = {"runs": [make_run()], "switches": paused}
    assert first(kfm("status")).startswith("blocked by kill switch on dataset wells")
    for scope, what in (("all", "everything"), ("domain:geology", "domain geology")):
        stopped = make_switch(scope=scope, position="stopped")
        app.ledger.lists = {"runs": [make_run(status="failed")], "switches": [paused[0], stopped]}
        assert first(kfm("status")).startswith(f"blocked by kill switch on {what}, stopped")


@pytest.mark.req("GOV-1")
def test_the_hardest_switch_is_named(kfm: Kfm, app: FakeApp) -> None:
    """An emergency stop comes before a pause, whatever was set first; a lifted one is not named."""
    app.ledger.lists = {
        "switches": [
            make_switch(set_at_ms=1),
            make_switch(scope="all", position="stopped", set_at_ms=2),
            make_switch(scope="domain:hydrology", position="running"),
        ]
    }
    assert first(kfm("status")).startswith("blocked by kill switch on everything, stopped by ana")
    assert "--all" in first(kfm("status"))


def test_a_freeze_is_named(kfm: Kfm, app: FakeApp, project: Path) -> None:
    """A freeze window that lasts now blocks; one of another time does not."""
    text = (project / "kfm.yml").read_text()
    (project / "kfm.yml").write_text(
        text + "freezes: [{start: 2026-01-01, end: 2026-01-03, reason: Holidays}]\n"
    )
    app.ledger.lists = {"runs": [make_run()]}
    assert first(kfm("status")).startswith(
        "blocked by a freeze window on dataset levels: Frozen from 2026-01-01"
    )
    assert "`kfm run --source daily --force --rationale TEXT --ticket ID`" in first(kfm("status"))
    (project / "kfm.yml").write_text(
        text + "freezes: [{start: 2027-01-01, end: 2027-01-03, reason: Holidays}]\n"
    )
    assert "freeze" not in first(kfm("status"))


def test_a_failing_dataset_is_named(kfm: Kfm, app: FakeApp, valid: Valid) -> None:
    """The last run failed: its code, its message, and the command to try."""
    app.ledger.lists = {
        "runs": [make_run(status="failed", error_code="KFM404", error_message="no route\x1b[2J to host")]
    }
    line = first(kfm("status"))
    assert "failing: dataset levels" in line
    retry = "kfm run --source daily --window 2026-01-01T00:00:00Z/2026-01-02T00:00:00Z"
    assert line.endswith(f"KFM404: no route [2J to host: try `{retry}`")
    assert "\x1b" not in line
    valid("status", kfm("status", "--json").document)


def test_an_older_window_that_failed_is_not_forgotten(kfm: Kfm, app: FakeApp, valid: Valid) -> None:
    """Each piece of work whose newest run failed is listed with the command that retries it."""
    spent = {"status": "failed", "error_code": "KFM303", "attempts": 99}
    older = make_run(run_id="aaaa-1", window_start_ms=0, window_end_ms=DAY_MS, start_time_ms=1, **spent)
    forced_since = make_run(run_id="bbbb-1", window_start_ms=DAY_MS, start_time_ms=2, **spent)
    success = make_run(run_id="bbbb-2", window_start_ms=DAY_MS, start_time_ms=3, revision=1)
    forgotten = make_run(run_id="cccc-1", source_id="gone", start_time_ms=4, **spent)
    app.ledger.lists = {
        "runs": [make_run(), forgotten, success, forced_since, older],
        "heads": [PROMOTION],
        "projected": {("levels", "local"): 3},
    }
    called = kfm("status")
    retry = (
        "kfm run --source daily --window 1970-01-01T00:00:00Z/1970-01-02T00:00:00Z "
        "--rationale TEXT --ticket ID"
    )
    assert first(called).startswith("failing: dataset levels, run aaaa-1 ended with KFM303")
    assert first(called).endswith(f"try `{retry}`")
    assert called.out.partition("needs attention:\n")[2].splitlines() == [
        "  aaaa-1  levels from daily, 1970-01-01 00:00 … 1970-01-02 00:00 UTC: KFM303, 99 attempts",
        "                 Its retry budget is used up; run it again with a rationale and a ticket: "
        f"`{retry}`.",
    ]
    document = kfm("status", "--json").document
    valid("status", document)
    assert [run["run_id"] for run in document["needs_attention"]] == ["aaaa-1"]


def test_the_list_of_failures_is_bounded(kfm: Kfm, app: FakeApp, valid: Valid) -> None:
    """However many there are, the newest are named and the others counted."""
    runs = [
        make_run(run_id=f"run-{n}", window_start_ms=-n, start_time_ms=NOW_MS - n, status="failed")
        for n in range(30)
    ]
    app.ledger.lists = {"runs": runs}
    document = kfm("status", "--json").document
    valid("status", document)
    assert [run["run_id"] for run in document["needs_attention"]] == [f"run-{n}" for n in range(20)]
    assert document["needs_attention_more"] == 10
    assert "… and 10 more: kfm runs --status failed" in kfm("status").out


def test_a_target_that_is_behind_is_named(kfm: Kfm, app: FakeApp, valid: Valid) -> None:
    """Promoted but not shown yet: which target, which version, and the command."""
    app.ledger.lists = {"runs": [make_run()], "heads": [PROMOTION], "projected": {("levels", "local"): 2}}
    called = kfm("status")
    assert (
        first(called) == "behind: target local does not show version 3 of dataset levels: try `kfm project`"
    )
    assert "levels on local: shows 2, promoted is 3" in called.out
    valid("status", kfm("status", "--json").document)


def test_running_work_and_its_lease(kfm: Kfm, app: FakeApp, valid: Valid) -> None:
    """Who holds what, and for how long still."""
    app.ledger.lists = {
        "runs": [make_run(status="running", end_time_ms=None, version_id=None)],
        "locks": [make_lock(), make_lock(scope="dataset:old", holder=None)],
    }
    called = kfm("status")
    assert "held by worker-1, lease ends in 42.0 s" in called.out
    assert "dataset:levels  fence 7" in called.out
    assert "dataset:old" not in called.out
    document = kfm("status", "--json").document
    valid("status", document)
    assert document["running"][0]["lease_left_ms"] == 42_000


def test_abandoned_work_is_called_so(kfm: Kfm, app: FakeApp) -> None:
    """A run that no process holds is taken over by the next one: status says so."""
    app.ledger.lists = {"runs": [make_run(status="running", end_time_ms=None)]}
    assert "held by no process: the next `kfm run` takes it over" in kfm("status").out
    app.ledger.lists["locks"] = [make_lock()]
    assert "held by worker-1" in kfm("status").out
    app.liveness.dead.add("worker-1")
    gone = kfm("status").out
    assert "held by no process: the next `kfm run` takes it over" in gone
    assert "lease lapsed" in gone


@pytest.mark.parametrize("arguments", [[], ["--json"], ["-c", "kfm.yml"], ["-c", "none.yml", "--json"]])
def test_the_short_way_says_the_same(
    app: FakeApp, project: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    """Status without the parser is status with it: same words, same exit code."""
    app.ledger.lists = {"runs": [make_run()], "switches": [make_switch()]}
    quick = quick_status(arguments)
    short = capsys.readouterr()
    full = run_command_line(["status", *arguments])
    long = capsys.readouterr()
    assert (quick, short.out, short.err) == (full, long.out, long.err)


@pytest.mark.parametrize(
    "arguments", [["-v"], ["-c"], ["-c", "--json"], ["--jso"], ["x"], ["--help"], ["-ojson"]]
)
def test_anything_else_goes_to_the_parser(arguments: list[str]) -> None:
    """The short way takes only what it surely understands."""
    assert read_session(arguments) is None
