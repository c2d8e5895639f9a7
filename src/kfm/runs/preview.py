"""Previews (dry-runs): the same decisions and the same work, with no writer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kfm import __version__
from kfm.model.admission import StartDecision, may_start
from kfm.model.arrival import not_yet_error
from kfm.model.errors import KfmError
from kfm.model.gates import GateDecision, refusal
from kfm.model.records import GateResult, Item, Promotion, Run
from kfm.model.windows import SNAPSHOT
from kfm.ports import Source as Upstream
from kfm.publish.manifest import merge_items
from kfm.publish.publisher import NoopPublisher, Trace
from kfm.runs import plan as plans
from kfm.runs import preparation
from kfm.runs.admission import compared, error_of, facts_of_run, may_be_to_come
from kfm.runs.artifacts import RunLog, fresh_file
from kfm.runs.gates import at_admission, at_promotion, is_rewindowed
from kfm.runs.kernel import Kernel, RunReport
from kfm.runs.nodes import Unrecorded
from kfm.runs.outcome import ending, failed_checks
from kfm.runs.subjects import RunSubject, Start, asked_for, forced, key_documents

if TYPE_CHECKING:
    from kfm.model.versions import Version


def preview(kernel: Kernel, subject: RunSubject, start: Start) -> RunReport:
    """What would happen now, and what would be published."""
    if start.force:
        subject = forced(subject, kernel.ledger.forces(subject.work_base) + 1)
    preview = _Preview(kernel, subject, start)
    try:
        return preview.run()
    finally:
        preview.close()


class _Preview:
    """One dry-run: decided as an admission decides, made as a run makes it."""

    def __init__(self, kernel: Kernel, subject: RunSubject, start: Start) -> None:
        self._kernel, self._subject, self._start = kernel, subject, start
        self._started_ms = kernel.clock.monotonic_ms()
        self._gates = at_admission(kernel, subject, request=start.request, dry_run=True, assume=start.assume)
        self._asked, self._seen = asked_for(subject, start), kernel.ledger.latest_run(subject.work_base)
        self._known = facts_of_run(kernel, subject, self._seen, self._gates)
        self._decision = self._decided()
        self._run = self._seen or subject.new_run(self._decision.revision, kernel.clock.now_ms())
        self._head = kernel.ledger.head(subject.dataset.id)
        self._documents = key_documents(kernel.ledger, subject, self._run.revision, self._seen)
        self._upstream: Upstream | None = None
        self._discovered: preparation.Discovered | None = None
        self._log = RunLog(
            kernel.files,
            start.artifacts_dir,
            kernel.clock,
            self._run.run_id,
            self._run.attempts,
            dry_run=True,
            redact=kernel.redact,
            dataset_id=self._run.dataset_id,
            source_id=self._run.source_id,
        )

    def close(self) -> None:
        self._log.close()

    def run(self) -> RunReport:
        subject, decision = self._subject, self._decision
        self._log.run_event(
            "run.start", trigger=subject.trigger.type, window=subject.window.spec, verdict=decision.kind
        )
        self._upstream = self._kernel.upstream(subject.source, subject.window)
        if decision.kind in ("admitted", "compare") and may_be_to_come(subject, self._seen):
            not_yet = self._not_yet()
            if not_yet is not None:
                return self._ended_by(not_yet)
        if decision.kind == "compare" and self._seen is not None:
            fingerprint = self._upstream_now().fingerprint
            self._known = compared(self._kernel.ledger, subject, self._seen, self._known, fingerprint)
            decision = self._decision = self._decided()
        if decision.kind == "duplicate":
            return self._report("noop", "unchanged", decision.reason, gates=self._gates.results)
        if decision.kind in ("refused", "waits"):
            return self._ended_by(error_of(decision, self._gates, lambda: ""), decision=decision)
        if not self._gates.allowed:  # also of work that is under way, which was admitted before
            return self._ended_by(refusal(self._gates), decision=decision)
        return self._planned()

    def _decided(self) -> StartDecision:
        return may_start(self._asked, self._seen, self._known, self._kernel.ledger.now_ms())

    def _upstream_now(self) -> preparation.Discovered:
        """What upstream has, asked once."""
        assert self._upstream is not None
        self._discovered = self._discovered or preparation.discover(self._upstream, self._subject)
        return self._discovered

    def _not_yet(self) -> KfmError | None:
        """Upstream's answer, if it means that the data has not come yet."""
        kernel, subject, request = self._kernel, self._subject, self._start.request
        try:
            answer = preparation.not_yet_in(self._upstream_now(), subject, kernel.ledger)
        except KfmError as problem:
            answer = preparation.not_yet_of(problem, subject)
            if answer is None:
                raise
        if answer is None:
            return None
        now_ms = kernel.ledger.now_ms()
        asked_ms = request.accepted_at_ms if request is not None else now_ms
        until_ms = preparation.asked_until(kernel, subject)
        return not_yet_error(answer, asked_ms, now_ms, until_ms, kernel.rng.unit())

    def _planned(self) -> RunReport:
        assert self._upstream is not None
        plan, allowed, prepared = _plan(
            self._kernel,
            self._subject,
            self._start,
            self._upstream,
            self._upstream_now(),
            self._run,
            self._log,
            self._gates,
            revision=self._decision.revision,
        )
        _write_plan(self._kernel, self._start.artifacts_dir, plan)
        facts = {
            "plan": plan,
            "gates": plan.header.gates,
            "changes": plan.changes,
            "version_id": plan.header.version_id,
            "found": prepared.found,
            "prepared": prepared,
        }
        if allowed.allowed:
            return self._report("planned", "planned", self._decision.reason, **facts)
        error, checked = refusal(allowed, in_flight=True), prepared.report
        return self._report(
            "refused",
            "blocked",
            error.message,
            error=error,
            failed_checks=failed_checks(checked),
            checks_made=len(checked.checks) if checked else 0,
            **facts,
        )

    def _ended_by(self, error: KfmError, **more: object) -> RunReport:
        outcome, word = ending(error)
        return self._report(outcome, word, error.message, error=error, gates=self._gates.results, **more)

    def _report(self, outcome: str, word: str, reason: str, **more: object) -> RunReport:
        self._log.run_event("run.end", outcome=outcome, reason=reason)
        self._log.ledger_record(self._run, self._documents, outcome)
        return RunReport(
            outcome=outcome,  # type: ignore[arg-type]
            word=word,
            reason=reason,
            source_id=self._subject.source.id,
            dataset_id=self._subject.dataset.id,
            window_start_ms=self._subject.window.start_ms,
            window_end_ms=self._subject.window.end_ms,
            invocation_id=None,
            run=self._seen,
            artifacts_dir=self._start.artifacts_dir,
            sequence=self._head[0].sequence if self._head else None,
            duration_ms=self._kernel.clock.monotonic_ms() - self._started_ms,
            **more,  # type: ignore[arg-type]
        )


