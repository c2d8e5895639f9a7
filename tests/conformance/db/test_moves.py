"""A ledger moves to another database while work goes on: nothing is lost, and only one of them goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest

from kfm.audit import chain
from kfm.db import moves, queries
from kfm.db.connection import open_ledger, open_store
from kfm.db.ledger import Ledger
from kfm.db.postgres import PostgresDatabase
from kfm.db.postgres_side import PostgresSide
from kfm.model.errors import KfmError, LedgerMoved, LockHeld, StoreCorrupt, UsageError
from kfm.system import SystemClock
from tests import moving, services
from tests.conformance.db import ledgers

pytestmark = pytest.mark.req("GRO-4")

ROWS = 12
CHAIN = ("governance", "chain_heads")  # the move itself is entered


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("filled") / "kfm.db"
    moving.fill(str(path), ROWS)
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA journal_mode = delete")
    connection.close()
    return path.read_bytes()


@pytest.fixture
def in_file(template: bytes, tmp_path: Path) -> str:
    (tmp_path / "kfm.db").write_bytes(template)
    return str(tmp_path / "kfm.db")


@pytest.fixture(scope="module")
def on_server(
    template: bytes, postgres_dsn: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[], str]]:
    """Makes databases that hold the same: PostgreSQL copies one much faster than it is filled."""
    path = tmp_path_factory.mktemp("moved") / "kfm.db"
    path.write_bytes(template)
    made: list[str] = []
    with (
        services.postgres_database(postgres_dsn) as first,
        psycopg.connect(postgres_dsn, autocommit=True) as admin,
    ):
        moving.copy(str(path), first)
        before, _, name = first.rpartition("/")

        def make() -> str:
            made.append(f"{name}_{len(made)}")
            admin.execute(f'CREATE DATABASE "{made[-1]}" TEMPLATE "{name}"')
            return f"{before}/{made[-1]}"

        yield make  # they go with the server: dropping each would cost a checkpoint


@pytest.fixture(params=["to-postgresql", "to-sqlite"])
def ends(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    """The addresses of a filled ledger and of an empty place."""
    if request.param == "to-postgresql":
        return request.getfixturevalue("in_file"), request.getfixturevalue("postgres_schema")()
    return request.getfixturevalue("on_server")(), str(tmp_path / "back" / "kfm.db")


def writer(address: str) -> Ledger:
    if address.startswith("postgresql://"):
        return open_store(address, "", SystemClock())
    return open_store(f"sqlite:{address}", "/", SystemClock())


def subjects(address: str) -> set[str]:
    return {row[2] for row in moving.contents(address)["governance"]}


def schema_of(side: Any) -> set[Any]:
    if isinstance(side, PostgresSide):
        return set(
            side.database.execute(
                "SELECT conname, pg_get_constraintdef(c.oid), convalidated FROM pg_constraint c "
                "JOIN pg_class r ON r.oid = conrelid WHERE relnamespace = current_schema()::regnamespace "
                "UNION ALL "
                "SELECT indexname, regexp_replace(indexdef, ' ON (ONLY )?[^ ]+[.]', ' ON '), true "
                "FROM pg_indexes WHERE schemaname = current_schema() "
                "UNION ALL SELECT tgname, '', true FROM pg_trigger t "
                "JOIN pg_class r ON r.oid = tgrelid WHERE NOT tgisinternal "
                "AND relnamespace = current_schema()::regnamespace"
            )
        )
    return set(
        side.database.execute("SELECT type, name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite%'")
    )


def test_there_and_back_every_row_is_the_same(in_file: str, tmp_path: Path, postgres_schema: Any) -> None:
    """SQLite to PostgreSQL and back: every row of every table, and the chain goes on by the moves alone.
    Numbers of messages that were removed before are not given again, on either database."""
    dsn, back = postgres_schema(), str(tmp_path / "back.db")
    statement(in_file, f"DELETE FROM outbox WHERE number > {ROWS - 2}")
    before = moving.contents(in_file)
    moving.copy(in_file, dsn)
    statement(dsn, MESSAGE.format("there"))
    moving.copy(dsn, back)
    statement(back, MESSAGE.format("back"))
    after = moving.contents(back)
    unlike = (*CHAIN, "outbox", "counters")
    assert {name: after[name] for name in after if name not in unlike} == {
        name: before[name] for name in before if name not in unlike
    }
    assert set(before["governance"]) < set(after["governance"])
    assert len(after["governance"]) == len(before["governance"]) + 4
    assert set(before["counters"]) == set(after["counters"])
    assert set(before["outbox"]) < set(after["outbox"])
    numbers = {row[0] for row in after["outbox"]} - {row[0] for row in before["outbox"]}
    assert numbers == {ROWS + 1, ROWS + 2}


MESSAGE = (
    "INSERT INTO outbox (event_id, topic, subject, body, recorded_at_ms, tries, not_before_ms) "
    "VALUES ('{}', 't', 's', 'b', 1, 0, 0)"
)


def statement(address: str, sql: str) -> None:
    ledger = writer(address)
    execute: Any = ledger.database.execute  # type: ignore[attr-defined]
    ledger.database.write(lambda _: execute(sql))
    ledger.close()


def test_what_is_written_meanwhile_arrives(ends: tuple[str, str]) -> None:
    """A writer between every two pages: entries, changed and removed rows, keys that change, values that must
    be unique and pass from one row to another."""
    ledger = writer(ends[0])
    refused: list[str] = []
    accepted: list[str] = []

    def act(at: int, name: str) -> None:
        if at % 3 and not name.startswith(("comparing", "checking", "going")):
            return
        try:
            moving.enter(ledger, f"meanwhile {at}")
            disturb(ledger, at)
            accepted.append(f"meanwhile {at}")
        except LedgerMoved:
            refused.append(name)

    steps = moving.Steps(act)
    report = moving.copy(*ends, steps)
    assert report.noted > 100
    assert report.repaired == 0
    assert {name.split()[0] for name in refused} >= {"checking", "going"}
    assert accepted
    assert subjects(ends[1]) >= set(accepted)
    before, after = moving.contents(ends[0]), moving.contents(ends[1])
    assert {name for name in before if before[name] != after[name]} == set(CHAIN)
    ledger.close()


def disturb(ledger: Ledger, at: int) -> None:
    one = f"run_id{at % ROWS + 1}"
    execute: Any = ledger.database.execute  # type: ignore[attr-defined]

    def change(_: Any) -> None:
        execute(f"UPDATE switches SET scope = scope || 'x' WHERE scope = 'scope{at % ROWS + 1}'")
        execute(f"DELETE FROM previews WHERE digest = 'digest{at % ROWS + 1}'")
        execute(f"UPDATE runs SET work_key = 'spare' WHERE run_id = '{one}'")
        execute(f"UPDATE runs SET work_key = 'taken{at}' WHERE run_id = 'run_id{(at + 1) % ROWS + 1}'")
        execute("UPDATE runs SET work_key = run_id || 'own' WHERE work_key = 'spare'")
        execute(f"UPDATE units SET extra = '{{\"at\":{at}}}' WHERE wal_id = 'wal_id{at % ROWS + 1}'")

    ledger.database.write(change)


def test_after_the_move_only_the_new_ledger_goes_on(ends: tuple[str, str], postgres_schema: Any) -> None:
    """A process that has the old one open is refused by the database itself, one that opens it by its mark.
    The chain of the new one is sound, and its schema that of any new ledger: what was set aside for the load
    is there again, and no trigger more."""
    running = writer(ends[0])
    moving.enter(running, "before")
    report = moving.copy(*ends)
    with pytest.raises(LedgerMoved, match="moving, or has moved"):
        moving.enter(running, "after")
    running.close()
    with pytest.raises(LedgerMoved, match="has moved to") as refused:
        writer(ends[0])
    assert "postgres:" not in str(refused.value)
    with pytest.raises(LedgerMoved):
        open_ledger(ends[0] if "://" in ends[0] else f"sqlite:{ends[0]}", "/", SystemClock())
    new = writer(ends[1])
    moving.enter(new, "after")
    assert chain.verify(new).sound
    assert new.chain_head()[0] == report.chain_rows + 2  # the move, and this
    new.close()
    arrived = moving.open_side(ends[1], fill=False)
    fresh_at = postgres_schema() if ends[1].startswith("postgresql") else f"{ends[1]}.new"
    fresh = moving.open_side(fresh_at, fill=True)
    fresh.relax(on=True)
    fresh.prepare(0)
    assert schema_of(arrived) == schema_of(fresh)
    for side in (arrived, fresh):
        side.close()


@pytest.mark.parametrize(
    ("ends", "stage"),
    [
        ("to-postgresql", "copying units +"),
        ("to-postgresql", "catching"),
        ("to-postgresql", "comparing"),
        ("to-postgresql", "checking"),
        ("to-postgresql", "going"),
        ("to-sqlite", "making"),
        ("to-sqlite", "leaving"),
    ],
    indirect=["ends"],
)
def test_killed_anywhere_it_goes_on(ends: tuple[str, str], stage: str) -> None:
    """kill -9 in each stage, with a writer before and after: run again it ends, and what was acknowledged is
    there."""
    ledger = writer(ends[0])
    accepted = ["first"]
    moving.enter(ledger, "first")
    assert moving.killed_copy(*ends, stage)
    try:
        moving.enter(ledger, "between")
        accepted.append("between")
    except LedgerMoved:
        assert stage in ("checking", "going", "leaving")
    report = moving.copy(*ends)
    assert report.resumed
    assert subjects(ends[1]) >= set(accepted)
    with pytest.raises(LedgerMoved):
        moving.enter(ledger, "too late")
    ledger.close()
    new = writer(ends[1])
    assert chain.verify(new).sound
    new.close()


def test_a_copy_can_be_given_up(ends: tuple[str, str]) -> None:
    """Also behind the fence: the old ledger goes on without a trace of triggers, the half one is never
    opened."""

    assert moving.killed_copy(*ends, "checking")
    source, target = moving.open_side(ends[0], fill=False), moving.open_side(ends[1], fill=True)
    moving.mover(source, target).abandon()
    for side in (source, target):
        side.close()
    ledger = writer(ends[0])
    moving.enter(ledger, "goes on")
    assert chain.verify(ledger).sound
    assert ledger.database.session.one("captured.count", row_limit=10) == (0,)
    ledger.close()
    with pytest.raises(LedgerMoved, match="being filled"):
        writer(ends[1])
    with pytest.raises(UsageError, match="holds a ledger already"):
        moving.copy(*ends)


def test_a_copy_that_went_on_elsewhere_is_not_given_up(in_file: str, tmp_path: Path) -> None:
    """A ledger goes on in one place: what was live once, and has moved on since, is not brought back by
    giving up the copy to it. Run again, that copy makes its last step."""
    second, third = str(tmp_path / "second.db"), str(tmp_path / "third.db")
    assert moving.killed_copy(in_file, second, "leaving")
    moving.copy(second, third)
    ends = moving.open_side(in_file, fill=False), moving.open_side(second, fill=True)
    with pytest.raises(UsageError, match="is live already") as refused:
        moving.mover(*ends).abandon()
    assert f"kfm store copy --to 'sqlite:{second}'" in refused.value.way_out
    for side in ends:
        side.close()
    assert moving.copy(in_file, second).resumed
    for path in (in_file, second):
        with pytest.raises(LedgerMoved, match="has moved to"):
            writer(path)
    writer(third).close()


def test_a_copy_is_not_given_up_where_another_ledger_is(in_file: str, tmp_path: Path) -> None:
    """Who can't tell whose ledger is at the target leaves the fence: it may be this one, restored there."""
    assert moving.killed_copy(in_file, str(tmp_path / "new.db"), "copying")
    for name in ("new.db", "new.db-wal", "new.db-shm"):
        (tmp_path / name).unlink(missing_ok=True)
    writer(str(tmp_path / "new.db")).close()
    ends = moving.open_side(in_file, fill=False), moving.open_side(str(tmp_path / "new.db"), fill=True)
    with pytest.raises(UsageError, match="holds a ledger"):
        moving.mover(*ends).abandon()
    ends[1].close()
    for path in tmp_path.glob("new.db*"):
        path.unlink()
    target = moving.open_side(str(tmp_path / "new.db"), fill=True)
    moving.mover(ends[0], target).abandon()
    for side in (ends[0], target):
        side.close()
    writer(in_file).close()


