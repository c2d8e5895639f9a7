"""Asking the gates, at admission and again at promotion."""

from __future__ import annotations

from typing import Any

from kfm.admission.subject import Subject
from kfm.core.gates import (
    ForceRequest,
    GateDecision,
    combine,
    contract_gate,
    freeze_gate,
    rights_gate,
    switch_gate,
)
from kfm.core.records import Promotion, ValidationReport
from kfm.core.settings import Dataset
from kfm.engine.kernel import Kernel


def force_request(subject: Subject) -> ForceRequest | None:
    trigger = subject.trigger
    if not trigger.force:
        return None
    return ForceRequest(actor=trigger.actor, rationale=trigger.rationale, ticket=trigger.ticket)


def _context(subject: Subject, dry_run: bool) -> dict[str, Any]:
    trigger = subject.trigger
    return _facts(trigger.type, trigger.rationale, trigger.ticket, dry_run)


def _facts(trigger_type: str, rationale: str | None, ticket: str | None, dry_run: bool) -> dict[str, Any]:
    return {
        "trigger": trigger_type,
        "rationale": rationale or "",
        "ticket": ticket or "",
        "approvals": [],
        "is_dry_run": dry_run,
    }


def at_admission(kernel: Kernel, subject: Subject, *, dry_run: bool = False) -> GateDecision:
    dataset = subject.dataset
    results = [
        switch_gate(kernel.ledger.switches(), dataset.id, dataset.domain, in_flight=False),
        freeze_gate(kernel.settings.freezes, dataset.id, dataset.domain, kernel.ledger.now_ms()),
        rights_gate(dataset),
        *kernel.policies.decide("run", dataset, subject.trigger.actor, _context(subject, dry_run)),
    ]
    return combine(results, force_request(subject))


def at_promotion(
    kernel: Kernel, subject: Subject, report: ValidationReport | None, *, dry_run: bool = False
) -> GateDecision:
    dataset = subject.dataset
    results = [
        contract_gate(report),
        switch_gate(kernel.ledger.switches(), dataset.id, dataset.domain, in_flight=True),
        freeze_gate(kernel.settings.freezes, dataset.id, dataset.domain, kernel.ledger.now_ms()),
        rights_gate(dataset),
        *kernel.policies.decide("publish", dataset, subject.trigger.actor, _context(subject, dry_run)),
    ]
    return combine(results, force_request(subject))


def at_projection(kernel: Kernel, dataset: Dataset, head: Promotion) -> GateDecision:
    """May what was promoted be shown now? Asked for whoever promoted it, with the reasons given then.

    Freezes are not asked: the promotion was allowed in one, or by force, and its showing belongs to it.
    """
    run = kernel.ledger.run(head.run_id)
    entry = next(iter(kernel.ledger.governance(kind="promotion", subject=head.run_id, limit=1)), None)
    context = _facts(
        run.trigger_type if run else "manual",
        entry.rationale if entry else None,
        entry.ticket if entry else None,
        dry_run=False,
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
