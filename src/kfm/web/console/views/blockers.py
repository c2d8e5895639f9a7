"""What stands in the way, as pages show it; `kfm status` tells it from the same home."""

from __future__ import annotations

from kfm.model.breaker import recovered_at_ms
from kfm.model.incidents import SEVERITY, Incident
from kfm.model.quarantine import Approval
from kfm.model.records import Record
from kfm.model.wording import counted, moment
from kfm.reports import blockers as standing
from kfm.web.console.state_words import Word, word
from kfm.web.console.visit import Visit, short

FAILED_SHOWN_MAX = 20


class ShownBlocker(Record, frozen=True):
    """One thing that keeps work from beginning."""

    kind: str
    word: Word
    what: str  # is blocked
    why: str
    since_ms: int | None
    who: str
    command: str


class ShownTrouble(Record, frozen=True):
    word: Word
    name: str
    text: str
    since_ms: int
    command: str


def blockers(visit: Visit) -> list[ShownBlocker]:
    """The hardest first."""
    return [
        ShownBlocker(
            kind=each.kind,
            word=word(each.how),
            what=each.what,
            why=each.why,
            since_ms=each.since_ms,
            who=each.who,
            command=each.command,
        )
        for each in standing.blockers(visit.context.settings, visit.reader, visit.now_ms)
    ]


def recovering(visit: Visit) -> list[str]:
    """Providers that are back, while what waited for them is let go bit by bit."""
    return [
        f"{each.provider} is called as usual; what waited comes back until {moment(recovered_at_ms(each))}"
        for each in visit.reader.breakers()
        if each.state == "closed" and each.closed_at_ms is not None and recovered_at_ms(each) > visit.now_ms
    ]


# --- incidents, approvals ----------------------------------------------------------------


def incident(each: Incident) -> ShownTrouble:
    if each.about == "provider":
        text = f"circuit open after {counted(each.affected, 'failure')} in a row"
    else:
        text = f"{each.error_code} ({each.error_class}), {counted(each.affected, 'run')}, {each.kind}"
    return ShownTrouble(
        word=word(SEVERITY[each.kind]),
        name=f"{each.about} {each.name}",
        text=text,
        since_ms=each.opened_at_ms,
        command=f"kfm incident show {short(each.incident_id)}",
    )


def approval(each: Approval) -> ShownTrouble:
    about = each.about or f"{each.kind} of {short(each.subject)}"
    return ShownTrouble(
        word=word("approval needed"),
        name=about,
        text=f"asked for by {each.requested_by}: {each.rationale}",
        since_ms=each.requested_at_ms,
        command=f"kfm approvals approve {each.request_id} --rationale TEXT",
    )
