"""Requests for an update: accepted once, durable before anybody is told so, and accounted for to the end.

Whatever asks for an update of a source (an instant of a schedule, a webhook, a person through the API)
becomes one of these. Its key is unique, so the same wish is accepted once in a fleet; a run is started for
it by whoever claims it.
"""

from __future__ import annotations

from typing import Any, Literal

from kfm.core.records import Record

RequestKind = Literal["cron", "webhook", "manual"]
# open: waits, not before `not_before_ms` · running: claimed · awaiting-approval: its preview is, too ·
# done: it has its outcome · cancelled: nobody will run it
RequestState = Literal["open", "running", "awaiting-approval", "done", "cancelled"]
UNSETTLED: tuple[RequestState, ...] = ("open", "running", "awaiting-approval")


class UpdateRequest(Record, frozen=True):
    """One accepted wish to bring a source up to date."""

    request_id: str  # follows from the key
    key: str  # sha256:…, of what makes it the same wish
    kind: RequestKind
    source_id: str
    dataset_id: str
    window_start_ms: int  # absolute: a late start moves nothing
    window_end_ms: int
    actor: str
    accepted_at_ms: int
    not_before_ms: int = 0
    claimed_actor: str | None = None
    rationale: str | None = None
    ticket: str | None = None
    correction: str | None = None
    schedule_id: str | None = None
    instant_ms: int | None = None
    request_uuid: str | None = None
    envelope_hash: str | None = None  # sha256:…, of what was sent; never what it said
    needs_approval: bool = False
    details: dict[str, Any] = {}  # signature scheme, event type, checks: nothing of a payload
    state: RequestState = "open"
    outcome: str | None = None  # of its run: success | noop | failed | refused
    reason: str | None = None  # why it waits, or how it ended
    run_id: str | None = None
    plan_digest: str | None = None  # of the preview that was kept
    claimed_by: str | None = None
    claim_until_ms: int = 0
    tries: int = 0
    cancel: str | None = None  # why it is to stop, while it runs
    ended_at_ms: int | None = None

    @property
    def is_settled(self) -> bool:
        return self.state not in UNSETTLED


class Ending(Record, frozen=True):
    """What became of a request."""

    state: Literal["done", "cancelled"]
    outcome: str | None
    reason: str
    run_id: str | None = None
