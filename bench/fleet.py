"""Many workers on one PostgreSQL: how much they do beside a bare loop, how long a switch takes to land among
them, and how often failures for mixed causes wait in circles. Processes of their own, on a disk; not among
those that run without being named.

    python -m bench.fleet [--seconds 8] [--rounds 2] [WORKERS …]    all of it, with a table: `make fleet-bench`
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from bench.harness import Benchmark, Kind, Result, as_line, is_met, ratio_of, run_all

if TYPE_CHECKING:
    import psycopg

ON_REQUEST = True
BUSY, FAILING = 16, 6
SWITCHES = 100
SECONDS = 12.0  # of mixed failures
LANDED_S = 2.0
SIZES = (1, 2, 4, 8, 16, 32, 64)
BATCH = 100  # as shipped
SETTINGS = ("max_connections=250", "shared_buffers=256MB")
RATIO_MIN, KEPT_MIN, CONNECTIONS_MAX = 0.35, 0.8, 3
FILLED = 20_000  # units at once
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


# --- units a second ------------------------------------------------------------------------------------

Side = Literal["ours", "bare"]
SUCCEEDED: dict[Side, str] = {
    "ours": "SELECT SUM(amount) FROM (SELECT name, amount FROM unit_totals UNION ALL "
    "SELECT name, amount FROM unit_deltas) AS figures WHERE name = 'succeeded'",
    "bare": "SELECT SUM(units) FROM pages WHERE event = 'succeeded'",
}
WAITING = "SELECT 1 FROM units WHERE status = 'pending' LIMIT 1"
CONNECTED = (
    "SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
)


class Rate(NamedTuple):
    units_per_second: float
    connections: float  # for each worker


class Ground:
    """One server; a database with a backlog in one lane for ours, and one for the bare loop."""

    def __init__(self, stack: ExitStack, settings: Sequence[str] = SETTINGS, *, on_disk: bool = True) -> None:
        from bench.admission import _folder
        from bench.ingest_feed import configuration, open_ours
        from tests import services

        server = stack.enter_context(services.postgres_fleet(settings, on_disk=on_disk))
        self._dsns = {
            side: stack.enter_context(services.postgres_database(server)) for side in ("ours", "bare")
        }
        self._config = configuration(_folder(stack), self._dsns["ours"])
        self._ours = open_ours(stack, self._config)  # takes in what the others work off
        self._made = 0  # units of the bare loop
        self._expected: dict[Side, float] = {"ours": 8_000, "bare": 20_000}  # units a second

    def measure(self, side: Side, workers: int, seconds: float) -> Rate:
        """What so many of them do in that time, once each has ended a batch. Read from what is durable."""
        import psycopg

        with psycopg.connect(self._dsns[side], autocommit=True) as looker:
            while True:
                # As long again for the first batches; two workers may do twice what one does.
                self._fill(side, int(4 * seconds * self._expected[side]) + workers * 3 * BATCH)
                looker.execute("CHECKPOINT")
                crew = _Processes(self._command(side), workers)
                try:
                    began, before = time.perf_counter(), _number(looker, SUCCEEDED[side])
                    time.sleep(seconds)
                    ended, after = time.perf_counter(), _number(looker, SUCCEEDED[side])
                    connections = _number(looker, CONNECTED) / workers
                    was_enough = looker.execute(WAITING).fetchone() is not None
                finally:
                    crew.stop()
                rate = (after - before) / (ended - began)
                self._expected[side] = max(rate, self._expected[side] * (1 if was_enough else 2))
                if was_enough:
                    return Rate(rate, connections)

    def _command(self, side: Side) -> list[str]:
        arguments = [self._config] if side == "ours" else [self._dsns[side], str(BATCH)]
        return [sys.executable, "-m", "bench.fleet_workers", side, *arguments]

    def _fill(self, side: Side, wanted: int) -> None:
        import psycopg

        from bench.fleet_workers import fill_bare

        with psycopg.connect(self._dsns[side], autocommit=True) as looker:
            there = 0
            if side == "ours" or self._made:
                there = _number(looker, "SELECT COUNT(*) FROM units WHERE status = 'pending'")
            for _ in range(there, wanted, FILLED):
                if side == "ours":
                    self._ours.take_in(FILLED)
                else:
                    fill_bare(self._dsns[side], self._made, FILLED)
                    self._made += FILLED
            looker.execute("VACUUM ANALYZE units")


def _number(looker: psycopg.Connection[Any], sql: str) -> int:
    row = looker.execute(sql).fetchone()
    return int(row[0] or 0) if row is not None else 0


class _Processes:
    """Workers that are all at work."""

    def __init__(self, command: Sequence[str], count: int) -> None:
        self._all = [
            subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for _ in range(count)
        ]
        for one in self._all:
            assert one.stdout is not None
            if one.stdout.readline() != "ready\n":
                self.stop()
                raise RuntimeError("A worker did not begin.")

    def stop(self) -> None:
        for one in self._all:
            assert one.stdin is not None
            one.stdin.close()
        for one in self._all:
            assert one.stdout is not None
            try:
                one.wait(60)
            except subprocess.TimeoutExpired:
                one.kill()
                one.wait()
            one.stdout.close()


@dataclass(frozen=True)
class Size:
    """What was measured with so many workers."""

    workers: int
    ours: float
    bare: float
    connections: float
    rounds: int


def measured(ground: Ground, workers: int, seconds: float, rounds: int) -> Size:
    rates: dict[Side, list[Rate]] = {"ours": [], "bare": []}
    sides: tuple[Side, Side] = ("bare", "ours")
    for index in range(rounds):
        for side in sides if index % 2 else reversed(sides):  # neither is always first
            rates[side].append(ground.measure(side, workers, seconds))
    ours, bare = (statistics.median(one.units_per_second for one in rates[side]) for side in ("ours", "bare"))
    return Size(workers, ours, bare, max(one.connections for one in rates["ours"]), rounds)


def judged(
    name: str, kind: Kind, figures: tuple[float, float], unit: str, goal: float, rounds: int
) -> Result:
    ratio = ratio_of(kind, *figures)
    return Result(name, *figures, unit, ratio, goal, rounds, is_met(kind, ratio, goal))


def results_of(sizes: Sequence[Size]) -> list[Result]:
    found = [
        judged(f"fleet_{one.workers}", "throughput", (one.ours, one.bare), "units/s", RATIO_MIN, one.rounds)
        for one in sizes
    ]
    best, last = max(one.ours for one in sizes), max(sizes, key=lambda one: one.workers)
    found.append(judged("fleet_kept", "throughput", (last.ours, best), "units/s", KEPT_MIN, last.rounds))
    connections = max(one.connections for one in sizes)
    figures = (connections, float(CONNECTIONS_MAX))
    found.append(judged("fleet_connections", "cost", figures, "connections/worker", 1.0, last.rounds))
    return found


def table(sizes: Sequence[Size], others: Sequence[Result], settings: Sequence[str] = SETTINGS) -> str:
    lines = [f"PostgreSQL on a disk, {', '.join(settings)}; batches of {BATCH}"]
    lines.append(f"{'workers':>8} {'units/s':>9} {'bare loop':>10} {'ratio':>6} {'connections':>12}")
    for one in sizes:
        ratio = one.ours / one.bare
        lines.append(
            f"{one.workers:>8} {one.ours:>9.0f} {one.bare:>10.0f} {ratio:>6.2f} {one.connections:>12.2f}"
        )
    for result in others:
        lines.append(
            f"{result.name}: {result.ours:.3g} {result.unit}, goal {result.goal * result.reference:g}"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.fleet")
    parser.add_argument("workers", nargs="*", type=int, default=list(SIZES), metavar="WORKERS")
    parser.add_argument("--seconds", type=float, default=8.0, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args(arguments)
    sizes = []
    with ExitStack() as stack:
        ground = Ground(stack)
        for workers in options.workers:
            sizes.append(measured(ground, workers, options.seconds, options.rounds))
            print(as_line(results_of(sizes[-1:])[0]), flush=True)
    rest = results_of(sizes)[len(sizes) :]
    for result in rest:
        print(as_line(result), flush=True)
    others = [*rest, *run_all(list(benchmarks()))]
    print(table(sizes, others), file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
