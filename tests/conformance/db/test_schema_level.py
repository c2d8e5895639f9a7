"""The level of a ledger: which kfm may write to it, compared by every transaction."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from kfm.db import queries
from kfm.db.postgres import PostgresDatabase
from kfm.db.queries import Migratable, applied, is_current, is_usable, migrate, migration_files
from kfm.db.session import Session
from kfm.model.errors import LedgerBehind, StoreTooNew
from kfm.model.upgrades import Migration
from tests import upgrading

pytestmark = pytest.mark.req("FLT-2")

KNOWN = migration_files()
LEVEL = KNOWN[-1][0]
FLOOR = max(number for number, _, text in KNOWN if not text.startswith("-- expand"))
EXPAND: Migration = (LEVEL + 1, "more", "-- expand: Adds a table.\nCREATE TABLE more (a TEXT);")
CONTRACT: Migration = (LEVEL + 2, "less", "-- contract: Takes it away.\nDROP TABLE more;")
GENTLE: Migration = (
    LEVEL + 2,
    "less",
    f"-- contract from {LEVEL + 1}: Takes away what no kfm since {LEVEL + 1} reads.\nDROP TABLE captured;",
)
LATER: Migration = (LEVEL + 3, "again", "-- expand: Adds another table.\nCREATE TABLE again (a TEXT);")
WAIT_S = 30


@pytest.fixture(params=["sqlite", "postgresql", "postgresql-schema"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Of an empty ledger; in a database of its own, and in one of several schemas of one."""
    if request.param == "sqlite":
        return str(tmp_path / "kfm.db")
    if request.param == "postgresql":
        return str(request.getfixturevalue("postgres_database"))
    return str(request.getfixturevalue("postgres_schema")())


@pytest.fixture(autouse=True)
def nothing_told() -> Iterator[None]:
    queries.tell_newer.cache_clear()
    yield
    queries.tell_newer.cache_clear()


def _migrated(address: str, *more: Migration, rolling: bool = False) -> list[int]:
    """By a kfm that knows these, too."""
    with closing(upgrading.opened(address)) as database:
        return migrate(database, upgrading.dialect_of(address), 1, (*KNOWN, *more), rolling=rolling)


def _note(database: Migratable) -> None:
    database.write(lambda session: session.all("policy.advance"))


def test_a_process_goes_on_beside_what_expands_and_says_so_once(
    address: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A ledger that a newer kfm has expanded is written and read as before, by who had it open and by who
    opens it then; the log has one line of it."""
    _migrated(address)
    with closing(upgrading.opened(address)) as older:
        migrate(older, upgrading.dialect_of(address), 1)
        assert _migrated(address, EXPAND) == [LEVEL + 1]
        with caplog.at_level(logging.WARNING, logger="kfm"):
            for _ in range(3):
                _note(older)
            with closing(upgrading.opened(address)) as another:
                assert migrate(another, upgrading.dialect_of(address), 1) == []
                assert is_usable(another.session)
                with pytest.raises(StoreTooNew):
                    is_current(another.session)  # who copies a ledger has to know all of it
                _note(another)
    assert [one.getMessage() for one in caplog.records] == [
        f"the ledger is of a newer kfm, at migration {LEVEL + 1}; this one knows up to {LEVEL} and goes on "
        "beside it"
    ]


def test_no_write_of_an_older_process_lands_after_a_contraction(address: str) -> None:
    """Who had the ledger open is refused by its next transaction, whatever it sends; who opens it, at once.
    A kfm from the number on that the migration names goes on."""
    dialect = upgrading.dialect_of(address)
    _migrated(address, EXPAND)
    with closing(upgrading.opened(address)) as older, closing(upgrading.opened(address)) as newer:
        migrate(older, dialect, 1)
        migrate(newer, dialect, 1, (*KNOWN, EXPAND))
        _note(older)
        before = older.session.one("policy.epoch")
        _migrated(address, EXPAND, GENTLE)
        for act in (
            lambda: _note(older),
            lambda: older.write(lambda session: session.send("policy.advance")),  # with its commit
        ):
            with pytest.raises(StoreTooNew, match=f"at migration {LEVEL + 2}; this kfm knows up to {LEVEL}"):
                act()
        with pytest.raises(StoreTooNew), closing(upgrading.opened(address)) as another:
            migrate(another, dialect, 1)
        assert newer.session.one("policy.epoch") == before
        _note(newer)
        assert newer.session.one("policy.epoch") != before


def test_a_contraction_waits_for_what_is_under_way(address: str) -> None:
    """A transaction that has begun ends as it would have; the migration comes after it, and who asks behind
    the migration is refused. So nothing of an older kfm is written to a ledger that it does not know."""
    _migrated(address, EXPAND)
    dialect, order = upgrading.dialect_of(address), []

    def contract() -> None:
        _migrated(address, EXPAND, CONTRACT)
        order.append("migrated")

    with closing(upgrading.opened(address)) as older, closing(upgrading.opened(address)) as another:
        for one in (older, another):
            migrate(one, dialect, 1)
        threads = [threading.Thread(target=contract)]

        def change(session: Session) -> None:
            session.all("policy.advance")
            threads[0].start()
            if dialect == "postgresql":
                _until_it_waits(address)
            order.append("written")

        older.write(change)
        threads[0].join(WAIT_S)
        with pytest.raises(StoreTooNew):
            _note(another)
    assert order == ["written", "migrated"]


def _until_it_waits(address: str) -> None:
    waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'schema_level'::regclass"
    deadline = time.monotonic() + WAIT_S
    with closing(PostgresDatabase(address)) as admin:
        while admin.execute(waiting) == [(0,)]:
            assert time.monotonic() < deadline
            threading.Event().wait(0.01)


def test_a_start_beside_others_applies_only_what_they_can_live_with(address: str) -> None:
    """Migrations are applied in order. What contracts is left to `kfm migrate`, and a kfm that needs
    something behind it does not start; one that does not, works."""
    _migrated(address)
    assert _migrated(address, EXPAND, CONTRACT, rolling=True) == [LEVEL + 1]
    with closing(upgrading.opened(address)) as database:
        assert (
            migrate(database, upgrading.dialect_of(address), 1, (*KNOWN, EXPAND, CONTRACT), rolling=True)
            == []
        )
        _note(database)
    with pytest.raises(LedgerBehind, match=rf"lacks migration {LEVEL + 3} \(again\)"):
        _migrated(address, EXPAND, CONTRACT, LATER, rolling=True)
    assert _migrated(address, EXPAND, CONTRACT, LATER) == [LEVEL + 2, LEVEL + 3]


def test_a_ledger_that_knows_no_level_is_migrated_by_a_person(
    postgres_schema: Callable[[], str],
) -> None:
    """Processes of a kfm from before the level can't notice it: nothing is applied beside them."""
    dsn = postgres_schema()
    upgrading.make(dsn, 1)
    with pytest.raises(LedgerBehind, match="lacks migration 36"):
        _migrated(dsn, rolling=True)
    assert _migrated(dsn)[-1] == LEVEL
    with closing(PostgresDatabase(dsn)) as database:
        assert LEVEL in applied(database.session)
        assert database.session.one("schema_level.get") == (LEVEL, FLOOR)


def test_a_migration_that_says_nothing_of_itself_raises_the_floor(address: str) -> None:
    """It was not promised that others can live with it."""
    _migrated(address)
    with closing(upgrading.opened(address)) as older:
        migrate(older, upgrading.dialect_of(address), 1)
        _migrated(address, (LEVEL + 1, "silent", "CREATE TABLE more (a TEXT);"))
        with pytest.raises(StoreTooNew):
            _note(older)
