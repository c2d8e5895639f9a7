"""The publisher's trace: one schema-valid line for each operation.

Paths of restricted data and the payloads of events and states are not written down:
a hash tells whether two were equal without telling what they were.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec

from kfm.model.canonical import canonical_bytes, canonical_hashed
from kfm.model.contracts import require_valid
from kfm.model.records import Record
from kfm.model.times import rfc3339

Operation = Literal["write_file", "emit_event", "update_state", "publish_release", "noop_guard", "close"]
Outcome = Literal["staged", "intended", "checked", "refused", "closed"]

MASKED = "[restricted]"


class TraceLine(Record, frozen=True, omit_defaults=True):
    """One operation of a publisher."""

    trace: Literal[1]
    seq: int
    at: str
    run_id: str
    publisher: str
    dry_run: bool
    operation: Operation
    outcome: Outcome
    path: str | None = None
    size: int | None = None
    sha256: str | None = None
    media_type: str | None = None
    event_type: str | None = None
    state_key: str | None = None
    payload_sha256: str | None = None
    error_code: str | None = None


class Trace:
    """Numbers, checks and hands on the lines of one run. The sink gets whole lines of JSON."""

    def __init__(
        self,
        sink: Callable[[bytes], None],
        now_ms: Callable[[], int],
        run_id: str,
        *,
        publisher: str,
        dry_run: bool,
        restricted: bool = False,
    ) -> None:
        self._sink = sink
        self._now_ms = now_ms
        self._run_id = run_id
        self._publisher = publisher
        self._dry_run = dry_run
        self._restricted = restricted
        self._seq = 0

    @property
    def dry_run(self) -> bool:
        return self._dry_run

    def record(self, operation: Operation, outcome: Outcome, **facts: Any) -> TraceLine:
        if self._restricted and facts.get("path") is not None:
            facts["path"] = MASKED
        self._seq += 1
        line = TraceLine(
            trace=1,
            seq=self._seq,
            at=rfc3339(self._now_ms()),
            run_id=self._run_id,
            publisher=self._publisher,
            dry_run=self._dry_run,
            operation=operation,
            outcome=outcome,
            **facts,
        )
        self._sink(encode(line))
        return line


def encode(line: TraceLine) -> bytes:
    """The line with its newline; refused if it does not match the schema."""
    plain = msgspec.to_builtins(line)
    require_valid("publisher-trace", plain)
    return canonical_bytes(plain) + b"\n"


def payload_hash(payload: Mapping[str, Any]) -> str:
    return hashlib.sha256(canonical_hashed(dict(payload))).hexdigest()
