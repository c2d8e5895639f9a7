"""What has been entered in the audit log since, as server-sent events.

An answer has what is new and ends; a client asks again by itself, with the id of the last event that it has.
So no connection is held, nothing is missed over a restart, and a service ends without waiting for listeners.
"""

from __future__ import annotations

from typing import Any

import msgspec

from kfm.model.quantities import visible_json
from kfm.reports.audit import entry_document
from kfm.web.api.operations import ApiCall

EVENTS = "text/event-stream"
AGAIN_MS = 2_000
EVENTS_MAX = 500  # of one answer; the next has those that follow


def events(call: ApiCall) -> Any:
    """Entries after `cursor`; without it only where the log ends now."""
    ledger, cursor = call.app.ledger, call.query["cursor"]
    if cursor is None:
        return {"entries": [], "last": ledger.chain_head()[0]}
    found = ledger.chain(after=int(cursor), limit=EVENTS_MAX)
    return {"entries": [entry_document(one) for one in found], "last": None}


def as_stream(document: dict[str, Any]) -> bytes:
    """Each entry is one event, by its kind; its number is the id."""
    parts = [f"retry: {AGAIN_MS}\n\n"]
    if document["last"] is not None:
        parts.append(f"id: {document['last']}\nevent: begin\ndata: {{}}\n\n")
    for entry in document["entries"]:
        data = visible_json(msgspec.json.encode(entry).decode())
        parts.append(f"id: {entry['number']}\nevent: {entry['kind']}\ndata: {data}\n\n")
    return "".join(parts).encode()
