"""A ledger with years behind it: its own rows, many times over, made by SQLite itself.

Written past the product's writers, which would need hours for a million runs. Only what many runs leave is
made: runs, their attempts, invocations, requests, versions and messages. The audit log stays as it is: it is
chained.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import apsw

# table → columns that differ from row to row; `i` counts them, `o` is the row that is copied.
MADE: dict[str, dict[str, str]] = {
    "runs": {
        "run_id": "printf('%08x-0000-8000-8000-%012x', i, i)",
        "idempotency_key": "'sha256:' || printf('%064x', i)",
        "work_key": "'sha256:' || printf('%064x', i)",
        "revision": "-i",
        "start_time_ms": "o.start_time_ms - i * 1000",
        "end_time_ms": "o.end_time_ms - i * 1000",
    },
    "attempts": {"number": "NULL", "run_id": "printf('%08x-0000-8000-8000-%012x', i, i)"},
    "invocations": {
        "number": "NULL",
        "invocation_id": "printf('%08x-0000-8000-8000-%012x', i, i)",
        "gates": "'[]'",
    },
    "requests": {
        "request_id": "printf('%08x-0000-8000-8000-%012x', i, i)",
        "accepted_at_ms": "o.accepted_at_ms - i * 1000",
    },
    "promotions": {
        "sequence": "-i",
        "run_id": "printf('%08x-0000-8000-8000-%012x', i, i)",
        "promoted_at_ms": "o.promoted_at_ms - i * 1000",
    },
    "outbox": {
        "number": "NULL",
        "event_id": "'event-' || i",
        "body": "'{}'",
        "delivered_at_ms": "o.recorded_at_ms",
    },
}


def multiply(path: str, rows: int, first: int = 1) -> None:
    """Give a ledger so many runs more, copies of its last one, counted from `first`."""
    last = first + rows - 1
    connection = apsw.Connection(path)
    connection.execute("PRAGMA synchronous = OFF; PRAGMA cache_size = -500000; BEGIN")
    for table, made in MADE.items():
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
        values = ", ".join(made.get(column, f"o.{column}") for column in columns)
        connection.execute(
            f"INSERT INTO {table} ({', '.join(columns)}) "
            f"WITH RECURSIVE many (i) AS (SELECT {first} UNION ALL SELECT i + 1 FROM many WHERE i < {last}) "
            f"SELECT {values} FROM many, (SELECT * FROM {table} ORDER BY rowid DESC LIMIT 1) AS o"
        )
    connection.execute("COMMIT")
    connection.close()


class Steps:
    """How many steps SQLite's machine has taken, on every connection that was opened meanwhile."""

    def __init__(self) -> None:
        self.count = 0
        self.dearest: dict[str, int] = {}  # statement → its steps
        self._seen: dict[tuple[int, int], int] = {}

    def watch(self, connection: apsw.Connection) -> None:
        def profiled(event: dict[str, Any]) -> None:
            key, now = (id(connection), event["id"]), event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"]
            before = self._seen.get(key, 0)  # a statement that is used again counts on
            self._seen[key] = now
            taken = now - before if now >= before else now
            self.count += taken
            self.dearest[event["sql"]] = self.dearest.get(event["sql"], 0) + taken

        connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, profiled)


@contextmanager
def steps() -> Iterator[Steps]:
    counting = Steps()
    apsw.connection_hooks.append(counting.watch)
    try:
        yield counting
    finally:
        apsw.connection_hooks.remove(counting.watch)
