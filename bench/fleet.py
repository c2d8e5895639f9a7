"""Many workers on one PostgreSQL: how long a switch takes to land among them, and how often failures for
mixed causes wait in circles. Processes of their own, on a disk; not among those that run without being named.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

from bench.harness import Benchmark

ON_REQUEST = True
BUSY, FAILING = 16, 6
SWITCHES = 100
SECONDS = 12.0  # of mixed failures
LANDED_S = 2.0
ROOT = Path(__file__).resolve().parents[1]


class Fleet:
    """Workers in processes, all at work."""

    def __init__(self, stack: ExitStack, role: str, size: int) -> None:
        from tests import services
        from tests.conformance.db.ledgers import postgres_store

        server = stack.enter_context(services.postgres(on_disk=True))
        self.dsn = stack.enter_context(services.postgres_database(server))
        self.store = postgres_store(self.dsn)
        stack.callback(self.store.close)
        self._role, self._size = role, size
        self._workers: list[subprocess.Popen[str]] = []
        self._started = 0
        stack.callback(self.stop)

    def start(self) -> None:
        for _ in range(self._size):
            self._started += 1
            command = [sys.executable, "-m", "tests.fleet_load", self._role, self.dsn, str(self._started)]
            self._workers.append(
                subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            )
        for worker in self._workers:
            assert worker.stdout is not None
            assert worker.stdout.readline() == "ready\n"

    def stop(self) -> int:
        """How many batches all of them made."""
        for worker in self._workers:
            assert worker.stdin is not None
            worker.stdin.close()
        batches = 0
        for worker in self._workers:
            assert worker.stdout is not None
            batches += int(worker.stdout.readline() or 0)
            worker.wait(60)
            worker.stdout.close()
        self._workers = []
        return batches


def _busy(stack: ExitStack) -> Fleet:
    fleet = Fleet(stack, "busy", BUSY)
    fleet.start()
    return fleet


def switch_p99_s(fleet: Fleet) -> float:
    """The slowest but one in a hundred, from the call to its commit; each a moment after the one before."""
    from tests.conformance.db.ledgers import entry, switch

    took = []
    for _ in range(SWITCHES):
        began = time.perf_counter()
        fleet.store.set_switch(switch(), entry("switch"))
        took.append(time.perf_counter() - began)
        time.sleep(0.05)
    return sorted(took)[SWITCHES * 99 // 100 - 1]


def deadlocks_of_a_thousand(fleet: Fleet) -> float:
    """Of a thousand batches of failures."""
    from tests.fleet_load import deadlocks

    before = deadlocks(fleet.dsn)
    fleet.start()
    time.sleep(SECONDS)
    batches = fleet.stop()
    return (deadlocks(fleet.dsn) - before) * 1000 / batches


def benchmarks() -> Iterable[Benchmark]:
    yield Benchmark(
        name="switch_under_load",
        goal=1.0,
        kind="cost",
        ours=switch_p99_s,
        reference=lambda _fleet: LANDED_S,
        setup=_busy,
        rounds=3,
    )
    yield Benchmark(
        name="mixed_failures",
        goal=1.0,
        kind="cost",
        ours=deadlocks_of_a_thousand,
        reference=lambda _fleet: 1.0,
        setup=lambda stack: Fleet(stack, "failing", FAILING),
        unit="deadlocks per 1,000 batches",
        rounds=3,
    )
