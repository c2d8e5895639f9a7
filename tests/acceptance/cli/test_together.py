"""`kfm run --missing --together`: a backfill of several windows is one version, with one diff."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.cli.conftest import Called
from tests.acceptance.cli.test_coverage import CONFIG, DAYS, EXPECTED, PIPELINE, deliver

Kfm = Callable[..., Called]
Valid = Callable[[str, Any], None]
SPAN = ("--from", "2026-01-01", "--to", "2026-01-04")
CHOSEN = ("run", "--missing", "levels", *SPAN)
TOGETHER = (*CHOSEN, "--together")


def configured(project: Path, more: str = "", expect: str = EXPECTED) -> None:
    (project / "kfm.yml").write_text(CONFIG.replace("EXPECT", expect + more))
    (project / "elsewhere").mkdir(exist_ok=True)
    (project / "pipeline.py").write_text(PIPELINE)


def versions(kfm: Kfm) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = kfm("dataset", "show", "levels", "--json").document["dataset"]["versions"]
    return found


def published(project: Path) -> list[str]:
    return sorted(path.name for path in (project / "published").rglob("data.csv"))


def windows_of(kfm: Kfm) -> dict[str, str]:
    listed = kfm("coverage", "levels", *SPAN, "--json").document
    return {one["window_start"][:10]: one["state"] for one in listed["windows"]}


@pytest.mark.req("DAT-3")
def test_windows_are_one_version(kfm: Kfm, project: Path, valid: Valid) -> None:
    """A backfill of three windows is one version with all of them; each window has its own run, key and
    verdict, and none is done twice."""
    configured(project)
    deliver(project, *DAYS)
    done = kfm(*TOGETHER, "--yes", "--json")
    assert done.code == 0, done.err
    valid("run-missing", done.document)
    assert [one["outcome"] for one in done.document["windows"]] == ["success"] * 3
    assert len(versions(kfm)) == 1
    runs = kfm("runs", "--json").document["runs"]
    assert len({one["run_id"] for one in runs}) == 3
    assert len({one["idempotency_key"] for one in runs}) == 3
    assert {one["status"] for one in runs} == {"success"}
    assert kfm("audit", "verify").code == 0
    assert "no window is missing" in kfm(*TOGETHER, "--yes").out
    again = kfm("run", "--source", "daily", "--window", "2026-01-02/P1D")
    assert (again.code, "unchanged" in again.out) == (0, True)
    assert len(versions(kfm)) == 1


@pytest.mark.req("DAT-3")
def test_a_preview_is_one_diff(kfm: Kfm, project: Path, valid: Valid) -> None:
    """What --dry-run prints is one plan with one digest; it changes nothing, and comes true."""
    configured(project)
    deliver(project, *DAYS)
    shown = kfm(*TOGETHER, "--dry-run")
    assert shown.code == 0
    assert [line.count("data.csv") for line in shown.out.splitlines() if line.startswith("  +")] == [1] * 3
    assert shown.out.count("plan sha256:") == 1
    assert "3 added, 0 changed, 0 removed" in shown.out
    told = kfm(*TOGETHER, "--dry-run", "--json").document
    valid("run-missing", told)
    assert kfm("runs", "--json").document["runs"] == []
    assert kfm(*TOGETHER, "--yes").code == 0
    assert [one["version_id"] for one in versions(kfm)] == [told["plan"]["version_id"]]


@pytest.mark.req("DAT-3")
def test_one_bad_window_keeps_all_from_being_published(kfm: Kfm, project: Path) -> None:
    """None is published, each is told why, nothing is tried again alone; once the cause is gone the same
    command publishes all, as the next attempts of the same runs."""
    configured(project, ", pipeline: 'pipeline.py:publish'")
    deliver(project, *DAYS)
    bad = project / "incoming" / DAYS[1] / "data.csv"
    bad.write_text("bad")
    failed = kfm(*TOGETHER, "--yes", "--json")
    assert failed.code == 1
    assert [one["error"]["code"] for one in failed.document["windows"]] == ["KFM614", "KFM607", "KFM614"]
    assert published(project) == []
    assert set(windows_of(kfm).values()) <= {"failed", "quarantined"}
    kfm("retry", "--due")
    assert published(project) == []
    bad.write_text("good")
    mended = kfm(*TOGETHER, "--yes", "--json")
    assert mended.code == 0, mended.err
    assert {one["run_id"] for one in mended.document["windows"]} == {
        one["run_id"] for one in failed.document["windows"]
    }
    assert len(versions(kfm)) == 1
    assert windows_of(kfm) == dict.fromkeys(DAYS, "published")


@pytest.mark.req("DAT-3")
def test_a_bad_window_is_left_out_if_that_is_asked_for(kfm: Kfm, project: Path) -> None:
    """With --leave-out-failed the others are one version; the one that failed is an ordinary failed run."""
    configured(project, ", pipeline: 'pipeline.py:publish'")
    deliver(project, *DAYS)
    (project / "incoming" / DAYS[0] / "data.csv").write_text("bad")
    done = kfm(*TOGETHER, "--leave-out-failed", "--yes", "--json")
    assert done.code == 1
    assert [one["outcome"] for one in done.document["windows"]] == ["failed", "success", "success"]
    assert len(versions(kfm)) == 1
    states = windows_of(kfm)
    assert states[DAYS[0]] in ("failed", "quarantined", "waiting")
    assert [states[day] for day in DAYS[1:]] == ["published", "published"]
