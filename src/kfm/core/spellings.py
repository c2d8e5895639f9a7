"""How a known secret may be spelt in text: as it is, quoted for addresses, JSON, HTML, in base64, in hex."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urlsplit

from kfm.core.secret_names import is_secret_name

MASK = "***"
SECRET_CHARS_MIN = 4  # shorter ones would blot out ordinary words
SECRETS_MAX = 1000
PART_CHARS_MIN = 8  # of a line or a word of a secret, to count as one itself
QUOTED_CHARS_MAX = 256  # longer ones are searched in fixed spellings only: no pattern of that length
QUOTED_CHAR_CHARS_MAX = 12  # %f0%9f%98%80

_STANDARD = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_SAFE = str.maketrans("+/", "-_")
_HTML = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#x27;"}
_QUOTING = re.compile(r"[%\\&+]")
_NAMED = {'"': '\\"', "\\": "\\\\", "/": "\\/", "\n": "\\n", "\r": "\\r", "\t": "\\t", "'": "\\'"}


class Spelling(NamedTuple):
    core: str  # must be in the text: quick to look for
    pattern: str | None  # what is masked around it; None: the core itself


class Redactor:
    """Masks a fixed set of secrets in any text. What can be prepared is prepared once."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        wanted = {part for secret in secrets for part in parts_of(secret) if len(part) >= SECRET_CHARS_MIN}
        self.secrets = sorted(wanted, key=lambda secret: (-len(secret), secret))[:SECRETS_MAX]
        plain: set[str] = set()
        around: list[Spelling] = []
        for secret in self.secrets:
            data = secret.encode(errors="surrogatepass")
            plain |= _fixed(secret, data)
            around += _base64(data)
        found = [Spelling(text, None) for text in plain] + around
        self._spellings = sorted(found, key=lambda spelling: (-len(spelling.core), spelling.core))
        self._quoted: list[re.Pattern[str]] | None = None
        quoted = [len(each) * QUOTED_CHAR_CHARS_MAX for each in self.secrets if len(each) <= QUOTED_CHARS_MAX]
        self.chars_max = max((*(len(spelling.core) + 4 for spelling in found), *quoted), default=0)

    @property
    def cores(self) -> list[str]:
        """What to look for in bytes that are only searched."""
        return [core for core, _ in self._spellings]

    def __call__(self, text: str) -> str:
        for core, pattern in self._spellings:
            if core in text:
                text = text.replace(core, MASK) if pattern is None else re.sub(pattern, MASK, text)
        if self.secrets and _QUOTING.search(text):
            if self._quoted is None:
                self._quoted = [_quoted(each) for each in self.secrets if len(each) <= QUOTED_CHARS_MAX]
            for quoted in self._quoted:
                text = quoted.sub(MASK, text)
        return text


@lru_cache(maxsize=64)
def redactor(secrets: frozenset[str]) -> Redactor:
    return Redactor(secrets)


def parts_of(secret: str) -> set[str]:
    """The secret, and what of it is one by itself: an address's password, a token after a scheme, a line."""
    parts = {secret}
    if "://" in secret:
        parts |= _address_parts(secret)
    words = secret.split()
    if len(words) > 1:
        parts |= {word for word in words if len(word) >= PART_CHARS_MIN}
        parts |= {line for line in secret.splitlines() if len(line) >= PART_CHARS_MIN}
        if words[0].lower() == "basic":
            parts |= _basic_parts(words[1])
    if secret.lstrip().startswith("{"):
        parts |= _json_parts(secret)
    return parts


def _address_parts(secret: str) -> set[str]:
    """The credentials of an address."""
    try:
        split = urlsplit(secret)
        user = split.netloc.rpartition("@")[0]
    except ValueError:
        return set()
    found = {user.partition(":")[2]}
    if ":" not in user and split.scheme in ("http", "https"):
        found = {user}  # a token; with databases it would be a plain name
    for pair in split.query.split("&"):
        name, _, value = pair.partition("=")
        if is_secret_name(unquote(name)):
            found.add(value)
    return {spelt for value in found if value for spelt in (value, unquote(value))}


