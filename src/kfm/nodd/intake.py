"""Intake of messages: their records become an intake batch; readings of keys are remembered until work."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from hashlib import sha256
from typing import Any

from kfm.model.records import Unit
from kfm.model.settings import IngestPolicy
from kfm.model.units import (
    Content,
    IntakeBatch,
    IntakeRemoval,
    IntakeUnit,
    RejectedRecord,
    created,
    provider_of,
)
from kfm.nodd.dataset_registry import Registry
from kfm.nodd.grammar import Reading
from kfm.nodd.messages.announcement import Announcement, IgnoredRecord
from kfm.nodd.messages.record_outcomes import Arrival, RecordOutcome, Removal, parse_message
from kfm.nodd.messages.refusals import RecordRefusal
from kfm.ports import QueueMessage

REMEMBERED_MAX = 20_000
BODY_CHARS_MAX = 64 * 1024  # of a dead letter; longer ones are kept by their hash alone


class KeyCache:
    """Bounded: what is forgotten is read from the key again, with the same result."""

    def __init__(self, registry: Registry, limit: int = REMEMBERED_MAX) -> None:
        self._registry = registry
        self._limit = limit
        self._readings: dict[str, Reading] = {}

    def keep(self, reading: Reading) -> None:
        if len(self._readings) >= self._limit:
            self._readings.clear()
        self._readings[reading.wal_id] = reading

    def take(self, wal_id: str, object_uri: str) -> Reading:
        """The reading of a unit's key. Raises RecordRefusal if the unit's dataset is not known any more."""
        known = self._readings.pop(wal_id, None)
        return known if known is not None else self._registry.read(*split(object_uri))


def split(object_uri: str) -> tuple[str, str, str]:
    """(provider, bucket, key)."""
    scheme, _, rest = object_uri.partition("://")
    provider = provider_of(scheme)
    assert provider is not None, "a unit has the address of a bucket"
    bucket, _, key = rest.partition("/")
    if provider == "azure":  # account/container
        container, _, key = key.partition("/")
        bucket = f"{bucket}/{container}"
    return provider, bucket, key


Check = Callable[[bytes], RecordRefusal | None]


class IntakeBuilder:
    """Collects the records of some messages of one queue into an intake batch."""

    def __init__(
        self,
        registry: Registry,
        policy_of: Callable[[str], IngestPolicy],
        keys: KeyCache,
        queue: str,
        now_ms: int,
        provider: str = "aws",
    ) -> None:
        """`provider` is whose buckets are meant by messages in S3's form."""
        self._registry = registry
        self._policy_of = policy_of
        self._keys = keys
        self._queue = queue
        self._now_ms = now_ms
        self._provider = provider
        self._arrivals: list[IntakeUnit] = []
        self._removals: list[IntakeRemoval] = []
        self._rejected: list[RejectedRecord] = []
        self.ignored = 0

    def add(self, message: QueueMessage) -> None:
        outcomes = parse_message(message.body, self._registry, self._now_ms, self._provider)
        for index, outcome in enumerate(outcomes):
            self._add(message.body, index, outcome)

    def refuse(self, message: QueueMessage, refusal: RecordRefusal) -> None:
        """Refuse the whole message, before any of its records is read."""
        self._reject(message.body, 0, refusal.code, refusal.text)

    def batch(self) -> IntakeBatch:
        return IntakeBatch(
            arrivals=tuple(self._arrivals), removals=tuple(self._removals), rejected=tuple(self._rejected)
        )

    def _add(self, body: bytes, index: int, outcome: RecordOutcome) -> None:
        if isinstance(outcome, Arrival):
            self._arrivals.append(self._arrival(outcome))
        elif isinstance(outcome, Removal):
            if outcome.reading is not None:
                self._removals.append(self._removal(outcome.announced, outcome.reading))
            else:
                self.ignored += 1
        elif isinstance(outcome, IgnoredRecord):
            self.ignored += 1
        else:
            self._reject(body, index, outcome.error_code, outcome.error)

    def _arrival(self, arrival: Arrival) -> IntakeUnit:
        announced, reading = arrival.announced, arrival.reading
        self._keys.keep(reading)
        return IntakeUnit(
            pending(arrival, queue=self._queue, now_ms=self._now_ms),
            Content(announced.etag, announced.sequencer, announced.size, announced.version_id),
            self._policy_of(reading.dataset).reissue,
        )

    def _removal(self, announced: Announcement, reading: Reading) -> IntakeRemoval:
        arrival = Arrival(announced=announced, reading=reading)
        return IntakeRemoval(
            wal_id=reading.wal_id,
            sequencer=announced.sequencer,
            event_time_ms=announced.event_time_ms,
            removing=self._policy_of(reading.dataset).removal,
            unit=pending(arrival, queue=self._queue, now_ms=self._now_ms),
            version_id=announced.version_id,
            of_version=announced.of_version,
        )

    def _reject(self, body: bytes, index: int, code: str, error: str) -> None:
        text: str | None = None
        if len(body) <= BODY_CHARS_MAX:
            text = body.decode("utf-8", "backslashreplace")
        self._rejected.append(
            RejectedRecord(
                envelope_hash=envelope_hash(body),
                index=index,
                queue=self._queue,
                error_code=code,
                error=error,
                body=text,
            )
        )


def envelope_hash(body: bytes) -> str:
    return f"sha256:{sha256(body).hexdigest()}"


def read_messages(
    builder: IntakeBuilder, messages: Iterable[QueueMessage], check: Check | None = None
) -> list[QueueMessage]:
    """Add each message; those whose signature can't be checked now are returned, to be received again."""
    unchecked = []
    for message in messages:
        refusal = check(message.body) if check is not None else None
        if refusal is None:
            builder.add(message)
        elif refusal.retryable:
            unchecked.append(message)
        else:
            builder.refuse(message, refusal)
    return unchecked


def pending(arrival: Arrival, *, queue: str, now_ms: int, replay_reason: str | None = None) -> Unit:
    """A new unit. ETag, sequencer and size are columns of the ledger beside it: see `arrival.announced`."""
    reading = arrival.reading
    return created(
        replay_reason=replay_reason,
        wal_id=reading.wal_id,
        dataset=reading.dataset,
        object_uri=reading.object_uri,
        provider=reading.provider,
        queue=queue,
        event_time_ms=arrival.announced.event_time_ms,
        time_range_start_ms=reading.time_range_start_ms,
        time_range_end_ms=reading.time_range_end_ms,
        now_ms=now_ms,
        extra=_with_declared(
            arrival.announced.md5,
            reading.product,
            reading.platform,
            reading.reference_time_ms,
            reading.forecast_hour,
            reading.issued_ms,
            reading.asset,
            reading.suspect,
        ),
    )


def _with_declared(md5: str | None, *fields: Any) -> dict[str, Any]:
    extra = _extra(*fields)
    return extra if md5 is None else {**extra, "md5": md5}


@lru_cache(4096)
def _extra(
    product: str | None,
    platform: str | None,
    reference_time_ms: int | None,
    forecast_hour: int | None,
    issued_ms: int | None,
    asset: str,
    suspect: tuple[str, ...],
) -> dict[str, Any]:
    """Fields of the key that the unit's record has no column for. Shared between units: never changed."""
    known = {
        "product": product,
        "platform": platform,
        "reference_time_ms": reference_time_ms,
        "forecast_hour": forecast_hour,
        "issued_ms": issued_ms,
        "asset": asset if asset != "data" else None,
        "suspect": list(suspect) or None,
    }
    return {name: value for name, value in known.items() if value is not None}
