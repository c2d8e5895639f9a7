"""A sender of webhooks, a network that delays, repeats and alters, and a receiver.

The network knows what it did to each delivery, so it knows which ones must verify.
"""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass, replace
from hashlib import sha256

from kfm.model.errors import ConfigError, UsageError
from kfm.model.keys import trigger_document, trigger_key, webhook_key
from kfm.model.records import Trigger, Window, Work
from kfm.model.webhook_signatures import (
    TOLERANCE_MS,
    Verification,
    sign_kfm,
    sign_standard,
    verify_github,
    verify_kfm,
    verify_standard,
)
from tests.simulation.actors.scene import Scene, refused
from tests.simulation.judging import require

DELIVERIES = 10
WORK = Work(
    source_id="hooked", window=Window(start_ms=0, end_ms=1, spec="w"), partition=None, output_version="1"
)


@dataclass(frozen=True)
class Delivery:
    scheme: str  # kfm | github | standard | legacy
    request: str
    sent_at_s: int
    body: bytes
    signature: str | None
    secret: int  # which of the sender's secrets signed it
    stamp: str | None  # the timestamp's header
    genuine: bool = True


def deliver(scene: Scene) -> None:
    rng = scene.rng
    secrets = [rng.randbytes(24) for _ in range(3)]
    words = ["whsec_" + b64encode(one).decode() for one in secrets]
    active = [0, 1]  # the third was never agreed on
    acted: dict[str, int] = {}
    sent: list[Delivery] = []
    for number in range(DELIVERIES):
        scene.pause("webhook.send")
        if sent and rng.random() < 0.2:
            delivery = rng.choice(sent)  # the same once more
        else:
            delivery = _signed(scene, number, secrets, words)
            sent.append(delivery)
        delivery = _altered(scene, delivery) if rng.random() < 0.6 else delivery
        if rng.random() < 0.25:
            scene.sleep(rng.randrange(1, 2 * TOLERANCE_MS))
        legacy = rng.random() < 0.5
        now_ms = scene.now_ms + (rng.randrange(-2 * TOLERANCE_MS, 0) if rng.random() < 0.15 else 0)
        known = [secrets[i] for i in active] if rng.random() < 0.9 else []
        verdict = _received(delivery, known, [words[i] for i in active[: len(known)]], now_ms, legacy)
        late = delivery.scheme == "standard" and abs(now_ms - delivery.sent_at_s * 1000) > TOLERANCE_MS
        expected = (
            delivery.genuine
            and delivery.secret in active
            and bool(known)
            and not late
            and (delivery.scheme != "legacy" or legacy)
        )
        require(verdict.ok == expected, "exactly what was signed and is fresh verifies", delivery=delivery)
        require(verdict.ok == (verdict.reason == "ok"), "a refusal has a reason", reason=verdict.reason)
        if verdict.ok:
            require(verdict.secret_index == active.index(delivery.secret), "the secret that matched is told")
            _act(delivery, acted)
        scene.note(f"{delivery.scheme} {verdict.reason}")
    require(all(count == 1 for count in acted.values()), "one request acts once", acted=acted)
    for unreadable in ("whsec_***", "whsec_"):
        refused(
            ConfigError,
            lambda secret=unreadable: sign_standard(secret, "m", 0, b""),
            "a secret that is none is a fault",
        )
    nameless = Trigger(type="webhook", source_id="hooked", dataset_id="d")
    refused(UsageError, lambda: webhook_key(nameless), "a webhook without an id has no key")


def _signed(scene: Scene, number: int, secrets: list[bytes], words: list[str]) -> Delivery:
    rng = scene.rng
    body = b'{"n": %d, "pad": "%s"}' % (number, b"x" * rng.randrange(20))
    request, sent_at_s = f"msg_{number}", scene.now_ms // 1000
    which = rng.choice((0, 0, 1, 1, 2))
    scheme = rng.choice(("kfm", "github", "standard", "standard", "legacy"))
    if scheme == "standard":
        signature = sign_standard(words[which], request, sent_at_s, body)
        if rng.random() < 0.3:  # signed by several, one of which counts
            signature = f"v2,abc {sign_standard(words[2], request, sent_at_s, b'other')} {signature}"
        return Delivery(scheme, request, sent_at_s, body, signature, which, str(sent_at_s))
    if scheme == "legacy":
        signature = "sha256=" + sha256(secrets[which] + body).hexdigest()
    else:
        signature = sign_kfm(secrets[which], body)
    return Delivery(scheme, request, sent_at_s, body, signature, which, None)


def _altered(scene: Scene, delivery: Delivery) -> Delivery:
    """Every one of these changes what was signed, or the signature."""
    rng = scene.rng
    changed = replace(delivery, genuine=False)
    signature = delivery.signature or ""
    kinds = ["body", "cut", "none", "garbage", "long", "swap"]
    if delivery.scheme == "standard":
        kinds += ["id", "stamp", "words", "foreign"]
    kind = rng.choice(kinds)
    if kind == "body":
        at = rng.randrange(len(delivery.body))
        flipped = bytes([delivery.body[at] ^ (1 << rng.randrange(8))])
        return replace(changed, body=delivery.body[:at] + flipped + delivery.body[at + 1 :])
    if kind == "cut":
        return replace(changed, signature=signature[: -rng.randrange(3, 20)])
    if kind == "none":
        return replace(changed, signature=rng.choice((None, "")))
    if kind == "garbage":
        return replace(changed, signature=rng.choice(("sha256=zz", "v1,%%%", "🦆", "sha256=" + "0" * 63)))
    if kind == "long":
        return replace(changed, signature="v1," + "A" * 5000)
    if kind == "id":
        return replace(changed, request=rng.choice((delivery.request + "0", "mëssage")))
    if kind == "stamp":
        return replace(changed, stamp=str(delivery.sent_at_s + rng.choice((-1, 1, 60))))
    if kind == "words":
        return replace(changed, stamp=rng.choice(("now", "-5", "1" * 13, "")))
    if kind == "foreign":
        return replace(changed, signature=signature.replace("v1,", "v2,"))
    return replace(changed, body=delivery.body + b" ")


def _received(
    delivery: Delivery, secrets: list[bytes], words: list[str], now_ms: int, legacy: bool
) -> Verification:
    if delivery.scheme == "standard":
        return verify_standard(
            words,
            delivery.body,
            message_id=delivery.request,
            timestamp=delivery.stamp,
            signature=delivery.signature,
            now_ms=now_ms,
        )
    if delivery.scheme == "github":
        return verify_github(secrets, delivery.body, delivery.signature)
    return verify_kfm(secrets, delivery.body, delivery.signature, legacy_concat=legacy)


def _act(delivery: Delivery, acted: dict[str, int]) -> None:
    """A request's key is good for one use, whatever revision its work is at by then."""
    trigger = Trigger(type="webhook", source_id="hooked", dataset_id="d", request_uuid=delivery.request)
    key = trigger_key(trigger, WORK, revision=len(acted))
    require(key == webhook_key(trigger), "a request's key does not depend on the revision")
    document = trigger_document(trigger, WORK)
    require(document["request_uuid"] == delivery.request, "the key is made of the request's id")
    acted.setdefault(key, 1)
