"""netCDF attributes, classic and netCDF-4: times covered, platform, name, bounds."""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from math import isfinite

from kfm.nodd.catalogue.geometry import Footprint
from kfm.nodd.inspect.hdf5 import NAME_BYTES_MAX, NUMBERS_MAX, TEXT_CHARS_MAX, Hdf5, Value
from kfm.nodd.inspect.header_facts import BASIS, Bytes, HeaderFacts, HeaderInvalid, HeaderUnread, box
from kfm.nodd.messages.refusals import RecordRefusal
from kfm.nodd.spans import at

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
        return facts(classic_attributes(file), {})
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
        except RecordRefusal:
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


ENTRIES_MAX = 1024
_DIMENSIONS, _ATTRIBUTES, _CHAR = 10, 12, 2
_FORMS = {1: "b", 3: "h", 4: "i", 5: "f", 6: "d", 7: "B", 8: "H", 9: "I", 10: "q", 11: "Q"}


class _Reader:
    def __init__(self, file: Bytes) -> None:
        self._file = file
        self._at = 4
        self._wide = file.at(3, 1)[0] == 5

    def raw(self, length: int) -> bytes:
        """Padded to four bytes in the file."""
        data = self._file.at(self._at, length)
        self._at += (length + 3) // 4 * 4
        return data

    def skip(self, length: int) -> None:
        self._at += (length + 3) // 4 * 4
        if self._at > self._file.size + 3:
            raise HeaderInvalid("Its lists go beyond the file.")

    def tag(self) -> int:
        return int.from_bytes(self.raw(4), "big")

    def count(self) -> int:
        return int.from_bytes(self.raw(8 if self._wide else 4), "big")

    def name(self) -> str:
        length = self.count()
        if length > NAME_BYTES_MAX:
            raise HeaderInvalid("A name is too long.")
        return self.raw(length).decode("utf-8", "replace")

    def entries(self, tag: int) -> int:
        """How many entries a list has; an absent list is two zeros."""
        found, count = self.tag(), self.count()
        if found not in (0, tag) or (found == 0 and count != 0):
            raise HeaderInvalid("Its lists are malformed.")
        if count > ENTRIES_MAX:
            raise HeaderUnread("Its lists are too long.")
        return count


def classic_attributes(file: Bytes) -> dict[str, Value]:
    if file.at(0, 3) != b"CDF" or file.at(3, 1)[0] not in (1, 2, 5):
        raise HeaderInvalid("It has no signature.")
    reader = _Reader(file)
    reader.count()  # of records
    for _ in range(reader.entries(_DIMENSIONS)):
        reader.name()
        reader.count()
    found: dict[str, Value] = {}
    for _ in range(reader.entries(_ATTRIBUTES)):
        name = reader.name()
        kind, count = reader.tag(), reader.count()
        value = _value(reader, kind, count)
        if value is not None:
            found[name] = value
    return found


def _value(reader: _Reader, kind: int, count: int) -> Value | None:
    if kind == _CHAR:
        if count > 4 * TEXT_CHARS_MAX:
            reader.skip(count)
            return None
        return reader.raw(count).split(b"\0")[0].decode("utf-8", "replace").rstrip()[:TEXT_CHARS_MAX]
    form = _FORMS.get(kind)
    if form is None:
        raise HeaderInvalid(f"An attribute is of type {kind}.")
    length = struct.calcsize(form) * count
    if not 1 <= count <= NUMBERS_MAX:
        reader.skip(length)
        return None
    numbers = struct.unpack(f">{count}{form}", reader.raw(length))
    return numbers[0] if count == 1 else numbers
