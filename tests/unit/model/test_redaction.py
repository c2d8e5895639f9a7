"""Secrets do not reach logs, records or catalogues."""

from __future__ import annotations

import base64
import html
import json
import string
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kfm.model.redaction import (
    MASK,
    TEXT_CHARS_MAX,
    Discretion,
    hide,
    is_secret_name,
    redact,
    redact_url,
    strip_params,
)

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


# What libpq takes unescaped, and what people write unescaped though it does not.
_PASSWORD = st.text(string.ascii_letters + string.digits + "#?\"'<>`:@/&=+$!%", min_size=6, max_size=40)


@pytest.mark.parametrize("shape", ["{}", "connecting to {}: refused", 'the store "{}" is away'])
@given(password=_PASSWORD)
def test_no_password_of_a_database_survives(shape, password):
    """Whatever characters a password has, an address of a database is told without it, also in the middle of
    a sentence."""
    told = redact(shape.format(f"postgresql://kfm:Zq9{password}9qZ@db.example/kfm"))
    assert told == shape.format("postgresql://db.example/kfm")


@pytest.mark.parametrize("password", ["sek#ret", "sek?ret", 'se"kret', "se'kret", "1#ret", "a@b#c"])
@pytest.mark.parametrize("scheme", ["postgresql", "https", "redis", "amqp"])
def test_no_password_ends_an_address(scheme, password):
    """A password in which an address would end for a browser is none the less taken out of it."""
    address = f"{scheme}://kfm:{password}@db.example/kfm"
    assert redact(address) == redact_url(address) == f"{scheme}://db.example/kfm"
    assert password not in hide(f"failed for {password}!", [address])


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
def test_ordinary_text_is_not_redacted(text):
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


def spellings(secret):
    """How the secret may be written by programs that know nothing of us."""
    data = secret.encode()
    yield "raw", secret
    for lead in (b"", b"a", b"ab"):
        for tail in (b"", b"z", b"zy"):
            text = base64.b64encode(lead + data + tail).decode()
            for name, form in (("standard", text), ("safe", text.translate(str.maketrans("+/", "-_")))):
                yield f"base64 {name} {len(lead)} {len(tail)}", form
                yield f"base64 {name} {len(lead)} {len(tail)} bare", form.rstrip("=")
    yield "hex", data.hex()
    yield "HEX", data.hex().upper()
    yield "quoted", quote(secret, safe="")
    yield "quoted as a form", quote_plus(secret)
    yield "quoted wholly", "".join(f"%{byte:02x}" for byte in data)
    yield "quoted WHOLLY", "".join(f"%{byte:02X}" for byte in data)
    yield "quoted twice as it were", "".join(c if i % 2 else f"%{ord(c):02x}" for i, c in enumerate(secret))
    yield "json", json.dumps(secret)[1:-1]
    yield "json, slashes", json.dumps(secret)[1:-1].replace("/", "\\/")
    yield "json, escaped", "".join(f"\\u{ord(c):04x}" for c in secret)
    yield "repr", repr(secret)[1:-1]
    yield "bytes", repr(data)[2:-1]
    yield "html", html.escape(secret)


@pytest.mark.req("RS-13")
@given(
    secret=st.text(string.printable.strip(), min_size=6, max_size=40),
    before=st.sampled_from(["", "x ", '{"a": "']),
    after=st.sampled_from(["", " y", '"}', "=="]),
)
@example(secret="000%25", before="", after="")
def test_no_spelling_of_a_known_secret_is_left(secret, before, after):
    """In base64 at any alignment, hex, percent, JSON, Python or HTML escapes: it is masked whole."""
    known = Discretion()
    known.learn(secret)
    for name, form in spellings(secret):
        left = known.hide(f"{before}{form}{after}")
        assert MASK in left, name
        rest = left.removeprefix(before).removesuffix(after)
        # A neighbour's own characters may stand beside the mask, nothing of the secret.
        assert len(rest.replace(MASK, "").replace("=", "")) <= 5 + rest.count("\\"), (name, left)


@pytest.mark.parametrize(
    ("value", "leaked"),
    [
        ("postgresql://kfm:hunter2hunter2@db/kfm", "hunter2hunter2"),
        ("postgresql://kfm:p%40ss%2Fword@db/kfm", "p@ss/word"),
        ("https://tok_abcdefgh@host/x", "tok_abcdefgh"),
        ("https://host/x?sig=c2lnbmVkLXdlbGw", "c2lnbmVkLXdlbGw"),
        ("Bearer abcdefghij", "abcdefghij"),
        ("Basic dXNlcjpzZXNhbWVvcGVu", "sesameopen"),
        ("-----BEGIN KEY-----\nMIIEvAIBADANBg\n-----END KEY-----", "MIIEvAIBADANBg"),
        ('{"type": "service", "private_key": "BEGIN\\nMIIEvAIBADANBg\\nEND"}', "MIIEvAIBADANBg"),
    ],
)
def test_what_a_secret_holds_is_secret_too(value, leaked):
    """A password inside an address, a token behind its scheme, a line of a key: each is masked by itself."""
    assert leaked not in hide(f"the server said {leaked}!", [value])


def test_a_plain_user_of_a_database_is_no_secret():
    """Names that are no credentials stay readable."""
    assert hide("role postgres does not exist", ["postgresql://postgres@db/kfm"]).startswith("role postgres")


def test_secrets_become_known_while_we_work():
    """What is learnt later is masked from then on; in documents in names and values, not in numbers."""
    known = Discretion()
    assert known("sesame-1234") == "sesame-1234"
    known.learn("sesame-1234")
    known.learn("12345")
    document = {"sesame-1234": ["x sesame-1234", 12345, None, True, {"a": "sesame-1234"}]}
    assert known.within(document) == {MASK: [f"x {MASK}", 12345, None, True, {"a": MASK}]}


@given(cut=st.integers(0, 60), size=st.integers(0, 200_000))
def test_a_cut_leaves_no_half_secret(cut, size):
    """Where a long text is cut inside a secret, its first half is cut off as well; the work stays bounded."""
    secret = "Qx7" + "sesameopen" * 3
    text = (secret + " ") * (size // 40) + "-" * cut
    kept = redact(text + secret * 3000, [secret])
    assert "sesame" not in kept
    assert len(kept) <= TEXT_CHARS_MAX + 1
