"""Signatures, where a vector can't say it."""

from __future__ import annotations

import hmac
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfm.model import webhook_signatures
from kfm.model.webhook_signatures import sign_kfm, sign_standard, verify_github, verify_kfm, verify_standard

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


@pytest.mark.req("UPD-12")
@given(header=st.one_of(st.none(), st.text(max_size=80), st.from_regex(r"sha256=[0-9a-fA-F]{60,68}")))
def test_garbage_never_raises(header: str | None) -> None:
    """Whatever a stranger puts into the headers, the answer is no, and not an error."""
    assert not verify_kfm([b"k"], b"body", header, legacy_concat=True).ok
    assert not verify_github([b"k"], b"body", header).ok
    for message_id, timestamp, signature in (
        ("id", "1", header),
        (header, "1", "v1,AA=="),
        ("id", header, "v1,AA=="),
    ):
        verified = verify_standard(
            [SECRET], b"body", message_id=message_id, timestamp=timestamp, signature=signature, now_ms=0
        )
        assert not verified.ok


@pytest.mark.req("UPD-12")
@given(secret=st.binary(min_size=1, max_size=80), body=st.binary(max_size=200))
def test_own_signatures_hold(secret: bytes, body: bytes) -> None:
    """What we sign verifies, with HMAC as everybody computes it, and for no other body."""
    header = sign_kfm(secret, body)
    assert header == "sha256=" + hmac.digest(secret, body, "sha256").hex()
    assert verify_kfm([b"other", secret], body, header).secret_index == 1 or secret == b"other"
    assert not verify_kfm([secret], body + b"x", header).ok


@pytest.mark.req("UPD-12")
def test_length_extension_needs_the_opt_in() -> None:
    """The plain concatenation passes only for a source that asked for it by name."""
    header = "sha256=" + sha256(b"secret" + b"body").hexdigest()
    assert not verify_kfm([b"secret"], b"body", header).ok
    assert verify_kfm([b"secret"], b"body", header, legacy_concat=True).ok


@pytest.mark.req("UPD-12")
def test_a_stale_forgery_is_a_mismatch_first() -> None:
    """A time that was not signed is not believed, also not for the reason in the log."""
    verified = verify_standard(
        [SECRET], b"{}", message_id="a", timestamp="0", signature="v1," + "A" * 43 + "=", now_ms=10**12
    )
    assert verified.reason == "mismatch"


@pytest.mark.req("UPD-12")
def test_comparison_is_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every comparison goes through hmac.compare_digest, and all secrets are always compared."""
    compared: list[Any] = []

    def compare(left: bytes, right: bytes) -> bool:
        compared.append((left, right))
        return left == right

    monkeypatch.setattr(webhook_signatures.hmac, "compare_digest", compare)
    header = sign_kfm(b"a", b"body")
    assert verify_kfm([b"a", b"b", b"c"], b"body", header).ok
    assert len(compared) == 3
    signature = sign_standard(SECRET, "id", 1, b"body")
    verify_standard(
        [SECRET], b"body", message_id="id", timestamp="1", signature=f"{signature} {signature}", now_ms=1000
    )
    assert len(compared) == 5
