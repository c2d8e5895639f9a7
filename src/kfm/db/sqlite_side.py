"""SQLite as one end of a copy: whole tables read along their keys, triggers that note changes, bulk loads."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

import apsw

from kfm.db.catalogue import box_number
from kfm.db.connection import make_folder
from kfm.db.moves import COUNTED, Table, ledger_tables, page_along_key, require_columns
from kfm.db.queries import is_empty, migrate
from kfm.db.session import Row, Session
from kfm.db.sqlite import FENCED, SqliteDatabase, make_private, translated
from kfm.model.errors import LockHeld, StoreCorrupt, UsageError

if TYPE_CHECKING:
    from kfm.ports import Clock

T = TypeVar("T")

_OPERATIONS = {"insert": ("NEW",), "update": ("OLD", "NEW"), "delete": ("OLD",)}
_BUSY_MS = 30_000
_FOUND_MAX = 5
BACKUP_PAGES = 10_000
_HEADER = b"SQLite format 3\0"


class SqliteTables:
    """Tables of a file, read by a connection of its own: writers are not held up."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._reading = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
        self._reading.set_busy_timeout(_BUSY_MS)

    def _all(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
        try:
            return self._reading.execute(sql, tuple(parameters)).fetchall()
        except apsw.Error as error:
            raise translated(error, self.path) from error

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        self._all("BEGIN")
        try:
            yield
        finally:
            self._all("COMMIT")

    def page(self, table: Table, after: Sequence[Any] | None, limit: int) -> list[Row]:
        return page_along_key(self._all, lambda _: "?", table, after, limit)

    def rows_of(self, table: Table, notes: Sequence[str]) -> list[Row]:
        matches = " AND ".join(
            f"t.{name} = json_extract(j.value, '$[{at}]')" for at, name in enumerate(table.key)
        )
        columns = ", ".join(f"t.{name}" for name in table.columns)
        return self._all(
            f"SELECT {columns} FROM json_each(?) AS j CROSS JOIN {table.name} AS t ON {matches}",
            [f"[{','.join(notes)}]"],
        )

    def count(self, table: Table) -> int:
        return int(self._all(f"SELECT count(*) FROM {table.name}")[0][0])

    def captured(self) -> list[tuple[int, str, str]]:
        return self._all("SELECT number, table_name, key FROM captured")

    def positions(self) -> dict[str, int]:
        found = {}
        for table in ledger_tables():
            if table.name in COUNTED or table.numbered:
                newest = self._all(f"SELECT COALESCE(MAX({table.key[0]}), 0) FROM {table.name}")[0][0]
                kept = self._all("SELECT value FROM counters WHERE name = ?", [table.name])
                found[table.name] = max(newest, kept[0][0] if kept and table.name in COUNTED else 0)
        return found

    def check_pages(self) -> None:
        """Raise if the file itself is damaged."""
        if (said := self._all("PRAGMA quick_check(1)")) != [("ok",)]:
            raise StoreCorrupt(f"{self.path}: {said[0][0]}.")

    def copy_file(self, path: str) -> None:
        """All of it into a new file, of one moment: in one reading transaction, which holds no writer up."""
        try:
            with self.snapshot():
                self._all("SELECT count(*) FROM migrations")
                copy = apsw.Connection(path)
                try:
                    with copy.backup("main", self._reading, "main") as backup:
                        while not backup.done:
                            backup.step(BACKUP_PAGES)
                finally:
                    copy.close()
        except apsw.Error as error:
            raise translated(error, path) from error

    def close(self) -> None:
        self._reading.close()


def strip_moves(path: str) -> None:
    """A copied file is a ledger that never moved, in one file; durable when this returns."""
    connection = apsw.Connection(path)
    try:
        found = connection.execute(
            "SELECT name FROM sqlite_master WHERE type = 'trigger' AND name LIKE 'kfm_capture_%'"
        ).fetchall()
        connection.execute("BEGIN IMMEDIATE")
        for (name,) in found:
            connection.execute(f"DROP TRIGGER {name}")
        connection.execute("DELETE FROM captured")
        connection.execute("DELETE FROM moves")
        connection.execute("COMMIT")
        connection.execute("PRAGMA journal_mode = DELETE")
    except apsw.Error as error:
        raise translated(error, path) from error
    finally:
        connection.close()
    with suppress(FileNotFoundError):
        os.unlink(f"{path}-gate")


def _require_database(path: str) -> None:
    """Another file is not touched, and nothing is put beside it."""
    with suppress(OSError), open(path, "rb") as file:
        head = file.read(len(_HEADER))
        if head and head != _HEADER:
            raise UsageError(
                f"{path} is no SQLite database.",
                remedy="Name a file that is not there yet: `kfm store copy` makes it.",
            )


class SqliteSide(SqliteTables):
    """A ledger in a file; as a target made where there is none."""

    def __init__(self, path: str, clock: Clock, *, fill: bool) -> None:
        if fill:
            make_folder(os.path.dirname(os.path.abspath(path)))
            _require_database(path)
        self.database = SqliteDatabase(path, clock)
        super().__init__(path)
        self.place = f"sqlite:{path}"
        self._held: apsw.Connection | None = None
        if fill:
            self.database.load_only()
            self.database.add_function("kfm_box", lambda *bbox: box_number(bbox))

    def write(self, change: Callable[[Session], T]) -> T:
        return self.database.write(change)

    def is_empty(self) -> bool:
        return is_empty(self.database.session)

    def prepare(self, now_ms: int, *, arriving: bool = False) -> None:
        migrate(self.database, "sqlite", now_ms, arriving=arriving)
        for table in ledger_tables():
            require_columns(table, [row[1] for row in self._all(f"PRAGMA table_info({table.name})")])

    def hold(self) -> None:
        # As the gate of writers: a lock that the kernel drops when a process dies.
        make_private(f"{self.path}-move")
        self._held = apsw.Connection(f"{self.path}-move")
        try:
            self._held.execute("BEGIN EXCLUSIVE")
        except apsw.BusyError:
            raise LockHeld(f"Another copy of {self.place} is at work.") from None
        except apsw.Error as error:
            raise translated(error, self.path) from error

    # --- of a source ---

    def capture(self, tables: Sequence[Table], refusal: str) -> None:
        said = f"{FENCED} {refusal}".replace("'", "''")

        def change(_: Session) -> None:
            for table in tables:
                for operation, versions in _OPERATIONS.items():
                    notes = " ".join(
                        "INSERT INTO captured (table_name, key) VALUES "
                        f"('{table.name}', json_array({', '.join(f'{version}.{k}' for k in table.key)}));"
                        for version in versions
                    )
                    self.database.script(
                        f"CREATE TRIGGER IF NOT EXISTS kfm_capture_{table.name}_{operation} "
                        f"AFTER {operation.upper()} ON {table.name} BEGIN "
                        f"SELECT RAISE(ABORT, '{said}') "
                        "WHERE EXISTS (SELECT 1 FROM moves WHERE role = 'source' AND state IN "
                        f"('fenced', 'moved')); {notes} END"
                    )

        self.write(change)

    def release(self, tables: Sequence[Table]) -> None:
        def change(session: Session) -> None:
            for table in tables:
                for operation in _OPERATIONS:
                    self.database.script(f"DROP TRIGGER IF EXISTS kfm_capture_{table.name}_{operation}")
            session.all("captured.clear")

        self.write(change)

    def exclude_writers(self) -> None:
        """SQLite has one writer: nothing to do."""

    def forget(self, numbers: Sequence[int]) -> None:
        self.database.execute_many("DELETE FROM captured WHERE number = ?", ((one,) for one in numbers))

    # --- of a target ---

    def relax(self, *, on: bool) -> None:
        self.database.execute(f"PRAGMA synchronous = {'NORMAL' if on else 'FULL'}")

    def loosen(self) -> list[dict[str, str]]:
        found = self.database.execute(
            "SELECT name, tbl_name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL"
        )
        tables = {table.name for table in ledger_tables()}
        made = [{"kind": "index", "name": name, "sql": sql} for name, table, sql in found if table in tables]
        for one in made:
            self.database.script(f"DROP INDEX {one['name']}")
        return made

    def tighten(self, made: Sequence[dict[str, str]], kinds: Sequence[str]) -> None:
        there = {name for (name,) in self._all("SELECT name FROM sqlite_master WHERE type = 'index'")}
        for one in made:
            if one["kind"] in kinds and one["name"] not in there:
                self.write(lambda _, sql=one["sql"]: self.database.script(sql))  # type: ignore[misc]

    def clear(self, table: Table) -> None:
        self.database.execute(f"DELETE FROM {table.name}")

    def load(self, table: Table, rows: Sequence[Row]) -> None:
        marks = ", ".join("?" for _ in table.columns)
        # What a column declares to be unique can't be set aside: a stale row in the way goes, and comes back
        # with the round that its change is noted for.
        self.database.execute_many(
            f"INSERT OR REPLACE INTO {table.name} ({', '.join(table.columns)}) VALUES ({marks})", rows
        )

    def drop(self, table: Table, notes: Sequence[str]) -> None:
        parts = ", ".join(f"json_extract(value, '$[{at}]')" for at in range(len(table.key)))
        self.database.execute(
            f"DELETE FROM {table.name} WHERE ({', '.join(table.key)}) IN (SELECT {parts} FROM json_each(?))",
            [f"[{','.join(notes)}]"],
        )

    def settle(self, positions: dict[str, int]) -> None:
        execute = self.database.execute
        # PostgreSQL keeps no boxes beside the items.
        execute(
            "UPDATE items SET box = kfm_box(west, south, east, north) WHERE west IS NOT NULL AND box IS NULL"
        )
        execute("DELETE FROM item_boxes")
        execute(
            "INSERT OR IGNORE INTO item_boxes (number, west, east, south, north) "
            "SELECT box, CASE WHEN west > east THEN -180 ELSE west END, "
            "CASE WHEN west > east THEN 180 ELSE east END, south, north "
            "FROM items WHERE box IS NOT NULL AND west IS NOT NULL"
        )
        # Which messages a page of units belongs with: PostgreSQL finds them by their subject.
        execute(
            "UPDATE unit_pages SET letters_before = f.number FROM (SELECT subject, MIN(number) - 1 AS number "
            "FROM outbox WHERE topic = 'unit-lineage' GROUP BY subject) AS f "
            "WHERE letters_before IS NULL AND f.subject = 'units/' || unit_pages.at_ms"
        )
        for name in COUNTED:
            newest = execute(f"SELECT COALESCE(MAX(number), 0) FROM {name}")[0][0]
            if positions.get(name, 0) > newest:
                execute(
                    "INSERT INTO counters (name, value) VALUES (?, ?) "
                    "ON CONFLICT (name) DO UPDATE SET value = MAX(value, excluded.value)",
                    [name, positions[name]],
                )

    def check_references(self) -> None:
        if wrong := self._all("PRAGMA foreign_key_check")[:_FOUND_MAX]:
            named = ", ".join(f"{table} → {parent}" for table, _, parent, _ in wrong)
            raise StoreCorrupt(f"{self.path}: rows name others that are not there: {named}.")

    def close(self) -> None:
        super().close()
        self.database.close()
        if self._held is not None:
            self._held.close()
