"""What is kept of a run that is given up, so that it can be replayed; and what a release is about. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from kfm.core import keys
from kfm.core.canonical import canonical_bytes
from kfm.core.hashing import sha256_text
from kfm.core.holding import Held, RetryState
from kfm.core.records import Found, Run

SOURCE_IDS_MAX = 100  # the payload's hash stands for all of them
REQUEST_TAG = "approval/1"
# Not given up: somebody stopped it and knows, or a newer run has the work now.
NOT_HELD = ("stopped", "superseded")


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
    """The row for a run that is given up; None if it is not."""
    if state.fate == "retry" or state.reason in NOT_HELD:
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