def test_deliveries_do_not_wait_for_writers_while_a_ledger_is_copied(postgres_schema: Any) -> None:
    """The lock between the fence and the writers is no other's: a claim goes on beside a writer."""
    dsn = postgres_schema()
    ledgers.postgres_store(dsn).close()
    side = PostgresSide(dsn)
    side.capture(moves.ledger_tables(), "moving")
    other = PostgresDatabase(dsn, unsafe_for_tests=True, wait_max_ms=500)
    with psycopg.connect(dsn) as beside:
        beside.execute("INSERT INTO previews (digest, plan, made_at_ms) VALUES ('d', '{}', 1)")
        assert list(Ledger(other).claim_messages("openlineage", 1, 60_000)) == []
        beside.rollback()
    other.close()
    side.close()


def test_ledgers_of_one_database_do_not_wait_for_each_other(postgres_schema: Any) -> None:
    """The fence of one schema does not keep the writers of another."""
    first, second = postgres_schema(), postgres_schema()
    sides = []
    for dsn in (first, second):
        ledgers.postgres_store(dsn).close()
        sides.append(PostgresSide(dsn))
        sides[-1].capture(moves.ledger_tables(), "moving")
    with psycopg.connect(first) as beside:
        beside.execute("INSERT INTO previews (digest, plan, made_at_ms) VALUES ('d', '{}', 1)")
        sides[1].database.execute("SET lock_timeout = 500")
        sides[1].write(lambda _: sides[1].exclude_writers())
        beside.rollback()
    for side in sides:
        side.close()


