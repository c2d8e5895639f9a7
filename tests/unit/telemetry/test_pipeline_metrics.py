"""Every record of a node that is written is counted, also those of a pass that was killed."""

from __future__ import annotations

import pytest

from kfm.db.ledger_reader import LedgerReader
from kfm.model.run_state import PassFigures
from kfm.pipelines.declaration import Pipeline
from kfm.telemetry.aggregates import Aggregates, DatasetNames, TimeBounds, visit_passes
from kfm.telemetry.exposition import Tallies
from kfm.telemetry.ledger_metrics import PassFolding
from tests.workshop import Workshop


class Killed(BaseException):
    """As a SIGKILL: no code handles it."""


def three(deadly: str = "") -> Pipeline:
    pipeline = Pipeline("p")
    for name in ("a", "b", "c"):

        def node(me: str) -> str:
            if me == deadly:
                raise Killed
            return me

        pipeline.node(name, params={"me": name}, version="1")(node)
    return pipeline


def told(workshop: Workshop, folding: PassFolding, tallies: Tallies) -> dict[str, int]:
    folding.fold(
        LedgerReader(workshop.database), tallies, lambda row: row.pipeline_id, workshop.clock.now_ms()
    )
    return {key[1]: count for key, count in tallies.counters.get("kfm.pass.nodes_total", {}).items()}


def killed_then_resumed() -> Workshop:
    """One record, then a kill; then the two that were missing; then a pass that does nothing."""
    workshop = Workshop()
    kernel = workshop.kernel()
    with pytest.raises(Killed):
        workshop.run(three("b"), run_id="first", kernel=kernel)
    workshop.living.dead.add(kernel.worker_id)
    workshop.run(three(), run_id="first")
    workshop.run(three())
    return workshop


@pytest.mark.req("RS-11")
def test_each_write_counts_once() -> None:
    """Under the attempt that made it, whether that attempt ended by itself or not."""
    rows = [row for _, row in LedgerReader(killed_then_resumed().database).pass_attempts_since(0)]
    assert [(row.state, row.success, row.skipped) for row in rows] == [
        ("aborted", 1, 0),
        ("success", 2, 0),
        ("success", 0, 3),
    ]


@pytest.mark.req("RS-11")
def test_metrics_read_bit_by_bit_are_those_read_at_once() -> None:
    """An attempt that was open when it was read is counted when it has ended, and once."""
    workshop, often, tallies = Workshop(), PassFolding(), Tallies()
    kernel = workshop.kernel()
    with pytest.raises(Killed):
        workshop.run(three("b"), run_id="first", kernel=kernel)
    assert told(workshop, often, tallies) == {}
    workshop.living.dead.add(kernel.worker_id)
    workshop.run(three(), run_id="first")
    workshop.run(three())
    assert told(workshop, often, tallies) == {"success": 3, "failed": 0, "partial": 0, "skipped": 3}
    assert told(workshop, often, tallies) == told(workshop, PassFolding(), Tallies())
    often.levels(tallies)
    assert tallies.gauges["kfm.pass.skip_ratio"] == {("p",): 1.0}


@pytest.mark.req("RS-11", "RS-13")
def test_a_release_sums_up_and_masks() -> None:
    """The patterns document has the sums of each pipeline, under a name that may be told."""
    ledger = LedgerReader(killed_then_resumed().database)
    open_names = DatasetNames(hidden=lambda _: False, mask=lambda _: "masked-1")
    hidden = DatasetNames(
        hidden=lambda _: False, mask=lambda _: "masked-1", hidden_pipeline=lambda name: name == "p"
    )
    for names, name in ((open_names, "p"), (hidden, "masked-1")):
        counting = Aggregates("v1", "test", TimeBounds())
        visit_passes(ledger, TimeBounds(), names, counting)
        (pipeline,) = counting.patterns().pipelines
        assert pipeline.pipeline_id == name
        assert (pipeline.writes.success, pipeline.skipped, str(pipeline.skip_rate)) == (3, 3, "0.500000")
        assert pipeline.passes == {"aborted": 1, "success": 2}


@pytest.mark.req("RS-13")
def test_the_pipeline_of_a_hidden_run_is_hidden() -> None:
    """Whatever it is called: the dataset of its governed run decides."""
    names = DatasetNames(hidden=lambda dataset_id: dataset_id == "graves", mask=lambda _: "masked-1")
    row = PassFigures(
        run_id="r", attempt=1, pipeline_id="soil", branch="main", state="success", started_at_ms=1,
        dataset_id="graves",
    )  # fmt: skip
    assert names.of_pass(row).pipeline_id == "masked-1"
