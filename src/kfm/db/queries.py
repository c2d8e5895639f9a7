"""Named SQL from `contracts/sql`, and the migrations that bring a database to its schema."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Literal, Protocol

import msgspec

from kfm.db.session import Database, Session
from kfm.model.errors import LEDGER, LedgerMoved, StoreBusy, StoreCorrupt, StoreTooNew
from kfm.model.patterns import late

if TYPE_CHECKING:
    from kfm.model.upgrades import Migration
    from kfm.ports import Progress

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


def statements(migration: str) -> Iterator[str]:
    """The statements of a migration, one by one: each ends with a line. What is between `$$`, and a trigger
    up to its `END`, is of one."""
    gathered: list[str] = []
    for line in migration.splitlines():
        if gathered or (line.strip() and not line.startswith("--")):
            gathered.append(line)
        text = "\n".join(gathered)
        is_inside = text.count("$$") % 2 or (text.startswith("CREATE TRIGGER") and not text.endswith("END;"))
        if text.endswith(";") and not is_inside:
            yield text
            gathered = []
    if gathered:
        yield "\n".join(gathered)


@cache
def migration_files() -> tuple[tuple[int, str, str], ...]:
    """(version, name, text) of every migration, in order."""
    return tuple((int(name[:4]), name[5:-4], _read("migrations", name)) for name in _sql_files("migrations"))


# Marks beside the migrations, with an address in place of a checksum. A kfm that does not know them refuses
# the database as one from the future.
MOVED = 900_001
ARRIVING = 900_002


class Migratable(Database, Protocol):
    """A database that can run the statements of a migration."""

    def script(self, sql: str) -> None: ...
    def exclude_others(self) -> None: ...
    def keep_to(self, level: int | None) -> None:
        """From now on a transaction of this process lands only if a kfm that knows the migrations up to
        `level` may write; None: whatever the ledger says."""


def checksum(text: str) -> str:
    from hashlib import sha256  # late: of a ledger that is current nothing is hashed

    return "sha256:" + sha256(text.encode()).hexdigest()


def is_empty(session: Session) -> bool:
    """No kfm has ever been here."""
    return session.one("migrations.exists") is None


def applied(session: Session) -> dict[int, str]:
    """version → checksum of what the database says it has."""
    if is_empty(session):
        return {}
    return {version: digest for version, _name, digest in session.all("migrations.list")}


def floor_of(session: Session, done: dict[int, str]) -> int | None:
    """The newest migration that a process must know to use this database; None: it does not say."""
    from kfm.model.upgrades import LEVELS  # late, here and below: a ledger that is current needs none of it

    row = session.one("schema_level.get") if LEVELS in done else None
    return None if row is None else int(row[1])


def check(done: dict[int, str], known: Sequence[Migration] | None = None, floor: int | None = None) -> None:
    """Refuse a database that this code does not understand. With its `floor` a newer one may be understood;
    else it is refused, too."""
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
        if floor is None or floor > newest:
            raise too_new(max(done), newest)
        tell_newer(max(done), newest)
    for version, name, text in known:
        if version in done and done[version] != checksum(text):
            raise StoreCorrupt(f"Migration {version} ({name}) was applied with another text.")


def too_new(level: int, known: int) -> StoreTooNew:
    return StoreTooNew(f"It is at migration {level}; this kfm knows up to {known}.", backend=LEDGER)


@cache  # once in a process
def tell_newer(level: int, known: int) -> None:
    """The ledger was upgraded, and this kfm may go on beside the newer one."""
    import logging

    logging.getLogger(__name__).warning(
        "the ledger is of a newer kfm, at migration %d; this one knows up to %d and goes on beside it",
        level,
        known,
        extra={"migration": level},
    )


@cache
def listed() -> dict[int, str]:
    """version → checksum of every migration, without reading one; empty if it is not of the files that are
    here."""
    with open(os.path.join(_FOLDER, os.pardir, "tables", "migrations.json"), "rb") as file:
        found = msgspec.json.decode(file.read(), type=dict[int, str])
    return found if len(found) == len(_sql_files("migrations")) else {}


def newest() -> int:
    """The newest migration that this code knows."""
    return max(listed(), default=0) or migration_files()[-1][0]


def is_as_listed(done: dict[int, str]) -> bool:
    """Are those all of them, with the texts that they have here? The usual answer, and the cheapest."""
    return bool(done) and done == listed()


def is_current(session: Session) -> bool:
    """Nothing to apply, and nothing that this code does not know. Refuses as `check` does."""
    done = applied(session)
    if is_as_listed(done):
        return True
    check(done)
    return len(done) == len(migration_files())


def is_usable(session: Session) -> bool:
    """Is everything there that this code needs? What it does not know may be there, too, and what waits for
    `kfm migrate` may be missing. Refuses as `check` does."""
    done = applied(session)
    if is_as_listed(done):
        return True
    check(done, floor=floor_of(session, done))
    from kfm.model.upgrades import is_needed

    return not any(is_needed(one) for one in migration_files() if one[0] not in done)


# A ledger with data is upgraded by one process; others wait, each time as long as they would for a write.
WAITS_MAX = 20
Upgrading = Callable[[], "Progress"]  # made only where something is missing


def migrate(
    database: Migratable,
    dialect: Dialect,
    now_ms: int,
    known: Sequence[Migration] | None = None,
    *,
    arriving: bool = False,
    upgrading: Upgrading | None = None,
    rolling: bool = False,
) -> list[int]:
    """Apply what is missing; returns the versions applied. `arriving`: by the one who fills it. `rolling`:
    only what processes of the kfm before can live with.

    Each migration of a ledger with data is a transaction of its own, so one that is killed goes on with the
    migration that it was in."""
    if known is None and is_as_listed(done := applied(database.session)):
        database.keep_to(max(done))
        return []
    from kfm.model.upgrades import LEVELS, at_start

    known = migration_files() if known is None else known
    database.keep_to(None)  # who upgrades does not wait for itself

    def looked(session: Session) -> dict[int, str]:
        done = applied(session)
        if arriving:
            done.pop(ARRIVING, None)
        check(done, known, floor_of(session, done))
        return done

    done = looked(database.session)  # before anything is written
    missing = [one for one in known if one[0] not in done]
    if missing and done and rolling:
        missing = at_start(missing)
    made: list[int] = []
    if missing and not done:  # a new ledger is there as a whole
        made = _apply(database, dialect, now_ms, looked, missing)
    elif missing:
        progress = upgrading() if upgrading is not None else None
        made = _upgrade(database, dialect, now_ms, looked, missing, progress)
    if LEVELS in done or any(version == LEVELS for version, _, _ in missing):
        database.keep_to(known[-1][0])
    return made


def _upgrade(
    database: Migratable,
    dialect: Dialect,
    now_ms: int,
    looked: Callable[[Session], dict[int, str]],
    missing: Sequence[Migration],
    progress: Progress | None,
) -> list[int]:
    """One migration after the other, each as short as it can be; told of."""
    import logging  # here: almost every start has nothing to upgrade

    logger = logging.getLogger(__name__)
    made: list[int] = []
    try:
        for place, one in enumerate(missing, 1):
            version, name, text = one
            title = f"upgrade the ledger, {place} of {len(missing)}: {name.replace('_', ' ')}"
            logger.info("%s", title, extra={"migration": version})
            total = sum(1 for _ in statements(in_dialect(text, dialect)))

            def step(*, begins: bool, title: str = title, total: int = total) -> None:
                if progress is not None and begins:
                    progress.phase(title, total)
                elif progress is not None:
                    progress.advance(1)

            for wait in range(WAITS_MAX):
                try:
                    made += _apply(database, dialect, now_ms, looked, [one], step)
                    break
                except StoreBusy as busy:
                    if wait + 1 == WAITS_MAX:
                        raise StoreBusy(
                            f"The ledger is of an earlier kfm, and could not be upgraded: {busy.detail}",
                            remedy="Another process upgrades it, or one of the earlier kfm is at work in it. "
                            "Let the first end, and stop the second; then the next start goes on.",
                            backend=LEDGER,
                        ) from busy
                    logger.info("another process has the ledger; waiting to upgrade it")
    finally:
        if progress is not None:
            progress.done()
    logger.info("the ledger is upgraded, to migration %d", missing[-1][0])
    return made


def _apply(
    database: Migratable,
    dialect: Dialect,
    now_ms: int,
    looked: Callable[[Session], dict[int, str]],
    migrations: Sequence[Migration],
    step: Callable[..., None] | None = None,
) -> list[int]:
    """Migrations with their records, together or not at all; those that no other process was faster with.
    `step` is called before the first statement of a try, and after each."""
    from kfm.model.upgrades import LEVELS, declaration

    def change(session: Session) -> list[int]:
        database.exclude_others()
        session.all("migrations.create")
        done = looked(session)
        missing = [one for one in migrations if one[0] not in done]
        for one in missing:
            version, name, text = one
            said = declaration(one)
            if LEVELS in done and said.kind != "expand":
                session.all("migrations.keep_writers_out")
            sql = in_dialect(text, dialect)
            if step is None:
                database.script(sql)
            else:
                step(begins=True)
                for statement in statements(sql):
                    database.script(statement)
                    step(begins=False)
            session.all(
                "migrations.insert", version=version, name=name, checksum=checksum(text), applied_at_ms=now_ms
            )
            done[version] = name
            if LEVELS in done:
                session.all("migrations.reach_level", level=version, floor=said.floor)
        return [version for version, _name, _text in missing]

    return database.write(change)
