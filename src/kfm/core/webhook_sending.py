"""Webhooks as a sender makes them: a body, and the headers that sign it."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from typing import Any

import orjson

from kfm.core.envelopes import Scheme
from kfm.core.signatures import SECRET_PREFIX, sign_kfm, sign_standard
from kfm.core.times import rfc3339

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
        document["dry_run"] = True
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
