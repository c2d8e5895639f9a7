"""Many workers on one PostgreSQL: how much they do beside a bare loop, how long a switch takes to land among
them, and how often failures for mixed causes wait in circles. Processes of their own, on a disk; not among
those that run without being named.

    python -m bench.fleet [--json] [--seconds 4] [--rounds 3] [WORKERS …]    `make fleet-bench`: all of it
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bench.harness import Benchmark, Kind, Result, as_line, is_met, ratio_of, run

ON_REQUEST = True
BUSY, FAILING = 16, 6
SWITCHES = 100
SECONDS = 12.0  # of mixed failures
LANDED_S = 2.0
SIZES = (1, 2, 4, 8, 16, 32, 64)
SETTINGS = ("max_connections=250", "shared_buffers=256MB")
RATIO_MIN, KEPT_MIN, OF_A_WORKER, OF_A_SERVICE = 0.35, 0.8, 3, 6
WARM_S = 2.0  # in which each ends its first batch
FIRST = 300  # units of a process before it is measured: its imports, and the first plans of its statements
REQUESTS = 80  # sixteen at a time, of a service whose connections are counted
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
SUCCEEDED = "SELECT COUNT(*) FROM units WHERE status = 'succeeded'"
CONNECTED = (
    "SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() "
    "AND backend_type = 'client backend'"
)


class Crew:
    """Workers of one side, as many as were asked for so far, on a database of their own."""

    def __init__(self, stack: ExitStack, side: Side, address: str, dsn: str) -> None:
        import psycopg

        self._command = [sys.executable, "-m", "bench.fleet_workers", side, address]
        self._looker = stack.enter_context(psycopg.connect(dsn, autocommit=True))
        self._workers: list[subprocess.Popen[str]] = []
        self._next = 0
        self._expected = 6_000.0  # units a second
        self.connections = 0.0  # of a worker, the most that the server has seen on the average of all
        stack.callback(self._close)

    def units_per_second(self, workers: int, seconds: float) -> float:
        """What so many of them do, counted by what is durable."""
        if len(self._workers) < workers:
            self._begin(workers, FIRST)
            self._tell(["stop"] * workers)
        while True:
            self._begin(workers, int(2 * (WARM_S + seconds) * self._expected / workers) + 5 * FIRST)
            began_s, before = time.perf_counter(), self._count(SUCCEEDED)
            time.sleep(seconds)
            rate = (self._count(SUCCEEDED) - before) / (time.perf_counter() - began_s)
            self.connections = max(self.connections, self._count(CONNECTED) / workers)
            left = self._tell(["stop"] * workers)
            self._expected = max(self._expected, rate)
            if "0" not in left:
                return rate
            self._expected *= 2  # one had nothing to do

    def _begin(self, workers: int, share: int) -> None:
        orders = [f"prepare {self._next + number * share} {share}" for number in range(workers)]
        self._next += workers * share
        self._tell(orders)
        self._looker.execute("VACUUM ANALYZE units")
        self._looker.execute("CHECKPOINT")
        self._tell(["work"] * workers)

    def _count(self, sql: str) -> int:
        row = self._looker.execute(sql).fetchone()
        assert row is not None
        return int(row[0])

    def _tell(self, orders: Sequence[str]) -> list[str]:
        while len(self._workers) < len(orders):
            self._workers.append(
                subprocess.Popen(
                    self._command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
                )
            )
        chosen = self._workers[: len(orders)]
        for worker, order in zip(chosen, orders, strict=True):
            assert worker.stdin is not None
            print(order, file=worker.stdin, flush=True)
        answers = []
        for worker in chosen:
            assert worker.stdout is not None
            answer = worker.stdout.readline().strip()
            assert answer, "a worker has died"
            answers.append(answer)
        return answers

    def _close(self) -> None:
        for worker in self._workers:
            assert worker.stdin is not None
            worker.stdin.close()
        for worker in self._workers:
            assert worker.stdout is not None
            try:
                worker.wait(60)
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()
            worker.stdout.close()


def crews(stack: ExitStack) -> tuple[Crew, Crew]:
    """Ours and the bare loop, on one server."""
    from bench.admission import _folder
    from bench.ingest_feed import configuration, open_ours
    from bench.ingest_references import PostgresFloor
    from tests import services

    server = stack.enter_context(services.postgres_fleet(SETTINGS))
    ours, bare = (stack.enter_context(services.postgres_database(server)) for _ in range(2))
    config = configuration(_folder(stack), ours)
    with ExitStack() as first:
        open_ours(first, config)  # migrates
    floor = PostgresFloor(bare)
    floor.create()
    floor.close()
    return Crew(stack, "ours", config, ours), Crew(stack, "bare", bare, bare)


def connections_of_a_service() -> float:
    """The most that the server has seen of `kfm serve` among a crowd of requests."""
    from bench.admission import _folder
    from bench.ingest_feed import configuration
    from tests import services
    from tests.acceptance.service.served import serving
    from tests.acceptance.service.test_connections_of_a_service import counting

    with ExitStack() as stack:
        server = stack.enter_context(services.postgres())
        dsn = stack.enter_context(services.postgres_database(server))
        folder = Path(_folder(stack))
        configuration(str(folder), dsn)
        counted = stack.enter_context(counting(dsn))
        served = stack.enter_context(serving(folder))
        with ThreadPoolExecutor(16) as threads:
            paths = ("/api/v1/status", "/readyz", "/metrics", "/api/v1/runs")
            for answer in threads.map(lambda n: served.get(paths[n % 4]), range(REQUESTS)):
                assert answer.status_code == 200, answer
        served.stop()
        return counted.most


# --- all of it -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Goal:
    """What was measured, and how near it came."""

    what: str
    kind: Kind
    result: Result

    def line(self) -> str:
        one, sign = self.result, "≤" if self.kind == "cost" else "≥"
        word = "met" if one.met else "MISSED"
        figures = f"{one.ours:>9.4g} {one.reference:>9.4g}  {one.unit:<27} {one.ratio:>6.3f}"
        return f"{self.what:<30} {figures}  {sign} {one.goal:<5g} {word}"


TITLE = f"{'':<30} {'ours':>9} {'beside':>9}  {'':<27} {'ratio':>6}  goal"


def judged(what: str, name: str, kind: Kind, figures: tuple[float, float], unit: str, goal: float) -> Goal:
    ratio = ratio_of(kind, *figures)
    return Goal(what, kind, Result(name, *figures, unit, ratio, goal, 1, is_met(kind, ratio, goal)))


def measured(sizes: Sequence[int], seconds: float, rounds: int) -> Iterable[Goal]:
    """Units a second and connections, one size after the other."""
    done: dict[int, float] = {}
    with ExitStack() as stack:
        ours, bare = crews(stack)
        for workers in sorted(sizes):
            rates: dict[Crew, list[float]] = {ours: [], bare: []}
            for index in range(rounds):
                for crew in (ours, bare) if index % 2 else (bare, ours):  # neither is always first
                    rates[crew].append(crew.units_per_second(workers, seconds))
            done[workers] = statistics.median(rates[ours])
            figures = (done[workers], statistics.median(rates[bare]))
            yield judged(
                f"{workers} workers", f"fleet_{workers}", "throughput", figures, "units/s", RATIO_MIN
            )
    last, best = done[max(sizes)], max(done.values())
    what = f"{max(sizes)} workers beside the best"
    yield judged(what, "fleet_kept", "throughput", (last, best), "units/s", KEPT_MIN)
    figures = (ours.connections, float(OF_A_WORKER))
    yield judged("connections of a worker", "fleet_worker", "cost", figures, "connections", 1.0)


def everything(sizes: Sequence[int], seconds: float, rounds: int) -> Iterable[Goal]:
    yield from measured(sizes, seconds, rounds)
    figures = (connections_of_a_service(), float(OF_A_SERVICE))
    yield judged("connections of a service", "fleet_service", "cost", figures, "connections", 1.0)
    for one in benchmarks():
        yield Goal(one.name.replace("_", " "), one.kind, run(one))


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.fleet", description=__doc__)
    parser.add_argument("workers", nargs="*", type=int, metavar="WORKERS")
    parser.add_argument("--seconds", type=float, default=4.0, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=3, help="the median counts")
    parser.add_argument("--json", action="store_true", help="one line of JSON for each row")
    options = parser.parse_args(arguments)
    if not options.json:
        print(f"PostgreSQL on a disk, {', '.join(SETTINGS)}; `beside`: a bare psycopg loop with as many")
        print(f"connections, or the limit that is named.\n{TITLE}")
    missed = 0
    for goal in everything(options.workers or SIZES, options.seconds, options.rounds):
        print(as_line(goal.result) if options.json else goal.line(), flush=True)
        missed += not goal.result.met
    if not options.json:
        print(f"goals missed: {missed}" if missed else "all goals met")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
