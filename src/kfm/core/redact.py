"""What must never be printed, stored or published, taken out of addresses and text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import SplitResult, unquote_plus, urlsplit, urlunsplit

from kfm.core.secret_names import SECRET_WORDS, is_secret_name
from kfm.core.spellings import MASK, Redactor, redactor

__all__ = [
    "MASK",
    "Discretion",
    "hide",
    "is_secret_name",
    "redact",
    "redact_url",
    "shapeless",
    "strip_params",
    "within",
]

TEXT_CHARS_MAX = 8192
READ_CHARS_MAX = 8 * TEXT_CHARS_MAX  # what is looked at of a text that will be cut anyway

_URL = re.compile(r"\b[a-zA-Z][a-zA-Z0-9+.-]{1,30}://[^\s\"'<>`]+")
_HEADER = re.compile(
    r"(?i)\b((?:proxy-)?authorization|cookie|set-cookie|x-api-key|x-amz-security-token|x-kfm-signature"
    r"|webhook-signature|x-hub-signature(?:-256)?)"
    r"([\"']?\s*[:=]\s*)[^\r\n]+"
)
_SCHEME = re.compile(r"(?i)\b(bearer|basic|token)\s+[a-z0-9._~+/=-]{8,}")
# In what people write, "the basic processing" is no credential: these have a digit.
_SCHEME_SAID = re.compile(r"(?i)\b(bearer|basic|token)\s+(?=[a-z._~+/=-]*[0-9])[a-z0-9._~+/=-]{8,}")
_ASSIGNED = re.compile(
    rf"(?i)([\"']?)\b([a-z0-9_.-]{{0,40}}{SECRET_WORDS}s?)\b([\"']?\s*[:=]\s*)"
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
    """Text with these secrets masked, however they are spelt or encoded."""
    known = frozenset(secrets)
    return redactor(known)(text) if known else text


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """Text that may be kept: known secrets and everything of their shape masked, length bounded."""
    known = frozenset(secrets)
    return _kept(text, redactor(known) if known else None)


def shapeless(text: str) -> str:
    """What people or their code say, with everything of a secret's shape masked and nothing cut."""
    return _masked(text, _SCHEME_SAID)


class Discretion:
    """`redact` for the secrets of one process: they become known while it works."""

    def __init__(self, gather: Callable[[], Iterable[str]] = tuple) -> None:
        """`gather` tells what is known from the start; it is asked when first needed."""
        self._gather: Callable[[], Iterable[str]] | None = gather
        self._known: set[str] = set()
        self._redactor: Redactor | None = None

    def learn(self, secret: str) -> None:
        if secret not in self._known:
            self._known.add(secret)
            self._redactor = None

    @property
    def redactor(self) -> Redactor:
        if self._gather is not None:
            gather, self._gather = self._gather, None
            self._known.update(gather())
        if self._redactor is None:
            self._redactor = Redactor(self._known)
        return self._redactor

    def hide(self, text: str) -> str:
        """Only known secrets are masked, and nothing is cut."""
        return self.redactor(text)

    def __call__(self, text: str) -> str:
        return _kept(text, self.redactor)

    def said(self, text: str) -> str:
        """What a person gives as a reason is kept for good: what looks like a secret goes, too."""
        return shapeless(self.redactor(text))

    def within(self, value: Any) -> Any:
        """A document with known secrets masked."""
        return within(value, self.redactor) if self.redactor.secrets else value

    def leaks(self, value: Any) -> bool:
        """Does a document tell a known secret?"""
        if isinstance(value, str):
            return self.redactor(value) != value
        if isinstance(value, dict):
            return any(self.leaks(name) or self.leaks(each) for name, each in value.items())
        return isinstance(value, list | tuple) and any(map(self.leaks, value))


def within(value: Any, clean: Callable[[str], str]) -> Any:
    """A document (of dicts, lists, scalars) in which every text, names included, was cleaned."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {within(name, clean): within(each, clean) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [within(each, clean) for each in value]
    return value


def _kept(text: str, hiding: Redactor | None) -> str:
    if hiding is not None:
        text = _bounded(text, hiding)
    if len(text) > TEXT_CHARS_MAX:
        text = f"{text[:TEXT_CHARS_MAX]}…"
    return _masked(text, _SCHEME)


def _masked(text: str, scheme: re.Pattern[str]) -> str:
    text = _URL.sub(lambda found: redact_url(found[0]), text)
    text = _HEADER.sub(rf"\1\2{MASK}", text)
    text = scheme.sub(rf"\1 {MASK}", text)
    text = _ASSIGNED.sub(rf"\1\2\3{MASK}", text)
    return _SHAPES.sub(MASK, text)


def _bounded(text: str, hiding: Redactor) -> str:
    """Secrets masked in a bounded time. Half a secret at a cut would be missed: it is cut off, too."""
    limit = READ_CHARS_MAX + hiding.chars_max
    if len(text) <= limit:
        return hiding(text)
    return hiding(text[:limit])[: -hiding.chars_max or None] + "…"


def _query(query: str) -> str:
    pairs = []
    for pair in query.split("&"):
        name, equals, _ = pair.partition("=")
        pairs.append(f"{name}={MASK}" if equals and is_secret_name(unquote_plus(name)) else pair)
    return "&".join(pairs)
