"""A worker that is watched: its batches are spans, whatever becomes of the units."""

from __future__ import annotations

from typing import Any

import pytest

from kfm.model.records import GateResult
from kfm.model.settings import Ingest
from kfm.model.units import Content, IntakeBatch, IntakeUnit
from kfm.nodd.dataset_registry import load_registry
from kfm.nodd.intake import KeyCache, pending
from kfm.nodd.messages.record_outcomes import Arrival, parse_key
from kfm.nodd.unit_observer import UnitObserver
from kfm.nodd.worker import IngestContext, Worker
from tests.recording import Recording
from tests.stand_ins import FakeClock
from tests.unit.lineage.outbox import make_store

KEY = "CONUS/PrecipRate_00.00/20260101/MRMS_PrecipRate_00.00_20260101-000000.grib2.gz"


class Halfway:
    def unit(self) -> float:
        return 0.5


@pytest.mark.req("WAL-16")
@pytest.mark.parametrize("lineage", [True, False])
def test_a_worked_batch_is_told(lineage: bool) -> None:
    """A step leaves one span with its figures; without lineage, no message is posted."""
    clock, telemetry, registry = FakeClock(), Recording(), load_registry()
    store = make_store(clock)
    arrival = parse_key("noaa-mrms-pds", KEY, registry, clock.now_ms())
    assert isinstance(arrival, Arrival)
    unit = pending(arrival, queue="nodd", now_ms=clock.now_ms())
    wal: Any = store.units()
    wal.take_in(IntakeBatch(arrivals=(IntakeUnit(unit=unit, content=Content(etag="e")),)))
    kernel = IngestContext(
        settings=Ingest(),
        wal=wal,
        registry=registry,
        clock=clock,
        rng=Halfway(),  # type: ignore[arg-type]
        worker_id="w1",
        ingest_run_id="w1",
        keys=KeyCache(registry),
        gate=lambda _dataset, _in_flight: GateResult(gate="switch", allowed=True, reason="Free."),
        policy_epoch=store.policy_epoch,
        lineage=lineage,
        observer=UnitObserver(telemetry, "w1", {"nodd": "aws_sqs"}),
    )
    assert Worker(kernel).step().succeeded == 1
    (span,) = telemetry.spans
    assert (span.name, span.attributes["succeeded"], span.ended) == ("kfm.units", 1, True)
    assert span.attributes["messaging_system"] == "aws_sqs"
    assert store.backlog("unit-lineage").waiting == int(lineage)
