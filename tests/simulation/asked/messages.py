"""Signed messages on their way to a service: genuine ones, and what others make of them."""

from __future__ import annotations

import random
from dataclasses import dataclass

import orjson

from kfm.model.requests import UpdateRequest
from kfm.model.settings import Settings
from kfm.model.times import rfc3339
from kfm.model.webhooks import (
    SECRET_BYTES,
    Scheme,
    WebhookEnvelope,
    WebhookRefusal,
    as_request,
    new_body,
    read_webhook,
    receiver,
    secret_text,
    signed_headers,
)
from tests.simulation.judging import require

WINDOW_MS = 1_000
WINDOWS = (1, 2)  # few: requests meet at the same work
OLD, NEW = secret_text(b"o" * SECRET_BYTES), secret_text(b"n" * SECRET_BYTES)


@dataclass(frozen=True)
class Message:
    """What goes over the wire; `genuine` is what the receiver can't see."""

    source_id: str
    body: bytes
    headers: dict[str, str]
    genuine: bool = True

    def received(self, settings: Settings, now_ms: int) -> UpdateRequest | None:
        """As a request; None if it was refused, as every message is that is not genuine."""
        known = [one for one in settings.sources if one.id == self.source_id]
        if not known:  # nothing is there
            return None
        source = known[0]
        read = read_webhook(receiver(source, (NEW, OLD)), self.headers, self.body, now_ms)
        if isinstance(read, WebhookRefusal):
            require(400 <= read.status < 500, "a message is refused, never a defect", refusal=read)
            return None
        require(self.genuine, "only what was signed passes", read=read)
        return as_request(read, source, now_ms) if not _is_idle(read) else None


def _is_idle(read: WebhookEnvelope) -> bool:
    return read.is_ping or read.dry_run


def made(dice: random.Random, number: int, source_id: str, now_ms: int) -> Message:
    """For one of a few windows, long ago: others ask for it, too."""
    body = new_body(
        source_id,
        "kfm",
        request_uuid=f"u{number}",
        now_ms=now_ms,
        dry_run=False,
        event_type="file.changed",
        metadata={"window": f"{rfc3339(dice.choice(WINDOWS) * WINDOW_MS)}/PT1S", "rationale": "new file"},
    )
    return _signed("kfm", dice.choice((OLD, NEW)), source_id, body, now_ms)


def _signed(scheme: Scheme, secret: str, source_id: str, body: bytes, now_ms: int) -> Message:
    headers = signed_headers(scheme, secret, body, "m-1", now_ms)
    return Message(source_id, body, {name.lower(): value for name, value in headers.items()})


def strange(dice: random.Random, message: Message, now_ms: int) -> Message:
    """Altered on its way, sent to another address, too old, or by a sender without the secret; or a question
    that changes nothing."""
    cut = dice.randrange(1, len(message.body))
    plain = orjson.loads(message.body)
    drawn = dice.randrange(10)
    if drawn == 0:
        return Message(message.source_id, message.body[:cut], message.headers, False)
    if drawn == 1:
        return Message("elsewhere", message.body, message.headers, False)
    if drawn == 2:
        return Message(message.source_id, message.body, {}, False)
    if drawn == 3:  # the same code under another name, where nothing would say how old it is
        renamed = {"x-hub-signature-256": message.headers["x-kfm-signature"]}
        return Message(message.source_id, message.body, renamed, False)
    scheme: Scheme = "kfm"
    genuine = False
    if drawn == 4:
        plain["sent_at"] = rfc3339(now_ms - 3_600_000)
    elif drawn == 5:
        plain["metadata"]["window"] = "whenever"
    elif drawn == 6:
        plain["request_uuid"] = "../../"
    elif drawn == 7:
        scheme, genuine, plain = "standard", True, {"source_id": message.source_id, "dry_run": True}
    elif drawn == 8:
        scheme, genuine, plain = "github", True, {"zen": "!", "hook_id": 1, "hook": {}}
    else:
        plain["surprise"] = 1.5
    sent = _signed(scheme, NEW, message.source_id, orjson.dumps(plain), now_ms)
    return Message(sent.source_id, sent.body, sent.headers, genuine)
