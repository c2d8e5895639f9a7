"""Webhooks: senders, envelopes, what is checked before one is accepted, and how one is made."""

import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from typing import Annotated, Any, Literal

import msgspec
import orjson
from msgspec import Meta

from kfm.model.canonical import canonical_hashed, strict_loads
from kfm.model.errors import KfmError, UsageError, WebhookMalformed, WebhookRefused, WindowError
from kfm.model.keys import former_webhook_key, request_id, webhook_key
from kfm.model.patterns import late
from kfm.model.records import Record, Trigger, Window
from kfm.model.requests import UpdateRequest
from kfm.model.settings import SourceSettings
from kfm.model.times import parse_rfc3339, rfc3339
from kfm.model.webhook_signatures import (
    SECRET_PREFIX,
    Verification,
    check_fresh,
    sign_kfm,
    sign_standard,
    standard_secret,
    verify_github,
    verify_kfm,
    verify_standard,
)
from kfm.model.windows import asked_window

BODY_BYTES_MAX = 262_144
RATIONALE_CHARS_MAX = 4000  # as on the command line
NAME_CHARS_MAX = 200
INTEGRITY_MAX = 32

EVENT_TYPE = r"\A[A-Za-z0-9][A-Za-z0-9._:/-]{0,99}\Z"

Scheme = Literal["kfm", "standard", "github"]


class Receiver(Record, frozen=True):
    """A source and the secrets that may ask for it, ready to be compared with."""

    source: SourceSettings
    plain: tuple[bytes, ...]
    standard: tuple[str, ...]  # of those, the ones that are secrets of Standard Webhooks
    standard_index: tuple[int, ...]  # which they are among all
    legacy_concat: bool
    tolerance_ms: int


class WebhookRefusal(Record, frozen=True):
    """What is answered, and the word that the log gets."""

    status: int
    code: str
    reason: str  # for the log; of a stranger's message the answer tells nothing more
    detail: str  # for the caller


class WebhookEnvelope(Record, frozen=True):
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


def receiver(source: SourceSettings, secrets: Sequence[str]) -> Receiver:
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


def too_large(body_max: int) -> WebhookRefusal:
    return WebhookRefusal(
        status=413,
        code=WebhookMalformed.code,
        reason="too-large",
        detail=f"A body has at most {body_max:,} bytes.",
    )


def too_slow() -> WebhookRefusal:
    return WebhookRefusal(
        status=408,
        code=WebhookMalformed.code,
        reason="too-slow",
        detail="The body did not arrive in time.",
    )


def missing_signature() -> WebhookRefusal:
    return WebhookRefusal(
        status=401,
        code=WebhookRefused.code,
        reason="unsigned",
        detail="Sign the body: X-KFM-Signature, Standard Webhooks, or X-Hub-Signature-256.",
    )


def not_json() -> WebhookRefusal:
    return WebhookRefusal(
        status=415,
        code=WebhookMalformed.code,
        reason="content-type",
        detail="Send the body as application/json.",
    )


def malformed(reason: str, detail: str) -> WebhookRefusal:
    return WebhookRefusal(status=400, code=WebhookMalformed.code, reason=reason, detail=detail)


def refused(reason: str) -> WebhookRefusal:
    """A sender without a secret learns no reason; one with a secret may learn that its clock is wrong."""
    times = {
        "stale": "It was sent too long ago.",
        "future": "It says that it was sent in the future.",
    }
    detail = times.get(reason, "The signature does not hold for this address.")
    return WebhookRefusal(status=403, code=WebhookRefused.code, reason=reason, detail=detail)


def not_for_us() -> WebhookRefusal:
    return WebhookRefusal(
        status=403,
        code=WebhookRefused.code,
        reason="other-source",
        detail="The body names another source than the address.",
    )


# --- what is accepted ----------------------------------------------------------------


def as_request(envelope: WebhookEnvelope, source: SourceSettings, now_ms: int) -> UpdateRequest:
    """The request that an envelope asks for; its window is absolute from now on."""
    key = webhook_key(_trigger(envelope.source_id, source.dataset, envelope.request_uuid))
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


def former_request_id(request: UpdateRequest) -> str | None:
    """The id that an earlier version, whose keys named no source, gave to the same message."""
    if request.kind != "webhook" or not request.request_uuid:
        return None
    return request_id(
        former_webhook_key(_trigger(request.source_id, request.dataset_id, request.request_uuid))
    )


def _trigger(source_id: str, dataset_id: str, request_uuid: str) -> Trigger:
    return Trigger(type="webhook", source_id=source_id, dataset_id=dataset_id, request_uuid=request_uuid)


KFM = "x-kfm-signature"
STANDARD = "webhook-signature"
STANDARD_ID = "webhook-id"
STANDARD_TIME = "webhook-timestamp"
GITHUB = "x-hub-signature-256"
HEADERS = frozenset({KFM, STANDARD, STANDARD_ID, STANDARD_TIME, GITHUB})

