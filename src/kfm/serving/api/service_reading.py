"""What can be asked about the service's own work: requests, and schedules with what their instants became."""

from __future__ import annotations

from typing import Any

from kfm.core.requests import UpdateRequest
from kfm.core.schedules import Schedule
from kfm.core.wording import instant
from kfm.documents.requests import request_document
from kfm.documents.schedules import expected_document, schedule_document, state_document
from kfm.serving.api.answers import missing
from kfm.serving.api.operations import Asked, place_of
from kfm.serving.api.reading import page, preview_document

COVERED_MS = 24 * 60 * 60 * 1000


def requests(asked: Asked) -> Any:
    query = asked.query
    found, more = page(
        asked.app.ledger.request_reader().requests(
            state=query["state"],
            kind=query["kind"],
            source_id=asked.names.meant(query["source"]),
            schedule_id=asked.names.meant(query["schedule"]),
            before=place_of(query["cursor"]),
            limit=query["limit"] + 1,
        ),
        query["limit"],
    )
    last = f"{found[-1].accepted_at_ms}~{found[-1].request_id}" if more else None
    return {"requests": [request_document(one) for one in found], "more": more, "next": last}


def one_request(asked: Asked) -> Any:
    return {"request": request_document(_request(asked))}


def _request(asked: Asked) -> UpdateRequest:
    request: UpdateRequest | None = asked.app.ledger.request_reader().request(asked.path["request_id"])
    if request is None:
        raise missing("request")
    return request


def preview_of_request(asked: Asked) -> Any:
    request = _request(asked)
    if request.plan_digest is None:
        raise missing("preview")
    return preview_document(asked, request)


# --- schedules -----------------------------------------------------------------------


def schedules(asked: Asked) -> Any:
    states = asked.app.ledger.schedule_reader().states()
    now_ms = asked.place.now_ms()
    return {
        "schedules": [
            {
                **schedule_document(each, asked.app.settings.source(each.source), now_ms),
                **state_document(states.get(each.id)),
            }
            for each in sorted(asked.place.schedules, key=lambda each: each.id)
        ]
    }


def schedule_of(asked: Asked) -> Schedule:
    wanted = asked.names.meant(asked.path["schedule_id"])
    for schedule in asked.place.schedules:
        if schedule.id == wanted:
            return schedule
    raise missing("schedule")


def instants(asked: Asked) -> Any:
    """Coverage: drawn from what the schedule expects, not from the rows that exist."""
    from kfm.wiring.schedule_changes import history

    schedule, query = schedule_of(asked), asked.query
    now_ms = asked.place.now_ms()
    start_ms = now_ms - COVERED_MS if query["start"] is None else query["start"]
    end_ms = max(now_ms, start_ms) + 1 if query["end"] is None else query["end"]
    limit = query["limit"]
    found, more = page(history(asked.app, schedule, start_ms, end_ms, limit + 1), limit)
    return {
        "schedule_id": schedule.id,
        "start": instant(start_ms),
        "end": instant(end_ms),
        "instants": [{**expected_document(one), **_ending(asked, one.request_id)} for one in found],
        "more": more,
    }


def _ending(asked: Asked, request_id: str | None) -> dict[str, Any]:
    """How the request that an instant became has ended, or stands."""
    request = asked.app.ledger.request_reader().request(request_id) if request_id else None
    return {name: getattr(request, name, None) for name in ("state", "outcome", "run_id")}
