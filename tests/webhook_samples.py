"""Webhooks as their senders make them: a source, its secrets, signed requests."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

from kfm.model.settings import SourceSettings, Webhook
from kfm.model.times import rfc3339
from kfm.model.webhook_signatures import sign_kfm, sign_standard
from kfm.model.webhooks import Receiver, receiver

NOW_MS = 1_790_000_000_250
SECRET = "whsec_" + b64encode(b"a secret for the tests of hooks!").decode()
OLD_SECRET = "an older secret, about to go"
SECRETS = (SECRET, OLD_SECRET)


def source(**more: Any) -> SourceSettings:
    """A source that may be asked for."""
    webhook = Webhook(secrets=("env:NEW", "env:OLD"), **more)
    return SourceSettings(id="gauges", dataset="rivers", kind="files", folder=".", webhook=webhook)


def to(**more: Any) -> Receiver:
    return receiver(source(**more), SECRETS)


def payload(**more: Any) -> dict[str, Any]:
    return {
        "source_id": "gauges",
        "trigger": "webhook",
        "event_type": "upstream.changed",
        "sent_at": rfc3339(NOW_MS),
        **more,
    }


def kfm(body: bytes, secret: str = SECRET) -> dict[str, str]:
    return {"x-kfm-signature": sign_kfm(secret.encode(), body)}


def github(body: bytes, secret: str = SECRET) -> dict[str, str]:
    return {"x-hub-signature-256": sign_kfm(secret.encode(), body)}


def standard(
    body: bytes, secret: str = SECRET, *, message_id: str = "msg_1", at_s: int = NOW_MS // 1000
) -> dict[str, str]:
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(at_s),
        "webhook-signature": sign_standard(secret, message_id, at_s, body),
    }


def encoded(document: Any) -> bytes:
    return json.dumps(document).encode()
