"""The named statements: complete, portable, and in step with the records."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

import kfm
from kfm.db import queries
from kfm.db.ledger import Ledger
from kfm.db.ledger_reader import LedgerReader
from kfm.db.postgres import PostgresDatabase
from kfm.db.sqlite import _NEWEST
from kfm.model.records import GovernanceEntry, Invocation, Promotion, Run, Switch
from kfm.system import SystemClock
from tests.conformance.db import ledgers

# What a column is called where the field's name is a word of SQL.
RENAMED = {"partition": "partition_key"}
# What only many writers at once need: where each begins in the lane.
ONE_WRITER_NEEDS_NO = {"units.claim": {"first_part"}}


def _columns(table: str) -> list[str]:
    connection = apsw.Connection(":memory:")
    for _, _, text in queries.migration_files():
        connection.execute(queries.in_dialect(text, "sqlite"))
    return [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]


def _selected(name: str) -> list[str]:
    found = re.search(r"^SELECT\s+(.*?)\s+FROM", queries.portable()[name], re.DOTALL | re.MULTILINE)
    assert found is not None
    return [column.strip().split(".")[-1] for column in found[1].split(",")]


@pytest.mark.req("UPD-4")
@pytest.mark.parametrize(
    ("record", "table", "statements"),
    [
        (
            Run,
            "runs",
            ["runs.by_key", "runs.by_id", "runs.latest_of_work", "runs.of_correction", "runs.list"],
        ),
        (
            Promotion,
            "promotions",
            ["promotions.head", "promotions.heads", "promotions.at", "promotions.list"],
        ),
        (Switch, "switches", ["switches.list"]),
    ],
)
def test_columns_are_the_record(record: type, table: str, statements: list[str]) -> None:
    """Every field is a column, every column a field, and every reading names them in the record's order."""
    fields = [RENAMED.get(field, field) for field in record.__struct_fields__]  # type: ignore[attr-defined]
    assert _columns(table) == fields
    for name in statements:
        assert _selected(name) == fields, name


@pytest.mark.parametrize(
    ("record", "table", "more"), [(GovernanceEntry, "governance", ["hash"]), (Invocation, "invocations", [])]
)
def test_what_is_appended_has_its_record_and_a_number(record: type, table: str, more: list[str]) -> None:
    """Calls and decisions have a place in the order beside their own fields; decisions are chained."""
    fields = list(record.__struct_fields__)  # type: ignore[attr-defined]
    assert _columns(table) == ["number", *fields, *more]
    assert _selected(f"{table}.list") == fields


@pytest.mark.req("UPD-4")
def test_the_documented_fields_are_stored() -> None:
    """The ledger's record has what its documentation promises."""
    documented = {
        "run_id", "dataset_id", "pipeline_id", "idempotency_key", "trigger_type", "window_spec",
        "pipeline_version", "start_time_ms", "end_time_ms", "status",
    }  # fmt: skip
    assert documented <= set(_columns("runs"))


@pytest.mark.req("TRG-2")
def test_both_keys_are_unique_by_constraint() -> None:
    """The database itself refuses a second row of one trigger key, one work key, one revision of a work."""
    connection = apsw.Connection(":memory:")
    for _, _, text in queries.migration_files():
        connection.execute(queries.in_dialect(text, "sqlite"))
    unique = {
        tuple(row[2] for row in connection.execute(f"PRAGMA index_info({index[1]})"))
        for index in connection.execute("PRAGMA index_list(runs)").fetchall()
        if index[2]
    }
    assert {("idempotency_key",), ("work_key",), ("work_base", "revision"), ("run_id",)} <= unique


def test_every_statement_is_understood_by_sqlite() -> None:
    """Each compiles against the schema."""
    store = ledgers.memory_store(SystemClock())
    connection = store._database._connection  # type: ignore[attr-defined]
    for sql in queries.queries("sqlite").values():
        parameters = dict.fromkeys(re.findall(r":([a-z_]+)", sql))
        connection.execute("EXPLAIN " + sql, parameters).fetchall()


