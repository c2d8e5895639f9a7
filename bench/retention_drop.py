"""What retention on PostgreSQL costs: old messages deleted in batches and vacuumed, beside a partition of as
many that is dropped after what waits in it was moved. In bytes of write-ahead log, and in CPU time of the
server's process. Retention drops partitions for that (decision 0034).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from bench.harness import Benchmark

ON_REQUEST = True
ROWS = 200_000
BATCH_ROWS = 1_000
BODY = "x" * 600
COLUMNS = (
    "number BIGINT NOT NULL PRIMARY KEY, event_id TEXT NOT NULL, topic TEXT NOT NULL, subject TEXT NOT NULL, "
    "body TEXT NOT NULL, recorded_at_ms BIGINT NOT NULL, tries BIGINT NOT NULL, "
    "not_before_ms BIGINT NOT NULL, delivered_at_ms BIGINT"
)
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Server:
    """A connection to a server of its own, and what its process has used."""

    connection: Any
    pid: int

    def run(self, sql: str) -> Any:
        return self.connection.execute(sql)

    def wal_bytes(self) -> float:
        return float(self.run("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')").fetchone()[0])

    def cpu_s(self) -> float:
        with open(f"/proc/{self.pid}/stat") as file:
            used = file.read().rsplit(")", 1)[1].split()
        return (int(used[11]) + int(used[12])) / TICKS


def _served(stack: ExitStack) -> Server:
    import psycopg

    from tests.services import postgres

    address = stack.enter_context(postgres(on_disk=True))
    connection = stack.enter_context(psycopg.connect(address, autocommit=True))
    server = Server(connection, connection.execute("SELECT pg_backend_pid()").fetchone()[0])
    server.run(f"CREATE TABLE whole ({COLUMNS})")
    server.run(f"CREATE TABLE cut ({COLUMNS}) PARTITION BY RANGE (number)")
    server.run("CREATE TABLE cut_rest PARTITION OF cut DEFAULT")
    for table in ("whole", "cut"):
        server.run(f"CREATE INDEX ON {table} (subject)")
        server.run(f"CREATE INDEX ON {table} (topic, number) WHERE delivered_at_ms IS NULL")
    return server


def _fill(server: Server, table: str) -> None:
    """As it is long after it was written: vacuumed once, and on disk."""
    server.run(
        f"INSERT INTO {table} SELECT i, md5(i::text), 'openlineage', md5(i::text), '{BODY}', i, 0, 0, 1 "
        f"FROM generate_series(1, {ROWS}) AS i"
    )
    server.run(f"VACUUM ANALYZE {table}")
    server.run("CHECKPOINT")


def _deleted(server: Server, used: Callable[[], float]) -> float:
    _fill(server, "whole")
    before = used()
    for first in range(0, ROWS, BATCH_ROWS):
        span = f"number > {first} AND number <= {first + BATCH_ROWS}"
        server.run(f"DELETE FROM whole WHERE {span} AND delivered_at_ms IS NOT NULL")
    server.run("VACUUM whole")
    return used() - before


def _dropped(server: Server, used: Callable[[], float]) -> float:
    server.run(f"CREATE TABLE cut_1 PARTITION OF cut FOR VALUES FROM (1) TO ({ROWS + 1})")
    _fill(server, "cut_1")
    before = used()
    with server.connection.transaction():
        server.run("ALTER TABLE cut DETACH PARTITION cut_1")
        server.run("INSERT INTO cut SELECT * FROM cut_1 WHERE delivered_at_ms IS NULL")
        server.run("DROP TABLE cut_1")
    return used() - before


def benchmarks() -> Iterable[Benchmark]:
    yield Benchmark(
        name="retention_drop_wal",
        goal=100,
        kind="speedup",
        ours=lambda server: max(1.0, _dropped(server, server.wal_bytes)),
        reference=lambda server: _deleted(server, server.wal_bytes),
        setup=_served,
        unit="B",
        rounds=3,
    )
    yield Benchmark(
        name="retention_drop_cpu",
        goal=5,
        kind="speedup",
        ours=lambda server: max(1 / TICKS, _dropped(server, server.cpu_s)),
        reference=lambda server: _deleted(server, server.cpu_s),
        setup=_served,
        rounds=3,
    )
