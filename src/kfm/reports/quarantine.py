"""Quarantined runs, units and requests, and requests for their release, as documents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kfm.model.quantities import instant
from kfm.reports.lookup import NAMED_MAX, SEARCHED_MAX, SHOWN_CHARS_MAX, Sought, only
from kfm.reports.requests import OBJECTS_MAX

if TYPE_CHECKING:
    from kfm.db.ledger_reader import LedgerReader
    from kfm.model.next_steps import NextStep
    from kfm.model.quarantine import Approval, QuarantineEntry
    from kfm.model.requests import AnnouncedObject


def held_document(held: Any, step: NextStep | None = None) -> dict[str, Any]:
    """One entry; with what a person does next about it, where that was asked."""
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
        "next_step": step,
    }


def objects_of(ledger: LedgerReader, held: QuarantineEntry) -> tuple[list[AnnouncedObject], int]:
    """The announced objects that asked for quarantined work: the first of them, and how many there are."""
    reader = ledger.request_reader()
    if held.grain == "run":
        requests = reader.of_run(held.subject)
    else:
        found = reader.request(held.subject) if held.grain == "request" else None
        requests = [] if found is None else [found]
    return reader.announced(requests, OBJECTS_MAX), sum(one.members for one in requests)


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
        "state": approval.status,
        "approved_by": approval.approved_by,
        "approved_at": instant(approval.approved_at_ms),
        "approval_rationale": approval.approval_rationale,
        "about": approval.about,
        "dataset_id": approval.dataset_id,
        "expires_at": instant(approval.expires_at_ms),
        "used_by": approval.used_by,
        "used_at": instant(approval.used_at_ms),
        "rejected_by": approval.rejected_by,
        "rejected_at": instant(approval.rejected_at_ms),
        "rejection_rationale": approval.rejection_rationale,
        "base_sequence": approval.base_sequence,
        "superseded_by": approval.superseded_by,
        "revoked_by": approval.revoked_by,
        "revoked_at": instant(approval.revoked_at_ms),
        "revocation_rationale": approval.revocation_rationale,
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


def held_in(ledger: Any) -> Sought:
    """By the entry's own id."""
    return Sought(
        "entry", "entries", lambda start: ledger.find_held(start, NAMED_MAX + 1), lambda one: one.held_id
    )


def find_held(ledger: Any, wanted: str) -> Any:
    """By the entry's own id or its subject's, or by the beginning of either, if that is unambiguous."""
    exact = ledger.held_one(wanted)
    if exact is not None:
        return exact
    every = ledger.held(limit=SEARCHED_MAX)
    # Of one run only the last entry can still be held.
    newest = {one.subject: one for one in reversed(every)}
    entries = Sought("entry", "entries", lambda _start: every, lambda one: one.held_id)
    runs = Sought("run", "runs", lambda _start: list(newest.values()), lambda one: one.subject)
    return only(
        wanted,
        [entries, runs],
        "`kfm quarantine list --all` has all.",
        none=f"Nothing of the id `{wanted[:SHOWN_CHARS_MAX]}` is or was quarantined.",
    )


def is_open(ledger: LedgerReader, one: Approval) -> bool:
    """A release of what is held no more, or failed anew since, can't be approved, so it is not shown.

    Nor is a replay whose units have changed, nor a preview whose request has ended."""
    if one.kind == "replay":
        return not ledger.replay_reader().moved(one.subject, limit=1)
    if one.kind == "update":
        request = ledger.request_reader().request(one.subject)
        return (
            request is not None and request.state == "awaiting-approval" and request.plan_digest == one.digest
        )
    if one.kind != "release":
        return True
    held = ledger.held_one(one.subject)
    return held is not None and held.state == "held"
