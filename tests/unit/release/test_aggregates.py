"""The telemetry documents say what the ledger holds, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from importlib.resources import files
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfm.model.errors import LimitExceeded
from kfm.telemetry import sequences
from kfm.telemetry.aggregates import Aggregates, TimeBounds
from kfm.telemetry.documents import NO_INGEST, document_bytes
from tests.unit.release.rows import MASKED, SECRET, START_MS, ListLedger, counted

SCHEMAS = {
    "updater-telemetry.json": "telemetry-updater",
    "patterns-telemetry.json": "telemetry-patterns",
    "focus-telemetry.json": "telemetry-focus",
    "nodd-sns-telemetry.json": "telemetry-nodd-sns",
    "energy.json": "energy",
    "carbon.json": "carbon",
}


def as_read(aggregates: Aggregates, name: str) -> Any:
    return json.loads(document_bytes(aggregates.documents()[name]), parse_float=Decimal)


def busy_ledger() -> ListLedger:
    """Two datasets; a success, a failure that was retried, one killed, one under way."""
    ledger = ListLedger()
    ledger.add_run("a")
    ledger.add_run("b", attempts=3, trigger_type="webhook")
    ledger.add_run("c", dataset_id=SECRET, source_id=SECRET, pipeline_id=SECRET, status="failed")
    ledger.add_run("d", status="running")
    ledger.add_attempt("a", took_ms=100)
    ledger.add_attempt("a", node="fetch", took_ms=40, outcome="success")
    ledger.add_attempt("a", node="publish", took_ms=60, outcome="skipped", cpu_us=0)
    ledger.add_attempt("b", 1, took_ms=200, ending="fail", error_class="HTTP_503", retryable=True)
    ledger.add_attempt("c", took_ms=300, ending="fail", error_code="KFM605", error_message=f"{SECRET} is wet")
    ledger.add_attempt(
        "b", 2, took_ms=250, ending="abort", error_code="WORKER_DIED", energy=None, delay_ms=700
    )
    ledger.add_attempt("d", took_ms=None)
    ledger.add_attempt("b", 3, took_ms=50, delay_ms=900, cpu_us=720_000)
    ledger.add_retry("a", 1)
    ledger.add_retry("a", 2)
    ledger.add_retry("c", 1)
    ledger.add_retry("c", 2, "gave-up")
    for outcome in ("success", "noop", "noop", "refused", "busy", "failed", None):
        ledger.add_call(outcome)
    ledger.add_call("refused", SECRET, START_MS + 5000)
    return ledger


@pytest.mark.req("UPD-15")
def test_runs_are_counted_by_their_endings() -> None:
    """Attempts, endings, error rate, retries, calls and latency add up, in all and by dataset."""
    document = as_read(counted(busy_ledger()), "updater-telemetry.json")
    total = document["total"]
    assert (total["attempts"], total["complete"], total["fail"], total["abort"]) == (6, 2, 2, 1)
    assert total["in_progress"] == 1
    assert total["error_rate"] == Decimal("0.400000")
    assert (total["retries"], total["call_retries"]) == (2, 3)
    assert total["calls"] == {
        "success": 1,
        "noop": 2,
        "failed": 1,
        "refused": 2,
        "busy": 1,
        "in_progress": 1,
    }
    assert total["latency"] == {
        "count": 5,
        "min_ms": 50,
        "p50_ms": 200,
        "p90_ms": 300,
        "p95_ms": 300,
        "p99_ms": 300,
        "max_ms": 300,
    }
    by_dataset = {row["dataset_id"]: row["runs"] for row in document["datasets"]}
    assert list(by_dataset) == [SECRET, "levels"]
    for field in ("attempts", "complete", "fail", "abort", "in_progress", "retries", "call_retries"):
        assert sum(row[field] for row in by_dataset.values()) == total[field]


@pytest.mark.req("UPD-15")
def test_every_cost_says_how_it_was_reached() -> None:
    """Energy and carbon come with method and assumption; what was not metered is counted, not guessed."""
    cost = as_read(counted(busy_ledger()), "updater-telemetry.json")["total"]["cost"]
    # 360 ms of a core at 10 W is 1 mWh; b's third attempt took twice that.
    assert cost["energy_wh"] == Decimal("0.005000")
    assert cost["co2_g"] == Decimal("0.001664")  # 333 + 333 + 333 + 665 µg, each rounded by itself
    assert cost["method"] == "modelled"
    assert len(cost["assumptions"]) == 1
    assert "332.6 g" in cost["assumptions"][0]
    assert (cost["metered"], cost["unmetered"]) == (4, 1)
    energy = as_read(counted(busy_ledger()), "energy.json")
    assert energy["energy_wh"] == Decimal("0.005000")
    assert energy["retries_wh"] == Decimal("0.002000")
    assert energy["datasets"][1]["nodes_wh"] == {"fetch": Decimal("0.001000"), "publish": Decimal("0.000000")}
    carbon = as_read(counted(busy_ledger()), "carbon.json")
    assert carbon["co2_g"] == cost["co2_g"]
    assert carbon["assumptions"] == cost["assumptions"]


@pytest.mark.req("RS-11")
def test_node_writes_are_counted() -> None:
    """Each record of a node is counted by node and outcome; skipped is not executed."""
    document = as_read(counted(busy_ledger()), "patterns-telemetry.json")
    nodes = {node["node"]: node for node in document["nodes"]}
    assert nodes["fetch"]["writes"]["success"] == nodes["fetch"]["executed"] == 1
    assert (nodes["publish"]["skipped"], nodes["publish"]["executed"]) == (1, 0)
    assert nodes["fetch"]["durations"]["p99_ms"] == 40
    assert nodes["fetch"]["cost"]["energy_wh"] == Decimal("0.001000")
    assert document["datasets"] == [{"dataset_id": "levels", "nodes": document["nodes"]}]


@pytest.mark.req("UPD-15", "REL-2")
def test_work_that_was_not_metered_has_no_figure() -> None:
    """Null and said, not zero; zero is what no work costs."""
    ledger = ListLedger()
    ledger.add_run("a")
    ledger.add_attempt("a", ending="abort", error_code="WORKER_DIED", energy=None)
    aggregates = counted(ledger)
    cost = as_read(aggregates, "updater-telemetry.json")["total"]["cost"]
    assert (cost["energy_wh"], cost["co2_g"], cost["method"], cost["unmetered"]) == (
        None,
        None,
        "unmetered",
        1,
    )
    energy, carbon = as_read(aggregates, "energy.json"), as_read(aggregates, "carbon.json")
    assert (energy["energy_wh"], energy["datasets"][0]["energy_wh"], energy["method"]) == (
        None,
        None,
        "unmetered",
    )
    assert (carbon["co2_g"], carbon["datasets"][0]["co2_g"], carbon["method"]) == (None, None, "unmetered")
    nothing = as_read(counted(ListLedger()), "energy.json")
    assert (nothing["energy_wh"], nothing["method"]) == (Decimal("0.000000"), "modelled")


@pytest.mark.req("REL-2", "UPD-15")
def test_units_have_no_energy_that_was_never_measured() -> None:
    """What units cost is not metered: null, with how many ended; a ledger without units cost nothing."""
    aggregates = counted(ListLedger())
    assert as_read(aggregates, "nodd-sns-telemetry.json")["cost"]["energy_wh"] == Decimal("0.000000")
    aggregates.units([("hrrr", "attempts:1", 1900, None), ("hrrr", "attempts:2", 20, None)], str)
    cost = as_read(aggregates, "nodd-sns-telemetry.json")["cost"]
    assert (cost["energy_wh"], cost["co2_g"], cost["method"]) == (None, None, "unmetered")
    assert (cost["metered"], cost["unmetered"]) == (0, 1920)


@pytest.mark.req("RET-8")
def test_a_run_that_was_tried_again_is_one_sequence() -> None:
    """Each try has its class, delay, outcome and cost; the compliance record sums up what retrying added."""
    document = as_read(counted(busy_ledger()), "focus-telemetry.json")
    (sequence,) = [one for one in document["sequences"] if one["tier"] == "run"]
    assert [(one["attempt"], one["delay_ms"], one["outcome"]) for one in sequence["tries"]] == [
        (1, 700, "failure"),
        (2, 900, "aborted"),
        (3, 0, "success"),
    ]
    assert [one["error_class"] for one in sequence["tries"]] == ["HTTP_503", "WORKER_DIED", None]
    assert sequence["tries"][1]["energy_wh"] is None
    assert [one["method"] for one in sequence["tries"]] == ["modelled", "unmetered", "modelled"]
    assert sequence["compliance"] == {
        "pipeline_id": "daily",
        "stage": "run",
        "attempts": 3,
        "retry_policy": "ladder_half_jitter",
        "errors": ["HTTP_503", "WORKER_DIED"],
        "final_status": "success",
        "circuit_open": False,
        "energy_wh": Decimal("0.002000"),
        "co2_g": Decimal("0.000665"),
        "telemetry_ref": "releases/v1.0.0/focus-telemetry.json",
        "method": "modelled",
        "assumptions": [sequence["tries"][0]["assumption"]],
    }


@pytest.mark.req("RET-8")
def test_a_call_that_was_tried_again_is_one_sequence() -> None:
    """A call that came right had one try more than failed; one that was given up had none."""
    document = as_read(counted(busy_ledger()), "focus-telemetry.json")
    right, given_up = [one for one in document["sequences"] if one["tier"] == "call"]
    assert [(one["attempt"], one["delay_ms"]) for one in right["tries"]] == [(1, 100), (2, 200)]
    assert (right["compliance"]["attempts"], right["compliance"]["final_status"]) == (3, "success")
    assert right["compliance"]["retry_policy"] == "exp_full_jitter"
    assert (given_up["compliance"]["attempts"], given_up["compliance"]["final_status"]) == (2, "failure")
    assert given_up["compliance"]["energy_wh"] is None
    for told in (*right["tries"], *given_up["tries"], right["compliance"], given_up["compliance"]):
        assert (told["energy_wh"], told["co2_g"], told["method"]) == (None, None, "unmetered")
    assert document["error_classes"] == {"HTTP_503": 5, "WORKER_DIED": 1}


@pytest.mark.req("RS-13")
def test_hidden_datasets_go_by_their_masks() -> None:
    """No document names a dataset, source or pipeline that may not be named; counts stay apart."""
    documents = counted(busy_ledger(), MASKED).documents()
    for document in documents.values():
        assert SECRET.encode() not in document_bytes(document)
    rows = as_read(counted(busy_ledger(), MASKED), "updater-telemetry.json")["datasets"]
    assert [row["dataset_id"] for row in rows] == ["levels", MASKED.mask(SECRET)]


@pytest.mark.req("REL-2")
@pytest.mark.parametrize("ledger", [ListLedger, busy_ledger], ids=["empty", "busy"])
def test_documents_fit_their_strict_schemas(ledger: Callable[[], ListLedger]) -> None:
    """Each document fits its schema; one field more, or one less, does not."""
    aggregates = counted(ledger())
    for name, schema_name in SCHEMAS.items():
        text = files("kfm").joinpath("contracts", "schemas", f"{schema_name}.schema.json").read_text("utf-8")
        validator = jsonschema_rs.validator_for(json.loads(text))
        document = json.loads(document_bytes(aggregates.documents()[name]))
        validator.validate(document)
        assert not validator.is_valid({**document, "more": 1})
        for field in document:
            assert not validator.is_valid({key: value for key, value in document.items() if key != field})


@pytest.mark.req("REL-2")
def test_numbers_are_printed_one_way() -> None:
    """Six places, no exponent, however small or large."""
    ledger = ListLedger()
    ledger.add_run("a")
    ledger.add_attempt("a", cpu_us=360)
    text = document_bytes(counted(ledger).documents()["energy.json"]).decode()
    assert '"energy_wh": 0.000001,' in text
    assert "e-" not in text.replace("urn:kfm", "").lower().replace("since", "")


def test_the_period_is_what_was_recorded() -> None:
    """First and last event of the ledger, never a clock of ours; bounds are half open."""
    ledger = busy_ledger()
    document = as_read(counted(ledger), "updater-telemetry.json")
    assert document["period"] == {
        "since": None,
        "until": None,
        "first": "2026-01-01T00:00:00Z",
        "last": "2026-01-01T00:00:05Z",
    }
    after = as_read(counted(ledger, bounds=TimeBounds(since_ms=START_MS + 1)), "updater-telemetry.json")
    assert after["total"]["attempts"] == 0
    assert after["total"]["calls"]["refused"] == 1
    before = as_read(counted(ledger, bounds=TimeBounds(until_ms=START_MS + 5000)), "updater-telemetry.json")
    assert before["total"]["attempts"] == 6
    assert before["total"]["calls"]["refused"] == 1
    assert before["period"]["until"] == "2026-01-01T00:00:05Z"


def test_no_units_are_honest_zeros() -> None:
    """Until a worker has recorded units, the document says that none has."""
    document = as_read(counted(busy_ledger()), "nodd-sns-telemetry.json")
    assert document["source"] == NO_INGEST
    assert set(document["wal_records_total"].values()) == {0}


def test_an_unusual_number_of_sequences_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is listed one by one has a limit, and the message says what to do."""
    monkeypatch.setattr(sequences, "TRIES_MAX", 3)
    with pytest.raises(LimitExceeded) as caught:
        counted(busy_ledger())
    assert "--since" in caught.value.way_out


@given(st.lists(st.integers(0, 50), min_size=1, max_size=200))
def test_percentiles_are_nearest_ranks(durations: list[int]) -> None:
    """Each percentile is a duration that occurred, the first that enough others do not exceed."""
    ledger = ListLedger()
    ledger.add_run("a")
    for took_ms in durations:
        ledger.add_attempt("a", took_ms=took_ms)
    latency = counted(ledger).updater().total.latency
    ordered = sorted(durations)
    for percent in (50, 90, 95, 99):
        value = getattr(latency, f"p{percent}_ms")
        assert value in ordered
        assert sum(one <= value for one in ordered) * 100 >= percent * len(ordered)
        assert sum(one < value for one in ordered) * 100 < percent * len(ordered)
