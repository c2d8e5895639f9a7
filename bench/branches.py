"""A commit of many objects beside the bare insert of the same rows, and a small one on top of it."""

from __future__ import annotations

import itertools
import os
import time
from contextlib import ExitStack
from dataclasses import dataclass

import apsw

from bench.admission import _folder as scratch
from bench.harness import Benchmark
from kfm.db.branches import EmbeddedBranches
from kfm.db.queries import migrate
from kfm.db.sqlite import SqliteDatabase
from kfm.model.branches import Commit, NewCommit, TreeEntry
from kfm.system import SystemClock

OBJECTS = 100_000


@dataclass
class Bench:
    branches: EmbeddedBranches
    bare: apsw.Connection
    changes: dict[str, TreeEntry]
    numbers: itertools.count[int]

    def commit(self) -> float:
        """Seconds for a commit of all objects to a new branch; content that was never there before."""
        number = next(self.numbers)
        name = f"b{number}"
        self.branches.create(name)
        changes = {f"{number}/{path}": entry for path, entry in self.changes.items()}
        began_s = time.perf_counter()
        made = self.branches.commit(NewCommit(name, changes, message="all", author="bench"))
        took_s = time.perf_counter() - began_s
        assert isinstance(made, Commit)
        return took_s

    def insert(self) -> float:
        """Seconds for the same rows in one transaction, into a table that has its key and nothing else."""
        number = next(self.numbers)
        rows = [(f"{number}/{path}", entry.sha256, entry.size) for path, entry in self.changes.items()]
        began_s = time.perf_counter()
        self.bare.execute("BEGIN IMMEDIATE")
        self.bare.executemany("INSERT INTO entries VALUES (?, ?, ?)", rows)
        self.bare.execute("COMMIT")
        return time.perf_counter() - began_s

    def small(self) -> float:
        """Seconds for a commit that changes one of all objects."""
        number = next(self.numbers)
        path = list(self.changes)[number * 7919 % OBJECTS]
        began_s = time.perf_counter()
        made = self.branches.commit(
            NewCommit(
                "large",
                {path: TreeEntry(sha256=f"{number:064x}", size=number)},
                message="one",
                author="bench",
            )
        )
        took_s = time.perf_counter() - began_s
        assert isinstance(made, Commit)
        return took_s

    def single(self) -> float:
        """Seconds for one row in one transaction."""
        number = next(self.numbers)
        began_s = time.perf_counter()
        self.bare.execute("BEGIN IMMEDIATE")
        self.bare.execute("INSERT INTO entries VALUES (?, ?, ?)", (f"one/{number}", f"{number:064x}", number))
        self.bare.execute("COMMIT")
        return time.perf_counter() - began_s


def _setup(stack: ExitStack) -> Bench:
    folder = scratch(stack)
    clock = SystemClock()
    database = SqliteDatabase(os.path.join(folder, "kfm.db"), clock)
    stack.callback(database.close)
    migrate(database, "sqlite", clock.now_ms())
    bare = apsw.Connection(os.path.join(folder, "bare.db"))
    stack.callback(bare.close)
    bare.pragma("journal_mode", "wal")
    bare.pragma("synchronous", "FULL")
    bare.execute("CREATE TABLE entries (path TEXT PRIMARY KEY, sha256 TEXT NOT NULL, size BIGINT NOT NULL)")
    changes = {
        f"tiles/{number % 100:02d}/{number:06d}.tif": TreeEntry(sha256=f"{number:064x}", size=number)
        for number in range(OBJECTS)
    }
    branches = EmbeddedBranches(database)
    branches.create("large")
    branches.commit(NewCommit("large", changes, message="all", author="bench"))
    return Bench(branches, bare, changes, itertools.count(1))


def benchmarks() -> list[Benchmark]:
    return [
        Benchmark(
            name="branch_commit",
            kind="cost",
            goal=4.0,
            setup=_setup,
            ours=lambda bench: bench.commit(),
            reference=lambda bench: bench.insert(),
            rounds=7,
        ),
        Benchmark(
            name="branch_commit_one",
            kind="cost",
            goal=10.0,
            setup=_setup,
            ours=lambda bench: bench.small(),
            reference=lambda bench: bench.single(),
            rounds=51,
        ),
    ]
