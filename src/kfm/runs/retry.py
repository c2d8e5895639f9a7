"""Retries: judging runs whose process died, and what is written down of a run that is given up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfm.db.leases import CANCELLED, LEASE_EXPIRED, WORKER_DIED
from kfm.model.admission import SWITCH_MS, settlement
from kfm.model.approvals import is_for_one_attempt
from kfm.model.errors import UsageError
from kfm.model.next_steps import work_command
from kfm.model.quarantine import QuarantineEntry, RetryState, Waiting, facts_of, held_run
from kfm.model.records import BY_KFM, GovernanceEntry, Run, governance_entry
from kfm.model.requests import ADOPTED, TOGETHER, PutOff, RequestOutcome, UpdateRequest, adopted_key
from kfm.model.retry import Failure, classify
from kfm.model.retry_budgets import REAPED, attended, given_up, judge, limits_of, tied
from kfm.model.runs import Judge
from kfm.model.times import rfc3339
from kfm.runs.gates import approval_of
from kfm.runs.kernel import Kernel, RunReport, RunRequest
from kfm.runs.outcome import next_run_ms
from kfm.runs.subjects import RunSubject, Start

if TYPE_CHECKING:
    from kfm.app import App


BATCH_MAX = 100  # runs that one round looks at
EVER_MS = 2**53 - 1


def judge_reaped(kernel: Kernel) -> None:
    """Decide about the runs whose process died before it could."""
    store = kernel.store
    for run in store.unjudged(BATCH_MAX):
        seen, now_ms = store.retry_state(run.run_id), store.now_ms()
        source = next((one for one in kernel.settings.sources if one.id == run.source_id), None)
        # Gone with its process, or abandoned after a stop.
        gone = run.error_code in (WORKER_DIED, LEASE_EXPIRED)
        state = judge(
            run,
            REAPED if gone else classify(Failure(code=run.error_code)),
            seen,
            now_ms=now_ms,
            unit_random=kernel.rng.unit(),
            idempotent=source is None or source.idempotent,
            acted=bool(store.acts(run.run_id)),
            stopped=run.error_code == CANCELLED or store.cancelled(run.run_id) is not None,
            next_run_ms=next_run_ms(kernel, run),
            fingerprint=_inputs_of(kernel, run),
            limits=limits_of(kernel.settings, run.source_id),
        )
        state = attended(state, is_for_one_attempt(approval_of(store, run)), now_ms)
        _keep(kernel, run, seen, tied(state, _is_tied(kernel, run), now_ms))


def _is_tied(kernel: Kernel, run: Run) -> bool:
    """Is it asked for together with other windows, and by nothing else?"""
    asking = [one for one in kernel.store.requests().of_run(run.run_id) if not one.is_settled]
    return bool(asking) and all(TOGETHER in one.details for one in asking)


def _inputs_of(kernel: Kernel, run: Run) -> str | None:
    """The fingerprint of what the last attempt of a run has seen; None: it did not come so far."""
    attempts = (one for one in kernel.store.attempts(run.run_id) if one.attempt == run.attempts)
    return next((one.inputs_hash for one in attempts if one.inputs_hash), None)


def give_up(
    kernel: Kernel, run: Run, reason: str, answer: tuple[UpdateRequest, RequestOutcome] | None = None
) -> None:
    """The promised attempt of a run will not be made after all. With the request that it was claimed for, and
    its answer: together, so that none outlives the other."""
    store = kernel.store
    seen = store.retry_state(run.run_id)
    if seen is not None and seen.fate == "retry":
        _keep(kernel, run, seen, given_up(seen, reason, store.now_ms()), answer)


def adopt(kernel: Kernel) -> int:
    """Make a request for each promised attempt that none asks for; how many."""
    from kfm.model.keys import request_id

    store, requests = kernel.store, kernel.store.requests()

    def make(run_id: str, due_ms: int, attempt: int) -> UpdateRequest | None:
        run = store.run(run_id)
        if run is None:
            return None
        key, bound = adopted_key(run_id, attempt, due_ms), requests.bound_to(run_id)
        return UpdateRequest(
            request_id=request_id(key),
            key=key,
            kind="manual" if run.trigger_type == "retry" else run.trigger_type,
            source_id=run.source_id,
            dataset_id=run.dataset_id,
            window_start_ms=run.window_start_ms,
            window_end_ms=run.window_end_ms,
            actor="kfm",
            accepted_at_ms=store.now_ms(),
            not_before_ms=due_ms,
            correction=run.correction,
            request_uuid=request_id(key) if run.trigger_type == "webhook" else None,  # it names a webhook
            details={ADOPTED: True},
            run_id=run_id,
            plan_digest=bound,
            is_bound=bound is not None,
            blocked_by="retry",
        )

    return requests.adopt(BATCH_MAX, make)


# --- what is written down --------------------------------------------------------------


def _keep(
    kernel: Kernel,
    run: Run,
    seen: RetryState | None,
    state: RetryState,
    answer: tuple[UpdateRequest, RequestOutcome] | None = None,
) -> None:
    """Another process may be faster; then its decision holds."""
    held = _held(kernel, run, state)
    entries = (_entry(kernel, run, held),) if held is not None else ()
    now_ms, why = kernel.store.now_ms(), run.error_message or "Its process is gone."
    settle = settlement(state, why, now_ms)
    if state.reason == "stopped" and run.error_code == CANCELLED:  # other requests for it still wait
        settle = PutOff(not_before_ms=now_ms + SWITCH_MS, blocked_by="switch", reason=why)
    kernel.store.judge(
        Judge(run=run, seen=seen, retry=state, held=held, entries=entries, settle=settle, answer=answer)
    )


def _held(kernel: Kernel, run: Run, state: RetryState) -> QuarantineEntry | None:
    store = kernel.store
    attempts = [one for one in store.attempts(run.run_id) if not one.node]
    payload_hash = next((one.inputs_hash for one in reversed(attempts) if one.inputs_hash), None)
    return held_run(
        run,
        state,
        payload_hash=payload_hash,
        inputs=(store.inputs(payload_hash) if payload_hash else None) or (),
        error_classes=[one.error_class for one in attempts if one.error_class],
        error_code=run.error_code or "KFM601",
        error_message=run.error_message or "",
    )


def _entry(kernel: Kernel, run: Run, held: QuarantineEntry) -> GovernanceEntry:
    dataset = kernel.settings.declared(run.dataset_id)
    rights = dataset.rights if dataset else None
    facts = facts_of(held, rights.care.label if rights else None)
    return governance_entry(held.kind, run.run_id, kernel.store.now_ms(), BY_KFM, **facts)


# --- trying again ----------------------------------------------------------------------


def retry_run(
    app: App,
    run: Run,
    *,
    actor: str,
    by_person: bool,
    claimed_actor: str | None = None,
    rationale: str | None = None,
    ticket: str | None = None,
) -> RunReport:
    """One more attempt at exactly this run; bound to the plan that the run is bound to."""
    from kfm.runs import plan as plans
    from kfm.runs.executor import RunExecutor

    subject = require_current(app, run, _subject(app, run, actor, claimed_actor, rationale, ticket))
    reader = app.ledger.request_reader()
    digest = reader.bound_to(run.run_id)
    plan = plans.read((reader.preview(digest) or "").encode()) if digest is not None else None
    return RunExecutor(app.kernel, subject, Start(by_person=by_person, plan=plan)).run()


def require_retriable(app: App, run: Run) -> None:
    """UsageError, unless another attempt would be one at this very run."""
    require_current(app, run, _subject(app, run, app.actor))


def require_current(app: App, run: Run, subject: RunSubject | None) -> RunSubject:
    if subject is None:
        raise UsageError(
            f"Its source `{run.source_id}` is not in the configuration any more.",
            remedy="Put the source back, or leave the run as it is.",
        )
    latest = app.ledger.latest_run(run.work_base)
    if subject.work_base != run.work_base:
        raise UsageError(
            f"The pipeline of {run.source_id} has changed since: with the new code it is other work.",
            remedy=f"Run it as such: {work_command(run)}",
        )
    if latest is not None and latest.run_id != run.run_id:
        raise UsageError(
            f"Revision {latest.revision} of the same work has begun since: run {latest.run_id}.",
            remedy=f"Retry that one, if it failed: kfm show {latest.run_id}",
        )
    return subject


def waiting(app: App, limit: int = 100) -> list[Waiting]:
    """Every run with an automatic attempt ahead, the earliest first."""

    return app.ledger.waiting(EVER_MS, limit)


def _subject(
    app: App,
    run: Run,
    actor: str,
    claimed_actor: str | None = None,
    rationale: str | None = None,
    ticket: str | None = None,
) -> RunSubject | None:
    """The run's work as the configuration describes it now; None if it describes it no more."""
    if run.source_id not in {source.id for source in app.settings.sources}:
        return None
    request = RunRequest(
        source_id=run.source_id,
        window_spec=window_of(run),
        trigger_type=run.trigger_type,
        correction=run.correction,
        actor=actor,
        claimed_actor=claimed_actor,
        rationale=rationale,
        ticket=ticket,
    )
    return app.subject(request)


def window_of(run: Run) -> str:
    return f"{rfc3339(run.window_start_ms)}/{rfc3339(run.window_end_ms)}"
