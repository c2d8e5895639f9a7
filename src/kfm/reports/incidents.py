"""Incidents, as documents and as one line."""

from __future__ import annotations

from typing import Any

from kfm.model.quantities import instant, one_line, short_id, utc
from kfm.reports.lookup import SHOWN_CHARS_MAX, Sought, only


def present_document(ledger: Any, incident: Any, silences: Any = ()) -> dict[str, Any]:
    """With what it affects now: of what is over for some, the rest. What has to be shown counts as it was."""
    now = ledger.incident_affects(incident.cause) if incident.state == "open" else 0
    stays = incident.about != "dataset" or incident.kind == "withdrawn" or not now
    return {**incident_document(incident, silences), **({} if stays else {"affected": now})}


def retried_document(incident_id: str, retried: Any) -> dict[str, Any]:
    """The requests for what an incident affects, and what is not retried."""
    return {
        "incident_id": incident_id,
        "requests": [
            {"request_id": one.request_id, "run_id": one.details["retry_of"], "state": one.state}
            for one in retried.requests
        ],
        "passed_over": [{"subject": one.subject, "why": one.why} for one in retried.passed_over],
    }


def incident_document(incident: Any, silences: Any = ()) -> dict[str, Any]:
    """`silences`: those in force."""
    from kfm.model.incidents import SEVERITY, silenced_until

    return {
        "incident_id": incident.incident_id,
        "cause": incident.cause,
        "state": incident.state,
        "severity": SEVERITY[incident.kind],
        "kind": incident.kind,
        "about": incident.about,
        "name": incident.name,
        "error_class": incident.error_class,
        "error_code": incident.error_code,
        "message": incident.message,
        "subject": incident.subject,
        "occurrence": incident.occurrence,
        "changes": incident.changes,
        "affected": incident.affected,
        "opened_at": instant(incident.opened_at_ms),
        "last_at": instant(incident.last_at_ms),
        "resolved_at": instant(incident.resolved_at_ms),
        "acknowledged_at": instant(incident.acknowledged_at_ms),
        "acknowledged_by": incident.acknowledged_by,
        "escalated_at": instant(incident.escalated_at_ms),
        "silenced_until": instant(silenced_until(incident, silences)) if silences else None,
    }


def incident_text(document: dict[str, Any]) -> str:
    whom = f"{document['about']} {one_line(document['name'])}"
    many = document["affected"]
    if document["about"] == "provider":
        what = f"circuit open after {many} failures in a row"
    else:
        from kfm.model.incidents import condition

        what = condition(
            document["kind"], many, document["error_code"], document["error_class"], document["subject"]
        )
    since = f"since {utc(document['opened_at'])}"
    return f"{document['severity']}: {whom}: {what}, {since}{incident_care(document)}"


def incident_care(document: dict[str, Any]) -> str:
    """Who has seen it, and whether it is silenced."""
    said = ""
    if document["acknowledged_at"]:
        said += f", acknowledged by {one_line(document['acknowledged_by'])}"
    if document["escalated_at"]:
        said += f", escalated at {utc(document['escalated_at'])}"
    if document["silenced_until"]:
        said += f", silenced until {utc(document['silenced_until'])}"
    return said


_STATES = {"overdue": "behind", "withdrawn": "behind", "approval-waiting": "waiting"}


def incident_headline(documents: list[dict[str, Any]]) -> tuple[str, str, str, str]:
    """Of the worst: state, sentence, who, command. Its run may be under way again, or its source gone; until
    it is resolved, all is not clear."""
    from kfm.model.incidents import APPROVER, OPERATOR, RANK

    worst = max(documents, key=lambda each: RANK[each["kind"]])  # the newest of those
    state = _STATES.get(worst["kind"], "failing")
    who = APPROVER if worst["kind"] == "approval-waiting" else OPERATOR
    command = f"kfm incident show {short_id(worst['incident_id'])}"
    return state, f"{state}: {incident_text(worst)}", who, command


def silence_document(silence: Any) -> dict[str, Any]:
    return {
        "scope": silence.scope,
        "set_at": instant(silence.set_at_ms),
        "until": instant(silence.until_ms),
        "set_by": silence.set_by,
        "rationale": silence.rationale,
        "ended_at": instant(silence.ended_at_ms),
    }


def incident_next_step(ledger: Any, incident: Any) -> dict[str, Any] | None:
    """What a person does next about it; None: it is over."""
    import msgspec

    from kfm.model.incidents import incident_step

    step = incident_step(incident, ledger.incident_subject(incident.cause, incident.subject), masked=False)
    return None if step is None else msgspec.structs.asdict(step)


def told_documents(ledger: Any, incident: Any) -> list[dict[str, Any]]:
    """What hooks got of an incident, or will get; of this occurrence of its cause alone."""
    import msgspec

    sent = [(one, msgspec.json.decode(one.body)["data"]) for one in ledger.hook_deliveries(incident.cause)]
    return [
        _notification_document(one, data["change"])
        for one, data in sent
        if data["incident_id"] == incident.incident_id
    ]


def _notification_document(sent: Any, change: str) -> dict[str, Any]:
    return {
        "change_id": sent.change_id,
        "change": change,
        "at": instant(sent.recorded_at_ms),
        "hook": sent.hook,
        "tries": sent.tries,
        "delivered_at": instant(sent.delivered_at_ms),
    }


def find_incident(ledger: Any, wanted: str) -> Any:
    """By its id or its cause's, or by the beginning of either, if that is unambiguous."""

    def find(start: str) -> list[Any]:
        plain = start.isascii() and start.replace("-", "").isalnum()  # no id has other characters
        return ledger.find_incidents(start) if plain else []

    def known_by(one: Any) -> str:
        by_id = one.incident_id.startswith(wanted.strip().lower())
        return str(one.incident_id if by_id else one.cause)

    return only(
        wanted,
        [Sought("incident", "incidents", find, known_by)],
        "`kfm incident list --all` has all.",
        none=f"There is no incident `{wanted[:SHOWN_CHARS_MAX]}`; of one cause the latest is kept.",
    )
