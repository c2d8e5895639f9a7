"""PostgreSQL as one end of a copy: whole tables read along their keys, triggers that note changes, COPY."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from typing import Any, TypeVar

from kfm.db.moves import Table, ledger_tables, page_along_key, require_columns
from kfm.db.postgres import FENCED, SNAPSHOT, PostgresDatabase
from kfm.db.postgres_pool import place_of
from kfm.db.queries import is_current, migrate
from kfm.db.session import Row, Session
from kfm.model.errors import KfmError, LedgerBehind, LockHeld

T = TypeVar("T")

HOLD_LOCK = 4_900_149
MOVE_LOCK = 4_900_150  # any number that no other lock of kfm or program on the server uses
# By the schema: a server may have several ledgers in one database.
_SCHEMA = "current_schema()::regnamespace::oid::int"
_SEQUENCES = {"unit_pages": "unit_page_numbers"}  # where no identity column gives the numbers
_HERE = "relnamespace = current_schema()::regnamespace"


class PostgresSide:
    """A ledger in a schema of a server. Reads have a connection of their own: they may wait for a target."""

    def __init__(self, dsn: str) -> None:
        self.place = place_of(dsn)
        self._dsn = dsn
        self._held, self._is_held = ExitStack(), False
        self.database = PostgresDatabase(dsn, idle_max_ms=0)
        self._reading = PostgresDatabase(dsn, read_only=True, idle_max_ms=0)

    def _all(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        return self._reading.execute(sql, {f"p{at}": value for at, value in enumerate(values)})

    def snapshot(self) -> AbstractContextManager[None]:
        return self._reading.transaction(SNAPSHOT)

    def page(self, table: Table, after: Sequence[Any] | None, limit: int) -> list[Row]:
        return page_along_key(self._all, lambda at: f"%(p{at})s", table, after, limit)

    @staticmethod
    def _matches(table: Table) -> str:
        kinds = zip(table.key, table.key_kinds, strict=True)
        return " AND ".join(f"t.{name} = (j.value ->> {at})::{kind}" for at, (name, kind) in enumerate(kinds))

    def rows_of(self, table: Table, notes: Sequence[str]) -> list[Row]:
        columns = ", ".join(f"t.{name}" for name in table.columns)
        return self._all(
            f"SELECT {columns} FROM jsonb_array_elements(%(p0)s::jsonb) AS j (value) "
            f"JOIN {table.name} AS t ON {self._matches(table)}",
            [f"[{','.join(notes)}]"],
        )

    def count(self, table: Table) -> int:
        return int(self._all(f"SELECT count(*) FROM {table.name}")[0][0])

    def captured(self) -> list[tuple[int, str, str]]:
        return self._all("SELECT number, table_name, key FROM captured")

    def _sequence(self, table: Table) -> str | None:
        if table.name in _SEQUENCES:
            return _SEQUENCES[table.name]
        if not table.numbered:
            return None
        row = self.database.execute(f"SELECT pg_get_serial_sequence('{table.name}', '{table.key[0]}')")
        return str(row[0][0]) if row[0][0] else None

    def positions(self) -> dict[str, int]:
        found = {}
        for table in ledger_tables():
            if (sequence := self._sequence(table)) is not None:
                given = self._all("SELECT COALESCE(pg_sequence_last_value(%(p0)s::regclass), 0)", [sequence])[
                    0
                ][0]
                newest = self._all(f"SELECT COALESCE(MAX({table.key[0]}), 0) FROM {table.name}")[0][0]
                found[table.name] = max(int(given), int(newest))
        return found

    def write(self, change: Callable[[Session], T]) -> T:
        return self.database.write(change)

    def is_empty(self) -> bool:
        return self.database.is_empty()

    def prepare(self, now_ms: int, *, arriving: bool = False) -> None:
        migrate(self.database, "postgresql", now_ms, arriving=arriving, rolling=not arriving)
        if not arriving and not is_current(self.database.session):
            raise LedgerBehind("A copy needs the whole schema of this kfm.")
        for table in ledger_tables():
            found = self._all(
                "SELECT attname FROM pg_attribute WHERE attrelid = %(p0)s::regclass AND attnum > 0 "
                "AND NOT attisdropped",
                [table.name],
            )
            require_columns(table, [name for (name,) in found])

    def hold(self) -> None:
        """By a transaction that lasts as long as the copy, on a connection of its own: a lock of a session
        would be lost behind a pooler. It has no snapshot, so it keeps no rows from being cleaned up."""
        if self._is_held:
            return
        holding = PostgresDatabase(self._dsn, read_only=True, idle_max_ms=0)
        self._held.callback(holding.close)
        self._held.enter_context(holding.transaction())
        held = holding.execute(f"SELECT pg_try_advisory_xact_lock({HOLD_LOCK}, {_SCHEMA})")
        if not held[0][0]:
            raise LockHeld(f"Another copy of {self.place} is at work.")
        self._is_held = True

    # --- of a source ---

    def capture(self, tables: Sequence[Table], refusal: str) -> None:
        def change(_: Session) -> None:
            found = self.database.execute(
                "SELECT tgname FROM pg_trigger t JOIN pg_class r ON r.oid = tgrelid "
                f"WHERE NOT tgisinternal AND r.{_HERE}"
            )
            for table in tables:
                if (f"kfm_capture_{table.name}",) not in found:
                    self._capture(table, refusal)

        self.write(change)

    def _capture(self, table: Table, refusal: str) -> None:
        name, said = f"kfm_capture_{table.name}", refusal.replace("'", "''")
        old, new = (", ".join(f"{version}.{k}" for k in table.key) for version in ("OLD", "NEW"))
        note = f"INSERT INTO captured (table_name, key) VALUES ('{table.name}', json_build_array("
        # The lock is held until the transaction ends: the fence waits for it, and what comes after the fence
        # reads that it is there.
        self.database.script(
            f"CREATE OR REPLACE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $kfm$ BEGIN "
            f"PERFORM pg_advisory_xact_lock_shared({MOVE_LOCK}, {_SCHEMA}); "
            "IF EXISTS (SELECT 1 FROM moves WHERE role = 'source' AND state IN ('fenced', 'moved')) THEN "
            f"RAISE EXCEPTION USING ERRCODE = '{FENCED}', MESSAGE = '{said}'; END IF; "
            f"IF TG_OP <> 'INSERT' THEN {note}{old})::text); END IF; "
            f"IF TG_OP <> 'DELETE' THEN {note}{new})::text); END IF; "
            "RETURN NULL; END $kfm$; "
            f"CREATE TRIGGER {name} AFTER INSERT OR UPDATE OR DELETE ON {table.name} "
            f"FOR EACH ROW EXECUTE FUNCTION {name}()"
        )

    def release(self, tables: Sequence[Table]) -> None:
        for table in tables:
            self.write(
                lambda _, name=f"kfm_capture_{table.name}": self.database.script(  # type: ignore[misc]
                    f"DROP FUNCTION IF EXISTS {name}() CASCADE"
                )
            )
        self.write(lambda session: session.all("captured.clear"))

    def exclude_writers(self) -> None:
        self.database.execute(f"SELECT pg_advisory_xact_lock({MOVE_LOCK}, {_SCHEMA})")

    def forget(self, numbers: Sequence[int]) -> None:
        self.database.execute(
            "DELETE FROM captured WHERE number = ANY(%(numbers)s::bigint[])", {"numbers": list(numbers)}
        )

    # --- of a target ---

    def relax(self, *, on: bool) -> None:
        self.database.relax(on=on)

    def loosen(self) -> list[dict[str, str]]:
        tables = {table.name for table in ledger_tables()}
        constraints = self.database.execute(
            "SELECT CASE contype WHEN 'f' THEN 'reference' ELSE 'unique' END, conname, relname, "
            "pg_get_constraintdef(c.oid) FROM pg_constraint c JOIN pg_class r ON r.oid = conrelid "
            f"WHERE r.{_HERE} AND contype IN ('f', 'u') AND conparentid = 0 ORDER BY contype, conname"
        )
        made = [
            {"kind": kind, "name": name, "sql": f'ALTER TABLE {table} ADD CONSTRAINT "{name}" {definition}'}
            for kind, name, table, definition in constraints
            if table in tables
        ]
        for _, name, table, _ in constraints:
            if table in tables:
                self.database.script(f'ALTER TABLE {table} DROP CONSTRAINT "{name}"')
        indexes = self.database.execute(
            "SELECT r.relname, pg_get_indexdef(i.indexrelid) FROM pg_index i "
            "JOIN pg_class r ON r.oid = indexrelid JOIN pg_class t ON t.oid = indrelid "
            # Those of a table that is cut stay: made again they would be on no partition.
            f"WHERE r.{_HERE} AND NOT indisprimary AND t.relkind = 'r' AND t.relname = ANY(%(tables)s)",
            {"tables": sorted(tables)},
        )
        for name, definition in indexes:
            made.append({"kind": "index", "name": name, "sql": definition})
            self.database.script(f'DROP INDEX "{name}"')
        return made

    def tighten(self, made: Sequence[dict[str, str]], kinds: Sequence[str]) -> None:
        there = {
            name
            for (name,) in self._all(
                f"SELECT relname FROM pg_class WHERE {_HERE} UNION ALL SELECT conname FROM pg_constraint c "
                f"JOIN pg_class r ON r.oid = conrelid WHERE r.{_HERE}"
            )
        }
        for one in made:
            if one["kind"] in kinds and one["name"] not in there:
                self.write(lambda _, sql=one["sql"]: self.database.script(sql))  # type: ignore[misc]

    def clear(self, table: Table) -> None:
        self.database.execute(f"DELETE FROM {table.name}")

    def load(self, table: Table, rows: Sequence[Row]) -> None:
        self.database.load(f"COPY {table.name} ({', '.join(table.columns)}) FROM STDIN", rows)

    def drop(self, table: Table, notes: Sequence[str]) -> None:
        self.database.execute(
            f"DELETE FROM {table.name} AS t USING jsonb_array_elements(%(notes)s::jsonb) AS j (value) "
            f"WHERE {self._matches(table)}",
            {"notes": f"[{','.join(notes)}]"},
        )

    def settle(self, positions: dict[str, int]) -> None:
        for table in ledger_tables():
            if (sequence := self._sequence(table)) is not None and positions.get(table.name):
                self.database.execute(
                    "SELECT setval(%(sequence)s::regclass, %(number)s)",
                    {"sequence": sequence, "number": positions[table.name]},
                )

    def check_references(self) -> None:
        """The constraints that were made again have looked at every row."""

    def close(self) -> None:
        with suppress(KfmError):  # its end is the connection's, too
            self._held.close()
        self._reading.close()
        self.database.close()
