"""Quarantine entries: what is kept of work that ran out of its retry budget, and what resuming it means."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from kfm.model.records import Found, Record, Run

if TYPE_CHECKING:
    from kfm.model.requests import UpdateRequest

Fate = Literal["retry", "spent", "quarantine"]
HeldKind = Literal["dead-letter", "quarantine"]


class RetryState(Record, frozen=True):
    """What was decided about a run when one of its attempts ended."""

    run_id: str
    attempt: int  # the attempt that had ended
    grants: int
    grant_attempts: int  # of the present grant, as far as they count
    granted_at_ms: int  # the budget counts from here
    not_before_ms: int | None  # of the next automatic attempt
    fate: Fate
    error_class: str
    reason: str  # retry | retry-after | circuit-open | granted | non-retryable | attempts-spent | acted | …
    updated_at_ms: int
    fingerprint: str | None = None  # of the inputs that the grant is for; None: they were not discovered
    day_grants: int = 0  # on the UTC day of the present one


class Waiting(Record, frozen=True):
    """A run with an automatic attempt ahead of it."""

    state: RetryState
    run: Run


class Ahead(Record, frozen=True):
    """What failed work has ahead of it: quarantined until a person acts, or to be retried."""

    held: int
    held_since_ms: int | None  # the oldest
    waiting: int  # runs with an automatic attempt ahead
    next_run_id: str | None = None
    next_dataset_id: str | None = None
    next_at_ms: int | None = None


class QuarantineEntry(Record, frozen=True):
    """A quarantined run, unit or message: it is not retried automatically."""

    held_id: str
    kind: HeldKind  # dead-letter: it ran out of attempts; quarantine: trying again can't help
    grain: Literal["run", "unit", "message", "request"]
    subject: str  # the run's id, the unit's, the message's, the request's
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
    """An approval request: what needs a second person."""

    request_id: str
    # Of quarantined work; at work that the policies ask an approval for; of ended units; of a preview; of a
    # source, until a date; of a person's change of a dataset.
    kind: Literal["release", "attempt", "replay", "update", "standing", "change"]
    subject: str  # what it is about: a held id, the work's base key, a replay's id, a request's, a source's
    digest: str  # of what was asked for, as it was then
    requested_by: str
    requested_at_ms: int
    rationale: str
    ticket: str | None = None
    state: Literal["requested", "approved"] = "requested"
    approved_by: str | None = None
    approved_at_ms: int | None = None
    approval_rationale: str | None = None
    about: str = ""  # the same for people
    dataset_id: str | None = None
    requested_names: tuple[str, ...] = ()  # every name of the requester, as declared then
    expires_at_ms: int | None = None  # of an attempt: unused, it lapses
    used_by: str | None = None  # the run; of what is used more than once, the last
    used_attempt: int | None = None
    used_at_ms: int | None = None
    rejected_by: str | None = None
    rejected_at_ms: int | None = None
    rejection_rationale: str | None = None
    terms: str | None = None  # of a preview: digest of the rights and the work that it is for
    fingerprint: str | None = None  # of a preview: of its inputs
    base_sequence: int | None = None  # of a preview: the version that it would change
    superseded_by: str | None = None  # the request whose preview is newer
    revoked_by: str | None = None
    revoked_at_ms: int | None = None
    revocation_rationale: str | None = None

    @property
    def status(self) -> Literal["requested", "approved", "rejected", "superseded", "revoked"]:
        """What people are shown; stored is only what was approved."""
        if self.rejected_at_ms is not None:
            return "rejected"
        if self.superseded_by is not None:
            return "superseded"
        return self.state if self.revoked_at_ms is None else "revoked"


SOURCE_IDS_MAX = 100  # the payload's hash stands for all of them
REQUEST_TAG = "approval/1"
# Not quarantined: a person stopped it, a newer run has the work now, or it is asked for again with others.
NOT_HELD = ("stopped", "superseded", "drifted", "together")


def held_run(
    run: Run,
    state: RetryState,
    *,
    payload_hash: str | None,
    inputs: Iterable[Found],
    error_classes: Iterable[str],
    error_code: str,
    error_message: str,
) -> QuarantineEntry | None:
    """The row for a run that is given up; None if it is not."""
    if state.fate == "retry" or state.reason in NOT_HELD:
        return None
    from kfm.model import keys  # here: readers of the ledger start without them

    names = tuple(found.uri for found in inputs)[:SOURCE_IDS_MAX]
    return QuarantineEntry(
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


def held_request(
    request: UpdateRequest, *, error_class: str, error_code: str, error_message: str, reason: str, now_ms: int
) -> QuarantineEntry:
    """The row for a request that is given up before it became a run."""
    from kfm.model import keys  # here: readers of the ledger start without them

    return QuarantineEntry(
        held_id=keys.uuid5(request.request_id, f"held/{now_ms}"),  # resumed, it counts its tries anew
        kind="quarantine" if reason == "non-retryable" else "dead-letter",
        grain="request",
        subject=request.request_id,
        dataset_id=request.dataset_id,
        source_id=request.source_id,
        payload_hash=request.envelope_hash,
        source_ids=(request.source_id,),
        code_sha="",
        idempotency_key=request.key,
        attempts=request.tries,
        error_classes=(error_class,),
        error_code=error_code,
        error_message=error_message,
        reason=reason,
        held_at_ms=now_ms,
    )


def facts_of(held: QuarantineEntry, care_label: str | None) -> dict[str, Any]:
    """What the audit log says of it."""
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


def release_digest(held: QuarantineEntry) -> str:
    """What a release is asked for: another failure, other inputs or other code make it another request."""
    from kfm.model.canonical import canonical_bytes  # late: readers do not need it
    from kfm.model.input_hash import sha256_text

    document = {
        "kfm": REQUEST_TAG,
        "kind": "release",
        **{
            field: msgspec.to_builtins(getattr(held, field))
            for field in QuarantineEntry.__struct_fields__
            if field not in ("state", "released_at_ms", "released_by", "error_message")
        },
    }
    return sha256_text(canonical_bytes(document))
