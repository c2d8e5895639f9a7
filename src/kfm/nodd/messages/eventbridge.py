"""S3 events by way of EventBridge. Their keys are not encoded."""

from __future__ import annotations

from typing import Any

from kfm.nodd.messages.announcement import Announcement, IgnoredRecord, MessageRecord, event_time
from kfm.nodd.messages.json_bodies import optional_text, part, size_of, text_of
from kfm.nodd.messages.refusals import IGNORED, RecordRefusal
from kfm.nodd.object_keys import check_bucket, check_key


def matches(document: dict[str, Any]) -> bool:
    return "detail-type" in document and "detail" in document


def read_event(document: dict[str, Any], topic: str | None) -> MessageRecord:
    if document.get("source") != "aws.s3":
        raise RecordRefusal("SHAPE_UNKNOWN", "The event is not one of S3.")
    kind = text_of(document, "detail-type")
    if kind not in ("Object Created", "Object Deleted"):
        if kind.startswith("Object "):
            return IgnoredRecord(error_code="NOT_A_CREATION", error=IGNORED["NOT_A_CREATION"])
        raise RecordRefusal("EVENT_UNKNOWN")
    detail = part(document, "detail")
    stored = part(detail, "object")
    at_ms, suspect = event_time(document.get("time"))
    return Announcement(
        provider="aws",
        bucket=check_bucket(text_of(part(detail, "bucket"), "name")),
        key=check_key(text_of(stored, "key")),
        removed=kind == "Object Deleted",
        event_time_ms=at_ms,
        size=size_of(stored, "size"),
        etag=optional_text(stored, "etag"),
        sequencer=optional_text(stored, "sequencer"),
        version_id=optional_text(stored, "version-id"),
        topic=topic,
        suspect=suspect,
    )
