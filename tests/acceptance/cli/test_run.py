"""`kfm run` and `kfm diff`: one line a source, one exit code."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kfm.config import loader
from kfm.lineage.delivery import Delivered
from kfm.model.errors import (
    Busy,
    Cancelled,
    ConfigError,
    GateDenied,
    TargetUnavailable,
    UpstreamUnavailable,
    WorkFailed,
)
from kfm.model.gates import combine, contract_gate, refusal
from kfm.model.records import Check, ValidationReport
from kfm.runs.kernel import ProjectionReport
from tests.acceptance.cli.conftest import Called
from tests.acceptance.cli.fakes import RUN_ID, FakeApp, make_run

Kfm = Callable[..., Called]
Valid = Callable[[str, Any], None]
REFUSED = {"outcome": "refused", "word": "blocked", "run": None, "sequence": None, "version_id": None}


def test_one_line_a_source(kfm: Kfm, app: FakeApp, valid: Valid) -> None:
    """Word, dataset, window in UTC, version, run and duration; every source that is in no sync."""
    called = kfm("run")
    assert called.code == 0
    assert called.out.splitlines() == [
        "published  levels from daily   2026-01-01 00:00 … 2026-01-02 00:00 UTC  "
        "version 3     run 0a1b2c3d-0000  1.5 s",
        "published  levels from hourly  2026-01-01 00:00 … 2026-01-02 00:00 UTC  "
        "version 3     run 0a1b2c3d-0000  1.5 s",
    ]
    assert called.err == ""
    assert kfm("run", "--source", "daily").out == (
        "published  levels  2026-01-01 00:00 … 2026-01-02 00:00 UTC  version 3  run 0a1b2c3d-0000  1.5 s\n"
    )
    app.requests = app.requests[:2]
    assert [request.source_id for request in app.requests] == ["daily", "hourly"]
    document = kfm("run", "--json").document
    valid("run", document)
    assert document["results"][0]["word"] == "published"


def test_json_lines(kfm: Kfm, app: FakeApp, valid: Valid) -> None:
    """One result on each line, as soon as it is known."""
    lines = kfm("run", "-o", "jsonl").out.splitlines()
    results = [msgspec.json.decode(line) for line in lines]
    valid("run", {"results": results, "exit_code": 0})
    assert [result["source_id"] for result in results] == ["daily", "hourly"]


@pytest.mark.req("UPD-1")
def test_every_flag_reaches_the_engine(kfm: Kfm, app: FakeApp) -> None:
    """What was asked is what is requested; the actor is the account, a claim stands beside it."""
    kfm(
        *(
            "run",
            "--source",
            "daily",
            "--window",
            "P7D",
            "--force",
            "--correction",
            "c-1",
            "--artifacts",
            "out",
        ),
        *("--actor", "ana", "--rationale", "the gauge was wrong", "--ticket", "T-1", "--verbose"),
    )
    (request,) = app.requests
    assert request.window_spec == "P7D"
    assert request.force
    assert request.correction == "c-1"
    assert request.artifacts_dir == "out"
    assert request.actor == loader.actor()
    assert request.claimed_actor == "ana"
    assert (request.rationale, request.ticket) == ("the gauge was wrong", "T-1")
    assert app.opened == [False]


@pytest.mark.req("UPD-1")
def test_a_dry_run_opens_nothing_for_writing(kfm: Kfm, app: FakeApp) -> None:
    """With --dry-run the application is opened read-only and asked for a preview."""
    app.answers = {"daily": {"outcome": "planned", "word": "planned"}}
    called = kfm("run", "--dry-run", "--source", "daily")
    assert app.opened == [True]
    assert called.out.startswith("planned ")


@pytest.mark.req("UPD-10")
@pytest.mark.parametrize(
    "reasons", [(), ("--rationale", "x"), ("--ticket", "T-1"), ("--rationale", " ", "--ticket", "T-1")]
)
def test_a_force_without_reasons_is_refused(kfm: Kfm, app: FakeApp, reasons: tuple[str, ...]) -> None:
    """--force needs a rationale and a ticket, and nothing is opened without them."""
    called = kfm("run", "--force", *reasons)
    assert called.code == 3
    assert called.err.startswith("error KFM304: This needs a rationale. A force needs --")
    assert app.opened == []


@pytest.mark.req("CLI-1")
@pytest.mark.parametrize(
    ("first", "second", "code"),
    [
        (None, None, 0),
        (None, {"outcome": "noop", "word": "unchanged"}, 0),
        (Busy(), None, 5),
        (Busy(), WorkFailed(), 1),
        (WorkFailed(), GateDenied(), 3),
        (GateDenied(), UpstreamUnavailable(), 4),
        (UpstreamUnavailable(), ConfigError(), 2),
        ({"outcome": "failed", "word": "failed"}, {"outcome": "busy", "word": "busy"}, 1),
        (REFUSED, {"outcome": "failed", "word": "failed"}, 3),
    ],
)
def test_the_worst_ending_is_the_exit_code(
    kfm: Kfm, app: FakeApp, valid: Valid, first: Any, second: Any, code: int
) -> None:
    """2 before 4 before 3 before 1 before 5 before 0; and one failure does not stop the other source."""
    app.answers = {"daily": first or {}, "hourly": second or {}}
    called = kfm("run")
    assert called.code == code
    assert len(app.requests) == 2
    assert len(called.out.splitlines()) == 2
    again = kfm("run", "--json")
    valid("run", again.document)
    assert again.document["exit_code"] == again.code == code


def test_an_error_is_told_with_its_way_out(kfm: Kfm, app: FakeApp) -> None:
    """Code, message and fix on stderr; the result line on stdout."""
    app.answers = {"daily": UpstreamUnavailable("http://h/: 503.")}
    called = kfm("run", "--source", "daily")
    assert called.err.splitlines()[-2:] == [
        "error KFM404: The upstream source is unavailable or refused the request. http://h/: 503.",
        "fix: Try again later; `kfm doctor` tests the address.",
    ]
    assert called.out.startswith("failed     levels  -  -  no run")


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ({"reason": "This work has not been done yet."}, []),
        ({"outcome": "noop", "word": "unchanged", "reason": "Upstream is unchanged."}, []),
        (
            {"run": make_run(attempts=2), "reason": "Attempt 1 failed with WORKER_DIED."},
            ["  Attempt 1 failed with WORKER_DIED."],
        ),
        (
            {"run": make_run(revision=1), "reason": "Upstream has changed: revision 1 opens."},
            ["  Upstream has changed: revision 1 opens."],
        ),
        ({"word": "unchanged", "reason": "Upstream has nothing."}, ["  Upstream has nothing."]),
    ],
)
def test_what_is_not_a_first_run_says_why(
    kfm: Kfm, app: FakeApp, answer: dict[str, Any], told: list[str]
) -> None:
    """A takeover and a new revision are told without being asked; an ordinary run is one line."""
    app.answers = {"daily": answer}
    called = kfm("run", "--source", "daily")
    assert called.err.splitlines() == told


def test_a_failed_run_is_told_whole(kfm: Kfm, app: FakeApp, valid: Valid, project: Path) -> None:
    """Each failed check on a line of its own, then the way out, what trying again means, and the log."""
    checks = tuple(
        Check(name=f"schema.column.type:c{n}", passed=False, detail="1 of 3 values is text.", path="a.csv")
        for n in range(12)
    )
    gate = contract_gate(ValidationReport(checks=checks))
    app.answers = {
        "daily": {
            "outcome": "refused",
            "word": "blocked",
            "sequence": None,
            "error": refusal(combine([gate])),
            "advice": "Trying again will not help.",
            "failed_checks": checks,
            "checks_made": len(checks),
            "artifacts_dir": str(project / ".kfm" / "runs" / "r" / "attempt-1"),
            "projections": (),
        }
    }
    called = kfm("run", "--source", "daily")
    assert called.code == 3
    assert called.err.splitlines() == [
        "error KFM303: The staged data breaks its contract; nothing was promoted. 12 of 12 checks failed:",
        *(f"  schema.column.type:c{n} in a.csv: 1 of 3 values is text." for n in range(10)),
        "  … and 2 more in the event log",
        "fix: Fix the data or the contract, then retry.",
        "note: Trying again will not help.",
        "log: .kfm/runs/r/attempt-1/event_log.jsonl",
    ]
    document = kfm("run", "--source", "daily", "--json").document
    valid("run", document)
    assert document["results"][0]["advice"] == "Trying again will not help."
    assert len(document["results"][0]["failed_checks"]) == 12


@pytest.mark.parametrize(
    ("window", "detail", "fix"),
    [
        ("yesterday", "'yesterday' is not", "P1D is the last complete day, so yesterday; "),
        ("2025-12-31", "'2025-12-31' is not", "For that day write --window 2025-12-31/P1D."),
        ("2025-12", "'2025-12' is not", "For that month write --window 2025-12-01/P1M."),
        ("2025-12-01..2025-12-03", "is not", "written with a slash: --window 2025-12-01/2025-12-03."),
        ("2025-12-01 to 2025-12-03", "is not", "written with a slash: --window 2025-12-01/2025-12-03."),
        ("1d", "'1d' is not", "A length is written as --window P1D."),
        ("6 hours", "'6 hours' is not", "A length is written as --window PT6H."),
        ("2026-01-03/P1D", "2026-01-03/P1D begins in the future, at 2026-01-03 00:00:00 UTC", "Choose a "),
    ],
)
@pytest.mark.parametrize("command", ["run", "diff"])
def test_a_window_is_checked_once_and_before_anything_runs(
    kfm: Kfm, app: FakeApp, command: str, window: str, detail: str, fix: str
) -> None:
    """One error for the whole call, with the right form; no source is begun."""
    called = kfm(command, "--window", window)
    assert called.code == 2
    told, way_out = called.err.splitlines()
    assert told.startswith("error KFM204: ")
    assert detail in told
    assert fix in way_out
    assert called.out == ""
    assert app.requests == []


@pytest.mark.parametrize(
    ("at", "window"),
    [
        ("2025-12-31T06:00:00Z", "2025-12-30T00:00:00Z/2025-12-31T00:00:00Z"),
        ("2025-12-31", "2025-12-30T00:00:00Z/2025-12-31T00:00:00Z"),
    ],
)
def test_the_window_of_another_time(kfm: Kfm, app: FakeApp, at: str, window: str) -> None:
    """--at asks for the window that a run at that time would have covered, and for none of the future."""
    assert kfm("run", "--source", "daily", "--at", at).code == 0
    assert [request.window_spec for request in app.requests] == [window]
    app.requests.clear()
    later = kfm("run", "--source", "daily", "--at", "2029-01-01")
    assert (later.code, "begins in the future" in later.err) == (2, True)
    assert kfm("run", "--source", "daily", "--at", "soon").code == 2
    assert kfm("run", "--missing", "--at", at).code == 2
    assert app.requests == []


def test_a_reason_stands_under_its_line(process: Kfm) -> None:
    """Where both streams go to one pipe, what is said about a result follows it."""
    for _ in range(2):
        process("run", "--source", "daily")
    called = process("diff", "--source", "daily", stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert [line[:12] for line in called.out.splitlines()] == ["unchanged  l", "  Upstream i"]


def test_a_plan_that_can_not_be_applied_is_not_written(kfm: Kfm, app: FakeApp, project: Path) -> None:
    """Nothing to do, or a refusal: no plan file, and a sentence says so."""
    app.answers = {"daily": {"outcome": "noop", "word": "unchanged", "reason": "Upstream is unchanged."}}
    called = kfm("diff", "--source", "daily", "--plan", "plan.jsonl")
    assert called.err.splitlines()[-1] == "plan.jsonl was not written: there is nothing to apply"
    assert not (project / "plan.jsonl").exists()


def test_a_target_that_failed_is_told(kfm: Kfm, app: FakeApp, valid: Valid) -> None:
    """The promotion stands, the target does not show it yet: exit code 4, and the way out."""
    report = ProjectionReport(
        dataset_id="levels",
        target="local",
        sequence=None,
        error=TargetUnavailable("local: no space").as_document(),
    )
    app.answers = {"daily": {"projections": (report,)}}
    called = kfm("run", "--source", "daily", "--json")
    assert called.code == 4
    valid("run", called.document)
    assert "fix: Make the target writable, then run `kfm project`." in called.err


@pytest.mark.req("CLI-1")
@pytest.mark.parametrize("command", ["run", "diff"])
@pytest.mark.parametrize(
    "answer",
    [Cancelled(), KeyboardInterrupt(), {"outcome": "failed", "word": "failed", "error": Cancelled()}],
)
def test_a_cancelled_run_ends_the_call(
    kfm: Kfm, app: FakeApp, valid: Valid, command: str, answer: Any
) -> None:
    """After Ctrl-C no further source is begun, at whatever place it was noticed; those left out are named."""
    app.answers = {"daily": answer}
    called = kfm(command, "--json")
    assert called.code == called.document["exit_code"] == 130
    valid(command, called.document)
    assert [request.source_id for request in app.requests] == ["daily"]
    assert "error KFM930: The run was cancelled." in called.err
    assert called.err.splitlines()[-1] == "cancelled; not run: hourly"


def test_ctrl_c_between_two_sources(kfm: Kfm, app: FakeApp, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was done is reported; the rest is not begun."""

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("kfm.cli.run.show_report", interrupted)
    called = kfm("run", "--json")
    assert called.code == 130
    assert [result["word"] for result in called.document["results"]] == ["published"]
    assert called.err == "cancelled; not run: hourly\n"


