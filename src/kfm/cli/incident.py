"""`kfm incident`: incidents, one per cause, and their notifications."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from kfm.cli.options import CommandGroup, session_options
from kfm.cli.output import one_line, short_id, table, utc
from kfm.cli.session import CommandSession
from kfm.model.errors import UsageError
from kfm.model.quantities import counted
from kfm.model.rationales import require_rationale
from kfm.model.records import Justification, justified
from kfm.reports.incidents import (
    find_incident,
    incident_care,
    incident_document,
    incident_next_step,
    present_document,
    retried_document,
    silence_document,
    told_documents,
)

LIMIT_MAX = 10_000
SUBJECTS_SHOWN_MAX = 100
SUBJECT_WORDS = {"overdue": "window", "approval-waiting": "request", "withdrawn": "target"}


@click.group(name="incident", cls=CommandGroup)
def command() -> None:
    """List, show, assign, retry, silence and close incidents."""


@command.command(name="list")
@click.option("--all", "everything", is_flag=True, help="Also those that are resolved.")
@click.option(
    "--limit", type=click.IntRange(1, LIMIT_MAX), default=50, help="At most so many.", show_default=True
)
@session_options
def list_incidents(session: CommandSession, everything: bool, limit: int) -> None:
    """List the open incidents, newest first.

    There is one for each cause: a dataset or a provider with one kind of error, however many runs it stops.
    It is resolved by itself once the last window that it affects is there, the last request is decided,
    every target shows a withdrawal, or the provider is called again.
    """
    with session.app(read_only=True) as app:
        found = app.ledger.incidents(state=None if everything else "open", limit=limit + 1)
        silences = app.ledger.silences()
        documents = [present_document(app.ledger, incident, silences) for incident in found[:limit]]
    more = len(found) > limit
    rows = [
        (
            utc(each["opened_at"]).removesuffix(" UTC"),
            _state(each),
            each["severity"],
            f"{each['about']} {one_line(each['name'])}",
            each["kind"],
            each["error_code"],
            str(each["affected"]),
            short_id(each["incident_id"]),
        )
        for each in documents
    ]
    header = ("SINCE (UTC)", "STATE", "SEVERITY", "ABOUT", "KIND", "ERROR", "AFFECTED", "ID")
    lines = (
        table(header, rows, spare=("KIND", "AFFECTED", "STATE"))
        if rows
        else ["no incident is open" if not everything else "no incident yet"]
    )
    session.emit({"incidents": documents, "more": more}, lines, rows=documents)
    if more and session.output == "text":
        session.note(f"there are more than are shown: use --limit (now {limit})")


@command.command(name="show")
@click.argument("wanted", metavar="ID")
@session_options
def show_incident(session: CommandSession, wanted: str) -> None:
    """Show one incident, what it affects, and which hook has been notified of which change.

    ID is that of the incident or of its cause; the beginning is enough.
    """
    with session.app(read_only=True) as app:
        incident = find_incident(app.ledger, wanted)
        subjects = app.ledger.incident_subjects(incident.cause, SUBJECTS_SHOWN_MAX)
        told = told_documents(app.ledger, incident)
        step = incident_next_step(app.ledger, incident)
        shown = present_document(app.ledger, incident, app.ledger.silences())
    document = {
        "incident": shown,
        "subjects": subjects,
        "told": told,
        "next_step": step,
    }
    session.emit(document, _lines(document))


def _reasons(why: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The options of a person's decision."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in (
            click.option("--ticket", metavar="ID", help="The ticket that this belongs to."),
            click.option("--rationale", metavar="TEXT", help=f"{why} Required."),
            click.option(
                "--actor", metavar="NAME", help="On whose behalf; recorded beside the account that runs this."
            ),
        ):
            command = option(command)
        return command

    return decorate


def _by(app: Any, what: str, options: dict[str, Any]) -> Justification:
    require_rationale(options["rationale"], f"{what} with --rationale TEXT.")
    said = app.loaded.discretion.said
    return justified(said, app.actor, options["rationale"], options["ticket"], options["actor"])


@command.command(name="ack")
@click.argument("wanted", metavar="ID")
@_reasons("Who looks after it, or why that is enough.")
@session_options
def acknowledge(session: CommandSession, wanted: str, **options: Any) -> None:
    """Acknowledge an incident: a person has seen it, and it is not escalated.

    It stays open until its cause is gone, and hooks are still notified when it gets worse or is resolved.
    The rationale is kept in the audit log.
    """
    with session.app() as app:
        from kfm.service.incidents import acknowledge_incident

        by = _by(app, "An incident is acknowledged", options)
        incident = acknowledge_incident(app, find_incident(app.ledger, wanted), by)
        document = incident_document(incident, app.ledger.silences())
        session.emit({"incident": document}, [f"acknowledged  {incident.incident_id}"])


@command.command(name="assign")
@click.argument("wanted", metavar="ID")
@click.argument("person", metavar="PERSON")
@_reasons("Why this person.")
@session_options
def assign(session: CommandSession, wanted: str, person: str, **options: Any) -> None:
    """Say who looks after an incident from now on; it is not escalated.

    PERSON is a subject of `people`, where the configuration names some. The rationale is kept in the audit
    log.
    """
    with session.app() as app:
        from kfm.service.incidents import assign_incident

        by = _by(app, "An incident is assigned", options)
        incident = assign_incident(app, find_incident(app.ledger, wanted), person, by)
        document = incident_document(incident, app.ledger.silences())
        session.emit({"incident": document}, [f"assigned to {one_line(person)}  {incident.incident_id}"])


@command.command(name="retry")
@click.argument("wanted", metavar="ID")
@_reasons("Why it should go well now.")
@session_options
def retry_affected(session: CommandSession, wanted: str, **options: Any) -> None:
    """Request one more attempt at every failed run that an incident affects.

    The requests are carried out by the next `kfm serve`, or by `kfm requests run`. What can't be retried
    is listed with the reason; what is quarantined needs its release. Repeated, it makes no second request for
    the same attempt. The rationale is kept in the audit log.
    """
    with session.app() as app:
        from kfm.service.incident_retries import retry_incident

        by = _by(app, "Its runs are retried", options)
        incident = find_incident(app.ledger, wanted)
        retried = retry_incident(app, incident, by, by_person=True)
        document = retried_document(incident.incident_id, retried)
        lines = [
            f"requested  {short_id(one['request_id'])}  run {short_id(one['run_id'])}"
            for one in document["requests"]
        ]
        lines += [f"skipped    {short_id(one['subject'])}  {one['why']}" for one in document["passed_over"]]
        session.emit(document, lines)


@command.command(name="silence")
@click.argument("wanted", metavar="DATASET|ID")
@click.option("--until", metavar="TIME", help="To then, as RFC 3339, such as 2026-02-01T08:00:00Z.")
@click.option("--for", "length", metavar="DURATION", help="Or: for so long, such as PT8H or P2D.")
@click.option("--end", is_flag=True, help="Or: end the silence now.")
@_reasons("Why nothing is to be sent.")
@session_options
def silence_incidents(session: CommandSession, wanted: str, **options: Any) -> None:
    """Send no notifications of a dataset, or of one incident, until a time.

    Incidents open, get worse and end as always; `kfm status` and `kfm incident list` show them. When the
    silence ends, hooks are told once how each stands that is still open, and what they knew as open and
    was resolved meanwhile. At most 90 days. The rationale is kept in the audit log.
    """
    if sum(bool(options[name]) for name in ("until", "length", "end")) != 1:
        raise UsageError("Say until when: one of --until TIME, --for DURATION, --end.")
    with session.app() as app:
        from kfm.service.incidents import end_silence, silence, silence_scope

        by = _by(app, "A silence is set or ended", options)
        scope = silence_scope(app, wanted)
        if options["end"]:
            end_silence(app, scope, by)
            session.emit({"scope": scope, "silence": None}, [f"no longer silenced  {scope}"])
            from kfm.cli.run import notify_hooks

            notify_hooks(session, app)
            return
        made = silence(app, scope, named_end(app.ledger.now_ms(), options), by)
        document = silence_document(made)
        session.emit(
            {"scope": scope, "silence": document}, [f"silenced until {utc(document['until'])}  {scope}"]
        )


def named_end(now_ms: int, options: dict[str, Any]) -> int:
    """The time that --until or --for means."""
    from kfm.model.times import parse_rfc3339
    from kfm.model.windows import parse_duration, shifted

    if options["length"]:
        return shifted(now_ms, parse_duration(options["length"]), "UTC")
    return parse_rfc3339(options["until"])


@command.command(name="test")
@click.argument("hook", metavar="HOOK")
@session_options
def send_test(session: CommandSession, hook: str) -> int:
    """Send a test notification to one hook of `incidents:`, whatever it is to get otherwise.

    Its type is `incident.test`; it is about no dataset, and is not kept. Exit code 4: the hook failed.
    """
    with session.app() as app:
        from kfm.service.incidents import send_test

        change_id, trouble = send_test(app, hook)
    code = 4 if trouble else 0
    document = {"hook": hook, "change_id": change_id, "trouble": trouble, "exit_code": code}
    session.emit(document, [f"{hook}  {'failed' if trouble else 'has taken a test notification'}"])
    if trouble:
        session.fail(f"error: hook {hook}: {one_line(trouble)}")
    return code


@command.command(name="close")
@click.argument("wanted", metavar="ID")
@click.option("--actor", metavar="NAME", help="On whose behalf; recorded beside the account that runs this.")
@click.option("--rationale", metavar="TEXT", help="Why it is over. Required.")
@click.option("--ticket", metavar="ID", help="The ticket that this belongs to.")
@session_options
def close(session: CommandSession, wanted: str, rationale: str | None, **options: Any) -> None:
    """Resolve an incident whose cause is gone though no run will show it.

    Only needed where a source was taken out, or a window will not be run again: an incident is resolved by
    itself with the last window that it affects. The reason is kept in the audit log; hooks are notified.
    Quarantined work stays quarantined, and what is still overdue opens a new incident.
    """
    require_rationale(rationale, "An incident is closed with --rationale TEXT.")
    from kfm.cli.run import notify_hooks

    with session.app() as app:
        from kfm.service.incidents import close_incident

        incident = close_incident(
            app,
            find_incident(app.ledger, wanted),
            actor=app.actor,
            rationale=rationale or "",
            ticket=options["ticket"],
            claimed_actor=options["actor"],
        )
        document = incident_document(incident, app.ledger.silences())
        session.emit({"incident": document}, [f"resolved  {incident.incident_id}"])
        notify_hooks(session, app)


@command.command(name="deliver")
@session_options
def deliver(session: CommandSession) -> int:
    """Send the notifications that wait to the hooks of `incidents:`.

    A run sends them when it ends. Use this after a hook was down, or from a schedule. What rests after a
    failure is tried at once. A hook may get the same change twice, with the same id; never a change less.

    Exit code 4: a hook failed; its notifications wait.
    """
    with session.app() as app:
        from kfm.service.incidents import deliver_incidents, hook_name

        names = [hook_name(hook) for hook in app.settings.incidents]
        if not names:
            raise UsageError(
                "There are no notifications: the configuration has no `incidents`.",
                remedy="Add a hook to `incidents:`, such as {kind: file, path: incidents.jsonl}.",
            )
        rounds = {each.hook: each.delivered for each in deliver_incidents(app, on_request=True)}
    documents = [_round_document(name, rounds.get(name)) for name in names]
    code = 4 if any(each["trouble"] or each["waiting"] for each in documents) else 0
    session.emit({"hooks": documents, "exit_code": code}, [_pass_line(each) for each in documents])
    for each in documents:
        if each["trouble"]:
            session.fail(f"error: hook {each['hook']}: {one_line(each['trouble'])}")
    return code


# --- lookup and lines --------------------------------------------------------------------


def _round_document(name: str, delivered: Any) -> dict[str, Any]:
    return {
        "hook": name,
        "sent": delivered.sent if delivered else 0,
        "waiting": delivered.waiting if delivered else 0,
        "trouble": delivered.trouble if delivered else None,
    }


def _pass_line(document: dict[str, Any]) -> str:
    sent, waiting = document["sent"], document["waiting"]
    if not sent and not waiting:
        return f"{document['hook']}  nothing was waiting"
    rest = f"; {counted(waiting, 'change')} waiting" if waiting else ""
    return f"{document['hook']}  notified of {counted(sent, 'change')}{rest}"


def _state(incident: dict[str, Any]) -> str:
    if incident["state"] != "open":
        return str(incident["state"])
    if incident["silenced_until"]:
        return "silenced"
    if incident["acknowledged_at"]:
        return "acknowledged"
    return "escalated" if incident["escalated_at"] else "open"


def _lines(document: dict[str, Any]) -> list[str]:
    incident = document["incident"]
    state = f"open since {utc(incident['opened_at'])}"
    if incident["resolved_at"]:
        state = f"resolved at {utc(incident['resolved_at'])}; opened at {utc(incident['opened_at'])}"
    many = incident["affected"]
    word = SUBJECT_WORDS.get(incident["kind"], "run")
    affected = counted(many, word) if incident["about"] == "dataset" else f"{many} failures in a row"
    step = document["next_step"]
    facts = [
        ("id", incident["incident_id"]),
        ("state", f"{state}{incident_care(incident)}"),
        (incident["about"], incident["name"]),
        ("severity", f"{incident['severity']} ({incident['kind']})"),
        ("error", f"{incident['error_code']} ({incident['error_class']}): {incident['message']}"),
        ("affected", f"{affected}, the latest at {utc(incident['last_at'])}"),
        ("occurrence", f"{incident['occurrence']}, with {counted(incident['changes'], 'change')}"),
        *((word, subject) for subject in document["subjects"]),
        *(("told", _told_line(one)) for one in document["told"]),
        ("look into it", _way_on(incident)),
        *((("next step", f"{step['sentence']} ({step['who']}): {step['command']}"),) if step else ()),
    ]
    return [f"{name.ljust(13)} {one_line(value)}" for name, value in facts]


def _told_line(told: dict[str, Any]) -> str:
    when = f"{told['change']} of {utc(told['at'])}"
    if told["hook"] is None:
        return f"{when}: not yet"
    if told["delivered_at"]:
        return f"{when}: {told['hook']} at {utc(told['delivered_at'])}"
    return f"{when}: {told['hook']} waits, tried {told['tries']} times"


def _way_on(incident: dict[str, Any]) -> str:
    if incident["about"] == "provider":
        return "kfm breaker list"
    if incident["kind"] == "approval-waiting":
        return "kfm approvals list"
    if incident["kind"] in ("overdue", "withdrawn"):
        return f"kfm explain {incident['name']}"
    return f"kfm quarantine list --dataset {incident['name']}"
