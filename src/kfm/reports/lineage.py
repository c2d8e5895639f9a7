"""Lineage events as documents, and whether they were delivered."""

from __future__ import annotations

from typing import Any

import msgspec

from kfm.model.quantities import instant


def event_document(message: Any, now_ms: int) -> dict[str, Any]:
    event = msgspec.json.decode(message.body)
    state = event["run"]["facets"]["kfmRunState"]
    waits = message.delivered_at_ms is None and message.not_before_ms > now_ms
    return {
        "number": message.number,
        "event_id": message.event_id,
        "event_type": event["eventType"],
        "event_time": event["eventTime"],
        "lineage_id": event["run"]["runId"],
        "job": event["job"]["name"],
        "kind": state["kind"],
        "attempt": state.get("attempt", 0),
        "node": state.get("node") or (state.get("dataset_id", "") if state["kind"] == "pass-node" else ""),
        "tries": message.tries,
        "delivered_at": instant(message.delivered_at_ms),
        "not_before": instant(message.not_before_ms) if waits else None,
    }
