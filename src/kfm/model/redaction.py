"""Redaction: secrets, places and personal data taken out of texts and documents; masking of dataset names."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec

from kfm.model.canonical import FLOAT_TAG
from kfm.model.patterns import late
from kfm.model.settings import DatasetSettings

__all__ = [
    "MASK",
    "Discretion",
    "free_text",
    "hide",
    "is_secret_name",
    "redact",
    "redact_url",
    "shapeless",
    "strip_params",
    "within",
]


SECRET_WORDS = (
    r"(?:token|secret|signature|password|passwd|passphrase|pwd|credentials?|authorization"
    r"|(?:api|access|account|subscription|private|shared|signing|storage|client|auth)[_-]?key(?:[_-]?id)?)"
)
# Whole words of a name: `api_key`, `X-Amz-Signature`, `sig`, `key`, `userToken`; but not `keyword`, `monkey`.
_SECRET_NAME = late(
    rf"(?:^|.*[^a-z]|.*[a-z](?=[A-Z])){SECRET_WORDS}s?$|^(?:key|sig|sas|auth|pass)$", re.IGNORECASE
)


def is_secret_name(name: str) -> bool:
    """Would a value of this name be a secret?"""
    return _SECRET_NAME.match(name) is not None


TEXT_CHARS_MAX = 8192
READ_CHARS_MAX = 8 * TEXT_CHARS_MAX  # what is looked at of a text that will be cut anyway

_URL = late(r"\b[a-zA-Z][a-zA-Z0-9+.-]{1,30}://[^\s\"'<>`]+")
# A database takes a password as it is, also where an address would end for others: at #, ? or a quote.
_USER = late(
    r"(?i)\b(postgres(?:ql)?://)\S{0,1100}@"
    r"|\b([a-z][a-z0-9+.-]{1,30}://)[^\s/:@\"'<>`?#]*:(?![0-9]{1,5}[\"'<>`])[^\s/]*@"
)
_HEADER = late(
    r"(?i)\b((?:proxy-)?authorization|cookie|set-cookie|x-api-key|x-amz-security-token|x-kfm-signature"
    r"|webhook-signature|x-hub-signature(?:-256)?)"
    r"([\"']?\s*[:=]\s*)[^\r\n]+"
)
_SCHEME = late(r"(?i)\b(bearer|basic|token)\s+[a-z0-9._~+/=-]{8,}")
# In what people write, "the basic processing" is no credential: these have a digit.
_SCHEME_SAID = late(r"(?i)\b(bearer|basic|token)\s+(?=[a-z._~+/=-]*[0-9])[a-z0-9._~+/=-]{8,}")
_ASSIGNED = late(
    rf"(?i)([\"']?)\b([a-z0-9_.-]{{0,40}}{SECRET_WORDS}s?)\b([\"']?\s*[:=]\s*)"
    r"(?:\"(?:[^\"\\\r\n]|\\.)*\"?|'(?:[^'\\\r\n]|\\.)*'?|[^\s\"',;&)}\]]+)"
)
_SHAPES = late(
    r"\b(?:AKIA|ASIA|AROA|AIDA)[A-Z0-9]{12,}\b"  # AWS key ids
    r"|\bwhsec_[A-Za-z0-9+/=_-]+"
    r"|\b(?:gh[pousr]|github_pat)_[A-Za-z0-9_]{20,}"
    r"|\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*"  # JSON web tokens
    r"|(?<![A-Za-z0-9/+])(?=[A-Za-z0-9/+]{0,39}[/+])(?=[A-Za-z0-9/+]{0,39}[A-Z])(?=[A-Za-z0-9/+]{0,39}[0-9])"
    r"[A-Za-z0-9+][A-Za-z0-9/+]{39}(?![A-Za-z0-9/+=])"  # AWS secret keys: 40 characters of base64
)


# --- places and persons ----------------------------------------------------------------

COORDINATES = "[coordinates removed]"
PERSONAL_NUMBER = "[personal number removed]"
PHONE = "[phone number removed]"
PROSE_CHARS_MAX = 4000
_DIGIT = re.compile(r"[0-9]").search
_MAIL = late(
    r"(?<![\w.+-])[\w.+-]{1,64}@(?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.){1,8}[A-Za-z]{2,24}(?![\w-])"
)
# Three decimals and more: about a hundred metres. Not in a version, an address, a time; not with a unit.
_DECIMAL = r"[-+\u2212]?[0-9]{1,3}\.[0-9]{3,}"
_ENDS = r"(?![\w%]|\.[0-9]|:[0-9]| ?(?:[kMGT]?i?B|[num]?s|min|h|Hz|Wh|J|%)(?!\w))"
_PAIRS = late(
    rf"(?<![\w.:+-]){_DECIMAL}(?:(?:\s{{0,3}}[,;/]\s{{0,3}}|\s{{1,3}}|\s{{0,3}}\]\s{{0,3}},\s{{0,3}}\[\s{{0,3}}){_DECIMAL})+{_ENDS}"
)
_NUMBER = late(_DECIMAL)
_NAMED_DEGREES = late(
    r"(?i)\b((?:lat(?:itude)?|lon(?:gitude)?|lng)[\"']?\s{0,3}(?:[:=]|is)?\s{0,3}[\"']?)[-+\u2212]?[0-9]{1,3}\.[0-9]+"
)
_DEGREES = late(
    r"(?<![\w.])[0-9]{1,3}(?:\.[0-9]+)?\s?\u00b0\s?(?:[0-9]{1,2}(?:\.[0-9]+)?\s?['\u2032\u2019]\s?)?"
    r"(?:[0-9]{1,2}(?:\.[0-9]+)?\s?[\"\u2033\u201d]\s?)?[NSEWnsew](?!\w)"
    r"|(?<![\w.])[0-9]{1,3}\.[0-9]{2,}\s?[NSEW](?!\w)|(?<!\w)[NSEW]\s?[0-9]{1,3}\.[0-9]{3,}(?![\w.])"
)
_SHAPE = late(r"(?i)\b(?:multi)?(?:point|linestring|polygon)\s{0,3}(?:zm?|m)?\s{0,3}\([-+0-9.,()e\s]{3,}\)")
_NAMED_NUMBER = late(
    r"(?i)\b((?:ssn|social security|passport|tribal (?:id|enrol{1,2}ment)|enrol{1,2}ment|date of birth|dob"
    r"|phone|telephone)(?: (?:number|no\.?|nr\.?|id))?[\"']?\s{0,3}(?:[:=#]|is)?\s{0,3}[\"']?)"
    r"(?=[A-Z]{0,3}[0-9])[A-Z0-9][A-Z0-9/.()+-]{0,24}(?: [0-9][0-9.-]{1,8}){0,4}"
)
_SSN = late(r"(?<![\w-])[0-9]{3}-[0-9]{2}-[0-9]{4}(?![\w-])")
_PHONE = late(
    r"(?<![\w.+-])\+[1-9][0-9]{0,2}(?:[ ().-]{1,2}[0-9]{1,4}){2,6}(?![\w-])"
    r"|(?<![\w.+-])\+[1-9][0-9]{9,12}(?![\w-])"
    r"|(?<![\w.-])(?:\([2-9][0-9]{2}\) ?|[2-9][0-9]{2}[ .-])[2-9][0-9]{2}[.-][0-9]{4}(?![\w-])"
)
PHONE_DIGITS_MIN = 9


def _without_places(found: re.Match[str]) -> str:
    """Decimals side by side are coordinates if they can be: in range, and not all of them below one."""
    numbers = [abs(float(one.replace("\u2212", "-"))) for one in _NUMBER.findall(found[0])]
    degrees = all(min(pair) <= 90 and max(pair) <= 180 for pair in pairwise(numbers))
    return COORDINATES if degrees and max(numbers) >= 1 else found[0]


def _without_phone(found: re.Match[str]) -> str:
    digits = sum(character.isdigit() for character in found[0])
    return PHONE if digits >= PHONE_DIGITS_MIN else found[0]


def redact_url(url: str) -> str:
    """The address without user and password, with secret parameters masked."""
    from urllib.parse import SplitResult, urlsplit, urlunsplit  # late: most commands redact no address

    try:
        parts = urlsplit(_USER.sub(r"\1\2", url))
        host = parts.netloc.rpartition("@")[2]
    except ValueError:
        return MASK
    return urlunsplit(SplitResult(parts.scheme, host, parts.path, _query(parts.query), parts.fragment))


def strip_params(url: str, names: Iterable[str]) -> str:
    """The address without the parameters of these names."""
    from urllib.parse import unquote_plus, urlsplit, urlunsplit

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
    """An address or another text that is no prose: secrets and all of their shape masked, length bounded."""
    known = frozenset(secrets)
    return _kept(text, redactor(known) if known else None)


def free_text(text: str, chars_max: int = PROSE_CHARS_MAX) -> str:
    """Prose without the places and persons that it may quote from data, bounded; what was removed is said.

    Found are coordinates (pairs of decimals, degrees, named ones, well-known text), mail addresses, phone
    numbers, and numbers of persons by their form or by the word before them. Names of persons are not.
    """
    if "@" in text:
        text = _MAIL.sub("[mail address removed]", text)
    if _DIGIT(text) is not None:
        text = _SHAPE.sub(COORDINATES, text)
        text = _NAMED_DEGREES.sub(rf"\1{COORDINATES}", text)
        text = _DEGREES.sub(COORDINATES, text)
        text = _PAIRS.sub(_without_places, text)
        text = _NAMED_NUMBER.sub(rf"\1{PERSONAL_NUMBER}", text)
        text = _SSN.sub(PERSONAL_NUMBER, text)
        text = _PHONE.sub(_without_phone, text)
    if len(text) > chars_max:
        text = f"{text[:chars_max]}… [{len(text) - chars_max:,} characters removed]"
    return text


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
        """A text for the records: without secrets, places and personal data, and bounded."""
        return free_text(_kept(text, self.redactor))

    def logged(self, text: str) -> str:
        """A text for the log: as for the records, but a trace may be longer."""
        return free_text(_kept(text, self.redactor), TEXT_CHARS_MAX + 1)  # and a mark that it was cut

    def said(self, text: str) -> str:
        """What a person gives as a reason is kept for good: what looks like a secret goes, too.

        A mail address alone is a name: of an actor, or of whom a ticket belongs to.
        """
        text = shapeless(self.redactor(text))
        return text if _MAIL.fullmatch(text) else free_text(text)

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
    if "@" in text:
        text = _USER.sub(r"\1\2", text)
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
    from urllib.parse import unquote_plus

    pairs = []
    for pair in query.split("&"):
        name, equals, _ = pair.partition("=")
        pairs.append(f"{name}={MASK}" if equals and is_secret_name(unquote_plus(name)) else pair)
    return "&".join(pairs)


MASK = "***"
SECRET_CHARS_MIN = 4  # shorter ones would blot out ordinary words
SECRETS_MAX = 1000
PART_CHARS_MIN = 8  # of a line or a word of a secret, to count as one itself
QUOTED_CHARS_MAX = 256  # longer ones are searched in fixed spellings only: no pattern of that length
QUOTED_CHAR_CHARS_MAX = 12  # %f0%9f%98%80

_STANDARD = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_SAFE = str.maketrans("+/", "-_")
_HTML = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#x27;"}
_QUOTING = late(r"[%\\&+]")
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
    from urllib.parse import unquote, urlsplit

    try:
        split = urlsplit(secret)
        user = split.netloc.rpartition("@")[0]
    except ValueError:
        return set()
    rest = secret.partition("://")[2]
    # The last one: however a reader of addresses takes an unescaped slash, the parts of it are masked.
    found = {user.partition(":")[2], rest.rpartition("@")[0].partition(":")[2]}
    if ":" not in user and split.scheme in ("http", "https"):
        found.add(user)  # a token; with databases it would be a plain name
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
    from urllib.parse import quote

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


# Nearly all documents have none of this, and a pass has many documents.
_SUSPICIOUS = late(
    rf'{SECRET_WORDS}|"(?:key|sig|sas|auth|pass)"|://|bearer|basic|@|[0-9]\.[0-9]|[0-9]-[0-9]{{2}}-|\+[0-9]'
    r"|ssn|passport|phone|birth|dob|enrol",
    re.IGNORECASE,
).search


def redacted_document(document: str) -> str:
    """A node's inputs and parameters as they are kept: parameters also without places and personal data."""
    if _SUSPICIOUS(document) is None:
        return document
    read = msgspec.json.decode(document)
    if isinstance(read, dict) and isinstance(read.get("params"), dict):
        read["params"] = _impersonal(read["params"])
    return msgspec.json.encode(within(_masked_value(read), shapeless)).decode()


