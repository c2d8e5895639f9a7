"""Named SQL from `contracts/sql`, and the migrations that bring a database to its schema."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Literal, Protocol

from kfm.db.session import Database, Session
from kfm.model.errors import LedgerMoved, StoreCorrupt, StoreTooNew
from kfm.model.patterns import late

Dialect = Literal["sqlite", "postgresql"]

# Not importlib.resources: importing it costs more than reading every query.
_FOLDER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "contracts", "sql")
_NAME = "\n-- name: "  # as text: at every start all statements are read
_PARAMETER = late(r"(?<![:\w]):([a-z_]+)")
_ONLY = late(r"^@(sqlite|postgresql) (.*)$", re.MULTILINE)
_SERIAL_KEY = {
    "sqlite": "INTEGER PRIMARY KEY",
    "postgresql": "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
}
# Rows that lie in the order of their key: without it SQLite keeps each key twice.
_CLUSTERED = {"sqlite": ") WITHOUT ROWID;", "postgresql": ");"}


def _parse(text: str) -> dict[str, str]:
    pieces = (piece.partition("\n") for piece in f"\n{text}".split(_NAME)[1:])
    return {name.strip(): body.strip() for name, _, body in pieces}


def _read(*path: str) -> str:
    with open(os.path.join(_FOLDER, *path), encoding="utf-8") as file:
        return file.read()


def _sql_files(*path: str) -> list[str]:
    folder = os.path.join(_FOLDER, *path)
    return (
        sorted(name for name in os.listdir(folder) if name.endswith(".sql")) if os.path.isdir(folder) else []
    )


@cache
def portable() -> dict[str, str]:
    """Every statement by name, as written for both databases."""
    found: dict[str, str] = {}
    for name in _sql_files():
        found.update(_parse(_read(name)))
    return found


@cache
def overrides(dialect: Dialect) -> dict[str, str]:
    """The statements that this database needs in words of its own."""
    found: dict[str, str] = {}
    for name in _sql_files(dialect):
        found.update(_parse(_read(dialect, name)))
    return found


@cache
def queries(dialect: Dialect) -> dict[str, str]:
    """Every statement by name, in the parameter style of the dialect's driver."""
    found = portable() | overrides(dialect)
    if dialect == "postgresql":
        return {name: _PARAMETER.sub(r"%(\1)s", sql) for name, sql in found.items()}
    return found


@cache
def parameters_of(name: str) -> tuple[str, ...]:
    """What a statement asks for, in the order in which it first names each."""
    sql = portable().get(name) or overrides("sqlite")[name]
    return tuple(dict.fromkeys(_PARAMETER.findall(sql)))


def in_dialect(migration: str, dialect: Dialect) -> str:
    """A migration's text in the words of one database. A line that begins with `@dialect` is for it alone."""
    migration = _ONLY.sub(lambda line: line[2] if line[1] == dialect else "", migration)
    return migration.replace("SERIAL_KEY", _SERIAL_KEY[dialect]).replace(") CLUSTERED;", _CLUSTERED[dialect])


@cache
def migration_files() -> tuple[tuple[int, str, str], ...]:
    """(version, name, text) of every migration, in order."""
    return tuple((int(name[:4]), name[5:-4], _read("migrations", name)) for name in _sql_files("migrations"))


Migration = tuple[int, str, str]  # number, name, text

# Marks beside the migrations, with an address in place of a checksum. A kfm that does not know them refuses
# the database as one from the future.
MOVED = 900_001
ARRIVING = 900_002


class Migratable(Database, Protocol):
    """A database that can run the statements of a migration."""

    def script(self, sql: str) -> None: ...
    def exclude_others(self) -> None: ...


def checksum(text: str) -> str:
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def is_empty(session: Session) -> bool:
    """No kfm has ever been here."""
    return session.one("migrations.exists") is None


def applied(session: Session) -> dict[int, str]:
    """version → checksum of what the database says it has."""
    if is_empty(session):
        return {}
    return {version: digest for version, _name, digest in session.all("migrations.list")}


def check(done: dict[int, str], known: Sequence[Migration] | None = None) -> None:
    """Refuse a database that this code does not understand."""
    known = migration_files() if known is None else known
    newest = known[-1][0]
    if MOVED in done:
        raise LedgerMoved(
            f"This ledger has moved to {done[MOVED]}.",
            remedy="Set `store` to that address, and start what works with it again. A move that is done is "
            "not given up: copy the new ledger back, to an empty place.",
        )
    if ARRIVING in done:
        raise LedgerMoved(
            f"This ledger is being filled from {done[ARRIVING]}, and is not in use yet.",
            remedy="The command that fills it (`kfm store copy`, `kfm restore`) goes on where it ended "
            "when it is run again.",
        )
    if done and max(done) > newest:
        raise StoreTooNew(f"It is at migration {max(done)}; this kfm knows up to {newest}.")
    for version, name, text in known:
        if version in done and done[version] != checksum(text):
            raise StoreCorrupt(f"Migration {version} ({name}) was applied with another text.")


def is_current(session: Session) -> bool:
    """Nothing to apply. Refuses as `check` does."""
    done = applied(session)
    check(done)
    return len(done) == len(migration_files())


def migrate(
    database: Migratable,
    dialect: Dialect,
    now_ms: int,
    known: Sequence[Migration] | None = None,
    *,
    arriving: bool = False,
) -> list[int]:
    """Apply what is missing; returns the versions applied. `arriving`: by the one who fills it."""
    known = migration_files() if known is None else known

    def looked(session: Session) -> dict[int, str]:
        done = applied(session)
        if arriving:
            done.pop(ARRIVING, None)
        check(done, known)
        return done

    done = looked(database.session)  # before anything is written
    missing = [one for one in known if one[0] not in done]
    # A new ledger is there as a whole; in one that has data, each migration is as short as it can be.
    steps = [[one] for one in missing] if done else [missing]
    return [version for step in steps for version in _apply(database, dialect, now_ms, looked, step)]


def _apply(
    database: Migratable,
    dialect: Dialect,
    now_ms: int,
    looked: Callable[[Session], dict[int, str]],
    migrations: Sequence[Migration],
) -> list[int]:
    """Migrations with their records, together or not at all; those that no other process was faster with."""

    def change(session: Session) -> list[int]:
        database.exclude_others()
        session.all("migrations.create")
        done = looked(session)
        missing = [one for one in migrations if one[0] not in done]
        for version, name, text in missing:
            database.script(in_dialect(text, dialect))
            session.all(
                "migrations.insert", version=version, name=name, checksum=checksum(text), applied_at_ms=now_ms
            )
        return [version for version, _name, _text in missing]

    return database.write(change)
