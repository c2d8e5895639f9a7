"""Passes that are killed, with their records elsewhere than in the ledger."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from kfm.pipelines.project import open_project

NODES = 8
KILLS = 3
WAIT_SECONDS = 60.0
CHILD = f"""
import kfm
from kfm.pipelines.project import run_pipeline

soil = kfm.Pipeline("soil")


def effect(name):
    with open("effects", "a") as file:
        file.write(name + "\\n")


@soil.node("n0")
def n0() -> int:
    effect("n0")
    return 0


for number in range(1, {NODES}):
    exec(
        f"@soil.node('n{{number}}', version='1')\\n"
        f"def n{{number}}(n{{number - 1}}: int) -> int:\\n"
        f"    effect('n{{number}}')\\n"
        f"    return n{{number - 1}} + {{number}}\\n"
    )
print(run_pipeline(soil, config="kfm.yml", run_id="run-1", jobs=1).state, flush=True)
"""


def lines(folder: Path) -> list[str]:
    path = folder / "effects"
    return path.read_text().splitlines() if path.exists() else []


@pytest.mark.req("RS-5", "RS-9")
@pytest.mark.parametrize("store", ["delta", "branch"])
def test_a_killed_pass_repeats_nothing_that_was_on_record(tmp_path: Path, store: str) -> None:
    """After each kill the finished nodes are on record and not repeated; at most the one at work is."""
    (tmp_path / "kfm.yml").write_text(f"version: 1\nrun_state: {{store: {store}}}\n")
    (tmp_path / "child.py").write_text(CHILD)
    chance = random.Random(7)
    allowed: Counter[str] = Counter()
    for kill in range(KILLS):
        target = len(lines(tmp_path)) + chance.randint(1, 2)
        child = subprocess.Popen([sys.executable, "child.py"], cwd=tmp_path)
        until = time.monotonic() + WAIT_SECONDS
        while len(lines(tmp_path)) < target and child.poll() is None and time.monotonic() < until:
            time.sleep(0.001)
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        with open_project(config=str(tmp_path / "kfm.yml"), read_only=True) as place:
            done = {node.dataset_id for node in place.tables.of_run("run-1") if node.outcome == "success"}
        begun = lines(tmp_path)
        assert all(begun.count(name) >= 1 for name in done), kill
        allowed.update(set(begun) - done)

    ended = subprocess.run(
        [sys.executable, "child.py"], cwd=tmp_path, capture_output=True, text=True, timeout=WAIT_SECONDS
    )

    assert ended.stdout == "success\n", ended.stderr
    for name, times in Counter(lines(tmp_path)).items():
        assert times <= 1 + allowed[name], name
    with open_project(config=str(tmp_path / "kfm.yml"), read_only=True) as place:
        found = {node.dataset_id: node.outcome for node in place.tables.of_run("run-1")}
    assert found == {f"n{number}": "success" for number in range(NODES)}
