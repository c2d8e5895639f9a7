"""Blockers, incidents and approvals as pages show them; `kfm status` reads the same reports."""

from __future__ import annotations

from collections.abc import Sequence

from kfm.model.breaker import recovered_at_ms
from kfm.model.incidents import SEVERITY, Incident, Silence, condition
from kfm.model.next_steps import approve_command
from kfm.model.quantities import counted, moment
from kfm.model.quarantine import Approval
from kfm.model.records import Record
from kfm.reports import blockers as reports
from kfm.reports.incidents import incident_care, incident_document
from kfm.web.console.actions import Offer, offer
from kfm.web.console.state_words import Word, word
from kfm.web.console.visit import Visit, short

FAILED_SHOWN_MAX = 20


class ShownBlocker(Record, frozen=True):
    """A reason why work does not start."""

    kind: str
    word: Word
    what: str  # is blocked
    why: str
    since_ms: int | None
    who: str
    command: str
    is_on_purpose: bool = False
    holds: tuple[str, ...] = ()  # datasets
    actions: tuple[Offer, ...] = ()


class ShownTrouble(Record, frozen=True):
    word: Word
    name: str
    text: str
    since_ms: int
    command: str
    dataset_id: str = ""  # whose it is
    run_id: str = ""
    actions: tuple[Offer, ...] = ()


def blockers(visit: Visit) -> list[ShownBlocker]:
    """The hardest first."""
    settings = visit.context.settings
    return [
        ShownBlocker(
            kind=each.kind,
            word=word(each.how),
            what=each.what,
            why=each.why,
            since_ms=each.since_ms,
            who=each.who,
            command=each.command,
            is_on_purpose=each.is_on_purpose,
            holds=tuple(one.id for one in settings.datasets if each.holds(one.id, one.domain)),
            actions=tuple(_lifting(visit, each)),
        )
        for each in reports.blockers(settings, visit.reader, visit.now_ms)
    ]


def _lifting(visit: Visit, each: reports.Blocker) -> list[Offer]:
    if each.kind in ("switch", "replays"):
        return [offer(visit, "setSwitch", "Resume", scope=each.scope, position="running")]
    if each.kind == "breaker":
        return [offer(visit, "resetBreaker", provider=each.what.removeprefix("provider "))]
    return []


def recovering(visit: Visit) -> list[str]:
    """Providers whose circuit has closed, while the work that waited for them starts gradually."""
    return [
        f"{each.provider} has recovered; the work that waited starts until {moment(recovered_at_ms(each))}"
        for each in visit.reader.breakers()
        if each.state == "closed" and each.closed_at_ms is not None and recovered_at_ms(each) > visit.now_ms
    ]


# --- incidents, approvals ----------------------------------------------------------------


def incident(visit: Visit, each: Incident, silences: Sequence[Silence]) -> ShownTrouble:
    if each.about == "provider":
        text = f"circuit open after {counted(each.affected, 'failure')} in a row"
    else:
        text = condition(each.kind, each.affected, each.error_code, each.error_class)
    text += incident_care(incident_document(each, silences))
    return ShownTrouble(
        word=word(SEVERITY[each.kind]),
        name=f"{each.about} {each.name}",
        text=text,
        since_ms=each.opened_at_ms,
        command=f"kfm incident show {short(each.incident_id)}",
        dataset_id=each.name if each.about == "dataset" else "",
        run_id=each.subject,
        actions=tuple(
            offer(visit, name, incident_id=each.incident_id)
            for name in ("acknowledgeIncident", "silenceIncident", "closeIncident")
            if each.acknowledged_at_ms is None or name != "acknowledgeIncident"
        ),
    )


def decisions(visit: Visit, each: Approval) -> list[Offer]:
    """What a second person may do about a request."""
    return [offer(visit, name, request_id=each.request_id) for name in ("approve", "reject")]


def approval(visit: Visit, each: Approval) -> ShownTrouble:
    about = each.about or f"{each.kind} of {short(each.subject)}"
    return ShownTrouble(
        word=word("waiting for approval"),
        name=about,
        text=f"requested by {each.requested_by}: {each.rationale}",
        since_ms=each.requested_at_ms,
        command=approve_command(each.request_id),
        dataset_id=each.dataset_id or "",
        actions=tuple(decisions(visit, each)),
    )
