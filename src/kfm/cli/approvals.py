"""`kfm approvals`: what needs a second person: request, list, show, approve, reject; standing approvals.

`kfm request` and `kfm approve` are older spellings, which no help lists.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from kfm.cli.options import CommandGroup, StateChoice, session_options
from kfm.cli.output import clipped, one_line, short_id, table
from kfm.cli.quarantine import NEEDS_APPROVAL, note_earlier
from kfm.cli.run import require_window
from kfm.cli.session import CommandSession
from kfm.model import next_steps
from kfm.model.errors import UsageError
from kfm.model.quantities import counted, moment
from kfm.model.quarantine import Approval
from kfm.model.rationales import require_rationale
from kfm.reports.lookup import SHOWN_CHARS_MAX, Sought, approvals_in, find_run, only
from kfm.reports.quarantine import approval_document, held_document, is_open
from kfm.reports.state_words import APPROVALS, of_approval

if TYPE_CHECKING:
    from kfm.db.ledger_reader import LedgerReader

OPEN_MAX = 1000
REMEDY = "`kfm approvals list` lists those that are open."
BEGINNING_MIN = 8  # characters: a mistyped beginning approves nothing


@click.group(name="approvals", cls=CommandGroup)
def command() -> None:
    """Request, list, show, give, reject and revoke approvals."""


# --- request -------------------------------------------------------------------------


@command.command(name="request")
@click.option("--source", metavar="ID", help="Of which source.")
@click.option("--window", metavar="W", help="Of which window, as for `kfm run`; else the source's last.")
@click.option("--run", "run_id", metavar="RUN", help="Or: of the work of this run, which failed.")
@click.option("--actor", metavar="NAME", help="On whose behalf; recorded beside who runs this.")
@click.option("--rationale", metavar="TEXT", help="Why it should be done. Required.")
@click.option("--ticket", metavar="ID", help="The ticket that this belongs to.")
@session_options
def request_command(
    session: CommandSession, source: str | None, window: str | None, run_id: str | None, **reason: Any
) -> int:
    """Request a second person's approval for one attempt at work that needs it.

    Data whose CARE level is restricted is fetched and published only after another person has approved it
    with `kfm approvals approve`. The approval is for one attempt at exactly this work: this source and
    window, with the rights and the pipeline as they are now. It holds for seven days. A retry needs another
    one. What is blocked, or lacks consent, can't be requested.

    Exit code 3: it needs an approval.

    \b
    Examples:
      kfm approvals request --source burials --window 2026-01-01/P1D --rationale "yearly review"
      kfm approvals request --run 0b7f --rationale "the provider is back"
    """
    if (source is None) == (run_id is None):
        raise UsageError("Say what to ask for: --source ID, with --window W, or --run RUN.")
    if run_id is not None and window is not None:
        raise UsageError("--run names its window itself.")
    require_rationale(reason["rationale"], "An approval is asked for with --rationale TEXT.")
    from kfm.service.approvals import request_attempt

    with session.app() as app:
        subject = _subject(app, source, window, run_id, reason)
        now_ms = app.ledger.now_ms()
        approval = request_attempt(app, subject, rationale=reason["rationale"], names=app.identity.names)
    session.emit(
        {"request": approval_document(approval)}, [f"requested  {approval.request_id}  {approval.about}"]
    )
    note_earlier(session, approval, now_ms)
    session.note(f"another person has to agree: {next_steps.approve_command(approval.request_id)}")
    return NEEDS_APPROVAL


def _subject(
    app: Any, source: str | None, window: str | None, run_id: str | None, reason: dict[str, Any]
) -> Any:
    from kfm.runs.kernel import RunRequest
    from kfm.runs.retry import window_of

    if run_id is not None:
        run = find_run(app.ledger, run_id)
        source, window = run.source_id, window_of(run)
    from kfm.service.source_choice import choose

    (chosen,) = choose(app.settings, (source or "",))
    if window is not None:
        require_window(window, [app.settings.source(chosen)], app.ledger.now_ms())
    return app.subject(
        RunRequest(
            source_id=chosen,
            window_spec=window,
            actor=app.actor,
            claimed_actor=reason["actor"],
            rationale=reason["rationale"],
            ticket=reason["ticket"],
        )
    )


# --- list and show -------------------------------------------------------------------


@command.command(name="list")
@click.option(
    "--state",
    type=StateChoice(APPROVALS.values(), APPROVALS),
    default="waiting-for-approval",
    help="In this state.",
    show_default=True,
)
@session_options
def list_approvals(session: CommandSession, state: str) -> int:
    """List what waits for an approval and can still be approved; or what was approved or rejected."""
    return _list(session, state)


def _list(session: CommandSession, state: str) -> int:
    """Of requests that wait only those that can still be approved."""
    with session.app(read_only=True) as app:
        ledger = app.ledger
        found = [
            one
            for one in ledger.approvals(state=state, limit=OPEN_MAX)
            if state != "requested" or is_open(ledger, one)
        ]
        documents = [{**approval_document(one), "excluded_by": _excluded(ledger, one)} for one in found]
    rows = [
        (
            moment(one.requested_at_ms).removesuffix(" UTC"),
            one.kind,
            one_line(one.about) or short_id(one.subject),
            one.requested_by,
            clipped(one.rationale),
            one.request_id,
        )
        for one in found
    ]
    header = ("ASKED (UTC)", "FOR", "OF", "BY", "WHY", "REQUEST")
    nothing = "nothing waits for an approval" if state == "requested" else f"nothing was {state}"
    session.emit(
        {"requests": documents},
        table(header, rows, spare=("FOR", "BY")) if rows else [nothing],
        rows=documents,
    )
    return 0


@command.command(name="show")
@click.argument("wanted", metavar="REQUEST")
@session_options
def show(session: CommandSession, wanted: str) -> None:
    """Show one request for an approval, its preview, the targets that it would reach, and its outcome.

    The beginning of its id is enough. Of an update the preview is shown as `kfm diff` prints it, of a change
    of a dataset its plan with every file, the versions that are purged and what readers are told: exactly
    this is approved, or rejected. What excludes it is named: another approval of the same dataset that was
    given, or a version that was published since.
    """
    with session.app(read_only=True) as app:
        ledger = app.ledger
        found = ledger.approval(wanted) or only(
            wanted, [approvals_in(ledger)], "`kfm approvals list` lists those that wait."
        )
        from kfm.service.approval_previews import plan_of, preview_lines, shown_approval

        plan = plan_of(ledger, found)
        document = shown_approval(ledger, app.settings, found, plan)
    preview = preview_lines(found, plan)
    session.emit({"request": document, "preview": preview}, [*_lines(found, document), *preview])


def _excluded(ledger: LedgerReader, one: Approval) -> str | None:
    from kfm.reports.approvals import excluded_by

    found = excluded_by(ledger, one)
    return None if found is None else found.sentence


def _lines(one: Approval, shown: dict[str, Any]) -> list[str]:
    facts = [
        ("id", one.request_id),
        ("state", of_approval(one.status)),
        ("for", one.kind),
        ("of", one.about or one.subject),
        ("dataset", one.dataset_id),
        ("asked", f"{moment(one.requested_at_ms)} by {one.requested_by}: {one.rationale}"),
        ("ticket", one.ticket),
    ]
    if one.approved_at_ms is not None:
        facts.append(
            ("approved", f"{moment(one.approved_at_ms)} by {one.approved_by}: {one.approval_rationale}")
        )
    if one.rejected_at_ms is not None:
        facts.append(
            ("rejected", f"{moment(one.rejected_at_ms)} by {one.rejected_by}: {one.rejection_rationale}")
        )
    if one.revoked_at_ms is not None:
        facts.append(
            ("revoked", f"{moment(one.revoked_at_ms)} by {one.revoked_by}: {one.revocation_rationale}")
        )
    if one.superseded_by is not None:
        facts.append(("replaced", f"by {one.superseded_by}"))
    if one.expires_at_ms is not None:
        facts.append(("lapses", moment(one.expires_at_ms)))
    if shown["uses"]:
        facts.append(("uses", counted(shown["uses"], "attempt")))
    facts += [("target", target) for target in shown["targets"]]
    facts.append(("excluded", shown["excluded_by"]))
    facts += [("rival", f"{other}: only one can be carried out as shown") for other in shown["rivals"]]
    if one.used_at_ms is not None:
        facts.append(("used", f"{moment(one.used_at_ms)} by {one.used_by}"))
    lines = [f"{name.ljust(9)} {one_line(text)}" for name, text in facts if text]
    if one.status == "requested":
        lines.append(f"decide    kfm approvals approve|reject {one.request_id} --rationale TEXT")
    return lines


# --- standing approvals --------------------------------------------------------------


@command.command(name="stand")
@click.argument("source", metavar="SOURCE")
@click.option("--until", metavar="DATE", required=True, help="The last day; at most 366 days ahead.")
@click.option("--actor", metavar="NAME", help="On whose behalf; recorded beside the account that runs this.")
@click.option("--rationale", metavar="TEXT", help="Why each run is approved in advance. Required.")
@click.option("--ticket", metavar="ID", help="The ticket that this belongs to.")
@session_options
def stand(session: CommandSession, source: str, until: str, **reason: Any) -> int:
    """Approve every run of a source until a date, in advance.

    Given by a declared person with the role approve, and only for what others ask for: a run that this
    person asks for needs another approval. It holds for the rights, the targets and the pipeline as they are
    now; with others it counts no more, and the next run waits for an approval again. Each use is kept in the
    audit log. `approvals.standing` of the source may name who gives it and how long it may last.

    \b
    Examples:
      kfm approvals stand burials --until 2027-06-30 --rationale "agreed with the council"
    """
    require_rationale(reason["rationale"], "A standing approval is given with --rationale TEXT.")
    from kfm.service.standing_approvals import stand

    with session.app(role="approve") as app:
        from kfm.service.source_choice import choose

        (chosen,) = choose(app.settings, (source,))
        approval = stand(
            app,
            chosen,
            identity=app.identity,
            until=until,
            rationale=reason["rationale"],
            ticket=reason["ticket"],
            claimed_actor=reason["actor"],
        )
    session.emit(
        {"request": approval_document(approval)}, [f"approved  {approval.request_id}  {approval.about}"]
    )
    session.note(f"it ends earlier with: kfm approvals revoke {approval.request_id} --rationale TEXT")
    return 0


@command.command(name="revoke")
@click.argument("request_id", metavar="REQUEST")
@click.option("--actor", metavar="NAME", help="On whose behalf; recorded beside the account that runs this.")
@click.option("--rationale", metavar="TEXT", help="Why it ends. Required.")
@session_options
def revoke(session: CommandSession, request_id: str, actor: str | None, rationale: str | None) -> int:
    """End a standing approval, or one of an attempt that was not made yet.

    From now on no attempt begins under it, and what is under way publishes nothing. What was published under
    it stays. REQUEST is the id in `kfm approvals list --state approved`.
    """
    require_rationale(rationale, "An approval is revoked with --rationale TEXT.")
    from kfm.service.standing_approvals import revoke

    with session.app(role="approve") as app:
        approval = _meant(app.ledger, request_id, "approved")
        revoke(app, approval, actor=app.actor, rationale=rationale or "", claimed_actor=actor)
        approval = app.ledger.approval(approval.request_id) or approval
    session.emit(
        {"request": approval_document(approval)}, [f"revoked  {approval.request_id}  {approval.about}"]
    )
    return 0


# --- approve and reject --------------------------------------------------------------


def _decision_options(why: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def with_options(function: Callable[..., Any]) -> Callable[..., Any]:
        function = click.option("--rationale", metavar="TEXT", help=why)(function)
        return click.option(
            "--actor", metavar="NAME", help="On whose behalf; recorded beside the account that runs this."
        )(function)

    return with_options


@command.command(name="approve")
@click.argument("request_id", metavar="REQUEST")
@_decision_options("Why you agree. Required.")
@session_options
def approve(session: CommandSession, request_id: str, actor: str | None, rationale: str | None) -> int:
    """Approve what another person has requested, and carry it out.

    The approver is the person that `kfm whoami` shows, and never the one that asked, under whatever name;
    --actor does not change that. Where people have roles, the approver needs the role approve. An approval
    is for exactly what was requested, as `kfm approvals show` prints it: if that has changed, or was approved
    or rejected already, it is refused. So is the second of two that exclude each other: previews of one
    dataset on one version. REQUEST is the id in `kfm approvals list`, or of what waits for it (`kfm requests
    list --state waiting-for-approval`); the beginning of one will do.
    """
    return _approve(session, request_id, actor, rationale)


def _approve(session: CommandSession, request_id: str, actor: str | None, rationale: str | None) -> int:
    require_rationale(rationale, "An approval is given with --rationale TEXT.")
    from kfm.service import approvals

    with session.app(role="approve") as app:
        approval = _meant(app.ledger, request_id)
        held = approvals.approve(
            app,
            approval,
            actor=app.actor,
            names=app.identity.names,
            rationale=rationale or "",
            claimed_actor=actor,
        )
        approval = app.ledger.approval(approval.request_id) or approval
    document = {"held": held_document(held) if held else None, "request": approval_document(approval)}
    if held is None:
        session.emit(document, [f"approved  {approval.request_id}  {approval.about}"])
        until = moment(approval.expires_at_ms or 0)
        if approval.kind == "replay":
            session.note(f"holds for this plan alone, to be begun until {until}:")
            session.note(f"kfm replay run {approval.subject} --confirm --rationale TEXT")
        elif approval.kind == "change":
            session.note(
                f"holds for this plan alone, until {until}; its requester runs the same command again"
            )
        elif approval.kind == "update":
            session.note(f"`kfm serve` runs it, if it still changes what was shown; holds until {until}")
        else:
            session.note(f"holds for one attempt, until {until}")
        return 0
    session.emit(document, [f"released  {short_id(held.held_id)}  {held.grain} {short_id(held.subject)}"])
    if held.grain == "run":
        session.note("it has a new budget and is due now: kfm retry --due")
    return 0


@command.command(name="reject")
@click.argument("request_id", metavar="REQUEST")
@_decision_options("Why not. Required.")
@session_options
def reject(session: CommandSession, request_id: str, actor: str | None, rationale: str | None) -> int:
    """Reject what another person has requested: it can't be approved any more, only requested anew.

    A person who may approve may reject: with the role approve, where people have roles, and never the one
    that asked. A request for an update that waited for this approval ends as rejected; a schedule does not
    ask again for the same before its inputs, its code or its rights change. The rejection and its reason are
    kept in the audit log.
    """
    require_rationale(rationale, "A request is rejected with --rationale TEXT.")
    from kfm.service import approvals

    with session.app(role="approve") as app:
        approval = _meant(app.ledger, request_id)
        approvals.reject(
            app,
            approval,
            actor=app.actor,
            names=app.identity.names,
            rationale=rationale or "",
            claimed_actor=actor,
        )
        approval = app.ledger.approval(approval.request_id) or approval
    session.emit(
        {"request": approval_document(approval)}, [f"rejected  {approval.request_id}  {approval.about}"]
    )
    return 0


def _meant(ledger: LedgerReader, wanted: str, state: str = "requested") -> Approval:
    """The one that has this id, or is about a request that has it. A beginning is enough: of those in the
    state first, then of any, which is told what became of it."""
    exact = ledger.approval(wanted)
    if exact is not None:
        return exact
    start = wanted.strip().lower()
    if len(start) < BEGINNING_MIN:
        raise UsageError(
            f"`{wanted}` is too short: give at least {BEGINNING_MIN} characters of the id.",
            remedy=REMEDY,
        )

    def begun(one: Approval) -> bool:
        return one.request_id.startswith(start) or (one.kind == "update" and one.subject.startswith(start))

    known = ledger.approvals(state=state, limit=OPEN_MAX)
    if not any(begun(one) for one in known):
        known = ledger.approvals(limit=OPEN_MAX)
    requests = [one for one in known if one.kind == "update"]
    found: Approval = only(
        wanted,
        [
            Sought("approval", "approvals", lambda _start: known, lambda one: one.request_id),
            Sought("approval", "approvals", lambda _start: requests, lambda one: one.subject),
        ],
        REMEDY,
        none=f"No approval begins with `{wanted[:SHOWN_CHARS_MAX]}`.",
    )
    return found


# --- older spelling ------------------------------------------------------------------


@click.command()
@click.argument("request_id", metavar="[REQUEST]", required=False)
@_decision_options("Why you agree. Required.")
@session_options
def approve_command(
    session: CommandSession, request_id: str | None, actor: str | None, rationale: str | None
) -> int:
    """The older spelling of `kfm approvals approve`; without REQUEST, of `kfm approvals list`."""
    if request_id is None:
        return _list(session, "requested")
    return _approve(session, request_id, actor, rationale)
