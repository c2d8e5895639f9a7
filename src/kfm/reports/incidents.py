"""How an incident is told, wherever one is."""

from __future__ import annotations

from typing import Any

from kfm.model.errors import UsageError
from kfm.model.wording import instant, one_line, short_id, utc

PREFIX_CHARS_MIN = 4


def incident_document(incident: Any) -> dict[str, Any]:
    from kfm.model.incidents import SEVERITY

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


def told_document(told: Any) -> dict[str, Any]:
    import msgspec

    return {
        "change_id": told.change_id,
        "change": msgspec.json.decode(told.body)["data"]["change"],
        "at": instant(told.recorded_at_ms),
        "hook": told.hook,
        "tries": told.tries,
        "delivered_at": instant(told.delivered_at_ms),
    }


def find_incident(ledger: Any, wanted: str) -> Any:
    """By its id or its cause's, or by the beginning of either, if that is enough to tell."""
    start = wanted.lower()
    if len(start) < PREFIX_CHARS_MIN or not start.replace("-", "").isalnum() or not start.isascii():
        raise UsageError(
            f"`{wanted}` is no beginning of an id: give at least {PREFIX_CHARS_MIN} of its characters.",
            remedy="`kfm incident list` has them.",
        )
    found = ledger.find_incidents(start)
    if len(found) == 1:
        return found[0]
    if found:
        raise UsageError(f"Several incidents begin with `{wanted}`.", remedy="Give more of the id.")
    raise UsageError(
        f"There is no incident `{wanted}`; of one cause the latest is kept.",
        remedy="`kfm incident list --all` has all.",
    )