@pytest.mark.parametrize(
    ("trouble", "code", "told"),
    [
        (
            OSError(28, "No space left on device", "/s/workers"),
            4,
            "error KFM400: A backend is unavailable. The disk / is full: "
            "/s/workers can't be written before there is space.",
        ),
        (ZeroDivisionError("x"), 1, "error KFM600: Something went wrong. ZeroDivisionError: x"),
    ],
)
def test_trouble_with_one_source_is_its_own(
    kfm: Kfm, app: FakeApp, trouble: Exception, code: int, told: str
) -> None:
    """A full disk, or even a defect, is that source's failed result; the others run."""
    app.answers = {"daily": trouble}
    called = kfm("run")
    assert called.code == code
    assert [request.source_id for request in app.requests] == ["daily", "hourly"]
    assert [line.split()[0] for line in called.out.splitlines()] == ["failed", "published"]
    assert told in called.err.splitlines()
    assert "Traceback" not in called.err


def test_an_unknown_source(kfm: Kfm, app: FakeApp, valid: Valid) -> None:
    """The nearest right word is named."""
    called = kfm("run", "--source", "dayly", "--json")
    assert called.code == 2
    assert "There is no source `dayly`; did you mean `daily`?" in called.err
    valid("error", called.document)


def test_members_of_a_sync_run_through_it(kfm: Kfm, app: FakeApp, project: Path) -> None:
    """A member is not run twice, nor alone: its sync is named instead."""
    text = (project / "kfm.yml").read_text()
    sync = "  - {id: both, dataset: levels, kind: sync, members: [daily, hourly]}\npublish:"
    (project / "kfm.yml").write_text(text.replace("publish:", sync))
    kfm("run")
    alone = kfm("run", "--source", "hourly")
    assert (alone.code, "`kfm run --source both`" in alone.err) == (2, True)
    assert [request.source_id for request in app.requests] == ["both"]


