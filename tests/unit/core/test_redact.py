"""Secrets do not reach logs, records or catalogues."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfm.core.redact import MASK, TEXT_CHARS_MAX, is_secret_name, redact, redact_url, strip_params

SECRET = st.text(string.ascii_letters + string.digits, min_size=12, max_size=40).map(lambda s: f"Zq9{s}")


@pytest.mark.parametrize(
    "shape",
    [
        "https://user:{}@host/path",
        "https://{}@host/path",
        "GET https://host/a?page=2&token={}&x=1 failed",
        "https://host/a?X-Amz-Signature={}",
        "Authorization: Bearer {}",
        "authorization={}",
        '{{"password": "{}"}}',
        '{{"password": "{}',
        r'{{"password": "a\"{}"}}',
        "client_secret='{}'",
        "api-key: {}",
        "whsec_{}",
        "sent bearer {} to host",
        "postgresql://kfm:{}@db/kfm",
    ],
)
@given(secret=SECRET)
def test_secrets_are_masked(shape, secret):
    """Whatever the secret, text of this shape no longer holds it."""
    assert secret not in redact(shape.format(secret))


@given(secret=st.text(min_size=4, max_size=40), before=st.text(max_size=20), after=st.text(max_size=20))
def test_known_secret_is_masked_anywhere(secret, before, after):
    """A secret that we know is masked in any surroundings."""
    if secret not in MASK:
        assert (
            secret not in redact(f"{before}{secret}{after}", [secret]).replace(MASK, "")
            or secret in before + after
        )


@given(st.text(max_size=300))
def test_redaction_is_stable(text):
    """Redacting what was redacted changes nothing."""
    assert redact(redact(text)) == redact(text)


@given(st.text(max_size=300))
def test_any_text_is_an_address(text):
    """No text, however odd, makes the redaction of addresses fail."""
    assert isinstance(redact_url(text), str)


@pytest.mark.parametrize("text", ["AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"])
def test_cloud_keys_are_known_by_shape(text):
    """Keys of cloud providers are masked without a word beside them."""
    assert redact(f"using {text} now") == f"using {MASK} now"


@pytest.mark.parametrize(
    "text",
    [
        "sha256:" + "ab12" * 16,
        "Kansas: 105 counties",
        "https://host/kansas?state=KS&keyword=river&start=2026-01-01",
        "0190163d-8694-7000-9a1b-0242ac120002",
        "/srv/data/incoming/Kansas/2026/counties.geojson",
    ],
)
def test_ordinary_text_is_left_alone(text):
    """What people need to read stays readable."""
    assert redact(text) == text


def test_names():
    """Names are judged by whole words."""
    assert all(
        map(is_secret_name, ["token", "api_key", "apikey", "key", "X-Amz-Signature", "sig", "accessToken"])
    )
    assert not any(map(is_secret_name, ["keyword", "monkey", "kansas", "page", "code", "authors", "design"]))


def test_text_is_bounded():
    """An endless message is cut, quickly."""
    assert len(redact("a." * 200_000)) <= TEXT_CHARS_MAX + 1


def test_strip_params():
    """Parameters are taken out by name; the others keep their order and spelling."""
    assert strip_params("http://h/p?a=%20&token=x&b=", ["token"]) == "http://h/p?a=%20&b="
    assert strip_params("http://h/p?t%6Fken=x", ["token"]) == "http://h/p"


@pytest.mark.parametrize("shown", ["a b/c+ä", "a%20b%2Fc%2B%C3%A4", "a%20b/c%2b%c3%a4", "a+b%2Fc%2B%C3%A4"])
def test_known_secrets_in_any_spelling(shown):
    """A known secret is masked under a harmless name, too, however an address spells it."""
    assert redact(f"http://h/x?appid={shown} failed", ["a b/c+ä"]) == f"http://h/x?appid={MASK} failed"
