"""`kfm pipeline`, `run-state`, `graph` and `explain` on pipelines, with real files and a real store."""

from __future__ import annotations

import json
import logging
import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest

from kfm.cli.pipeline import Live
from kfm.cli.process import Stream
from kfm.config.loader import actor
from tests.acceptance.cli.conftest import Called

Kfm = Callable[..., Called]
Valid = Callable[[str, Any], None]
SECONDS_MAX = 60
FLOW = """\
import kfm, os, time

soil = kfm.Pipeline("soil")

@soil.node("soil.samples", inputs=["data/*.csv"])
def samples(ctx):
    print("a node may print what it likes")
    ctx.log("reading")
    ctx.validate("rows", True)
    return open("data/a.csv").read().split()

@soil.node("soil.mean", params={"digits": 2})
def mean(samples, digits):
    if os.path.exists("wait"):
        with open("wait", "w") as fifo:
            fifo.write("here")
        time.sleep(60)
    return round(sum(map(float, samples)) / len(samples), digits)

@soil.node("soil.count")
def count(samples):
    if os.path.exists("broken"):
        raise ValueError("no rain")
    return len(samples)

@soil.node("soil.report")
def report(mean, count):
    return {"mean": mean, "count": count}
"""


@pytest.fixture
def flow(project: Path) -> Path:
    """A project with a pipeline of four nodes and a file that it reads."""
    (project / "kfm.yml").unlink()
    (project / "data").mkdir()
    (project / "data" / "a.csv").write_text("1\n2\n6\n")
    (project / "flow.py").write_text(FLOW)
    return project