def test_artifacts_of_several_sources_stay_apart(kfm: Kfm, app: FakeApp) -> None:
    """With several sources each has its own folder below --artifacts."""
    kfm("run", "--artifacts", "out")
    assert [request.artifacts_dir for request in app.requests] == ["out/daily", "out/hourly"]


def test_github_is_told(kfm: Kfm, app: FakeApp, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a GitHub Actions job: annotations on stderr, outputs and a summary in their files."""
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_OUTPUT", str(project / "output"))
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(project / "summary"))
    app.answers = {"hourly": WorkFailed("50% done,\nthen: nothing")}
    called = kfm("run")
    assert "::error title=hourly%3A failed::The work failed. 50%25 done,%0Athen: nothing" in called.err
    assert (project / "output").read_text() == f"changed=true\nrun_ids={RUN_ID}\n"
    assert "| failed | levels | hourly | - |" in (project / "summary").read_text()


def test_a_configuration_error_is_annotated_where_it_is(
    kfm: Kfm, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The annotation names file and line, so that it shows in the diff."""
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    (project / "kfm.yml").write_text("version: 1\nsorces: []\n")
    assert "::error title=KFM201,file=kfm.yml,line=2::" in kfm("run").err


def test_a_plan_is_about_one_source(kfm: Kfm, app: FakeApp) -> None:
    """A frozen plan of two sources at once would be two plans."""
    called = kfm("diff", "--plan", "plan.jsonl")
    assert called.code == 2
    assert "fix: Choose one with --source ID." in called.err


@pytest.mark.parametrize("content", [None, b"", b"not a plan\n", b"{}\n"])
def test_a_file_that_is_no_plan(kfm: Kfm, app: FakeApp, project: Path, content: bytes | None) -> None:
    """What can't be read as a plan is refused before anything runs."""
    if content is not None:
        (project / "plan.jsonl").write_bytes(content)
    called = kfm("run", "--plan", "plan.jsonl")
    assert called.code == 2
    assert called.err.startswith("error KFM209: The plan file can't be used.")
    assert app.requests == []


@pytest.mark.req("TRG-8")
def test_a_dead_collector_is_told_and_changes_nothing(kfm: Kfm, app: FakeApp) -> None:
    """Events that can't be delivered stay, one line says so, and the exit code is that of the work."""
    app.delivered = Delivered(waiting=8, trouble="the collector can't be reached; 8 events wait")
    called = kfm("run")
    assert called.code == 0
    assert "lineage: the collector can't be reached; 8 events wait" in called.err
    assert "kfm lineage deliver" in called.err
