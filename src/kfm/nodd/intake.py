"""Intake: from queue messages to units, removals and dead letters. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from hashlib import sha256
from typing import Any

from kfm.model.records import Unit
from kfm.model.settings import IngestPolicy
from kfm.model.units import Content, IntakeBatch, IntakeRemoval, IntakeUnit, Rejected, created
from kfm.nodd.dataset_registry import Registry
from kfm.nodd.grammar import Reading
from kfm.nodd.key_cache import KeyCache
from kfm.nodd.messages.announcement import Announcement, Ignored
from kfm.nodd.messages.records import Arrival, Outcome, Removal, parse
from kfm.nodd.messages.refusals import RecordRefusal
from kfm.ports import QueueMessage

BODY_CHARS_MAX = 64 * 1024  # of a dead letter; longer ones are kept by their hash alone

Check = Callable[[bytes], RecordRefusal | None]


class Hearing:
    """What some messages said, all of it."""

    def __init__(
        self,
        registry: Registry,
        policy_of: Callable[[str], IngestPolicy],
        memory: KeyCache,
        queue: str,
        now_ms: int,
    ) -> None:
        self._registry = registry
        self._policy_of = policy_of
        self._memory = memory
        self._queue = queue
        self._now_ms = now_ms
        self._taken: list[IntakeUnit] = []
        self._gone: list[IntakeRemoval] = []
        self._rejected: list[Rejected] = []
        self.ignored = 0

    def hear(self, message: QueueMessage) -> None:
        outcomes = parse(message.body, self._registry, self._now_ms)
        for index, outcome in enumerate(outcomes):
            self._note(message.body, index, outcome)

    def refuse(self, message: QueueMessage, refusal: RecordRefusal) -> None:
        """The whole message, before anything in it was looked at."""
        self._reject(message.body, 0, refusal.code, refusal.text)

    def intake(self) -> IntakeBatch:
        return IntakeBatch(taken=tuple(self._taken), gone=tuple(self._gone), rejected=tuple(self._rejected))

    def _note(self, body: bytes, index: int, outcome: Outcome) -> None:
        if isinstance(outcome, Arrival):
            self._taken.append(self._arrival(outcome))
        elif isinstance(outcome, Removal):
            if outcome.reading is not None:
                self._gone.append(self._removal(outcome.announced, outcome.reading))
            else:
                self.ignored += 1
        elif isinstance(outcome, Ignored):
            self.ignored += 1
        else:
            self._reject(body, index, outcome.error_code, outcome.error)

    def _arrival(self, arrival: Arrival) -> IntakeUnit:
        said, reading = arrival.announced, arrival.reading
        self._memory.keep(reading)
        return IntakeUnit(
            pending(arrival, queue=self._queue, now_ms=self._now_ms),
            Content(said.etag, said.sequencer, said.size, said.version_id),
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
        )

    def _reject(self, body: bytes, index: int, code: str, error: str) -> None:
        text: str | None = None
        if len(body) <= BODY_CHARS_MAX:
            text = body.decode("utf-8", "backslashreplace")
        self._rejected.append(
            Rejected(
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


def hear_all(
    hearing: Hearing, messages: Iterable[QueueMessage], check: Check | None = None
) -> list[QueueMessage]:
    """Hear each; those whose signature can't be checked now come back, to be received again."""
    waiting = []
    for message in messages:
        refusal = check(message.body) if check is not None else None
        if refusal is None:
            hearing.hear(message)
        elif refusal.retryable:
            waiting.append(message)
        else:
            hearing.refuse(message, refusal)
    return waiting


def pending(arrival: Arrival, *, queue: str, now_ms: int, replay_reason: str | None = None) -> Unit:
    """The new unit. ETag, sequencer and size are columns of the ledger beside it: see `arrival.announced`."""
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


def _with_declared(md5: str | None, *told: Any) -> dict[str, Any]:
    extra = _extra(*told)
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
    """What the key tells beyond the record's own fields, as far as it does. Shared: nobody changes it."""
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
