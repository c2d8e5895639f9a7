"""A worker asks the gates again wherever a switch may have been set meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

from kfm.core.records import GateResult
from kfm.core.settings import Ingest
from kfm.core.wal import Claim, Claimed, Finish, Finished, Lane
from kfm.engine.ingesting import Ingesting, Worker
from kfm.ingest.registry import load_registry
from kfm.ingest.remembering import Memory

REGISTRY = load_registry()
NAMES = {"hrrr": "s3://noaa-hrrr-bdp-pds/hrrr.20260314/conus/hrrr.t12z.wrfsfcf03.grib2"}


class StillClock:
    def now_ms(self) -> int:
        return 1_000

    monotonic_ms = now_ms

    def sleep_ms(self, delay_ms: int) -> None: ...


class NoDice:
    def unit(self) -> float:
        return 0.5


class ScriptedWal:
    """Two lanes with one unit each; a switch is set while the first is under way."""

    def __init__(self) -> None:
        self.epoch = 1
        self.claims: list[str] = []

    def lanes(self) -> list[Lane]:
        return [Lane(dataset="hrrr", provider="aws"), Lane(dataset="nexrad-l2", provider="aws")]

    def turn(self, finish: Finish | None, claim: Claim | None) -> tuple[Finished, list[Claimed]]:
        for asked in (finish, claim):
            if asked is not None and asked.policy_epoch != self.epoch:
                return Finished(epoch_moved=True), []
        ended = tuple(one.claimed.wal_id for one in (*finish.done, *finish.undone)) if finish else ()
        if claim is None:
            return Finished(succeeded=ended), []
        self.claims.append(claim.lane.dataset)
        return Finished(succeeded=ended), [unit(claim.lane.dataset)]


def unit(dataset: str) -> Claimed:
    values: dict[str, Any] = dict.fromkeys(Claimed.__struct_fields__, 0)
    texts = {"wal_id": dataset, "dataset": dataset, "provider": "aws", "queue": "q", "extra": "{}"}
    return Claimed(**values | texts | {"object_uri": NAMES["hrrr"], "etag": None, "version": 2})


@pytest.mark.req("WAL-11")
def test_lanes_that_were_let_through_before_a_switch_are_asked_again() -> None:
    """Whoever drained while a switch was set claims nothing by what the gates had said before."""
    wal = ScriptedWal()
    stopped: set[str] = set()

    def gate(dataset: str, in_flight: bool) -> GateResult:
        return GateResult(gate="switch", allowed=in_flight or dataset not in stopped, reason="a switch")

    worker = Worker(
        Ingesting(
            settings=Ingest(batch=1),
            wal=wal,  # type: ignore[arg-type]
            registry=REGISTRY,
            clock=StillClock(),
            rng=NoDice(),
            worker_id="w",
            ingest_run_id="r",
            memory=Memory(REGISTRY),
            gate=gate,
            policy_epoch=lambda: wal.epoch,
        )
    )
    worker.step()  # ends one unit and holds the next
    assert wal.claims == ["hrrr", "nexrad-l2"]
    wal.epoch, stopped_now = 2, {"hrrr", "nexrad-l2"}
    stopped |= stopped_now
    worker.drain()
    worker.step()
    assert wal.claims == ["hrrr", "nexrad-l2"]
    assert set(worker.blocked) == stopped_now
