"""Taking in announced objects, beside the bare databases and DBOS.

Ours is the whole path, see ingest_feed.py: a message is parsed, its unit becomes durable, is claimed, goes
through the operators, gets its item and its lineage, and has succeeded. The references do less, see
ingest_references.py.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field

import apsw

from bench import ingest_references as references
from bench.admission import _folder
from bench.harness import Benchmark
from bench.ingest_feed import Crew, Ours, Spool, configuration, open_ours
from bench.ingest_loop import PlainLoop
from bench.unit_rows import GIVE_BACK, PROVIDER, dataset, fill_sqlite
from kfm.db.ledger import Ledger
from kfm.db.queries import migrate
from kfm.db.sqlite import SqliteDatabase
from kfm.model.units import ClaimRequest, Lane
from kfm.system import SystemClock

UNITS = {1: 500, 10: 3_000, 100: 10_000}  # a round, by batch
UNITS_POSTGRESQL = {1: 300, 100: 5_000}
UNITS_DBOS = 150
WORKERS = 4

# --- the whole path ------------------------------------------------------------------------------


@dataclass
class Beside:
    """Our poller and worker, and one reference."""

    ours: Ours
    reference: references.SqliteFloor | references.PostgresFloor | references.Dbos


def _beside_sqlite(stack: ExitStack) -> Beside:
    folder = _folder(stack)
    return Beside(open_ours(stack, configuration(folder)), references.sqlite_floor(stack, folder))


class LoopBeside:
    """The plain loop; and the bare database, or our own poller and worker."""

    def __init__(self, stack: ExitStack, other: references.SqliteFloor | Ours) -> None:
        self._loop = PlainLoop(os.path.join(_folder(stack), "loop.db"))
        stack.callback(self._loop.close)
        self.other = other
        self._next = 0

    def loop(self, n: int, batch: int) -> float:
        """Units a second; their messages are made before the clock starts."""
        spool = Spool()
        spool.put(range(self._next, self._next + n))
        self._next += n
        return self._loop.units_per_second(list(spool.waiting), batch)


def _beside_dbos(stack: ExitStack) -> Beside:
    folder = _folder(stack)
    return Beside(open_ours(stack, configuration(folder)), references.dbos(stack, folder, "as-shipped"))


def _on_postgresql(stack: ExitStack) -> tuple[str, str]:
    """A server's address, and a configuration with a database of its own on it."""
    from tests.services import postgres, postgres_database

    server = stack.enter_context(postgres(on_disk=True))
    return server, configuration(_folder(stack), stack.enter_context(postgres_database(server)))


def _beside_postgresql(stack: ExitStack) -> Beside:
    server, config = _on_postgresql(stack)
    return Beside(open_ours(stack, config), references.postgres_floor(stack, server))


def _crew(stack: ExitStack) -> Crew:
    _, config = _on_postgresql(stack)
    with ExitStack() as first:
        open_ours(first, config)  # migrates
    crew = Crew(config, WORKERS)
    stack.callback(crew.close)
    return crew


def _vs_floor(name: str, setup: Callable[[ExitStack], Beside], n: int, batch: int, goal: float) -> Benchmark:
    return Benchmark(
        name=name,
        kind="throughput",
        goal=goal,
        unit="units/s",
        setup=setup,
        ours=lambda beside: beside.ours.units_per_second(n, batch),
        reference=lambda beside: beside.reference.units_per_second(n, batch),
    )


def _vs_raw(batch: int, goal: float) -> Benchmark:
    return _vs_floor(f"ingest_{batch}_vs_raw", _beside_sqlite, UNITS[batch], batch, goal)


def _vs_loop(batch: int, goal: float) -> Benchmark:
    """Beside the least that Python needs for the same announcements; see ingest_loop.py."""
    n = UNITS[batch]
    return Benchmark(
        name=f"ingest_{batch}_vs_loop",
        kind="throughput",
        goal=goal,
        unit="units/s",
        setup=lambda stack: LoopBeside(stack, open_ours(stack, configuration(_folder(stack)))),
        ours=lambda beside: beside.other.units_per_second(n, batch),
        reference=lambda beside: beside.loop(n, batch),
    )


def _loop_vs_raw(batch: int, goal: float) -> Benchmark:
    """How near to the bare database the plain loop comes: the most that ours could reach in Python."""
    n = UNITS[batch]
    return Benchmark(
        name=f"ingest_{batch}_loop_vs_raw",
        kind="throughput",
        goal=goal,
        unit="units/s",
        setup=lambda stack: LoopBeside(stack, references.sqlite_floor(stack, _folder(stack))),
        ours=lambda beside: beside.loop(n, batch),
        reference=lambda beside: beside.other.units_per_second(n, batch),
    )


