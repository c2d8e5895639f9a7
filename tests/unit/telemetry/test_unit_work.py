"""A worker that is watched: its batches are spans, whatever becomes of the units."""

from __future__ import annotations

from typing import Any

import pytest

from kfm.core.records import GateResult
from kfm.core.settings import Ingest
from kfm.core.wal import Content, Intake, Taken
from kfm.engine.ingesting import Ingesting, Worker
from kfm.engine.unit_watching import UnitWatch
from kfm.ingest.reading import Arrival, parse_key
from kfm.ingest.registry import load_registry
from kfm.ingest.remembering import Memory
from kfm.ingest.units import pending
from kfm.telemetry.recording import Recording
from tests.stand_ins import FakeClock
from tests.unit.lineage.outbox import make_store

KEY = "CONUS/PrecipRate_00.00/20260101/MRMS_PrecipRate_00.00_20260101-000000.grib2.gz"


class Halfway:
    def unit(self) -> float:
        return 0.5


@pytest.mark.req("WAL-16")
@pytest.mark.parametrize("lineage", [True, False])
def test_a_worked_batch_is_told(lineage: bool) -> None:
    """A step leaves one span with its figures; where nobody takes events, no letter is posted either."""
    clock, telemetry, registry = FakeClock(), Recording(), load_registry()
    store = make_store(clock)
    arrival = parse_key("noaa-mrms-pds", KEY, registry, clock.now_ms())
    assert isinstance(arrival, Arrival)
    unit = pending(arrival, queue="nodd", now_ms=clock.now_ms())
    wal: Any = store.units()
    wal.take_in(Intake(taken=(Taken(unit=unit, content=Content(etag="e")),)))
    kernel = Ingesting(
        settings=Ingest(),
        wal=wal,
        registry=registry,
        clock=clock,
        rng=Halfway(),  # type: ignore[arg-type]
        worker_id="w1",
        ingest_run_id="w1",
        memory=Memory(registry),
        gate=lambda _dataset, _in_flight: GateResult(gate="switch", allowed=True, reason="Free."),
        policy_epoch=store.policy_epoch,
        lineage=lineage,
        watch=UnitWatch(telemetry, "w1", {"nodd": "aws_sqs"}),
    )
    assert Worker(kernel).step().succeeded == 1
    (span,) = telemetry.spans
    assert (span.name, span.attributes["succeeded"], span.ended) == ("kfm.units", 1, True)
    assert span.attributes["messaging_system"] == "aws_sqs"
    assert store.backlog("unit-lineage").waiting == int(lineage)