def _basic_parts(word: str) -> set[str]:
    try:
        text = base64.b64decode(word, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return set()
    return {text, text.partition(":")[2]} - {""}


def _json_parts(secret: str) -> set[str]:
    """The secret fields of a key file or a transport's settings."""
    try:
        document = json.loads(secret)
    except (ValueError, RecursionError):
        return set()
    parts = (part for value in _secret_fields(document) for part in (value, *value.splitlines()))
    return {part for part in parts if len(part) >= PART_CHARS_MIN}


def _secret_fields(document: Any) -> Iterator[str]:
    if isinstance(document, dict):
        for name, value in document.items():
            if isinstance(value, str) and is_secret_name(name):
                yield value
            yield from _secret_fields(value)
    elif isinstance(document, list):
        for value in document:
            yield from _secret_fields(value)


def _fixed(secret: str, data: bytes) -> set[str]:
    digits = data.hex()
    forms = {secret, digits, digits.upper()}
    forms |= {repr(secret)[1:-1], repr(data)[2:-1], json.dumps(secret)[1:-1], _html(secret)}
    forms |= {json.dumps(secret, ensure_ascii=False)[1:-1], quote(secret, safe="", errors="replace")}
    if len(secret) >= PART_CHARS_MIN:
        forms.add(secret[::-1])
    return forms


def _base64(data: bytes) -> list[Spelling]:
    """The secret inside a longer encoded text, at each of the three places it can begin in a group.

    The characters at its ends hold bits of its neighbours, too: of those, all values are masked.
    """
    found = []
    for lead in range(3):
        bits = len(data) * 8
        first = -(-lead * 8 // 6)  # the first character that is ours alone
        last = (lead * 8 + bits) // 6  # one after the last
        text = base64.b64encode(b"\0" * lead + data + b"\0\0").decode()
        core = text[first:last]
        before = _sharing(text[first - 1], 6 * first - lead * 8, True) if lead * 8 % 6 else ""
        ours = (lead * 8 + bits) % 6
        after = _sharing(text[last], ours, False) if ours else ""
        for table in ({}, _SAFE):
            body = core.translate(table)
            around = f"{before.translate(table)}{re.escape(body)}{after.translate(table)}={{0,2}}"
            found.append(Spelling(body, around))
    return list(dict.fromkeys(found))


def _sharing(character: str, bits: int, low: bool) -> str:
    """A class of the characters that have these bits in common with the given one."""
    value = _STANDARD.index(character)
    mask = (1 << bits) - 1 if low else 63 ^ ((1 << (6 - bits)) - 1)
    members = [c for index, c in enumerate(_STANDARD) if index & mask == value & mask]
    return "[" + "".join(sorted(members)) + "]"  # "+" comes first: as "-" it still stands for itself


def _quoted(secret: str) -> re.Pattern[str]:
    """The secret with any of its characters quoted as addresses, JSON, Python or HTML do."""
    return re.compile("".join(map(_character, secret)))


def _character(character: str) -> str:
    code = ord(character)
    percent = "".join(_any_case(f"%{byte:02x}") for byte in character.encode(errors="surrogatepass"))
    forms = [percent]
    units = character.encode("utf-16-be", errors="surrogatepass")
    pairs = [units[i : i + 2].hex() for i in range(0, len(units), 2)]
    forms.append("".join(_any_case(f"\\u{pair}") for pair in pairs))
    if code < 256:
        forms.append(_any_case(f"\\x{code:02x}"))
    if character in _NAMED:
        forms.append(re.escape(_NAMED[character]))
    if character == " ":
        forms.append(r"\+")
    escaped = _html(character)
    if escaped != character:
        forms.append(re.escape(escaped))
    forms.append(re.escape(character))  # last: what can be read as a whole escape is one
    return "(?:" + "|".join(dict.fromkeys(forms)) + ")"


def _html(text: str) -> str:
    return "".join(_HTML.get(character, character) for character in text)


def _any_case(escape: str) -> str:
    """An escape such as %2f or \\u002f, its digits in either case."""
    head, digits = (escape[:1], escape[1:]) if escape[0] == "%" else (escape[:2], escape[2:])
    return re.escape(head) + "".join(f"[{c}{c.upper()}]" if c.isalpha() else c for c in digits)
