"""Migrations: each with its record, in order, or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kfm.db import queries
from kfm.db.postgres import PostgresDatabase
from kfm.db.queries import (
    Dialect,
    applied,
    check,
    checksum,
    in_dialect,
    is_current,
    is_empty,
    listed,
    migrate,
    migration_files,
)
from kfm.db.session import Session
from kfm.db.sqlite import MemoryDatabase, SqliteDatabase
from kfm.model.errors import KfmError, StoreCorrupt, StoreTooNew
from kfm.system import SystemClock

FIRST = (1, "first", "CREATE TABLE one (id SERIAL_KEY, a TEXT NOT NULL); INSERT INTO one (a) VALUES ('x');")
SECOND = (2, "second", "ALTER TABLE one ADD COLUMN b TEXT; CREATE INDEX one_b ON one (b);")
BROKEN = (2, "second", "ALTER TABLE one ADD COLUMN b TEXT; INSERT INTO nowhere VALUES (1);")


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def empty(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Any, Dialect]]:
    """A database in which nothing has been."""
    database: Any
    dialect: Dialect = "postgresql" if request.param == "postgresql" else "sqlite"
    if request.param == "memory":
        database = MemoryDatabase(SystemClock())
    elif request.param == "sqlite":
        database = SqliteDatabase(str(tmp_path / "kfm.db"), SystemClock())
    else:
        database = PostgresDatabase(request.getfixturevalue("postgres_schema")())
    yield database, dialect
    database.close()


def _schema(database: Any, dialect: Dialect) -> list[tuple[Any, ...]]:
    """What the database says that it is made of."""
    if dialect == "sqlite":
        return database._connection.execute(  # type: ignore[no-any-return]
            "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY name"
        ).fetchall()
    found = database.execute(
        "SELECT table_name, column_name, data_type, is_nullable, is_identity FROM information_schema.columns "
        "WHERE table_schema = current_schema() ORDER BY 1, ordinal_position"
    )
    return found + database.execute(  # type: ignore[no-any-return]
        "SELECT indexname, replace(indexdef, current_schema() || '.', '') FROM pg_indexes "
        "WHERE schemaname = current_schema() ORDER BY 1"
    )


def test_an_empty_database_is_brought_up_once(empty: tuple[Any, Dialect]) -> None:
    """Everything is applied the first time and nothing the second."""
    database, dialect = empty
    assert is_empty(database.session)
    assert applied(database.session) == {}
    assert not is_current(database.session)
    assert migrate(database, dialect, 1) == [version for version, _, _ in migration_files()]
    assert not is_empty(database.session)
    assert is_current(database.session)
    assert migrate(database, dialect, 2) == []


def test_step_by_step_is_the_same_as_at_once(
    empty: tuple[Any, Dialect], request: Any, tmp_path: Path
) -> None:
    """A database that grew with the releases equals one that was made today."""
    database, dialect = empty
    for count in range(1, 3):
        assert migrate(database, dialect, count, (FIRST, SECOND)[:count]) == [count]
    fresh: Any
    if dialect == "sqlite":
        fresh = SqliteDatabase(str(tmp_path / "fresh.db"), SystemClock())
    else:
        fresh = PostgresDatabase(request.getfixturevalue("postgres_schema")())
    migrate(fresh, dialect, 1, (FIRST, SECOND))
    assert _schema(fresh, dialect) == _schema(database, dialect)
    assert applied(fresh.session) == applied(database.session)
    fresh.close()


def test_the_shipped_migrations_are_the_shipped_schema(empty: tuple[Any, Dialect]) -> None:
    """The texts run one by one give what `migrate` gives: nothing is made anywhere else."""
    database, dialect = empty
    migrate(database, dialect, 1)
    made = _schema(database, dialect)
    reference = MemoryDatabase(SystemClock()) if dialect == "sqlite" else None
    if reference is None:
        assert {row[0] for row in made if len(row) == 5} >= {"runs", "locks", "migrations"}
        return
    reference.session.all("migrations.create")
    for _, _, text in migration_files():
        reference.script(in_dialect(text, "sqlite"))
    assert _schema(reference, dialect) == made


def test_a_migration_that_fails_leaves_nothing(empty: tuple[Any, Dialect]) -> None:
    """Statements and record are one transaction: after a failure in the middle the database is as before."""
    database, dialect = empty
    migrate(database, dialect, 1, (FIRST,))
    before = _schema(database, dialect), applied(database.session)
    with pytest.raises(Exception, match="nowhere"):
        migrate(database, dialect, 1, (FIRST, BROKEN))
    assert (_schema(database, dialect), applied(database.session)) == before
    assert migrate(database, dialect, 1, (FIRST, SECOND)) == [2]


def test_a_new_ledger_is_there_as_a_whole(empty: tuple[Any, Dialect]) -> None:
    """What has no data yet takes all migrations in one transaction: after a failure in the last of them it is
    empty, not a ledger of an earlier time."""
    database, dialect = empty
    with pytest.raises(Exception, match="nowhere"):
        migrate(database, dialect, 1, (FIRST, BROKEN))
    assert is_empty(database.session)
    assert migrate(database, dialect, 1, (FIRST, SECOND)) == [1, 2]


def test_a_migration_whose_record_fails_leaves_nothing(
    empty: tuple[Any, Dialect], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between the statements and the record, the database is as before, down to the first table."""
    database, dialect = empty

    def cut(_session: Session) -> dict[int, str]:
        raise KeyboardInterrupt

    monkeypatch.setattr(queries, "checksum", cut)
    with pytest.raises(KeyboardInterrupt):
        migrate(database, dialect, 1, (FIRST,))
    monkeypatch.undo()
    assert _schema(database, dialect) == []
    assert is_empty(database.session)
    assert migrate(database, dialect, 1, (FIRST,)) == [1]


