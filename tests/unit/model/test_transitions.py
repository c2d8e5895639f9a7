"""Named transitions of runs, units and nodes, and the tables behind them."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from msgspec.structs import replace

from kfm.model import runs, units
from kfm.model.breaker import BreakerState
from kfm.model.contracts import MACHINES, check_transition, machine
from kfm.model.errors import IllegalTransition, RationaleRequired, SchemaViolation
from kfm.model.keys import run_id, trigger_key, work_base, work_key
from kfm.model.records import (
    InvocationOutcome,
    Node,
    NodeOutcome,
    Run,
    RunStatus,
    Trigger,
    Unit,
    UnitStatus,
    Window,
    Work,
)

WORK = Work(
    source_id="s", window=Window(start_ms=0, end_ms=1000, spec="P1D"), partition=None, output_version="v"
)
TRIGGER = Trigger(type="manual", source_id="s", dataset_id="d")
STATES = {
    "run": get_args(RunStatus),
    "node": get_args(NodeOutcome),
    "unit": get_args(UnitStatus),
    "breaker": get_args(BreakerState),
    "invocation": get_args(InvocationOutcome),
}


def _run() -> Run:
    return runs.started(TRIGGER, WORK, environment="e", revision=2, pipeline_id="p", fence=7, now_ms=100)


def _unit(**changes: Any) -> Unit:
    unit = units.created(
        wal_id="w",
        dataset="d",
        object_uri="s3://b/k",
        provider="aws",
        queue="q",
        event_time_ms=None,
        time_range_start_ms=None,
        time_range_end_ms=None,
        now_ms=1,
    )
    return replace(unit, **changes)


@pytest.mark.parametrize("name", MACHINES)
def test_tables_and_records_name_the_same_states(name: Any) -> None:
    """A table's states are the record's, each is reachable, and no change leaves a terminal one."""
    table = machine(name)
    assert set(table.states) == set(STATES[name])
    assert {one.target for one in table.transitions} == set(table.states)
    assert {one.source for one in table.transitions} <= {None, *table.states}
    assert not {one.source for one in table.transitions} & set(table.terminal)
    assert len({(one.source, one.target, one.event) for one in table.transitions}) == len(table.transitions)


@pytest.mark.req("UPD-2")
def test_started_run_carries_its_keys() -> None:
    """Keys and id follow from the work; nothing is drawn."""
    run = _run()
    assert run == _run()
    assert run.idempotency_key == trigger_key(TRIGGER, WORK, 2)
    assert (run.work_key, run.work_base) == (work_key(WORK, 2), work_base(WORK))
    assert run.run_id == run_id("e", run.work_key)
    assert (run.status, run.attempts, run.fence, run.start_time_ms) == ("running", 1, 7, 100)


@pytest.mark.req("UPD-5")
def test_retry_keeps_the_row() -> None:
    """A retried run keeps keys and first start, counts an attempt and forgets the old error."""
    failed = runs.failed(_run(), error_code="KFM404", error_message="away", now_ms=200)
    assert (failed.status, failed.error_code, failed.end_time_ms) == ("failed", "KFM404", 200)
    again = runs.retried(failed, fence=8)
    assert again == replace(_run(), attempts=2, fence=8)


@pytest.mark.req("UPD-5")
def test_takeover_needs_a_higher_fence() -> None:
    """A successor's fence is higher, or the takeover is refused."""
    assert runs.taken_over(_run(), fence=8).attempts == 2
    with pytest.raises(IllegalTransition, match="fence"):
        runs.taken_over(_run(), fence=7)


def test_run_transitions_refuse_other_states() -> None:
    """Each named transition of a run refuses every state that it does not begin in."""
    done = runs.succeeded(_run(), version_id="v", fingerprint="f", now_ms=1)
    failed = runs.failed(_run(), error_code="c", error_message="m", now_ms=1)
    refused = [
        lambda: runs.retried(done, fence=9),
        lambda: runs.retried(_run(), fence=9),
        lambda: runs.taken_over(done, fence=9),
        lambda: runs.taken_over(failed, fence=9),
        lambda: runs.succeeded(done, version_id="v", fingerprint="f", now_ms=2),
        lambda: runs.succeeded(failed, version_id="v", fingerprint="f", now_ms=2),
        lambda: runs.failed(done, error_code="c", error_message="m", now_ms=2),
        lambda: runs.failed(failed, error_code="c", error_message="m", now_ms=2),
    ]
    for attempt in refused:
        with pytest.raises(IllegalTransition):
            attempt()


@pytest.mark.req("WAL-6")
def test_attempts_are_counted_when_opened() -> None:
    """0 at creation, 1 at the first claim; a retry counts when it sets pending, and its claim does not."""
    unit = _unit()
    counts = [unit.attempts]
    for _ in range(3):
        unit = units.claimed(unit, worker_id="w", ingest_run_id=None, now_ms=2)
        counts.append(unit.attempts)
        unit = units.unit_failed(unit, error_code="E", error_message="m", now_ms=3)
        unit = units.retry_scheduled(unit, now_ms=4)
        counts.append(unit.attempts)
    assert counts == [0, 1, 2, 2, 3, 3, 4]


@pytest.mark.req("WAL-3", "WAL-5")
def test_every_change_of_a_unit_raises_its_version() -> None:
    """The version that a claim writes is its fence; whatever follows has another."""
    unit = _unit()
    claimed = units.claimed(unit, worker_id="w", ingest_run_id="r", now_ms=2)
    lapsed = units.lease_lapsed(claimed, now_ms=3)
    pending = units.retry_scheduled(lapsed, now_ms=4)
    assert [one.version for one in (unit, claimed, lapsed, pending)] == [1, 2, 3, 4]
    assert lapsed.last_error_code == "LEASE_EXPIRED"
    assert (pending.worker_id, pending.updated_at_ms) == (None, 4)


