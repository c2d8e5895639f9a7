"""Outcomes of runs: what is recorded and reported; failures: retry, quarantine, what dead processes left."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec.structs import replace

from kfm.calls.guard import classify_call
from kfm.calls.runtime import handed_up
from kfm.model.admission import SWITCH_MS, settlement
from kfm.model.approvals import is_for_one_attempt
from kfm.model.errors import (
    BackendUnavailable,
    Busy,
    Cancelled,
    CircuitOpen,
    ContractViolated,
    Halted,
    KfmError,
    LostLease,
    NotPublishedTogether,
    PipelineFailed,
    PlanDrifted,
    Refused,
    SwitchThrown,
    WaitsUntil,
    WorkFailed,
    code_on_record,
)
from kfm.model.gates import GateDecision, refusal
from kfm.model.next_steps import NextStep
from kfm.model.quantities import counted, moment
from kfm.model.quarantine import QuarantineEntry, RetryState, facts_of, held_run
from kfm.model.records import Check, GateResult, GovernanceEntry, Record, Run, Switch, ValidationReport
from kfm.model.redaction import Discretion
from kfm.model.requests import TOGETHER, PutOff, Settlement
from kfm.model.retry import (
    CAUSES_MAX,
    UNKNOWN,
    Classification,
    classify,
    classify_exception,
    failure_of,
)
from kfm.model.retry_budgets import (
    DEFAULTS,
    REAPED,
    RetryLimits,
    attended,
    given_up,
    grant_usage,
    judge,
    limits_of,
    prospect,
    tied,
)
from kfm.model.runs import Ending, Fail, Reaped
from kfm.model.times import rfc3339
from kfm.ports import Liveness
from kfm.reports.next_steps import step_of_run
from kfm.runs.admission import Admitted, trigger_entry
from kfm.runs.artifacts import RunLog
from kfm.runs.gates import approval_of
from kfm.runs.kernel import Kernel, Outcome, RunReport
from kfm.runs.nodes import RecordedNodes
from kfm.runs.subjects import RunSubject, Start
from kfm.runs.target_updates import project
from kfm.system import os_trouble

if TYPE_CHECKING:
    from kfm.db.ledger import Ledger


class Denied(Exception):
    """The gates refused the promotion."""

    def __init__(self, decision: GateDecision, report: ValidationReport | None = None) -> None:
        super().__init__()
        self.decision = decision
        self.failed_checks = failed_checks(report)
        self.checks_made = len(report.checks) if report else 0


class RunOutcomes:
    """Records and reports the outcome of one invocation."""

    def __init__(self, kernel: Kernel, subject: RunSubject, start: Start) -> None:
        self._kernel = kernel
        self.subject = subject
        self._start = start
        self.keeps_lock = False  # others go on under it, if this one fails
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
        if run is None or not failed:
            return None
        return step_of_run(store, run, store.now_ms(), self._kernel.settings)

    def projected(self, report: RunReport) -> RunReport:
        """The report of an invocation, after its dataset's targets were brought up to date."""
        shown = tuple(project(self._kernel, self.subject.dataset.id))
        return replace(
            report, projections=shown, duration_ms=self._kernel.clock.monotonic_ms() - self._started_ms
        )

    def head_sequence(self) -> int | None:
        newest = self._kernel.ledger.promotions(self.subject.dataset.id, 1)
        return newest[0].sequence if newest else None

    # --- what is written down --------------------------------------------------------

    def entry(self, kind: str, about: str, details: Mapping[str, object]) -> GovernanceEntry:
        return trigger_entry(self.subject.trigger, kind, about, self._kernel.store.now_ms(), details)

    def failed(
        self, entered: Admitted, problem: BaseException, log: RunLog, nodes: RecordedNodes
    ) -> RunReport:
        """End the run without a promotion, unless it turns out to have been promoted after all."""
        kernel, run = self._kernel, entered.run
        error = _as_error(problem, log, kernel.redact)
        state = self._judged(entered, error, nodes)
        limits = limits_of(kernel.settings, run.source_id)
        advice = advise(run, state, kernel.store.now_ms(), limits, halted=isinstance(error, Halted))
        log.step(log.phase, error.message, level="error", code=error.code, error_class=advice.error_class)
        decided = problem.decision.results if isinstance(problem, Denied) else error.facts.get("gates", ())
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
        now_ms, (fingerprint, _) = kernel.store.now_ms(), nodes.payload()
        state = judged(
            run,
            error,
            kernel.store.retry_state(run.run_id),
            idempotent=self.subject.source.idempotent,
            acted=bool(kernel.store.acts(run.run_id)),
            automatic=self._start.is_promised,
            now_ms=now_ms,
            unit_random=kernel.rng.unit(),
            next_run_ms=next_run_ms(kernel, run),
            lasts_ms=max(0, now_ms - entered.invocation.requested_at_ms),  # as long as this one took
            fingerprint=fingerprint,
            limits=limits_of(kernel.settings, run.source_id),
        )
        state = attended(state, is_for_one_attempt(approval_of(kernel.ledger, run)), now_ms)
        if isinstance(error, NotPublishedTogether):
            return given_up(state, TOGETHER, now_ms)
        return tied(state, self._start.together is not None and not self._start.leaves_out, now_ms)

    def _fail(
        self,
        entered: Admitted,
        error: KfmError,
        gates: tuple[GateResult, ...],
        nodes: RecordedNodes,
        state: RetryState,
    ) -> Fail:
        run = entered.run
        code = code_on_record(error)
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
            settle=self._settlement(error, state),
            cancels=self._cancels(entered, error, state),
            keeps_lock=self.keeps_lock,
            **ending,
            **nodes.unsaved(),
        )

    def _settlement(self, error: KfmError, state: RetryState) -> Settlement:
        """What becomes of the requests of the run."""
        reason, now_ms = self._kernel.redact(error.message), self._kernel.store.now_ms()
        if isinstance(error, SwitchThrown) and self._start.request is not None:
            return PutOff(not_before_ms=now_ms + SWITCH_MS, blocked_by="switch", reason=reason)
        if isinstance(error, Cancelled) and state.reason == "stopped":  # others that asked for it still do
            return PutOff(
                not_before_ms=now_ms, blocked_by="busy", reason="Another request for it was cancelled."
            )
        provider = next(
            (each.facts.get("provider") for each in _causes(error) if isinstance(each, CircuitOpen)), None
        )
        return settlement(
            state,
            f"Not what was approved: {reason}" if isinstance(error, PlanDrifted) else reason,
            now_ms,
            outcome="refused" if isinstance(error, Refused) else "failed",
            provider=provider if isinstance(provider, str) else None,
        )

    def _cancels(self, entered: Admitted, error: KfmError, state: RetryState) -> tuple[str, str] | None:
        """The request that the attempt was for ends with it, where it was cancelled by a signal."""
        if not isinstance(error, Cancelled) or state.fate == "retry":
            return None
        return entered.request_id, self._kernel.redact(error.message)

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
    stopped = isinstance(error, Cancelled | Refused | NotPublishedTogether)
    if stopped and not isinstance(error, ContractViolated):
        return "abort"
    return "fail"


