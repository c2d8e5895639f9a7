"""Outcomes of an invocation: what the ledger records, and what is reported."""

from __future__ import annotations

import traceback
from collections.abc import Mapping

from msgspec.structs import replace

from kfm.model.attempts import Ending
from kfm.model.errors import (
    BackendUnavailable,
    Busy,
    Cancelled,
    ContractViolated,
    Halted,
    KfmError,
    LostLease,
    PipelineFailed,
    Refused,
    WorkFailed,
)
from kfm.model.gates import GateDecision, refusal
from kfm.model.next_steps import NextStep
from kfm.model.quarantine import QuarantineEntry, RetryState, facts_of, held_run
from kfm.model.records import Check, GateResult, GovernanceEntry, Run, Switch, ValidationReport
from kfm.model.redaction import Discretion
from kfm.model.retry_budgets import attended
from kfm.model.transactions import Fail
from kfm.reports.next_steps import step_of_run
from kfm.runs.admission import Admitted, RunSubject, approval_of
from kfm.runs.artifacts import RunLog
from kfm.runs.failures import advise, has_opened, judged, kind_of, next_run_ms
from kfm.runs.kernel import Kernel, Outcome, RunReport
from kfm.runs.nodes import RecordedNodes
from kfm.runs.target_updates import project


class Denied(Exception):
    """The gates refused the promotion."""

    def __init__(self, decision: GateDecision, report: ValidationReport | None = None) -> None:
        super().__init__()
        self.decision = decision
        self.failed_checks = failed_checks(report)
        self.checks_made = len(report.checks) if report else 0


