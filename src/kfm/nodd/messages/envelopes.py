"""From the body of a message to its records, whatever envelopes it is in.

Every record is an announcement, is ignored, or is refused; which of them one is
never depends on its neighbours, and no input raises.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Collection
from typing import Any

from msgspec.structs import replace

from kfm.nodd.messages import azure, eventbridge, gcs, nexrad_chunk, s3_fast, s3_records, sns
from kfm.nodd.messages.announcement import (
    COMPATIBLE,
    Announcement,
    MessageRecord,
    RefusedRecord,
    ignored,
)
from kfm.nodd.messages.json_bodies import RECORDS_MAX, is_ambiguous, load, load_text
from kfm.nodd.messages.refusals import RecordRefusal

ENVELOPES_MAX = 4

RecordReader = Callable[[dict[str, Any], str | None], MessageRecord]
# Documents that announce one object: how a format is recognized, and its reader.
SINGLE: tuple[tuple[Callable[[dict[str, Any]], bool], RecordReader], ...] = (
    (nexrad_chunk.matches, nexrad_chunk.read_notification),
    (eventbridge.matches, eventbridge.read_event),
    (azure.matches, azure.read_event),
    (gcs.is_cloud_event, gcs.read_cloud_event),
    (gcs.is_pubsub, gcs.read_pubsub),
    (gcs.is_object, gcs.read_object),
)


def read_message(body: bytes, allowed_topics: Collection[str]) -> list[MessageRecord]:
    """The records of a message, in its order; at least one."""
    announced = s3_fast.read_plain_message(body, allowed_topics)
    if announced is not None:
        return announced
    try:
        document, ambiguous = _loaded(body)
        found = _document(document, ambiguous, allowed_topics, None, 0)
        if len(found) > RECORDS_MAX:
            raise RecordRefusal("RECORDS_TOO_MANY", f"At most {RECORDS_MAX} are read.")
    except RecordRefusal as refusal:
        return [_refused(refusal)]
    return found


def _loaded(body: bytes) -> tuple[Any, bool]:
    """Azure's storage queues carry their messages as base64."""
    try:
        return load(body)
    except RecordRefusal as refusal:
        if refusal.code != "BODY_NOT_JSON":
            raise
        try:
            return load(base64.b64decode(body.strip(), validate=True))
        except (binascii.Error, RecordRefusal):
            raise refusal from None


def _document(
    document: Any, ambiguous: bool, allowed: Collection[str], topic: str | None, depth: int
) -> list[MessageRecord]:
    if depth > ENVELOPES_MAX:
        raise RecordRefusal("ENVELOPES_TOO_MANY")
    if isinstance(document, list) and document:  # Event Grid delivers batches, and none without events
        return _each(document, ambiguous, allowed, topic, depth)
    if not isinstance(document, dict):
        raise RecordRefusal("RECORD_INVALID" if ambiguous else "SHAPE_UNKNOWN")
    if sns.matches(document):
        if ambiguous and is_ambiguous(document):
            raise RecordRefusal("ENVELOPE_INVALID", "Readers would disagree about it.")
        topic, message = sns.opened(document, allowed)
        if message is None:
            return [ignored("SUBSCRIPTION")]
        if isinstance(message, dict):
            return _document(message, False, allowed, topic, depth + 1)
        return _document(*load_text(message), allowed, topic, depth + 1)
    if s3_records.is_test(document):
        return [ignored("TEST_EVENT")]
    for field in ("Records", "Messages", "receivedMessages"):
        if field in document:
            return _each(document[field], ambiguous, allowed, topic, depth)
    if ambiguous and is_ambiguous(document):
        raise RecordRefusal("RECORD_INVALID", "Readers would disagree about it.")
    for matches, read in SINGLE:
        if matches(document):
            return [read(document, topic)]
    raise RecordRefusal("SHAPE_UNKNOWN")


def _each(
    records: Any, ambiguous: bool, allowed: Collection[str], topic: str | None, depth: int
) -> list[MessageRecord]:
    if not isinstance(records, list):
        raise RecordRefusal("RECORDS_MISSING")
    if not records:
        return [ignored("RECORDS_NONE")]
    if len(records) > RECORDS_MAX:
        raise RecordRefusal("RECORDS_TOO_MANY", f"At most {RECORDS_MAX} are read.")
    found: list[MessageRecord] = []
    for record in records:
        try:
            if not isinstance(record, dict) or (ambiguous and is_ambiguous(record)):
                raise RecordRefusal("RECORD_INVALID")
            found += _record(record, allowed, topic, depth)
        except RecordRefusal as refusal:
            found.append(_refused(refusal))
        if len(found) > RECORDS_MAX:  # envelopes may hold many, many times
            break
    return found


def _record(
    record: dict[str, Any], allowed: Collection[str], topic: str | None, depth: int
) -> list[MessageRecord]:
    source = record.get("eventSource", record.get("EventSource"))
    if source == "aws:s3":
        return [s3_records.read_record(record, topic)]
    if isinstance(source, str) and source.endswith(":s3"):  # as MinIO and Ceph write it
        found = s3_records.read_record(record, topic)
        return [replace(found, provider=COMPATIBLE) if isinstance(found, Announcement) else found]
    if source == "aws:sns":
        return _document(_envelope(record), False, allowed, topic, depth + 1)
    if isinstance(source, str):
        return _document(*load_text(_body(record, "body")), allowed, topic, depth + 1)  # aws:sqs
    if "Body" in record:  # as `receive-message` prints it
        return _document(*load_text(_body(record, "Body")), allowed, topic, depth + 1)
    return _document(record, False, allowed, topic, depth + 1)


def _envelope(record: dict[str, Any]) -> dict[str, Any]:
    envelope = record.get("Sns")
    if not isinstance(envelope, dict) or not sns.matches(envelope):
        raise RecordRefusal("ENVELOPE_INVALID", "`Sns` is not an SNS message.")
    return envelope


def _body(record: dict[str, Any], name: str) -> str:
    text = record.get(name)
    if not isinstance(text, str):
        raise RecordRefusal("SHAPE_UNKNOWN" if name == "body" else "ENVELOPE_INVALID")
    return text


def _refused(refusal: RecordRefusal) -> RefusedRecord:
    return RefusedRecord(error_code=refusal.code, error=refusal.text)
