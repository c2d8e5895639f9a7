"""Where data lie, as far as a key and public facts tell; otherwise nothing is claimed.

A box is (west, south, east, north) in degrees; west may be greater than east,
which means over the antimeridian.
"""

from __future__ import annotations

from functools import cache

from kfm.core.records import Record
from kfm.ingest.spans import at

Box = tuple[float, float, float, float]


class Footprint(Record, frozen=True):
    """A point or a box. `basis` says where it comes from, for the item's reader."""

    basis: str
    point: tuple[float, float] | None = None  # longitude, latitude
    box: Box | None = None


GLOBE = Footprint(basis="the whole globe", box=(-180.0, -90.0, 180.0, 90.0))

# Orbital slots: (platform, from, until, slot); outside of these a satellite was moving or in store.
_SLOTS = (
    ("GOES-16", at("2017", "12", "18"), at("2025", "4", "7"), "east"),
    ("GOES-19", at("2025", "4", "7"), None, "east"),
    ("GOES-17", at("2019", "2", "12"), at("2023", "1", "4"), "west"),
    ("GOES-18", at("2023", "1", "4"), None, "west"),
)
_SECTORS = {
    ("east", "F"): (-156.2995, -81.3282, 6.2995, 81.3282),
    ("west", "F"): (141.7005, -81.3282, -55.7005, 81.3282),
    ("east", "C"): (-152.1093, 14.5713, -52.9469, 56.7615),
}


def goes_sector(platform: str | None, sector: str | None, start_ms: int | None) -> Footprint | None:
    """Full disk and CONUS stand still while a satellite is in its slot; mesoscale sectors move at will."""
    if start_ms is None:
        return None
    for name, since, until, slot in _SLOTS:
        if name == platform and since <= start_ms and (until is None or start_ms < until):
            return _sector(slot, sector or "")
    return None


@cache
def _sector(slot: str, sector: str) -> Footprint | None:
    box = _SECTORS.get((slot, sector))
    return Footprint(basis=f"sector {sector} as seen from GOES-{slot}", box=box) if box else None
