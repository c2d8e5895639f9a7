"""JSON of messages, read within limits: ambiguity is marked where it occurs. Fields of their records."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import orjson

from kfm.nodd.messages.refusals import RecordRefusal

BODY_BYTES_MAX = 1024 * 1024  # what SQS carries at most
DEPTH_MAX = 32
RECORDS_MAX = 4096
TEXT_CHARS_MAX = 4096  # of any single field that is kept
SIZE_MAX = 2**63 - 1

_STRUCTURE = re.compile(r'"(?:[^"\\]|\\.)*+"|[\[\]{}]', re.DOTALL)


class Ambiguous:
    """In place of a value that JSON readers disagree about: duplicate names, NaN, a number that overflows."""


AMBIGUOUS = Ambiguous()


def load(body: bytes) -> tuple[Any, bool]:
    """(the document in a message's body, is anything in it ambiguous?)"""
    if len(body) <= BODY_BYTES_MAX:
        document = read_plain(body, DEPTH_MAX)
        if document is not DECLINED:
            return document, False
    if not body.strip():
        raise RecordRefusal("BODY_EMPTY")
    if len(body) > BODY_BYTES_MAX:
        raise RecordRefusal("BODY_TOO_LARGE", f"At most {BODY_BYTES_MAX} are read.")
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise RecordRefusal("BODY_NOT_UTF8", f"Byte {error.start} is the first that is not.") from None
    return _load(text)


def load_text(text: str) -> tuple[Any, bool]:
    """The same for a text in a message."""
    if len(text) > BODY_BYTES_MAX:
        raise RecordRefusal("BODY_TOO_LARGE", f"At most {BODY_BYTES_MAX} are read.")
    try:
        document = read_plain(text.encode("utf-8"), DEPTH_MAX)
    except UnicodeEncodeError:  # half of a surrogate pair: only some readers mind
        return _load(text)
    return (document, False) if document is not DECLINED else _load(text)


def _load(text: str) -> tuple[Any, bool]:
    """The reference reader, for what the fast one declines. Depth is measured before anything recurses."""
    if text.count("[") + text.count("{") > DEPTH_MAX:
        depth = 0
        for token in _STRUCTURE.finditer(text):
            mark = token[0]
            depth += (mark in "[{") - (mark in "]}")
            if depth > DEPTH_MAX:
                raise RecordRefusal("BODY_TOO_DEEP", f"At most {DEPTH_MAX} levels are read.")
    before = _last_ambiguous[0]
    try:
        document = _DECODER.decode(text)
    except (ValueError, RecursionError):
        raise RecordRefusal("BODY_NOT_JSON") from None
    # Rare: looked for only where a value was ambiguous meanwhile, in any thread.
    return document, _last_ambiguous[0] is not before and is_ambiguous(document)


_last_ambiguous: list[object] = [object()]


def _ambiguous(_text: str = "") -> Ambiguous:
    _last_ambiguous[0] = object()
    return AMBIGUOUS


def _object(pairs: list[tuple[str, Any]]) -> Any:
    made = dict(pairs)
    return made if len(made) == len(pairs) else _ambiguous()


def _float(text: str) -> Any:
    value = float(text)
    return value if math.isfinite(value) else _ambiguous()


def _int(text: str) -> Any:
    return int(text) if len(text) <= 20 else _ambiguous()


_DECODER = json.JSONDecoder(
    object_pairs_hook=_object, parse_constant=_ambiguous, parse_float=_float, parse_int=_int
)


def is_ambiguous(value: Any) -> bool:
    """Is anything within ambiguous? Depth is bounded, so this may recurse."""
    if isinstance(value, dict):
        return any(map(is_ambiguous, value.values()))
    if isinstance(value, list):
        return any(map(is_ambiguous, value))
    return value is AMBIGUOUS


# --- fields of records ---------------------------------------------------------------


def part(record: dict[str, Any], name: str) -> dict[str, Any]:
    """A part of a record that must be an object."""
    value = record.get(name)
    if not isinstance(value, dict):
        raise RecordRefusal("RECORD_INVALID", f"`{name}` is not an object.")
    return value


def text_of(record: dict[str, Any], name: str) -> str:
    """A field that must be a text."""
    value = record.get(name)
    if not isinstance(value, str) or not value:
        raise RecordRefusal("RECORD_INVALID", f"`{name}` is not a text.")
    if len(value) > TEXT_CHARS_MAX:
        raise RecordRefusal("RECORD_INVALID", f"`{name}` is too long.")
    return value


def optional_text(record: dict[str, Any], name: str) -> str | None:
    """A field that may be missing; where it is there, it is a text that can be stored."""
    if record.get(name) in (None, ""):
        return None
    value = text_of(record, name)
    if not value.isprintable():
        raise RecordRefusal("RECORD_INVALID", f"`{name}` holds characters that can't be printed.")
    return value


def size_of(record: dict[str, Any], name: str, *, as_digits: bool = False) -> int | None:
    """Bytes, as a number; Google writes digits in a text."""
    value = record.get(name)
    if value is None:
        return None
    if as_digits and isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 19:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= SIZE_MAX:
        raise RecordRefusal("SIZE_INVALID")
    return value


# --- the fast reader -----------------------------------------------------------------

DECLINED = object()
_BLANKS = b" \t\r\n"


def read_plain(text: bytes, depth_max: int) -> Any:
    """The document, or DECLINED where only the reference reader can decide."""
    try:
        document = orjson.loads(text)
        written = orjson.dumps(document)
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):  # the second: it is far too deep
        return DECLINED
    if not same_but_blanks(text, written):
        return DECLINED
    # Brackets within strings count as well: where there are few at all, nothing can be deep.
    if written.count(b"{") + written.count(b"[") > depth_max and is_deeper(document, depth_max):
        return DECLINED
    return document


def same_but_blanks(text: bytes, written: bytes) -> bool:
    """Does a JSON text consist of just those tokens that its reader writes of it again?

    Then no name stood twice, or one of the two would be missing; and no number was cut, or it would be
    another. Blanks within strings are left out as well: that moves no quote, so the tokens stay the same.
    """
    return text == written or text.translate(None, _BLANKS) == written.translate(None, _BLANKS)


def is_deeper(document: Any, depth_max: int) -> bool:
    """Level by level, so that nothing recurses."""
    level = [document]
    for _ in range(depth_max + 1):
        level = [value for value in level if type(value) is dict or type(value) is list]
        if not level:
            return False
        level = [inner for value in level for inner in (value.values() if type(value) is dict else value)]
    return True
