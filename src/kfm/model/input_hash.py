"""The hash of what a step reads: equal hashes mean that there is nothing new to do."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from itertools import islice
from operator import eq, itemgetter
from typing import Any

import msgspec

from kfm.model.canonical import (
    FLOAT_TAG,
    beyond_bmp,
    canonical_bytes,
    canonical_hashed,
    tag_floats,
    utf16_order,
)
from kfm.model.errors import LimitExceeded, UnhashableInput
from kfm.model.records import Found

INPUTS_TAG = "inputs/1"
INPUTS_MAX = 1_000_000
NAME_FIELDS = ("uri", "id")  # where an input is, or what it is called
CONTENT_FIELDS = ("checksum", "etag", "version", "commit", "md5", "last_modified", "modified_ms")

_WHOLE = {int}


def sha256_text(data: bytes) -> str:
    """`sha256:<hex>`."""
    return "sha256:" + sha256(data).hexdigest()


def inputs_hash(inputs: Iterable[Any], params: Mapping[str, Any] | None = None) -> str:
    """`sha256:<hex>` over the inputs, in any order, and the parameters."""
    return sha256_text(inputs_bytes(inputs, params))


def inputs_bytes(inputs: Iterable[Any], params: Mapping[str, Any] | None = None) -> bytes:
    """The canonical document behind `inputs_hash`.

    An input is a mapping (or a record) with `uri` or `id` and at least one
    field that tells one content from another. Null fields count as absent,
    equal inputs count once, and one name with two contents is an error.
    Inputs stand in the UTF-16 order of their names.
    """
    rows = list(islice(inputs, INPUTS_MAX + 1))
    if len(rows) > INPUTS_MAX:
        raise LimitExceeded(f"More than {INPUTS_MAX} inputs for one hash.")
    params = dict(params) if params else {}
    encoded = _uniform_bytes(rows, _params_bytes(params)) if rows else None
    if encoded is None:
        document = tag_floats({"params": params})
        encoded = canonical_bytes({"inputs": _careful_rows(rows), "kfm": INPUTS_TAG, **document})
    return encoded


_PLAIN_NAME = re.compile(r"[A-Za-z0-9._:@+=~ -]+\Z").match


DEPENDENCY = '{"checksum":"%s","id":"%s"}'  # one row of `inputs_bytes`, for names that are plain


def are_plain(names: Iterable[str]) -> bool:
    """All names can stand in a document as they are."""
    return _PLAIN_NAME("".join(names)) is not None


def dependency_text(name: str, checksum: str) -> str:
    """One row of `inputs_bytes` for a node that others read from; "" if its name takes the long way."""
    return DEPENDENCY % (checksum, name) if _PLAIN_NAME(name) else ""


def dependencies_bytes(rows: Iterable[str], params: Mapping[str, Any]) -> bytes:
    """`inputs_bytes` of a node that reads from other nodes only; their rows stand in the order of names."""
    params_text = _params_bytes(dict(params)).decode() if params else "{}"
    return f'{{"inputs":[{",".join(rows)}],"kfm":"{INPUTS_TAG}","params":{params_text}}}'.encode()


def fingerprint(found: Sequence[Found]) -> str:
    """What discovery saw, as one hash: unchanged means that there is nothing to fetch.

    The strongest sign that an object has is used and no weaker one beside it:
    a file that was touched, but whose checksum is the same, is unchanged.
    """
    return inputs_hash([_sign(one, index) for index, one in enumerate(found)])


def _sign(one: Found, index: int) -> dict[str, Any]:
    if one.checksum:
        return {"uri": one.uri, "checksum": one.checksum}
    signs: dict[str, Any] = {"etag": one.etag, "version": one.version}
    if not (one.etag or one.version):
        signs = {"modified_ms": one.modified_ms}
        if one.modified_ms is None:
            raise UnhashableInput(
                f"found[{index}] ({one.uri}) has no checksum, etag, version or modification time.",
                field=f"found[{index}]",
            )
    return {"uri": one.uri, "size": one.size} | signs


# --- the fast lane: uniform rows of plain values, nearly all of it in C --------------


def _params_bytes(params: dict[str, Any]) -> bytes:
    try:
        return canonical_hashed(params) if params else b"{}"
    except UnhashableInput:
        return canonical_hashed({"params": params})  # raises again, and names the whole path


def _uniform_bytes(rows: list[Any], params: bytes) -> bytes | None:
    """The document, or None where anything at all is unusual: column by column, since all rows are alike."""
    try:
        fields = tuple(rows[0])
        ordered = sorted(rows, key=itemgetter("uri"))
        if sum(map(len, ordered)) != len(fields) * len(ordered) or FLOAT_TAG in fields:
            return None
        has_content = False
        for field in fields:
            column = list(map(itemgetter(field), ordered))
            if type(column[0]) is str:
                "".join(column)  # a TypeError unless all is text, at a fifth of the cost of asking each type
            elif field == "uri" or set(map(type, column)) != _WHOLE:
                return None
            if field == "uri":
                if not column[0] or any(map(eq, column, islice(column, 1, None))):
                    return None
            elif not has_content and field in CONTENT_FIELDS:
                has_content = type(column[0]) is int or all(column)
        if not has_content:
            return None
        import orjson

        options = orjson.OPT_SORT_KEYS | orjson.OPT_STRICT_INTEGER | orjson.OPT_PASSTHROUGH_SUBCLASS
        document = {"inputs": ordered, "kfm": INPUTS_TAG, "params": orjson.Fragment(params)}
        encoded = orjson.dumps(document, option=options)
    except (LookupError, TypeError):
        return None
    return None if beyond_bmp(encoded) else encoded


# --- the careful lane: says what is wrong, and where --------------------------------


def _careful_rows(rows: list[Any]) -> list[dict[str, Any]]:
    by_name: dict[str, tuple[bytes, dict[str, Any]]] = {}
    for index, row in enumerate(rows):
        here = f"inputs[{index}]"
        present = {key: _text(value) for key, value in _as_dict(row, index).items() if value is not None}
        name = next((present[field] for field in NAME_FIELDS if field in present), None)
        if not isinstance(name, str) or not name:
            raise UnhashableInput(f"{here} has neither a uri nor an id.", field=here)
        if not any(present.get(field) not in (None, "") for field in CONTENT_FIELDS):
            raise UnhashableInput(
                f"{here} ({name}) has nothing that identifies its content: {', '.join(CONTENT_FIELDS)}.",
                field=here,
            )
        tagged = tag_floats({"inputs": {index: present}})["inputs"][index]
        encoded = _encoded_row(tagged, index)
        known = by_name.setdefault(name, (encoded, tagged))
        if known[0] != encoded:
            raise UnhashableInput(f"{here} ({name}) stands twice, with different contents.", field=here)
    return [by_name[name][1] for name in sorted(by_name, key=utf16_order)]


def _text(value: Any) -> Any:
    """Members of a text enumeration count as their text, here as in the fast lane."""
    return str.__str__(value) if isinstance(value, str) else value


def _encoded_row(row: dict[str, Any], index: int) -> bytes:
    try:
        return canonical_bytes(row)
    except UnhashableInput as error:
        field = f"inputs[{index}].{error.facts.get('field', '')}".rstrip(".")
        raise UnhashableInput(f"{field}: {error.detail}", field=field) from None


def _as_dict(row: Any, index: int) -> dict[str, Any]:
    if isinstance(row, msgspec.Struct):
        return {field: getattr(row, field) for field in row.__struct_fields__}
    if isinstance(row, Mapping):
        return dict(row)
    raise UnhashableInput(
        f"inputs[{index}] is a {type(row).__name__}, not a mapping or a record.", field=f"inputs[{index}]"
    )