def test_pages_are_bounded_by_bytes_of_every_kind() -> None:
    """What is packed counts, too: a page of a table of large values has few rows."""
    table = next(one for one in moves.ledger_tables() if one.name == "fact_pages")

    class Reader:
        largest = 0

        def page(self, _: Any, after: Any, limit: int) -> list[Any]:
            first = 1 if after is None else after[0] + 1
            found = [(number, b"x" * 65536) for number in range(first, min(2001, first + limit))]
            self.largest = max(self.largest, sum(len(one[1]) for one in found))
            return found

    reader: Any = Reader()
    assert sum(map(len, moves.pages(reader, table))) == 2000
    assert reader.largest <= moves.PAGE_BYTES


@pytest.mark.parametrize("ends", ["to-postgresql"], indirect=True)
def test_an_error_behind_the_fence_lifts_it(ends: tuple[str, str]) -> None:
    """Work goes on with the old ledger; a second call ends the copy."""

    def fail(_: int, name: str) -> None:
        if name.startswith("checking"):
            raise StoreCorrupt("as a test")

    ledger = writer(ends[0])
    with pytest.raises(StoreCorrupt):
        moving.copy(*ends, moving.Steps(fail))
    moving.enter(ledger, "goes on")
    ledger.close()
    moving.copy(*ends)
    assert "goes on" in subjects(ends[1])