class RunOutcomes:
    """Records and reports the outcome of one invocation."""

    def __init__(self, kernel: Kernel, subject: RunSubject, *, automatic: bool = False) -> None:
        self._kernel = kernel
        self.subject = subject
        self._automatic = automatic  # a due retry, not requested by a person
        self._started_ms = kernel.clock.monotonic_ms()

    # --- what is reported ------------------------------------------------------------

    def report(self, outcome: Outcome, word: str, reason: str, **more: object) -> RunReport:
        return RunReport(
            outcome=outcome,
            word=word,
            reason=reason,
            source_id=self.subject.source.id,
            dataset_id=self.subject.dataset.id,
            window_start_ms=self.subject.window.start_ms,
            window_end_ms=self.subject.window.end_ms,
            duration_ms=self._kernel.clock.monotonic_ms() - self._started_ms,
            **more,  # type: ignore[arg-type]
        )

    def next_step(self, run: Run | None) -> NextStep | None:
        """What a person does next about a run that has ended without success."""
        store = self._kernel.store
        failed = run is not None and run.status == "failed"
        return step_of_run(store, run, store.now_ms()) if run is not None and failed else None

    def projected(self, report: RunReport) -> RunReport:
        """The report of a call whose dataset's targets were brought up to date."""
        shown = tuple(project(self._kernel, self.subject.dataset.id))
        return replace(
            report, projections=shown, duration_ms=self._kernel.clock.monotonic_ms() - self._started_ms
        )

    def head_sequence(self) -> int | None:
        head = self._kernel.ledger.head(self.subject.dataset.id)
        return head[0].sequence if head else None

    # --- what is written down --------------------------------------------------------

    def entry(self, kind: str, about: str, details: Mapping[str, object]) -> GovernanceEntry:
        trigger = self.subject.trigger
        return GovernanceEntry(
            kind=kind,
            subject=about,
            actor=trigger.actor,
            recorded_at_ms=self._kernel.store.now_ms(),
            rationale=trigger.rationale,
            ticket=trigger.ticket,
            details=dict(details),
        )

    def failed(
        self, entered: Admitted, problem: BaseException, log: RunLog, nodes: RecordedNodes
    ) -> RunReport:
        """End the run without a promotion, unless it turns out to have been promoted after all."""
        kernel, run = self._kernel, entered.run
        error = _as_error(problem, log, kernel.redact)
        state = self._judged(entered, error, nodes)
        advice = advise(run, state, kernel.store.now_ms())
        log.step(log.phase, error.message, level="error", code=error.code, error_class=advice.error_class)
        decided = problem.decision.results if isinstance(problem, Denied) else ()
        gates = (*entered.invocation.gates, *decided)
        if isinstance(error, LostLease):
            nodes.disown()
        else:
            nodes.decided(gates)
            landed = kernel.store.fail(self._fail(entered, error, gates, nodes, state))
            stored = kernel.store.run(run.run_id)
            if not landed:
                nodes.disown()
            if not landed and stored is not None and stored.status == "success" and stored.fence == run.fence:
                # The promotion had been committed before its answer was lost.
                return self.projected(
                    self.report(
                        "success",
                        "published",
                        entered.reason,
                        invocation_id=entered.invocation.invocation_id,
                        run=stored,
                        version_id=stored.version_id,
                        sequence=self.head_sequence(),
                    )
                )
        outcome, word = ending(error)
        stored = kernel.store.run(run.run_id)
        return self.report(
            outcome,
            word,
            kernel.redact(error.message),
            invocation_id=entered.invocation.invocation_id,
            run=stored,
            error=error,
            next_step=None if isinstance(error, LostLease) else self.next_step(stored),
            advice=None if isinstance(error, LostLease) else advice.sentence,
            gates=gates,
            failed_checks=problem.failed_checks if isinstance(problem, Denied) else (),
            checks_made=problem.checks_made if isinstance(problem, Denied) else 0,
        )

    def _judged(self, entered: Admitted, error: KfmError, nodes: RecordedNodes) -> RetryState:
        kernel, run = self._kernel, entered.run
        now_ms = kernel.store.now_ms()
        state = judged(
            run,
            error,
            kernel.store.retry_state(run.run_id),
            idempotent=self.subject.source.idempotent,
            acted=nodes.acted,
            automatic=self._automatic,
            now_ms=now_ms,
            unit_random=kernel.rng.unit(),
            next_run_ms=next_run_ms(kernel, run),
            lasts_ms=max(0, now_ms - entered.invocation.requested_at_ms),  # as long as this one took
        )
        return attended(state, approval_of(kernel.ledger, run) is not None, now_ms)

    def _fail(
        self,
        entered: Admitted,
        error: KfmError,
        gates: tuple[GateResult, ...],
        nodes: RecordedNodes,
        state: RetryState,
    ) -> Fail:
        run = entered.run
        code = "CANCELLED" if isinstance(error, Cancelled) else error.code
        kind = kind_of(error)
        nodes.stopped_looking(kind, circuit_open=has_opened(error))
        held = self._held(run, state, nodes, code, self._kernel.redact(error.message))
        ending = nodes.ending(
            lineage_ending(error),
            error_code=code,
            error_class=kind.error_class,
            error_message=self._kernel.redact(error.message),
            retryable=kind.retryable,
        )
        return Fail(
            run_id=run.run_id,
            scope=self.subject.scope,
            fence=run.fence,
            error_code=code,
            error_message=self._kernel.redact(error.message),
            invocation_id=entered.invocation.invocation_id,
            outcome="refused" if isinstance(error, Refused) else "failed",
            gates=gates,
            entries=(*self._failure_entries(run, error), *self._holding_entries(run, held)),
            pause=self._pause(error),
            retry=state,
            held=held,
            **ending,
            **nodes.unsaved(),
        )

    def _held(
        self, run: Run, state: RetryState, nodes: RecordedNodes, code: str, message: str
    ) -> QuarantineEntry | None:
        """With all that a replay needs."""
        if state.fate == "retry":
            return None
        before = [
            attempt.error_class
            for attempt in self._kernel.store.attempts(run.run_id)
            if not attempt.node and attempt.error_class
        ]
        payload_hash, inputs = nodes.payload()
        return held_run(
            run,
            state,
            payload_hash=payload_hash,
            inputs=inputs,
            error_classes=(*before, state.error_class),
            error_code=code,
            error_message=message,
        )

    def _holding_entries(self, run: Run, held: QuarantineEntry | None) -> tuple[GovernanceEntry, ...]:
        if held is None:
            return ()
        rights = self.subject.dataset.rights
        return (self.entry(held.kind, run.run_id, facts_of(held, rights.care.label if rights else None)),)

    def _failure_entries(self, run: Run, error: KfmError) -> tuple[GovernanceEntry, ...]:
        facts = {
            "dataset_id": run.dataset_id,
            "code": error.code,
            "reason": self._kernel.redact(error.message),
            "policies": self._kernel.policies.bundle_id,
        }
        if isinstance(error, Halted):
            return tuple(self.entry(kind, run.run_id, facts) for kind in ("halt", "review", "postmortem"))
        if isinstance(error, Refused):
            return (self.entry("gate-refused", run.run_id, facts),)
        return ()

    def _pause(self, error: KfmError) -> Switch | None:
        if not isinstance(error, Halted):
            return None
        return Switch(
            scope=f"dataset:{self.subject.dataset.id}",
            position="paused",
            rationale=self._kernel.redact(error.message)[:500],
            actor="kfm",
            set_at_ms=self._kernel.store.now_ms(),
        )


def failed_checks(report: ValidationReport | None) -> tuple[Check, ...]:
    return tuple(check for check in report.checks if not check.passed) if report else ()


def lineage_ending(error: KfmError) -> Ending:
    """Stopped from outside, or failed by itself?"""
    if isinstance(error, Cancelled | Refused) and not isinstance(error, ContractViolated):
        return "abort"
    return "fail"


def ending(error: KfmError) -> tuple[Outcome, str]:
    """The outcome on record, and the word that people read."""
    if isinstance(error, Busy):
        return "busy", "busy"
    if isinstance(error, Refused):
        return "refused", "blocked"
    return "failed", "failed"


def _as_error(problem: BaseException, log: RunLog, redact: Discretion) -> KfmError:
    """What went wrong, as an error of ours; the traceback of anything unexpected is in the event log."""
    if isinstance(problem, Denied):
        return refusal(problem.decision, in_flight=True)
    if isinstance(problem, PipelineFailed) and problem.__cause__ is not None:
        log.step("pipeline", "".join(traceback.format_exception(problem.__cause__)), level="error")
    if isinstance(problem, KfmError):
        return problem
    if isinstance(problem, KeyboardInterrupt):
        return Cancelled()
    if isinstance(problem, OSError):
        place = f" ({problem.filename})" if problem.filename else ""
        return BackendUnavailable(f"{problem.strerror or problem}{place}.")
    log.step(log.phase, "".join(traceback.format_exception(problem)), level="error")
    return WorkFailed(f"{type(problem).__name__}: {redact(str(problem))}")
