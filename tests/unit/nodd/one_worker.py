"""What a worker needs to work on a ledger that a test has written: time stands still, nothing is read."""

from __future__ import annotations

from typing import Any

from kfm.model.records import GateResult
from kfm.model.settings import Ingest
from kfm.model.units import ClaimedUnit
from kfm.nodd.dataset_registry import load_registry
from kfm.nodd.intake import KeyCache
from kfm.nodd.worker import IngestContext

REGISTRY = load_registry()
NOW_MS = 1_000
OBJECT = "s3://noaa-hrrr-bdp-pds/hrrr.20260314/conus/hrrr.t12z.wrfsfcf03.grib2"


class StillClock:
    def now_ms(self) -> int:
        return NOW_MS

    monotonic_ms = now_ms

    def sleep_ms(self, delay_ms: int) -> None: ...


class NoDice:
    def unit(self) -> float:
        return 0.5


def claimed(dataset: str) -> ClaimedUnit:
    """Its first attempt, under our lease."""
    values: dict[str, Any] = dict.fromkeys(ClaimedUnit.__struct_fields__, 0)
    texts = {"wal_id": dataset, "dataset": dataset, "provider": "aws", "queue": "q", "extra": "{}"}
    return ClaimedUnit(**values | texts | {"object_uri": OBJECT, "etag": None, "version": 2})


def kernel(wal: Any, settings: Ingest, **more: Any) -> IngestContext:
    """Every gate is open unless `more` has another."""
    chosen: dict[str, Any] = {
        "gate": lambda _dataset, _in_flight: GateResult(gate="switch", allowed=True, reason=""),
        "policy_epoch": lambda: 1,
        **more,
    }
    return IngestContext(
        settings=settings,
        wal=wal,
        registry=REGISTRY,
        clock=StillClock(),
        rng=NoDice(),
        worker_id="w",
        ingest_run_id="r",
        keys=KeyCache(REGISTRY),
        **chosen,
    )