# No slash: ids that are derived have one, so no sender can claim another's by naming it.
_UUID = late(r"[A-Za-z0-9._:-]{1,128}", re.ASCII)
# Neither braces nor quotes: `id.time.body` can't be cut at another place so that a body remains.
_MESSAGE_ID = late(r"[A-Za-z0-9._:~@+=/-]{1,200}", re.ASCII)
_EVENT_TYPE = late(EVENT_TYPE, re.ASCII)


def read_webhook(
    to: Receiver,
    headers: Mapping[str, str],
    body: bytes,
    now_ms: int,
    body_max: int = BODY_BYTES_MAX,
) -> WebhookEnvelope | WebhookRefusal:
    """Never raises on what a stranger sent. `headers` have names in lower case."""
    if len(body) > body_max:
        return too_large(body_max)
    scheme = _scheme(headers)
    if scheme is None:
        return missing_signature()
    found = _verified(to, scheme, headers, body, now_ms)
    if not found.ok or found.secret_index is None:
        return refused(found.reason)
    try:
        payload = strict_loads(body, bytes_max=body_max)
        if not isinstance(payload, dict):
            return malformed("not-an-object", "The body is not a JSON object.")
        if "source_id" in payload and payload["source_id"] != to.source.id:
            return not_for_us()
        read = _own if scheme == "kfm" else _foreign
        return read(to, scheme, found.secret_index, headers, body, payload, now_ms)
    except msgspec.ValidationError as error:
        return malformed("payload", f"{str(error)[:300].rstrip('.')}.")
    except UsageError as error:
        return malformed("window" if isinstance(error, WindowError) else "body", error.detail)


# --- who signed it -------------------------------------------------------------------


def _scheme(headers: Mapping[str, str]) -> Scheme | None:
    if KFM in headers:
        return "kfm"
    if STANDARD in headers or STANDARD_ID in headers or STANDARD_TIME in headers:
        return "standard"
    return "github" if GITHUB in headers else None


def _verified(
    to: Receiver, scheme: Scheme, headers: Mapping[str, str], body: bytes, now_ms: int
) -> Verification:
    if scheme == "kfm":
        return verify_kfm(to.plain, body, headers[KFM], legacy_concat=to.legacy_concat)
    if scheme == "github":
        return verify_github(to.plain, body, headers[GITHUB])
    message_id = headers.get(STANDARD_ID)
    if message_id is not None and not _MESSAGE_ID.fullmatch(message_id):
        return Verification(False, "malformed")
    found = verify_standard(
        to.standard,
        body,
        message_id=message_id,
        timestamp=headers.get(STANDARD_TIME),
        signature=headers.get(STANDARD),
        now_ms=now_ms,
        tolerance_ms=to.tolerance_ms,
    )
    if found.secret_index is None:
        return found
    return msgspec.structs.replace(found, secret_index=to.standard_index[found.secret_index])


# --- what it asks for ----------------------------------------------------------------


def _own(
    to: Receiver,
    scheme: Scheme,
    secret_index: int,
    headers: Mapping[str, str],  # noqa: ARG001 - one signature for both
    body: bytes,
    plain: dict[str, Any],
    now_ms: int,
) -> WebhookEnvelope | WebhookRefusal:
    payload = msgspec.convert(plain, Payload)
    sent_at_ms = _fresh_ms(payload.sent_at, now_ms, to.tolerance_ms)
    if isinstance(sent_at_ms, WebhookRefusal):
        return sent_at_ms
    said = payload.metadata
    envelope_hash = _hash(body)
    return WebhookEnvelope(
        source_id=to.source.id,
        scheme=scheme,
        secret_index=secret_index,
        envelope_hash=envelope_hash,
        request_uuid=_named(payload.request_uuid) or f"{to.source.id}/body/{envelope_hash}",
        known_by="body" if payload.request_uuid is None else "request_uuid",
        window=_window(said.window, to.source, now_ms),
        dry_run=payload.dry_run,
        event_type=payload.event_type,
        sent_at_ms=sent_at_ms,
        claimed_actor=said.actor,
        rationale=said.rationale,
        ticket=said.ticket,
        correction=said.correction,
        integrity_hash=_hash(canonical_hashed(payload.integrity)) if payload.integrity else None,
    )


