"""Trying failed runs again, and letting go what is held."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kfm.core.errors import NotApproved, UsageError
from kfm.core.holding import Approval, Held, Waiting
from kfm.core.records import GovernanceEntry, Run
from kfm.core.times import rfc3339
from kfm.engine.requests import RunReport, RunRequest
from kfm.telemetry.compliance import AUTOMATIC

if TYPE_CHECKING:
    from kfm.admission.subject import Subject
    from kfm.engine.retrying import Passed
    from kfm.wiring.app import App


# --- trying again ----------------------------------------------------------------------


def retry_run(
    app: App,
    run: Run,
    *,
    actor: str,
    claimed_actor: str | None = None,
    rationale: str | None = None,
    ticket: str | None = None,
) -> RunReport:
    """One more attempt at exactly this run, now, because a person wants it."""
    from kfm.engine.run import Updating

    subject = _subject(app, run, actor, claimed_actor, rationale, ticket)
    if subject is None:
        raise UsageError(
            f"Its source `{run.source_id}` is not in the configuration any more.",
            remedy="Put the source back, or leave the run as it is.",
        )
    latest = app.ledger.latest_run(run.work_base)
    if subject.work_base != run.work_base:
        raise UsageError(
            f"The pipeline of {run.source_id} has changed since: with the new code it is other work.",
            remedy=f"Run it as such: kfm run --source {run.source_id} --window {_window(run)}",
        )
    if latest is not None and latest.run_id != run.run_id:
        raise UsageError(
            f"Revision {latest.revision} of the same work has begun since: run {latest.run_id}.",
            remedy=f"Retry that one, if it failed: kfm show {latest.run_id}",
        )
    return Updating(app.kernel, subject, force=False, artifacts_dir=None, plan=None).run()


def run_due(app: App, *, actor: str, told: Callable[[RunReport | Passed], None]) -> list[RunReport | Passed]:
    """Make every automatic attempt that is due now, one after the other."""
    from kfm.engine.retrying import Automatic

    automatic = Automatic(app.kernel, lambda run: _subject(app, run, actor, claimed_actor=AUTOMATIC))
    automatic.settle()
    made = []
    for waiting in automatic.due():
        made.append(automatic.attempt(waiting))
        told(made[-1])
    return made


def waiting(app: App, limit: int = 100) -> list[Waiting]:
    """Every run with an automatic attempt ahead, the earliest first."""
    from kfm.engine.retrying import EVER_MS

    return app.ledger.waiting(EVER_MS, limit)


def _subject(
    app: App,
    run: Run,
    actor: str,
    claimed_actor: str | None = None,
    rationale: str | None = None,
    ticket: str | None = None,
) -> Subject | None:
    """The run's work as the configuration describes it now; None if it describes it no more."""
    if run.source_id not in {source.id for source in app.settings.sources}:
        return None
    request = RunRequest(
        source_id=run.source_id,
        window_spec=_window(run),
        trigger_type=run.trigger_type,
        correction=run.correction,
        actor=actor,
        claimed_actor=claimed_actor,
        rationale=rationale,
        ticket=ticket,
    )
    return app.subject(request)


def _window(run: Run) -> str:
    return f"{rfc3339(run.window_start_ms)}/{rfc3339(run.window_end_ms)}"


# --- letting go ------------------------------------------------------------------------


def request_release(
    app: App, held: Held, *, actor: str, rationale: str, ticket: str | None, claimed_actor: str | None
) -> Approval:
    """Ask for the release of what is held; somebody else has to agree."""
    from kfm.core.giving_up import release_digest

    _require_held(app, held)
    store, hide = app.kernel.store, app.loaded.discretion.hide
    approval = Approval(
        request_id=app.ids.new(),
        kind="release",
        subject=held.held_id,
        digest=release_digest(held),
        requested_by=actor,
        requested_at_ms=store.now_ms(),
        rationale=hide(rationale),
        ticket=ticket and hide(ticket),
    )
    claimed = claimed_actor and hide(claimed_actor)
    entry = _entry("release-requested", held, approval, approval.requested_at_ms, claimed_actor=claimed)
    store.request_approval(approval, entry)
    return approval


def approve(
    app: App, approval: Approval, *, actor: str, rationale: str, claimed_actor: str | None = None
) -> Held:
    """Agree to a release, and carry it out: the run gets a new grant and is due at once."""
    from kfm.core.commits import Approve
    from kfm.core.giving_up import release_digest
    from kfm.core.grants import granted

    store, hide = app.kernel.store, app.loaded.discretion.hide
    if approval.state != "requested":
        raise NotApproved(f"{approval.approved_by} has approved it already; one approval is for one release.")
    if approval.requested_by == actor:
        raise NotApproved(
            f"{actor} has asked for it, so somebody else has to approve it; --actor is only a claim.",
            remedy=f"Let another account run: kfm approve {approval.request_id} --rationale TEXT",
        )
    held = store.held_one(approval.subject)
    if held is None or held.state != "held" or release_digest(held) != approval.digest:
        raise NotApproved("What is held is not what the release was asked for: it has changed since.")
    run = store.run(held.subject) if held.grain == "run" else None
    now_ms = store.now_ms()
    agreed = _entry(
        "approval",
        held,
        approval,
        now_ms,
        actor=actor,
        rationale=hide(rationale),
        claimed_actor=claimed_actor and hide(claimed_actor),
    )
    landed = store.approve(
        Approve(
            request_id=approval.request_id,
            held_id=held.held_id,
            digest=approval.digest,
            approved_by=actor,
            rationale=hide(rationale),
            grant=granted(run, store.retry_state(run.run_id), now_ms) if run is not None else None,
            entries=(agreed, _entry("release", held, approval, now_ms)),
        )
    )
    if not landed:
        raise NotApproved("Somebody was faster, or what is held has changed.")
    return store.held_one(held.held_id) or held


def _require_held(app: App, held: Held) -> None:
    from kfm.core.grants import may_be_granted

    if held.state != "held":
        raise UsageError(f"It is not held any more: it was {held.state} by {held.released_by}.")
    run = app.ledger.run(held.subject) if held.grain == "run" else None
    if run is not None and not may_be_granted(run, app.ledger.retry_state(run.run_id)):
        raise NotApproved(
            "It was granted as often as anything is; trying the same once more is no way out.",
            remedy=f"Open a new revision: kfm run --source {run.source_id} --window {_window(run)} --force "
            "--rationale TEXT --ticket ID",
        )


def _entry(
    kind: str,
    held: Held,
    approval: Approval,
    now_ms: int,
    *,
    actor: str | None = None,
    rationale: str | None = None,
    claimed_actor: str | None = None,
) -> GovernanceEntry:
    return GovernanceEntry(
        kind=kind,
        subject=held.subject,
        actor=actor or approval.requested_by,
        recorded_at_ms=now_ms,
        rationale=rationale or approval.rationale,
        ticket=approval.ticket,
        details={
            "request_id": approval.request_id,
            "held_id": held.held_id,
            "dataset_id": held.dataset_id,
            "digest": approval.digest,
            "claimed_actor": claimed_actor,
        },
    )
