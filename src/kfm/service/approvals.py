"""Approvals: requesting what needs a second person, approving it, rejecting it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from kfm.model.canonical import canonical_bytes
from kfm.model.errors import LockHeld, NotApproved, UsageError
from kfm.model.gates import force_command
from kfm.model.next_steps import work_command
from kfm.model.quantities import counted, moment, span
from kfm.model.quarantine import Approval, QuarantineEntry
from kfm.model.records import GovernanceEntry, Justification, governance_entry
from kfm.model.roles import is_same_person

if TYPE_CHECKING:
    from kfm.app import App
    from kfm.datasets.changes import ChangePlan
    from kfm.model.replays import ReplayPlan
    from kfm.model.requests import RequestOutcome, UpdateRequest
    from kfm.model.runs import Approve
    from kfm.runs.kernel import RunReport, RunRequest
    from kfm.runs.plan import RunPlan
    from kfm.runs.subjects import RunSubject


# --- requesting ------------------------------------------------------------------------


def request_release(
    app: App,
    held: QuarantineEntry,
    *,
    actor: str,
    rationale: str,
    ticket: str | None,
    claimed_actor: str | None,
    names: Sequence[str] = (),
) -> Approval:
    """Request the release of a quarantined entry; another person has to approve it."""
    from kfm.model.quarantine import release_digest

    _require_held(app, held)
    require_approvable(app, held.dataset_id, actor)
    store, said = app.kernel.store, app.loaded.discretion.said
    approval = Approval(
        request_id=app.ids.new(),
        kind="release",
        subject=held.held_id,
        digest=release_digest(held),
        requested_by=actor,
        requested_at_ms=store.now_ms(),
        rationale=said(rationale),
        ticket=ticket and said(ticket),
        about=f"release of {held.grain} {held.subject}",
        dataset_id=held.dataset_id,
        requested_names=_requesters(app, names, claimed_actor),
    )
    facts = {"held_id": held.held_id}
    at_ms = approval.requested_at_ms
    entry = approval_entry(app, "release-requested", held.subject, approval, at_ms, facts, claimed_actor)
    return store.request_approval(approval, entry)


def request_attempt(app: App, subject: RunSubject, *, rationale: str, names: Sequence[str] = ()) -> Approval:
    """Request one attempt at work that the policies admit only with an approval."""
    from kfm.model.approvals import attempt_digest
    from kfm.model.targets import reached_text

    dataset, trigger, window = subject.dataset, subject.trigger, subject.window
    require_approvable(app, dataset.id, trigger.actor)
    store, targets = app.kernel.store, app.kernel.reached(dataset)
    approval = Approval(
        request_id=app.ids.new(),
        kind="attempt",
        subject=subject.work_base,
        digest=attempt_digest(dataset, subject.work_base, targets),
        requested_by=trigger.actor,
        requested_at_ms=store.now_ms(),
        rationale=app.loaded.discretion.said(rationale),
        ticket=trigger.ticket,
        about=f"one attempt at {dataset.id} from {subject.source.id}, "
        f"{span(window.start_ms, window.end_ms)}, {reached_text(targets)}",
        dataset_id=dataset.id,
        requested_names=_requesters(app, names, trigger.claimed_actor),
    )
    at_ms, facts = approval.requested_at_ms, {"about": approval.about}
    entry = approval_entry(
        app, "approval-requested", dataset.id, approval, at_ms, facts, trigger.claimed_actor
    )
    return store.request_approval(approval, entry)


def request_replay(app: App, plan: ReplayPlan, by: Justification) -> Approval:
    """Request the replay of ended units: the plan is frozen in the ledger, where the approver reads it."""
    from kfm.nodd.replay import drifted, grants_of, require_current

    store = app.kernel.store
    replays = store.replays()
    require_current(replays, app.settings.ingest, plan, grants_of(app))
    for dataset in plan.by_dataset:
        require_approvable(app, dataset, by.actor)
    for one in store.approvals(state="requested", subject=plan.replay_id):
        return one
    approval = Approval(
        request_id=app.ids.new(),
        kind="replay",
        subject=plan.replay_id,
        digest=plan.digest,
        requested_by=by.actor,
        requested_at_ms=store.now_ms(),
        rationale=by.rationale or "",
        ticket=by.ticket,
        about=f"replay of {counted(len(plan.units), 'unit')} of {', '.join(plan.by_dataset)}: {plan.mode}",
        dataset_id=next(iter(plan.by_dataset)) if len(plan.by_dataset) == 1 else None,
        requested_names=_requesters(app, app.identity.names, by.claimed_actor or None),
    )
    facts = {"about": approval.about, "mode": plan.mode, "reason": plan.reason}
    at_ms = approval.requested_at_ms
    entry = approval_entry(
        app, "replay-requested", plan.replay_id, approval, at_ms, facts, by.claimed_actor or None
    )
    changed = replays.request(plan, approval, entry, rationale=approval.rationale)
    if changed:
        raise drifted(plan, changed)
    return approval


def request_update(app: App, request: UpdateRequest, plan: RunPlan) -> bool:
    """Request an approval of what a request would change: of this preview, and of no other."""
    from kfm.model.approvals import attempt_digest, names_of
    from kfm.model.targets import reached_text
    from kfm.runs import plan as plans
    from kfm.service.dispatcher import run_request_of

    store, header = app.kernel.store, plan.header
    require_approvable(app, header.dataset_id, request.actor)
    subject = app.subject(run_request_of(request))
    names = names_of(app.settings.people, request.actor)
    approval = Approval(
        request_id=app.ids.new(),
        kind="update",
        subject=request.request_id,
        digest=header.digest,
        requested_by=request.actor,
        requested_at_ms=store.now_ms(),
        rationale=request.rationale or _asked_by(request),
        ticket=request.ticket,
        about=f"update of {header.dataset_id} from {header.source_id}, "
        f"{span(header.window.start_ms, header.window.end_ms)}: "
        f"{header.tally.added} added, {header.tally.changed} changed, {header.tally.removed} removed, "
        f"{reached_text(header.targets or ())}",
        dataset_id=header.dataset_id,
        requested_names=_requesters(app, names, request.claimed_actor),
        terms=attempt_digest(subject.dataset, subject.work_base, app.kernel.reached(subject.dataset)),
        fingerprint=header.fingerprint,
        base_sequence=header.base_sequence,
    )
    at_ms, facts = approval.requested_at_ms, {"about": approval.about}
    entry = approval_entry(
        app, "approval-requested", request.request_id, approval, at_ms, facts, request.claimed_actor
    )
    text = plans.write(plan).decode()
    return store.requests().await_approval(request, (header.digest, text), approval, entry)


def run_approved(app: App, asked: RunRequest) -> RunReport | None:
    """Make the attempt of a request of the same work whose preview was approved, now; None: there is none."""
    if asked.dry_run or asked.force or asked.plan_path is not None:
        return None
    window = app.subject(asked).window
    found = app.ledger.request_reader().approved_same(asked.source_id, window)
    return None if found is None else _worked_off(app, found.request_id)[1]


def ask_instead(app: App, asked: RunRequest, refused: RunReport) -> RunReport:
    """The request of a person whose run needs an approval: its preview waits for a second person.

    Else the report of the refusal, as it is.
    """
    from kfm.model.errors import GateDenied
    from kfm.model.keys import request_id
    from kfm.model.next_steps import approve_command
    from kfm.model.requests import ABSENT, UpdateRequest, synchronous_key
    from kfm.runs.gates import asks_approval

    may_ask = asked.by_person and not (asked.dry_run or asked.force or asked.plan_path is not None)
    if not may_ask or not isinstance(refused.error, GateDenied):
        return refused
    subject = app.subject(asked)
    if not asks_approval(app.kernel, subject, None):
        return refused
    trigger, key = subject.trigger, synchronous_key(app.ids.new())
    request = UpdateRequest(
        request_id=request_id(key),
        key=key,
        kind="manual",
        source_id=subject.source.id,
        dataset_id=subject.dataset.id,
        window_start_ms=subject.window.start_ms,
        window_end_ms=subject.window.end_ms,
        actor=trigger.actor,
        accepted_at_ms=app.kernel.store.now_ms(),
        claimed_actor=trigger.claimed_actor,
        rationale=trigger.rationale,
        ticket=trigger.ticket,
        correction=trigger.correction,
        by_person=True,
    )
    app.kernel.store.requests().accept([request])
    now, report = _worked_off(app, request.request_id)
    if report is not None or now is None:
        return report or refused
    if now.outcome in ("noop", "empty", ABSENT):
        return replace(
            refused, outcome="noop", word="unchanged", reason=now.reason, error=None, gates=(), decision=None
        )
    waiting = now if now.state == "awaiting-approval" else None
    if waiting is None and now.outcome == "superseded":
        waiting = next(iter(app.ledger.request_reader().awaiting_same(now)), None)
    if waiting is None:
        return replace(refused, reason=now.reason or refused.reason)
    (approval,) = app.ledger.approvals(state="requested", subject=waiting.request_id, limit=1)
    error = NotApproved(
        f"It waits for a second person's approval of its preview: approval {approval.request_id}.",
        remedy=f"Let another person run: {approve_command(approval.request_id)}",
    )
    return replace(refused, word="waiting", reason=error.message, error=error, gates=(), decision=None)


CLAIM_MS = 3_600_000  # of one's own request: a dead process is known to be dead before


def _worked_off(app: App, request_id: str) -> tuple[UpdateRequest | None, RunReport | None]:
    """The request, worked off by this process, and the report of its run, if one was made."""
    from kfm.service.runner import make_dispatcher

    reports: list[RunReport] = []
    dispatcher = make_dispatcher(app, on_report=lambda _request, report: reports.append(report))
    requests = app.kernel.store.requests()
    taken = requests.take(request_id, app.kernel.worker_id, CLAIM_MS)
    if taken is not None:
        dispatcher.work(taken)
    return requests.request(request_id), reports[0] if reports else None


def _asked_by(request: UpdateRequest) -> str:
    if request.schedule_id is not None:
        return f"Asked for by the schedule {request.schedule_id}."
    return f"Asked for by {request.actor}."


def asked_before(app: App, request: UpdateRequest, subject: RunSubject) -> RequestOutcome | None:
    """The end of a request whose preview would be the same as one that waits, or that was rejected.

    What was rejected is asked for again when its inputs, its code or its rights are others, or by a person.
    """
    from kfm.model.approvals import attempt_digest
    from kfm.model.requests import RequestOutcome
    from kfm.runs import preparation
    from kfm.runs.subjects import as_configured

    kernel, now = app.kernel, as_configured(app.kernel, subject)
    waiting = kernel.store.requests().awaiting_same(request)
    known = []
    if now is not None:
        terms = attempt_digest(now.dataset, now.work_base, kernel.reached(now.dataset))
        known = kernel.ledger.approvals_of_terms(terms)
    decided = next((one for one in known if one.status in ("approved", "rejected")), None)
    rejected = decided if decided and decided.status == "rejected" and not request.by_person else None
    if not waiting and rejected is None:
        return None
    upstream = kernel.upstream(subject.source, subject.window)
    fingerprint = preparation.discover(upstream, subject).fingerprint
    head = kernel.ledger.head(subject.dataset.id)
    for older in waiting:
        for one in known:
            same = (one.fingerprint, one.base_sequence) == (fingerprint, head[0].sequence if head else 0)
            if one.subject == older.request_id and one.status == "requested" and same:
                reason = f"Request {older.request_id} for the same waits already: approval {one.request_id}."
                return RequestOutcome(state="cancelled", outcome="superseded", reason=reason)
    if rejected is not None and rejected.fingerprint == fingerprint:
        at = moment(rejected.rejected_at_ms or 0)
        reason = (
            f"{rejected.rejected_by} rejected the same at {at}: {rejected.rejection_rationale} It is asked "
            "for again when its inputs, code or rights change, or when a person asks."
        )
        return RequestOutcome(state="done", outcome="refused", reason=reason)
    return None


def request_change(app: App, plan: ChangePlan, by: Justification) -> Approval:
    """Request a change of what is published: exactly the one of this plan."""
    from kfm.datasets.changes import subject_of

    store = app.kernel.store
    removed = counted(plan.tally.removed, "file")
    what = f"{plan.kind} of {plan.dataset_id}: {removed} removed, {plan.tally.added} added"
    if plan.purge is not None:
        many = counted(len(plan.purge.versions), "version")
        what += f"; {many} and {counted(plan.purge.blobs, 'object')} purged for good"
    approval = Approval(
        request_id=app.ids.new(),
        kind="change",
        subject=subject_of(plan.dataset_id),
        digest=plan.digest,
        requested_by=by.actor,
        requested_at_ms=store.now_ms(),
        rationale=by.rationale or "",
        ticket=by.ticket,
        about=what,
        dataset_id=plan.dataset_id,
        requested_names=_requesters(app, app.identity.names, by.claimed_actor or None),
        base_sequence=plan.base_sequence,
    )
    at_ms, facts = approval.requested_at_ms, {"about": approval.about}
    entry = approval_entry(
        app, "approval-requested", plan.dataset_id, approval, at_ms, facts, by.claimed_actor or None
    )
    return store.request_approval(approval, entry, canonical_bytes(msgspec.to_builtins(plan)).decode())


def _requesters(app: App, names: Sequence[str], claimed_actor: str | None) -> tuple[str, ...]:
    """Every name of the requester. A claim proves nothing, but whom it names does not decide either."""
    claimed = (app.loaded.discretion.said(claimed_actor),) if claimed_actor else ()
    return (*names, *claimed)


# --- deciding --------------------------------------------------------------------------


def approve(
    app: App,
    approval: Approval,
    *,
    actor: str,
    rationale: str,
    claimed_actor: str | None = None,
    names: Sequence[str] = (),
) -> QuarantineEntry | None:
    """Approve what another person has requested, and carry it out; the released entry, if it was a release.

    `names`: everything the approver may be recorded as.
    """
    from kfm.runs.admission import held_by
    from kfm.runs.outcome import sweep

    _require_undecided(approval)
    _require_another(approval, (actor, *names), "approve")
    if approval.dataset_id is not None and approval.kind != "change":
        require_approvable(app, approval.dataset_id, actor)
    kernel = app.kernel
    sweep(kernel.store, kernel.liveness)  # a process that died works on nothing
    prepare = {
        "release": _release,
        "attempt": _attempt,
        "replay": _replay,
        "update": _update,
        "change": _change,
    }[approval.kind]
    answer = kernel.store.approve(prepare(app, approval, (actor, *names), rationale, claimed_actor))
    if answer.lock is not None:
        raise LockHeld(held_by(answer.lock), remedy="Approve it once that attempt has ended, if it failed.")
    if answer.answer != "approved":
        raise NotApproved("It was decided meanwhile, or what it was requested for has changed.")
    return kernel.store.held_one(approval.subject) if approval.kind == "release" else None


def reject(
    app: App,
    approval: Approval,
    *,
    actor: str,
    rationale: str,
    claimed_actor: str | None = None,
    names: Sequence[str] = (),
) -> None:
    """Reject what another person has requested: it can't be approved any more, only requested anew.

    `names`: everything the approver may be recorded as.
    """
    from kfm.model.runs import Reject

    _require_undecided(approval)
    _require_another(approval, (actor, *names), "reject")
    store, said = app.kernel.store, app.loaded.discretion.said(rationale)
    facts = {"about": approval.about}
    entry = approval_entry(
        app, "rejection", approval.subject, approval, store.now_ms(), facts, claimed_actor, actor, said
    )
    landed = store.reject(
        Reject(
            request_id=approval.request_id,
            rejected_by=actor,
            names=(actor, *names),
            rationale=said,
            update=approval.subject if approval.kind == "update" else None,
            entries=(entry,),
        )
    )
    if not landed:
        raise NotApproved("It was approved or rejected meanwhile.")


def _require_undecided(approval: Approval) -> None:
    if approval.rejected_at_ms is not None:
        raise NotApproved(
            f"{approval.rejected_by} has rejected it: {approval.rejection_rationale}",
            remedy="Ask for it anew, if that has changed.",
        )
    if approval.superseded_by is not None:
        raise NotApproved(
            "A newer preview has taken its place, or its request has ended.",
            remedy="`kfm approvals list` lists those that wait.",
        )
    if approval.state != "requested":
        raise NotApproved(f"{approval.approved_by} has approved it already; one approval is for one thing.")


def _require_another(approval: Approval, names: tuple[str, ...], verb: str) -> None:
    if is_same_person(approval.requested_by, approval.requested_names, names):
        raise NotApproved(
            f"{names[0]} has requested it, so another person has to {verb} it; --actor is only a claim.",
            remedy=f"Let another person run: kfm approvals {verb} {approval.request_id} --rationale TEXT",
        )


def _release(
    app: App,
    approval: Approval,
    names: tuple[str, ...],
    rationale: str,
    claimed_actor: str | None,
) -> Approve:
    """The run gets a new grant, the request a new budget, and is due at once."""
    from kfm.model.quarantine import release_digest
    from kfm.model.retry_budgets import granted
    from kfm.model.runs import Approve

    store, rationale = app.kernel.store, app.loaded.discretion.said(rationale)
    held = store.held_one(approval.subject)
    if held is None or held.state != "held" or release_digest(held) != approval.digest:
        raise NotApproved("What is held is not what the release was asked for: it has changed since.")
    run = store.run(held.subject) if held.grain == "run" else None
    now_ms, facts = store.now_ms(), {"held_id": held.held_id}
    agreed = approval_entry(
        app, "approval", held.subject, approval, now_ms, facts, claimed_actor, names[0], rationale
    )
    released = approval_entry(app, "release", held.subject, approval, now_ms, facts)
    return Approve(
        request_id=approval.request_id,
        held_id=held.held_id,
        digest=approval.digest,
        approved_by=names[0],
        names=names,
        rationale=rationale,
        grant=granted(run, store.retry_state(run.run_id), now_ms) if run is not None else None,
        revived=held.subject if held.grain == "request" else None,
        entries=(agreed, released),
    )


def _attempt(
    app: App,
    approval: Approval,
    names: tuple[str, ...],
    rationale: str,
    claimed_actor: str | None,
) -> Approve:
    """From now on one attempt may be made, for a while."""
    from kfm.model.approvals import attempt_digest

    kernel = app.kernel
    dataset = kernel.settings.declared(approval.dataset_id)
    if (
        dataset is None
        or attempt_digest(dataset, approval.subject, kernel.reached(dataset)) != approval.digest
    ):
        raise NotApproved(
            "The dataset's rights or its targets are not those that the attempt was asked for with."
        )
    return _for_a_while(app, approval, dataset.id, names, rationale, claimed_actor)


def _replay(
    app: App,
    approval: Approval,
    names: tuple[str, ...],
    rationale: str,
    claimed_actor: str | None,
) -> Approve:
    """From now on the plan may be carried out, for a while: all of it, and nothing else."""
    replays = app.kernel.store.replays()
    replay = replays.replay(approval.subject)
    moved = replays.moved(approval.subject)
    if replay is None or replay.digest != approval.digest or moved:
        changed = f"{counted(len(moved), 'unit')} changed since" if moved else "it is another"
        raise NotApproved(
            f"The plan is not what the replay was asked for with: {changed}.",
            remedy="Let it be asked for again, with a new plan.",
        )
    for dataset in replay.plan.by_dataset:
        require_approvable(app, dataset, names[0])
    return _for_a_while(app, approval, approval.subject, names, rationale, claimed_actor)


def _update(
    app: App,
    approval: Approval,
    names: tuple[str, ...],
    rationale: str,
    claimed_actor: str | None,
) -> Approve:
    """From now on the request may run, if it still would change what the preview says."""
    request = app.ledger.request_reader().request(approval.subject)
    waits = request is not None and request.state == "awaiting-approval"
    if request is None or not waits or request.plan_digest != approval.digest:
        raise NotApproved("The request does not wait for this approval any more.")
    _require_current(app, approval)
    approving = _for_a_while(app, approval, approval.subject, names, rationale, claimed_actor)
    return replace(approving, update=request.request_id)


def _require_current(app: App, approval: Approval) -> None:
    """What can't come true any more, or will not once another approval is carried out, is not approved."""
    from kfm.reports.approvals import excluded_by

    other = excluded_by(app.ledger, approval)
    if other is None:
        return
    if other.kind == "published":
        app.kernel.store.requests().preview_anew(1000)
        raise NotApproved(
            f"{other.sentence} Its preview is made anew, and asked for with that.",
            remedy="`kfm approvals list` has the new one as soon as a service, or `kfm schedule run-due`, "
            "has made it.",
        )
    raise NotApproved(
        other.sentence,
        remedy="Wait until that is published: then this preview is made anew, and asked for with that. "
        f"Or end the other: kfm requests cancel {other.request} --rationale TEXT",
    )


