"""Canonical bytes: one document, one byte string, on every machine and in every language.

The form is RFC 8785 over a smaller set of values: text, whole numbers within
±(2^53-1), true, false, null, lists and objects with text keys. Floats are
refused unless they were tagged first, because languages print them differently.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any, NoReturn

from kfm.model.errors import MalformedJson, UnhashableInput
from kfm.model.patterns import late

if TYPE_CHECKING:
    import json

FLOAT_TAG = "$float"
INT_MAX = 2**53 - 1
DEPTH_MAX = 100
VALUES_MAX = 5_000_000
JSON_BYTES_MAX = 64 * 1024 * 1024

_SCALARS = frozenset({str, int, bool, type(None)})
_PLAIN = _SCALARS | {dict, list, tuple}
# UTF-8 lead bytes of characters beyond the BMP: only there do code point order
# (orjson) and UTF-16 order (RFC 8785) part ways.
_BEYOND_BMP = re.compile(rb"[\xf0-\xf4]")
_WORD = late(r"[A-Za-z_][A-Za-z0-9_-]*\Z")


def canonical_bytes(document: Any) -> bytes:
    """The RFC 8785 form. A value outside the allowed set raises UnhashableInput naming its path."""
    if not _is_plain(document):
        _blame(document)
    return _encode(document)


def _encode(document: Any) -> bytes:
    """Bytes of a document that is known to be plain: orjson's, wherever they are the reference's too."""
    import orjson  # late, as `json` below: each loads what a command that only looks needs none of

    try:
        encoded = orjson.dumps(document, option=orjson.OPT_SORT_KEYS | orjson.OPT_STRICT_INTEGER)
    except TypeError:
        _blame(document)
    if encoded.isascii() or not _BEYOND_BMP.search(encoded):
        return encoded
    return _reference_bytes(document)


def canonical_hashed(document: Any) -> bytes:
    """`canonical_bytes(tag_floats(document))`, without the copy where nothing needs a tag."""
    if _is_plain(document):
        encoded = _encode(document)
        if not mentions_tag(encoded):
            return encoded
    return canonical_bytes(tag_floats(document))


def tag_floats(document: Any) -> Any:
    """A copy in which each float is `{"$float": "0.1"}`: the shortest decimal, as ECMAScript prints it.

    A float that is a whole number within ±(2^53-1) becomes that whole number
    (and -0.0 becomes 0): JSON has one kind of number, so a reader in another
    language could not tell 1.0 from 1.
    """
    return _tagged(document, (), 0)


def float_text(value: float) -> str:
    """A finite float as ECMAScript's Number-to-string prints it."""
    return _reference_bytes(value).decode("ascii")


def mentions_tag(encoded: bytes) -> bool:
    """May these canonical bytes hold the float tag? A cheap test; false alarms are possible."""
    return b"$" in encoded and FLOAT_TAG.encode() in encoded


def beyond_bmp(encoded: bytes) -> bool:
    """Is there a character above U+FFFF in these UTF-8 bytes?"""
    return not encoded.isascii() and _BEYOND_BMP.search(encoded) is not None


def utf16_order(text: str) -> bytes:
    """Sort key for the order of UTF-16 code units, which is RFC 8785's and JavaScript's order."""
    return text.encode("utf-16-be", "surrogatepass")


