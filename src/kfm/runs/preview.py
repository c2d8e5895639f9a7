"""Previews (dry-runs): the same decisions and the same work, with no writer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kfm import __version__
from kfm.model.admission import may_start
from kfm.model.arrival import not_yet_error
from kfm.model.errors import KfmError
from kfm.model.gates import GateDecision, refusal
from kfm.model.records import GateResult, Item, Promotion, Run
from kfm.model.windows import SNAPSHOT
from kfm.ports import Source as Upstream
from kfm.publish.manifest import merge_items
from kfm.publish.publisher import NoopPublisher, Trace
from kfm.runs import admission as gating
from kfm.runs import plan as plans
from kfm.runs import preparation
from kfm.runs.admission import RunSubject, Start, error_of, forced, key_documents
from kfm.runs.artifacts import RunLog, fresh_file
from kfm.runs.kernel import Kernel, RunReport
from kfm.runs.nodes import Unrecorded
from kfm.runs.outcome import ending, failed_checks

if TYPE_CHECKING:
    from kfm.model.versions import Version


def preview(kernel: Kernel, subject: RunSubject, start: Start) -> RunReport:
    started_ms, artifacts_dir = kernel.clock.monotonic_ms(), start.artifacts_dir
    if start.force:
        subject = forced(subject, kernel.ledger.forces(subject.work_base) + 1)
    admission = gating.at_admission(kernel, subject, request=start.request, dry_run=True, assume=start.assume)
    asked, seen = gating.asked_for(subject, start), kernel.ledger.latest_run(subject.work_base)
    known = gating.facts_of_run(kernel, subject, seen, admission)
    decision = may_start(asked, seen, known, kernel.ledger.now_ms())
    run = seen or subject.new_run(decision.revision, kernel.clock.now_ms())
    head = kernel.ledger.head(subject.dataset.id)
    documents = key_documents(kernel.ledger, subject, run.revision, seen)
    log = RunLog(
        kernel.files,
        artifacts_dir,
        kernel.clock,
        run.run_id,
        run.attempts,
        dry_run=True,
        redact=kernel.redact,
        dataset_id=run.dataset_id,
        source_id=run.source_id,
    )

    def report(outcome: str, word: str, reason: str, **more: object) -> RunReport:
        log.run_event("run.end", outcome=outcome, reason=reason)
        log.ledger_record(run, documents, outcome)
        return RunReport(
            outcome=outcome,  # type: ignore[arg-type]
            word=word,
            reason=reason,
            source_id=subject.source.id,
            dataset_id=subject.dataset.id,
            window_start_ms=subject.window.start_ms,
            window_end_ms=subject.window.end_ms,
            invocation_id=None,
            run=seen,
            artifacts_dir=artifacts_dir,
            sequence=head[0].sequence if head else None,
            duration_ms=kernel.clock.monotonic_ms() - started_ms,
            **more,  # type: ignore[arg-type]
        )

    try:
        log.run_event(
            "run.start", trigger=subject.trigger.type, window=subject.window.spec, verdict=decision.kind
        )
        upstream = kernel.upstream(subject.source, subject.window)
        discovered = None
        if decision.kind in ("admitted", "compare") and gating.may_be_to_come(subject, seen):
            try:
                discovered = preparation.discover(upstream, subject)
                answer = preparation.not_yet_in(discovered, subject, kernel.ledger)
            except KfmError as problem:
                answer = preparation.not_yet_of(problem, subject)
                if answer is None:
                    raise
            if answer is not None:
                error = not_yet_error(
                    answer,
                    start.request.accepted_at_ms if start.request is not None else kernel.ledger.now_ms(),
                    kernel.ledger.now_ms(),
                    preparation.asked_until(kernel, subject),
                    kernel.rng.unit(),
                )
                outcome, word = ending(error)
                return report(outcome, word, error.message, error=error, gates=admission.results)
        if decision.kind == "compare" and seen is not None:
            discovered = discovered or preparation.discover(upstream, subject)
            known = gating.compared(kernel.ledger, subject, seen, known, discovered.fingerprint)
            decision = may_start(asked, seen, known, kernel.ledger.now_ms())
        if decision.kind == "duplicate":
            return report("noop", "unchanged", decision.reason, gates=admission.results)
        held_back = decision.kind in ("refused", "waits")
        if held_back or not admission.allowed:  # also of work that is under way, which was admitted before
            error = error_of(decision, admission, lambda: "") if held_back else refusal(admission)
            outcome, word = ending(error)
            return report(
                outcome, word, error.message, error=error, gates=admission.results, decision=decision
            )
        discovered = discovered or preparation.discover(upstream, subject)
        plan, allowed, prepared = _plan(
            kernel, subject, start, upstream, discovered, run, log, admission, revision=decision.revision
        )
        _write_plan(kernel, artifacts_dir, plan)
        facts = {
            "plan": plan,
            "gates": plan.header.gates,
            "changes": plan.changes,
            "version_id": plan.header.version_id,
            "found": prepared.found,
            "prepared": prepared,
        }
        checked = prepared.report
        if not allowed.allowed:
            error = refusal(allowed, in_flight=True)
            return report(
                "refused",
                "blocked",
                error.message,
                error=error,
                failed_checks=failed_checks(checked),
                checks_made=len(checked.checks) if checked else 0,
                **facts,
            )
        return report("planned", "planned", decision.reason, **facts)
    finally:
        log.close()


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
    decision = gating.at_promotion(
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
        rewindowed = gating.is_rewindowed(kernel.ledger, subject.source)
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
