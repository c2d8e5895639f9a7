"""Google Cloud Storage: by Pub/Sub, as CloudEvents, or the bare object. Keys are not encoded."""

from __future__ import annotations

import base64
import binascii
from typing import Any

from kfm.nodd.messages.announcement import Announcement, MessageRecord, event_time, ignored
from kfm.nodd.messages.json_bodies import load, optional_text, part, size_of, text_of
from kfm.nodd.messages.refusals import RecordRefusal
from kfm.nodd.object_keys import check_bucket, check_key

CLOUD_EVENTS = "google.cloud.storage.object.v1."
_FINALIZED = ("OBJECT_FINALIZE", "finalized")
_REMOVED = ("OBJECT_DELETE", "OBJECT_ARCHIVE", "deleted", "archived")
_OTHER = ("OBJECT_METADATA_UPDATE", "metadataUpdated")


def is_pubsub(document: dict[str, Any]) -> bool:
    """Pushed or pulled; a client library hands the message out without what was around it."""
    message = document.get("message")
    if isinstance(message, dict):
        return "attributes" in message or "data" in message
    attributes = document.get("attributes")
    return isinstance(attributes, dict) and "eventType" in attributes


def is_cloud_event(document: dict[str, Any]) -> bool:
    return str(document.get("type", "")).startswith(CLOUD_EVENTS)


def is_object(document: dict[str, Any]) -> bool:
    return document.get("kind") == "storage#object"


def read_pubsub(document: dict[str, Any], topic: str | None) -> MessageRecord:
    """The attributes decide; the data, where there are any, add size and checksum."""
    message = part(document, "message") if "message" in document else document
    attributes = message.get("attributes")
    if not isinstance(attributes, dict) or "eventType" not in attributes:
        raise RecordRefusal("SHAPE_UNKNOWN", "The Pub/Sub message is not one of Cloud Storage.")
    stored: dict[str, Any] = {}
    if attributes.get("payloadFormat") == "JSON_API_V1" and message.get("data"):
        stored = _data(message)
    bucket, key = text_of(attributes, "bucketId"), text_of(attributes, "objectId")
    if stored and (stored.get("bucket", bucket), stored.get("name", key)) != (bucket, key):
        raise RecordRefusal("FIELDS_DISAGREE", "Attributes and data name different objects.")
    generation = attributes.get("objectGeneration")
    if generation is not None and str(stored.setdefault("generation", generation)) != str(generation):
        raise RecordRefusal("FIELDS_DISAGREE", "Attributes and data name different generations.")
    kind = text_of(attributes, "eventType")
    if kind in _REMOVED and attributes.get("overwrittenByGeneration"):
        return ignored("OVERWRITTEN")
    at = attributes.get("eventTime") or message.get("publishTime")
    return _record(kind, bucket, key, stored, at, topic)


def read_cloud_event(document: dict[str, Any], topic: str | None) -> MessageRecord:
    stored = part(document, "data")
    kind = text_of(document, "type").removeprefix(CLOUD_EVENTS)
    return _record(
        kind, text_of(stored, "bucket"), text_of(stored, "name"), stored, document.get("time"), topic
    )


def read_object(document: dict[str, Any], topic: str | None) -> MessageRecord:
    bucket, key = text_of(document, "bucket"), text_of(document, "name")
    return _record("finalized", bucket, key, document, document.get("timeCreated"), topic)


def _record(
    kind: str, bucket: str, key: str, stored: dict[str, Any], at: object, topic: str | None
) -> MessageRecord:
    if kind in _OTHER:
        return ignored("NOT_A_CREATION")
    if kind not in _FINALIZED + _REMOVED:
        return ignored("EVENT_UNKNOWN")
    at_ms, suspect = event_time(at)
    generation = stored.get("generation")
    return Announcement(
        provider="gcp",
        bucket=check_bucket(bucket),
        key=check_key(key),
        removed=kind in _REMOVED,
        event_time_ms=at_ms,
        size=size_of(stored, "size", as_digits=True),
        etag=optional_text(stored, "etag"),
        # Generations grow in time: as many digits for all, so that text compares as numbers do.
        sequencer=str(generation).zfill(20) if isinstance(generation, int | str) and generation else None,
        topic=topic,
        suspect=suspect,
        md5=_md5(stored),
    )


def _md5(stored: dict[str, Any]) -> str | None:
    """Google's ETags are no checksums; this is. What can't be one is left out: the object is there anyhow."""
    text = stored.get("md5Hash")
    if not isinstance(text, str) or len(text) > 32:
        return None
    try:
        digest = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    return digest.hex() if len(digest) == 16 else None


def _data(message: dict[str, Any]) -> dict[str, Any]:
    try:
        data = base64.b64decode(text_of_data(message), validate=True)
    except (binascii.Error, ValueError):
        raise RecordRefusal("BODY_NOT_JSON", "The data are not base64.") from None
    document, ambiguous = load(data)
    if ambiguous or not isinstance(document, dict):
        raise RecordRefusal("RECORD_INVALID", "The data are not an object.")
    return document


def text_of_data(message: dict[str, Any]) -> str:
    data = message.get("data")
    if not isinstance(data, str):
        raise RecordRefusal("RECORD_INVALID", "`data` is not a text.")
    return data
