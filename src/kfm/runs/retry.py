"""Automatic retries: which are due, which are superseded, and making them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from msgspec.structs import replace

from kfm.db.leases import LEASE_EXPIRED, WORKER_DIED
from kfm.model.breaker import providers_of
from kfm.model.errors import CircuitOpen, KfmError, UsageError
from kfm.model.next_steps import work_command
from kfm.model.quantities import moment
from kfm.model.quarantine import QuarantineEntry, RetryState, Waiting, facts_of, held_run
from kfm.model.records import BY_KFM, GovernanceEntry, Record, Run, governance_entry
from kfm.model.retry import Failure, classify
from kfm.model.retry_budgets import (
    CIRCUIT_OPEN,
    NOT_RETRIED,
    REAPED,
    attended,
    budget_ends_ms,
    given_up,
    is_spent,
    judge,
)
from kfm.model.runs import Judge
from kfm.model.times import rfc3339
from kfm.runs import admission
from kfm.runs.admission import RunSubject, is_live
from kfm.runs.executor import RunExecutor
from kfm.runs.kernel import Kernel, RunReport, RunRequest
from kfm.runs.outcome import next_run_ms, sweep
from kfm.telemetry.compliance import AUTOMATIC

if TYPE_CHECKING:
    from kfm.app import App


BATCH_MAX = 100  # runs that one round looks at
EVER_MS = 2**53 - 1


class RetriesMade(Record, frozen=True):
    """A due attempt that was not made now."""

    run_id: str
    source_id: str
    dataset_id: str
    word: Literal["given-up", "blocked", "busy"]
    reason: str


class AutomaticRetries:
    """Makes the retries that are due, one round at a time."""

    def __init__(self, kernel: Kernel, subject: Callable[[Run], RunSubject | None]) -> None:
        self._kernel = kernel
        self._subject = subject  # of a run, as the configuration describes its work now; None: no more

    def settle(self) -> None:
        """Decide about the runs whose process died before it could."""
        kernel = self._kernel
        kernel.liveness.claim(kernel.worker_id)
        sweep(kernel.store, kernel.liveness)
        for run in kernel.store.unjudged(BATCH_MAX):
            seen = kernel.store.retry_state(run.run_id)
            source = next((one for one in kernel.settings.sources if one.id == run.source_id), None)
            # Abandoned after a stop, or gone with its process.
            kind = classify(Failure(code=run.error_code))
            state = judge(
                run,
                REAPED if run.error_code in (WORKER_DIED, LEASE_EXPIRED) else kind,
                seen,
                now_ms=kernel.store.now_ms(),
                unit_random=kernel.rng.unit(),
                idempotent=source is None or source.idempotent,
                stopped=run.error_code == "CANCELLED",
                next_run_ms=next_run_ms(kernel, run),
            )
            approved = admission.approval_of(kernel.store, run) is not None
            self._keep(run, seen, attended(state, approved, kernel.store.now_ms()))

    def due(self) -> list[Waiting]:
        store = self._kernel.store
        return store.waiting(store.now_ms(), BATCH_MAX)

    def attempt(self, waiting: Waiting) -> RunReport | RetriesMade:
        """Make one attempt, or say why not."""
        run, kernel = waiting.run, self._kernel
        try:
            subject = self._subject(run)
        except (KfmError, OSError) as error:  # a pipeline that can't be read is not the run's last word
            return _passed(run, "blocked", kernel.redact(str(error)))
        hopeless = self._hopeless(waiting, subject)
        overtaken_ms = self._overtaken_ms(waiting) if hopeless is None else None
        if overtaken_ms is not None and overtaken_ms >= budget_ends_ms(run, waiting.state):
            hopeless = "budget-spent"
        if hopeless is not None:
            state, why = given_up(waiting.state, hopeless, kernel.store.now_ms()), NOT_RETRIED[hopeless]
            self._keep(run, waiting.state, state)
            return _passed(run, "given-up", f"{why[0].upper()}{why[1:]}.")
        if overtaken_ms is not None:
            self._postpone(waiting, overtaken_ms, "next-run")
            at = moment(overtaken_ms)
            return _passed(run, "blocked", f"It is tried with the next run of its schedule, at {at}.")
        assert subject is not None
        # Asked before admission, where each refusal goes on record: this is asked again every few seconds.
        if self._is_locked(subject):
            return _passed(run, "busy", f"{subject.scope} is held by another run.")
        decision = admission.at_admission(kernel, subject, dry_run=True)
        if not decision.allowed:
            denied = next(gate for gate in decision.results if not gate.allowed)
            return _passed(run, "blocked", denied.reason)
        at_ms = self._released_ms(subject, run)
        if at_ms > kernel.store.now_ms():
            self._postpone(waiting, at_ms, CIRCUIT_OPEN)
            return _passed(run, "blocked", f"Its provider has trouble, or just had: due at {moment(at_ms)}.")
        report = RunExecutor(kernel, subject, force=False, artifacts_dir=None, plan=None, due=waiting).run()
        if report.outcome == "busy":
            return _passed(run, "busy", report.reason)
        if isinstance(report.error, CircuitOpen):
            self._postpone(waiting, report.error.facts.get("not_before_ms"), CIRCUIT_OPEN)
        return report

    def _released_ms(self, subject: RunSubject, run: Run) -> int:
        """Not while a provider's circuit is open, and after an outage not all at once."""
        kernel = self._kernel
        if kernel.providers is None:
            return 0
        return kernel.providers.released_ms(providers_of(subject.source, kernel.settings.source), run.run_id)

    def _hopeless(self, waiting: Waiting, subject: RunSubject | None) -> str | None:
        """Why this attempt is never to be made, if so."""
        store, run = self._kernel.store, waiting.run
        if subject is None:
            return "source-gone"
        if subject.work_base != run.work_base:
            return "code-changed"
        if subject.dataset.id != run.dataset_id:
            return "dataset-changed"
        latest = store.latest_run(run.work_base)
        if latest is not None and latest.run_id != run.run_id:
            return "superseded"
        if not subject.source.idempotent:
            return "not-idempotent"
        if is_spent(run, waiting.state, store.now_ms()):
            return "budget-spent"
        return None

    def _overtaken_ms(self, waiting: Waiting) -> int | None:
        """When its schedule begins the next run, if it would still be at work then; the last attempt says
        how long that takes. What was left to that run is tried with it."""
        run = waiting.run
        store, next_ms = self._kernel.store, next_run_ms(self._kernel, run)
        if next_ms is None or waiting.state.reason == "next-run":
            return None
        whole = [one for one in store.attempts(run.run_id) if not one.node and one.ended_at_ms is not None]
        lasts_ms = max(0, (whole[-1].ended_at_ms or 0) - whole[-1].started_at_ms) if whole else 0
        return next_ms if store.now_ms() + lasts_ms >= next_ms else None

    def _is_locked(self, subject: RunSubject) -> bool:
        kernel = self._kernel
        lock = kernel.store.lock(subject.scope)
        if lock is None or lock.holder is None:
            return False
        holder = kernel.store.run(lock.holder.run_id)
        dead = kernel.liveness.is_dead(lock.holder.worker_id)
        return holder is not None and is_live(lock, holder, kernel.store.now_ms(), dead)

    def _postpone(self, waiting: Waiting, at_ms: object, reason: str) -> None:
        """A breaker or a schedule sets the time: refused before anything began, the run is unchanged."""
        store, state = self._kernel.store, waiting.state
        if isinstance(at_ms, int) and store.retry_state(state.run_id) == state:
            later = replace(state, not_before_ms=at_ms, reason=reason, updated_at_ms=store.now_ms())
            store.judge(Judge(run=waiting.run, seen=state, retry=later))

    # --- what is written down ----------------------------------------------------------

    def _keep(self, run: Run, seen: RetryState | None, state: RetryState) -> None:
        """Another process may be faster; then its decision holds."""
        held = self._held(run, state)
        entries = (self._entry(run, held),) if held is not None else ()
        self._kernel.store.judge(Judge(run=run, seen=seen, retry=state, held=held, entries=entries))

    def _held(self, run: Run, state: RetryState) -> QuarantineEntry | None:
        store = self._kernel.store
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

    def _entry(self, run: Run, held: QuarantineEntry) -> GovernanceEntry:
        dataset = self._kernel.settings.declared(run.dataset_id)
        rights = dataset.rights if dataset else None
        facts = facts_of(held, rights.care.label if rights else None)
        return governance_entry(held.kind, run.run_id, self._kernel.store.now_ms(), BY_KFM, **facts)


