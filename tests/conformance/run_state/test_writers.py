"""Who may write, and what happens when two want to."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from kfm.model import runs
from kfm.model.run_state import Fence
from tests.conformance.run_state.backends import Pipeline, Place, digest


def gone(_worker: str) -> bool:
    return True


@pytest.mark.req("RS-5")
def test_a_writer_that_lost_the_lock_writes_nothing(place: Place) -> None:
    """After the lock has passed to another, a record of the first holder changes nothing at all."""
    first, second = Pipeline(place.open()), Pipeline(place.open())
    assert first.begin("run-1")
    assert first.record(first.node("kept"))
    assert second.begin("run-2", dead=gone)

    event = runs.LineageEvent(event_id="e", topic="openlineage", subject="run-1", body="{}")
    late = first.record(
        first.node("late"),
        skips=first.skips(("late.too", "1", "run-0")),
        documents=[("d", "{}")],
        events=[event],
    )

    assert late is False
    assert [node.dataset_id for node in second.states.of_run("run-1")] == ["kept"]
    assert second.states.document("d") is None
    assert "late" not in second.states.known("main", "run-3", ["late", "late.too"]).heads
    assert first.end(skips=first.skips(("late.too", "1", "run-0"))).landed is False
    assert [node.dataset_id for node in second.states.of_run("run-1")] == ["kept"]
    assert second.record(second.node("mine"))


def test_a_lock_that_was_let_go_is_nobodys(soil: Pipeline) -> None:
    """After its end a pass writes nothing more."""
    soil.pass_of("run-1", "tiles")
    assert soil.record(soil.node("late")) is False
    assert soil.states.record(Fence("pipeline:never@main", 1), [soil.node("late")]) is False
    assert soil.states.one("run-1", "late") is None


def test_two_pipelines_write_at_once(place: Place) -> None:
    """Two processes with locks of their own write side by side, and not a row of either is lost."""
    failures: list[BaseException] = []
    rounds = 6

    def work(name: str) -> None:
        try:
            pipeline = Pipeline(place.open(), name)
            assert pipeline.begin(f"run-{name}")
            for number in range(rounds):
                assert pipeline.record(pipeline.node(f"{name}.n{number}", f"{name}{number}"))
            assert pipeline.record(pipeline.node(f"{name}.n0", "again", attempt=2))
            assert pipeline.end().landed
        except BaseException as error:
            failures.append(error)

    place.open()  # made once, as every environment is
    workers = [threading.Thread(target=work, args=(name,)) for name in ("soil", "wind")]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)

    assert failures == []
    states = place.open()
    for name in ("soil", "wind"):
        found = list(states.of_run(f"run-{name}"))
        assert [node.dataset_id for node in found] == [f"{name}.n{number}" for number in range(rounds)]
        assert found[0].attempt == 2
        assert states.known("main", "run-x", [f"{name}.n0"]).heads[f"{name}.n0"].outputs_hash == digest(
            "again"
        )


def test_a_commit_of_the_ledger_that_fails_leaves_nothing_torn(place: Place) -> None:
    """If the ledger fails after the record was put elsewhere, putting it again ends well."""
    soil = Pipeline(place.open())
    soil.begin("run-1")
    database = soil.states._database
    whole = database.write

    def fails(change: Any) -> Any:
        def and_then(session: Any) -> Any:
            change(session)
            raise ConnectionError("the power went")

        return whole(and_then)

    node = soil.node("tiles")
    database.write = fails  # type: ignore[method-assign]
    with pytest.raises(ConnectionError):
        soil.record(node)
    database.write = whole  # type: ignore[method-assign]

    known = soil.states.known("main", "run-2", ["tiles"]).heads
    assert list(known) == (["tiles"] if place.kind == "lakefs" else [])  # it stands there, outputs and all
    assert soil.record(node)
    assert list(soil.states.of_run("run-1")) == [node]
    assert soil.states.known("main", "run-2", ["tiles"]).heads["tiles"].run_id == "run-1"