def _masked_value(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: MASK if is_secret_name(name) else _masked_value(each) for name, each in value.items()}
    return [_masked_value(each) for each in value] if isinstance(value, list) else value


_DEGREES_NAME = late(r"(?i)(?:.*[^a-z])?(?:lat(?:itude)?|lon(?:gitude)?|lng|easting|northing)")
_PERSON_NAME = late(
    r"(?i)(?:.*[^a-z])?(?:ssn|passport|dob|birth_?date|date_of_birth|phone|enrol{1,2}ment_?id)"
)


def _impersonal(value: Any) -> Any:
    """By the form of texts, by the names of members, and lists of numbers that are places."""
    if isinstance(value, str):
        return free_text(value)
    if isinstance(value, list):
        numbers = [text for each in value if (text := _decimal(each)) is not None]
        if len(numbers) == len(value) >= 2 and free_text(", ".join(numbers)) == COORDINATES:
            return COORDINATES
        return [_impersonal(each) for each in value]
    if isinstance(value, dict):
        return {name: _impersonal_member(name, each) for name, each in value.items()}
    return value


def _impersonal_member(name: str, value: Any) -> Any:
    if _DEGREES_NAME.fullmatch(name) and _decimal(value) is not None:
        return COORDINATES
    if _PERSON_NAME.fullmatch(name) and isinstance(value, str | int) and not isinstance(value, bool):
        return PERSONAL_NUMBER
    return _impersonal(value)


