"""What must never be printed, stored or published, taken out of addresses and text."""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import SplitResult, quote, unquote_plus, urlsplit, urlunsplit

MASK = "***"
TEXT_CHARS_MAX = 8192
SECRET_CHARS_MIN = 4  # shorter ones would blot out ordinary words

_SECRET_WORDS = (
    r"(?:token|secret|signature|password|passwd|passphrase|pwd|credentials?|authorization"
    r"|(?:api|access|account|subscription|private|shared|signing|storage|client|auth)[_-]?key(?:[_-]?id)?)"
)
# Whole words of a name: `api_key`, `X-Amz-Signature`, `sig`, `key`, `userToken`; but not `keyword`, `monkey`.
_SECRET_NAME = re.compile(
    rf"(?:^|.*[^a-z]|.*[a-z](?=[A-Z])){_SECRET_WORDS}s?$|^(?:key|sig|sas|auth|pass)$", re.IGNORECASE
)

_URL = re.compile(r"\b[a-zA-Z][a-zA-Z0-9+.-]{1,30}://[^\s\"'<>`]+")
_HEADER = re.compile(
    r"(?i)\b((?:proxy-)?authorization|cookie|set-cookie|x-api-key|x-amz-security-token|x-kfm-signature|webhook-signature)"
    r"([\"']?\s*[:=]\s*)[^\r\n]+"
)
_SCHEME = re.compile(r"(?i)\b(bearer|basic|token)\s+[a-z0-9._~+/=-]{8,}")
_ASSIGNED = re.compile(
    rf"(?i)([\"']?)\b([a-z0-9_.-]{{0,40}}{_SECRET_WORDS}s?)\b([\"']?\s*[:=]\s*)"
    r"(?:\"(?:[^\"\\\r\n]|\\.)*\"?|'(?:[^'\\\r\n]|\\.)*'?|[^\s\"',;&)}\]]+)"
)
_SHAPES = re.compile(
    r"\b(?:AKIA|ASIA|AROA|AIDA)[A-Z0-9]{12,}\b"  # AWS key ids
    r"|\bwhsec_[A-Za-z0-9+/=_-]+"
    r"|\b(?:gh[pousr]|github_pat)_[A-Za-z0-9_]{20,}"
    r"|\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*"  # JSON web tokens
    r"|(?<![A-Za-z0-9/+])(?=[A-Za-z0-9/+]{0,39}[/+])(?=[A-Za-z0-9/+]{0,39}[A-Z])(?=[A-Za-z0-9/+]{0,39}[0-9])"
    r"[A-Za-z0-9+][A-Za-z0-9/+]{39}(?![A-Za-z0-9/+=])"  # AWS secret keys: 40 characters of base64
)
_ENCODED = re.compile(r"%[0-9A-F]{2}")


def is_secret_name(name: str) -> bool:
    """Would a value of this name be a secret?"""
    return _SECRET_NAME.match(name) is not None


def redact_url(url: str) -> str:
    """The address without user and password, with secret parameters masked."""
    try:
        parts = urlsplit(url)
        host = parts.netloc.rpartition("@")[2]
    except ValueError:
        return MASK
    return urlunsplit(SplitResult(parts.scheme, host, parts.path, _query(parts.query), parts.fragment))


def strip_params(url: str, names: Iterable[str]) -> str:
    """The address without the parameters of these names."""
    unwanted = set(names)
    parts = urlsplit(url)
    kept = [
        pair
        for pair in parts.query.split("&")
        if pair and unquote_plus(pair.partition("=")[0]) not in unwanted
    ]
    return urlunsplit(parts._replace(query="&".join(kept)))


def hide(text: str, secrets: Iterable[str]) -> str:
    """Text with these secrets masked, however they are spelt in addresses and quoted text."""
    shown = {form for secret in secrets if len(secret) >= SECRET_CHARS_MIN for form in _spellings(secret)}
    for form in sorted(shown, key=len, reverse=True):
        text = text.replace(form, MASK)
    return text


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """Text that may be kept: known secrets and everything of their shape masked, length bounded."""
    text = hide(text, secrets)
    if len(text) > TEXT_CHARS_MAX:
        text = f"{text[:TEXT_CHARS_MAX]}…"
    text = _URL.sub(lambda found: redact_url(found[0]), text)
    text = _HEADER.sub(rf"\1\2{MASK}", text)
    text = _SCHEME.sub(rf"\1 {MASK}", text)
    text = _ASSIGNED.sub(rf"\1\2\3{MASK}", text)
    return _SHAPES.sub(MASK, text)


def _query(query: str) -> str:
    pairs = []
    for pair in query.split("&"):
        name, equals, _ = pair.partition("=")
        pairs.append(f"{name}={MASK}" if equals and is_secret_name(unquote_plus(name)) else pair)
    return "&".join(pairs)


def _spellings(secret: str) -> set[str]:
    quoted = {quote(secret, safe=safe, errors="replace") for safe in ("", "/", ":,/", ":/?#[]@!$&'()*+,;=")}
    quoted |= {form.replace("%20", "+") for form in quoted}
    quoted |= {_ENCODED.sub(lambda found: found[0].lower(), form) for form in quoted}
    return {secret, repr(secret)[1:-1], *quoted}