def _passed(run: Run, word: Literal["given-up", "blocked", "busy"], reason: str) -> RetriesMade:
    return RetriesMade(
        run_id=run.run_id, source_id=run.source_id, dataset_id=run.dataset_id, word=word, reason=reason
    )


# --- trying again ----------------------------------------------------------------------


def retry_run(
    app: App,
    run: Run,
    *,
    actor: str,
    claimed_actor: str | None = None,
    rationale: str | None = None,
    ticket: str | None = None,
) -> RunReport:
    """One more attempt at exactly this run, now, because a person wants it."""
    from kfm.runs.executor import RunExecutor

    subject = require_current(app, run, _subject(app, run, actor, claimed_actor, rationale, ticket))
    return RunExecutor(app.kernel, subject, force=False, artifacts_dir=None, plan=None).run()


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


def run_due_retries(
    app: App, *, actor: str, on_report: Callable[[RunReport | RetriesMade], None]
) -> list[RunReport | RetriesMade]:
    """Make every automatic attempt that is due now, one after the other."""

    automatic = AutomaticRetries(app.kernel, lambda run: _subject(app, run, actor, claimed_actor=AUTOMATIC))
    automatic.settle()
    made = []
    for waiting in automatic.due():
        made.append(automatic.attempt(waiting))
        on_report(made[-1])
    return made


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