def ending(error: KfmError) -> tuple[Outcome, str]:
    """The outcome on record, and the word that people read."""
    if isinstance(error, WaitsUntil):
        return "busy", "waiting"
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
        trouble = os_trouble(problem)
        return BackendUnavailable(trouble.text, remedy=trouble.remedy)
    log.step(log.phase, "".join(traceback.format_exception(problem)), level="error")
    return WorkFailed(f"{type(problem).__name__}: {redact(str(problem))}")


STOPPED = (Cancelled, SwitchThrown, PlanDrifted, NotPublishedTogether)  # ended on purpose
CIRCUIT_OPEN = Classification(retryable=True, error_class="circuit-open")


class Advice(Record, frozen=True):
    """What happens by itself after a failure, for the person who reads it."""

    retryable: bool
    error_class: str
    attempts_left: int
    free_until: str  # the end of the budget window, UTC
    sentence: str


def kind_of(error: BaseException) -> Classification:
    """Is it worth another attempt? What an adapter saw of upstream's answer says most."""
    for each in _causes(error):
        if isinstance(each, CircuitOpen):
            return CIRCUIT_OPEN
        if (handed := handed_up(each)) is not None:  # a pipeline's own call has judged it
            return Classification(retryable=handed.retryable, error_class=handed.error_class)
        if isinstance(each, KfmError) and {"transient", "status"} & each.facts.keys():
            return classify_call(each)
        if classify(failure_of(each)) != UNKNOWN:
            break  # it speaks for itself
    return classify_exception(error)


