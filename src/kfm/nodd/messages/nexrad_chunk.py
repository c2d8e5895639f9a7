"""Notifications of NEXRAD chunks: JSON of their own, numbers sometimes as numbers, sometimes as text."""

from __future__ import annotations

import re
from typing import Any

from kfm.nodd.messages.announcement import Announcement, MessageRecord, event_time
from kfm.nodd.messages.json_bodies import text_of
from kfm.nodd.messages.refusals import RecordRefusal
from kfm.nodd.object_keys import check_bucket, check_key

_KEY = re.compile(
    r"([A-Z0-9]{4})/(\d{1,4})/(\d{4})(\d\d)(\d\d)-(\d\d)(\d\d)(\d\d)-(\d{3})-([SIE])\Z", re.ASCII
)


def matches(document: dict[str, Any]) -> bool:
    return "S3Bucket" in document and "Key" in document


def read_notification(document: dict[str, Any], topic: str | None) -> MessageRecord:
    """Fields beside the key must agree with it, or one of them is wrong."""
    key = check_key(text_of(document, "Key"))
    match = _KEY.match(key)
    if match is None:
        raise RecordRefusal("KEY_UNKNOWN")
    site, volume, year, month, day, hour, minute, second, chunk, kind = match.groups()
    stamp = f"{year}-{month}-{day}T{hour}:{minute}:{second}"
    stated = {
        "SiteID": site,
        "VolumeID": int(volume),
        "ChunkID": int(chunk),
        "ChunkType": kind,
        "DateTime": stamp,
    }
    for name, expected in stated.items():
        value = document.get(name)
        if value is None:
            continue
        if isinstance(expected, int) and isinstance(value, str) and re.fullmatch(r"\d{1,6}", value, re.ASCII):
            value = int(value)
        if name == "DateTime" and isinstance(value, str):
            value = value.removesuffix("Z")
        if type(value) is not type(expected) or value != expected:
            raise RecordRefusal("FIELDS_DISAGREE", f"`{name}` is not the value in the key.")
    at_ms, suspect = event_time(f"{stamp}Z")
    if suspect:
        raise RecordRefusal("TIME_INVALID")
    return Announcement(
        provider="aws",
        bucket=check_bucket(text_of(document, "S3Bucket")),
        key=key,
        event_time_ms=at_ms,
        topic=topic,
    )
