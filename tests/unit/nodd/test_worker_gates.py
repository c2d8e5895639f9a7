"""A worker asks the gates again wherever a switch may have been set meanwhile."""

from __future__ import annotations

import pytest

from kfm.model.records import GateResult
from kfm.model.settings import Ingest
from kfm.model.units import ClaimRequest, ExchangeReport, Lane, ResultBatch, ResultReport
from kfm.nodd.worker import Worker
from tests.unit.nodd.one_worker import NOW_MS, claimed, kernel


class ScriptedWal:
    """Two lanes with one unit each; a switch is set while the first is under way."""

    def __init__(self) -> None:
        self.epoch = 1
        self.claims: list[str] = []

    def now_ms(self) -> int:
        return NOW_MS

    def lanes(self) -> list[Lane]:
        return [Lane(dataset="hrrr", provider="aws"), Lane(dataset="nexrad-l2", provider="aws")]

    def exchange(
        self, finish: ResultBatch | None, claim: ClaimRequest | None, _arrivals: object = ()
    ) -> ExchangeReport:
        for asked in (finish, claim):
            if asked is not None and asked.policy_epoch != self.epoch:
                return ExchangeReport(ResultReport(epoch_moved=True))
        ended = tuple(one.claimed.wal_id for one in (*finish.successes, *finish.failures)) if finish else ()
        results = ResultReport(succeeded=ended)
        if claim is None:
            return ExchangeReport(results)
        self.claims.append(claim.lane.dataset)
        return ExchangeReport(results, (claimed(claim.lane.dataset),), waited=1)


@pytest.mark.req("WAL-11")
def test_lanes_that_were_let_through_before_a_switch_are_asked_again() -> None:
    """A worker that drained while a switch was set claims nothing by outdated answers of the gates."""
    wal = ScriptedWal()
    stopped: set[str] = set()

    def gate(dataset: str, in_flight: bool) -> GateResult:
        return GateResult(gate="switch", allowed=in_flight or dataset not in stopped, reason="a switch")

    worker = Worker(kernel(wal, Ingest(batch=1), gate=gate, policy_epoch=lambda: wal.epoch))
    worker.step()  # ends one unit and holds the next
    assert wal.claims == ["hrrr", "nexrad-l2"]
    wal.epoch, stopped_now = 2, {"hrrr", "nexrad-l2"}
    stopped |= stopped_now
    worker.drain()
    worker.step()
    assert wal.claims == ["hrrr", "nexrad-l2"]
    assert set(worker.blocked) == stopped_now