@pytest.mark.req("WAL-4")
def test_quarantine_in_progress_passes_failed() -> None:
    """A decision taken in progress writes two records; going there directly is refused."""
    claimed = units.claimed(_unit(), worker_id="w", ingest_run_id=None, now_ms=2)
    failed, quarantined = units.failed_then_quarantined(
        claimed, error_code="SCHEMA", error_message="m", now_ms=3
    )
    assert (failed.status, quarantined.status, quarantined.version) == ("failed", "quarantined", 4)
    with pytest.raises(IllegalTransition):
        units.quarantined(claimed, error_code="SCHEMA", error_message="m", now_ms=3)


@pytest.mark.req("WAL-9")
@pytest.mark.parametrize(
    ("stac", "provenance", "partial", "allowed"),
    [
        ("created", "ok", False, True),
        ("updated", "ok", False, True),
        ("no-op", "ok", False, True),
        ("unknown", "ok", False, False),
        ("failed", "ok", False, False),
        ("created", "unknown", True, False),
        ("created", "partial", False, False),
        ("created", "partial", True, True),
        ("created", "failed", True, False),
    ],
)
def test_success_needs_catalogue_and_provenance(
    stac: Any, provenance: Any, partial: bool, allowed: bool
) -> None:
    """A unit succeeds only with its catalogue entry and its provenance in place."""
    unit = _unit(status="in_progress", stac_status=stac, provenance_status=provenance)
    if allowed:
        done = units.unit_succeeded(unit, now_ms=2, partial_provenance_allowed=partial)
        assert done.status == "succeeded"
    else:
        with pytest.raises(IllegalTransition):
            units.unit_succeeded(unit, now_ms=2, partial_provenance_allowed=partial)


@pytest.mark.req("WAL-18")
def test_only_a_migration_leads_back_from_the_end() -> None:
    """Succeeded and quarantined go back with reason and approval, and in no other way."""
    for status in ("succeeded", "quarantined"):
        unit = _unit(status=status, attempts=3)
        assert units.migrated(unit, reason="reissue", approval="A-1", now_ms=2).attempts == 4
        with pytest.raises(RationaleRequired):
            units.migrated(unit, reason="reissue", approval="", now_ms=2)
        with pytest.raises(IllegalTransition):
            units.replayed(unit, reason="incident", now_ms=2)
        with pytest.raises(IllegalTransition):
            units.retry_scheduled(unit, now_ms=2)
    with pytest.raises(IllegalTransition):
        units.migrated(_unit(status="failed"), reason="reissue", approval="A-1", now_ms=2)


@pytest.mark.req("WAL-1")
def test_extra_fields_shadow_nothing() -> None:
    """A dataset's own fields can't bear the name of a field of the record."""
    with pytest.raises(IllegalTransition, match="status"):
        units.created(
            wal_id="w",
            dataset="d",
            object_uri="s3://b/k",
            provider="aws",
            queue="q",
            event_time_ms=None,
            time_range_start_ms=None,
            time_range_end_ms=None,
            now_ms=1,
            extra={"status": "succeeded"},
        )


def test_lease_is_visibility_and_safety() -> None:
    """A claim lapses after the visibility time and the safety window."""
    assert units.lease_until_ms(1000, 300, 30) == 1330


def _node(**changes: Any) -> Node:
    fields: dict[str, Any] = {
        "dataset_id": "d",
        "run_id": "r",
        "lakefs_branch": "main",
        "inputs_hash": "sha256:0",
        "validation_summary": {"checks": 2, "passed": 2, "failed": 0},
        "outcome": "success",
        "recorded_at_ms": 1,
    }
    return Node(**{**fields, **changes})


@pytest.mark.req("RS-1", "RS-7")
@pytest.mark.parametrize(
    "summary",
    [
        {},
        {"checks": 2, "passed": 1},
        {"checks": 2, "passed": 1, "failed": 0},
        {"checks": 2, "passed": 3, "failed": -1},
        {"checks": True, "passed": 1, "failed": 0},
        {"checks": 1.0, "passed": 1, "failed": 0},
    ],
)
def test_summary_must_add_up(summary: dict[str, Any]) -> None:
    """Checks are passed plus failed, counted in whole numbers."""
    with pytest.raises(SchemaViolation):
        runs.recorded(None, _node(validation_summary=summary))


@pytest.mark.req("RS-4", "RS-7")
def test_node_records() -> None:
    """More may ride along in a summary; a skip names the run that made the result; success is not un-run."""
    rich = _node(
        validation_summary={"checks": 1, "passed": 0, "failed": 1, "details": ["x"]}, outcome="failed"
    )
    assert runs.recorded(None, rich) is rich
    skipped = _node(outcome="skipped", skipped_because="r0")
    assert runs.recorded(rich, skipped) is skipped
    with pytest.raises(IllegalTransition):
        runs.recorded(_node(), skipped)
    with pytest.raises(IllegalTransition, match="names the run"):
        runs.recorded(None, _node(outcome="skipped"))


def test_unknown_states_are_refused() -> None:
    """A word that is no state is refused, not passed through."""
    with pytest.raises(IllegalTransition, match="running → done"):
        check_transition("run", "running", "done")
