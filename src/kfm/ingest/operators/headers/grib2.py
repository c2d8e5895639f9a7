"""The first message of a GRIB2 file: sections 1 (reference time), 3 (grid), 4 (forecast); and index text.

Only what stands at fixed places is read: no packing, no tables of parameters. A file of many messages is
judged by its first.
"""

from __future__ import annotations

import re
import struct

from kfm.ingest.geometry import Footprint
from kfm.ingest.operators.headers.facts import BASIS, Bytes, HeaderFacts, HeaderInvalid, HeaderUnread
from kfm.ingest.operators.headers.grids import bounds, signed
from kfm.ingest.refusals import Refusal
from kfm.ingest.spans import HOUR_MS, MINUTE_MS, at, digits, shifted

SECTIONS_MAX = 8
SECTION_BYTES_MAX = 64 * 1024
HEADING_BYTES_MAX = 4096
_UNITS_MS = {
    0: MINUTE_MS,
    1: HOUR_MS,
    2: 24 * HOUR_MS,
    10: 3 * HOUR_MS,
    11: 6 * HOUR_MS,
    12: 12 * HOUR_MS,
    13: 1000,
}
# Templates of section 4 with unit and time at octets 18 and 19 → where an interval's end stands, if any.
_FORECASTS = {0: None, 1: None, 2: None, 5: None, 6: None, 8: 34, 9: 47, 10: 35, 11: 37, 12: 36, 15: None}
_INDEX_LINE = re.compile(
    r"\d{1,9}(?:\.\d{1,4})?:\d{1,15}:d=(?P<ymdh>\d{10})(?P<more>\d{2,4})?:[^:]*:[^:]*:(?P<when>[^:]*)"
)
_WHEN = re.compile(
    r"(?:(?P<from>\d{1,5})-)?(?P<until>\d{1,5}) (?P<unit>min|hour|day)\b(?: .{0,40})?\bfcst", re.ASCII
)
_INDEX_UNITS = {"min": MINUTE_MS, "hour": HOUR_MS, "day": 24 * HOUR_MS}


def message(file: Bytes) -> HeaderFacts:
    """The first message; a bulletin's heading may stand before it."""
    start = _start(file)
    head = file.at(start, 16)
    edition, length = head[7], int.from_bytes(head[8:16], "big")
    if edition == 1:
        raise HeaderUnread("It is of edition 1.")
    if edition != 2 or not 16 < length <= file.size - start:
        raise HeaderInvalid(f"A message of edition {edition} with {length} bytes.")
    sections = _sections(file, start + 16, start + length)
    try:
        reference = _reference(sections[1])
        first, last = _span(sections.get(4), reference)
    except (KeyError, Refusal):
        raise HeaderInvalid("It has no reference time, or one that does not exist.") from None
    area = bounds(sections.get(3))
    return HeaderFacts(
        start_ms=first,
        end_ms=last,
        reference_ms=reference,
        footprint=Footprint(basis=BASIS, box=area) if area is not None else None,
    )


def _start(file: Bytes) -> int:
    heading = file.at(0, min(HEADING_BYTES_MAX, file.size))
    start = heading.find(b"GRIB")
    if start < 0 or start + 16 > file.size:
        raise HeaderInvalid("There is no message at its beginning.")
    return start


def _sections(file: Bytes, position: int, end: int) -> dict[int, bytes]:
    """Sections 1 to 4 of the first field, in their order."""
    found: dict[int, bytes] = {}
    for _ in range(SECTIONS_MAX):
        if position + 5 > end:
            raise HeaderInvalid("Its sections end too early.")
        length, number = struct.unpack(">IB", file.at(position, 5))
        if length < 5 or position + length > end or not 1 <= number <= 7:
            raise HeaderInvalid(f"Section {number} has {length} bytes.")
        if number > 4:
            return found
        if number in found or (found and number < max(found)):
            raise HeaderInvalid(f"Section {number} comes out of order.")
        found[number] = file.at(position, min(length, SECTION_BYTES_MAX))
        position += length
    raise HeaderInvalid("It has too many sections.")


def _reference(section: bytes) -> int:
    if len(section) < 21:
        raise KeyError(1)
    return _moment(section[12:19])


def _moment(octets: bytes) -> int:
    if len(octets) < 7:
        raise HeaderInvalid("A time is cut off.")
    year, *rest = struct.unpack(">H5B", octets)
    return at(str(year), *(str(each) for each in rest))


def _span(section: bytes | None, reference: int) -> tuple[int | None, int | None]:
    """When the first field is valid: an instant, or an interval up to its end."""
    if section is None or len(section) < 34:
        return None, None
    template = int.from_bytes(section[7:9], "big")
    if template not in _FORECASTS or section[17] not in _UNITS_MS:
        return None, None
    first = shifted(reference, signed(section[18:22]) * _UNITS_MS[section[17]])
    where = _FORECASTS[template]
    if where is None:
        return first, first
    last = _moment(section[where : where + 7])
    if last < first:
        raise HeaderInvalid("A field's interval ends before it begins.")
    return first, last


# --- index text ----------------------------------------------------------------------


def index(file: Bytes) -> HeaderFacts:
    """The first line of a `.idx`: the reference time, and what the first field is valid for."""
    text = file.at(0, min(file.size, 1024)).partition(b"\n")[0].decode("latin-1")
    line = _INDEX_LINE.match(text)
    if line is None:
        raise HeaderInvalid("Its first line is no line of an index.")
    try:
        reference = digits(line["ymdh"] + (line["more"] or ""))
        valid = _WHEN.match(line["when"])
        if valid is None:
            instant = reference if line["when"].startswith("anl") else None
            return HeaderFacts(reference_ms=reference, start_ms=instant, end_ms=instant)
        unit = _INDEX_UNITS[valid["unit"]]
        last = shifted(reference, int(valid["until"]) * unit)
        first = shifted(reference, int(valid["from"] or valid["until"]) * unit)
    except Refusal:
        raise HeaderInvalid("It names a time that does not exist.") from None
    return HeaderFacts(reference_ms=reference, start_ms=min(first, last), end_ms=last)
