"""The Delta table behind run-state: what others read of it, who may race, and what is tidied."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from kfm.branches_remote.delta import NAMES, DeltaRunState
from kfm.model.errors import BackendUnavailable, StoreBusy, StoreCorrupt
from kfm.system import SystemClock
from tests.conformance.db import ledgers
from tests.conformance.run_state.backends import Pipeline, Place
from tests.integration.branches_remote.delta.records import node, put

deltalake = pytest.importorskip("deltalake")
duckdb = pytest.importorskip("duckdb")


@pytest.fixture
def backend(tmp_path: Path) -> DeltaRunState:
    return DeltaRunState(str(tmp_path / "table"))


@pytest.mark.req("RS-5")
def test_other_tools_read_it(backend: DeltaRunState) -> None:
    """DuckDB and any reader of Delta see the columns by the record's names, times as times in UTC."""
    put(backend, node("tiles"), node("wind", outcome="failed", error_code="KFM700"))
    table = deltalake.DeltaTable(backend.uri)
    assert [field.name for field in table.schema().fields] == list(NAMES)
    files = table.file_uris()
    found = duckdb.sql(
        "SELECT dataset_id, outcome, epoch_ms(recorded_at), validation_summary->>'checks', error_code"
        f" FROM read_parquet({files}) ORDER BY dataset_id"
    ).fetchall()
    assert found == [
        ("tiles", "success", 1_767_225_600_123, "1", None),
        ("wind", "failed", 1_767_225_600_123, "1", "KFM700"),
    ]
    read = deltalake.QueryBuilder().register("t", table).execute("SELECT count(*) AS n FROM t").read_all()
    assert read["n"].to_pylist() == [2]


def test_a_conflict_is_met_by_reading_again(backend: DeltaRunState) -> None:
    """A writer whose view is old reloads and tries again: the other's change stays, and so does its own."""
    other = DeltaRunState(backend.uri)
    put(backend, node("a"), node("b"))
    put(other, node("a", attempt=2))
    stale = backend._fresh
    calls = iter(range(100))

    def late(**how: Any) -> Any:
        """Sees the table, then another process commits before it does."""
        table = stale(**how)
        if next(calls) == 0:
            put(other, node("b", attempt=7))
        return table

    backend._fresh = late  # type: ignore[method-assign]
    put(backend, node("a", attempt=3))

    found = {each.dataset_id: each.attempt for each in DeltaRunState(backend.uri).rows()}
    assert found == {"a": 3, "b": 7}
    assert next(calls) > 1, "it had to read again"


def test_a_race_that_never_ends_is_told(backend: DeltaRunState, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tries have an end."""
    put(backend, node("a"))

    def never(*_: Any) -> None:
        raise deltalake.exceptions.CommitFailedError("a concurrent transaction")

    monkeypatch.setattr(backend, "_upsert", never)
    with pytest.raises(StoreBusy, match="10 times"):
        put(backend, node("b"))


def test_two_processes_without_a_lock_lose_nothing(tmp_path: Path) -> None:
    """Even if the ledger's lock did not keep writers apart, rows would not be lost."""
    uri = str(tmp_path / "table")
    put(DeltaRunState(uri), node("first", "run-0"))
    failures: list[BaseException] = []

    def work(name: str) -> None:
        try:
            own = DeltaRunState(uri)
            for number in range(5):
                put(own, node(f"n{number}", f"run-{name}"))
            put(own, node("n0", f"run-{name}", attempt=2))
        except BaseException as error:
            failures.append(error)

    workers = [threading.Thread(target=work, args=(name,)) for name in "ab"]
    for each in workers:
        each.start()
    for each in workers:
        each.join(60)
    assert failures == []
    found = {(each.run_id, each.dataset_id): each.attempt for each in DeltaRunState(uri).rows()}
    assert len(found) == 11
    assert found["run-a", "n0"] == found["run-b", "n0"] == 2


@pytest.mark.req("RS-5")
def test_small_files_are_put_together(tmp_path: Path) -> None:
    """After so many commits the small files become one, and not a row changes."""
    backend = DeltaRunState(str(tmp_path / "table"), compact_every=10)
    for number in range(25):
        put(backend, node("tiles", f"run-{number:02}"))
    assert len(deltalake.DeltaTable(backend.uri).file_uris()) < 10
    assert len(list(backend.rows())) == 25
    put(backend, node("tiles", "run-03", attempt=2))
    found = backend.get([("run-03", "tiles"), ("run-04", "tiles")])
    assert [found["run-03", "tiles"].attempt, found["run-04", "tiles"].attempt] == [2, 1]
    assert len(list(DeltaRunState(backend.uri).rows())) == 25


def test_old_files_are_removed(backend: DeltaRunState) -> None:
    """What no version of the last week needs is removed with the next tidying, and nothing else."""
    for number in range(3):
        put(backend, node("tiles", f"run-{number}"))
    before = set(Path(backend.uri).glob("*.parquet"))
    backend.compact()
    assert before < set(Path(backend.uri).glob("*.parquet")), "a reader that began before may finish"

    impatient = DeltaRunState(backend.uri, retention_hours=0)
    put(impatient, node("tiles", "run-3"))
    impatient.compact()
    assert len(set(Path(backend.uri).glob("*.parquet"))) == 1
    assert len(list(DeltaRunState(backend.uri).rows())) == 4


def test_what_was_reverted_is_not_found(backend: DeltaRunState) -> None:
    """A reverted success is still on record, but satisfies no reader; recorded again, it does."""
    put(backend, node("tiles"), node("wind"))
    backend.revert("main", ["tiles"])
    assert backend.made("main", "tiles", node("x").inputs_hash, None) is None
    assert backend.made("main", "wind", node("x").inputs_hash, None) is not None
    assert len(backend.history("tiles", None, 5)) == 1
    put(backend, replace(node("tiles"), attempt=2))
    assert backend.made("main", "tiles", node("x").inputs_hash, None) is not None


def test_a_table_of_something_else_is_refused(tmp_path: Path) -> None:
    """A table without the columns of run-state is not changed."""
    from arro3.core import Array, DataType, Table

    uri = str(tmp_path / "table")
    deltalake.write_deltalake(uri, Table.from_pydict({"price": Array([1], DataType.int64())}))
    with pytest.raises(StoreCorrupt, match="dataset_id"):
        list(DeltaRunState(uri).rows())


def test_a_damaged_table_is_told(backend: DeltaRunState) -> None:
    """A file that is missing is an error with the table's name, not an empty answer."""
    put(backend, node("tiles"))
    for file in Path(backend.uri).glob("*.parquet"):
        file.unlink()
    with pytest.raises(BackendUnavailable, match="table"):
        list(DeltaRunState(backend.uri).rows())


@pytest.mark.req("RS-5")
def test_a_head_whose_record_is_gone_is_not_trusted(tmp_path: Path) -> None:
    """Should records have been lost with their table, nothing is skipped because of them."""
    store = ledgers.sqlite_store(str(tmp_path / "kfm.db"), SystemClock())
    place = Place("delta", tmp_path, lambda: store)
    soil = Pipeline(place.open())
    soil.pass_of("run-1", "tiles", "wind")
    deltalake.DeltaTable(str(tmp_path / "run-state")).delete("dataset_id = 'tiles'")
    assert list(place.open().known("main", "run-2", ["tiles", "wind"]).heads) == ["wind"]
    store.close()
