"""Arrivals become units."""

from __future__ import annotations

import msgspec
import pytest

from kfm.nodd.dataset_registry import load_registry
from kfm.nodd.intake import pending
from kfm.nodd.messages.record_outcomes import Arrival, parse_key

NOW_MS = 1_790_000_000_000


@pytest.mark.req("WAL-1", "RS-13")
def test_arrival_becomes_a_pending_unit() -> None:
    """The unit has the arrival's id and times, extras that shadow nothing, and no coordinates."""
    key = "hrrr.20260101/conus/hrrr.t00z.wrfsfcf06.grib2.idx"
    arrival = parse_key("noaa-hrrr-bdp-pds", key, load_registry(), NOW_MS)
    assert isinstance(arrival, Arrival)
    assert arrival.reading.footprint is not None
    unit = pending(arrival, queue="nodd", now_ms=NOW_MS)
    assert (unit.wal_id, unit.status, unit.attempts, unit.version) == (
        arrival.reading.wal_id,
        "pending",
        0,
        1,
    )
    assert unit.time_range_start_ms == arrival.reading.time_range_start_ms
    assert unit.extra == {
        "product": "wrfsfc",
        "platform": "conus",
        "reference_time_ms": 1_767_225_600_000,
        "forecast_hour": 6,
        "asset": "index",
    }
    assert "134.09" not in msgspec.json.encode(unit).decode()
