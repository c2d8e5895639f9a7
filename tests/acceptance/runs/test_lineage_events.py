"""What a stranger reads about retries: the documents of a release and of an audit, and `kfm compliance`."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from kfm.db.ledger import Ledger
from kfm.system import SystemClock
from kfm.telemetry.compliance import check
from tests.acceptance.runs.conftest import Inside
from tests.acceptance.runs.test_breakers import Provider, down, provider  # noqa: F401 - fixtures
from tests.acceptance.runs.test_retries import change
from tests.conformance.db.ledgers import sqlite_store

TRY = {
    "pipeline_id", "stage_name", "attempt", "delay_ms", "error_class", "retryable", "outcome",
    "circuit_open", "energy_wh", "co2_g",
}  # fmt: skip
COMPLIANCE = {
    "pipeline_id", "stage", "attempts", "retry_policy", "errors", "final_status", "circuit_open",
    "energy_wh", "co2_g", "telemetry_ref",
}  # fmt: skip


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every wait is over at once."""
    monkeypatch.setattr(SystemClock, "sleep_ms", lambda _self, _delay_ms: None)


def read(folder: Path, name: str) -> Any:
    return json.loads((folder / name).read_bytes())


@pytest.mark.req("RET-8", "RET-9")
@pytest.mark.parametrize("place", ["discovery", "fetch"])
def test_an_outage_is_told_the_same_everywhere(
    down: Inside,  # noqa: F811
    provider: Provider,  # noqa: F811
    valid: Callable[[str, Any], None],
    place: str,
) -> None:
    """A circuit that opened is on record for the call and the attempt; so are costs and classes."""
    provider.head_status = 200 if place == "fetch" else None
    assert down.run().code == 4
    provider.status = 200
    change(down, "UPDATE breakers SET opened_at_ms = opened_at_ms - 300000")
    assert down.run().result["word"] == "published"

    assert down.kfm("release", "v1").code == 0
    focus = read(next(down.folder.rglob("focus-telemetry.json")).parent, "focus-telemetry.json")
    valid("telemetry-focus", focus)
    by_tier = {each["tier"]: each for each in focus["sequences"]}
    assert set(by_tier) == {"run", "call"}
    for sequence in focus["sequences"]:
        assert sequence["compliance"].keys() >= COMPLIANCE
        assert all(each.keys() >= TRY for each in sequence["tries"])
        assert sequence["compliance"]["circuit_open"] is True
    call, run = by_tier["call"], by_tier["run"]
    assert [each["circuit_open"] for each in call["tries"]] == [False, False, True]
    assert [each["circuit_open"] for each in run["tries"]] == [True, False]
    assert call["compliance"]["errors"] == ["HTTP_503"] * 3
    assert (call["compliance"]["attempts"], call["compliance"]["final_status"]) == (3, "failure")
    assert (run["compliance"]["attempts"], run["compliance"]["final_status"]) == (2, "success")
    assert isinstance(run["compliance"]["energy_wh"], float | int)
    if place == "fetch":
        assert all(isinstance(each["energy_wh"], float | int) for each in call["tries"])
        assert isinstance(call["compliance"]["co2_g"], float | int)

    assert down.kfm("audit", "export", "audit").code == 0
    log = read(down.folder / "audit", "pipeline_retry_log.json")
    valid("pipeline-retry-log", log)
    (troubled,) = log["runs"]
    assert (troubled["dataset_id"], troubled["care"]["label"]) == ("levels", "Public")
    assert troubled["error_classes"] == ["HTTP_503"]
    assert [each["circuit_open"] for each in troubled["attempts"]] == [True, False]
    versions = read(down.folder / "audit", "versioning_ledger.json")
    valid("versioning-ledger", versions)
    (version,) = versions["datasets"][0]["versions"]
    assert (version["attempts"], version["error_classes"]) == (2, ["HTTP_503"])

    checked = down.kfm("compliance", "--json")
    valid("cli-compliance", checked.document)
    assert (checked.code, checked.document["findings"]) == (0, [])
    assert all(record.keys() >= COMPLIANCE for record in checked.document["sequences"])


RUNS, TROUBLED = 20_000, 2_000


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Ledger:
    """A ledger of many runs; each tenth was tried twice, and one of them more often than it may be."""
    path = str(tmp_path_factory.mktemp("crowd") / "kfm.db")
    store = sqlite_store(path, SystemClock())
    connection = apsw.Connection(path)
    connection.execute("PRAGMA synchronous = OFF")
    with connection:
        connection.executemany(
            "INSERT INTO runs (run_id, source_id, dataset_id, pipeline_id, idempotency_key, work_key, "
            "work_base, revision, trigger_type, window_spec, window_start_ms, window_end_ms, "
            "pipeline_version, status, attempts, fence, start_time_ms, force) "
            "VALUES (?1, 's', 'd', 'p', ?1, ?1, ?1, 0, 'manual', 'P1D', 0, 1, 'v', 'failed', ?2, 1, ?3, 0)",
            # Many begin in the same millisecond: a page may end among them.
            ((f"{n:08}", attempts_of(n), 1000 + n // 700) for n in range(RUNS)),
        )
        connection.executemany(
            "INSERT INTO attempts (run_id, attempt, node, lineage_id, invocation_id, started_at_ms, "
            "delay_ms, ended_at_ms, ending, error_class, retryable) "
            "VALUES (?1, ?2, '', ?3, ?3, 0, 0, 1, 'fail', 'timeout', 1)",
            ((f"{n:08}", a, f"{n}/{a}") for n in range(RUNS) for a in range(1, attempts_of(n) + 1)),
        )
    connection.close()
    return store


def attempts_of(number: int) -> int:
    return 7 if number == 12_340 else 2 if number % 10 == 0 else 1


@pytest.mark.req("RET-11")
def test_many_runs_are_checked_one_at_a_time(crowd: Ledger) -> None:
    """Every run is looked at once, also at the edges of pages; memory does not grow with their number."""
    assert crowd.count_runs() == RUNS
    tracemalloc.start()
    seen: set[str] = set()
    findings = []
    for one in check(crowd):
        assert one.run_id not in seen
        seen.add(one.run_id)
        findings += one.findings
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(seen) == TROUBLED
    assert [(each.rule, each.run_id) for each in findings] == [("over-maximum", "00012340")]
    assert peak < 12_000_000, f"{peak:,} bytes at most, of a ledger of {RUNS:,} runs"
    assert len(list(check(crowd, 1000 + 19_999 // 700))) == sum(
        attempts_of(n) > 1 for n in range(RUNS) if n // 700 == 19_999 // 700
    ), "since then, and what began in that very millisecond"
