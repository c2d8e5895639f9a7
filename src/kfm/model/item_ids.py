"""Ids of items: readable, safe in a URL and as a file name, one for each slot."""

import hashlib

from kfm.model.patterns import late
from kfm.model.records import Window
from kfm.model.times import is_all_time, rfc3339

_PART_CHARS_MAX = 80
_UNSAFE = late(r"[^A-Za-z0-9._-]+")


def item_id(source_id: str, window: Window, partition: str | None) -> str:
    """The id of a slot."""
    name = source_part(source_id)
    if not is_all_time(window.start_ms, window.end_ms):
        name += f"_{_instant(window.start_ms)}_{_instant(window.end_ms)}"
    return name if partition is None else f"{name}~{source_part(partition)}"


def source_part(text: str) -> str:
    """Text as it may stand in an id; where something had to go, a hash keeps it unique."""
    plain = _UNSAFE.sub("-", text)[:_PART_CHARS_MAX]
    if plain == text and text:
        return text
    return f"{plain}~{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def _instant(at_ms: int) -> str:
    """The basic form of ISO 8601: colons are not safe in file names everywhere."""
    return rfc3339(at_ms).replace("-", "").replace(":", "")
