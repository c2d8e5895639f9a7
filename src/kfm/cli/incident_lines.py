"""How an incident is told: `kfm incident` and `kfm status` say the same."""

from __future__ import annotations

from typing import Any

from kfm.cli.output import instant, one_line, short_id, utc


def incident_document(incident: Any) -> dict[str, Any]:
    from kfm.core.incidents import SEVERITY

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
    }


def incident_rows(documents: list[dict[str, Any]]) -> list[str]:
    return [f"  {short_id(each['incident_id'])}  {incident_text(each)}" for each in documents]


def incident_text(document: dict[str, Any]) -> str:
    whom = f"{document['about']} {one_line(document['name'])}"
    many = document["affected"]
    if document["about"] == "provider":
        what = f"left alone after {many} failures in a row"
    else:
        what = f"{document['error_code']} ({document['error_class']}), {many} run{'s' * (many != 1)}"
        what += f", {document['kind']}"
    return f"{document['severity']}: {whom}: {what}, since {utc(document['opened_at'])}"


def incident_headline(document: dict[str, Any]) -> tuple[str, str]:
    """Its run may be under way again, or its source gone; until it is resolved, all is not clear."""
    return f"failing: {incident_text(document)}", f"kfm incident show {short_id(document['incident_id'])}"
