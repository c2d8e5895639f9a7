"""One call of the updater, from the front door to the last projection. All control flow is here."""

from __future__ import annotations

import traceback
from collections.abc import Mapping

from kfm.admission.enter import Answered, Door, Entered, TurnedAway
from kfm.admission.subject import Subject
from kfm.core.commits import Fail, Promote
from kfm.core.errors import (
    BackendUnavailable,
    Busy,
    Cancelled,
    Halted,
    KfmError,
    LostLease,
    PlanDrifted,
    Refused,
    WorkFailed,
)
from kfm.core.gates import GateDecision, refusal
from kfm.core.records import GovernanceEntry, Run, Switch
from kfm.core.redact import redact
from kfm.engine import gating, work
from kfm.engine.artifacts import RunLog
from kfm.engine.kernel import Kernel
from kfm.engine.lease import HeldLease
from kfm.engine.preview import make_plan, trace_of
from kfm.engine.projecting import project
from kfm.engine.requests import Outcome, RunReport
from kfm.ports import Source as Upstream
from kfm.publish.manifest import diff
from kfm.publish.plan import Plan, compare
from kfm.publish.publisher import StagingPublisher
from kfm.recovery.failures import advise
from kfm.recovery.sweep import sweep

ROUNDS_MAX = 10


class Updating:
    """One request on its way through the rooms."""

    def __init__(
        self, kernel: Kernel, subject: Subject, *, force: bool, artifacts_dir: str | None, plan: Plan | None
    ):
        self._kernel = kernel
        self._subject = subject
        self._force = force
        self._artifacts_dir = artifacts_dir
        self._plan = plan
        self._started_ms = kernel.clock.monotonic_ms()
        self._upstream: Upstream | None = None
        self._discovered: work.Discovered | None = None

    # --- the way in ------------------------------------------------------------------

    def run(self) -> RunReport:
        kernel = self._kernel
        kernel.liveness.claim(kernel.worker_id)
        sweep(kernel.store, kernel.liveness, kernel.announce)
        door = Door(
            kernel.store,
            kernel.liveness,
            worker_id=kernel.worker_id,
            lease_ms=kernel.lease_ms,
            invocation_id=kernel.ids.new(),
            gates=lambda subject: gating.at_admission(kernel, subject),
            refusal=refusal,
            fingerprint=lambda: self._discover().fingerprint,
            force=self._force,
        )
        try:
            self._refuse_drift(door)
            answer = door.enter(self._subject)
        except TurnedAway as away:
            outcome, word = _ending(away.error)
            return self._report(
                outcome,
                word,
                away.error.message,
                invocation_id=away.invocation.invocation_id,
                run=away.run,
                error=away.error,
                gates=away.invocation.gates,
            )
        if isinstance(answer, Answered):
            return self._report(
                "noop",
                "unchanged",
                answer.reason,
                invocation_id=answer.invocation.invocation_id,
                run=answer.run,
                gates=answer.invocation.gates,
                version_id=answer.run.version_id,
                sequence=self._head_sequence(),
                projections=tuple(project(kernel, self._subject.dataset.id)),
            )
        self._subject = answer.subject
        return self._work(answer)

    def _refuse_drift(self, door: Door) -> None:
        """A plan that can't come true any more is refused at the door: no run, no key."""
        if self._plan is None:
            return
        planned, subject = self._plan.header, self._subject
        now = {
            "dataset's version": (planned.base_sequence, self._head_sequence() or 0),
            "pipeline": (planned.output_version, subject.work.output_version),
            "upstream's fingerprint": (planned.fingerprint, self._discover().fingerprint),
        }
        drift = [f"the {what} is {is_now}, not {was}" for what, (was, is_now) in now.items() if was != is_now]
        if drift:
            door.turn_away(subject, PlanDrifted(f"Plan made at {planned.made_at}: {'; '.join(drift)}."))

    def _head_sequence(self) -> int | None:
        head = self._kernel.ledger.head(self._subject.dataset.id)
        return head[0].sequence if head else None

    def _discover(self) -> work.Discovered:
        """Once a call: the comparison at the door and the run see the same world."""
        if self._discovered is None:
            self._discovered = work.discover(self._source(), self._subject)
        return self._discovered

    def _source(self) -> Upstream:
        if self._upstream is None:
            self._upstream = self._kernel.upstream(self._subject.source, self._subject.window)
        return self._upstream

    # --- the work --------------------------------------------------------------------

    def _work(self, entered: Entered) -> RunReport:
        kernel, run = self._kernel, entered.run
        folder = self._artifacts_dir or f"{kernel.runs_folder}/{run.run_id}/attempt-{run.fence}"
        log = RunLog(
            kernel.files,
            folder,
            kernel.clock,
            run.run_id,
            run.attempts,
            dry_run=False,
            announce=kernel.announce,
        )
        try:
            log.run_event(
                "run.start",
                trigger=entered.invocation.trigger_type,
                window=run.window_spec,
                revision=run.revision,
                reason=entered.reason,
                idempotency_key=run.idempotency_key,
                work_key=run.work_key,
            )
            report = self._attempt(entered, log)
            log.run_event("run.end", outcome=report.outcome, reason=report.reason, word=report.word)
            final = kernel.store.run(run.run_id) or run
            log.ledger_record(final, self._subject, report.outcome)
            return report
        finally:
            log.close()

    def _attempt(self, entered: Entered, log: RunLog) -> RunReport:
        kernel, run, subject = self._kernel, entered.run, self._subject

        def on_epoch() -> None:
            decision = gating.in_flight(kernel, subject)
            if not decision.allowed:
                raise refusal(decision, in_flight=True)

        lease = HeldLease(kernel, subject.scope, run.fence, entered.policy_epoch, on_epoch)
        trace = trace_of(kernel, subject, log, run, dry_run=False)
        publisher = StagingPublisher(kernel.objects, trace, limits=kernel.settings.limits)
        try:
            with lease.beating():
                log.step("discover", subject.source.id)
                discovered = self._discover()
                lease.check()
                prepared = work.prepare(
                    kernel, subject, self._source(), discovered, kernel.objects, publisher, log, lease.check
                )
                log.step("promote", f"{subject.dataset.id} by run {run.run_id}", fence=run.fence)
                report = self._promote(entered, prepared)
        except KeyboardInterrupt:
            return self._failed(entered, Cancelled(), log)
        except KfmError as error:
            return self._failed(entered, error, log)
        except OSError as error:
            return self._failed(entered, BackendUnavailable(f"{error.strerror or error}."), log)
        except Exception as error:  # noqa: BLE001 - a defect of ours or of a plugin: the run fails, told once
            log.step(log.phase, "".join(traceback.format_exception(error)), level="error")
            return self._failed(entered, WorkFailed(f"{type(error).__name__}: {redact(str(error))}"), log)
        finally:
            publisher.close()
        log.step("project", f"version {report.sequence}")
        return self._with(report, projections=tuple(project(kernel, subject.dataset.id)))

    # --- the way out -----------------------------------------------------------------

    def _promote(self, entered: Entered, prepared: work.Prepared) -> RunReport:
        kernel, subject, run = self._kernel, self._subject, entered.run
        for _ in range(ROUNDS_MAX):
            # In this order: a switch thrown after the epoch was read moves the epoch.
            epoch = kernel.store.policy_epoch()
            head = kernel.store.head(subject.dataset.id)
            decision = gating.at_promotion(kernel, subject, prepared.report)
            if not decision.allowed:
                raise _Denied(decision)
            gates = (*entered.invocation.gates, *decision.results)
            self._require_plan(prepared, head, gates)
            manifest, version = work.merged(prepared, head, subject)
            answer = kernel.store.promote(
                Promote(
                    run_id=run.run_id,
                    dataset_id=subject.dataset.id,
                    scope=subject.scope,
                    fence=run.fence,
                    policy_epoch=epoch,
                    base_sequence=head[0].sequence if head else 0,
                    fingerprint=prepared.fingerprint,
                    version_id=version,
                    manifest=manifest,
                    invocation_id=entered.invocation.invocation_id,
                    reason=entered.reason,
                    gates=gates,
                    entries=self._promotion_entries(run, version) if manifest is not None else (),
                    states=tuple((state.state_key, state.value) for state in prepared.staged.states),
                    events=tuple((event.event_type, event.payload) for event in prepared.staged.events),
                )
            )
            if answer.answer == "lost":
                raise LostLease(f"{subject.scope} has passed to another run.")
            if answer.answer in ("promoted", "unchanged"):
                changed = answer.answer == "promoted"
                reason = entered.reason if prepared.item else "Upstream has nothing for this window."
                return self._report(
                    "success",
                    "published" if changed else "unchanged",
                    reason,
                    invocation_id=entered.invocation.invocation_id,
                    run=kernel.store.run(run.run_id),
                    gates=gates,
                    changes=tuple(diff(head[1] if head else None, manifest)) if manifest else (),
                    version_id=version or None,
                    sequence=answer.sequence or None,
                )
        raise Busy("Policies or the head kept changing while this run was being promoted.")

    def _require_plan(self, prepared: work.Prepared, head: work.Head, gates: tuple[object, ...]) -> None:
        if self._plan is None:
            return
        actual = make_plan(self._kernel, self._subject, prepared, head, gates)  # type: ignore[arg-type]
        drift = compare(self._plan, actual)
        if drift:
            raise PlanDrifted("; ".join(drift) + ".")

    def _promotion_entries(self, run: Run, version: str) -> tuple[GovernanceEntry, ...]:
        facts = {
            "dataset_id": run.dataset_id,
            "version_id": version,
            "policies": self._kernel.policies.bundle_id,
        }
        return (self._entry("promotion", run.run_id, facts),)

    def _failed(self, entered: Entered, error: KfmError, log: RunLog) -> RunReport:
        kernel, run, subject = self._kernel, entered.run, self._subject
        decision = error.decision if isinstance(error, _Denied) else None
        if isinstance(error, _Denied):
            error = refusal(error.decision, in_flight=True)
        advice = advise(run, error, kernel.store.now_ms())
        log.step(log.phase, error.message, level="error", code=error.code, error_class=advice.error_class)
        gates = (*entered.invocation.gates, *(decision.results if decision else ()))
        if not isinstance(error, LostLease):
            landed = kernel.store.fail(
                Fail(
                    run_id=run.run_id,
                    scope=subject.scope,
                    fence=run.fence,
                    error_code="CANCELLED" if isinstance(error, Cancelled) else error.code,
                    error_message=redact(error.message),
                    invocation_id=entered.invocation.invocation_id,
                    outcome="refused" if isinstance(error, Refused) else "failed",
                    gates=gates,
                    entries=self._failure_entries(run, error),
                    pause=self._pause(error),
                )
            )
            stored = kernel.store.run(run.run_id)
            if not landed and stored is not None and stored.status == "success" and stored.fence == run.fence:
                # The promotion had been committed before its answer was lost.
                return self._report(
                    "success",
                    "published",
                    entered.reason,
                    invocation_id=entered.invocation.invocation_id,
                    run=stored,
                    version_id=stored.version_id,
                    sequence=self._head_sequence(),
                    projections=tuple(project(kernel, subject.dataset.id)),
                )
        outcome, word = _ending(error)
        return self._report(
            outcome,
            word,
            error.message,
            invocation_id=entered.invocation.invocation_id,
            run=kernel.store.run(run.run_id),
            error=error,
            advice=None if isinstance(error, LostLease) else advice.sentence,
            gates=gates,
        )

    def _failure_entries(self, run: Run, error: KfmError) -> tuple[GovernanceEntry, ...]:
        facts = {"dataset_id": run.dataset_id, "code": error.code, "reason": redact(error.message)}
        if isinstance(error, Halted):
            return tuple(self._entry(kind, run.run_id, facts) for kind in ("halt", "review", "postmortem"))
        if isinstance(error, Refused):
            return (self._entry("gate-refused", run.run_id, facts),)
        return ()

    def _pause(self, error: KfmError) -> Switch | None:
        if not isinstance(error, Halted):
            return None
        return Switch(
            scope=f"dataset:{self._subject.dataset.id}",
            position="paused",
            rationale=redact(error.message)[:500],
            actor="kfm",
            set_at_ms=self._kernel.store.now_ms(),
        )

    def _entry(self, kind: str, about: str, details: Mapping[str, object]) -> GovernanceEntry:
        trigger = self._subject.trigger
        return GovernanceEntry(
            kind=kind,
            subject=about,
            actor=trigger.actor,
            recorded_at_ms=self._kernel.store.now_ms(),
            rationale=trigger.rationale,
            ticket=trigger.ticket,
            details=dict(details),
        )

    def _report(self, outcome: Outcome, word: str, reason: str, **more: object) -> RunReport:
        subject = self._subject
        return RunReport(
            outcome=outcome,
            word=word,
            reason=reason,
            source_id=subject.source.id,
            dataset_id=subject.dataset.id,
            window_start_ms=subject.window.start_ms,
            window_end_ms=subject.window.end_ms,
            duration_ms=self._kernel.clock.monotonic_ms() - self._started_ms,
            **more,  # type: ignore[arg-type]
        )

    def _with(self, report: RunReport, **more: object) -> RunReport:
        from msgspec.structs import replace

        duration_ms = self._kernel.clock.monotonic_ms() - self._started_ms
        return replace(report, duration_ms=duration_ms, **more)


def _ending(error: KfmError) -> tuple[Outcome, str]:
    """The outcome on record, and the word that people read."""
    if isinstance(error, Busy):
        return "busy", "busy"
    if isinstance(error, Refused):
        return "refused", "blocked"
    return "failed", "failed"


class _Denied(KfmError):
    """The gates at promotion said no."""

    def __init__(self, decision: GateDecision) -> None:
        super().__init__()
        self.decision = decision
