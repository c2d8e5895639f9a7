"""Moves of a ledger: its tables as the schema has them, marks that every kfm reads, digests of tables.

The SQL of a copy is made from the schema, so a table that a migration adds is copied without a word here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import cache
from typing import Any, Protocol, TypeVar

import msgspec

from kfm.db.queries import ARRIVING, MOVED, applied, in_dialect, is_empty, migration_files
from kfm.db.session import Database, Row, Session
from kfm.model.errors import StoreCorrupt
from kfm.model.records import Record

T = TypeVar("T")

# Columns that SQLite alone has: made anew on arrival.
_OWN_COLUMNS = {"items": {"box"}, "unit_pages": {"letters_before"}}
# What belongs to one database alone: its migrations and what they say, its own moves, and SQLite's spatial
# index of items.
_OWN = ("migrations", "schema_level", "moves", "captured", "item_boxes", "sqlite_")
# Tables whose next number SQLite keeps in `counters`, for numbers that may never be given twice.
COUNTED = ("outbox", "unit_pages")
PAGE_BYTES = 4 * 1024 * 1024
PAGE_ROWS_FIRST = 20  # before anything is known of a table's rows: a manifest may be large
PAGE_ROWS_MAX = 5_000
_MODULUS = 1 << 256
_encode = msgspec.json.Encoder().encode


class Table(Record, frozen=True):
    """One table of the ledger: its columns, and those that are its key with their places among them."""

    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]
    key_kinds: tuple[str, ...]  # TEXT or BIGINT
    places: tuple[int, ...]
    numbered: bool  # the database gives the key

    def key_of(self, row: Row) -> tuple[Any, ...]:
        return tuple(row[at] for at in self.places)

    def note_of(self, row: Row) -> str:
        """The key as triggers note it."""
        return _encode(self.key_of(row)).decode()


@cache
def ledger_tables() -> tuple[Table, ...]:
    """Every table that is copied, by name, as the migrations make it."""
    import apsw

    connection = apsw.Connection(":memory:")
    for _, _, text in migration_files():
        connection.execute(in_dialect(text, "sqlite"))
    names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name").fetchall()
    found = [_table(connection, str(name)) for (name,) in names if not str(name).startswith(_OWN)]
    connection.close()
    return tuple(found)


def _table(connection: Any, name: str) -> Table:
    facts = connection.execute(f"PRAGMA table_info({name})").fetchall()
    columns = tuple(fact[1] for fact in facts if fact[1] not in _OWN_COLUMNS.get(name, ()))
    keys = sorted((fact for fact in facts if fact[5]), key=lambda fact: fact[5])
    assert keys, f"{name} has no key"
    return Table(
        name=name,
        columns=columns,
        key=tuple(fact[1] for fact in keys),
        key_kinds=tuple("TEXT" if fact[2] == "TEXT" else "BIGINT" for fact in keys),
        places=tuple(columns.index(fact[1]) for fact in keys),
        numbered=len(keys) == 1 and keys[0][2] == "INTEGER",
    )


# --- reading ---------------------------------------------------------------------------


class TableReader(Protocol):
    """Rows of whole tables, on either database."""

    def page(self, table: Table, after: Sequence[Any] | None, limit: int) -> list[Row]:
        """The next rows along the key, in the order of this database."""

    def rows_of(self, table: Table, notes: Sequence[str]) -> list[Row]:
        """The rows of these keys, as far as they are there."""

    def count(self, table: Table) -> int: ...
    def captured(self) -> list[tuple[int, str, str]]:
        """What triggers noted and no round has done: number, table, key."""

    def positions(self) -> dict[str, int]:
        """The highest number that was ever given, for each numbered table."""

    def snapshot(self) -> AbstractContextManager[None]:
        """What is read inside is of one moment."""


class Side(TableReader, Protocol):
    """One end of a copy: what is read from it, and what a copy changes in it."""

    place: str  # for people; without secrets

    @property
    def database(self) -> Database: ...

    def write(self, change: Callable[[Session], T]) -> T: ...
    def is_empty(self) -> bool:
        """No kfm has ever been here."""

    def prepare(self, now_ms: int, *, arriving: bool = False) -> None:
        """The schema of this kfm. `arriving`: by the one who fills it."""

    def hold(self) -> None:
        """One copy at a time has this end, until it is closed or its process ends; LockHeld else."""

    # --- of a source ---
    def capture(self, tables: Sequence[Table], refusal: str) -> None:
        """From here on every change is noted, or refused once the fence is there."""

    def release(self, tables: Sequence[Table]) -> None:
        """No triggers any more."""

    def exclude_writers(self) -> None:
        """Inside a transaction: those of others that have written end before it goes on."""

    def forget(self, numbers: Sequence[int]) -> None:
        """Inside a transaction: these notes are done."""

    # --- of a target ---
    def relax(self, *, on: bool) -> None:
        """Commits need not wait for the disk: a power cut may take the last ones, and with each of them how
        far it had come."""

    def loosen(self) -> list[dict[str, str]]:
        """Inside a transaction: take away what can't hold before all rows are there; what to make again."""

    def tighten(self, made: Sequence[dict[str, str]], kinds: Sequence[str]) -> None:
        """Make it again, as far as it is not there."""

    def clear(self, table: Table) -> None:
        """Inside a transaction: what a new ledger has of its own comes with the rows."""

    def load(self, table: Table, rows: Sequence[Row]) -> None:
        """Inside a transaction: rows of keys that are not there."""

    def drop(self, table: Table, notes: Sequence[str]) -> None:
        """Inside a transaction: the rows of these keys go."""

    def settle(self, positions: dict[str, int]) -> None:
        """Inside a transaction: what this database keeps beside the rows, and the next numbers."""

    def check_references(self) -> None:
        """Raise if a row names another that is not there."""

    def close(self) -> None: ...


