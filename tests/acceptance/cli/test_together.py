"""`kfm run --missing --together`: a backfill of several windows is one version, with one diff."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kfm.db import promotion
from kfm.runs import together
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


@contextmanager
def statements_of_promotions(promoted: list[list[str]]) -> Iterator[None]:
    """The names of the statements of each promotion, in order."""
    whole = promotion.promote

    def watched(session: Any, *rest: Any) -> Any:
        names: list[str] = []
        promoted.append(names)
        return whole(Spy(session, names), *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(promotion, "promote", watched)
        yield


class Spy:
    """A session that notes what it is asked."""

    def __init__(self, session: Any, names: list[str]) -> None:
        self._session = session
        self._names = names

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._session, name)
        if name not in ("one", "all", "bulk", "send", "gather"):
            return found

        def asked(statement: str, *arguments: Any, **more: Any) -> Any:
            self._names.append(statement)
            return found(statement, *arguments, **more)

        return asked


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
    assert kfm("retry", "--due").code == 0
    assert published(project) == []
    fine = failed.document["windows"][0]["run_id"]
    explained = kfm("explain", fine).out
    assert "0 of 6 attempts are used" in explained
    assert "kfm run --missing --source daily --together" in explained
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


@pytest.mark.req("DAT-3", "GOV-3")
def test_each_window_has_its_evidence(kfm: Kfm, project: Path) -> None:
    """Explanation, record, bundle and provenance of a window tell of the version that it was promoted with,
    also where that is recorded with another run; the audit log and its export are sound."""
    configured(project)
    deliver(project, *DAYS)
    assert kfm(*TOGETHER, "--yes").code == 0
    runs = [one["run_id"] for one in kfm("runs", "--json").document["runs"]]
    (version,) = versions(kfm)
    assert version["run_id"] in runs
    for number, run_id in enumerate(runs):
        assert "published version 1 of levels" in kfm("explain", run_id).out
        shown = kfm("show", run_id, "--json").document
        assert [one["version_id"] for one in shown["promotions"]] == [version["version_id"]]
        bundle = str(project / f"bundle-{number}.zip")
        assert kfm("export", run_id, "--to", bundle).code == 0
        verified = kfm("export", "--verify", bundle)
        assert (verified.code, "wrong" in verified.out) == (0, False), verified.out
    told = kfm("audit", "list").out
    assert (told.count("promotion "), told.count("promoted-together")) == (1, 2)
    assert kfm("audit", "export", "out").code == 0
    checked = subprocess.run([sys.executable, "out/verify_audit.py", "out"], cwd=project, capture_output=True)
    assert checked.returncode == 0, checked.stdout


@pytest.mark.req("DAT-3", "DAT-5")
def test_what_was_published_together_is_rolled_back_as_one(kfm: Kfm, project: Path) -> None:
    """One step back takes all windows away; asked for again they come back as one version."""
    configured(project)
    deliver(project, *DAYS)
    assert kfm("run", "--source", "daily", "--window", "2026-01-01/P1D").code == 0
    assert kfm(*TOGETHER, "--yes").code == 0
    assert [one["items"] for one in versions(kfm)] == [3, 1]
    reason = ("--rationale", "wrong month")
    assert kfm("rollback", "levels", "--to", "1", "--yes", *reason).code == 0
    assert [one["items"] for one in versions(kfm)] == [1, 3, 1]
    assert kfm("switch", "set", "running", "--dataset", "levels", *reason).code == 0
    assert kfm(*TOGETHER, "--yes").code == 0
    assert next(one["items"] for one in versions(kfm)) == 3
    assert windows_of(kfm) == dict.fromkeys(DAYS, "published")


@pytest.mark.req("DAT-3")
def test_a_window_that_changes_nothing_is_told_so(kfm: Kfm, project: Path) -> None:
    """Of windows that are published together one is as it was and one has no data: each has its own verdict,
    and the version is recorded with a run that has changed something."""
    configured(project, ", pipeline: 'pipeline.py:publish'")
    deliver(project, DAYS[0], DAYS[2])
    first = project / "incoming" / DAYS[0] / "data.csv"
    for text, code in ((DAYS[0], 0), ("bad", 1)):
        first.write_text(text)
        assert kfm("run", "--source", "daily", "--window", f"{DAYS[0]}/P1D").code == code
    first.write_text(DAYS[0])
    done = kfm(*TOGETHER, "--yes", "--json")
    assert done.code == 0
    runs = [one["run_id"] for one in done.document["windows"]]
    assert next(one["run_id"] for one in versions(kfm)) == runs[2]
    with sqlite3.connect(project / ".kfm" / "kfm.db") as ledger:
        found = dict(ledger.execute("SELECT run_id, outcome FROM runs").fetchall())
    assert [found[run_id] for run_id in runs] == ["unchanged", "absent", "published"]
    assert [len(kfm("show", one, "--json").document["promotions"]) for one in runs] == [0, 0, 1]
    assert windows_of(kfm)[DAYS[1]] == "missing"


@pytest.mark.req("DAT-3")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("run", "--together"), "go with --missing"),
        (("run", "--leave-out-failed", "--source", "daily"), "go with --missing"),
        (("run", "--missing", "--together"), "windows of one source, and these are 2: daily, else"),
        (("run", "--missing", "levels", "--leave-out-failed"), "--leave-out-failed goes with --together"),
        (("run", "--missing", "levels", "--together", "--window", "P1D"), "leave --window out"),
        (("run", "--missing", "--source", "newest", "--together"), "`mode: replace`"),
        (("run", "--missing", "--source", "whole", "--together"), "has no windows"),
        (("run", "--missing", "--source", "acting", "--together"), "`idempotent: false`"),
    ],
)
def test_what_can_t_be_published_together_is_refused(
    kfm: Kfm, project: Path, arguments: tuple[str, ...], said: str
) -> None:
    """Before anything begins, with the way out."""
    text = CONFIG.replace("EXPECT", EXPECTED)
    if "--source" in arguments and arguments[3] != "daily":
        more = (
            "  - {id: newest, dataset: other, kind: files, folder: elsewhere, mode: replace}\n"
            "  - {id: whole, dataset: other, kind: files, folder: elsewhere, window: none}\n"
            "  - {id: acting, dataset: other, kind: files, folder: elsewhere, idempotent: false}\n"
        )
        text = text.replace("publish:", f"{more}publish:")
    (project / "kfm.yml").write_text(text)
    (project / "elsewhere").mkdir()
    refused = kfm(*arguments)
    assert (refused.code, said in refused.err) == (2, True), refused.err
    assert "fix: " in refused.err
    assert kfm("runs", "--json").document["runs"] == []


@pytest.mark.req("DAT-3")
def test_a_refused_window_keeps_all_from_beginning(kfm: Kfm, project: Path) -> None:
    """A switch refuses the first: no run begins, and the others are told of."""
    configured(project)
    deliver(project, *DAYS)
    kfm("switch", "set", "paused", "--dataset", "levels", "--rationale", "repairs")
    refused = kfm(*TOGETHER, "--yes")
    assert refused.code == 3
    assert "2 other windows not begun" in refused.err
    assert kfm("runs", "--json").document["runs"] == []


@pytest.mark.req("GRO-1", "DAT-3")
def test_a_version_of_many_windows_is_written_once(kfm: Kfm, project: Path) -> None:
    """However many windows: one version, its pages once, and a document for each window; statements grow with
    the windows by a constant each, where a version for each would write the way to it again."""
    configured(project)
    days = [f"2026-01-{day:02}" for day in range(1, 31)]
    deliver(project, *days)
    promoted: list[list[str]] = []
    with statements_of_promotions(promoted):
        assert kfm("run", "--missing", "levels", "--to", "2026-01-11", "--together", "--yes").code == 0
        assert kfm("run", "--missing", "levels", "--to", "2026-01-31", "--together", "--yes").code == 0
    few, many = (Counter(names) for names in promoted)
    for name in ("versions.insert", "promotions.insert", "version_pages.insert", "version_items.insert"):
        assert (few[name], many[name]) == (1, 1), name
    assert (few["runs.succeed"], many["runs.succeed"]) == (10, 20)
    assert many.total() - few.total() <= 10 * 25
    with sqlite3.connect(project / ".kfm" / "kfm.db") as ledger:
        (items,) = ledger.execute("SELECT COUNT(*) FROM version_items").fetchone()
        (pages,) = ledger.execute("SELECT COUNT(*) FROM version_pages").fetchone()
    assert items == 30
    assert pages <= 20  # of files and items, of two versions


@pytest.mark.req("DAT-3")
@pytest.mark.parametrize("leaves_out", [False, True])
def test_a_window_that_breaks_its_contract(kfm: Kfm, project: Path, *, leaves_out: bool) -> None:
    """It is found when all are made: it keeps the others from being published, or is left out."""
    configured(project, expect=f"{EXPECTED[:-1]}, rows_min: 1}}")
    deliver(project, *DAYS)
    for day in DAYS[:2]:
        (project / "incoming" / day / "data.csv").write_text("level\n1\n")
    (project / "incoming" / DAYS[2] / "data.csv").write_text("level\n")
    done = kfm(*TOGETHER, *(["--leave-out-failed"] if leaves_out else []), "--yes", "--json")
    assert done.code == 3, done.err
    codes = [one["error"] and one["error"]["code"] for one in done.document["windows"]]
    assert codes == ([None, None, "KFM303"] if leaves_out else ["KFM614", "KFM614", "KFM303"])
    assert [one["items"] for one in versions(kfm)] == ([2] if leaves_out else [])
    assert kfm("status", "--json").document["running"] == []


@pytest.mark.req("DAT-3")
def test_each_window_leaves_its_artifacts(kfm: Kfm, project: Path) -> None:
    """Its own folder, whole from the beginning to the promotion and the end."""
    configured(project)
    deliver(project, *DAYS)
    assert kfm(*TOGETHER, "--yes", "--artifacts", "kept").code == 0
    folders = sorted((project / "kept").iterdir())
    assert len(folders) == 3
    for folder in folders:
        events = [json.loads(line)["event"] for line in (folder / "run.jsonl").read_text().splitlines()]
        assert (events[0], events[-1]) == ("run.start", "run.end")
        steps = [json.loads(line)["phase"] for line in (folder / "event_log.jsonl").read_text().splitlines()]
        assert steps[-2:] == ["promote", "project"]
        trace = [json.loads(line) for line in (folder / "publisher_trace.jsonl").read_text().splitlines()]
        assert [one["seq"] for one in trace] == list(range(1, len(trace) + 1))
        assert (folder / "prov.jsonld").exists()


@pytest.mark.req("DAT-3")
def test_targets_may_take_longer_than_the_lease(kfm: Kfm, project: Path) -> None:
    """What follows the promotion holds no lease, and no heartbeat takes the released one for lost."""
    configured(project)
    deliver(project, *DAYS)
    whole, beating = together.project, list[str]()

    def watched(*arguments: Any) -> Any:
        beating.extend(one.name for one in threading.enumerate() if one.name == "kfm-heartbeat")
        return whole(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(together, "project", watched)
        assert kfm(*TOGETHER, "--yes").code == 0
    assert beating == []
