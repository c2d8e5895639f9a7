"""From the body of a message to what it says, record by record.

Every record is an announcement, is ignored, or is refused; which of them one is
never depends on its neighbours, and no input raises.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any

from kfm.ingest.announced import Heard, Ignored, Refused
from kfm.ingest.bodies import RECORDS_MAX, is_spoiled, load, load_text
from kfm.ingest.refusals import IGNORED, Refusal
from kfm.ingest.shapes import azure, eventbridge, gcs, nexrad_chunk, s3, sns

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


def hear(body: bytes, allowed_topics: Collection[str]) -> tuple[Heard, ...]:
    """All that a message says, in its order; at least one answer."""
    heard: list[Heard] = []
    try:
        document = load(body)
        for one in _document(document, allowed_topics, None, 0):
            heard.append(one)
            if len(heard) > RECORDS_MAX:
                raise Refusal("RECORDS_TOO_MANY", f"At most {RECORDS_MAX} are read.")
    except Refusal as refusal:
        return (_refused(refusal),)
    return tuple(heard)


def _document(document: Any, allowed: Collection[str], topic: str | None, depth: int) -> Iterator[Heard]:
    if depth > ENVELOPES_MAX:
        raise Refusal("ENVELOPES_TOO_MANY")
    if isinstance(document, list):  # Event Grid delivers batches
        yield from _each(document, allowed, topic, depth)
        return
    if not isinstance(document, dict):
        code = "RECORD_INVALID" if is_spoiled(document) else "SHAPE_UNKNOWN"
        raise Refusal(code)
    if sns.fits(document):
        topic, message = sns.opened(document, allowed)
        if message is None:
            yield Ignored(error_code="SUBSCRIPTION", error=IGNORED["SUBSCRIPTION"])
        else:
            yield from _document(load_text(message), allowed, topic, depth + 1)
        return
    if s3.is_test(document):
        yield Ignored(error_code="TEST_EVENT", error=IGNORED["TEST_EVENT"])
        return
    for field in ("Records", "Messages", "receivedMessages"):
        if field in document:
            yield from _each(document[field], allowed, topic, depth)
            return
    if is_spoiled(document):
        raise Refusal("RECORD_INVALID", "Readers would disagree about it.")
    for fits, ear in SINGLE:
        if fits(document):
            yield ear(document, topic)
            return
    raise Refusal("SHAPE_UNKNOWN")


def _each(records: Any, allowed: Collection[str], topic: str | None, depth: int) -> Iterator[Heard]:
    if not isinstance(records, list) or not records:
        raise Refusal("RECORDS_MISSING")
    if len(records) > RECORDS_MAX:
        raise Refusal("RECORDS_TOO_MANY", f"At most {RECORDS_MAX} are read.")
    for record in records:
        try:
            yield from list(_record(record, allowed, topic, depth))
        except Refusal as refusal:
            yield _refused(refusal)


def _record(record: Any, allowed: Collection[str], topic: str | None, depth: int) -> Iterator[Heard]:
    if not isinstance(record, dict) or is_spoiled(record):
        raise Refusal("RECORD_INVALID")
    source = record.get("eventSource", record.get("EventSource"))
    if source == "aws:s3":
        yield s3.hear(record, topic)
    elif source == "aws:sns":
        yield from _document(_envelope(record), allowed, topic, depth + 1)
    elif isinstance(source, str):
        yield from _body(record, "body", allowed, topic, depth)  # aws:sqs
    elif "Body" in record:  # as `receive-message` prints it
        yield from _body(record, "Body", allowed, topic, depth)
    else:
        yield from _document(record, allowed, topic, depth + 1)


def _envelope(record: dict[str, Any]) -> dict[str, Any]:
    envelope = record.get("Sns")
    if not isinstance(envelope, dict) or not sns.fits(envelope):
        raise Refusal("ENVELOPE_INVALID", "`Sns` is not an SNS message.")
    return envelope


def _body(
    record: dict[str, Any], name: str, allowed: Collection[str], topic: str | None, depth: int
) -> Iterator[Heard]:
    text = record.get(name)
    if not isinstance(text, str):
        raise Refusal("SHAPE_UNKNOWN" if name == "body" else "ENVELOPE_INVALID")
    yield from _document(load_text(text), allowed, topic, depth + 1)


def _refused(refusal: Refusal) -> Refused:
    return Refused(error_code=refusal.code, error=refusal.text)
