"""The page of an incident: one cause, what it affects, and what can be done about it."""

from __future__ import annotations

from typing import Any

from kfm.model.incidents import SEVERITY, Incident, condition, is_of_unit
from kfm.model.quantities import counted
from kfm.model.records import Record
from kfm.reports.incidents import incident_next_step, told_documents
from kfm.web.console.actions import Offer, circuit, offer
from kfm.web.console.state_words import Word, word
from kfm.web.console.views.explanation import Fact, Next, allowed
from kfm.web.console.visit import Link, NotHere, Visit, short

SUBJECTS_MAX = 100


class IncidentView(Record, frozen=True):
    title: str
    word: Word
    what: str
    code: str
    message: str
    facts: tuple[Fact, ...]
    subjects: tuple[Link, ...]
    more: int  # subjects that are not shown
    told: tuple[dict[str, Any], ...]
    commands: tuple[Next, ...]
    actions: tuple[Offer, ...]


def view_one(visit: Visit) -> IncidentView:
    wanted = visit.params["incident_id"]
    found = [one for one in visit.reader.find_incidents(wanted) if one.incident_id == wanted]
    if not found:
        raise NotHere("No incident of that id is on record. `kfm incident list --all` lists all.")
    (incident,) = found
    if incident.about == "dataset":
        allowed(visit, incident.name)
    elif visit.visibility.hides_record(incident):
        raise NotHere("No incident of that id is on record. `kfm incident list --all` lists all.")
    step = incident_next_step(visit.reader, incident)
    subjects = visit.reader.incident_subjects(incident.cause, SUBJECTS_MAX)
    return IncidentView(
        title=f"Incident {short(incident.incident_id)}",
        word=word("resolved" if incident.state == "resolved" else SEVERITY[incident.kind]),
        what=_what(incident),
        code=incident.error_code,
        message=incident.message,
        facts=tuple(_facts(visit, incident)),
        subjects=tuple(_subject(visit, each) for each in subjects),
        more=max(visit.reader.incident_affects(incident.cause) - len(subjects), 0),
        told=tuple(told_documents(visit.reader, incident)),
        commands=() if step is None else (Next(command=step["command"], why=step["sentence"]),),
        actions=tuple(_actions(visit, incident)) if incident.state == "open" else (),
    )


def _what(incident: Incident) -> str:
    if incident.about == "provider":
        return f"circuit open after {counted(incident.affected, 'failure')} in a row"
    return condition(
        incident.kind, incident.affected, incident.error_code, incident.error_class, incident.subject
    )


def _facts(visit: Visit, incident: Incident) -> list[Fact]:
    is_dataset = incident.about == "dataset"
    silences = [
        each
        for each in visit.reader.silences()
        if each.scope in (f"incident:{incident.incident_id}", f"dataset:{incident.name}")
    ]
    facts = [
        Fact(
            name=incident.about.capitalize(),
            text=incident.name,
            href=visit.dataset_page(incident.name) if is_dataset else None,
        ),
        Fact(name="Opened (UTC)", text="", at_ms=incident.opened_at_ms),
        Fact(name="Last met (UTC)", text="", at_ms=incident.last_at_ms),
        Fact(name="Looked after by", text=incident.acknowledged_by or ""),
        Fact(name="Acknowledged (UTC)", text="", at_ms=incident.acknowledged_at_ms),
        Fact(name="Escalated (UTC)", text="", at_ms=incident.escalated_at_ms),
        Fact(name="Resolved (UTC)", text="", at_ms=incident.resolved_at_ms),
        *(Fact(name="Silenced until (UTC)", text="", at_ms=each.until_ms) for each in silences[:1]),
        Fact(name="Times that it came up", text=str(incident.occurrence)),
    ]
    return [fact for fact in facts if fact.text or fact.at_ms is not None]


def _subject(visit: Visit, subject: str) -> Link:
    if is_of_unit(subject):
        unit = visit.reader.unit_reader().unit(subject)
        return Link(text=unit.object_uri if unit else subject, href=visit.at("units", subject))
    run = visit.reader.run(subject)
    return Link(text=f"run {short(subject)}" if run else subject, href=visit.run(subject) if run else "")


def _actions(visit: Visit, incident: Incident) -> list[Offer]:
    one = {"incident_id": incident.incident_id}
    if incident.about == "provider":
        return [
            *circuit(visit, incident.name),
            offer(visit, "assignIncident", **one),
            offer(visit, "silenceIncident", **one),
        ]
    names = ["assignIncident", "silenceIncident", "closeIncident"]
    if incident.acknowledged_at_ms is None:
        names.insert(0, "acknowledgeIncident")
    if incident.kind in ("dead-letter", "quarantine") and not is_of_unit(incident.subject):
        names.insert(0, "retryIncident")
    return [offer(visit, each, **one) for each in names]
