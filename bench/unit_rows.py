"""A ledger with millions of units in it, written in bulk by the database itself.

A tenth of the units, all over the ledger, are delayed until long after anybody measures. Of the others the
older half has succeeded and the newer half is due. All sizes have these proportions, and units of
twenty datasets in turns, so that two ledgers differ in nothing but their size.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from bench.ingest_references import EPOCH_SHIFT_MS, START_MS

DATASETS = 20
STEP_MS = 20  # about four million objects a day
DELAYED_EVERY = 10
DELAYED_UNTIL_MS = 4_102_444_800_000  # 2100
CACHE_KB = 256_000
WORK_KB = 256_000
PROVIDER = "aws"

Execute = Callable[[str], Any]
Dialect = Literal["sqlite", "postgresql"]

_WAL_ID = {
    # The hash is no hash, but as long, and as little in order.
    "sqlite": "printf('%013x-%010x%010x', {shifted}, {mixed}, {mixed2})",
    "postgresql": "lpad(to_hex({shifted}), 13, '0') || '-' || lpad(to_hex({mixed}), 10, '0') "
    "|| lpad(to_hex({mixed2}), 10, '0')",
}
_NUMBERS = {
    "sqlite": "WITH RECURSIVE numbers (n) AS (SELECT {first} UNION ALL SELECT n + 1 FROM numbers "
    "WHERE n < {last}) ",
    "postgresql": "WITH numbers (n) AS (SELECT generate_series({first}::bigint, {last}::bigint)) ",
}


def dataset(number: int) -> str:
    return f"dataset-{number % DATASETS:02}"


def _expressions(dialect: Dialect, total: int) -> dict[str, str]:
    """Column → what it holds in the row with the number n."""
    start = f"({START_MS} + n * {STEP_MS})"
    wal_id = _WAL_ID[dialect].format(
        shifted=f"({start} + {EPOCH_SHIFT_MS})",
        mixed="((n * 40503 + 977) * 2654435 % 1099511627776)",
        mixed2="((n * 69069 + 12345) * 1013904 % 1099511627776)",
    )
    delayed = f"n / {DATASETS} % {DELAYED_EVERY} = {DELAYED_EVERY - 1}"  # some of each dataset
    done = f"(NOT ({delayed}) AND n < {total // 2})"
    name = "'OR_ABI-L2-MCMIPC-M6_G19_s2026060_' || n"
    found = f"CASE WHEN {done} THEN 'ok' ELSE 'unknown' END"
    return {
        "wal_id": wal_id,
        "dataset": f"'dataset-' || substr('0' || (n % {DATASETS}), -2)"
        if dialect == "sqlite"
        else f"'dataset-' || lpad((n % {DATASETS})::text, 2, '0')",
        "object_uri": f"'s3://noaa-goes19/ABI-L2-MCMIPC/2026/060/00/' || {name} || '.nc'",
        "provider": f"'{PROVIDER}'",
        "queue": "'nodd-goes19'",
        "event_time_ms": f"{start} + 60000",
        "time_range_start_ms": start,
        "time_range_end_ms": f"{start} + 300000",
        "status": f"CASE WHEN {done} THEN 'succeeded' ELSE 'pending' END",
        "attempts": f"CASE WHEN {delayed} OR {done} THEN 1 ELSE 0 END",
        "last_error_code": f"CASE WHEN {delayed} THEN 'UPSTREAM_UNAVAILABLE' END",
        "integrity_status": found,
        "metadata_status": found,
        "stac_status": f"CASE WHEN {done} THEN 'created' ELSE 'unknown' END",
        "provenance_status": found,
        "stac_item_id": f"CASE WHEN {done} THEN {name} END",
        "stac_collection_id": f"CASE WHEN {done} THEN 'noaa-goes19-abi' END",
        "created_at_ms": f"{start} + 61000",
        "updated_at_ms": f"{start} + 61000",
        "version": f"CASE WHEN {done} THEN 3 WHEN {delayed} THEN 4 ELSE 1 END",
        "extra": "'{}'",
        "etag": "'d41d8cd98f00b204e9800998ecf8427e'",
        "size": "60000000 + n",
        "content_version": "1",
        "done_version": f"CASE WHEN {done} THEN 1 ELSE 0 END",
        "lease_until_ms": "0",
        "not_before_ms": f"CASE WHEN {delayed} THEN {DELAYED_UNTIL_MS} ELSE {start} + 61000 END",
        "grants": "1",
        "grant_attempts": f"CASE WHEN {delayed} OR {done} THEN 1 ELSE 0 END",
        "granted_at_ms": f"{start} + 61000",
        "alone": "0",
        "removed": "0",
        "unclear": "0",
        "replacing": "0",
        "trail": "''",
    }


def _insert(dialect: Dialect, total: int) -> str:
    expressions = _expressions(dialect, total)
    numbers = _NUMBERS[dialect].format(first=0, last=total - 1)
    columns, values = ", ".join(expressions), ", ".join(expressions.values())
    if dialect == "sqlite":
        return f"{numbers}INSERT INTO units ({columns}) SELECT {values} FROM numbers"
    return f"INSERT INTO units ({columns}) {numbers}SELECT {values} FROM numbers"


def fill_sqlite(execute: Execute, total: int) -> None:
    """Into the table `units` of a migrated database that no other process has open. Not to be interrupted."""
    indexes = execute(
        "SELECT name, sql FROM sqlite_schema WHERE type = 'index' AND tbl_name = 'units' AND sql IS NOT NULL"
    ).fetchall()
    execute("PRAGMA synchronous = OFF").fetchall()
    execute(f"PRAGMA cache_size = -{CACHE_KB}").fetchall()
    execute("PRAGMA journal_mode = OFF").fetchall()  # millions of rows need not go through the log
    for name, _ in indexes:
        execute(f"DROP INDEX {name}")
    execute(_insert("sqlite", total))
    for _, sql in indexes:
        execute(sql)
    execute("PRAGMA optimize").fetchall()
    execute("PRAGMA journal_mode = WAL").fetchall()
    execute("PRAGMA synchronous = FULL").fetchall()


def fill_postgresql(execute: Execute, total: int) -> None:
    """The same, on an autocommit connection of psycopg."""
    indexes = execute(
        "SELECT indexname, indexdef FROM pg_indexes WHERE tablename = 'units' "
        "AND indexname <> 'units_pkey' AND schemaname = current_schema()"
    ).fetchall()
    execute(f"SET maintenance_work_mem = '{WORK_KB}kB'")
    for name, _ in indexes:
        execute(f"DROP INDEX {name}")
    execute(_insert("postgresql", total))
    for _, sql in indexes:
        execute(sql)
    execute("VACUUM (ANALYZE) units")
    execute("CHECKPOINT")


# What was claimed is due again, behind all others: every round finds units that it has not just touched.
GIVE_BACK = """\
UPDATE units SET status = 'pending', version = 1, attempts = 0, grant_attempts = 0, lease_until_ms = 0,
  worker_id = NULL, ingest_run_id = NULL, trail = '', not_before_ms = updated_at_ms
WHERE status = 'in_progress'"""