def _decimal(value: Any) -> str | None:
    """The text of a number with a fraction, which is tagged in what is hashed."""
    if isinstance(value, dict) and set(value) == {FLOAT_TAG}:
        return str(value[FLOAT_TAG])
    return repr(value) if isinstance(value, float) else None


PREFIX = "masked-"
HEX_CHARS = 12
MASK_KEY = "mask_key"  # the mark of the store that holds the environment's key


def mask(dataset_id: str, key: str | None) -> str:
    """The public name of a masked dataset: the same each time within one environment, and in no other.

    Without a key none may be told apart: a name that anybody can compute is a guess that can be checked.
    """
    if key is None:
        return PREFIX.rstrip("-")
    digest = hmac.new(key.encode(), dataset_id.encode(), hashlib.sha256).hexdigest()
    return f"{PREFIX}{digest[:HEX_CHARS]}"


def hidden_names(datasets: Iterable[DatasetSettings]) -> Callable[[str], bool] | None:
    """Tells whether a node or pipeline is named after a masked dataset, or after a part of one.

    None where there is no such dataset: then the ledger need not be asked for each of ten thousand names.
    """
    hidden = {name for dataset in datasets if is_masked(dataset) for name in dataset.names}
    if not hidden:
        return None

    def is_hidden(name: str) -> bool:
        while name:
            if name in hidden:
                return True
            name = name.rpartition(".")[0]
        return False

    return is_hidden


def is_masked(dataset: DatasetSettings) -> bool:
    """Must its name be kept out of everything public? If its rights are not declared, yes."""
    rights = dataset.rights
    if rights is None or rights.care.level in ("restricted", "blocked"):
        return True
    return rights.sovereignty is not None and rights.sovereignty.consent != "granted"
