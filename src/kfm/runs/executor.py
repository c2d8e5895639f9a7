"""The run executor: one invocation from admission to the targets. All control flow is here."""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Literal

from msgspec.structs import replace

from kfm.calls.runtime import HERE
from kfm.model.derived import missing_of, not_there_yet
from kfm.model.errors import Busy, Cancelled, DataWithdrawn, KfmError, LostLease, PlanDrifted
from kfm.model.records import GateResult, GovernanceEntry, Run
from kfm.model.retry_budgets import budget_ends_ms, limits_of
from kfm.model.run_state import Fence
from kfm.model.runs import PinnedInputs, Promote, PromoteResult
from kfm.model.settings import NotYet
from kfm.model.times import parse_rfc3339
from kfm.periodic import HeldLease
from kfm.ports import Source as Upstream
from kfm.ports import TelemetrySpan
from kfm.publish.manifest import VersionChange, diff
from kfm.publish.publisher import StagingPublisher, Trace
from kfm.runs import plan as plans
from kfm.runs import preparation
from kfm.runs.admission import Admission, Admitted, AlreadyDone, NotAdmitted, Proposal
from kfm.runs.artifacts import RunLog
from kfm.runs.gates import at_promotion, is_rewindowed, window_length
from kfm.runs.kernel import Kernel, RunReport
from kfm.runs.lease import hold
from kfm.runs.nodes import RecordedNodes
from kfm.runs.observers import RunObserver
from kfm.runs.outcome import Denied, RunOutcomes, ending, sweep
from kfm.runs.plan import compare
from kfm.runs.preview import make_plan, trace_of
from kfm.runs.retry import judge_reaped
from kfm.runs.subjects import RunSubject, Start, as_configured

if TYPE_CHECKING:
    from kfm.model.versions import Version

ROUNDS_MAX = 10
NOTHING = {
    "empty": "There is nothing for this window: upstream or the pipeline says so.",
    "absent": "Upstream has no data for this window; it stays expected.",
}
logger = logging.getLogger(__name__)


class RunAtWork:
    """An admitted run with what its attempt is made with."""

    def __init__(self, entered: Admitted, log: RunLog, nodes: RecordedNodes) -> None:
        self.entered = entered
        self.log = log
        self.nodes = nodes
        self.publisher: StagingPublisher | None = None

    @property
    def run_id(self) -> str:
        return self.entered.run.run_id

    @property
    def fence(self) -> int:
        return self.entered.run.fence


