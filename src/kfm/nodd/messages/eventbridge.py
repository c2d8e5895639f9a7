"""S3 events by way of EventBridge. Their keys are not encoded."""

from __future__ import annotations

from typing import Any

from kfm.nodd.messages.announcement import Announcement, MessageRecord, event_time, ignored
from kfm.nodd.messages.json_bodies import optional_text, part, size_of, text_of
from kfm.nodd.messages.refusals import RecordRefusal
from kfm.nodd.object_keys import check_bucket, check_key

DELETE_MARKER = "Delete Marker Created"


def matches(document: dict[str, Any]) -> bool:
    return "detail-type" in document and "detail" in document


def read_event(document: dict[str, Any], topic: str | None) -> MessageRecord:
    if document.get("source") != "aws.s3":
        raise RecordRefusal("SHAPE_UNKNOWN", "The event is not one of S3.")
    kind = text_of(document, "detail-type")
    if kind not in ("Object Created", "Object Deleted"):
        return ignored("NOT_A_CREATION" if kind.startswith("Object ") else "EVENT_UNKNOWN")
    detail = part(document, "detail")
    stored = part(detail, "object")
    at_ms, suspect = event_time(document.get("time"))
    version_id, removed = optional_text(stored, "version-id"), kind == "Object Deleted"
    return Announcement(
        provider="aws",
        bucket=check_bucket(text_of(part(detail, "bucket"), "name")),
        key=check_key(text_of(stored, "key")),
        removed=removed,
        event_time_ms=at_ms,
        size=size_of(stored, "size"),
        etag=optional_text(stored, "etag"),
        sequencer=optional_text(stored, "sequencer"),
        version_id=version_id,
        topic=topic,
        suspect=suspect,
        of_version=removed and version_id is not None and detail.get("deletion-type") != DELETE_MARKER,
    )
