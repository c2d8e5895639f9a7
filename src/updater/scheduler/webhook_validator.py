"""Is a webhook genuine, fresh and whole? Nothing of it is used before that is known.

Three ways of signing are understood, by the header that is there: Standard Webhooks
(`webhook-id`, `webhook-timestamp`, `webhook-signature`), `X-KFM-Signature` and GitHub's
`X-Hub-Signature-256`. All are checked over the raw bytes, in constant time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from kfm.model.errors import UsageError
from kfm.model.times import parse_rfc3339
from kfm.model.webhook_signatures import (
    SECRET_PREFIX,
    Verification,
    check_fresh,
    verify_github,
    verify_kfm,
    verify_standard,
)

BODY_BYTES_MAX = 1024 * 1024
TEXT_CHARS_MAX = 200


class Payload(msgspec.Struct, frozen=True):
    """What a webhook has to say. Fields beside these are ignored."""

    source_id: str
    trigger: str
    event_type: str
    sent_at: str
    request_uuid: str | None = None
    dry_run: bool = False
    metadata: dict[str, Any] = {}
    integrity: dict[str, Any] = {}


class Validation(msgspec.Struct, frozen=True):
    """What to answer. `reason` is for the log: a stranger is told the status and no more."""

    ok: bool
    status: Literal[202, 400, 403, 413]
    reason: str
    payload: Payload | None = None  # only if ok
    secret_index: int | None = None  # which active secret matched


def validate(
    headers: Mapping[str, str],
    body: bytes,
    secrets: Sequence[str],
    now_ms: int,
    *,
    legacy_concat: bool = False,
) -> Validation:
    """Check size, signature, shape and freshness, in this order.

    `secrets` are all active ones, so that they can be rotated. `legacy_concat` accepts the older
    sha256(secret + body), for a source that asks for it by name.
    """
    if len(body) > BODY_BYTES_MAX:
        return Validation(False, 413, "too large")
    signed = _signature(
        {name.lower(): value for name, value in headers.items()}, body, secrets, now_ms, legacy_concat
    )
    if not signed.ok:
        return Validation(False, 403, signed.reason)
    try:
        payload = msgspec.json.decode(body, type=Payload)
        sent_at_ms = parse_rfc3339(payload.sent_at)
    except (msgspec.MsgspecError, UsageError, UnicodeDecodeError, RecursionError):
        return Validation(False, 400, "malformed payload")
    named = (payload.source_id, payload.trigger, payload.event_type)
    if not all(0 < len(text) <= TEXT_CHARS_MAX for text in named):
        return Validation(False, 400, "malformed payload")
    fresh = check_fresh(sent_at_ms, now_ms)
    if not fresh.ok:
        return Validation(False, 403, fresh.reason)
    return Validation(True, 202, "ok", payload, signed.secret_index)


def _signature(
    headers: Mapping[str, str], body: bytes, secrets: Sequence[str], now_ms: int, legacy_concat: bool
) -> Verification:
    if "webhook-signature" in headers:
        return verify_standard(
            [secret for secret in secrets if secret.startswith(SECRET_PREFIX)],
            body,
            message_id=headers.get("webhook-id"),
            timestamp=headers.get("webhook-timestamp"),
            signature=headers["webhook-signature"],
            now_ms=now_ms,
        )
    plain = [secret.encode() for secret in secrets]
    if "x-kfm-signature" in headers:
        return verify_kfm(plain, body, headers["x-kfm-signature"], legacy_concat=legacy_concat)
    if "x-hub-signature-256" in headers:
        return verify_github(plain, body, headers["x-hub-signature-256"])
    return Verification(False, "missing")
