"""Ledgers of an earlier kfm are upgraded: with progress, killed at any moment, beside other processes."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kfm.db import queries, sqlite, version_upkeep
from kfm.db.connection import open_ledger
from kfm.db.leases import lock_for_update, take
from kfm.db.ledger import Ledger
from kfm.db.queries import applied, in_dialect, migrate, migration_files, portable, statements
from kfm.db.session import Session
from kfm.db.sqlite import MemoryDatabase
from kfm.model.errors import BackendUnavailable, KfmError, StoreBusy
from kfm.model.versions import whole_id
from kfm.runs.version_conversion import VersionConversion
from kfm.system import SystemClock
from tests import upgrading
from tests.conformance.db.ledgers import Desk
from tests.conformance.db.test_versions import hourly, keep_whole, of_hours, promote

ROWS = 20
NEWEST = migration_files()[-1][0]
MISSING = [version for version, _, _ in migration_files()[upgrading.EARLIER :]]


@pytest.fixture(params=["sqlite", "postgresql"])
def places(
    request: pytest.FixtureRequest, tmp_path: Path, postgres_schema: Callable[[], str]
) -> Callable[[], str]:
    """Makes addresses of ledgers of an earlier kfm, each with the same rows."""
    made: list[str] = []

    def make() -> str:
        made.append(str(tmp_path / f"{len(made)}.db") if request.param == "sqlite" else postgres_schema())
        upgrading.make(made[-1], ROWS)
        return made[-1]

    return make


@pytest.mark.req("WAL-21")
def test_killed_at_any_migration_it_goes_on(places: Callable[[], str]) -> None:
    """An upgrade that is killed before, in and at the end of each migration leaves that one undone and those
    before it done; the one that comes to its end has every row and index of one that was never killed."""
    unharmed, killed = places(), places()
    upgrading.upgrade(unharmed)
    for version, count in upgrading.moments(killed):
        for place, statement in ((1, 0), (1, count // 2), (1, count)):
            with closing(upgrading.opened(killed)) as database:
                behind = MISSING.index(version) - sum(one in MISSING for one in applied(database.session))
            assert upgrading.killed_upgrade(killed, place + behind, statement), (version, statement)
            with closing(upgrading.opened(killed)) as database:
                assert version not in applied(database.session)
    assert upgrading.upgrade(killed) == [NEWEST]
    assert upgrading.contents(killed) == upgrading.contents(unharmed)


def test_an_upgrade_says_how_far_it_is(places: Callable[[], str], caplog: pytest.LogCaptureFixture) -> None:
    """Each migration of a ledger with data is a phase whose statements are counted, and a line of the log; a
    ledger that is up to date, and a new one, show nothing."""
    address, watched = places(), upgrading.Watched()
    with caplog.at_level(logging.INFO, logger="kfm"):
        assert upgrading.upgrade(address, watched) == MISSING
    assert [name for name, _, _ in watched.phases][:2] == [
        f"upgrade the ledger, 1 of {len(MISSING)}: feeds",
        f"upgrade the ledger, 2 of {len(MISSING)}: names and windows",
    ]
    assert all(total == done and done for _, total, done in watched.phases)
    assert [one.getMessage() for one in caplog.records] == [
        *(name for name, _, _ in watched.phases),
        f"the ledger is upgraded, to migration {NEWEST}",
    ]
    again = upgrading.Watched()
    assert upgrading.upgrade(address, again) == []
    with closing(MemoryDatabase(SystemClock())) as new:
        migrate(new, "sqlite", 1, upgrading=lambda: again)
    assert again.phases == []


def test_statements_are_cut_where_they_end() -> None:
    """The statements of every migration, one by one, make what its whole text makes."""
    import apsw

    whole, cut = apsw.Connection(":memory:"), apsw.Connection(":memory:")
    for _, _, text in migration_files():
        whole.execute(in_dialect(text, "sqlite"))
        for statement in statements(in_dialect(text, "sqlite")):
            assert apsw.complete(statement), statement
            cut.execute(statement)
    schema = "SELECT type, name, sql FROM sqlite_master ORDER BY name"
    assert cut.execute(schema).fetchall() == whole.execute(schema).fetchall()


@pytest.mark.req("GRO-1")
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_killed_at_any_conversion_it_goes_on(
    kind: str, tmp_path: Path, postgres_schema: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Versions of before get their trees one by one: killed before and behind each commit, the next process
    goes on, and what is there in the end is what one that was never killed makes."""
    unharmed, killed = (
        str(tmp_path / f"{name}.db") if kind == "sqlite" else postgres_schema() for name in "ab"
    )
    for address in (unharmed, killed):
        with closing(_of_versions(address)) as store:
            assert store.version_upkeep().count_whole() == OLD_VERSIONS
    put, left = version_upkeep.put_version, 0

    def killing(*arguments: Any) -> None:
        put(*arguments)
        os.kill(os.getpid(), signal.SIGKILL)

    def convert(address: str, advance: Callable[[int], None] = lambda _: None) -> None:
        with closing(_opened_store(address)) as store:
            progress = SimpleNamespace(phase=lambda *_: None, advance=advance, done=lambda: None)
            kernel: Any = SimpleNamespace(store=store, ledger=store, progress=progress)
            VersionConversion(kernel).finish()

    for round_ in range(OLD_VERSIONS):
        monkeypatch.setattr(version_upkeep, "put_version", killing)  # written, and not committed
        assert upgrading.was_killed(lambda: convert(killed))
        monkeypatch.setattr(version_upkeep, "put_version", put)
        assert upgrading.was_killed(lambda: convert(killed, lambda _: os.kill(os.getpid(), signal.SIGKILL)))
        with closing(_opened_store(killed)) as store:
            left = store.version_upkeep().count_whole()
        assert left == OLD_VERSIONS - round_ - 1
    assert left == 0
    convert(unharmed)
    made, other = upgrading.contents(unharmed), upgrading.contents(killed)
    tables = ("versions", "version_pages", "version_items")
    assert [made[name] for name in tables] == [other[name] for name in tables]


