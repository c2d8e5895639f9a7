"""Asking the gates, at admission and again at promotion."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from kfm.admission.subject import Subject
from kfm.core.approving import attempt_digest, seen, usable, used_by
from kfm.core.gates import (
    HALTING_GATES,
    ForceRequest,
    GateDecision,
    combine,
    contract_gate,
    freeze_gate,
    rights_gate,
    switch_gate,
)
from kfm.core.holding import Approval, Held
from kfm.core.records import GateResult, Promotion, Run, ValidationReport
from kfm.core.settings import Dataset
from kfm.core.times import rfc3339
from kfm.engine.kernel import Kernel
from kfm.ports import LedgerReader, PolicyEngine

APPROVALS_MAX = 1000  # of one piece of work


def force_request(subject: Subject) -> ForceRequest | None:
    trigger = subject.trigger
    if not trigger.force:
        return None
    return ForceRequest(actor=trigger.actor, rationale=trigger.rationale, ticket=trigger.ticket)


def _context(subject: Subject, approval: Approval | None, halted: bool, dry_run: bool) -> dict[str, Any]:
    trigger = subject.trigger
    return facts(trigger.type, trigger.rationale, trigger.ticket, approval, halted, dry_run)


def facts(
    trigger_type: str,
    rationale: str | None,
    ticket: str | None,
    approval: Approval | None = None,
    halted: bool = False,
    dry_run: bool = False,
) -> dict[str, Any]:
    return {
        "trigger": trigger_type,
        "rationale": rationale or "",
        "ticket": ticket or "",
        "approvals": [approval.dataset_id] if approval is not None else [],
        "halted": halted,
        "is_dry_run": dry_run,
    }


def _usable(kernel: Kernel, subject: Subject) -> Approval | None:
    """A second person's yes to one attempt at exactly this work, which nobody has used yet."""
    known = kernel.ledger.approvals(state="approved", subject=subject.work_base, limit=APPROVALS_MAX)
    if not known:
        return None
    return usable(known, attempt_digest(subject.dataset, subject.work_base), kernel.ledger.now_ms())


def approval_of(ledger: LedgerReader, run: Run) -> Approval | None:
    """The approval under which the present attempt of this run was begun, if it needed one."""
    return used_by(ledger.approvals(state="approved", subject=run.work_base, limit=APPROVALS_MAX), run)


def _still(approval: Approval | None, dataset: Dataset, work_base: str) -> Approval | None:
    """It was for the rights as they were declared then."""
    if approval is None or approval.digest != attempt_digest(dataset, work_base):
        return None
    return approval


def _policies(
    kernel: Kernel, subject: Subject, action: str, approval: Approval | None, dry_run: bool
) -> list[GateResult]:
    dataset = subject.dataset
    halted = kernel.ledger.halted(dataset.id)
    context = _context(subject, approval, halted is not None, dry_run)
    results = kernel.policies.decide(action, dataset, subject.trigger.actor, context)
    named = [_naming(result, subject, halted) for result in results]
    return [*named, seen(approval)] if approval is not None else named


def _naming(result: GateResult, subject: Subject, halted: Held | None) -> GateResult:
    """A rule speaks of any work; whoever reads a refusal wants the command for this one."""
    if result.allowed or "`kfm " not in result.reason:
        return result
    window = f"{rfc3339(subject.window.start_ms)}/{rfc3339(subject.window.end_ms)}"
    asked = f"`kfm request --source {subject.source.id} --window {window} "
    reason = result.reason.replace("`kfm request --source ID --window W ", asked)
    if halted is not None:
        reason = reason.replace("`kfm quarantine release ID ", f"`kfm quarantine release {halted.held_id} ")
    return replace(result, reason=reason)


def beyond_approval(policies: PolicyEngine, dataset: Dataset, actor: str) -> GateResult | None:
    """What would still forbid work on this dataset if a second person agreed to it; None: nothing."""
    context = {
        "trigger": "manual",
        "rationale": "asked for",
        "ticket": "asked for",
        "approvals": [dataset.id],
        "halted": False,
        "is_dry_run": False,
    }
    for action in ("run", "publish"):
        for result in policies.decide(action, dataset, actor, context):
            if not result.allowed and result.gate in HALTING_GATES:
                return result
    return None


def at_admission(kernel: Kernel, subject: Subject, *, dry_run: bool = False) -> GateDecision:
    dataset, approval = subject.dataset, _usable(kernel, subject)
    results = [
        switch_gate(kernel.ledger.switches(), dataset.id, dataset.domain, in_flight=False),
        freeze_gate(kernel.settings.freezes, dataset.id, dataset.domain, kernel.ledger.now_ms()),
        rights_gate(dataset),
        *_policies(kernel, subject, "run", approval, dry_run),
    ]
    decision = combine(results, force_request(subject))
    return replace(decision, approval=(approval.request_id, approval.digest)) if approval else decision


def at_promotion(
    kernel: Kernel,
    subject: Subject,
    report: ValidationReport | None,
    *,
    run: Run | None = None,
    dry_run: bool = False,
) -> GateDecision:
    """With the approval that the run's attempt has used up; a dry-run with one that it could use."""
    dataset = subject.dataset
    used = approval_of(kernel.ledger, run) if run is not None else _usable(kernel, subject)
    approval = _still(used, dataset, subject.work_base)
    results = [
        contract_gate(report),
        switch_gate(kernel.ledger.switches(), dataset.id, dataset.domain, in_flight=True),
        freeze_gate(kernel.settings.freezes, dataset.id, dataset.domain, kernel.ledger.now_ms()),
        rights_gate(dataset),
        *_policies(kernel, subject, "publish", approval, dry_run),
    ]
    return combine(results, force_request(subject))


def at_projection(kernel: Kernel, dataset: Dataset, head: Promotion) -> GateDecision:
    """May what was promoted be shown now? Asked for whoever promoted it, with the reasons given then.

    Freezes are not asked: the promotion was allowed in one, or by force, and its showing belongs to it.
    """
    run = kernel.ledger.run(head.run_id)
    entry = next(iter(kernel.ledger.governance(kind="promotion", subject=head.run_id, limit=1)), None)
    approval = _still(approval_of(kernel.ledger, run), dataset, run.work_base) if run else None
    context = facts(
        run.trigger_type if run else "manual",
        entry.rationale if entry else None,
        entry.ticket if entry else None,
        approval,
    )
    results = [
        switch_gate(kernel.ledger.switches(), dataset.id, dataset.domain, in_flight=True),
        rights_gate(dataset),
        *kernel.policies.decide("publish", dataset, entry.actor if entry else "unknown", context),
    ]
    return combine(results)


def in_flight(kernel: Kernel, subject: Subject) -> GateDecision:
    """Only the switches: asked when the policy epoch has moved under a running run."""
    dataset = subject.dataset
    return combine([switch_gate(kernel.ledger.switches(), dataset.id, dataset.domain, in_flight=True)])