def page_along_key(
    ask: Callable[[str, Sequence[Any]], list[Row]],
    mark: Callable[[int], str],
    table: Table,
    after: Sequence[Any] | None,
    limit: int,
) -> list[Row]:
    """The next rows along the key. `mark`: how this database writes the so many-eth parameter."""
    found: list[Row] = []
    # One question for each column of the key, which an index answers: one for all of them at once would read
    # what is equal to its start.
    for depth in range(len(table.key), 0, -1) if after is not None else (0,):
        if len(found) < limit:
            where = [f"{name} = {mark(at)}" for at, name in enumerate(table.key[: max(0, depth - 1)])]
            where += [f"{table.key[depth - 1]} > {mark(depth - 1)}"] if depth else []
            found += ask(
                f"SELECT {', '.join(table.columns)} FROM {table.name} "
                + (f"WHERE {' AND '.join(where)} " if where else "")
                + f"ORDER BY {', '.join(table.key)} LIMIT {limit - len(found)}",
                (after or ())[:depth],
            )
    return found


def pages(reader: TableReader, table: Table, after: Sequence[Any] | None = None) -> Iterator[list[Row]]:
    """The rows from a key on, in pages of about the same number of bytes. A page that is not full is the last
    one: rows that are added while it is read are no reason to go on for ever."""
    limit = PAGE_ROWS_FIRST
    while page := reader.page(table, after, limit):
        yield page
        if len(page) < limit:
            return
        after = table.key_of(page[-1])
        size = sum(len(value) for row in page for value in row if isinstance(value, str | bytes)) + 1
        limit = max(1, min(PAGE_ROWS_MAX, 4 * limit, len(page) * PAGE_BYTES // size))


def row_digest(row: Row) -> int:
    return int.from_bytes(hashlib.sha256(_encode(row)).digest())


class TableDigest(Record, frozen=True):
    """What a table holds: how many rows, and the sum of their digests, whatever their order."""

    table: str
    rows: int
    digest: str


def digest(
    reader: TableReader, table: Table, progress: Callable[[int], None] = lambda _: None
) -> TableDigest:
    rows = total = 0
    for page in pages(reader, table):
        rows += len(page)
        total += sum(map(row_digest, page))
        progress(len(page))
    return TableDigest(table=table.name, rows=rows, digest=f"sum-sha256:{total % _MODULUS:064x}")


def differences(source: TableReader, target: TableReader, table: Table) -> list[str]:
    """The keys whose rows are not the same on both sides."""
    there = {table.note_of(row): row_digest(row) for page in pages(source, table) for row in page}
    wrong = []
    for page in pages(target, table):
        wrong += [note for row in page if there.pop(note := table.note_of(row), None) != row_digest(row)]
    return wrong + list(there)


# --- the rows of `moves`, and the marks --------------------------------------------------------


class Move(Record, frozen=True):
    """One copy, as one of its ends knows it."""

    move_id: str
    role: str
    place: str
    state: str
    progress: str


def latest(session: Session) -> Move | None:
    """The newest move of a ledger, also of one that has only just been marked as being filled."""
    for version, name, place in session.all("migrations.list"):
        if version == ARRIVING:
            return Move(move_id=name, role="target", place=place, state="copying", progress="")
    if _made() not in applied(session):
        return None
    return _row(session)


def has_arrived(session: Session, move_id: str) -> bool:
    """Has this ledger been live since that move? Later moves of its own do not matter."""
    if is_empty(session) or _made() not in applied(session):
        return False
    row = session.one("moves.get", move_id=move_id)
    return row is not None and row == ("target", "live")


def _made() -> int:
    """The migration that made `moves`."""
    return next(version for version, name, _ in migration_files() if name == "moves")


def _row(session: Session) -> Move | None:
    row = session.one("moves.latest")
    return Move(move_id=row[0], role=row[1], place=row[2], state=row[3], progress=row[4]) if row else None


def begin(session: Session, move_id: str, role: str, place: str) -> None:
    session.all("moves.begin", move_id=move_id, role=role, place=place, now_ms=session.now_ms())


def backlog(session: Session, limit: int) -> int:
    """How many keys are noted; no more than the limit are counted."""
    row = session.one("captured.count", row_limit=limit)
    assert row is not None
    return int(row[0])


def set_state(session: Session, move_id: str, state: str) -> None:
    session.all("moves.set_state", move_id=move_id, state=state, now_ms=session.now_ms())


def set_progress(session: Session, move_id: str, progress: Any) -> None:
    text = _encode(progress).decode()
    session.all("moves.set_progress", move_id=move_id, progress=text, now_ms=session.now_ms())


def progress_of(session: Session) -> Any:
    """How far the filling of this ledger has come; None: not even begun."""
    row = _row(session)
    return None if row is None else msgspec.json.decode(row.progress)


def mark(session: Session, version: int, move_id: str, place: str) -> None:
    """Every kfm refuses to open this ledger from here on, and says why."""
    assert version in (MOVED, ARRIVING)
    session.all(
        "migrations.insert", version=version, name=move_id, checksum=place, applied_at_ms=session.now_ms()
    )


def unmark(session: Session) -> None:
    session.all("migrations.remove", version=ARRIVING)


def require_columns(table: Table, columns: Sequence[str]) -> None:
    """Both databases come from the same migrations; one that was changed by hand is refused."""
    if other := sorted(set(columns) - _OWN_COLUMNS.get(table.name, set()) ^ set(table.columns)):
        raise StoreCorrupt(f"The table {table.name} has other columns than this kfm's: {', '.join(other)}.")