def strict_loads(data: bytes, *, bytes_max: int = JSON_BYTES_MAX) -> Any:
    """Read JSON and refuse what readers disagree about.

    Refused: NaN and infinities, numbers that overflow, whole numbers beyond
    ±(2^53-1), one key twice, lone surrogates, nesting deeper than DEPTH_MAX,
    anything but UTF-8 without a byte order mark.
    """
    import json

    if len(data) > bytes_max:
        raise MalformedJson(f"It has {len(data)} bytes; the limit is {bytes_max}.")
    try:
        document = _decoder().decode(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise MalformedJson(f"Byte {error.start} is not UTF-8.") from error
    except json.JSONDecodeError as error:
        raise MalformedJson(f"{error.msg} at line {error.lineno}, column {error.colno}.") from error
    except RecursionError:
        raise MalformedJson(f"It is nested deeper than {DEPTH_MAX} levels.") from None
    if not _is_plain(document, also=float):
        raise MalformedJson(f"It is nested deeper than {DEPTH_MAX} levels, or far too large.")
    if b"\\u" in data and _has_lone_surrogate(document):
        raise MalformedJson("It holds half of a surrogate pair.")
    return document


# --- inside --------------------------------------------------------------------------


@cache
def _decoder() -> json.JSONDecoder:
    """Made once: it costs as much as reading a small document."""
    import json

    return json.JSONDecoder(
        object_pairs_hook=_unique_keys,
        parse_constant=_refuse_constant,
        parse_int=_whole_number,
        parse_float=_finite_number,
    )


def _is_plain(document: Any, *, also: type | None = None) -> bool:
    """Are all values of allowed types, nested within bounds? Level by level: most work is done in C."""
    plain = _PLAIN if also is None else _PLAIN | {also}
    scalars = _SCALARS if also is None else _SCALARS | {also}
    flat = type(document) is dict
    level: list[Any] = list(document.values()) if flat else [document]
    seen = 0
    for _ in range(DEPTH_MAX if flat else DEPTH_MAX + 1):
        kinds = set(map(type, level))
        if kinds <= scalars:
            return True
        if not kinds <= plain:
            return False
        below: list[Any] = []
        for value in level:
            kind = type(value)
            if kind is dict:
                below.extend(value.values())
            elif kind is list or kind is tuple:
                below.extend(value)
        level = below
        seen += len(level)
        if seen > VALUES_MAX:  # also stops documents that contain themselves
            return False
    return False


def _reference_bytes(document: Any) -> bytes:
    import rfc8785  # only documents outside the fast subset pay for it

    return bytes(rfc8785.dumps(document))


def _blame(document: Any) -> NoReturn:
    """Raise UnhashableInput for the first value that is not allowed."""
    count = [0]

    def visit(value: Any, path: tuple[str | int, ...]) -> None:
        count[0] += 1
        if count[0] > VALUES_MAX:
            raise UnhashableInput(f"The document has more than {VALUES_MAX} values.", field=_path_text(path))
        if len(path) > DEPTH_MAX:
            _refuse(path, f"is nested deeper than {DEPTH_MAX} levels")
        kind = type(value)
        if kind is dict:
            for key, child in value.items():
                if type(key) is not str:
                    _refuse(path, f"has the key {key!r}, which is not text")
                if _is_half_pair(key):
                    _refuse(path, f"has the key {key!r}, which holds half of a surrogate pair")
                visit(child, (*path, key))
        elif kind is list or kind is tuple:
            for index, child in enumerate(value):
                visit(child, (*path, index))
        elif kind is int:
            if not -INT_MAX <= value <= INT_MAX:
                _refuse(path, "is a whole number beyond ±(2^53-1)")
        elif kind is str:
            if _is_half_pair(value):
                _refuse(path, "holds half of a surrogate pair")
        elif kind is float:
            _refuse(path, f"is the float {value!r}, which was not tagged")
        elif kind not in _SCALARS:
            _refuse(path, f"is a {kind.__name__}, which has no canonical form")

    visit(document, ())
    raise UnhashableInput("The document can't be encoded.")


def _tagged(value: Any, path: tuple[str | int, ...], depth: int) -> Any:
    if depth > DEPTH_MAX:
        _refuse(path, f"is nested deeper than {DEPTH_MAX} levels")
    if isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            _refuse(path, f"is {value!r}, which no number is")
        if value.is_integer() and -INT_MAX <= value <= INT_MAX:
            return int(value)
        return {FLOAT_TAG: float_text(float(value))}
    if type(value) is dict:
        if FLOAT_TAG in value:
            _refuse((*path, FLOAT_TAG), "is a key that is kept for tagged floats")
        return {key: _tagged(child, (*path, key), depth + 1) for key, child in value.items()}
    if type(value) is list or type(value) is tuple:
        return [_tagged(child, (*path, index), depth + 1) for index, child in enumerate(value)]
    return value


def _refuse(path: tuple[str | int, ...], problem: str) -> NoReturn:
    field = _path_text(path)
    raise UnhashableInput(f"{field} {problem}.", field=field)


def _path_text(path: tuple[str | int, ...]) -> str:
    """`params.area[3]`; keys that are no plain words are quoted."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif _WORD.match(step):
            text += f".{step}" if text else step
        else:
            import json

            text += f"[{json.dumps(step)}]"
    return text or "(the whole document)"


def _is_half_pair(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return True
    return False


def _has_lone_surrogate(document: Any) -> bool:
    import json

    return _is_half_pair(json.dumps(document, ensure_ascii=False))


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise MalformedJson(f"The key {twice!r} stands twice in one object.")
    return document


def _refuse_constant(text: str) -> NoReturn:
    raise MalformedJson(f"{text} is not a number.")


def _whole_number(text: str) -> int:
    if len(text) > 17 or not -INT_MAX <= int(text) <= INT_MAX:
        raise MalformedJson(f"The whole number {text[:32]} is beyond ±(2^53-1).")
    return int(text)


def _finite_number(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise MalformedJson(f"The number {text[:32]} is too large.")
    return value
