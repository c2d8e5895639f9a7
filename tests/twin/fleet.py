"""Python and Node.js processes at work on one ledger, killed at random; then what is left is judged.

python -m tests.twin.fleet --kills 200
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import date, timedelta
from itertools import cycle
from pathlib import Path
from random import Random
from typing import Any

import apsw

from tests.twin.runtime import TWIN, find_node

WINDOWS = 100
FILES = 40
EARLY = 0.2  # of those that are killed, so many before they have begun
WORK_S = 0.6  # about how long a run works
PERSONS = 0.7  # so many do not wait for the time of the next attempt
ALLOWED = {0, 5}  # done, or busy: another process runs it, or it waits
LIMIT_S = 900
CONFIG = {
    "version": 1,
    "environment": "fleet",
    "datasets": [
        {"id": "d1", "rights": {"license": "CC0-1.0", "care": {"label": "Public", "level": "public"}}}
    ],
    "sources": [{"id": "s1", "dataset": "d1", "kind": "files", "folder": "in"}],
    "publish": [{"kind": "local", "path": "pub"}],
    "lineage": {"export": "file"},
}


@dataclass
class Told:
    """What happened."""

    started: Counter[str] = field(default_factory=Counter)
    killed: Counter[str] = field(default_factory=Counter)
    codes: Counter[int] = field(default_factory=Counter)
    trouble: list[str] = field(default_factory=list)


def make_project(folder: Path) -> None:
    (folder / "in").mkdir(parents=True)
    (folder / "kfm.yml").write_text(json.dumps(CONFIG), "utf-8")
    for name in range(FILES):  # so that a run lasts long enough to be killed in
        rows = "".join(f"{n},{name}\n" for n in range(200))
        (folder / "in" / f"{name}.csv").write_text(f"id,v\n{rows}", "utf-8")


def windows(count: int) -> list[str]:
    first = date(2025, 1, 1)
    return [f"{first + timedelta(days=day)}/P1D" for day in range(count)]


def command(language: str, node: str, window: str, *, by_person: bool) -> list[str]:
    program = (
        [node, str(TWIN / "runner.mjs")] if language == "node" else [sys.executable, "-m", "updater.runner"]
    )
    answers = ["--now", "--rationale", "the fleet goes on"] if by_person else []
    return [*program, "run", "-v", "--window", window, *answers]


def play(folder: Path, node: str, *, kills: int, each: int, wanted: list[str], seed: int) -> Told:
    """`each` processes of either language, until so many were killed."""
    random, told = Random(seed), Told()
    turns = cycle(
        random.sample(wanted, len(wanted))
    )  # no run is interrupted more often than its budget allows
    slots = [Slot(language) for language in ("python", "node") for _ in range(each)]
    until = time.monotonic() + LIMIT_S
    while sum(told.killed.values()) < kills and time.monotonic() < until:
        for slot in slots:
            if slot.process is not None and slot.process.poll() is None:
                if slot.is_due(random):
                    slot.process.kill()
                    slot.process.wait()
                    told.killed[slot.language] += 1
                    slot.process = None
                continue
            if slot.process is not None:
                _ended(slot.process, slot.language, told)
            by_person = random.random() < PERSONS
            slot.start(folder, command(slot.language, node, next(turns), by_person=by_person), random)
            told.started[slot.language] += 1
        time.sleep(0.002)
    for slot in slots:
        if slot.process is not None:
            slot.process.wait()
            _ended(slot.process, slot.language, told)
    return told


@dataclass
class Slot:
    """A place for one process, and when that one has to die."""

    language: str
    process: subprocess.Popen[bytes] | None = None
    out: Path = Path()
    dies_at: float | None = None

    def start(self, folder: Path, words: list[str], random: Random) -> None:
        (folder / "out").mkdir(exist_ok=True)
        self.out = folder / "out" / str(time.monotonic_ns())
        with self.out.open("wb") as out:
            self.process = subprocess.Popen(
                words, cwd=folder, stdout=out, stderr=subprocess.STDOUT, env=_environment()
            )
        # Most die at work; some before they are let in.
        self.dies_at = time.monotonic() + random.uniform(0.1, 2) if random.random() < EARLY else None

    def is_due(self, random: Random) -> bool:
        if self.dies_at is None and b"discover: " in self.out.read_bytes():
            self.dies_at = time.monotonic() + random.uniform(0, WORK_S)
        return self.dies_at is not None and time.monotonic() >= self.dies_at


def _environment() -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    return {**kept, "PYTHONPATH": str(TWIN.parent / "src")}


def _ended(process: subprocess.Popen[bytes], language: str, told: Told) -> None:
    told.codes[process.returncode] += 1
    if process.returncode not in ALLOWED:
        told.trouble.append(f"{language} ended with {process.returncode}: {process.args}")


def finish(folder: Path, node: str, wanted: list[str]) -> None:
    """What is left, by both in turn."""
    for number, window in enumerate(wanted):
        language = ("python", "node")[number % 2]
        done = subprocess.run(
            command(language, node, window, by_person=True),
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            env=_environment(),
        )
        assert done.returncode == 0, f"{language}, {window}: {done.stdout[-1500:]}{done.stderr[-1500:]}"


def judge(folder: Path, wanted: list[str]) -> dict[str, Any]:
    """One successful run for each piece of work, one promotion for each, fences that grow, a sound chain."""
    database = apsw.Connection(str(folder / ".kfm" / "kfm.db"))
    rows = list(database.execute("SELECT work_base, revision, status, attempts, fence FROM runs"))
    assert len(rows) == len(wanted), f"{len(rows)} runs for {len(wanted)} windows"
    assert len({row[0] for row in rows}) == len(rows), "a piece of work has two runs"
    assert {row[1:3] for row in rows} == {(0, "success")}, "a run was repeated, or is not done"
    promotions = list(database.execute("SELECT sequence, run_id, fence FROM promotions ORDER BY sequence"))
    assert len(promotions) == len(wanted), f"{len(promotions)} promotions for {len(wanted)} windows"
    assert [row[0] for row in promotions] == list(range(1, len(wanted) + 1))
    fences = [row[2] for row in promotions]
    assert fences == sorted(set(fences)), "a fence did not grow"
    ((open_attempts,),) = database.execute("SELECT COUNT(*) FROM attempts WHERE ending IS NULL").fetchall()
    assert open_attempts == 0, "an attempt has no end"
    (messages,) = database.execute("SELECT COUNT(*), COUNT(DISTINCT event_id) FROM outbox").fetchall()
    assert messages[0] == messages[1], "an event was posted twice"
    ((locks,),) = database.execute("SELECT COUNT(*) FROM locks WHERE worker_id IS NOT NULL").fetchall()
    assert locks == 0, "a lock is still held"
    asked = {tuple(row) for row in database.execute("SELECT state, outcome FROM requests")}
    assert asked == {("done", "success")}, "a request has another end than its run"
    interrupted = sum(row[3] - 1 for row in rows)
    database.close()
    verified = subprocess.run(
        [sys.executable, "-m", "kfm", "audit", "verify"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env=_environment(),
    )
    assert verified.returncode == 0, verified.stdout + verified.stderr
    return {"runs": len(rows), "interrupted attempts": interrupted, "highest fence": max(fences)}


def published(folder: Path) -> dict[str, str]:
    """What `current` shows, also in folders that versions share."""
    root = (folder / "pub" / "d1" / "current").resolve()
    paths = [Path(place) / name for place, _, names in os.walk(root, followlinks=True) for name in names]
    return {str(path.relative_to(root)): path.read_bytes().hex() for path in sorted(paths)}


def campaign(kills: int, *, each: int = 4, count: int = WINDOWS, seed: int = 1) -> dict[str, Any]:
    node = find_node()
    assert node is not None, "Node.js 24 is not here: `make node` brings it"
    wanted = windows(count)
    with tempfile.TemporaryDirectory(prefix="kfm-fleet-") as name:
        fleet, alone = Path(name) / "fleet", Path(name) / "alone"
        for folder in (fleet, alone):
            make_project(folder)
        told = play(fleet, node, kills=kills, each=each, wanted=wanted, seed=seed)
        assert not told.trouble, told.trouble[:3]
        assert sum(told.killed.values()) >= kills, (
            f"only {sum(told.killed.values())} were killed in {LIMIT_S} s"
        )
        finish(fleet, node, wanted)
        figures = judge(fleet, wanted)
        finish(alone, node, wanted)  # no process is killed here
        assert published(fleet) == published(alone), "the published trees differ"
        return {
            "killed": dict(told.killed),
            "started": dict(told.started),
            **figures,
            "files": len(published(fleet)),
        }


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.twin.fleet", description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    figures = campaign(options.kills, seed=options.seed)
    print(json.dumps(figures))
    return 0 if figures["interrupted attempts"] else 1  # otherwise no attempt was interrupted


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