def test_rows_that_no_trigger_saw_are_found_and_told(in_file: str, postgres_schema: Any) -> None:
    """The comparison does not trust the triggers: what differs is copied again, and counted."""

    def behind(_: int, name: str) -> None:
        if name == "copying units":
            with apsw.Connection(in_file) as connection:
                connection.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)
                connection.execute("UPDATE runs SET error_message = 'unseen' WHERE run_id = 'run_id3'")
                connection.execute("DELETE FROM marks WHERE name = 'name2'")
                connection.execute("INSERT INTO marks VALUES ('new', '')")

        if name == "fence":
            with apsw.Connection(in_file) as connection:
                connection.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)
                connection.execute("DELETE FROM marks WHERE name IN ('name3', 'name4')")

    dsn = postgres_schema()
    report = moving.copy(in_file, dsn, moving.Steps(behind))
    assert report.repaired == 5
    before, after = moving.contents(in_file), moving.contents(dsn)
    assert (before["runs"], before["marks"]) == (after["runs"], after["marks"])


def test_a_place_that_is_taken_is_refused(in_file: str, tmp_path: Path, postgres_schema: Any) -> None:
    """A target with a ledger, also an older one; another target while a copy is under way; two copies at
    once."""
    taken = postgres_schema()
    ledgers.postgres_store(taken).close()
    with pytest.raises(UsageError, match="holds a ledger already"):
        moving.copy(in_file, taken)
    older = str(tmp_path / "older.db")
    side = moving.open_side(older, fill=True)
    queries.migrate(side.database, "sqlite", 0, queries.migration_files()[:20])  # type: ignore[arg-type]
    side.close()
    with pytest.raises(UsageError, match="holds a ledger already"):
        moving.copy(in_file, older)

    def stop(_: int, name: str) -> None:
        if name == "copying units":
            with pytest.raises(LockHeld):
                moving.copy(in_file, str(tmp_path / "new.db"))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        moving.copy(in_file, str(tmp_path / "new.db"), moving.Steps(stop))
    with pytest.raises(UsageError, match="under way") as refused:
        moving.copy(in_file, str(tmp_path / "other.db"))
    assert f"`kfm store copy --to 'sqlite:{tmp_path / 'new.db'}' --abandon`" in refused.value.way_out
    assert isinstance(moving.copy(in_file, str(tmp_path / "new.db")).rows, int)


