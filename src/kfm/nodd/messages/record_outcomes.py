"""Outcomes of a message's records: arrivals and removals with the reading of their keys, or why not."""

from __future__ import annotations

import msgspec

from kfm.model.records import Record
from kfm.model.times import rfc3339
from kfm.model.units import newer
from kfm.nodd.dataset_registry import Registry
from kfm.nodd.grammar import Reading
from kfm.nodd.messages.announcement import (
    COMPATIBLE,
    DAY_MS,
    Announcement,
    IgnoredRecord,
    MessageRecord,
    RefusedRecord,
    ignored,
)
from kfm.nodd.messages.envelopes import read_message
from kfm.nodd.messages.refusals import IGNORED, RecordRefusal
from kfm.nodd.object_keys import check_bucket, check_key

AMAZON = "aws"


class Arrival(Record, frozen=True, gc=False):
    """An object to take in: its announcement, and the reading of its key."""

    announced: Announcement
    reading: Reading


class Removal(Record, frozen=True):
    """An object was removed: a tombstone for its unit. No work, so `kfm nodd parse` prints it as ignored."""

    announced: Announcement
    reading: Reading | None


RecordOutcome = Arrival | Removal | IgnoredRecord | RefusedRecord


class ParsedLine(Record, frozen=True, omit_defaults=True):
    """The line of `kfm nodd parse` for an object."""

    dataset: str
    object_uri: str
    provider: str
    product: str | None
    platform: str | None
    time_range_start: str | None
    time_range_end: str | None
    reference_time: str | None
    forecast_hour: int | None
    wal_id: str
    stac_collection_id: str
    stac_item_id: str
    suspect: tuple[str, ...] = ()  # only where there are doubts


class ErrorLine(Record, frozen=True, omit_defaults=True):
    """The line of `kfm nodd parse` for a record that is not taken in."""

    error_code: str
    error: str
    ignored: bool = False  # only where it is


def parse_message(
    body: bytes, registry: Registry, now_ms: int, provider: str | None = None
) -> tuple[RecordOutcome, ...]:
    """One outcome for each record, in the message's order. Never raises.

    `provider` is whose buckets are meant by records in Amazon's form; None: Amazon's.
    """
    records = read_message(body, registry.topics)
    if provider is not None and provider != AMAZON:
        records = [_of_provider(record, provider) for record in records]
    if len(records) == 1:
        return (_outcome(records[0], registry, now_ms),)
    return _newest([_outcome(record, registry, now_ms) for record in records])


def parse_key(
    bucket: str, key: str, registry: Registry, now_ms: int, provider: str | None = None
) -> RecordOutcome:
    """One key, as if it had just been announced."""
    try:
        check_bucket(bucket)
        known = registry.providers_of(bucket)
        announced = Announcement(
            provider=provider or (known[0] if known else "aws"), bucket=bucket, key=check_key(key)
        )
    except RecordRefusal as refusal:
        return RefusedRecord(error_code=refusal.code, error=refusal.text)
    return _outcome(announced, registry, now_ms)


def _of_provider(record: MessageRecord, provider: str) -> MessageRecord:
    if isinstance(record, Announcement) and record.provider in (AMAZON, COMPATIBLE):
        return msgspec.structs.replace(record, provider=provider)
    return record


def _outcome(record: MessageRecord, registry: Registry, now_ms: int) -> RecordOutcome:
    if not isinstance(record, Announcement):
        return record
    try:
        reading = registry.read(record.provider, record.bucket, record.key)
    except RecordRefusal as refusal:
        if record.removed:
            return Removal(announced=record, reading=None)
        return RefusedRecord(error_code=refusal.code, error=refusal.text)
    if record.removed:
        return Removal(announced=record, reading=reading)
    doubts = record.suspect
    if record.event_time_ms is not None and record.event_time_ms > now_ms + DAY_MS:
        doubts += ("EVENT_TIME_FUTURE",)
    # A forecast is valid in the future, but not made there.
    made_ms = reading.time_range_start_ms if reading.reference_time_ms is None else reading.reference_time_ms
    if made_ms is not None and made_ms > now_ms + DAY_MS:
        doubts += ("TIME_FUTURE",)
    if doubts:
        reading = msgspec.structs.replace(reading, suspect=(*doubts, *reading.suspect))
    return Arrival(announced=record, reading=reading)


def _newest(outcomes: list[RecordOutcome]) -> tuple[RecordOutcome, ...]:
    """Of several arrivals of one object only the newest counts."""
    best: dict[str, int] = {}
    repeated = ignored("REPEATED")
    for index, outcome in enumerate(outcomes):
        if not isinstance(outcome, Arrival):
            continue
        rival = best.setdefault(outcome.reading.object_uri, index)
        if rival == index:
            continue
        other = outcomes[rival]
        assert isinstance(other, Arrival)
        if _is_after(outcome.announced, other.announced):
            outcomes[rival], best[outcome.reading.object_uri] = repeated, index
        else:
            outcomes[index] = repeated
    return tuple(outcomes)


def _is_after(one: Announcement, other: Announcement) -> bool:
    answer = newer(one.sequencer, other.sequencer)
    if answer is not None:
        return answer
    return (one.event_time_ms or 0) > (other.event_time_ms or 0)


# --- lines of `kfm nodd parse` ---------------------------------------------------------------------------


def line(outcome: RecordOutcome) -> ParsedLine | ErrorLine:
    """The line of an outcome. No coordinates: those belong to catalogue items alone."""
    if isinstance(outcome, Arrival):
        reading = outcome.reading
        return ParsedLine(
            dataset=reading.dataset,
            object_uri=reading.object_uri,
            provider=reading.provider,
            product=reading.product,
            platform=reading.platform,
            time_range_start=_text(reading.time_range_start_ms),
            time_range_end=_text(reading.time_range_end_ms),
            reference_time=_text(reading.reference_time_ms),
            forecast_hour=reading.forecast_hour,
            wal_id=reading.wal_id,
            stac_collection_id=reading.stac_collection_id,
            stac_item_id=reading.stac_item_id,
            suspect=reading.suspect,
        )
    if isinstance(outcome, Removal):
        return ErrorLine(error_code="REMOVED", error=IGNORED["REMOVED"], ignored=True)
    return ErrorLine(
        error_code=outcome.error_code, error=outcome.error, ignored=isinstance(outcome, IgnoredRecord)
    )


def _text(at_ms: int | None) -> str | None:
    return None if at_ms is None else rfc3339(at_ms)
