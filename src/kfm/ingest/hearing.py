"""From messages to what the ledger takes in: units, removals, dead letters. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import sha256

from kfm.core.settings import IngestPolicy
from kfm.core.wal import Content, Gone, Intake, Rejected, Taken
from kfm.ingest.announced import Announced, Ignored
from kfm.ingest.grammar import Reading
from kfm.ingest.reading import Arrival, Outcome, Removal, parse
from kfm.ingest.refusals import Refusal
from kfm.ingest.registry import Registry
from kfm.ingest.remembering import Memory
from kfm.ingest.units import pending
from kfm.ingest_ports import Message

BODY_CHARS_MAX = 64 * 1024  # of a dead letter; longer ones are kept by their hash alone

Check = Callable[[bytes], Refusal | None]


class Hearing:
    """What some messages said, all of it."""

    def __init__(
        self,
        registry: Registry,
        policy_of: Callable[[str], IngestPolicy],
        memory: Memory,
        queue: str,
        now_ms: int,
    ) -> None:
        self._registry = registry
        self._policy_of = policy_of
        self._memory = memory
        self._queue = queue
        self._now_ms = now_ms
        self._taken: list[Taken] = []
        self._gone: list[Gone] = []
        self._rejected: list[Rejected] = []
        self.ignored = 0

    def hear(self, message: Message) -> None:
        outcomes = parse(message.body, self._registry, self._now_ms)
        for index, outcome in enumerate(outcomes):
            self._note(message.body, index, outcome)

    def refuse(self, message: Message, refusal: Refusal) -> None:
        """The whole message, before anything in it was looked at."""
        self._reject(message.body, 0, refusal.code, refusal.text)

    def intake(self) -> Intake:
        return Intake(taken=tuple(self._taken), gone=tuple(self._gone), rejected=tuple(self._rejected))

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

    def _arrival(self, arrival: Arrival) -> Taken:
        said, reading = arrival.announced, arrival.reading
        self._memory.keep(reading)
        return Taken(
            pending(arrival, queue=self._queue, now_ms=self._now_ms),
            Content(said.etag, said.sequencer, said.size, said.version_id),
            self._policy_of(reading.dataset).reissue,
        )

    def _removal(self, announced: Announced, reading: Reading) -> Gone:
        arrival = Arrival(announced=announced, reading=reading)
        return Gone(
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


def hear_all(hearing: Hearing, messages: Iterable[Message], check: Check | None = None) -> list[Message]:
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
