"""What a worker lacks, or was told wrongly, is no reason to give up units."""

from __future__ import annotations

from typing import Any

import pytest

from kfm.model.errors import ConfigError, ExtraMissing, KfmError
from kfm.model.settings import Ingest, IngestPolicy
from kfm.model.units import ExchangeReport, Lane, ResultBatch
from kfm.nodd.worker import UNABLE_MS, Worker
from tests.unit.nodd.one_worker import NOW_MS, claimed, kernel


class OneUnit:
    """A ledger with one unit; keeps what a worker says of it."""

    def __init__(self) -> None:
        self.said: list[ResultBatch] = []

    def now_ms(self) -> int:
        return NOW_MS

    def lanes(self) -> list[Lane]:
        return [Lane(dataset="hrrr", provider="aws")]

    def exchange(self, finish: ResultBatch | None, _claim: object, _arrivals: object = ()) -> ExchangeReport:
        if finish is not None:
            self.said.append(finish)
            return ExchangeReport()
        return ExchangeReport(claimed=(claimed("hrrr"),))


@pytest.mark.parametrize("trouble", [ExtraMissing("Not installed."), ConfigError("An option is wrong.")])
def test_units_wait_for_a_worker_that_can_read_them(trouble: KfmError) -> None:
    """Where no client can be made, nothing is charged and nothing is quarantined: the unit waits."""

    def inspect(*_given: object) -> Any:
        raise trouble

    wal = OneUnit()
    asked = Ingest(policies=(IngestPolicy(integrity="head"),))
    Worker(kernel(wal, asked, inspect=inspect)).step(ahead=False)
    ((one,),) = (finish.failures for finish in wal.said)
    assert (one.fate, one.charged, one.error_code) == ("retry", False, trouble.code)
    assert one.not_before_ms == NOW_MS + UNABLE_MS
