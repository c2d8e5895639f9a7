"""Explains an incident, and the circuit breaker of a provider: since when, why, and how it ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfm.model.breaker import Breaker, providers_of
from kfm.model.incidents import Incident, Kind, incident_step
from kfm.model.quantities import counted, moment, short_id, stopped
from kfm.model.settings import Settings
from kfm.reports.blockers import lifting, open_circuits
from kfm.reports.breakers import breaker_document, breaker_text
from kfm.reports.explain.sentences import Explanation, Ref, Sentence, of_link, of_run
from kfm.reports.incidents import incident_text, present_document
from kfm.reports.next_steps import step_of_run

if TYPE_CHECKING:
    from kfm.db.ledger_reader import LedgerReader

SUBJECT = "provider:"  # what entries of the audit log about one begin with
SHOWN_MAX = 5
NOT_OF_RUNS: dict[Kind, str] = {
    "overdue": "It is resolved once each window is there, or dismissed.",
    "approval-waiting": "It is resolved once each request is decided, or has lapsed.",
    "withdrawn": "It is resolved once every target shows it.",
}


def explain_breaker(ledger: LedgerReader, settings: Settings, breaker: Breaker, now_ms: int) -> Explanation:
    ref = Ref(type="breaker", id=breaker.provider)
    blocker = next(open_circuits(settings, [breaker], now_ms), None)
    if blocker is None:
        text = f"Provider {breaker_text(breaker_document(breaker, now_ms, settings))}."
    else:
        text = f"Provider {breaker.provider} is blocked: {stopped(blocker.why)} {lifting(blocker)}"
    callers = [
        source.id for source in settings.sources if breaker.provider in providers_of(source, settings.source)
    ]
    chain = [Sentence(text=f"Sources that call it: {', '.join(callers)}.", record=ref)] if callers else []
    chain += [
        of_link(
            stopped(
                f"{link.entry.actor} reset it at {moment(link.entry.recorded_at_ms)}: {link.entry.rationale}"
            ),
            link,
        )
        for link in ledger.links(f"{SUBJECT}{breaker.provider}", SHOWN_MAX)
        if link.entry.kind == "breaker-reset"
    ]
    return Explanation(
        kind="breaker", id=breaker.provider, reason=Sentence(text=text, record=ref), chain=tuple(chain)
    )


def explain_incident(ledger: LedgerReader, settings: Settings, found: Incident, now_ms: int) -> Explanation:
    ref = Ref(type="incident", id=found.incident_id)
    name, said = (
        f"Incident {found.incident_id}",
        incident_text(present_document(ledger, found, ledger.silences())),
    )
    if found.state == "resolved":
        reason = f"{name} is resolved since {moment(found.resolved_at_ms or 0)}: {said}."
    else:
        reason = (
            f"{name} is open: {said}: {stopped(found.message)} {_way_out(ledger, settings, found, now_ms)}"
        )
    chain = [
        Sentence(
            text=f"It opened at {moment(found.opened_at_ms)} and was last met at {moment(found.last_at_ms)}, "
            f"{counted(found.affected, 'time')}; the cause has come up {counted(found.occurrence, 'time')}.",
            record=ref,
        )
    ]
    for subject in ledger.incident_subjects(found.cause, SHOWN_MAX):
        run = ledger.run(subject)
        if run is not None:
            said = f"{run.error_code}: {run.error_message}" if run.error_code else run.status
            chain.append(of_run(stopped(f"It affects run {subject}: {said}"), run))
        elif found.kind in NOT_OF_RUNS:
            chain.append(Sentence(text=f"It affects {subject}.", record=ref))
    return Explanation(
        kind="incident", id=found.incident_id, reason=Sentence(text=reason, record=ref), chain=tuple(chain)
    )


def _way_out(ledger: LedgerReader, settings: Settings, found: Incident, now_ms: int) -> str:
    """It ends by itself; what helps it to, and who can close it where nothing else does."""
    close = f"kfm incident close {short_id(found.incident_id)} --rationale TEXT"
    if found.about == "provider":
        blocker = next(open_circuits(settings, [ledger.breaker(found.name)], now_ms), None)
        if blocker is not None:
            return lifting(blocker)
    run = ledger.run(found.subject)
    step = step_of_run(ledger, run, now_ms, settings) if run is not None else None
    if step is not None:
        return f"It is resolved once its window succeeds. Next: {step.line}"
    if found.kind in NOT_OF_RUNS:
        asked = incident_step(found, ledger.incident_subject(found.cause, found.subject), masked=False)
        assert asked is not None, "it is open"
        return f"{NOT_OF_RUNS[found.kind]} Next ({asked.who}): {asked.sentence}: `{asked.command}`."
    return f"It is resolved once its window succeeds; else an operator closes it: `{close}`."
