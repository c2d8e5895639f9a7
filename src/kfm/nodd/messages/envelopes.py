"""From the body of a message to what it says, record by record.

Every record is an announcement, is ignored, or is refused; which of them one is
never depends on its neighbours, and no input raises.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from kfm.nodd.messages import azure, eventbridge, gcs, nexrad_chunk, s3, s3_fast, sns
from kfm.nodd.messages.announcement import Heard, Ignored, RefusedRecord
from kfm.nodd.messages.json_bodies import RECORDS_MAX, is_spoiled, load, load_text
from kfm.nodd.messages.refusals import IGNORED, RecordRefusal

ENVELOPES_MAX = 4

Ear = Callable[[dict[str, Any], str | None], Heard]
# A document that tells of one object: how it is recognized, and who understands it.
SINGLE: tuple[tuple[Callable[[dict[str, Any]], bool], Ear], ...] = (
    (nexrad_chunk.fits, nexrad_chunk.hear),
    (eventbridge.fits, eventbridge.hear),
    (azure.fits, azure.hear),
    (gcs.is_cloud_event, gcs.hear_cloud_event),
    (gcs.is_pubsub, gcs.hear_pubsub),
    (gcs.is_object, gcs.hear_object),
)


def hear(body: bytes, allowed_topics: Collection[str]) -> list[Heard]:
    """All that a message says, in its order; at least one answer."""
    announced = s3_fast.hear(body, allowed_topics)
    if announced is not None:
        return announced
    try:
        document, spoiled = load(body)
        heard = _document(document, spoiled, allowed_topics, None, 0)
        if len(heard) > RECORDS_MAX:
            raise RecordRefusal("RECORDS_TOO_MANY", f"At most {RECORDS_MAX} are read.")
    except RecordRefusal as refusal:
        return [_refused(refusal)]
    return heard


def _document(
    document: Any, spoiled: bool, allowed: Collection[str], topic: str | None, depth: int
) -> list[Heard]:
    if depth > ENVELOPES_MAX:
        raise RecordRefusal("ENVELOPES_TOO_MANY")
    if isinstance(document, list):  # Event Grid delivers batches
        return _each(document, spoiled, allowed, topic, depth)
    if not isinstance(document, dict):
        raise RecordRefusal("RECORD_INVALID" if spoiled else "SHAPE_UNKNOWN")
    if sns.fits(document):
        if spoiled and is_spoiled(document):
            raise RecordRefusal("ENVELOPE_INVALID", "Readers would disagree about it.")
        topic, message = sns.opened(document, allowed)
        if message is None:
            return [Ignored(error_code="SUBSCRIPTION", error=IGNORED["SUBSCRIPTION"])]
        return _document(*load_text(message), allowed, topic, depth + 1)
    if s3.is_test(document):
        return [Ignored(error_code="TEST_EVENT", error=IGNORED["TEST_EVENT"])]
    for field in ("Records", "Messages", "receivedMessages"):
        if field in document:
            return _each(document[field], spoiled, allowed, topic, depth)
    if spoiled and is_spoiled(document):
        raise RecordRefusal("RECORD_INVALID", "Readers would disagree about it.")
    for fits, ear in SINGLE:
        if fits(document):
            return [ear(document, topic)]
    raise RecordRefusal("SHAPE_UNKNOWN")


def _each(
    records: Any, spoiled: bool, allowed: Collection[str], topic: str | None, depth: int
) -> list[Heard]:
    if not isinstance(records, list) or not records:
        raise RecordRefusal("RECORDS_MISSING")
    if len(records) > RECORDS_MAX:
        raise RecordRefusal("RECORDS_TOO_MANY", f"At most {RECORDS_MAX} are read.")
    heard: list[Heard] = []
    for record in records:
        try:
            if not isinstance(record, dict) or (spoiled and is_spoiled(record)):
                raise RecordRefusal("RECORD_INVALID")
            heard += _record(record, allowed, topic, depth)
        except RecordRefusal as refusal:
            heard.append(_refused(refusal))
        if len(heard) > RECORDS_MAX:  # envelopes may hold many, many times
            break
    return heard


def _record(record: dict[str, Any], allowed: Collection[str], topic: str | None, depth: int) -> list[Heard]:
    source = record.get("eventSource", record.get("EventSource"))
    if source == "aws:s3":
        return [s3.hear(record, topic)]
    if source == "aws:sns":
        return _document(_envelope(record), False, allowed, topic, depth + 1)
    if isinstance(source, str):
        return _document(*load_text(_body(record, "body")), allowed, topic, depth + 1)  # aws:sqs
    if "Body" in record:  # as `receive-message` prints it
        return _document(*load_text(_body(record, "Body")), allowed, topic, depth + 1)
    return _document(record, False, allowed, topic, depth + 1)


def _envelope(record: dict[str, Any]) -> dict[str, Any]:
    envelope = record.get("Sns")
    if not isinstance(envelope, dict) or not sns.fits(envelope):
        raise RecordRefusal("ENVELOPE_INVALID", "`Sns` is not an SNS message.")
    return envelope


def _body(record: dict[str, Any], name: str) -> str:
    text = record.get(name)
    if not isinstance(text, str):
        raise RecordRefusal("SHAPE_UNKNOWN" if name == "body" else "ENVELOPE_INVALID")
    return text


def _refused(refusal: RecordRefusal) -> RefusedRecord:
    return RefusedRecord(error_code=refusal.code, error=refusal.text)