def test_every_statement_is_understood_by_postgresql(postgres_schema: Callable[[], str]) -> None:
    """Each can be prepared against the schema."""
    dsn = postgres_schema()
    ledgers.postgres_store(dsn).close()
    database = PostgresDatabase(dsn)
    for number, (name, sql) in enumerate(queries.queries("postgresql").items()):
        names = dict.fromkeys(re.findall(r"%\(([a-z_]+)\)s", sql))
        if not sql.startswith(("SELECT", "INSERT", "UPDATE", "DELETE")):
            continue  # a CREATE can't be prepared; the migration has just run it
        for index, parameter in enumerate(names, 1):
            sql = sql.replace(f"%({parameter})s", f"${index}")
        assert "%" not in sql, name
        database.execute(f"PREPARE statement_{number} AS {sql}")
    database.close()


def test_overrides_stay_few() -> None:
    """Less than a quarter of the statements are written twice, and each names one that the other has, but for
    what SQLite asks after rows that it makes many at once."""
    portable = queries.portable()
    sqlite, postgresql = queries.overrides("sqlite"), queries.overrides("postgresql")
    for own, other in ((sqlite, postgresql), (postgresql, sqlite)):
        assert own.keys() - set(_NEWEST.values()) <= portable.keys() | other.keys()
        assert len(own) < len(portable) / 4


def test_no_portable_statement_is_dead() -> None:
    """A statement that each database has in words of its own has no third text that nothing runs."""
    both = queries.overrides("sqlite").keys() & queries.overrides("postgresql").keys()
    assert not both & queries.portable().keys()


def test_a_statement_asks_for_the_same_in_each_database() -> None:
    """Where both databases have a text of their own, both take the same parameters."""
    for name in queries.overrides("sqlite").keys() & queries.overrides("postgresql").keys():
        texts = (queries.overrides("sqlite")[name], queries.overrides("postgresql")[name])
        first, second = (set(queries._PARAMETER.findall(text)) for text in texts)
        assert first | ONE_WRITER_NEEDS_NO.get(name, set()) == second, name


def test_no_name_is_given_twice() -> None:
    """Two statements of one name would hide each other."""
    names: list[str] = []
    for file in queries._sql_files():
        names += re.findall(r"^-- name: (\S+)", queries._read(file), re.MULTILINE)
    assert len(names) == len(set(names))


def test_every_statement_is_used() -> None:
    """No statement stays behind when its last caller goes."""
    import pathlib

    folder = pathlib.Path(queries.__file__).parent
    code = "\n".join(path.read_text("utf-8") for path in folder.glob("*.py"))
    made = [f"seals.late_{stream}" for stream in ("units", "outbox")]  # named while it runs
    unused = [name for name in queries.queries("sqlite") if f'"{name}"' not in code and name not in made]
    assert unused == []


def test_a_reader_can_only_read() -> None:
    """What a dry run is given has no operation that changes anything, and opens no write transaction."""
    operations = {name for name in vars(Ledger) if not name.startswith("_")}
    assert operations
    assert not operations & set(dir(LedgerReader))
    assert ".write(" in inspect.getsource(Ledger)
    assert ".write(" not in inspect.getsource(LedgerReader)


@pytest.mark.req("GRO-4")
def test_no_two_locks_have_one_number() -> None:
    """Advisory locks of PostgreSQL are known by numbers alone: two of the same would wait for each other."""
    numbers = []
    for path in Path(kfm.__file__).parent.rglob("*"):
        if path.suffix == ".py":
            numbers += re.findall(r"^[A-Z_]*LOCK = ([0-9_]+)", path.read_text(), re.MULTILINE)
        if path.suffix == ".sql":  # one lock may be shared by some and held alone by others
            numbers += set(re.findall(r"advisory[a-z_]*lock[a-z_]*\(([0-9_]+)", path.read_text()))
    found = [int(number) for number in numbers]
    assert len(found) >= 6
    assert len(found) == len(set(found)), sorted(found)
