"""One store of run-state for an environment: chosen, kept to, and moved without losing a record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import kfm
from kfm.config.loader import load
from kfm.model.errors import Busy, ConfigError, StoreCorrupt, UsageError
from kfm.model.settings import RunStateSettings
from kfm.pipelines import run_state_store
from kfm.pipelines.options import PipelineReport
from kfm.pipelines.project import open_project, run_pipeline

STORES = ("relational", "delta", "branch")


def write(folder: Path, said: str = "") -> str:
    path = folder / "kfm.yml"
    path.write_text(f"version: 1\n{said}\n")
    return str(path)


def choose(folder: Path, store: str) -> str:
    return write(folder, f"run_state: {{store: {store}}}")


def pipeline(level: int = 1) -> kfm.Pipeline:
    soil = kfm.Pipeline("soil")

    @soil.node("samples", params={"level": level})
    def samples(level: int) -> dict[str, int]:
        return {"level": level}

    @soil.node("tiles")
    def tiles(samples: dict[str, int]) -> dict[str, int]:
        return {"tiles": samples["level"] * 10}

    @soil.node("still")
    def still() -> str:
        return "the same each time"

    return soil


def outcomes(report: PipelineReport) -> dict[str, str | None]:
    return {name: each.outcome for name, each in report.nodes.items()}


def run(config: str, run_id: str, level: int = 1, **how: Any) -> PipelineReport:
    return run_pipeline(pipeline(level), config=config, run_id=run_id, jobs=1, **how)


def move(config: str, store: str, path: str | None = None) -> run_state_store.MovedStore:
    with open_project(config=config, moving=True) as place:
        target = RunStateSettings(store=store, path=path)  # type: ignore[arg-type]
        return run_state_store.migrate(place, target, actor="ada", on_page=lambda _count: None)


def records(config: str) -> list[Any]:
    with open_project(config=config, read_only=True) as place:
        found = sorted(place.tables.rows(), key=lambda node: (node.run_id, node.dataset_id))
        whole = [node for each in {node.run_id for node in found} for node in place.tables.of_run(each)]
        return [found, sorted(whole, key=lambda node: (node.run_id, node.dataset_id))]


@pytest.mark.req("RS-5")
@pytest.mark.parametrize("store", STORES)
def test_a_pipeline_skips_and_resumes_in_every_store(tmp_path: Path, store: str) -> None:
    """Whatever the store, what has not changed is skipped, and exactly what has changed runs."""
    config = choose(tmp_path, store)
    assert set(outcomes(run(config, "run-1")).values()) == {"success"}
    assert set(outcomes(run(config, "run-2")).values()) == {"skipped"}
    assert outcomes(run(config, "run-3", level=2)) == {
        "samples": "success",
        "tiles": "success",
        "still": "skipped",
    }
    again = run(config, "run-3", level=2)
    assert not any(each.ran for each in again.nodes.values())
    assert again.attempt == 2
    back = run(config, "run-4", level=1)
    assert set(outcomes(back).values()) == {"skipped"}, "an earlier run made this"


@pytest.mark.req("RS-5")
def test_records_on_a_branch_are_committed_with_their_outputs(tmp_path: Path) -> None:
    """A record is an object beside what it describes, and a revert takes back both."""
    config = choose(tmp_path, "branch")
    run(config, "run-1")
    with open_project(config=config) as place:
        branches = place.store.branch_store()
        held = [path for path, _entry in branches.entries("main")]
        assert "_run_state/tiles/run-1.json" in held
        assert any(path.startswith("tiles/") for path in held)
        commits = branches.log("main")
        for commit in commits:
            there = [path for path, _ in branches.entries(commit.commit_id)]
            for node in ("samples", "tiles", "still"):
                recorded = f"_run_state/{node}/run-1.json" in there
                made = any(path.startswith(f"{node}/") for path in there)
                assert recorded == made, (commit.message, node)


@pytest.mark.req("RS-10")
def test_what_was_reverted_on_a_branch_runs_again(tmp_path: Path) -> None:
    """After a commit with a record and its outputs is reverted, that node and its readers run again."""
    config = choose(tmp_path, "branch")
    run(config, "run-1")
    with open_project(config=config) as place:
        branches = place.store.branch_store()
        brought = next(
            commit
            for commit in branches.log("main")
            if "_run_state/samples/run-1.json"
            in [change.path for change in branches.diff(f"{commit.commit_id}~1", commit.commit_id)]
        )
        done = branches.revert("main", brought.commit_id, message="back", author="ada")
        assert done.outcome == "merged"  # type: ignore[union-attr]
    after = run(config, "run-2")
    assert outcomes(after) == {"samples": "success", "tiles": "success", "still": "skipped"}


@pytest.mark.req("RS-5")
@pytest.mark.parametrize("before", STORES)
@pytest.mark.parametrize("after", STORES)
def test_moving_loses_no_record(tmp_path: Path, before: str, after: str) -> None:
    """From any store to any other: every record, field by field, and the next pass skips as it would have."""
    config = choose(tmp_path, before)
    run(config, "run-1")
    run(config, "run-2", level=2)
    run(config, "run-2b", level=2, branch="trial")
    run(config, "run-3", level=2)
    was = records(config)
    if before == after:
        with pytest.raises(UsageError, match="already"):
            move(config, after)
        return

    moved = move(config, after)

    assert moved.records == len(was[0]) == 12
    with pytest.raises(ConfigError, match="kept in"):
        run(config, "run-4", level=2)
    choose(tmp_path, after)
    assert records(config) == was
    assert set(outcomes(run(config, "run-4", level=2)).values()) == {"skipped"}
    assert set(outcomes(run(config, "run-5", level=1)).values()) == {"skipped"}
    with open_project(config=config) as place:
        entry = next(iter(place.store.governance(kind="run-state-migrate", limit=1)))
        assert entry.details["digest"] == moved.digest


@pytest.mark.req("RS-5")
def test_an_environment_keeps_to_its_store(tmp_path: Path) -> None:
    """An environment begun with one store refuses another, also to readers of run-state, with a way out."""
    config = choose(tmp_path, "relational")
    run(config, "run-1")
    for other in ("delta", "branch"):
        choose(tmp_path, other)
        with pytest.raises(ConfigError, match="kept in `relational`") as refused:
            run(config, "run-2")
        assert "kfm run-state migrate" in refused.value.way_out
        with open_project(config=config, read_only=True) as project, pytest.raises(ConfigError):
            project.tables.get("run-1")
    assert not (tmp_path / ".kfm" / "run-state").exists()
    choose(tmp_path, "relational")
    assert set(outcomes(run(config, "run-2")).values()) == {"skipped"}


@pytest.mark.req("RS-5")
def test_another_table_is_another_store(tmp_path: Path) -> None:
    """A Delta table elsewhere is not the one that the environment was begun with."""
    config = write(tmp_path, "run_state: {store: delta, path: tables/a}")
    run(config, "run-1")
    assert (tmp_path / "tables/a/_delta_log").is_dir()
    write(tmp_path, "run_state: {store: delta, path: tables/b}")
    with pytest.raises(ConfigError, match="tables/a"):
        run(config, "run-2")
    move(config, "delta", "tables/b")
    assert set(outcomes(run(config, "run-2")).values()) == {"skipped"}


@pytest.mark.req("RS-5")
@pytest.mark.parametrize(
    "said",
    [
        "run_state: {store: [relational, delta]}",
        "run_state: {store: branch, path: tables/a}",
        "run_state: {path: tables/a}",
        "run_state: {store: relational, options: {region: x}}",
        "run_state: {store: delta}\nrun_state: {store: branch}",
        "run_state: {store: paper}",
    ],
)
def test_a_configuration_that_names_two_stores_is_refused(tmp_path: Path, said: str) -> None:
    """One store, or none of it: the message names the line."""
    with pytest.raises(ConfigError, match=r"kfm\.yml:"):
        load(write(tmp_path, said), {})


def test_reading_begins_nothing(tmp_path: Path) -> None:
    """To look into an environment that has no run-state yet leaves no table and no mark."""
    config = choose(tmp_path, "delta")
    with open_project(config=config, read_only=True) as place:
        assert list(place.tables.rows()) == []
        assert place.tables.known("main", "run-1", ["tiles"]).heads == {}
    assert not (tmp_path / ".kfm").exists()
    choose(tmp_path, "branch")
    run(config, "run-1")


def test_an_interrupted_move_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until the last step the old store decides; called again, a move ends what it began."""
    config = choose(tmp_path, "relational")
    run(config, "run-1")
    run(config, "run-2", level=2)
    was = records(config)

    def cut(_count: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(run_state_store, "PAGE", 2)
    with open_project(config=config, moving=True) as place, pytest.raises(KeyboardInterrupt):
        run_state_store.migrate(place, RunStateSettings(store="delta"), actor="ada", on_page=cut)
    assert set(outcomes(run(config, "run-3", level=2)).values()) == {"skipped"}
    assert records(config)[0][: len(was[0])] == was[0]

    assert move(config, "delta").records == len(was[0]) + 3
    choose(tmp_path, "delta")
    assert set(outcomes(run(config, "run-4", level=2)).values()) == {"skipped"}


def test_a_store_with_rows_of_others_is_not_moved_into(tmp_path: Path) -> None:
    """What does not compare equal in the end is not switched to."""
    other = tmp_path / "other"
    other.mkdir()
    run(write(other, f"run_state: {{store: delta, path: {tmp_path}/shared}}"), "run-x")
    config = choose(tmp_path, "relational")
    run(config, "run-1")

    with pytest.raises(StoreCorrupt, match="3 records"):
        move(config, "delta", f"{tmp_path}/shared")

    assert set(outcomes(run(config, "run-2")).values()) == {"skipped"}


def test_nothing_is_moved_under_a_running_pass(tmp_path: Path) -> None:
    """While a pass is at work its records stay where they are."""
    config = choose(tmp_path, "relational")
    soil = kfm.Pipeline("soil")
    refused: list[str] = []

    @soil.node("busy")
    def busy() -> str:
        with pytest.raises(Busy) as busy:
            move(config, "delta")
        refused.append(busy.value.message)
        return "done"

    run_pipeline(soil, config=config, run_id="run-1", jobs=1)
    assert "run-1" in refused[0]


@pytest.mark.req("RS-5")
def test_a_mirror_can_be_rebuilt_and_decides_nothing(tmp_path: Path) -> None:
    """A Delta table made from the ledger's records holds all of them, as often as it is made; what happens
    to it changes no decision. It can't be the store itself."""
    duckdb = pytest.importorskip("duckdb")
    from deltalake import DeltaTable

    config = choose(tmp_path, "relational")
    run(config, "run-1")
    address = str(tmp_path / "mirror.delta")

    def rebuild() -> int:
        with open_project(config=config, read_only=True) as place:
            return run_state_store.mirror(place.store_parts(), place.tables, address)

    assert rebuild() == 3
    run(config, "run-2")
    assert rebuild() == 6
    files = DeltaTable(address).file_uris()
    said = duckdb.sql(
        f"SELECT outcome, count(*) FROM read_parquet({files}) GROUP BY ALL ORDER BY ALL"
    ).fetchall()
    assert said == [("skipped", 3), ("success", 3)]
    DeltaTable(address).delete()
    assert set(outcomes(run(config, "run-3")).values()) == {"skipped"}
    assert rebuild() == 9

    move(config, "delta", address)
    write(tmp_path, f"run_state: {{store: delta, path: {address}}}")
    with pytest.raises(UsageError, match="is the store"):
        rebuild()


@pytest.mark.req("RS-5", "RS-10")
@pytest.mark.parametrize("after", ["delta", "branch"])
def test_what_was_reverted_stays_reverted(tmp_path: Path, after: str) -> None:
    """A result that was reverted before a move satisfies no node after it, there and back again."""
    config = choose(tmp_path, "relational")
    run(config, "run-1")
    run(config, "run-2", level=2)
    with open_project(config=config) as place:
        branches = place.store.branch_store()
        branches.revert("main", "main", message="back", author="ada")
    run(config, "run-3", level=3)
    with open_project(config=config) as place:
        reverted = place.tables.reverted()
    assert ("run-2", "samples") in reverted

    for store in (after, "relational"):
        move(config, store)
        choose(tmp_path, store)
        with open_project(config=config) as place:
            assert place.tables.reverted() == reverted
            node = place.tables.one("run-2", "samples")
            assert node is not None
            assert place.tables.made("main", "samples", node.inputs_hash, node.code_sha) is None
    again = run(config, "run-4", level=2)
    assert outcomes(again)["samples"] == "success"
