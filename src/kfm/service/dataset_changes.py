"""Changes of a dataset by a person, from the plan to what the targets show: one way for the command line and
the API."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from kfm.datasets import changes
from kfm.datasets.changes import ChangePlan
from kfm.model.dataset_changes import DatasetChange, Purge
from kfm.model.errors import PlanDrifted, UsageError
from kfm.model.quarantine import Approval
from kfm.model.records import Record
from kfm.reports.datasets import change_document, purge_document
from kfm.reports.quarantine import approval_document
from kfm.runs.kernel import ProjectionReport
from kfm.runs.outcome import sweep
from kfm.runs.purges import scopes_of
from kfm.runs.target_updates import project

if TYPE_CHECKING:
    from kfm.app import App
    from kfm.datasets.changes import PreparedChange
    from kfm.model.records import Justification, Window
    from kfm.model.settings import Settings

Planner = Callable[[Any], "PreparedChange"]  # from the kernel


class MadeChange(Record, frozen=True):
    """A change that was applied, with what is done at each target; or the approval that it waits for."""

    plan: ChangePlan
    change: DatasetChange | None = None  # None: a second person has to agree first
    approval: Approval | None = None
    projections: tuple[ProjectionReport, ...] = ()
    purges: tuple[Purge, ...] = ()

    @property
    def is_outstanding(self) -> bool:
        """Does a target not show it yet, or are there bytes that have to go?"""
        return any(one.error for one in self.projections) or any(
            one.state == "outstanding" for one in self.purges
        )


def make_change(app: App, plan: Planner, by: Justification, digest: str | None) -> MadeChange:
    """Plan it again, and apply it if it is still the one of this digest; then bring the targets up to date.

    Where a policy asks for a second person, the approval is requested instead.
    """
    from kfm.service.approvals import request_change

    sweep(app.writer, app.liveness)  # a process that died works on nothing
    prepared = plan(app.kernel)
    if digest is not None and digest != prepared.plan.digest:
        raise PlanDrifted(
            f"The change is another one by now: its digest is {prepared.plan.digest}.",
            remedy="Look at it again: the same command without --yes and --digest shows it.",
        )
    if changes.needs_approval(app.kernel, prepared, by):
        return MadeChange(plan=prepared.plan, approval=request_change(app, prepared.plan, by))
    scopes = scopes_of(app.kernel, prepared.plan.dataset_id)
    change = changes.apply(app.kernel, prepared, by, scopes)
    reports = project(app.kernel, prepared.plan.dataset_id) if change.sequence is not None else []
    return MadeChange(
        plan=prepared.plan,
        change=change,
        projections=tuple(reports),
        purges=tuple(app.ledger.change_reader().purges(change.change_id)),
    )


def span_of(settings: Settings, dataset_id: str, source_id: str | None, text: str | None) -> Window | None:
    """The span that a text means in the time zone of the sources, as for `kfm run --window`; None: all of
    the dataset."""
    if text is None:
        return None
    if "/" not in text:
        raise UsageError(
            f"A withdrawal takes a span of time, not `{text[:40]}`.", remedy="Write it as 2026-10-27/P1D."
        )
    from kfm.model.windows import resolve_window

    mine = [one for one in settings.sources if one.dataset == dataset_id and source_id in (None, one.id)]
    zones = {one.time_zone for one in mine} or {"UTC"}
    spans = {resolve_window(text, zone, 0) for zone in zones}
    if len(spans) > 1:
        raise UsageError(
            f"Sources of {dataset_id} have different time zones ({', '.join(sorted(zones))}): the span "
            "means another time in each.",
            remedy="Name one source, or write times, as 2026-10-27T00:00:00Z/2026-10-28T00:00:00Z.",
        )
    return spans.pop()


# --- documents -------------------------------------------------------------------------


def preview_document(plan: ChangePlan) -> dict[str, Any]:
    return {"applied": False, "plan": plan, "receipt": None}


def made_document(made: MadeChange) -> dict[str, Any]:
    """What was done, or the request for an approval."""
    if made.change is None:
        return {**preview_document(made.plan), "request": approval_document(made.approval)}
    receipt = {
        "change": change_document(made.change),
        "projections": [_projection(one) for one in made.projections],
        "purges": [purge_document(one) for one in made.purges],
        "out_of_reach": msgspec.to_builtins(made.plan.out_of_reach),
    }
    return {"applied": True, "plan": made.plan, "receipt": receipt}


def _projection(one: ProjectionReport) -> dict[str, Any]:
    return {
        "dataset_id": one.dataset_id,
        "target": one.target,
        "version": one.sequence,
        "error": one.error,
    }
