"""Webhooks as records: who may send them, what they say, and what is answered to those that are refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from msgspec import Meta

from kfm.core.errors import KfmError, WebhookMalformed, WebhookRefused
from kfm.core.keys import request_id, webhook_key
from kfm.core.records import Record, Trigger, Window
from kfm.core.requests import UpdateRequest
from kfm.core.settings import Source
from kfm.core.signatures import standard_secret

BODY_BYTES_MAX = 262_144
RATIONALE_CHARS_MAX = 4000  # as of whoever gives a reason on the command line
NAME_CHARS_MAX = 200
INTEGRITY_MAX = 32

EVENT_TYPE = r"\A[A-Za-z0-9][A-Za-z0-9._:/-]{0,99}\Z"

Scheme = Literal["kfm", "standard", "github"]


class Receiver(Record, frozen=True):
    """A source and the secrets that may ask for it, ready to be compared with."""

    source: Source
    plain: tuple[bytes, ...]
    standard: tuple[str, ...]  # of those, the ones that are secrets of Standard Webhooks
    standard_index: tuple[int, ...]  # which they are among all
    legacy_concat: bool
    tolerance_ms: int


class Refusal(Record, frozen=True):
    """What is answered, and the word that the log gets."""

    status: int
    code: str
    reason: str  # for the log; of a stranger's message the answer tells nothing more
    detail: str  # for the caller


class Envelope(Record, frozen=True):
    """A message whose signature holds, with what it asks for."""

    source_id: str
    scheme: Scheme
    secret_index: int
    envelope_hash: str
    request_uuid: str
    known_by: Literal["request_uuid", "webhook-id", "body"]
    window: Window
    dry_run: bool = False
    is_ping: bool = False  # GitHub tries out a new hook
    event_type: str | None = None
    sent_at_ms: int | None = None
    claimed_actor: str | None = None
    rationale: str | None = None
    ticket: str | None = None
    correction: str | None = None
    integrity_hash: str | None = None


_Name = Annotated[str, Meta(min_length=1, max_length=NAME_CHARS_MAX)]


class Metadata(Record, frozen=True):
    """What a sender may say about its request."""

    window: Annotated[str, Meta(min_length=1, max_length=100)] | None = None
    rationale: Annotated[str, Meta(min_length=1, max_length=RATIONALE_CHARS_MAX)] | None = None
    ticket: _Name | None = None
    correction: _Name | None = None
    actor: _Name | None = None


class Payload(Record, frozen=True):
    """The body of a webhook that is signed with X-KFM-Signature."""

    source_id: str
    trigger: Literal["webhook"]
    event_type: Annotated[str, Meta(pattern=EVENT_TYPE)]
    sent_at: Annotated[str, Meta(max_length=40)]
    request_uuid: str | None = None
    dry_run: bool = False
    metadata: Metadata = Metadata()
    integrity: Annotated[dict[_Name, str | int | None], Meta(max_length=INTEGRITY_MAX)] = {}


def receiver(source: Source, secrets: Sequence[str]) -> Receiver:
    """`secrets` are those of the source's `webhook`, resolved, in the order of the configuration."""
    webhook = source.webhook
    assert webhook is not None
    usable = [index for index, secret in enumerate(secrets) if _is_standard(secret)]
    return Receiver(
        source=source,
        plain=tuple(secret.encode() for secret in secrets),
        standard=tuple(secrets[index] for index in usable),
        standard_index=tuple(usable),
        legacy_concat=webhook.signature == "legacy-concat",
        tolerance_ms=round(webhook.tolerance_seconds * 1000),
    )


def _is_standard(secret: str) -> bool:
    try:
        return bool(standard_secret(secret))
    except KfmError:
        return False


# --- refusals ------------------------------------------------------------------------


def too_large(body_max: int) -> Refusal:
    return Refusal(
        status=413,
        code=WebhookMalformed.code,
        reason="too-large",
        detail=f"A body has at most {body_max:,} bytes.",
    )


def too_slow() -> Refusal:
    return Refusal(
        status=408,
        code=WebhookMalformed.code,
        reason="too-slow",
        detail="The body did not arrive in time.",
    )


def missing_signature() -> Refusal:
    return Refusal(
        status=401,
        code=WebhookRefused.code,
        reason="unsigned",
        detail="Sign the body: X-KFM-Signature, Standard Webhooks, or X-Hub-Signature-256.",
    )


def not_json() -> Refusal:
    return Refusal(
        status=415,
        code=WebhookMalformed.code,
        reason="content-type",
        detail="Send the body as application/json.",
    )


def malformed(reason: str, detail: str) -> Refusal:
    return Refusal(status=400, code=WebhookMalformed.code, reason=reason, detail=detail)


def refused(reason: str) -> Refusal:
    """Whoever has no secret learns nothing of why; whoever has one may know that his clock is wrong."""
    times = {
        "stale": "It was sent too long ago.",
        "future": "It says that it was sent in the future.",
    }
    detail = times.get(reason, "The signature does not hold for this address.")
    return Refusal(status=403, code=WebhookRefused.code, reason=reason, detail=detail)


def not_for_us() -> Refusal:
    return Refusal(
        status=403,
        code=WebhookRefused.code,
        reason="other-source",
        detail="The body names another source than the address.",
    )


# --- what is accepted ----------------------------------------------------------------


def as_request(envelope: Envelope, source: Source, now_ms: int) -> UpdateRequest:
    """The wish that an envelope stands for; its window is absolute from now on."""
    key = webhook_key(
        Trigger(
            type="webhook",
            source_id=envelope.source_id,
            dataset_id=source.dataset,
            request_uuid=envelope.request_uuid,
        )
    )
    details: dict[str, Any] = {
        "scheme": envelope.scheme,
        "secret_index": envelope.secret_index,
        "signature": f"{envelope.scheme} ok",
        "checks": ["signature", *(["freshness"] if envelope.sent_at_ms is not None else [])],
        "known_by": envelope.known_by,
    }
    told = {
        "reason": envelope.event_type,  # what lineage tells of why
        "integrity_hash": envelope.integrity_hash,
        "sent_at_ms": envelope.sent_at_ms,
    }
    details |= {name: value for name, value in told.items() if value is not None}
    return UpdateRequest(
        request_id=request_id(key),
        key=key,
        kind="webhook",
        source_id=envelope.source_id,
        dataset_id=source.dataset,
        window_start_ms=envelope.window.start_ms,
        window_end_ms=envelope.window.end_ms,
        actor=f"webhook:{envelope.source_id}",
        accepted_at_ms=now_ms,
        claimed_actor=envelope.claimed_actor,
        rationale=envelope.rationale,
        ticket=envelope.ticket,
        correction=envelope.correction,
        request_uuid=envelope.request_uuid,
        envelope_hash=envelope.envelope_hash,
        needs_approval=source.webhook is not None and source.webhook.approval == "required",
        details=details,
    )
