"""Passes over 200 nodes with effects outside, killed with SIGKILL at any moment and started again.

Each node appends its name to a file that no transaction protects, and makes an output. The file tells,
from outside, what ran and how often; the rows tell what was on record when the kill came. A node that was
on record then must never be seen again, and at the end everything is as if no process had ever been killed.
"""

from __future__ import annotations

import hashlib
import json
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests import services
from tests.crash.fleet import Book
from tests.crash.project import RIGHTS, Project, finish

NODES = 200
JOBS = 4
POLL_SECONDS = 0.001
PATIENCE_SECONDS = 120.0
ORPHANS_SECONDS = 10.0
KILLS_PER_PASS = 5
RUN_ID = "pass"

FLOW = f"""\
import hashlib
import os
import random

import kfm

NODES = {NODES}
pipeline = kfm.Pipeline("effects")


def effect(name):
    line = f"{{name}} {{os.getpid()}}\\n".encode()
    file = os.open("effects.txt", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, line)
    os.close(file)


def work(ctx, name, **read):
    effect(name)
    text = "".join(f"{{key}}={{read[key]['digest']}};" for key in sorted(read))
    digest = hashlib.sha256((name + text).encode()).hexdigest()
    ctx.publisher.write_file(f"{{name}}.txt", digest * 50)
    return {{"digest": digest}}


def declare(number):
    rng = random.Random(number)
    before = [each for each in range(max(0, number - 30), number - 3)]
    reads = sorted(rng.sample(before, min(len(before), rng.randrange(3))))

    def node(ctx, **read):
        return work(ctx, f"n{{number:03}}", **read)

    needs = {{f"n{{each:03}}": f"n{{each:03}}" for each in reads}}
    pipeline.node(f"n{{number:03}}", needs=needs)(node)


for number in range(NODES):
    declare(number)
"""

CONFIG = f"""\
version: 1
environment: crash
{{store}}
datasets:
  - {{id: notes, title: Notes, domain: hydrology, rights: {RIGHTS}}}
publish:
  - {{kind: local, path: published}}
sources:
  - {{id: notes, dataset: notes, kind: files, folder: incoming}}
"""


@dataclass
class Told:
    seed: int
    workers: str
    backend: str
    kills: int = 0
    missed: int = 0
    repeated: int = 0  # effects of nodes that a kill interrupted
    hits: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)


