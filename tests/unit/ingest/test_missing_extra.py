"""What a worker lacks, or was told wrongly, is no reason to give up units."""

from __future__ import annotations

from typing import Any

import pytest

from kfm.core.errors import ConfigError, ExtraMissing, KfmError
from kfm.core.records import GateResult
from kfm.core.settings import Ingest, IngestPolicy
from kfm.core.wal import Claim, Claimed, Finish, Finished, Lane
from kfm.engine.ingesting import UNABLE_MS, Ingesting, Worker
from kfm.ingest.registry import load_registry
from kfm.ingest.remembering import Memory

REGISTRY = load_registry()
NOW_MS = 1_000


class StillClock:
    def now_ms(self) -> int:
        return NOW_MS

    monotonic_ms = now_ms

    def sleep_ms(self, delay_ms: int) -> None: ...


class NoDice:
    def unit(self) -> float:
        return 0.5


class OneUnit:
    """A ledger with one unit; keeps what a worker says of it."""

    def __init__(self) -> None:
        self.said: list[Finish] = []

    def lanes(self) -> list[Lane]:
        return [Lane(dataset="hrrr", provider="aws")]

    def turn(self, finish: Finish | None, _claim: Claim | None) -> tuple[Finished, list[Claimed]]:
        if finish is not None:
            self.said.append(finish)
            return Finished(), []
        values: dict[str, Any] = dict.fromkeys(Claimed.__struct_fields__, 0)
        texts = {"wal_id": "w", "dataset": "hrrr", "provider": "aws", "queue": "q", "extra": "{}"}
        uri = "s3://noaa-hrrr-bdp-pds/hrrr.20260314/conus/hrrr.t12z.wrfsfcf03.grib2"
        return Finished(), [Claimed(**values | texts | {"object_uri": uri, "etag": None, "version": 2})]


@pytest.mark.parametrize("trouble", [ExtraMissing("Not installed."), ConfigError("An option is wrong.")])
def test_units_wait_for_a_worker_that_can_read_them(trouble: KfmError) -> None:
    """Where no client can be made, nothing is charged and nothing is quarantined: the unit waits."""

    def look(*_given: object) -> Any:
        raise trouble

    wal = OneUnit()
    kernel = Ingesting(
        settings=Ingest(policies=(IngestPolicy(integrity="head"),)),
        wal=wal,  # type: ignore[arg-type]
        registry=REGISTRY,
        clock=StillClock(),
        rng=NoDice(),
        worker_id="w",
        ingest_run_id="r",
        memory=Memory(REGISTRY),
        gate=lambda _dataset, _in_flight: GateResult(gate="switch", allowed=True, reason=""),
        policy_epoch=lambda: 1,
        look=look,
    )
    Worker(kernel).step(ahead=False)
    ((one,),) = (finish.undone for finish in wal.said)
    assert (one.fate, one.charged, one.error_code) == ("retry", False, trouble.code)
    assert one.not_before_ms == NOW_MS + UNABLE_MS
