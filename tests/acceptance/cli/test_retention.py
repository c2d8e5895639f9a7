"""`kfm gc` of old rows and `kfm du`, at the command line: previewed, carried out, explained, verified."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from kfm.system import SystemClock
from tests.acceptance.cli.conftest import Called

Kfm = Callable[..., Called]
Valid = Callable[[str, Any], None]
pytestmark = pytest.mark.req("GRO-2")
DAY_MS = 86_400_000
APPLY = ("gc", "--apply", "--rationale", "The disk is small.")


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Lets days pass."""
    now = SystemClock.now_ms

    def pass_by(days: int) -> None:
        monkeypatch.setattr(SystemClock, "now_ms", lambda self: now(self) + days * DAY_MS)

    return pass_by


@pytest.fixture
def worked(kfm: Kfm, project: Path) -> str:
    """Two versions, and runs that found nothing new; the id of the first run."""
    for level in "12":
        (project / "incoming" / "levels.csv").write_text(f"station,level\na,{level}\n")
        for _ in range(2):
            assert kfm("run", "--source", "daily").code == 0
    return str(kfm("runs", "--json").document["runs"][-1]["run_id"])


def retention(project: Path, *lines: str) -> None:
    path = project / "kfm.yml"
    path.write_text(path.read_text() + "retention:\n" + "".join(f"  {line}\n" for line in lines))


def counters(kfm: Kfm) -> list[str]:
    return [line for line in kfm("metrics").out.splitlines() if "_total" in line.partition(" ")[0]]


def test_nothing_goes_that_was_not_asked_for(
    kfm: Kfm, worked: str, later: Callable[[int], None], valid: Valid
) -> None:
    """Without `retention.enabled` old rows are listed, and stay, also with --apply."""
    later(1000)
    listed = kfm("gc", "--json")
    valid("gc", listed.document)
    found = listed.document["retention"]
    assert (found["enabled"], found["gone"]) == (False, None)
    assert found["rows"] > 10
    assert "`retention.enabled` is not set" in kfm("gc").err
    assert kfm(*APPLY, "--json").document["retention"]["gone"] is None
    assert kfm("gc", "--json").document["retention"] == found
    assert kfm("explain", worked).out == kfm("explain", worked).out
    assert "Retention" not in kfm("explain", worked).out


def test_what_is_listed_goes_and_the_rest_of_the_work_does_not_notice(
    kfm: Kfm, worked: str, project: Path, later: Callable[[int], None], valid: Valid
) -> None:
    """The preview's rows go; the log is sound and says so; coverage is the same; a rerun does nothing new;
    an explanation says what is not there any more."""
    retention(project, "enabled: true")
    assert kfm("gc", "--json").document["retention"]["rows"] == 0  # all of it is young
    covered, metered = kfm("coverage", "--json").document, counters(kfm)
    assert len(metered) > 5
    later(1000)
    plan = kfm("gc", "--json").document["retention"]
    drifted = kfm(*APPLY, "--digest", "sha256:" + "0" * 64)
    assert (drifted.code, "KFM306" in drifted.err) == (3, True)
    listed = kfm("gc")
    assert listed.out.startswith("no object and no version to remove; ")
    files = sum(path.is_file() for path in (project / ".kfm" / "runs").rglob("*"))
    assert plan["files"] == files > 0
    assert f"would retire {plan['rows']} rows of the ledger and {files} files of runs: " in listed.out
    assert "remove it with: kfm gc --apply" in listed.err
    gone = kfm(*APPLY, "--digest", plan["digest"], "--json").document["retention"]["gone"]
    by_kind = {one["kind"]: (one["rows"], one["bytes"]) for one in gone}
    assert by_kind == {one["kind"]: (one["rows"], one["bytes"]) for one in plan["kinds"] if one["rows"]}
    assert {"outbox", "invocations", "attempts", "inputs", "artifacts"} <= by_kind.keys()
    later(0)
    assert counters(kfm) == metered
    verified = kfm("audit", "verify", "--json")
    valid("audit-verify", verified.document)
    assert (verified.code, verified.document["sound"]) == (0, True)
    assert verified.document["events"]["retired"] == by_kind["outbox"][0]
    assert "events by retention; their seals stay" in kfm("audit", "verify").out
    told = kfm("explain", worked)
    took = [line for line in told.out.splitlines() if "Retention took away" in line]
    befores = {one["kind"]: one["before"][:10] for one in plan["kinds"] if one["before"]}
    for kind, words in (("attempts", "its attempts"), ("outbox", "its lineage events")):
        (line,) = [line for line in took if words in line]
        assert f"from before {befores[kind]}" in line
    assert befores["attempts"] != befores["outbox"], "each kind has its own age"
    assert "retention took them away" in kfm("explain", f"{worked}#1").err
    assert kfm("run", "--source", "daily").out.startswith("unchanged")
    assert kfm("coverage", "--json").document == covered
    assert not list((project / ".kfm" / "runs").glob("*/attempt-1/run.jsonl"))
    entries = kfm("audit", "list", "--kind", "retention", "--json").document["entries"]
    assert {one["rationale"] for one in entries} == {"The disk is small."}
    (told_files,) = [one["details"] for one in entries if one["subject"] == "retention/artifacts"]
    assert (told_files["rows"], told_files["bytes"]) == by_kind["artifacts"]
    assert worked in told_files["runs"]