OLD_VERSIONS = 4


def _opened_store(address: str) -> Ledger:
    return Ledger(upgrading.opened(address))


def _of_versions(address: str) -> Ledger:
    """A ledger with a head, and with versions that are kept whole, as before they were trees."""
    with closing(upgrading.opened(address)) as database:
        migrate(database, upgrading.dialect_of(address), 1)
    store = _opened_store(address)
    items = [hourly(number) for number in range(40)]
    promote(Desk(store), "head", of_hours(items))
    for size in range(10, 10 + OLD_VERSIONS):
        made = of_hours(items[:size])
        keep_whole(store, whole_id(made), made)
    return store


@pytest.mark.req("WAL-21")
def test_another_process_waits_for_the_upgrade(
    places: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that meets an upgrade in its middle waits, more than once; at the end of its patience it says
    what is going on, and nothing of the ledger has changed."""
    address = places()
    met: list[str] = []
    monkeypatch.setattr(queries, "WAITS_MAX", 2)

    def meet(migration: int, statement: int) -> None:
        if (migration, statement) != (3, 1):
            return
        with closing(upgrading.opened(address, wait_max_ms=50)) as other:
            before = applied(other.session)
            with pytest.raises(StoreBusy, match="earlier kfm, and could not be upgraded") as refused:
                migrate(other, upgrading.dialect_of(address), 3)
            assert applied(other.session) == before
            met.append(refused.value.way_out)

    assert upgrading.upgrade(address, upgrading.Watched(meet)) == MISSING
    assert "the next start goes on" in met[0]


def test_a_large_ledger_of_before_is_not_read_into_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader upgrades a small ledger in memory; a large one it refuses, and says what upgrades it."""
    path = str(tmp_path / "kfm.db")
    upgrading.make(path, ROWS)
    open_ledger(f"sqlite:{path}", "/", SystemClock()).close()
    monkeypatch.setattr(sqlite, "COPIED_MAX_BYTES", 100_000)
    with pytest.raises(BackendUnavailable, match="made by an older kfm") as refused:
        open_ledger(f"sqlite:{path}", "/", SystemClock())
    assert "kfm run" in refused.value.way_out


# As the release before had them.
_EARLIER_TAKE = portable()["locks.take"].replace("known_fence = :fence, ", "")
_EARLIER_PAGE = (
    "INSERT INTO unit_pages (number, event, status, at_ms, members) VALUES (900, 'x', 'y', 1, '[]')"
)


@pytest.mark.req("WAL-21")
def test_a_process_of_before_begins_nothing_afterwards(places: Callable[[], str]) -> None:
    """A process of an earlier kfm that had the ledger open takes no lock and settles no unit once it is
    upgraded: it is refused in words that say what to do. What it holds, it may keep; this kfm may all."""
    address = places()
    with closing(upgrading.opened(address)) as earlier, closing(upgrading.opened(address)) as ours:
        earlier.execute("SELECT COUNT(*) FROM locks")
        migrate(ours, upgrading.dialect_of(address), 2)
        upgraded = "upgraded by a newer kfm: end this process"
        for sql in (
            _EARLIER_TAKE.replace(":fence", "2").replace(":seen_fence", "1").replace("= :scope", "= 'scope1'")
            .replace(":worker_id", "'w'").replace(":run_id", "'r'").replace(":acquired_at_ms", "1")
            .replace(":lease_until_ms", "9"),
            _EARLIER_PAGE,
        ):  # fmt: skip
            with pytest.raises(KfmError, match=upgraded):
                earlier.write(lambda _session, sql=sql: earlier.execute(sql))
        earlier.write(lambda session: session.all("locks.renew", scope="scope1", fence=1, lease_until_ms=5))

        def ordinary(session: Session) -> int:
            lock = lock_for_update(session, "scope1")
            take(session, lock, lock.fence + 1, "w", "r", 1, 9)
            return lock_for_update(session, "scope1").fence

        assert ours.write(ordinary) == 2