@pytest.mark.parametrize("password", ["sek#ret", "sek?ret", 'sek"ret', "sekret"])
def test_a_password_is_kept_nowhere(in_file: str, postgres_schema: Any, password: str) -> None:
    """Whatever characters it has that libpq takes: neither ledger tells it, the marks and the audit log
    included, nor does an error."""
    dsn, role = postgres_schema(), "kfm_with_password"
    rest = dsn.partition("://")[2]
    address = f"postgresql://{role}:{password}@{rest.rpartition('@')[2]}"
    with psycopg.connect(dsn, autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {role} LOGIN SUPERUSER PASSWORD '{password}'")
        try:
            report = moving.copy(in_file, address)
        finally:
            admin.execute(f"REASSIGN OWNED BY {role} TO CURRENT_USER")
            admin.execute(f"DROP ROLE {role}")
    with apsw.Connection(in_file) as connection:
        kept = [connection.execute(f"SELECT * FROM {name}").fetchall() for name in ("moves", "migrations")]
    told = f"{report} {kept} {moving.contents(in_file)['governance']} {moving.contents(dsn)['governance']}"
    assert password not in told
    assert report.target.startswith("postgresql://")
    assert "search_path" in report.target
    with pytest.raises(KfmError) as away:
        open_store(f"postgresql://kfm:{password}@127.0.0.1:1/kfm", "", SystemClock())
    assert "postgresql://127.0.0.1:1/kfm" in str(away.value)
    assert password not in str(away.value)


@pytest.mark.parametrize("password", ["sek ret", "sek%ret", "sek/ret", "1/sekret", "a@sekret"])
def test_an_address_that_cannot_be_read_is_not_quoted(password: str) -> None:
    """What libpq does not take as a password, or takes as a part of something else, is in no error."""
    with pytest.raises(KfmError) as refused:
        open_store(f"postgresql://kfm:{password}@127.0.0.1:1/kfm", "", SystemClock())
    for part in (password, password.replace("/", " ").replace("@", " ").split()[-1]):
        assert part not in f"{refused.value} {refused.value.__cause__}"


def test_the_order_of_rows_does_not_matter_to_a_digest() -> None:
    """A sum: the same rows have the same digest, whatever the database sorts first; another row another."""
    rows = [("b", 1, None), ("a", 2.5, "€"), ("c", 2**62, "")]
    total = sum(map(moves.row_digest, rows))
    assert total == sum(map(moves.row_digest, reversed(rows)))
    assert total != sum(map(moves.row_digest, [*rows[:2], ("c", 2**62, None)]))
