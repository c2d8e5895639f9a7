"""Approvals as their approver reads them: the preview, where it would be shown, what it excludes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast

import msgspec

from kfm.model.quarantine import Approval
from kfm.reports.quarantine import approval_document

if TYPE_CHECKING:
    from kfm.datasets.changes import ChangePlan
    from kfm.db.ledger_reader import LedgerReader
    from kfm.model.settings import Settings
    from kfm.model.targets import ReachedTarget
    from kfm.runs.plan import RunPlan


def plan_of(ledger: LedgerReader, approval: Approval) -> RunPlan | ChangePlan | None:
    """The preview, or the change of a dataset, that is to be approved; None: it is about something else."""
    kinds = ("update", "change")
    text = ledger.request_reader().preview(approval.digest) if approval.kind in kinds else None
    if text is None:
        return None
    if approval.kind == "change":
        from kfm.datasets.changes import read_plan

        return read_plan(text)
    from kfm.runs import plan as plans

    return plans.read(text.encode())


def preview_lines(approval: Approval, plan: RunPlan | ChangePlan | None) -> list[str]:
    """Exactly what is approved or rejected, for people."""
    if plan is None:
        return []
    if approval.kind == "change":
        from kfm.reports.dataset_plans import approved_lines

        return approved_lines(cast("ChangePlan", plan), approval.rationale)
    from kfm.runs import plan as plans

    return plans.render_text(cast("RunPlan", plan)).splitlines()


def targets_of(settings: Settings, approval: Approval, plan: RunPlan | ChangePlan | None) -> list[str]:
    """Where it would be shown: as its plan says, else by the configuration of now."""
    from kfm.model.targets import reached

    if approval.kind == "change":
        return [one.target for one in cast("ChangePlan", plan).targets] if plan is not None else []
    plan = cast("RunPlan | None", plan)
    found: Iterable[ReachedTarget] = ()
    dataset = settings.declared(approval.dataset_id)
    if plan is not None and not isinstance(plan.header.targets, msgspec.UnsetType):
        found = plan.header.targets
    elif dataset is not None:
        found = reached(settings, settings, dataset)
    return [" ".join(filter(None, (one.name, one.place))) for one in found]


def shown_approval(
    ledger: LedgerReader, settings: Settings, approval: Approval, plan: RunPlan | ChangePlan | None
) -> dict[str, Any]:
    """One approval with everything that its approver decides on; `plan`: its preview."""
    from kfm.reports.approvals import excluded_by, rivals

    excluded = excluded_by(ledger, approval)
    return {
        **approval_document(approval),
        "targets": targets_of(settings, approval, plan),
        "excluded_by": None if excluded is None else excluded.sentence,
        "rivals": rivals(ledger, approval),
        "uses": ledger.approval_uses(approval.request_id),
    }