def has_opened(error: BaseException) -> bool:
    """Was it the failure that opened a provider's circuit, or was it refused by one?"""
    return any(
        isinstance(each, CircuitOpen) or (isinstance(each, KfmError) and bool(each.facts.get("circuit_open")))
        for each in _causes(error)
    )


def judged(
    run: Run,
    error: KfmError,
    prior: RetryState | None,
    *,
    idempotent: bool,
    now_ms: int,
    unit_random: float,
    acted: bool = False,
    automatic: bool = False,
    next_run_ms: int | None = None,
    lasts_ms: int = 0,
    fingerprint: str | None = None,
    limits: RetryLimits = DEFAULTS,
) -> RetryState:
    """What becomes of a run whose attempt has just ended with this error.

    Stopping a process that makes due retries ends that process; it says nothing about its runs.
    """
    ended_with_process = automatic and isinstance(error, Cancelled)
    state = judge(
        run,
        REAPED if ended_with_process else kind_of(error),
        prior,
        now_ms=now_ms,
        unit_random=unit_random,
        asked_ms=asked_ms(error),
        idempotent=idempotent,
        counts=not any(isinstance(each, CircuitOpen | NotPublishedTogether) for each in _causes(error)),
        stopped=isinstance(error, STOPPED) and not ended_with_process,
        acted=acted,
        next_run_ms=next_run_ms,
        lasts_ms=lasts_ms,
        fingerprint=fingerprint,
        limits=limits,
    )
    return given_up(state, "drifted", now_ms) if isinstance(error, PlanDrifted) else state


def advise(
    run: Run, state: RetryState, now_ms: int, limits: RetryLimits = DEFAULTS, *, halted: bool = False
) -> Advice:
    """What happens by itself, and what is left of the budget; what a person does is the next step's.

    `halted`: the dataset waits for a review, so that no budget starts anything.
    """
    policy = limits.of(run.trigger_type)
    used = grant_usage(run, state)
    left = max(0, policy.attempts_max - used.attempts)
    ends_ms = used.since_ms + policy.budget_ms
    free = f"{counted(left, 'attempt')} {'is' if left == 1 else 'are'} free until {moment(ends_ms)}"
    if left == 0 or now_ms >= ends_ms:
        free = "the retry budget is used up"
    if halted:
        free = "no attempt begins before a second person has approved its release"
    return Advice(
        retryable=state.fate == "retry",
        error_class=state.error_class,
        attempts_left=left,
        free_until=rfc3339(ends_ms),
        sentence=f"{prospect(state, now_ms)}; {free}.",
    )


def asked_ms(error: BaseException) -> int | None:
    """How long upstream, or its breaker, wants us to stay away: a length of time, since what was told in
    another machine's time is not the ledger's."""
    for each in _causes(error):
        handed = handed_up(each)
        wait_ms = handed.wait_ms if handed is not None else None
        if wait_ms is None and isinstance(each, KfmError):
            wait_ms = each.facts.get("wait_ms")
        if isinstance(wait_ms, int):
            return wait_ms
    return None


def _causes(error: BaseException) -> list[BaseException]:
    """The error and what it was raised from."""
    found: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and len(found) < CAUSES_MAX:
        found.append(current)
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)
    return found


logger = logging.getLogger(__name__)


def sweep(store: Ledger, liveness: Liveness) -> list[Reaped]:
    """End the runs whose process is gone, so that their locks are free and their work can be resumed."""
    reaped = store.reap(liveness.is_dead)
    for each in reaped:
        why = "its lease has lapsed" if each.lapsed else "its process is gone"
        logger.info(
            "recover: run %s was interrupted (%s); %s is free again",
            each.run_id,
            why,
            each.scope,
            extra={"run_id": each.run_id, "scope": each.scope},
        )
    return reaped


def next_run_ms(kernel: Kernel, run: Run) -> int | None:
    """When the next run of the same schedule begins; None for whatever was not started by one.

    What a failed run leaves is tried with that one: its retries never overlap it.
    """
    return kernel.next_scheduled_ms(run) if run.trigger_type == "cron" else None