def test_looking_at_nothing_leaves_nothing(kfm: Kfm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no ledger is: no bytes of one are told, and to remove what is not there makes none. Objects
    without a ledger are not taken for garbage."""
    bare = tmp_path / "bare"
    bare.mkdir()
    monkeypatch.chdir(bare)
    found = kfm("du", "--json").document
    assert (found["bytes"], found["ledger"]) == (0, {"bytes": 0, "free_bytes": 0, "tables": []})
    assert kfm(*APPLY).out == "nothing to remove; 0 objects are kept\n"
    assert list(bare.rglob("*.db*")) == []
    stored = bare / ".kfm" / "objects" / "sha256" / "aa" / ("0" * 62)
    stored.parent.mkdir(parents=True)
    stored.write_text("of a ledger that was lost")
    os.utime(stored, (0, 0))
    refused = kfm(*APPLY)
    assert (refused.code, "There is no ledger here" in refused.err) == (2, True)
    assert stored.exists()


@pytest.mark.parametrize("hours", ["nan", "inf", "-1", "1e308", "-inf"])
def test_a_grace_time_that_is_none_is_refused(kfm: Kfm, project: Path, hours: str) -> None:
    """What is no number of hours is named, and is no defect of kfm."""
    called = kfm("gc", "--grace", hours)
    assert called.code == 2
    assert "KFM600" not in called.err
    assert "--grace" in called.err


def test_a_dry_run_wins_over_yes(kfm: Kfm, worked: str, project: Path, later: Callable[[int], None]) -> None:
    """As for every other change: who answers all questions with yes may still only look."""
    retention(project, "enabled: true")
    later(1000)
    listed = kfm("gc", "--yes", "--dry-run", "--json").document
    assert (listed["dry_run"], listed["retention"]["gone"]) == (True, None)


def test_an_export_of_what_is_left_verifies(
    kfm: Kfm, worked: str, project: Path, later: Callable[[int], None]
) -> None:
    """The enclosed script, which shares no line with kfm, finds the export sound after retention."""
    retention(project, "enabled: true")
    later(1000)
    assert kfm(*APPLY).code == 0
    assert kfm("audit", "export", "--units", "exported").code == 0
    script = project / "exported" / "verify_audit.py"
    ran = subprocess.run(
        [sys.executable, "-I", script, "exported"], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout


def test_where_the_bytes_are(
    kfm: Kfm, worked: str, project: Path, later: Callable[[int], None], valid: Valid
) -> None:
    """Every place with its bytes; what would be freed is what gc says."""
    retention(project, "enabled: true", "artifacts_days: null")
    later(1000)
    found = kfm("du", "--json").document
    valid("du", found)
    assert found["bytes"] == found["ledger"]["bytes"] + sum(one["bytes"] for one in found["places"])
    assert {one["table"] for one in found["ledger"]["tables"]} >= {"runs", "outbox", "units"}
    assert {one["what"] for one in found["places"]} == {"objects", "published", "lineage", "artifacts"}
    assert all(one["bytes"] for one in found["places"])
    plan = kfm("gc", "--json").document["retention"]
    assert found["collectable"]["ledger"] == plan["bytes"]
    assert found["collectable"]["artifacts"] == 0
    assert "gc would free" in kfm("du").out


@pytest.mark.parametrize("line", ["outbox_days: 0", "attempts_days: -1", "inputs_days: 40000"])
def test_an_age_that_makes_no_sense_is_refused(kfm: Kfm, project: Path, line: str) -> None:
    """A day at least, a century at most; empty is for ever."""
    retention(project, line)
    called = kfm("config", "check")
    assert called.code == 2
    assert "must be from 1 to 36500; leave it empty for ever" in called.err


def test_what_chain_and_events_tell_of_is_known_to_have_gone(
    kfm: Kfm, worked: str, project: Path, later: Callable[[int], None]
) -> None:
    """An invocation that the log or an event names is not missed once it is retired; one that was removed
    by hand is."""
    forced = kfm("run", "--source", "daily", "--force", "--ticket", "T-1", "--rationale", "Look again.")
    assert forced.code == 0
    assert kfm("run", "--source", "daily").code == 0
    retention(project, "enabled: true", "outbox_days: null")
    later(1000)
    assert kfm(*APPLY).code == 0
    assert kfm("audit", "verify").code == 0
    later(0)
    assert (
        kfm("run", "--source", "daily", "--force", "--ticket", "T-2", "--rationale", "And again.").code == 0
    )
    connection = apsw.Connection(str(project / ".kfm" / "kfm.db"))
    connection.execute("DELETE FROM invocations WHERE rationale = 'And again.'")
    connection.close()
    broken = kfm("audit", "verify")
    assert broken.code == 1
    assert "it is not there" in broken.out
