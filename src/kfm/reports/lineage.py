"""Events of lineage as documents: what of each is told, and whether it has arrived."""

from __future__ import annotations

from typing import Any

import msgspec

from kfm.model.wording import instant


def event_document(letter: Any, now_ms: int) -> dict[str, Any]:
    event = msgspec.json.decode(letter.body)
    state = event["run"]["facets"]["kfmRunState"]
    waits = letter.delivered_at_ms is None and letter.not_before_ms > now_ms
    return {
        "number": letter.number,
        "event_id": letter.event_id,
        "event_type": event["eventType"],
        "event_time": event["eventTime"],
        "lineage_id": event["run"]["runId"],
        "job": event["job"]["name"],
        "kind": state["kind"],
        "attempt": state["attempt"],
        "node": state.get("node") or (state.get("dataset_id", "") if state["kind"] == "pass-node" else ""),
        "tries": letter.tries,
        "delivered_at": instant(letter.delivered_at_ms),
        "not_before": instant(letter.not_before_ms) if waits else None,
    }