def test_a_newer_database_is_refused_and_untouched(empty: tuple[Any, Dialect]) -> None:
    """A kfm that does not know a migration reads and writes nothing."""
    database, dialect = empty
    migrate(database, dialect, 1, (FIRST, SECOND))
    before = _schema(database, dialect), applied(database.session)
    with pytest.raises(StoreTooNew, match="migration 2; this kfm knows up to 1"):
        migrate(database, dialect, 1, (FIRST,))
    with pytest.raises(StoreTooNew):
        check(applied(database.session), (FIRST,))
    assert (_schema(database, dialect), applied(database.session)) == before


def test_a_newer_file_keeps_every_byte(tmp_path: Path) -> None:
    """Refusing a newer SQLite ledger changes not one byte of it."""
    path = tmp_path / "kfm.db"
    database = SqliteDatabase(str(path), SystemClock())
    future = (*migration_files(), (9_999, "future", "CREATE TABLE future (id BIGINT)"))
    migrate(database, "sqlite", 1, future)
    database.close()
    before = path.read_bytes()
    again = SqliteDatabase(str(path), SystemClock())
    with pytest.raises(StoreTooNew):
        migrate(again, "sqlite", 2)
    again.close()
    assert path.read_bytes() == before


def test_an_altered_migration_is_refused(empty: tuple[Any, Dialect]) -> None:
    """A migration that was applied with another text means that the schema is not what the code believes."""
    database, dialect = empty
    migrate(database, dialect, 1, (FIRST,))
    altered = (1, "first", FIRST[2].replace("NOT NULL", ""))
    with pytest.raises(StoreCorrupt, match="another text"):
        migrate(database, dialect, 1, (altered, SECOND))
    assert applied(database.session) == {1: checksum(FIRST[2])}


def test_numbers_of_migrations_have_no_gaps() -> None:
    """1, 2, 3, …: a merge of two branches can't leave two of one number."""
    assert [version for version, _, _ in migration_files()] == list(range(1, len(migration_files()) + 1))


def test_the_list_is_of_the_texts_that_are_shipped() -> None:
    """A ledger is called current by the list alone, so each checksum in it is that of a migration's text."""
    assert listed() == {version: checksum(text) for version, _, text in migration_files()}


def test_a_list_of_other_files_decides_nothing(
    empty: tuple[Any, Dialect], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A migration that the list does not know is applied, and an altered one refused, as without a list."""
    database, dialect = empty
    shipped = queries._sql_files("migrations")
    monkeypatch.setattr(queries, "_sql_files", lambda *_path: [*shipped, "9999_more.sql"])
    listed.cache_clear()
    try:
        assert listed() == {}
        assert not is_current(database.session)
        migrate(database, dialect, 1, migration_files()[:1])
        assert not is_current(database.session)
    finally:
        listed.cache_clear()


def test_two_who_migrate_at_once_apply_it_once(postgres_schema: Callable[[], str]) -> None:
    """A fleet that starts together makes the tables once, and no process fails."""
    import threading

    dsn = postgres_schema()
    answers: list[Any] = []

    def start() -> None:
        database = PostgresDatabase(dsn)
        try:
            answers.append(migrate(database, "postgresql", 1))
        except KfmError as error:  # pragma: no cover - the promise is broken
            answers.append(error)
        finally:
            database.close()

    threads = [threading.Thread(target=start) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    everything = [version for version, _, _ in migration_files()]
    assert sorted(version for answer in answers for version in answer) == everything