def _vs_dbos(batch: int, goal: float) -> Benchmark:
    """DBOS as it is shipped, which is durable, in three steps: five commits a unit. Ours is one: it ends a
    unit, takes in the next and claims it.

    Shipped means journal DELETE and synchronous FULL. With a write-ahead log, which DBOS does not ask for and
    which is as durable, it is two to three times as quick; so it is with one step, which with the workflow's
    own beginning and end makes three commits, one for each durable point. The lead over those is smaller by
    as much.

    At one unit a commit either side pays for its own durable points. At a hundred ours share a commit and
    DBOS's, which are committed one by one, can't: that figure says what batches are worth, not what a commit
    costs.
    """
    return Benchmark(
        name=f"ingest_{batch}_vs_dbos",
        kind="throughput",
        goal=goal,
        unit="units/s",
        setup=_beside_dbos,
        ours=lambda beside: beside.ours.units_per_second(UNITS[batch], batch),
        reference=lambda beside: beside.reference.units_per_second(UNITS_DBOS, batch, steps=3),
        rounds=5,
    )


def _pg_vs_raw(batch: int, goal: float) -> Benchmark:
    n = UNITS_POSTGRESQL[batch]
    return _vs_floor(f"ingest_pg_{batch}_vs_raw", _beside_postgresql, n, batch, goal)


def _pg_scaling() -> Benchmark:
    n = UNITS_POSTGRESQL[100]
    return Benchmark(
        name="ingest_pg_scaling",
        kind="throughput",
        goal=1.5,
        unit="units/s",
        setup=_crew,
        ours=lambda crew: crew.units_per_second(n, 100, WORKERS),
        reference=lambda crew: crew.units_per_second(n, 100, 1),
        rounds=5,
    )


# --- memory ------------------------------------------------------------------------------------------

MEMORY_UNITS = 20_000  # a round
MEMORY_ROUNDS = 9  # so at least 200,000 units in all
MIB = 1 << 20


class Resident:
    """What this process holds in memory after so and so many units; a leak grows with them."""

    def __init__(self, ours: Ours) -> None:
        self._ours = ours
        self.first = self.after_a_round()

    def after_a_round(self) -> float:
        for _ in range(MEMORY_UNITS // 2_000):
            assert self._ours.work_off(self._ours.prepare(2_000), 100) == 2_000
        gc.collect()
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / MIB


def _memory() -> Benchmark:
    return Benchmark(
        name="ingest_memory",
        kind="cost",
        goal=1.1,
        unit="MiB",
        setup=lambda stack: Resident(open_ours(stack, configuration(_folder(stack)))),
        ours=lambda resident: resident.after_a_round(),
        reference=lambda resident: resident.first,
        rounds=MEMORY_ROUNDS,
    )


# --- claims in a large ledger ----------------------------------------------------------------------

CLAIM = 100
LANES = 20  # a round claims once in each
LEASE_MS = 120_000


@dataclass
class Claims:
    """Ledgers that differ in size alone, by size."""

    stores: dict[int, Ledger] = field(default_factory=dict)
    raw: dict[int, apsw.Connection] = field(default_factory=dict)

    def seconds(self, size: int) -> float:
        """Seconds for one claim, its commit included."""
        units = self.stores[size].units()
        requests = [
            ClaimRequest(Lane(dataset(number), PROVIDER), CLAIM, "worker-6f1c2a9e", references.RUN, LEASE_MS)
            for number in range(LANES)
        ]
        began_s = time.perf_counter()
        claimed = [units.exchange(None, request).claimed for request in requests]
        took_s = time.perf_counter() - began_s
        assert all(len(some) == CLAIM for some in claimed)
        self.raw[size].execute(GIVE_BACK)
        self.raw[size].execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        return took_s / LANES


def _ledgers(stack: ExitStack, *sizes: int) -> Claims:
    folder, claims = _folder(stack), Claims()
    for size in sizes:
        path = os.path.join(folder, f"{size}.db")
        database = SqliteDatabase(path, SystemClock())
        migrate(database, "sqlite", 1)
        database.close()
        claims.raw[size] = apsw.Connection(path)
        stack.callback(claims.raw[size].close)
        fill_sqlite(claims.raw[size].execute, size)
        again = SqliteDatabase(path, SystemClock())
        stack.callback(again.close)
        claims.stores[size] = Ledger(again)
    return claims


def _claims(small: int, large: int) -> Benchmark:
    return Benchmark(
        name="claim_5m_vs_10k",
        kind="cost",
        goal=1.1,
        setup=lambda stack: _ledgers(stack, small, large),
        ours=lambda claims: claims.seconds(large),
        reference=lambda claims: claims.seconds(small),
        rounds=21,
    )


def benchmarks() -> list[Benchmark]:
    return [
        _vs_raw(1, 0.85),
        _vs_raw(10, 0.5),
        _vs_raw(100, 0.4),
        _vs_loop(100, 0.5),
        _loop_vs_raw(100, 0.4),
        _vs_dbos(1, 20),
        _vs_dbos(100, 20),
        _pg_vs_raw(1, 0.4),
        _pg_vs_raw(100, 0.5),
        _pg_scaling(),
        _memory(),
        _claims(10_000, 5_000_000),
    ]
