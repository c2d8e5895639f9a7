"""What the attributes of a netCDF file tell: times covered, platform, name, bounds."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import isfinite

from kfm.ingest.geometry import Footprint
from kfm.ingest.operators.headers import netcdf3
from kfm.ingest.operators.headers.facts import BASIS, Bytes, HeaderFacts, HeaderInvalid, HeaderUnread, box
from kfm.ingest.operators.headers.hdf5 import Hdf5
from kfm.ingest.operators.headers.hdf5_values import Value
from kfm.ingest.refusals import Refusal
from kfm.ingest.spans import at

# Names as GOES, the discovery convention (ACDD) and the National Water Model write them. The latter's
# initialization time is left out: an analysis begins hours before the cycle that its key names.
_START = ("time_coverage_start",)
_END = ("time_coverage_end",)
_VALID = ("model_output_valid_time",)
_CREATED = ("date_created",)
_BOUNDS = (
    ("geospatial_lon_min", "geospatial_lat_min", "geospatial_lon_max", "geospatial_lat_max"),
    (
        "geospatial_westbound_longitude",
        "geospatial_southbound_latitude",
        "geospatial_eastbound_longitude",
        "geospatial_northbound_latitude",
    ),
)
_GOES_EXTENT = "geospatial_lat_lon_extent"
_GOES = re.compile(r"G(1[6-9])\Z")
_TIME = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)(?:[T _](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?)?\s*(?:Z|UTC|\+00:?00)?\Z",
    re.ASCII,
)


def attributes(file: Bytes) -> HeaderFacts:
    """Either kind of netCDF file."""
    if file.at(0, min(3, file.size)) == b"CDF":
        return facts(netcdf3.attributes(file), {})
    opened = Hdf5(file)
    root = opened.attributes()
    extent: Mapping[str, Value] = {}
    if _GOES.match(str(root.get("platform_ID", ""))):
        try:
            extent = opened.attributes(_GOES_EXTENT)
        except HeaderUnread:
            extent = {}
    return facts(root, extent)


def facts(root: Mapping[str, Value], extent: Mapping[str, Value]) -> HeaderFacts:
    valid = _moment(root, _VALID)
    start, end = _moment(root, _START), _moment(root, _END)
    goes = _GOES.match(str(root.get("platform_ID", "")))
    name = root.get("dataset_name")
    return HeaderFacts(
        start_ms=valid if start is None else start,
        end_ms=valid if end is None else end,
        created_ms=_moment(root, _CREATED),
        platform=f"GOES-{goes[1]}" if goes else None,
        file_name=name if goes and isinstance(name, str) and name.endswith(".nc") else None,
        footprint=_footprint(root, extent),
    )


def _moment(root: Mapping[str, Value], names: tuple[str, ...]) -> int | None:
    """Text that is no time at all is left out; a time that can't be is an error."""
    for name in names:
        text = root.get(name)
        found = _TIME.match(text.strip()) if isinstance(text, str) else None
        if found is None:
            continue
        year, month, day, *rest = found.groups()
        try:
            whole = at(year, month, day, *(part or "0" for part in rest[:3]))
        except Refusal:
            raise HeaderInvalid(f"{name} is a time that does not exist.") from None
        return whole + int((rest[3] or "0").ljust(3, "0")[:3])
    return None


def _footprint(root: Mapping[str, Value], extent: Mapping[str, Value]) -> Footprint | None:
    for names in _BOUNDS:
        for holder in (extent, root):
            numbers = [holder.get(name) for name in names]
            edges = [float(each) for each in numbers if isinstance(each, int | float)]
            if len(edges) == 4 and all(map(isfinite, edges)):
                west, south, east, north = edges
                found = box(west, min(south, north), east, max(south, north))
                if found is not None:
                    return Footprint(basis=BASIS, box=found)
    return None