def _foreign(
    to: Receiver,
    scheme: Scheme,
    secret_index: int,
    headers: Mapping[str, str],
    body: bytes,
    plain: dict[str, Any],
    now_ms: int,
) -> WebhookEnvelope | WebhookRefusal:
    """A payload of the sender's own: three names mean something to us, and only where they are there."""
    if scheme == "github" and plain.keys() >= {"trigger", "event_type", "sent_at"}:
        # X-KFM-Signature is the same code over the same bytes: renamed, an old message would stay fresh.
        return WebhookRefusal(
            status=403,
            code=WebhookRefused.code,
            reason="downgrade",
            detail="This body is sent with X-KFM-Signature.",
        )
    dry_run, uuid = plain.get("dry_run", False), plain.get("request_uuid")
    if type(dry_run) is not bool:
        return malformed("dry_run", "`dry_run` must be true or false.")
    if uuid is not None and not isinstance(uuid, str):
        return malformed("request_uuid", "`request_uuid` must be a text.")
    sent_at_ms = int(headers[STANDARD_TIME]) * 1000 if scheme == "standard" else None
    if dry_run and scheme == "github":
        # It uses nothing up, and GitHub's way has no time of its own: it could be sent again for ever.
        found = _fresh_ms(plain.get("sent_at"), now_ms, to.tolerance_ms)
        if isinstance(found, WebhookRefusal):
            return found
        sent_at_ms = found
    envelope_hash = _hash(body)
    known_by: Literal["request_uuid", "webhook-id", "body"] = "request_uuid"
    request_uuid = _named(uuid)
    if request_uuid is None and scheme == "standard":
        known_by, request_uuid = "webhook-id", f"{to.source.id}/id/{headers[STANDARD_ID]}"
    elif request_uuid is None:
        # Two sources may get the same body: each of them once.
        known_by, request_uuid = "body", f"{to.source.id}/body/{envelope_hash}"
    kind = plain.get("type") if scheme == "standard" else None
    return WebhookEnvelope(
        source_id=to.source.id,
        scheme=scheme,
        secret_index=secret_index,
        envelope_hash=envelope_hash,
        request_uuid=request_uuid,
        known_by=known_by,
        window=_window(None, to.source, now_ms),
        dry_run=dry_run,
        is_ping=scheme == "github" and plain.keys() >= {"zen", "hook_id", "hook"},
        event_type=kind if isinstance(kind, str) and _EVENT_TYPE.match(kind) else None,
        sent_at_ms=sent_at_ms,
    )


def _fresh_ms(text: Any, now_ms: int, tolerance_ms: int) -> int | WebhookRefusal:
    """`sent_at` of a body, in ms; refused if it is no time, or too far from now."""
    if not isinstance(text, str) or not text.endswith(("Z", "z", "+00:00")):
        return malformed("sent_at", "`sent_at` must be a time in UTC, such as 2026-01-01T00:00:00Z.")
    sent_at_ms = _sent_at_ms(text)
    fresh = check_fresh(sent_at_ms, now_ms, tolerance_ms)
    return sent_at_ms if fresh.ok else refused(fresh.reason)


def _sent_at_ms(text: str) -> int:
    """Messages of a burst are of the same second: only the rest of it is read each time."""
    second, rest = text[:19], text[19:]
    if len(rest) == 5 and rest[0] == "." and rest[4] == "Z" and rest[1:4].isascii() and rest[1:4].isdigit():
        return _second_ms(f"{second}Z") + int(rest[1:4])
    return _second_ms(text)


_second_ms = lru_cache(256)(parse_rfc3339)


def _named(uuid: str | None) -> str | None:
    if uuid is not None and not _UUID.fullmatch(uuid):
        raise UsageError("`request_uuid` must have 1 to 128 letters, digits and `._:-`.")
    return uuid


def _window(spec: str | None, source: SourceSettings, now_ms: int) -> Window:
    window = _resolved(spec, source.window, source.time_zone, now_ms // 1000)
    if window.start_ms > now_ms:
        raise WindowError("It begins in the future.")
    return window


@lru_cache(256)
def _resolved(spec: str | None, own: str, zone: str, second: int) -> Window:
    """Windows begin and end at whole seconds, so all requests of one second mean the same."""
    return asked_window(spec, own, zone, second * 1000)


def _hash(data: bytes) -> str:
    return "sha256:" + sha256(data).hexdigest()


SECRET_BYTES = 32


def new_body(
    source_id: str,
    scheme: Scheme,
    *,
    request_uuid: str | None,
    now_ms: int,
    dry_run: bool,
    event_type: str,
    metadata: Mapping[str, str],
) -> bytes:
    """A payload that is understood. Only ours has metadata: that of other schemes is the sender's own."""
    document: dict[str, Any] = {"source_id": source_id}
    if scheme == "kfm":
        document |= {"trigger": "webhook", "event_type": event_type, "sent_at": rfc3339(now_ms)}
    if request_uuid is not None:
        document["request_uuid"] = request_uuid
    if dry_run:
        document |= {"dry_run": True, "sent_at": rfc3339(now_ms)}  # one of GitHub's way needs the time, too
    if metadata and scheme == "kfm":
        document["metadata"] = dict(metadata)
    return orjson.dumps(document)


def signed_headers(scheme: Scheme, secret: str, body: bytes, message_id: str, now_ms: int) -> dict[str, str]:
    """Everything that must go with the body."""
    headers = {"Content-Type": "application/json"}
    if scheme == "kfm":
        return {**headers, "X-KFM-Signature": sign_kfm(secret.encode(), body)}
    if scheme == "github":
        return {**headers, "X-Hub-Signature-256": sign_kfm(secret.encode(), body)}
    at_s = now_ms // 1000
    return {
        **headers,
        "webhook-id": message_id,
        "webhook-timestamp": str(at_s),
        "webhook-signature": sign_standard(secret, message_id, at_s, body),
    }


def secret_text(random: bytes) -> str:
    """A secret in the form that every scheme takes."""
    assert len(random) >= SECRET_BYTES
    return SECRET_PREFIX + b64encode(random).decode()
