"""Records of failed work: what was decided about it, what is held of it, who lets it go."""

from __future__ import annotations

from typing import Literal

from kfm.core.records import Record, Run

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


class Waiting(Record, frozen=True):
    """A run with an automatic attempt ahead of it."""

    state: RetryState
    run: Run


class Ahead(Record, frozen=True):
    """What failed work has ahead of it: held until somebody looks, or to be tried again."""

    held: int
    held_since_ms: int | None  # the oldest
    waiting: int  # runs with an automatic attempt ahead
    next_run_id: str | None = None
    next_dataset_id: str | None = None
    next_at_ms: int | None = None


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
    # Of what is held; at work that the policies ask an approval for; of units that had ended; of a preview.
    kind: Literal["release", "attempt", "replay", "update"]
    subject: str  # what it is about: a held id, the work's base key, a replay's id, or a request's
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
    requested_names: tuple[str, ...] = ()  # every name of whoever asked, as it was declared then
    expires_at_ms: int | None = None  # of an attempt: unused, it lapses
    used_by: str | None = None  # the run
    used_attempt: int | None = None
    used_at_ms: int | None = None