def _change(
    app: App,
    approval: Approval,
    names: tuple[str, ...],
    rationale: str,
    claimed_actor: str | None,
) -> Approve:
    """From now on the change may be applied, for a while: as it was planned, or not at all."""
    return _for_a_while(
        app, approval, approval.dataset_id or approval.subject, names, rationale, claimed_actor
    )


def _for_a_while(
    app: App,
    approval: Approval,
    about: str,
    names: tuple[str, ...],
    rationale: str,
    claimed_actor: str | None,
) -> Approve:
    """An approval that is used once, and expires unused."""
    from kfm.model.approvals import VALID_MS
    from kfm.model.runs import Approve

    rationale = app.loaded.discretion.said(rationale)
    now_ms, facts = app.kernel.store.now_ms(), {"about": approval.about}
    agreed = approval_entry(
        app, "approval", about, approval, now_ms, facts, claimed_actor, names[0], rationale
    )
    return Approve(
        request_id=approval.request_id,
        digest=approval.digest,
        approved_by=names[0],
        names=names,
        rationale=rationale,
        valid_ms=VALID_MS,
        entries=(agreed,),
    )


# --- what can't be approved ------------------------------------------------------------


def require_approvable(app: App, dataset_id: str, actor: str) -> None:
    """An approval that would change nothing is not requested: it would be read as one that counts."""
    from kfm.runs.gates import beyond_approval

    dataset = app.kernel.settings.declared(dataset_id)
    denied = beyond_approval(app.kernel.policies, dataset, actor) if dataset is not None else None
    if denied is not None:
        raise NotApproved(
            f"No approval lifts this: {denied.reason}",
            remedy="Do what the rule asks for; `kfm explain KFM301` says more.",
        )


