"""Standing approvals: every run of a source until a date, and their end before it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfm.model.errors import NotApproved, UsageError
from kfm.model.quarantine import Approval
from kfm.model.roles import Identity
from kfm.service.approvals import approval_entry, require_approvable

if TYPE_CHECKING:
    from kfm.app import App


def stand(
    app: App,
    source_id: str,
    *,
    identity: Identity,
    until: str,
    rationale: str,
    ticket: str | None = None,
    claimed_actor: str | None = None,
) -> Approval:
    """Approve every run of a source until a date: with the rights, the targets and the pipeline of now.

    It does not count for what its giver asks for: a person other than the requester has approved each run.
    """
    from kfm.model.approvals import STANDING_MS_MAX, may_give
    from kfm.model.targets import reached_text
    from kfm.model.times import rfc3339
    from kfm.runs.gates import standing_terms
    from kfm.runs.kernel import RunRequest

    store, said = app.kernel.store, app.loaded.discretion.said
    subject = app.subject(RunRequest(source_id=source_id, actor=identity.subject))
    source, dataset = subject.source, subject.dataset
    if not identity.declared or not may_give(source, app.settings.people, identity.subject):
        raise NotApproved(
            f"{identity.subject} is not a declared person who may give a standing approval for {source_id}.",
            remedy="A person whom `people:` gives the role approve, and whom the source names under "
            "`approvals.standing.by`, if it names any, gives it.",
        )
    require_approvable(app, dataset.id, identity.subject)
    now_ms, until_ms = store.now_ms(), _until_ms(until)
    limit = source.approvals.standing.until if source.approvals and source.approvals.standing else None
    latest_ms = now_ms + STANDING_MS_MAX
    if limit is not None:
        latest_ms = min(latest_ms, _until_ms(limit))
    if not now_ms < until_ms <= latest_ms:
        raise UsageError(
            f"A standing approval for {source_id} ends between now and {rfc3339(latest_ms)}.",
            remedy="Give that date, or an earlier one, with --until.",
        )
    approval = Approval(
        request_id=app.ids.new(),
        kind="standing",
        subject=source_id,
        digest=standing_terms(app.kernel, dataset, source_id, subject.work.output_version),
        requested_by=f"source:{source_id}",
        requested_at_ms=now_ms,
        rationale=said(rationale),
        ticket=ticket and said(ticket),
        state="approved",
        approved_by=identity.subject,
        approved_at_ms=now_ms,
        approval_rationale=said(rationale),
        about=f"every run of {dataset.id} from {source_id} until {rfc3339(until_ms)}",
        dataset_id=dataset.id,
        expires_at_ms=until_ms,
    )
    facts = {"until": rfc3339(until_ms), "targets": reached_text(app.kernel.reached(dataset))}
    entry = approval_entry(
        app, "standing-approval", dataset.id, approval, now_ms, facts, claimed_actor, identity.subject
    )
    store.stand(approval, entry)
    return approval


def _until_ms(text: str) -> int:
    """A date counts to its end."""
    from kfm.model.errors import WindowError
    from kfm.model.windows import DAY_MS, parse_instant

    try:
        whole_day = len(text.strip()) == len("2026-01-01")
        return parse_instant(text.strip(), "UTC") + (DAY_MS if whole_day else 0)
    except WindowError as error:
        raise UsageError(f"--until can't be read: {error.detail}", remedy="Write 2027-01-31.") from None


def revoke(
    app: App, approval: Approval, *, actor: str, rationale: str, claimed_actor: str | None = None
) -> None:
    """End a standing approval, or one of an attempt that was not made, before its time."""
    said = app.loaded.discretion.said(rationale)
    facts = {"about": approval.about}
    now_ms = app.kernel.store.now_ms()
    about = approval.dataset_id or approval.subject
    entry = approval_entry(
        app, "approval-revoked", about, approval, now_ms, facts, claimed_actor, actor, said
    )
    if not app.kernel.store.revoke_approval(approval.request_id, actor, said, [entry]):
        raise NotApproved(
            f"There is nothing to revoke: it is {approval.status}, and for {approval.kind}.",
            remedy="A request that waits is rejected with `kfm approvals reject`, one that was approved is "
            "cancelled with `kfm requests cancel`.",
        )
