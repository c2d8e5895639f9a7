"""Records of S3 event notifications, any version 2.x: bare, or in any envelope."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from kfm.nodd.messages.announcement import Announcement, MessageRecord, ObjectEvent, event_time, ignored
from kfm.nodd.messages.json_bodies import optional_text, part, size_of, text_of
from kfm.nodd.messages.refusals import RecordRefusal
from kfm.nodd.object_keys import check_bucket, check_key, decode_key

_VERSION = re.compile(r"2\.\d{1,3}\Z")
_EVENTS: dict[str, ObjectEvent] = {
    "ObjectCreated": "created",
    "ObjectRemoved": "removed",
    "LifecycleExpiration": "removed",
    "ObjectRestore": "other",
    "ReducedRedundancyLostObject": "other",
    "Replication": "other",
    "LifecycleTransition": "other",
    "IntelligentTiering": "other",
    "ObjectTagging": "other",
    "ObjectAcl": "other",
    "ObjectAnnotation": "other",
}


# With the marks that follow them, so that looking one up checks its mark as well.
_CLOCK = {
    f"{hour:02d}:{minute:02d}:": (hour * 60 + minute) * 60_000 for hour in range(24) for minute in range(60)
}
_SECONDS = {f"{second:02d}.": second * 1000 for second in range(60)}
_THOUSANDTHS = {f"{ms:03d}Z": ms for ms in range(1000)}


def is_test(document: dict[str, Any]) -> bool:
    return document.get("Event") == "s3:TestEvent"


def read_record(record: dict[str, Any], topic: str | None) -> MessageRecord:
    """One element of `Records`."""
    if _VERSION.match(text_of(record, "eventVersion")) is None:
        raise RecordRefusal("EVENT_VERSION")
    name = text_of(record, "eventName").removeprefix("s3:")
    if name == "TestEvent":
        return ignored("TEST_EVENT")
    family, _, action = name.partition(":")
    event = _EVENTS.get(family)
    if event is None:
        return ignored("EVENT_UNKNOWN")
    if event == "other":
        return ignored("NOT_A_CREATION")
    s3 = part(record, "s3")
    stored = part(s3, "object")
    at_ms, suspect = s3_time(record.get("eventTime"))
    version_id = optional_text(stored, "versionId")
    return Announcement(
        provider="aws",
        bucket=check_bucket(text_of(part(s3, "bucket"), "name")),
        key=check_key(decode_key(text_of(stored, "key"))),
        removed=event == "removed",
        event_time_ms=at_ms,
        size=size_of(stored, "size"),
        etag=optional_text(stored, "eTag"),
        sequencer=optional_text(stored, "sequencer"),
        version_id=version_id,
        topic=topic,
        suspect=suspect,
        # With versions, `Delete` is of one version for good; the object is gone by a delete marker.
        of_version=event == "removed" and action == "Delete" and version_id is not None,
    )


def s3_time(text: object) -> tuple[int | None, tuple[str, ...]]:
    """`event_time`, at less cost for the one form that S3 writes: the calendar is asked once a day."""
    if isinstance(text, str) and len(text) == 24:
        try:
            past_ms = _CLOCK[text[11:17]] + _SECONDS[text[17:20]] + _THOUSANDTHS[text[20:]]
        except KeyError:
            return event_time(text)
        day_ms = _day(text[:11])
        if day_ms is not None:
            return day_ms + past_ms, ()
    return event_time(text)


@lru_cache(maxsize=4096)
def _day(text: str) -> int | None:
    return event_time(f"{text}00:00:00Z")[0]