def _require_held(app: App, held: QuarantineEntry) -> None:
    from kfm.model.retry_budgets import limits_of, may_be_granted

    if held.state != "held":
        raise UsageError(f"It is not held any more: it was {held.state} by {held.released_by}.")
    run = app.ledger.run(held.subject) if held.grain == "run" else None
    state = app.ledger.retry_state(run.run_id) if run is not None else None
    if run is not None and not may_be_granted(run, state, limits_of(app.settings, run.source_id)):
        raise NotApproved(
            "It was granted as often as anything is; trying the same once more is no way out.",
            remedy=f"Open a new revision: {force_command(work_command(run))}",
        )


def approval_entry(
    app: App,
    kind: str,
    about: str,
    approval: Approval,
    now_ms: int,
    facts: Mapping[str, str],
    claimed_actor: str | None = None,
    actor: str | None = None,
    rationale: str | None = None,
) -> GovernanceEntry:
    by = Justification(
        actor=actor or approval.requested_by,
        rationale=rationale or approval.rationale,
        ticket=approval.ticket,
        claimed_actor=claimed_actor and app.loaded.discretion.said(claimed_actor),
    )
    return governance_entry(
        kind,
        about,
        now_ms,
        by,
        request_id=approval.request_id,
        dataset_id=approval.dataset_id,
        digest=approval.digest,
        **facts,
    )
