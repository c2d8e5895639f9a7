"""What was given up, held with all that a replay needs; and what two people decide about it. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from kfm.core import keys
from kfm.core.canonical import canonical_bytes
from kfm.core.grants import RetryState
from kfm.core.hashing import sha256_text
from kfm.core.records import Found, Record, Run

SOURCE_IDS_MAX = 100  # the payload's hash stands for all of them
REQUEST_TAG = "approval/1"

HeldKind = Literal["dead-letter", "quarantine"]


class Held(Record, frozen=True):
    """One run, unit or message that nobody tries again by itself."""

    held_id: str
    kind: HeldKind  # dead-letter: it ran out of attempts; quarantine: trying again can't help
    grain: Literal["run", "unit", "message"]
    subject: str  # the run's id, the unit's, the message's
    dataset_id: str
    source_id: str
    payload_hash: str | None  # the fingerprint of its inputs; None: nothing was discovered
    source_ids: tuple[str, ...]  # upstream's own names for them
    code_sha: str
    idempotency_key: str
    attempts: int
    error_classes: tuple[str, ...]  # of the attempts, in their order
    error_code: str
    error_message: str
    reason: str  # why it was given up: a retry state's word
    held_at_ms: int
    state: Literal["held", "released", "resolved"] = "held"  # resolved: the work was done after all
    released_at_ms: int | None = None
    released_by: str | None = None  # a person, or the run that did the work


class Approval(Record, frozen=True):
    """One wish that needs a second person."""

    request_id: str
    kind: str  # release
    subject: str  # what it is about: a held id
    digest: str  # of what was asked for, as it was then
    requested_by: str
    requested_at_ms: int
    rationale: str
    ticket: str | None = None
    state: Literal["requested", "approved"] = "requested"
    approved_by: str | None = None
    approved_at_ms: int | None = None
    approval_rationale: str | None = None


def held_run(
    run: Run,
    state: RetryState,
    *,
    payload_hash: str | None,
    inputs: Iterable[Found],
    error_classes: Iterable[str],
    error_code: str,
    error_message: str,
) -> Held | None:
    """The row for a run that is given up; None if it is not, or was stopped by somebody who knows."""
    if state.fate == "retry" or state.reason == "stopped":
        return None
    names = tuple(found.uri for found in inputs)[:SOURCE_IDS_MAX]
    return Held(
        held_id=keys.uuid5(run.run_id, f"held/{run.attempts}"),
        kind="quarantine" if state.fate == "quarantine" else "dead-letter",
        grain="run",
        subject=run.run_id,
        dataset_id=run.dataset_id,
        source_id=run.source_id,
        payload_hash=payload_hash,
        source_ids=names or (run.source_id,),
        code_sha=run.pipeline_version,
        idempotency_key=run.idempotency_key,
        attempts=run.attempts,
        error_classes=tuple(error_classes),
        error_code=error_code,
        error_message=error_message,
        reason=state.reason,
        held_at_ms=state.updated_at_ms,
    )


def facts_of(held: Held, care_label: str | None) -> dict[str, Any]:
    """What the governance ledger says of it."""
    return {
        "held_id": held.held_id,
        "dataset_id": held.dataset_id,
        "care_label": care_label,
        "attempts": held.attempts,
        "error_classes": list(held.error_classes),
        "code": held.error_code,
        "reason": held.reason,
        "payload_hash": held.payload_hash,
        "code_sha": held.code_sha,
    }


def release_digest(held: Held) -> str:
    """What a release is asked for: another failure, other inputs or other code make it another wish."""
    document = {
        "kfm": REQUEST_TAG,
        "kind": "release",
        **{
            field: msgspec.to_builtins(getattr(held, field))
            for field in Held.__struct_fields__
            if field not in ("state", "released_at_ms", "released_by", "error_message")
        },
    }
    return sha256_text(canonical_bytes(document))