def _plan(
    kernel: Kernel,
    subject: RunSubject,
    start: Start,
    upstream: Upstream,
    discovered: preparation.Discovered,
    run: Run,
    log: RunLog,
    admission: GateDecision,
    *,
    revision: int,
) -> tuple[plans.RunPlan, GateDecision, preparation.PreparedVersion]:
    objects = kernel.scratch()
    publisher = NoopPublisher(
        trace_of(kernel, subject, log, run, dry_run=True),
        scratch=objects,
        limits=kernel.settings.limits,
        leaks=kernel.redact.leaks,
    )
    try:
        prepared = preparation.prepare(
            kernel,
            subject,
            upstream,
            discovered,
            objects,
            publisher,
            log,
            lambda: None,
            Unrecorded(kernel.guard),
            # The run that would do it: what is published names it.
            run_id=subject.new_run(revision, run.start_time_ms).run_id,
            arrived_ms=run.start_time_ms,
        )
        publisher.noop_guard()
    finally:
        publisher.close()
    decision = at_promotion(
        kernel, subject, prepared.report, request=start.request, dry_run=True, assume=start.assume
    )
    head = kernel.ledger.head(subject.dataset.id)
    plan = make_plan(kernel, subject, prepared, head, (*admission.results, *decision.results))
    return plan, decision, prepared


def make_plan(
    kernel: Kernel,
    subject: RunSubject,
    prepared: preparation.PreparedVersion,
    head: tuple[Promotion, Version] | None,
    gates: tuple[GateResult, ...],
) -> plans.RunPlan:
    """What promoting this over that head would change."""
    items = [prepared.item] if prepared.item is not None else []
    return plan_of(kernel, subject, items, prepared.fingerprint, head, gates, arrived_ms=prepared.arrived_ms)


def plan_of(
    kernel: Kernel,
    subject: RunSubject,
    items: Sequence[Item],
    fingerprint: str,
    head: preparation.Head,
    gates: tuple[GateResult, ...],
    *,
    arrived_ms: int,
) -> plans.RunPlan:
    """What promoting these items over that head would change."""
    version = head[1] if head else None
    if items:
        rewindowed = is_rewindowed(kernel.ledger, subject.source)
        version = preparation.with_items(items, head, subject, rewindowed=rewindowed)
    return plans.make(
        base=head,
        version=version or nothing_of(subject),
        dataset_id=subject.dataset.id,
        source_id=subject.source.id,
        partition=subject.work.partition,
        window=subject.window,
        fingerprint=fingerprint,
        output_version=subject.work.output_version,
        gates=gates,
        targets=kernel.reached(subject.dataset),
        kfm_version=__version__,
        # What is bound by the plan is dated by it.
        made_at_ms=arrived_ms if subject.window == SNAPSHOT else kernel.clock.now_ms(),
    )


def nothing_of(subject: RunSubject) -> Version:
    """A dataset in which nothing has been published."""
    return merge_items(None, subject.dataset, (), "merge")


def trace_of(kernel: Kernel, subject: RunSubject, log: RunLog, run: Run, *, dry_run: bool) -> Trace:
    """The publisher's trace of one attempt; names of data that is not public are masked in it."""
    rights = subject.dataset.rights
    return Trace(
        log.trace_line,
        kernel.clock.now_ms,
        run.run_id,
        publisher="noop" if dry_run else "staging",
        dry_run=dry_run,
        restricted=rights is None or rights.care.level != "public",
    )


def _write_plan(kernel: Kernel, folder: str | None, plan: plans.RunPlan) -> None:
    if folder is None:
        return
    writer = fresh_file(kernel.files, f"{folder}/plan.jsonl")
    writer.write(plans.write(plan))
    writer.close()
