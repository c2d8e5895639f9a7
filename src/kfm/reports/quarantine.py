"""What was given up, and who was asked to let it go on, as documents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kfm.model.errors import UsageError
from kfm.model.wording import instant

if TYPE_CHECKING:
    from kfm.model.quarantine import Approval
    from kfm.ports import LedgerReader

SEARCHED_MAX = 10_000
PREFIX_CHARS_MIN = 4


def held_document(held: Any) -> dict[str, Any]:
    return {
        "held_id": held.held_id,
        "kind": held.kind,
        "grain": held.grain,
        "subject": held.subject,
        "dataset_id": held.dataset_id,
        "source_id": held.source_id,
        "payload_hash": held.payload_hash,
        "source_ids": list(held.source_ids),
        "code_sha": held.code_sha,
        "idempotency_key": held.idempotency_key,
        "attempts": held.attempts,
        "error_classes": list(held.error_classes),
        "error_code": held.error_code,
        "error_message": held.error_message,
        "reason": held.reason,
        "held_at": instant(held.held_at_ms),
        "state": held.state,
        "released_at": instant(held.released_at_ms),
        "released_by": held.released_by,
    }


def approval_document(approval: Any) -> dict[str, Any]:
    return {
        "request_id": approval.request_id,
        "kind": approval.kind,
        "subject": approval.subject,
        "digest": approval.digest,
        "requested_by": approval.requested_by,
        "requested_at": instant(approval.requested_at_ms),
        "rationale": approval.rationale,
        "ticket": approval.ticket,
        "state": approval.state,
        "approved_by": approval.approved_by,
        "approved_at": instant(approval.approved_at_ms),
        "approval_rationale": approval.approval_rationale,
        "about": approval.about,
        "dataset_id": approval.dataset_id,
        "expires_at": instant(approval.expires_at_ms),
        "used_by": approval.used_by,
        "used_at": instant(approval.used_at_ms),
    }


def ahead_documents(ahead: Any) -> dict[str, Any]:
    upcoming = held = None
    if ahead.next_run_id is not None:
        upcoming = {
            "run_id": ahead.next_run_id,
            "dataset_id": ahead.next_dataset_id,
            "at": instant(ahead.next_at_ms),
            "waiting": ahead.waiting,
            "command": "kfm retry --due",
        }
    if ahead.held:
        held = {"count": ahead.held, "oldest": instant(ahead.held_since_ms), "command": "kfm quarantine list"}
    return {"held": held, "next_retry": upcoming}


def find_held(ledger: Any, wanted: str) -> Any:
    """By the entry's own id or its run's, or by the beginning of either, if that is enough to tell."""
    exact = ledger.held_one(wanted)
    if exact is not None:
        return exact
    if len(wanted) < PREFIX_CHARS_MIN:
        raise UsageError(
            f"`{wanted}` is too short: give at least {PREFIX_CHARS_MIN} characters of the id.",
            remedy="`kfm quarantine list` has them.",
        )
    start = wanted.lower()
    every = ledger.held(limit=SEARCHED_MAX)
    found = [one for one in every if one.held_id.startswith(start)]
    if not found:
        of_run = [one for one in every if one.subject.lower().startswith(start)]
        # Of one run only the last entry can still be held.
        newest = {one.subject: one for one in reversed(of_run)}
        found = list(newest.values())
    if len(found) == 1:
        return found[0]
    if found:
        raise UsageError(f"Several entries begin with `{wanted}`.", remedy="Give more of the id.")
    raise UsageError(
        f"Nothing of the id `{wanted}` is or was held.", remedy="`kfm quarantine list --all` has all."
    )


def is_open(ledger: LedgerReader, one: Approval) -> bool:
    """A release of what is held no more, or failed anew since, can't be approved: nobody has to see it.

    Nor does anybody have to see a replay whose units have changed."""
    if one.kind == "replay":
        return not ledger.replay_reader().moved(one.subject, limit=1)
    if one.kind != "release":
        return True
    held = ledger.held_one(one.subject)
    return held is not None and held.state == "held"
