"""Google Cloud Storage: by Pub/Sub, as CloudEvents, or the bare object. Keys are not encoded."""

from __future__ import annotations

import base64
import binascii
from typing import Any

from kfm.nodd.messages.announcement import Announcement, Heard, Ignored, event_time
from kfm.nodd.messages.json_bodies import load, optional_text, part, size_of, text_of
from kfm.nodd.messages.refusals import IGNORED, RecordRefusal
from kfm.nodd.object_keys import check_bucket, check_key

CLOUD_EVENTS = "google.cloud.storage.object.v1."
_FINALIZED, _REMOVED = (
    ("OBJECT_FINALIZE", "finalized"),
    ("OBJECT_DELETE", "OBJECT_ARCHIVE", "deleted", "archived"),
)
_OTHER = ("OBJECT_METADATA_UPDATE", "metadataUpdated")


def is_pubsub(document: dict[str, Any]) -> bool:
    message = document.get("message")
    return isinstance(message, dict) and ("attributes" in message or "data" in message)


def is_cloud_event(document: dict[str, Any]) -> bool:
    return str(document.get("type", "")).startswith(CLOUD_EVENTS)


def is_object(document: dict[str, Any]) -> bool:
    return document.get("kind") == "storage#object"


def hear_pubsub(document: dict[str, Any], topic: str | None) -> Heard:
    """The attributes decide; the data, where there are any, add size and checksum."""
    message = part(document, "message")
    attributes = message.get("attributes")
    if not isinstance(attributes, dict) or "eventType" not in attributes:
        raise RecordRefusal("SHAPE_UNKNOWN", "The Pub/Sub message is not one of Cloud Storage.")
    thing: dict[str, Any] = {}
    if attributes.get("payloadFormat") == "JSON_API_V1" and message.get("data"):
        thing = _data(message)
    bucket, key = text_of(attributes, "bucketId"), text_of(attributes, "objectId")
    if thing and (thing.get("bucket", bucket), thing.get("name", key)) != (bucket, key):
        raise RecordRefusal("FIELDS_DISAGREE", "Attributes and data name different objects.")
    at = attributes.get("eventTime") or message.get("publishTime")
    return _heard(text_of(attributes, "eventType"), bucket, key, thing, at, topic)


def hear_cloud_event(document: dict[str, Any], topic: str | None) -> Heard:
    thing = part(document, "data")
    kind = text_of(document, "type").removeprefix(CLOUD_EVENTS)
    return _heard(kind, text_of(thing, "bucket"), text_of(thing, "name"), thing, document.get("time"), topic)


def hear_object(document: dict[str, Any], topic: str | None) -> Heard:
    bucket, key = text_of(document, "bucket"), text_of(document, "name")
    return _heard("finalized", bucket, key, document, document.get("timeCreated"), topic)


def _heard(kind: str, bucket: str, key: str, thing: dict[str, Any], at: object, topic: str | None) -> Heard:
    if kind in _OTHER:
        return Ignored(error_code="NOT_A_CREATION", error=IGNORED["NOT_A_CREATION"])
    if kind not in _FINALIZED + _REMOVED:
        raise RecordRefusal("EVENT_UNKNOWN")
    at_ms, suspect = event_time(at)
    generation = thing.get("generation")
    return Announcement(
        provider="gcp",
        bucket=check_bucket(bucket),
        key=check_key(key),
        removed=kind in _REMOVED,
        event_time_ms=at_ms,
        size=size_of(thing, "size", as_digits=True),
        etag=optional_text(thing, "etag"),
        # Generations grow in time: as many digits for all, so that text compares as numbers do.
        sequencer=str(generation).zfill(20) if isinstance(generation, int | str) and generation else None,
        topic=topic,
        suspect=suspect,
        md5=_md5(thing),
    )


def _md5(thing: dict[str, Any]) -> str | None:
    """Google's ETags are no checksums; this is. What can't be one is left out: the object is there anyhow."""
    text = thing.get("md5Hash")
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
    document, spoiled = load(data)
    if spoiled or not isinstance(document, dict):
        raise RecordRefusal("RECORD_INVALID", "The data are not an object.")
    return document


def text_of_data(message: dict[str, Any]) -> str:
    data = message.get("data")
    if not isinstance(data, str):
        raise RecordRefusal("RECORD_INVALID", "`data` is not a text.")
    return data