class RunExecutor:
    """Executes one request: admission, work, promotion, targets."""

    def __init__(
        self,
        kernel: Kernel,
        subject: RunSubject,
        start: Start,
    ) -> None:
        self._kernel = kernel
        self._subject = subject
        self._start = start
        self._plan = start.plan
        self._end = RunOutcomes(kernel, subject, start)
        self._watch = RunObserver(kernel, subject)
        self._upstream: Upstream | None = None
        self._discovered: preparation.Discovered | None = None
        self._undiscovered: KfmError | None = None  # why not
        self._trace: Trace | None = None  # of the attempt

    # --- admission -------------------------------------------------------------------

    def run(self) -> RunReport:
        try:
            report = self._answer()
        finally:
            if self._kernel.providers is not None:
                self._kernel.providers.give_back()
        return self.answered(report)

    def answered(self, report: RunReport) -> RunReport:
        self._watch.answered(self._subject.trigger.type, report.outcome)
        return report

    def _answer(self) -> RunReport:
        recover(self._kernel)
        admission = self.admission()
        try:
            self._refuse_drift(admission)
            answer = admission.admit(self._subject)
        except NotAdmitted as refused:
            return self.not_admitted(refused)
        if isinstance(answer, AlreadyDone):
            return self._end.projected(self.already_done(answer))
        with self.watched(answer) as span:
            return noted(span, self._work(answer))

    def admission(self) -> Admission:
        return Admission(
            self._kernel,
            fingerprint=lambda: self._discover().fingerprint,
            start=self._start,
            not_yet=self._not_yet,
        )

    def propose(self, admission: Admission) -> Proposal | AlreadyDone:
        """Whether its run may begin; NotAdmitted: it may not."""
        return admission.propose(self._subject)

    def watched(self, entered: Admitted) -> AbstractContextManager[TelemetrySpan]:
        """The span of the run."""
        return self._watch.run(entered.run, entered.invocation.trigger_type)

    def not_admitted(self, refused: NotAdmitted) -> RunReport:
        return self._end.report(
            *ending(refused.error),
            self._kernel.redact(refused.error.message),
            invocation_id=refused.invocation.invocation_id if refused.invocation else None,
            run=refused.run,
            error=refused.error,
            next_step=self._end.next_step(refused.run),
            gates=refused.invocation.gates if refused.invocation else (),
            decision=refused.decision,
        )

    def already_done(self, answer: AlreadyDone) -> RunReport:
        return self._end.report(
            "noop",
            "unchanged",
            answer.reason,
            invocation_id=answer.invocation.invocation_id,
            run=answer.run,
            gates=answer.invocation.gates,
            version_id=answer.run.version_id,
            sequence=self._end.head_sequence(),
        )

    def _refuse_drift(self, admission: Admission) -> None:
        """A plan that can't come true any more is refused at admission: no run, no key. Not while a run of it
        is under way, which may have been what makes it come true."""
        if self._plan is None:
            return
        planned, subject = self._plan.header, self._subject
        latest = self._kernel.ledger.latest_run(subject.work_base)
        if latest is not None and latest.status == "running":
            return
        now = {
            "dataset's version": (planned.base_sequence, self._end.head_sequence() or 0),
            "pipeline": (planned.output_version, subject.work.output_version),
            "upstream's fingerprint": (planned.fingerprint, self._discover().fingerprint),
        }
        drift = [f"the {what} is {is_now}, not {was}" for what, (was, is_now) in now.items() if was != is_now]
        described = as_configured(self._kernel, subject) or subject
        if moved := plans.other_targets(planned, self._kernel.reached(described.dataset)):
            drift.append(moved)
        if drift:
            admission.refuse(subject, PlanDrifted(f"Plan made at {planned.made_at}: {'; '.join(drift)}."))

    def _discover(self) -> preparation.Discovered:
        """Once an invocation: admission compares with what the run then fetches."""
        if self._undiscovered is not None:  # the run that is admitted fails with it
            raise self._undiscovered
        if self._discovered is None:
            self._discovered = preparation.discover(self._source(), self._subject)
        return self._discovered

    def _not_yet(self) -> tuple[NotYet, int] | None:
        """Upstream's answer, if it means that the data has not come yet, and until when it is asked for."""
        kernel, subject = self._kernel, self._subject
        try:
            answer = preparation.not_yet_in(self._discover(), subject, kernel.ledger)
        except KfmError as error:
            answer = preparation.not_yet_of(error, subject)
            self._undiscovered = error if answer is None else None
        return None if answer is None else (answer, preparation.asked_until(kernel, subject))

    def _source(self) -> Upstream:
        if self._upstream is None:
            self._upstream = self._kernel.upstream(self._subject.source, self._subject.window)
        return self._upstream

    # --- the work --------------------------------------------------------------------

    def _work(self, entered: Admitted) -> RunReport:
        """The admitted run: whatever happens, it gets an end."""
        work = self.take_on(entered)
        try:
            self.begin(work)
            report = self._attempt(work)
        except (Exception, KeyboardInterrupt) as problem:  # noqa: BLE001 - reported once, where the run ends
            report = self.failed(work, problem)
        return self.end(work, report)

    def take_on(self, entered: Admitted) -> RunAtWork:
        """What an attempt at this run is made with."""
        self._subject = self._end.subject = entered.subject
        return RunAtWork(entered, self._log(entered, None), self._nodes(entered))

    def begin(self, work: RunAtWork) -> None:
        """The attempt begins: its artifacts say with what."""
        kernel, entered = self._kernel, work.entered
        run = entered.run
        kernel.observe_retries(work.nodes.retried)
        folder = self._start.artifacts_dir or f"{kernel.runs_folder}/{run.run_id}/attempt-{run.attempts}"
        work.log = self._log(entered, folder)
        work.log.run_event(
            "run.start",
            trigger=entered.invocation.trigger_type,
            window=run.window_spec,
            revision=run.revision,
            reason=entered.reason,
            idempotency_key=run.idempotency_key,
            work_key=run.work_key,
        )

    def failed(self, work: RunAtWork, problem: BaseException) -> RunReport:
        """End the run without a promotion, unless it turns out to have been promoted after all."""
        try:
            report = self._end.failed(work.entered, problem, work.log, work.nodes)
        except BaseException:  # it gets no end from us
            self._let_go(work)
            raise
        if report.outcome == "success":  # the promotion's answer had been lost
            self._trace_promotion(report)
            self._trace_targets(report)
        return report

    def _let_go(self, work: RunAtWork) -> None:
        self._kernel.observe_retries(None)
        if work.publisher is not None:
            work.publisher.close()
        work.nodes.close()

    def keep_lock(self, keeps: bool) -> None:
        """Whether others go on under its lock, should it fail."""
        self._end.keeps_lock = keeps

    def end(self, work: RunAtWork, report: RunReport) -> RunReport:
        """The attempt is over: its artifacts say how."""
        kernel, run, log = self._kernel, work.entered.run, work.log
        self._let_go(work)
        try:
            log.run_event("run.end", outcome=report.outcome, reason=report.reason, word=report.word)
            if not isinstance(report.error, LostLease):  # then the folder may be the successor's, too
                stored = kernel.store.run(run.run_id) or run
                log.ledger_record(stored, work.entered.known.key_documents, report.outcome)
        except OSError as error:
            # The ledger has it; that the copy beside it can't be written changes nothing.
            logger.warning("artifacts: %s", error)
        finally:
            log.close()
        return replace(report, artifacts_dir=log.folder)

    def _log(self, entered: Admitted, folder: str | None) -> RunLog:
        kernel, run = self._kernel, entered.run
        return RunLog(
            kernel.files,
            folder,
            kernel.clock,
            run.run_id,
            run.attempts,
            dry_run=False,
            redact=kernel.redact,
            dataset_id=run.dataset_id,
            source_id=run.source_id,
        )

    def _nodes(self, entered: Admitted) -> RecordedNodes:
        known = replace(entered.known, invocation=entered.invocation, code=preparation.code_of(self._subject))
        kernel, run = self._kernel, entered.run
        # Of a first attempt nothing is on record yet.
        state = kernel.store.retry_state(run.run_id) if run.attempts > 1 else None
        limit_ms = kernel.store.now_ms() + kernel.run_ms(self._subject.source)
        return RecordedNodes(
            kernel,
            run,
            entered.invocation,
            known,
            self._watch,
            budget_ends_ms=min(
                budget_ends_ms(run, state, limits_of(kernel.settings, run.source_id)), limit_ms
            ),
            acts_as=f"pipeline {self._subject.source.pipeline}" if self._acts() else None,
        )

    def _acts(self) -> bool:
        """Does the pipeline as a whole do what must not be repeated?"""
        return bool(self._subject.source.pipeline) and not self._subject.source.idempotent

    def _attempt(self, work: RunAtWork) -> RunReport:
        lease = hold(self._kernel, self._subject, work.entered.run, work.entered.policy_epoch)
        with lease.beating(), HERE.stopped_by(lease.check):
            prepared = self.prepare(work, lease)
            work.log.step("promote", f"{self._subject.dataset.id} by run {work.run_id}", fence=work.fence)
            report = self._promote(work, prepared)
        assert work.publisher is not None
        work.publisher.close()
        return self.shown(work, self._end.projected(report))

    def prepare(self, work: RunAtWork, lease: HeldLease) -> preparation.PreparedVersion:
        """All that comes before the promotion."""
        kernel, run, subject = self._kernel, work.entered.run, self._subject
        self._trace = trace = trace_of(kernel, subject, work.log, run, dry_run=False)
        work.publisher = StagingPublisher(
            kernel.objects,
            trace,
            limits=kernel.settings.limits,
            leaks=kernel.redact.leaks,
            check=lease.check,
        )
        work.nodes.begin("fetch")
        work.log.step("discover", subject.source.id)
        discovered = self._discover()
        work.nodes.discovered(discovered.fingerprint, discovered.found)
        lease.check()
        prepared = preparation.prepare(
            kernel,
            subject,
            self._source(),
            discovered,
            kernel.objects,
            work.publisher,
            work.log,
            lease.check,
            work.nodes,
            run_id=run.run_id,
            arrived_ms=self._arrived_ms(run),
            fence=Fence(subject.scope, run.fence),
        )
        work.nodes.begin("publish", prepared.fingerprint)
        return prepared

    def shown(self, work: RunAtWork, report: RunReport) -> RunReport:
        """The targets were brought up to date."""
        work.log.step("project", f"version {report.sequence}")
        self._trace_targets(report)
        return report

    def _arrived_ms(self, run: Run) -> int:
        """When upstream was seen first: by the plan that binds this run, or by its first attempt."""
        return run.start_time_ms if self._plan is None else parse_rfc3339(self._plan.header.made_at)

    def _trace_promotion(self, report: RunReport) -> None:
        if self._trace is not None:
            made = report.word == "published" and report.version_id is not None
            facts = {"sequence": report.sequence, "version_id": report.version_id} if made else {}
            self._trace.record("promote", "promoted" if made else "unchanged", **facts)

    def _trace_targets(self, report: RunReport) -> None:
        for one in report.projections if self._trace is not None else ():
            assert self._trace is not None
            failed = {} if one.error is None else {"error_code": one.error["code"]}
            outcome: Literal["shown", "failed"] = "failed" if failed else "shown"
            self._trace.record("project", outcome, target=one.target, sequence=one.sequence, **failed)

    def _promote(self, work: RunAtWork, prepared: preparation.PreparedVersion) -> RunReport:
        kernel, subject = self._kernel, self._subject
        for _ in range(ROUNDS_MAX):
            # In this order: a switch thrown after the epoch was read moves the epoch.
            epoch = kernel.store.policy_epoch()
            head = kernel.store.head(subject.dataset.id)
            described = as_configured(kernel, subject) or subject  # the gates refuse what is gone
            gates = self.gates(work, prepared)
            self._require_plan(work.entered, described, prepared, head, gates)
            version, version_id = preparation.merged(
                [prepared], head, described, rewindowed=is_rewindowed(kernel.ledger, subject.source)
            )
            if version is not None:
                preparation.require_objects(version, head, kernel.objects)
            request = self.promotion(work, prepared, gates, epoch, head, version, version_id)
            answer = kernel.store.promote(request)
            self.require_landed(work, answer)
            if answer.answer in ("promoted", "unchanged"):
                changes = diff(head[1] if head else None, version) if version is not None else ()
                return self.promoted(work, prepared, request, answer, tuple(changes))
        raise Busy("Policies or the head kept changing while this run was being promoted.")

    def gates(self, work: RunAtWork, prepared: preparation.PreparedVersion) -> tuple[GateResult, ...]:
        """What the gates of admission and promotion say; Denied if one refuses."""
        decision = at_promotion(
            self._kernel, self._subject, prepared.report, run=work.entered.run, request=self._start.request
        )
        if not decision.allowed:
            raise Denied(decision, prepared.report)
        return (*work.entered.invocation.gates, *decision.results)

    def promotion(
        self,
        work: RunAtWork,
        prepared: preparation.PreparedVersion,
        gates: tuple[GateResult, ...],
        epoch: int,
        head: preparation.Head,
        version: Version | None,
        version_id: str,
    ) -> Promote:
        """The run's part in the transaction."""
        subject, entered, nodes = self._subject, work.entered, work.nodes
        nodes.decided(gates)
        nodes.learn(outputs=prepared.staged.assets, version_id=version_id or None)
        return Promote(
            run_id=entered.run.run_id,
            dataset_id=subject.dataset.id,
            scope=subject.scope,
            fence=entered.run.fence,
            policy_epoch=epoch,
            base_sequence=head[0].sequence if head else 0,
            fingerprint=prepared.fingerprint,
            version_id=version_id,
            version=version,
            invocation_id=entered.invocation.invocation_id,
            reason=NOTHING.get(prepared.found, entered.reason),
            reason_code=entered.invocation.reason_code,
            gates=gates,
            entries=(self.entry("promotion", entered, version_id),) if version is not None else (),
            states=tuple((state.state_key, state.value) for state in prepared.staged.states),
            events=tuple((event.event_type, event.payload) for event in prepared.staged.events),
            branch=prepared.branch,
            request_id=entered.request_id,
            inputs=_inputs_of(prepared),
            found=prepared.found,
            window_length=window_length(subject.source) if version is not None else None,
            **nodes.ending("complete"),
        )

    def require_landed(self, work: RunAtWork, answer: PromoteResult) -> None:
        """Raise where a promotion can't be tried once more."""
        subject = self._subject
        if answer.answer == "cancelled":
            raise Cancelled(self._kernel.store.cancelled(work.run_id) or "Its request was cancelled.")
        if answer.answer == "rewindowed":
            raise Busy(f"The windows of {subject.source.id} got another length meanwhile.")
        if answer.answer == "withdrawn":
            raise DataWithdrawn(f"{subject.dataset.id}: what this run would publish was withdrawn.")
        if answer.answer == "lost":
            raise LostLease(f"{subject.scope} has passed to another run.")

    def promoted(
        self,
        work: RunAtWork,
        prepared: preparation.PreparedVersion,
        request: Promote,
        answer: PromoteResult,
        changes: tuple[VersionChange, ...],
    ) -> RunReport:
        entered, reason = work.entered, self._nothing(prepared) or work.entered.reason
        if prepared.found == "data" and request.version is None:
            reason += " The outcome is what is published already."
        report = self._end.report(
            "success",
            "published" if request.version is not None else "unchanged",
            reason,
            invocation_id=entered.invocation.invocation_id,
            run=self._kernel.store.run(work.run_id),
            gates=request.gates,
            changes=changes,
            version_id=request.version_id or None,
            sequence=answer.sequence or None,
        )
        self._trace_promotion(report)
        return report

    def _nothing(self, prepared: preparation.PreparedVersion) -> str | None:
        """Why nothing was published, if so."""
        if missing_of(prepared.pins):
            return not_there_yet(prepared.pins, (self._subject.window.start_ms, self._subject.window.end_ms))
        return NOTHING.get(prepared.found)

    def _require_plan(
        self,
        entered: Admitted,
        subject: RunSubject,
        prepared: preparation.PreparedVersion,
        head: preparation.Head,
        gates: tuple[GateResult, ...],
    ) -> None:
        """What is promoted is what was approved; what a webhook changes is kept before it is changed."""
        requests, run_id = self._kernel.store.requests(), entered.run.run_id
        kept = any(one.kind == "webhook" for one in requests.of_run(run_id))
        if self._plan is None and not kept:
            return
        actual = make_plan(self._kernel, subject, prepared, head, gates)
        drift = compare(self._plan, actual) if self._plan is not None else []
        if drift:
            raise PlanDrifted("; ".join(drift) + ".")
        if kept:
            text = plans.write(actual).decode()
            requests.keep_preview(entered.request_id, run_id, (actual.header.digest, text))

    def entry(self, kind: str, entered: Admitted, version: str, **more: object) -> GovernanceEntry:
        facts = {
            "dataset_id": entered.run.dataset_id,
            "version_id": version,
            "policies": self._kernel.policies.bundle_id,
            **more,
        }
        return self._end.entry(kind, entered.run.run_id, facts)


def _inputs_of(prepared: preparation.PreparedVersion) -> PinnedInputs | None:
    return PinnedInputs(pins=prepared.pins, published=prepared.item is not None) if prepared.pins else None


def recover(kernel: Kernel) -> None:
    """Before anything begins: what dead processes left is ended and decided about; the policies are kept."""
    kernel.liveness.claim(kernel.worker_id)
    sweep(kernel.store, kernel.liveness)
    if kernel.ledger.policy_texts(kernel.policies.bundle_id) is None:
        kernel.store.keep_policies(kernel.policies.bundle_id, kernel.policies.texts)
    judge_reaped(kernel)


def noted(span: TelemetrySpan, report: RunReport) -> RunReport:
    """The span of a run tells how it ended."""
    endings = {"success": "complete", "failed": "fail"}
    span.note(outcome=endings.get(report.outcome, "abort"))
    if report.error is not None:
        span.note(error_type=report.error.code)
    return report
