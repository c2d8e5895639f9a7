"""From an arrival to the unit that takes it in: what the ledger keeps, and nothing of where data lie."""

from __future__ import annotations

from typing import Any

from kfm.core.records import Unit
from kfm.core.unit_transitions import created
from kfm.ingest.reading import Arrival


def pending(arrival: Arrival, *, queue: str, now_ms: int, replay_reason: str | None = None) -> Unit:
    """The new unit. ETag, sequencer and size are columns of the ledger beside it: see `arrival.announced`."""
    reading = arrival.reading
    return created(
        replay_reason=replay_reason,
        wal_id=reading.wal_id,
        dataset=reading.dataset,
        object_uri=reading.object_uri,
        provider=reading.provider,
        queue=queue,
        event_time_ms=arrival.announced.event_time_ms,
        time_range_start_ms=reading.time_range_start_ms,
        time_range_end_ms=reading.time_range_end_ms,
        now_ms=now_ms,
        extra=_extra(arrival),
    )


def _extra(arrival: Arrival) -> dict[str, Any]:
    """What the key tells beyond the record's own fields, as far as it does."""
    reading = arrival.reading
    known = {
        "product": reading.product,
        "platform": reading.platform,
        "reference_time_ms": reading.reference_time_ms,
        "forecast_hour": reading.forecast_hour,
        "issued_ms": reading.issued_ms,
        "asset": reading.asset if reading.asset != "data" else None,
        "suspect": list(reading.suspect) or None,
    }
    return {name: value for name, value in known.items() if value is not None}
