"""Run-state in a Delta table: does a pass's write cost more when many runs are on record?"""

from __future__ import annotations

import itertools
import time
from contextlib import ExitStack
from dataclasses import dataclass, field

from bench.admission import _folder as scratch
from bench.harness import Benchmark
from kfm.branches_remote.delta import DeltaRunState
from kfm.model.records import Node

FEW, MANY = 50, 1000  # runs
NODES = 20  # of each run
AGAIN = 5  # of them are recorded a second time
START_MS = 1_767_225_600_000


@dataclass
class Table:
    backend: DeltaRunState
    numbers: itertools.count[int] = field(default_factory=itertools.count)

    def node(self, run: int, number: int, attempt: int = 1) -> Node:
        return Node(
            dataset_id=f"soil.n{number:03}",
            run_id=f"019a{run:028x}",  # as ids are: by time
            lakefs_branch="main",
            inputs_hash=f"sha256:{run:064x}",
            validation_summary={"checks": 2, "passed": 2, "failed": 0},
            outcome="success",
            recorded_at_ms=START_MS + run * 1000 + number,
            attempt=attempt,
        )

    def upsert(self) -> float:
        """Seconds for the records of one run: all of them new, then some of them again."""
        run = next(self.numbers)
        new = [self.node(run, number) for number in range(NODES)]
        again = [self.node(run, number, attempt=2) for number in range(AGAIN)]
        began_s = time.perf_counter()
        self.backend.put(self.backend.prepare(new))
        self.backend.put(self.backend.prepare(again))
        return time.perf_counter() - began_s

    def fill(self, runs: int) -> None:
        for _ in range(runs):
            run = next(self.numbers)
            self.backend.put(self.backend.prepare([self.node(run, number) for number in range(NODES)]))


def _tables(stack: ExitStack) -> tuple[Table, Table]:
    few, many = (Table(DeltaRunState(f"{scratch(stack)}/table")) for _ in range(2))
    few.fill(FEW)
    many.fill(MANY)
    return few, many


def benchmarks() -> list[Benchmark]:
    return [
        Benchmark(
            name="delta_growth",
            goal=1.5,
            kind="cost",
            ours=lambda tables: tables[1].upsert(),
            reference=lambda tables: tables[0].upsert(),
            setup=_tables,
            rounds=31,
        )
    ]
