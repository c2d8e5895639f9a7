"""Webhooks: what somebody sent, read as an accepted envelope or as a refusal.

Only the raw bytes are signed, so only they decide: which request it is, whether it is a dry-run, which
source it is for. The headers that are present say which scheme was signed by; if that one fails, no other
is tried. Nothing of a payload goes into a log: the envelope is known by its hash.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from hashlib import sha256
from typing import Any, Literal

import msgspec

from kfm.core.canonical import canonical_hashed, strict_loads
from kfm.core.envelopes import (
    BODY_BYTES_MAX,
    EVENT_TYPE,
    Envelope,
    Payload,
    Receiver,
    Refusal,
    Scheme,
    malformed,
    missing_signature,
    not_for_us,
    refused,
    too_large,
)
from kfm.core.errors import UsageError, WebhookRefused, WindowError
from kfm.core.records import Window
from kfm.core.signatures import Verification, check_fresh, verify_github, verify_kfm, verify_standard
from kfm.core.times import parse_rfc3339
from kfm.core.windows import resolve_window

KFM = "x-kfm-signature"
STANDARD = "webhook-signature"
STANDARD_ID = "webhook-id"
STANDARD_TIME = "webhook-timestamp"
GITHUB = "x-hub-signature-256"
HEADERS = frozenset({KFM, STANDARD, STANDARD_ID, STANDARD_TIME, GITHUB})

# No slash: ids that are derived have one, so nobody can claim another sender's by naming it.
_UUID = re.compile(r"[A-Za-z0-9._:-]{1,128}", re.ASCII)
# Neither braces nor quotes: `id.time.body` can't be cut at another place so that a body remains.
_MESSAGE_ID = re.compile(r"[A-Za-z0-9._:~@+=/-]{1,200}", re.ASCII)
_EVENT_TYPE = re.compile(EVENT_TYPE, re.ASCII)


def read_webhook(
    to: Receiver,
    headers: Mapping[str, str],
    body: bytes,
    now_ms: int,
    body_max: int = BODY_BYTES_MAX,
) -> Envelope | Refusal:
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
) -> Envelope | Refusal:
    payload = msgspec.convert(plain, Payload)
    if not payload.sent_at.endswith(("Z", "z", "+00:00")):
        return malformed("sent_at", "`sent_at` must be a time in UTC, such as 2026-01-01T00:00:00Z.")
    sent_at_ms = _sent_at_ms(payload.sent_at)
    fresh = check_fresh(sent_at_ms, now_ms, to.tolerance_ms)
    if not fresh.ok:
        return refused(fresh.reason)
    said = payload.metadata
    envelope_hash = _hash(body)
    return Envelope(
        source_id=to.source.id,
        scheme=scheme,
        secret_index=secret_index,
        envelope_hash=envelope_hash,
        request_uuid=_named(payload.request_uuid) or f"{to.source.id}/body/{envelope_hash}",
        known_by="body" if payload.request_uuid is None else "request_uuid",
        window=_window(said.window or to.source.window, to.source.time_zone, now_ms),
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
) -> Envelope | Refusal:
    """A payload of the sender's own: three names mean something to us, and only where they are there."""
    if scheme == "github" and plain.keys() >= {"trigger", "event_type", "sent_at"}:
        # X-KFM-Signature is the same code over the same bytes: renamed, an old message would stay fresh.
        return Refusal(
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
    envelope_hash = _hash(body)
    known_by: Literal["request_uuid", "webhook-id", "body"] = "request_uuid"
    request_uuid = _named(uuid)
    if request_uuid is None and scheme == "standard":
        known_by, request_uuid = "webhook-id", f"{to.source.id}/id/{headers[STANDARD_ID]}"
    elif request_uuid is None:
        # Two sources may get the same body: each of them once.
        known_by, request_uuid = "body", f"{to.source.id}/body/{envelope_hash}"
    kind = plain.get("type") if scheme == "standard" else None
    return Envelope(
        source_id=to.source.id,
        scheme=scheme,
        secret_index=secret_index,
        envelope_hash=envelope_hash,
        request_uuid=request_uuid,
        known_by=known_by,
        window=_window(to.source.window, to.source.time_zone, now_ms),
        dry_run=dry_run,
        is_ping=scheme == "github" and plain.keys() >= {"zen", "hook_id", "hook"},
        event_type=kind if isinstance(kind, str) and _EVENT_TYPE.match(kind) else None,
        sent_at_ms=int(headers[STANDARD_TIME]) * 1000 if scheme == "standard" else None,
    )


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


def _window(spec: str, zone: str, now_ms: int) -> Window:
    window = _resolved(spec, zone, now_ms // 1000)
    if window.start_ms > now_ms:
        raise WindowError("It begins in the future.")
    return window


@lru_cache(256)
def _resolved(spec: str, zone: str, second: int) -> Window:
    """Windows begin and end at whole seconds, so all requests of one second mean the same."""
    return resolve_window(spec, zone, second * 1000)


def _hash(data: bytes) -> str:
    return "sha256:" + sha256(data).hexdigest()
