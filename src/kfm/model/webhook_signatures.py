"""Signatures of webhooks, checked over the raw bytes and compared in constant time.

No check raises on what a stranger sent: the answer says whether it holds, and
why not. The body counts as authentic only if `ok`; `reason` is for the log,
never for the caller.
"""

import binascii
import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Sequence
from hashlib import sha256

import msgspec

from kfm.model.errors import ConfigError

TOLERANCE_MS = 300_000
HEADER_CHARS_MAX = 4096
SIGNATURES_MAX = 16
SECRET_PREFIX = "whsec_"
_HEX_SIGNATURE = re.compile(r"sha256=([0-9a-fA-F]{64})\Z", re.ASCII)
_TIMESTAMP = re.compile(r"\d{1,12}\Z", re.ASCII)


class Verification(msgspec.Struct, frozen=True):
    ok: bool
    reason: str  # ok | missing | malformed | mismatch | stale | future | no-secret
    secret_index: int | None = None  # which active secret matched: tells when an old one is out of use


def sign_kfm(secret: bytes, body: bytes) -> str:
    """The value of X-KFM-Signature."""
    return "sha256=" + hmac.digest(secret, body, "sha256").hex()


def verify_kfm(
    secrets: Sequence[bytes], body: bytes, header: str | None, *, legacy_concat: bool = False
) -> Verification:
    """X-KFM-Signature. With `legacy_concat`, sha256(secret + body) passes too.

    A sender that has one valid message of that older form can extend it, so it
    is only for a source that asks for it by name.
    """
    digests = [hmac.digest(secret, body, "sha256") for secret in secrets]
    if legacy_concat:
        digests += [sha256(secret + body).digest() for secret in secrets]
    return _verify_hex(digests, header, len(secrets))


def verify_github(secrets: Sequence[bytes], body: bytes, header: str | None) -> Verification:
    """GitHub's X-Hub-Signature-256."""
    return _verify_hex([hmac.digest(secret, body, "sha256") for secret in secrets], header, len(secrets))


def sign_standard(secret: str, message_id: str, timestamp_s: int, body: bytes) -> str:
    """The value of webhook-signature, by the Standard Webhooks scheme."""
    return (
        "v1,"
        + b64encode(_standard_digest(standard_secret(secret), message_id, str(timestamp_s), body)).decode()
    )


def verify_standard(
    secrets: Sequence[str],
    body: bytes,
    *,
    message_id: str | None,
    timestamp: str | None,
    signature: str | None,
    now_ms: int,
    tolerance_ms: int = TOLERANCE_MS,
) -> Verification:
    """Standard Webhooks: any of several signatures by any of several secrets, over id.timestamp.body."""
    if not message_id or not timestamp or not signature:
        return Verification(False, "missing")
    if not _TIMESTAMP.match(timestamp) or not message_id.isascii() or len(signature) > HEADER_CHARS_MAX:
        return Verification(False, "malformed")
    given = [_decoded(one[3:]) for one in signature.split(" ")[:SIGNATURES_MAX] if one.startswith("v1,")]
    candidates = [one for one in given if one is not None]
    if not candidates:
        return Verification(False, "malformed")
    digests = [_standard_digest(standard_secret(secret), message_id, timestamp, body) for secret in secrets]
    found = _match(digests, candidates, len(secrets))
    if not found.ok:
        return found
    fresh = check_fresh(int(timestamp) * 1000, now_ms, tolerance_ms)
    return found if fresh.ok else fresh


def check_fresh(sent_at_ms: int, now_ms: int, tolerance_ms: int = TOLERANCE_MS) -> Verification:
    """Was it sent about now? Ask only of a time that was read from signed bytes."""
    if sent_at_ms < now_ms - tolerance_ms:
        return Verification(False, "stale")
    if sent_at_ms > now_ms + tolerance_ms:
        return Verification(False, "future")
    return Verification(True, "ok")


def standard_secret(secret: str) -> bytes:
    """The key inside `whsec_<base64>`. A secret that is not one is our own configuration's fault."""
    key = _decoded(secret.removeprefix(SECRET_PREFIX))
    if not key:
        raise ConfigError("A Standard Webhooks secret is whsec_ and base64; this one can't be read.")
    return key


# --- inside --------------------------------------------------------------------------


def _standard_digest(key: bytes, message_id: str, timestamp: str, body: bytes) -> bytes:
    signed = message_id.encode("utf-8", "replace") + b"." + timestamp.encode("ascii") + b"." + body
    return hmac.digest(key, signed, "sha256")


def _verify_hex(digests: Sequence[bytes], header: str | None, secrets_count: int) -> Verification:
    if not header:
        return Verification(False, "missing")
    match = _HEX_SIGNATURE.match(header) if len(header) <= HEADER_CHARS_MAX else None
    if match is None:
        return Verification(False, "malformed")
    return _match(digests, [bytes.fromhex(match[1])], secrets_count)


def _match(digests: Sequence[bytes], candidates: Sequence[bytes], secrets_count: int) -> Verification:
    """Compares everything with everything, so that time tells nothing about which one matched."""
    if not digests:
        return Verification(False, "no-secret")
    matched: int | None = None
    for index, digest in enumerate(digests):
        for candidate in candidates:
            if hmac.compare_digest(digest, candidate) and matched is None:
                matched = index % secrets_count
    return Verification(False, "mismatch") if matched is None else Verification(True, "ok", matched)


def _decoded(text: str) -> bytes | None:
    try:
        return b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
