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
from kfm.core.records import ValidationReport
from kfm.engine.kernel import Kernel


def force_request(subject: Subject) -> ForceRequest | None:
    trigger = subject.trigger
    if not trigger.force:
        return None
    return ForceRequest(actor=trigger.actor, rationale=trigger.rationale, ticket=trigger.ticket)


def _context(subject: Subject, dry_run: bool) -> dict[str, Any]:
    trigger = subject.trigger
    return {
        "trigger": trigger.type,
        "rationale": trigger.rationale or "",
        "ticket": trigger.ticket or "",
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


def in_flight(kernel: Kernel, subject: Subject) -> GateDecision:
    """Only the switches: asked when the policy epoch has moved under a running run."""
    dataset = subject.dataset
    return combine([switch_gate(kernel.ledger.switches(), dataset.id, dataset.domain, in_flight=True)])
