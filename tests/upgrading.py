"""Ledgers of an earlier kfm, made by the migrations of then; kills in the middle of their upgrade."""

from __future__ import annotations

import hashlib
import os
import signal
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from typing import Any

from kfm.db.connection import POSTGRES
from kfm.db.postgres import PostgresDatabase
from kfm.db.queries import Dialect, in_dialect, migrate, migration_files, statements
from kfm.db.sqlite import SqliteDatabase
from kfm.model.upgrades import Migration
from kfm.system import SystemClock
from tests import moving
from tests.conformance.db import filled

EARLIER = 35  # the last migration of the release before
# Of the values that constraints ask for, those that both databases have words for.
_VALID = {
    name: value
    for name, value in moving._VALID.items()
    if "printf" not in value and "char(" not in value and not name.startswith("items.")
} | {
    "run_states.inputs_hash": f"'sha256:' || substr('{'0' * 64}' || i, length('' || i) + 1)",
    "versions.manifest": "'{}'",
    "units.extra": """'{"reference_time_ms":' || i || '}'""",
}  # fmt: skip
_UNFILLED = (*filled.SKIPPED, "chain_heads")


def dialect_of(address: str) -> Dialect:
    return "postgresql" if address.startswith(POSTGRES) else "sqlite"


def opened(address: str, wait_max_ms: int = 30_000) -> Any:
    if dialect_of(address) == "postgresql":
        return PostgresDatabase(address, wait_max_ms=wait_max_ms)
    return SqliteDatabase(address, SystemClock(), wait_max_ms=wait_max_ms)


def make(address: str, rows: int, known: Sequence[Migration] | None = None) -> None:
    """Every table as it was then, filled."""
    known = migration_files()[:EARLIER] if known is None else known
    with closing(opened(address)) as database:
        migrate(database, dialect_of(address), 1, known)

        def change(_: Any) -> None:
            for table, columns in tables(database, address).items():
                if not table.startswith(_UNFILLED):
                    names = [(name, kind) for name, kind, is_given in columns if not is_given]
                    values = [
                        _VALID.get(f"{table}.{name}") or filled._value(table, name, kind, "windows")
                        for name, kind in names
                    ]
                    database.execute(
                        f"INSERT INTO {table} ({', '.join(name for name, _ in names)}) "
                        "WITH RECURSIVE many (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM many "
                        f"WHERE i < {rows}) SELECT {', '.join(values)} FROM many WHERE true "
                        "ON CONFLICT DO NOTHING"
                    )

        if dialect_of(address) == "postgresql":
            database.execute("SET session_replication_role = replica")  # in whatever order tables come
        else:
            database.load_only()
        database.write(change)


def tables(database: Any, address: str) -> dict[str, list[tuple[str, str, bool]]]:
    """Name, type, and whether the database gives the value itself, of each table's columns."""
    found: dict[str, list[tuple[str, str, bool]]] = {}
    if dialect_of(address) == "postgresql":
        for table, name, kind, given in database.execute(
            "SELECT table_name, column_name, data_type, is_identity FROM information_schema.columns "
            "WHERE table_schema = current_schema() AND table_name NOT IN (SELECT relname FROM pg_class "
            "WHERE relispartition) ORDER BY table_name, ordinal_position"
        ):
            found.setdefault(table, []).append((name, kind, given == "YES"))
        return found
    for (table,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"):
        columns = database.execute(f"PRAGMA table_info({table})")
        found[table] = [(row[1], row[2], False) for row in columns]
    return found


def contents(address: str) -> dict[str, str]:
    """A digest of each table's rows, and of the schema."""
    with closing(opened(address)) as database:
        made = {"": _digest(_schema(database, address))}
        for table, columns in tables(database, address).items():
            wanted = ", ".join(name for name, _, _ in columns if name != "applied_at_ms")
            rows = f"SELECT {wanted} FROM {table}"
            is_file = dialect_of(address) == "sqlite"  # row by row: there may be millions
            made[table] = _digest(database._connection.execute(rows) if is_file else database.execute(rows))
        return made


def _schema(database: Any, address: str) -> list[Any]:
    if dialect_of(address) == "sqlite":
        return database.execute("SELECT type, name, tbl_name, sql FROM sqlite_master")  # type: ignore[no-any-return]
    return database.execute(  # type: ignore[no-any-return]
        "SELECT replace(indexdef, current_schema() || '.', '') FROM pg_indexes "
        "WHERE schemaname = current_schema() "
        "UNION ALL SELECT conname || pg_get_constraintdef(oid) FROM pg_constraint "
        "WHERE connamespace = current_schema()::regnamespace "
        "UNION ALL SELECT relname || relkind::text FROM pg_class "
        "WHERE relnamespace = current_schema()::regnamespace "
        "UNION ALL SELECT tgname FROM pg_trigger t JOIN pg_class r ON r.oid = tgrelid "
        "WHERE relnamespace = current_schema()::regnamespace AND NOT tgisinternal"
    )


def _digest(rows: Iterable[Any]) -> str:
    """In whatever order they come."""
    hashes = (hashlib.sha256(repr(row).encode()).digest() for row in rows)
    return f"{sum(int.from_bytes(one) for one in hashes):x}"


class Watched:
    """Progress of an upgrade that does something at each step: `act` gets the place of the migration among
    those that are missing, and how many of its statements are done."""

    def __init__(self, act: Callable[[int, int], None] = lambda _migration, _statement: None) -> None:
        self.phases: list[tuple[str, int | None, int]] = []  # name, statements, those that are done
        self._act = act

    def phase(self, name: str, total: int | None = None) -> None:
        self.phases.append((name, total, 0))
        self._act(len(self.phases), 0)

    def advance(self, amount: int, note: str = "") -> None:
        name, total, done = self.phases[-1]
        self.phases[-1] = name, total, done + amount
        self._act(len(self.phases), done + amount)

    def done(self) -> None: ...


def upgrade(address: str, watched: Watched | None = None) -> list[int]:
    """In this process."""
    with closing(opened(address)) as database:
        return migrate(database, dialect_of(address), 2, upgrading=lambda: watched or Watched())


def moments(address: str) -> list[tuple[int, int]]:
    """Each migration that is missing, and the number of its statements."""
    return [
        (version, len(list(statements(in_dialect(text, dialect_of(address))))))
        for version, _, text in migration_files()[EARLIER:]
    ]


def killed_upgrade(address: str, place: int, statement: int) -> bool:
    """An upgrade in a process of its own, killed once so many statements of a migration are done; False: it
    came to its end."""

    def kill(migration: int, done: int) -> None:
        if (migration, done) == (place, statement):
            os.kill(os.getpid(), signal.SIGKILL)

    return was_killed(lambda: upgrade(address, Watched(kill)))


def was_killed(work: Callable[[], object]) -> bool:
    """In a process of its own, which may kill itself."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException as error:
            os.write(2, f"{type(error).__name__}: {error}\n".encode())
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, status
    return os.WIFSIGNALED(status)
