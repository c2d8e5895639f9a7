"""What it costs that every transaction compares which kfm may write to the ledger. The smallest transaction
that writes anything, with the comparison and without. In memory: beside a disk's commit it would not show."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path

from bench.harness import Benchmark
from kfm.db.postgres import PostgresDatabase
from kfm.db.queries import migrate, newest
from kfm.db.sqlite import SqliteDatabase
from kfm.system import SystemClock

ON_REQUEST = True
TRANSACTIONS = 20

Either = PostgresDatabase | SqliteDatabase


def _server(stack: ExitStack) -> PostgresDatabase:
    from tests import services

    server = stack.enter_context(services.postgres())
    database = PostgresDatabase(stack.enter_context(services.postgres_database(server)))
    stack.callback(database.close)
    migrate(database, "postgresql", 1)
    return database


def _file(stack: ExitStack) -> SqliteDatabase:
    from tests.memory_disk import memory_disk

    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="kfm-bench-", dir=memory_disk()))
    database = SqliteDatabase(str(Path(folder, "ledger.db")), SystemClock())
    stack.callback(database.close)
    migrate(database, "sqlite", 1)
    return database


def _writing(level: int | None) -> Callable[[Either], None]:
    def write(database: Either) -> None:
        database.keep_to(level)
        for _ in range(TRANSACTIONS):
            database.write(lambda session: session.one("policy.advance"))

    return write


def benchmarks() -> Iterable[Benchmark]:
    for name, setup in (("level_postgresql", _server), ("level_sqlite", _file)):
        yield Benchmark(
            name=name,
            goal=1.1,
            kind="cost",
            ours=_writing(newest()),
            reference=_writing(None),
            setup=setup,
            rounds=301,
        )
