"""Nodes in processes of their own, with real children."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import kfm
from kfm.model.errors import PipelineError

SECONDS_MAX = 60
FLOW = """\
import os, signal, sys, time
import kfm

pipeline = kfm.Pipeline("work", workers="processes", jobs=3)

@pipeline.node("first")
def first(ctx):
    print("a node may print")
    ctx.log("reading")
    ctx.validate("it is so", True)
    ctx.publisher.write_file("first.txt", "made")
    return {"pid": os.getpid()}

@pipeline.node("fragile")
def fragile(first):
    if not os.path.exists("died"):
        open("died", "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    return 1

@pipeline.node("doomed")
def doomed(first):
    with open("doomed.txt", "a") as file:
        file.write("x")
    os.kill(os.getpid(), signal.SIGKILL)

@pipeline.node("wrong")
def wrong(first):
    raise LookupError("nowhere")
"""
SLOW = """\
import os, time
import kfm

pipeline = kfm.Pipeline("slow")

@pipeline.node("slow")
def slow(ctx):
    with open("wait", "w") as fifo:
        fifo.write(str(os.getpid()))
    while True:
        time.sleep(0.01)
        ctx.check()
"""


def kfm_command(folder: Path, *arguments: str, **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "kfm", "pipeline", "run", "flow.py", "--directory", ".", *arguments],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def nodes_of(out: str) -> dict[str, Any]:
    return {each["node"]: each for each in json.loads(out)["nodes"]}


def test_a_child_that_is_killed_is_replaced_once(tmp_path: Path) -> None:
    """Killed once, a node is tried again in a fresh child; killed twice, it has failed, and says how."""
    (tmp_path / "flow.py").write_text(FLOW)
    process = kfm_command(tmp_path, "--keep-going", "--json")
    out, err = process.communicate(timeout=SECONDS_MAX)
    assert process.returncode == 1, err
    nodes = nodes_of(out)
    assert {name: each["word"] for name, each in nodes.items()} == {
        "first": "ran",
        "fragile": "ran",
        "doomed": "failed",
        "wrong": "failed",
    }
    assert "killed by SIGKILL, twice" in nodes["doomed"]["error"]["message"]
    assert (tmp_path / "doomed.txt").read_text() == "xx"
    assert "LookupError: nowhere" in nodes["wrong"]["error"]["message"]
    assert "a node may print" in err, "what nodes print is not the result"
    assert "first: reading\n" in err
    assert "fragile: its process was killed by SIGKILL; tried once more in another\n" in err
    assert re.search(r"at: .*flow\.py:\d+ in wrong", err)
    again = kfm_command(tmp_path, "--keep-going", "--json", "--all")
    assert nodes_of(again.communicate(timeout=SECONDS_MAX)[0])["first"]["word"] == "unchanged"


def awaited(folder: Path, process: subprocess.Popen[str]) -> int:
    """The child that is at work, by its own word."""
    fifo = os.open(folder / "wait", os.O_RDONLY | os.O_NONBLOCK)
    try:
        deadline = time.monotonic() + SECONDS_MAX
        while time.monotonic() < deadline and process.poll() is None:
            ready, _, _ = select.select([fifo], [], [], 0.1)
            text = os.read(fifo, 100) if ready else b""
            if text:
                return int(text)
    finally:
        os.close(fifo)
    raise AssertionError(f"it never came to its node: {process.communicate()}")


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.mark.req("RS-9")
def test_children_die_with_their_parent(tmp_path: Path) -> None:
    """A killed pipeline run leaves no process behind that goes on working."""
    (tmp_path / "flow.py").write_text(SLOW)
    os.mkfifo(tmp_path / "wait")
    process = kfm_command(tmp_path, "--processes")
    child = awaited(tmp_path, process)
    assert child != process.pid
    process.kill()
    process.communicate(timeout=SECONDS_MAX)
    deadline = time.monotonic() + SECONDS_MAX
    while is_alive(child):
        assert time.monotonic() < deadline, "the child outlived its parent"
        time.sleep(0.01)


def test_a_pass_in_processes_can_be_cancelled(tmp_path: Path) -> None:
    """Ctrl-C reaches nodes that look whether they should stop, in their processes."""
    (tmp_path / "flow.py").write_text(SLOW)
    os.mkfifo(tmp_path / "wait")
    process = kfm_command(tmp_path, "--processes", "--json")
    awaited(tmp_path, process)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=SECONDS_MAX)
    assert process.returncode == 130, err
    assert json.loads(out)["state"] == "cancelled"


def test_a_pipeline_that_is_in_no_file_is_refused(tmp_path: Path) -> None:
    """Before anything is begun, with the way out."""
    namespace: dict[str, Any] = {"kfm": kfm}
    exec('pipeline = kfm.Pipeline("nowhere")', namespace)
    with pytest.raises(PipelineError, match="at a prompt") as caught:
        namespace["pipeline"].run(workers="processes", directory=str(tmp_path))
    assert "top level" in caught.value.way_out
    assert not (tmp_path / ".kfm" / "objects").exists()
    with pytest.raises(PipelineError, match="threads, processes or dask"):
        kfm.Pipeline("odd", workers="fibres")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "def make():\n    {made}\n    return pipeline\n"
            "if __name__ == '__main__':\n    pipeline = make()\n    {run}",
            "makes no pipeline late",
        ),
        ("{made}\n{run}", "runs late as soon as it is loaded"),
    ],
)
def test_a_file_that_others_can_not_load_is_said_to_be(tmp_path: Path, text: str, said: str) -> None:
    """A pipeline made in a function, or run by merely loading its file: the pass fails and says which."""
    made = 'import kfm; pipeline = kfm.Pipeline("late"); pipeline.node("one")(len)'.replace("len", "dict")
    run = 'print(pipeline.run(workers="processes", directory=".").error.message)'
    (tmp_path / "flow.py").write_text(text.format(made=made, run=run))
    ended = subprocess.run(
        [sys.executable, "flow.py"], cwd=tmp_path, capture_output=True, text=True, timeout=SECONDS_MAX
    )
    assert said in ended.stdout, ended
