"""From an arrival to the unit that takes it in: what the ledger keeps, and nothing of where data lie."""

from __future__ import annotations

from functools import lru_cache
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
        extra=_with_declared(
            arrival.announced.md5,
            reading.product,
            reading.platform,
            reading.reference_time_ms,
            reading.forecast_hour,
            reading.issued_ms,
            reading.asset,
            reading.suspect,
        ),
    )


def _with_declared(md5: str | None, *told: Any) -> dict[str, Any]:
    extra = _extra(*told)
    return extra if md5 is None else {**extra, "md5": md5}


@lru_cache(4096)
def _extra(
    product: str | None,
    platform: str | None,
    reference_time_ms: int | None,
    forecast_hour: int | None,
    issued_ms: int | None,
    asset: str,
    suspect: tuple[str, ...],
) -> dict[str, Any]:
    """What the key tells beyond the record's own fields, as far as it does. Shared: nobody changes it."""
    known = {
        "product": product,
        "platform": platform,
        "reference_time_ms": reference_time_ms,
        "forecast_hour": forecast_hour,
        "issued_ms": issued_ms,
        "asset": asset if asset != "data" else None,
        "suspect": list(suspect) or None,
    }
    return {name: value for name, value in known.items() if value is not None}