class Killed:
    """One pass, with the kills that it has to bear."""

    def __init__(self, seed: int, folder: Path, workers: str, dsn: str | None) -> None:
        self._rng = random.Random(f"pass {seed}")
        self._project = Project(folder)
        self._book = Book(self._project, dsn)
        self._effects = folder / "effects.txt"
        self._workers = workers
        self._finished: dict[str, int] = {}  # nodes that were on record at a kill → how often they had run
        self.told = Told(seed, workers, "postgresql" if dsn else "sqlite")
        if dsn:
            self._project.env["PASS_STORE"] = dsn
        self._project.write("kfm.yml", CONFIG.replace("{store}", "store: env:PASS_STORE" if dsn else ""))
        self._project.write("flow.py", FLOW)

    def bear(self, kills: int) -> Told:
        began = time.monotonic()
        # How many effects are to be seen before each kill: from before the first to after the last.
        for point in sorted(self._rng.randrange(NODES + 2) for _ in range(kills)):
            if not self._killed_once(point):
                break
        self._restarted()
        self._inspect()
        self.told.seconds = time.monotonic() - began
        return self.told

    # --- striking --------------------------------------------------------------------------

    def _killed_once(self, target: int) -> bool:
        """Start it, and kill it once so many nodes have run; False if it came to its end before."""
        seen = len(self._lines())
        process = self._start()
        deadline = time.monotonic() + PATIENCE_SECONDS
        # At the beginning there is more to hit than in between two effects.
        early = target <= seen
        delay = self._rng.random() * (0.8 if early else 0.01)
        while process.poll() is None and self._count() < target:
            assert time.monotonic() < deadline, "the pass neither ended nor came to its point"
            time.sleep(POLL_SECONDS)
        time.sleep(delay)
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        finish(process)
        if process.returncode != -signal.SIGKILL:
            self.told.missed += 1
            if process.returncode != 0:
                self.told.problems.append(f"it ended with {process.returncode} by itself")
            return False
        self.told.kills += 1
        self._await_orphans(process.pid)
        self._note(early)
        return True

    def _note(self, early: bool) -> None:
        """What is on record now must not run again: remember how often each has run."""
        on_record = self._on_record()
        counts = Counter(name for name, _ in self._lines())
        self._finished |= {name: counts[name] for name in on_record}
        done = len(on_record)
        quarter = f"{done * 4 // NODES * 25} % done" if done < NODES else "all done"
        self.told.hits["none done" if early and not done else quarter] += 1

    def _on_record(self) -> set[str]:
        if self.told.backend == "sqlite" and not (self._project.state / "kfm.db").exists():
            return set()
        try:
            rows = self._book.rows("SELECT dataset_id FROM run_states WHERE outcome = 'success'")
        except Exception as error:  # killed before the tables were made
            if "run_states" in str(error):
                return set()
            raise
        return {row[0] for row in rows}

    def _await_orphans(self, parent: int) -> None:
        """Children die with their parent, and soon."""
        deadline = time.monotonic() + ORPHANS_SECONDS
        children = {pid for _, pid in self._lines() if pid != parent}
        while living := [pid for pid in children if _is_child_of_ours(pid)]:
            if time.monotonic() > deadline:
                self.told.problems.append(f"{living} outlived their parent")
                return
            time.sleep(POLL_SECONDS)

    # --- afterwards ------------------------------------------------------------------------

    def _start(self) -> subprocess.Popen[str]:
        options = ["--processes"] if self._workers == "processes" else []
        return self._project.start(
            "pipeline", "run", "flow.py", "--run-id", RUN_ID, "--jobs", str(JOBS), "--json", *options
        )

    def _restarted(self) -> None:
        ended = finish(self._start())
        if ended.code != 0:
            self.told.problems.append(f"the last one ended with {ended.code}: {ended.err.strip()[-500:]}")
        again = finish(self._start())
        if again.code != 0 or again.document["counts"]["ran"]:
            self.told.problems.append(f"one more was not idle: {again.out[-300:]}{again.err[-300:]}")

    def _inspect(self) -> None:
        told = self.told
        counts = Counter(name for name, _ in self._lines())
        for name, ran in self._finished.items():
            if counts[name] != ran:
                told.problems.append(f"{name} was on record and ran again: {counts[name]} times, not {ran}")
        if set(counts) != {f"n{number:03}" for number in range(NODES)}:
            told.problems.append(f"{len(counts)} nodes ran, not {NODES}")
        told.repeated = sum(counts.values()) - len(counts)
        if told.repeated > told.kills * JOBS:
            told.problems.append(f"{told.repeated} repetitions after {told.kills} kills of {JOBS} at work")
        held = self._book.rows("SELECT scope FROM locks WHERE worker_id IS NOT NULL")
        told.problems += [f"{scope} is still held" for (scope,) in held]

    def results(self) -> dict[str, str]:
        """node/output → the bytes' hash, read from the store; the branch's commit tree beside them."""
        found: dict[str, str] = {}
        for name, outputs in self._book.rows("SELECT dataset_id, outputs FROM run_states ORDER BY 1"):
            for output in json.loads(outputs):
                sha256 = output["checksum"].removeprefix("sha256:")
                path = self._project.state / "objects" / "sha256" / sha256[:2] / sha256[2:]
                found[f"{name}/{output['name']}"] = hashlib.sha256(path.read_bytes()).hexdigest()
        trees = self._book.rows(
            "SELECT c.tree_id FROM branches b JOIN commits c ON c.commit_id = b.head WHERE b.name = 'main'"
        )
        return {**found, "main": str(trees)}

    def _lines(self) -> list[tuple[str, int]]:
        try:
            text = self._effects.read_text()
        except FileNotFoundError:
            return []
        return [(name, int(pid)) for name, pid in (line.split() for line in text.splitlines())]

    def _count(self) -> int:
        try:
            return self._effects.read_bytes().count(b"\n")
        except FileNotFoundError:
            return 0


def _is_child_of_ours(pid: int) -> bool:
    """Alive, and not another process that got the same number."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return b"kfm.pipelines.worker_child" in command


def undisturbed(folder: Path) -> dict[str, str]:
    """What a pipeline run makes that is never killed."""
    calm = Killed(0, folder, "threads", None)
    told = calm.bear(0)
    assert not told.problems, told.problems
    return calm.results()


def killed(
    seed: int, folder: Path, workers: str, dsn: str | None, kills: int, expected: dict[str, str]
) -> Told:
    one = Killed(seed, folder, workers, dsn)
    told = one.bear(kills)
    if not told.problems:
        results = one.results()
        told.problems += [
            f"{name} is not what it would have been"
            for name in sorted(expected.keys() | results.keys())
            if expected.get(name) != results.get(name)
        ][:5]
    return told


def campaign(
    kills: int, scratch: Path, seed: int, server: str | None, deadline: float, tell: Callable[[Told], Any]
) -> list[Told]:
    """All four kinds in turn, until so many kills were borne or the time is up."""
    expected = undisturbed(scratch / "calm")
    kinds = [(workers, store) for store in (None, server) for workers in ("threads", "processes")]
    kinds = kinds if server else kinds[:2]
    done: list[Told] = []
    while sum(told.kills for told in done) < kills and time.monotonic() < deadline:
        number = len(done)
        workers, store = kinds[number % len(kinds)]
        with ExitStack() as stack:
            dsn = stack.enter_context(services.postgres_database(store)) if store else None
            left = kills - sum(told.kills for told in done)
            told = killed(
                seed * 1000 + number,
                scratch / f"pass-{number}",
                workers,
                dsn,
                min(KILLS_PER_PASS, left),
                expected,
            )
        done.append(told)
        tell(told)
    return done
