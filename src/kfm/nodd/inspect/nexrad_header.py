"""The 24 bytes at the beginning of a NEXRAD volume: tape, number, day, milliseconds, site."""

from __future__ import annotations

import re
import struct

from kfm.nodd.inspect.header_facts import Bytes, HeaderFacts, HeaderInvalid

HEADER = struct.Struct(">9s3sII4s")
DAY_MS = 86_400_000
_TAPE = re.compile(rb"(?:AR2V\d{4}|ARCHIVE2)\.\Z")
_SITE = re.compile(r"[A-Z][A-Z0-9]{3}\Z")


def volume(file: Bytes) -> HeaderFacts:
    """Day 1 is 1970-01-01. Volumes of the first years do not name their site."""
    tape, _number, day, since_midnight_ms, site = HEADER.unpack(file.at(0, HEADER.size))
    if _TAPE.match(tape) is None:
        raise HeaderInvalid("It does not begin as a volume does.")
    if not 1 <= day <= 65_535 or since_midnight_ms >= DAY_MS:
        raise HeaderInvalid(f"There is no day {day}, or no millisecond {since_midnight_ms} of it.")
    name = site.decode("latin-1").strip(" \0")
    if name and _SITE.match(name) is None:
        raise HeaderInvalid("The site has no site's name.")
    return HeaderFacts(start_ms=(day - 1) * DAY_MS + since_midnight_ms, platform=name or None)
