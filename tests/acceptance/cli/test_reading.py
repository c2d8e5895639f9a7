"""`runs`, `show`, `explain`, `switch`, `project`: what was, what is, and why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from kfm.model.errors import TargetUnavailable, all_errors
from kfm.model.records import GateResult, GovernanceEntry
from kfm.runs.kernel import ProjectionReport
from tests.acceptance.cli.conftest import Called
from tests.acceptance.cli.fakes import (
    NOW_MS,
    PROMOTION,
    RUN_ID,
    VERSION_ID,
    FakeApp,
    make_call,
    make_run,
    make_switch,
)

Kfm = Callable[..., Called]
Valid = Callable[[str, Any], None]


def test_runs(kfm: Kfm, app: FakeApp, valid: Valid) -> None:
    """A table for people, the same as JSON, one a line as JSON Lines."""
    other = make_run(
        run_id="ffff",
        source_id="hourly",
        status="failed",
        error_code="KFM404",
        end_time_ms=None,
        revision=2,
        attempts=3,
    )
    app.ledger.lists = {"runs": [make_run(), other]}
    called = kfm("runs")
    header, first, second = (line.split("  ") for line in called.out.splitlines())
    assert [cell.strip() for cell in header if cell.strip()] == (
        [
            "STARTED (UTC)",
            "STATUS",
            "DATASET",
            "SOURCE",
            "WINDOW (UTC)",
            "REV",
            "TRY",
            "TOOK",
            "ERROR",
            "RUN ID",
        ]
    )
    assert [cell.strip() for cell in first if cell.strip()] == [
        *("2026-01-02 00:00:00", "published", "levels", "daily", "2026-01-01 00:00 … 2026-01-02 00:00"),
        *("0", "1", "1.5 s", "-", RUN_ID[:13]),
    ]
    assert [cell.strip() for cell in second if cell.strip()][5:] == ["2", "3", "-", "KFM404", "ffff"]
    document = kfm("runs", "--json").document
    valid("runs", document)
    lines = kfm("runs", "-o", "jsonl").out.splitlines()
    assert [msgspec.json.decode(line) for line in lines] == document["runs"]


def test_runs_can_be_chosen(kfm: Kfm, app: FakeApp) -> None:
    """Filters reach the ledger; what is cut off is said."""
    app.ledger.lists = {
        "runs": [make_run(run_id=f"run-{n}", status="failed") for n in range(5)] + [make_run()]
    }
    document = kfm("runs", "--status", "failed", "--limit", "2", "--json").document
    assert [run["run_id"] for run in document["runs"]] == ["run-0", "run-1"]
    assert document["more"]
    assert (
        kfm("runs", "--status", "failed", "--limit", "2").err
        == "more runs are not shown: use --limit (now 2)\n"
    )
    for stored_or_shown in ("success", "published"):
        (one,) = kfm("runs", "--status", stored_or_shown, "--json").document["runs"]
        assert (one["run_id"], one["status"]) == (RUN_ID, "success")
    assert kfm("runs", "--status", "refused").out == "no runs\n"
    nothing = kfm("runs", "--dataset", "level")
    assert nothing.out == "no runs\n"
    assert nothing.err == "the configuration has no dataset `level`; did you mean `levels`?\n"


def test_show(kfm: Kfm, app: FakeApp, valid: Valid) -> None:
    """A run is found by the beginning of its id and shown with its calls and its promotion."""
    refused = make_call(
        invocation_id="call-2",
        outcome="refused",
        claimed_actor="ben",
        reason="frozen",
        gates=(
            GateResult(gate="switch", allowed=False, reason="Paused."),
            GateResult(gate="freeze", allowed=False, reason="Frozen.", overridable=True),
        ),
    )
    app.ledger.lists = {"runs": [make_run()], "invocations": [make_call(), refused], "heads": [PROMOTION]}
    called = kfm("show", RUN_ID[:6])
    assert "refused  by ana for ben: frozen" in called.out
    assert "gate freeze refused: Frozen." in called.out
    assert "gate switch" not in called.out  # the call's reason tells of the first
    assert "version 3 at 2026-01-02 00:00:01 UTC" in called.out
    assert "window            2026-01-01 00:00 … 2026-01-02 00:00 UTC" in called.out
    assert VERSION_ID not in called.out
    valid("show", kfm("show", RUN_ID, "--json").document)


def test_a_run_that_is_not_clear(kfm: Kfm, app: FakeApp) -> None:
    """An id that fits several runs, or none, is an error with a way out."""
    app.ledger.lists = {"runs": [make_run(run_id="abcd-1"), make_run(run_id="abcd-2")]}
    assert "Several runs begin with `abcd`: abcd-1, abcd-2." in kfm("show", "abcd").err
    assert "There is no run `nope`." in kfm("show", "nope").err
    short = kfm("show", "ab")
    assert short.code == 2
    assert "`ab` is too short for a run: give at least 4 characters of its id." in short.err
    code = kfm("explain", "307")
    assert "give at least 4 characters" in code.err
    assert "fix: For the error code: `kfm explain KFM307`." in code.err


@pytest.mark.req("CLI-1")
@pytest.mark.parametrize("code", [error.code for error in all_errors()])
def test_every_error_is_explained(kfm: Kfm, valid: Valid, code: str) -> None:
    """Each code has a page with a message and a way out, also in small letters."""
    page = kfm("explain", code, "--json").document
    valid("explain", page)
    assert page["code"] == code
    assert page["message"]
    assert page["remedy"]
    assert page["message"] in kfm("explain", code.lower()).out


def test_a_run_is_explained_from_the_records(kfm: Kfm, app: FakeApp, valid: Valid) -> None:
    """Every sentence comes from a record; what is not recorded is said to be so."""
    failed = make_run(
        status="failed",
        error_code="KFM404",
        error_message="no route",
        version_id=None,
        attempts=2,
        correction="c-1",
    )
    forced = make_call(
        claimed_actor="ben",
        outcome="failed",
        reason="no route",
        gates=(
            GateResult(gate="freeze", allowed=False, reason="Frozen.", overridable=True, overridden=True),
        ),
    )
    entry = GovernanceEntry(
        kind="force", subject=RUN_ID, actor="ana", recorded_at_ms=NOW_MS, rationale="urgent"
    )
    app.ledger.lists = {"runs": [failed], "invocations": [forced], "governance": [entry]}
    sentences = kfm("explain", RUN_ID).out.splitlines()
    command = "kfm run --source daily --window 2026-01-01T00:00:00Z/2026-01-02T00:00:00Z"
    assert sentences[0] == (
        f"Run {RUN_ID} failed: KFM404: no route. Next: Run the same work again: `{command}`. "
        f"[run:{RUN_ID[:13]}]"
    )
    assert any("its row counts 2 attempts" in line for line in sentences)
    assert f"It is correction c-1. [run:{RUN_ID[:13]}]" in sentences
    assert (
        "At 2026-01-02 00:00:00 UTC ana, for ben asked for it, and it failed: no route. [invocation:call-1]"
        in sentences
    )
    assert "A force passed gate freeze: Frozen. [invocation:call-1]" in sentences
    assert "ana forced it at 2026-01-02 00:00:00 UTC because: urgent. [governance:7]" in sentences
    assert sentences[-1].startswith("`kfm explain KFM404` says more about the error.")
    valid("explain", kfm("explain", RUN_ID, "--json").document)
    app.ledger.lists = {"runs": [make_run()]}
    said = kfm("explain", RUN_ID).out
    assert "No evidence of a promotion" in said
    assert "No evidence of an invocation that asked for it." in said


def test_the_account_says_what_became_of_each_call(kfm: Kfm, app: FakeApp) -> None:
    """Why it ran, or why it did not; the same again is told once, and a gate is not told twice."""
    refused = {
        "outcome": "refused",
        "reason": "A gate refused this. Frozen.",
        "gates": (GateResult(gate="freeze", allowed=False, reason="Frozen."),),
    }
    calls = [
        make_call(invocation_id="1", requested_at_ms=NOW_MS, **refused),
        make_call(invocation_id="2", requested_at_ms=NOW_MS + 60_000, **refused),
        make_call(invocation_id="3", requested_at_ms=NOW_MS + 120_000, **refused),
        make_call(
            invocation_id="4",
            requested_at_ms=NOW_MS + 180_000,
            reason="Attempt 1 failed with WORKER_DIED.",
            rationale="urgent",
            ticket="T-1",
        ),
        make_call(invocation_id="5", requested_at_ms=NOW_MS + 240_000, outcome="noop", reason="Unchanged."),
        make_call(invocation_id="6", requested_at_ms=NOW_MS + 300_000, outcome=None, reason=None),
    ]
    app.ledger.lists = {"runs": [make_run()], "invocations": calls, "heads": [PROMOTION]}
    said = [line.rpartition(" [")[0] for line in kfm("explain", RUN_ID).out.splitlines()]
    assert [line for line in said if line.startswith("At ") or " the same, last " in line] == [
        "At 2026-01-02 00:00:00 UTC ana asked for it, and was refused: A gate refused this. Frozen.",
        "2 more times the same, last at 2026-01-02 00:02:00 UTC.",
        "At 2026-01-02 00:03:00 UTC ana (rationale: urgent, ticket T-1) asked for it, and it was published. "
        "Why it ran: Attempt 1 failed with WORKER_DIED.",
        "At 2026-01-02 00:04:00 UTC ana asked for it, and it was unchanged: Unchanged.",
        "At 2026-01-02 00:05:00 UTC ana asked for it, and how that ended is not recorded.",
    ]
    assert said.count("Gate freeze refused it: Frozen.") == 1
    assert "It was promoted as version 3 at 2026-01-02 00:00:01 UTC." in said


@pytest.mark.req("GOV-1")
@pytest.mark.parametrize(
    ("chosen", "scope"),
    [
        (["--all"], "all"),
        (["--dataset", "levels"], "dataset:levels"),
        (["--domain", "hydrology"], "domain:hydrology"),
    ],
)
@pytest.mark.parametrize("position", ["running", "paused", "stopped"])
def test_switches_have_three_positions_and_three_scopes(
    kfm: Kfm, app: FakeApp, valid: Valid, chosen: list[str], scope: str, position: str
) -> None:
    """Each is set with a rationale, and the answer says what it means."""
    called = kfm("switch", "set", position, *chosen, "--rationale", "because", "--json")
    assert called.code == 0
    assert app.switched == [(scope, position)]
    valid("switch-set", called.document)


@pytest.mark.req("GOV-1", "GOV-3")
@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["running", "--all"], 3, "KFM304"),
        (["running", "--all", "--rationale", "  "], 3, "KFM304"),
        (["paused", "--rationale", "x"], 2, "one of --dataset ID, --domain ID, --all"),
        (["paused", "--all", "--dataset", "levels", "--rationale", "x"], 2, "one of --dataset ID"),
        (
            ["paused", "--dataset", "level", "--rationale", "x"],
            2,
            "There is no dataset `level`; did you mean `levels`?",
        ),
        (["halted", "--all", "--rationale", "x"], 2, "halted"),
    ],
)
def test_a_switch_is_not_set_by_accident(
    kfm: Kfm, app: FakeApp, arguments: list[str], code: int, sentence: str
) -> None:
    """No rationale, no scope, two scopes, an unknown one: nothing is switched."""
    called = kfm("switch", "set", *arguments)
    assert called.code == code
    assert sentence in called.err
    assert app.switched == []


def test_switches_are_listed(kfm: Kfm, app: FakeApp, valid: Valid) -> None:
    """Scope, position, since when, by whom and why."""
    assert kfm("switch", "list").out == "no switch was ever set: everything may run\n"
    app.ledger.lists = {"switches": [make_switch()]}
    assert (
        "dataset:levels  paused    2026-01-01 23:59:00 UTC  ana  the gauge is broken"
        in kfm("switch", "list").out
    )
    valid("switch-list", kfm("switch", "list", "--json").document)


def test_project(kfm: Kfm, app: FakeApp, valid: Valid) -> None:
    """Each target is told of; one that fails makes the exit code 4."""
    assert kfm("project").out == "nothing is promoted yet\n"
    assert kfm("project", "--json").document["projections"] == []
    app.projection_reports = [
        ProjectionReport(dataset_id="levels", target="local", sequence=3),
        ProjectionReport(
            dataset_id="levels", target="s3", sequence=None, error=TargetUnavailable("s3: gone").as_document()
        ),
    ]
    called = kfm("project")
    assert called.code == 4
    assert called.out == "shown     levels  local  version 3\nfailed    levels  s3\n"
    assert "error KFM406" in called.err
    valid("project", kfm("project", "--json").document)
