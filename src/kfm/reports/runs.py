"""Runs, invocations and plans as documents."""

from __future__ import annotations

from typing import Any

from kfm.model.quantities import instant
from kfm.model.records import PROMOTED_TOGETHER, is_promotion_of
from kfm.reports.state_words import of_request, of_run

CALLS_MAX = 100
PROMOTIONS_MAX = 1000


def has_promoted(ledger: Any, run_id: str) -> bool:
    """Did a run make a new version? One that found its result published already did not."""
    return any(
        ledger.governance(kind=kind, subject=run_id, limit=1) for kind in ("promotion", PROMOTED_TOGETHER)
    )


def word_of_run(ledger: Any, run: Any) -> str:
    """The word that people read for a run: one that found its result published already is unchanged."""
    made = run.version_id
    if run.status == "success" and made is not None and not has_promoted(ledger, run.run_id):
        made = None
    return of_run(run.status, version_id=made, error_code=run.error_code)


def word_of_request(ledger: Any, request: Any) -> str:
    """The word that people read for a request: of one that has succeeded, that of its run."""
    outcome = request.outcome
    if outcome == "success" and request.run_id and not has_promoted(ledger, request.run_id):
        outcome = "noop"
    return of_request(request.state, outcome, request.blocked_by)


def run_document(run: Any) -> dict[str, Any]:
    """A run as JSON output shows it: the ledger's record, with times as text."""
    return {
        "run_id": run.run_id,
        "source_id": run.source_id,
        "dataset_id": run.dataset_id,
        "pipeline_id": run.pipeline_id,
        "idempotency_key": run.idempotency_key,
        "work_key": run.work_key,
        "revision": run.revision,
        "trigger_type": run.trigger_type,
        "window_spec": run.window_spec,
        "window_start": instant(run.window_start_ms),
        "window_end": instant(run.window_end_ms),
        "partition": run.partition,
        "pipeline_version": run.pipeline_version,
        "status": run.status,
        "attempts": run.attempts,
        "start_time_utc": instant(run.start_time_ms),
        "end_time_utc": instant(run.end_time_ms),
        "started_at": instant(run.start_time_ms),
        "ended_at": instant(run.end_time_ms),
        "version_id": run.version_id,
        "error_code": run.error_code,
        "error_message": run.error_message,
        "force": run.force,
        "correction": run.correction,
    }


def shown_run(ledger: Any, wanted: str, settings: Any = None) -> dict[str, Any]:
    from kfm.reports.derived import pin_document
    from kfm.reports.lookup import find_run
    from kfm.reports.next_steps import step_of_run
    from kfm.reports.requests import OBJECTS_MAX, request_document

    run = find_run(ledger, wanted)
    promotions = ledger.promotions(run.dataset_id, limit=PROMOTIONS_MAX)
    reader = ledger.request_reader()
    requests = reader.of_run(run.run_id)
    return {
        "run": run_document(run),
        "version": _version_of(run, promotions),
        "invocations": [
            invocation_document(call) for call in ledger.invocations(run_id=run.run_id, limit=CALLS_MAX)
        ],
        "promotions": [
            {
                "version": promotion.sequence,
                "version_id": promotion.version_id,
                "promoted_at": instant(promotion.promoted_at_ms),
            }
            for promotion in promotions
            if is_promotion_of(promotion, run)
        ],
        "requests": [request_document(one) for one in requests],
        "objects": reader.announced(requests, OBJECTS_MAX),
        "datasets_read": [pin_document(pin) for pin in ledger.derived_reader().pins(run.run_id)],
        "next_step": step_of_run(ledger, run, ledger.now_ms(), settings),
    }


def invocation_document(call: Any) -> dict[str, Any]:
    return {
        "invocation_id": call.invocation_id,
        "outcome": call.outcome,
        "trigger_type": call.trigger_type,
        "requested_at": instant(call.requested_at_ms),
        "actor": call.actor,
        "claimed_actor": call.claimed_actor,
        "rationale": call.rationale,
        "ticket": call.ticket,
        "reason": call.reason,
        "reason_code": call.reason_code,
        "gates": list(call.gates),
    }


def plan_document(plan: Any) -> dict[str, Any]:
    header = plan.header
    return {
        "digest": header.digest,
        "base_version": header.base_sequence,
        "version_id": header.version_id,
        "fingerprint": header.fingerprint,
        "made_at": header.made_at,
        "unchanged": plan.unchanged,
        "targets": list(header.targets) if header.targets else [],
        "tally": header.tally,
        "changes": list(plan.changes),
    }


def _version_of(run: Any, promotions: Any) -> int | None:
    """The number that its result was given; that of the newest equal one, where the run made none itself."""
    own = [p.sequence for p in promotions if is_promotion_of(p, run)]
    equal = [p.sequence for p in promotions if p.version_id == run.version_id]
    return next(iter([*own, *equal]), None)