@contextmanager
def halted(folder: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """A process whose pass has come to soil.mean, and stays there."""
    os.mkfifo(folder / "wait")
    said = os.open(folder / "wait", os.O_RDONLY | os.O_NONBLOCK)
    child = subprocess.Popen(
        [sys.executable, "-m", "kfm", "pipeline", "run", "flow.py", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert select.select([said], [], [], SECONDS_MAX)[0], "the node was never reached"
        yield child
    finally:
        child.kill()
        child.communicate()
        os.close(said)
        (folder / "wait").unlink()


def words(called: Called) -> dict[str, str]:
    """Node → word, of a JSON result."""
    return {each["node"]: each["word"] for each in called.document["nodes"]}


@pytest.mark.req("RS-3", "RS-4")
def test_only_what_must_run_runs(kfm: Kfm, flow: Path, valid: Valid) -> None:
    """A first pass runs all, a second nothing, a third what a change reaches; only data is on stdout."""
    first = kfm("pipeline", "run", "flow.py")
    assert first.code == 0
    lines = first.out.splitlines()
    assert len(lines) == 5
    assert all(line.startswith("ran  ") for line in lines[:4])
    assert lines[4].startswith("4 ran; run ")
    assert "a node may print what it likes" in first.err
    assert "soil.samples: reading" in first.err
    again = kfm("pipeline", "run", "flow.py:soil")
    assert again.out.startswith("4 unchanged; run ")
    assert len(again.out.splitlines()) == 1
    (flow / "data" / "a.csv").write_text("1\n2\n4\n")
    third = kfm("pipeline", "run", "flow.py", "--json", "--all")
    valid("pipeline-run", third.document)
    assert words(third) == {
        "soil.samples": "ran",
        "soil.mean": "ran",
        "soil.count": "ran",
        "soil.report": "ran",
    }
    (flow / "data" / "a.csv").write_text("4\n2\n1\n")  # another order: the mean and the count stay
    assert words(kfm("pipeline", "run", "flow.py", "--json", "--all")) == {
        "soil.samples": "ran",
        "soil.mean": "ran",
        "soil.count": "ran",
        "soil.report": "unchanged",
    }


@pytest.mark.parametrize("more", [(), ("--jobs", "1"), ("--processes",)])
def test_what_nodes_log_has_fields(kfm: Kfm, flow: Path, more: tuple[str, ...]) -> None:
    """A line of a node is a log record, with its node and its logger, from whichever worker it comes."""
    called = kfm("pipeline", "run", "flow.py", "--log-format", "json", *more)
    assert called.code == 0
    told = [json.loads(line) for line in called.err.splitlines() if "soil.samples: reading" in line]
    (line,) = told
    assert (line["level"], line["node"], line["logger"]) == ("info", "soil.samples", "kfm.pipelines.context")
    assert "reading" not in called.out


def test_quiet_nodes(kfm: Kfm, flow: Path) -> None:
    """With --quiet, lines of nodes are not shown; the level is that of the one command."""
    assert "reading" not in kfm("pipeline", "run", "flow.py", "--quiet").err
    assert "reading" in kfm("pipeline", "run", "flow.py", "--force", "soil.samples").err
    assert logging.getLogger("kfm.pipelines.context").level == logging.NOTSET
    assert logging.getLogger("kfm.pipelines.context").handlers == []


def test_progress_makes_room_for_lines_of_nodes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a terminal the line with the time that passed is removed before a node's line is written."""
    monkeypatch.setattr("sys.stderr", Stream(sys.stderr))
    live = Live(lambda _word, _report: None, 2, is_tty=True)
    with live.attached(quiet=False):
        live.node(SimpleNamespace(outcome="success", ran=True))
        sys.stderr.write("a line\n")
    shown = capsys.readouterr().err
    assert re.fullmatch(r"(\r\x1b\[2K1 of at most 2 nodes · [^…]+ …)+\r\x1b\[2Ka line\n(.*\x1b\[2K)?", shown)


def test_a_plan_changes_nothing(kfm: Kfm, flow: Path, valid: Valid) -> None:
    """What would run is told with the reason, before and after the first pass, and no file is touched."""
    first = kfm("pipeline", "plan", "flow.py")
    assert first.code == 0
    assert first.out.splitlines()[0].split("  ")[:1] == ["would run"]
    assert first.out.splitlines()[-1] == "4 would run"
    assert not (flow / ".kfm").exists()
    kfm("pipeline", "run", "flow.py")
    (flow / "flow.py").write_text(FLOW.replace('"digits": 2', '"digits": 3'))
    before = {path: path.stat().st_mtime_ns for path in flow.rglob("*") if path.is_file()}
    second = kfm("pipeline", "plan", "flow.py", "--json")
    valid("pipeline-plan", second.document)
    reasons = {each["node"]: each["reason"] for each in second.document["nodes"]}
    assert reasons == {"soil.mean": "inputs changed", "soil.report": "reads from what would run"}
    assert second.document["counts"] == {
        "would_run": 2,
        "would_fail": 0,
        "blocked": 0,
        "done": 0,
        "unchanged": 2,
        "skipped": 0,
    }
    assert before == {path: path.stat().st_mtime_ns for path in flow.rglob("*") if path.is_file()}


def test_check_finds_what_is_wrong_with_a_graph(kfm: Kfm, flow: Path, valid: Valid) -> None:
    """A circle, an argument that no node makes, a file that does not load: exit code 2 and the place."""
    good = kfm("pipeline", "check", "flow.py", "--json")
    valid("pipeline-check", good.document)
    assert good.document == {"pipeline_id": "soil", "nodes": 4, "edges": 4, "layers": 3}
    (flow / "circle.py").write_text(
        "import kfm\np = kfm.Pipeline('p')\n@p.node('a')\ndef a(b): ...\n@p.node('b')\ndef b(a): ...\n"
    )
    circle = kfm("pipeline", "check", "circle.py")
    assert (circle.code, circle.out) == (2, "")
    assert "a → b → a" in circle.err
    (flow / "half.py").write_text("import kfm\n\nx = 1 / 0\n")
    half = kfm("pipeline", "check", "half.py")
    assert half.code == 2
    assert "half.py:3: ZeroDivisionError" in half.err
    assert (
        "has no pipeline sol: it has soil; did you mean `soil`?"
        in kfm("pipeline", "check", "flow.py:sol").err
    )
    (flow / "two.py").write_text("import kfm\na = kfm.Pipeline('a')\nb = kfm.Pipeline('b')\n")
    assert "makes several pipelines: a, b" in kfm("pipeline", "run", "two.py").err
    assert "there is no such file" in kfm("pipeline", "run", "none.py").err


@pytest.mark.req("CLI-1")
def test_four_words(kfm: Kfm, flow: Path, valid: Valid) -> None:
    """Failed, blocked, unchanged and skipped are told apart, and a failure names its place and the way on."""
    kfm("pipeline", "run", "flow.py", "--only", "soil.mean")
    (flow / "broken").touch()
    done = kfm("pipeline", "run", "flow.py", "--json", "--all")
    valid("pipeline-run", done.document)
    assert done.code == done.document["exit_code"] == 1
    assert words(done) == {
        "soil.samples": "unchanged",
        "soil.mean": "unchanged",
        "soil.count": "failed",
        "soil.report": "blocked",
    }
    text = kfm("pipeline", "run", "flow.py", "--only", "soil.count")
    assert text.out.splitlines()[-1].startswith("failed: 1 failed, 1 unchanged, 2 skipped; run ")
    assert "ValueError: no rain" in text.err
    line = FLOW.splitlines().index('        raise ValueError("no rain")') + 1
    assert f"at: flow.py:{line} in count" in text.err
    again = text.err.partition("go on with: kfm ")[2].split()
    assert "Traceback" not in text.err
    (flow / "broken").unlink()
    on = kfm(*again, "--only", "soil.count")
    assert on.out.splitlines()[0].startswith("ran")
    assert (on.code, on.out.splitlines()[-1].split(";")[0]) == (0, "1 ran, 1 unchanged, 2 skipped")


def test_force_fork_and_names(kfm: Kfm, flow: Path) -> None:
    """A node can be made to run; a run can be forked from a node, by the beginning of its id."""
    kfm("pipeline", "run", "flow.py", "--run-id", "first-run")
    assert words(kfm("pipeline", "run", "flow.py", "--force", "soil.count", "--json")) == {
        "soil.count": "ran"
    }
    plan = kfm("pipeline", "plan", "flow.py", "--fork", "first", "--from", "soil.mean", "--json")
    assert words(plan) == {"soil.mean": "would run", "soil.report": "would run"}
    forked = kfm("pipeline", "run", "flow.py", "--fork", "first", "--from", "soil.mean", "--json")
    assert words(forked) == {"soil.mean": "ran", "soil.report": "ran"}
    assert kfm("pipeline", "run", "flow.py", "--force", "soil.cont").code == 2
    assert kfm("pipeline", "run", "flow.py", "--resume", "no-such-run").code == 2


@pytest.mark.req("RS-9")
@pytest.mark.parametrize(("number", "jobs"), [(signal.SIGINT, "1"), (signal.SIGTERM, "1")])
def test_cancelled_passes_can_be_resumed(
    kfm: Kfm, flow: Path, number: signal.Signals, jobs: str, valid: Valid
) -> None:
    """A signal to stop ends the pipeline run as cancelled, with 130; resuming it repeats no finished node."""
    with halted(flow, "--run-id", "stopped", "--jobs", jobs) as child:
        os.kill(child.pid, number)
        out, err = child.communicate(timeout=SECONDS_MAX)
    assert child.returncode == 130
    assert out.splitlines()[-1].startswith("cancelled: ")
    assert "go on with: kfm pipeline run flow.py --resume stopped" in err
    listed = kfm("run-state", "list", "--json").document["passes"]
    assert [each["state"] for each in listed] == ["cancelled"]
    on = kfm("pipeline", "run", "flow.py", "--resume", "stopped", "--json", "--all")
    assert on.code == 0
    assert words(on)["soil.samples"] == "done"
    assert words(on)["soil.mean"] == "ran"


def test_busy(kfm: Kfm, flow: Path) -> None:
    """While one process works on a pipeline's branch, another is told so, with 5."""
    with halted(flow):
        other = kfm("pipeline", "run", "flow.py")
    assert other.code == 5
    assert "KFM500" in other.err


def test_records_are_shown(kfm: Kfm, flow: Path, valid: Valid) -> None:
    """Passes, one pass, one node and its history: for people as tables, for programs by schema."""
    assert kfm("run-state", "list").out == "no pipeline runs\n"
    kfm("pipeline", "run", "flow.py")
    kfm("pipeline", "run", "flow.py")
    listed = kfm("run-state", "list", "--json")
    valid("run-state-list", listed.document)
    assert [each["state"] for each in listed.document["passes"]] == ["success", "success"]
    assert kfm("run-state", "list", "--pipeline", "other").out == "no pipeline runs\n"
    assert "4 unchanged" in kfm("run-state", "list").out
    shown = kfm("run-state", "show", "last", "--json")
    valid("run-state-show", shown.document)
    assert {each["outcome"] for each in shown.document["nodes"]} == {"skipped"}
    node = kfm("run-state", "show", "last", "soil.mean", "--json")
    valid("run-state-show", node.document)
    assert node.document["skipped_because"] == listed.document["passes"][1]["run_id"]
    assert "value.json" in kfm("run-state", "show", "last", "soil.mean").out
    history = kfm("run-state", "history", "soil.mean", "--json")
    valid("run-state-history", history.document)
    assert [each["outcome"] for each in history.document["records"]] == ["skipped", "success"]
    wrong = kfm("run-state", "history", "soil.men")
    assert (wrong.code, "did you mean `soil.mean`?" in wrong.err) == (2, True)


@pytest.mark.parametrize("suffix", ["jsonl", "parquet", "feather"])
def test_export(kfm: Kfm, flow: Path, valid: Valid, suffix: str) -> None:
    """Every record is a row of the file, in a form that other tools read."""
    if suffix != "jsonl":
        pytest.importorskip("arro3.io", reason="the extra `parquet` is not installed")
    kfm("pipeline", "run", "flow.py")
    kfm("pipeline", "run", "flow.py")
    done = kfm("run-state", "export", f"out.{suffix}", "--json")
    valid("run-state-export", done.document)
    assert done.document == {"written": f"out.{suffix}", "records": 8}
    assert kfm("run-state", "export", "out.csv").code == 2
    if suffix == "parquet":
        duckdb = pytest.importorskip("duckdb")
        query = "SELECT outcome, count(*), count(duration_ms) FROM 'out.parquet' GROUP BY outcome ORDER BY 1"
        assert duckdb.sql(query).fetchall() == [("skipped", 4, 0), ("success", 4, 4)]


def test_graph(kfm: Kfm, flow: Path, valid: Valid) -> None:
    """The graph of a pass tells each node with its word and what it reads from, as text and as a picture."""
    (flow / "broken").touch()
    kfm("pipeline", "run", "flow.py", "--keep-going")
    lines = kfm("graph", "last").out.splitlines()
    assert lines[0].startswith("soil, run ")
    assert lines[0].endswith(" on main: failed")
    assert "layer 1" in lines
    assert [line for line in lines if line.startswith("  ! soil.count") and line.endswith("← soil.samples")]
    assert [line for line in lines if line.startswith("  - soil.report") and "soil.count failed" in line]
    done = kfm("graph", "last", "--svg", "pass.svg", "--direction", "down", "--json")
    valid("graph", done.document)
    assert {each["node"]: each["layer"] for each in done.document["nodes"]} == {
        "soil.samples": 1,
        "soil.mean": 2,
        "soil.count": 2,
        "soil.report": 3,
    }
    text = (flow / "pass.svg").read_text(encoding="utf-8")
    ElementTree.fromstring(text)
    assert kfm("graph", "last", "--svg", "pass.svg", "--direction", "down").code == 0
    assert (flow / "pass.svg").read_text(encoding="utf-8") == text


@pytest.mark.req("RS-12")
def test_explain(kfm: Kfm, flow: Path, valid: Valid) -> None:
    """Why a node ran, was skipped, failed or was blocked: from the records, with what changed."""

    def told(node: str) -> tuple[str, str]:
        account = kfm("explain", f"last/{node}", "--json")
        valid("explain", account.document)
        sentences = [account.document["reason"], *account.document["chain"]]
        assert all(each["record"]["id"] for each in sentences)
        return account.document["reason"]["text"], "\n".join(each["text"] for each in sentences)

    kfm("pipeline", "run", "flow.py", "--run-id", "first-run")
    assert told("soil.mean")[0].endswith("ran: no run had made it on main before.")
    (flow / "flow.py").write_text(FLOW.replace('"digits": 2', '"digits": 3'))
    kfm("pipeline", "run", "flow.py", "--run-id", "second-run")
    reason, all_of_it = told("soil.mean")
    assert "its inputs changed: parameter digits changed from 2 to 3." in reason
    assert "It reads from soil.samples" in all_of_it
    assert "which run first-run made." in all_of_it
    assert "is unchanged; run first-run made its result" in told("soil.samples")[0]
    assert "checksum of input soil.mean" not in told("soil.count")[1]
    (flow / "flow.py").write_text(FLOW.replace("return len(samples)", "return len(samples) + 0"))
    (flow / "broken").touch()
    kfm("pipeline", "run", "flow.py", "--run-id", "third-run")
    reason, all_of_it = told("soil.count")
    assert "failed: KFM607" in reason
    assert "It ran because: code changed." in all_of_it
    assert "Its code was code:" in all_of_it
    assert "blocked: soil.count, from which it reads, failed." in told("soil.report")[0]
    whole = kfm("explain", "third-run").out.splitlines()
    assert "was a run of pipeline soil on main: failed" in whole[0]
    assert "has no node `soil.mea`; did you mean `soil.mean`?" in kfm("explain", "last/soil.mea").err


@pytest.mark.req("RS-12")
def test_explain_invents_nothing(kfm: Kfm, flow: Path) -> None:
    """Where what was hashed is not kept, that is what is said."""
    import apsw

    kfm("pipeline", "run", "flow.py")
    (flow / "data" / "a.csv").write_text("3\n")
    kfm("pipeline", "run", "flow.py")
    database = apsw.Connection(str(flow / ".kfm" / "kfm.db"))
    database.execute("DELETE FROM documents WHERE body LIKE '%data/a.csv%'")
    database.close()
    text = kfm("explain", "last/soil.samples").out
    assert "No evidence of which input changed: what was hashed is not kept." in text
    assert "changed from" not in text


@pytest.mark.req("GOV-3")
def test_roles(kfm: Kfm, flow: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where people have roles, one who may only read can look at pipeline runs, and run none, anywhere."""
    (flow / "kfm.yml").write_text(
        "version: 1\nenvironment: test\ndatasets: []\nsources: []\n"
        f"people:\n  - {{subject: cy, roles: [read], accounts: [{actor()}]}}\n"
    )
    assert kfm("run-state", "list").out == "no pipeline runs\n"
    for where in ((), ("--directory", ".")):
        refused = kfm("pipeline", "run", "flow.py", *where)
        assert refused.code == 3
        assert "`kfm pipeline run`" in refused.err


@pytest.mark.req("RS-10", "RS-3")
def test_a_plan_foresees_what_a_revert_brings(kfm: Kfm, flow: Path) -> None:
    """After a commit was taken back, the plan lists what the next pass runs, with its reasons."""
    (flow / "kfm.yml").write_text("version: 1\nenvironment: test\ndatasets: []\nsources: []\n")
    assert kfm("pipeline", "run", "flow.py").code == 0
    (flow / "data" / "a.csv").write_text("5\n")
    assert kfm("pipeline", "run", "flow.py", "--only", "soil.mean").code == 0
    assert kfm("pipeline", "plan", "flow.py", "--only", "soil.mean").out == "2 unchanged, 2 skipped\n"
    assert kfm("branch", "revert", "main", "--rationale", "a broken gauge").code == 0
    planned = {
        each["node"]: each["reason"]
        for each in kfm("pipeline", "plan", "flow.py", "--json").document["nodes"]
    }
    ran = {
        each["node"]: each["reason"]
        for each in kfm("pipeline", "run", "flow.py", "--json").document["nodes"]
        if each["word"] == "ran"
    }
    assert set(ran) <= set(planned)
    assert planned["soil.samples"] == ran["soil.samples"]
    assert "soil.mean" in ran


@pytest.mark.req("RS-10", "RS-12")
def test_after_a_revert_the_reason_is_the_revert(kfm: Kfm, flow: Path) -> None:
    """The inputs are those of the run whose outputs were reverted: they are not called changed."""
    assert kfm("pipeline", "run", "flow.py").code == 0
    (flow / "data" / "a.csv").write_text("5\n")
    assert kfm("pipeline", "run", "flow.py").code == 0
    assert kfm("branch", "revert", "main", "--rationale", "a broken gauge").code == 0
    ran = kfm("pipeline", "run", "flow.py", "--json").document["nodes"]
    assert {each["node"]: each["reason"] for each in ran}["soil.samples"] == "its outputs were reverted"
    lines = kfm("explain", "last/soil.samples").out.splitlines()
    assert " ran: its outputs were reverted." in lines[0]
    assert "Its inputs equal those of run" in lines[1]
    (flow / "data" / "a.csv").write_text("7\n")
    kfm("pipeline", "run", "flow.py")
    assert "its inputs changed" in kfm("explain", "last/soil.samples").out.splitlines()[0]


@pytest.mark.req("RS-6", "RS-12")
def test_inputs_that_cannot_be_told(kfm: Kfm, flow: Path, valid: Valid) -> None:
    """A node whose inputs can't be hashed fails, on record; others go on, and a plan says so before."""
    (flow / "data" / "a.csv").unlink()
    (flow / "flow.py").write_text(FLOW + '\n@soil.node("soil.note")\ndef note():\n    return "dry"\n')
    plan = kfm("pipeline", "plan", "flow.py", "--json")
    valid("pipeline-plan", plan.document)
    assert words(plan) == {
        "soil.samples": "would fail",
        "soil.mean": "blocked",
        "soil.count": "blocked",
        "soil.report": "blocked",
        "soil.note": "would run",
    }
    done = kfm("pipeline", "run", "flow.py", "--keep-going", "--json")
    assert done.code == 1
    assert words(done)["soil.samples"] == "failed"
    assert words(done)["soil.note"] == "ran"
    assert "soil.samples: inputs[0]: no file is called data/*.csv" in done.err
    account = kfm("explain", "last/soil.samples").out
    assert "no file is called data/*.csv" in account
    assert "It was not executed: its inputs can't be hashed." in account
    assert "  ! soil.samples" in kfm("graph", "last").out
    (flow / "data" / "a.csv").write_text("1\n")
    assert kfm("pipeline", "run", "flow.py", "--resume", "last").code == 0
