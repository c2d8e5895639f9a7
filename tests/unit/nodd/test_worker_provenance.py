"""Which bytes an item was made of: known, or not, and whether that will do."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from kfm.model.settings import Ingest, IngestPolicy
from kfm.model.units import (
    ClaimRequest,
    Content,
    ExchangeReport,
    Lane,
    ResultBatch,
    ResultReport,
    UnitFailure,
    UnitSuccess,
)
from kfm.nodd.inspect.inspection import InspectionResult
from kfm.nodd.worker import Worker
from tests.unit.nodd.one_worker import claimed, kernel

STRICT = Ingest(policies=(IngestPolicy(datasets=("hrrr",), provenance="ok"),))
SILENT = replace(claimed("hrrr"), etag=None, version_id=None)  # as notifications of NEXRAD chunks are
NAMED = replace(SILENT, etag="0123456789abcdef0123456789abcdef")


class OneUnit:
    """A lane with one unit; keeps what becomes of it."""

    def __init__(self, unit: object) -> None:
        self._waiting = [unit]
        self.results: list[UnitSuccess | UnitFailure] = []

    def now_ms(self) -> int:
        return 1_000

    def lanes(self) -> list[Lane]:
        return [Lane(dataset="hrrr", provider="aws")]

    def exchange(
        self, finish: ResultBatch | None, claim: ClaimRequest | None, _arrivals: object = ()
    ) -> ExchangeReport:
        if finish is not None:
            self.results += [*finish.successes, *finish.failures]
        taken, self._waiting = (self._waiting, []) if claim is not None else ([], self._waiting)
        return ExchangeReport(ResultReport(), tuple(taken))  # type: ignore[arg-type]


def worked_on(unit: object, settings: Ingest, found: InspectionResult | None = None) -> object:
    wal = OneUnit(unit)
    inspect = (lambda *_: found) if found is not None else None
    worker = Worker(kernel(wal, settings, inspect=inspect))
    worker.step()
    worker.drain()
    (result,) = wal.results
    return result


@pytest.mark.req("WAL-9")
def test_an_announcement_that_names_its_bytes_is_provenance_enough() -> None:
    """With an ETag or a version it is on record of which bytes an item was made."""
    for settings in (Ingest(), STRICT):
        result = worked_on(NAMED, settings)
        assert isinstance(result, UnitSuccess)
        assert result.provenance_status == "ok"


@pytest.mark.req("WAL-9")
def test_a_silent_announcement_is_partial_where_the_policy_allows_it() -> None:
    """Without either the unit succeeds, and says that its provenance is partial."""
    result = worked_on(SILENT, Ingest())
    assert isinstance(result, UnitSuccess)
    assert result.provenance_status == "partial"


@pytest.mark.req("WAL-9", "RET-2")
def test_where_the_policy_asks_for_all_of_it_partial_is_quarantined() -> None:
    """A policy with `provenance: ok` takes nothing less: the unit is put by at once, with a code."""
    result = worked_on(SILENT, STRICT)
    assert isinstance(result, UnitFailure)
    assert (result.error_code, result.fate) == ("PROVENANCE_PARTIAL", "quarantine")


@pytest.mark.req("WAL-9")
def test_a_head_names_the_bytes_that_an_announcement_does_not() -> None:
    """Such a policy has the object looked at, and what upstream says of it is its provenance."""
    seen = InspectionResult(integrity_status="ok", metadata_status="ok", content=Content(etag="abc", size=1))
    result = worked_on(SILENT, STRICT, seen)
    assert isinstance(result, UnitSuccess)
    assert result.provenance_status == "ok"
    blind = InspectionResult(integrity_status="ok", metadata_status="ok", content=Content(size=1))
    assert isinstance(worked_on(SILENT, STRICT, blind), UnitFailure)


@pytest.mark.req("WAL-9")
def test_a_policy_that_asks_for_provenance_reads_buckets() -> None:
    """`doctor` and the worker see that objects are going to be looked at."""
    assert STRICT.reads_buckets
    assert not Ingest(policies=(IngestPolicy(datasets=("hrrr",)),)).reads_buckets
