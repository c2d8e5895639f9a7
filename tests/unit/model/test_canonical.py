"""Canonical bytes and strict reading, beyond what JSON vectors can hold."""

from __future__ import annotations

import enum
from collections import OrderedDict
from decimal import Decimal
from typing import Any

import pytest

from kfm.model.canonical import DEPTH_MAX, canonical_bytes, canonical_hashed, strict_loads, tag_floats
from kfm.model.errors import MalformedJson, UnhashableInput


class Colour(enum.StrEnum):
    RED = "red"


@pytest.mark.req("RS-6")
@pytest.mark.parametrize(
    ("document", "field"),
    [
        ({"params": {"area": [1, 2, 3, 0.5]}}, "params.area[3]"),
        ({"params": {"area": [1, 2, 3, float("nan")]}}, "params.area[3]"),
        (0.5, "(the whole document)"),
        ([2**53], "[0]"),
        ([-(2**53)], "[0]"),
        ({"a": {1: 2}}, "a"),
        ({"a": {None: 2}}, "a"),
        ({"a b": {"c": Decimal(1)}}, '["a b"].c'),
        ({"a": b"bytes"}, "a"),
        ({"a": {1, 2}}, "a"),
        ({"a": Colour.RED}, "a"),
        ({"a": OrderedDict(b=1)}, "a"),
        ({"a": "\ud800"}, "a"),
        ({"a": {"\udfff": 1}}, "a"),
        ({"a": object()}, "a"),
    ],
)
def test_values_without_a_canonical_form(document: Any, field: str) -> None:
    """What can't be hashed is refused, and the message names the field."""
    with pytest.raises(UnhashableInput) as refused:
        canonical_bytes(document)
    assert refused.value.facts["field"] == field
    assert field in refused.value.message


def test_document_that_contains_itself() -> None:
    """A cycle is refused instead of followed for ever, however it branches."""
    chain: list[Any] = []
    chain.append(chain)
    with pytest.raises(UnhashableInput, match="nested deeper"):
        canonical_bytes(chain)


def test_depth_is_bounded() -> None:
    """The limit of nesting is the same for objects, lists and reading."""
    for wrap in (lambda inner: [inner], lambda inner: {"a": inner}):
        document: Any = 1
        for _ in range(DEPTH_MAX):
            document = wrap(document)
        assert strict_loads(canonical_bytes(document)) == document
        for refuse in (canonical_bytes, canonical_hashed, tag_floats):
            with pytest.raises(UnhashableInput):
                refuse(wrap(document) if refuse is not tag_floats else wrap(wrap(document)))


def test_tuples_are_lists() -> None:
    """Frozen records hash as the lists that they become on the wire."""
    assert canonical_bytes({"a": (1, (2,))}) == canonical_bytes({"a": [1, [2]]})


def test_tag_key_is_refused_only_where_floats_are_tagged() -> None:
    """A tagged document is itself canonical, but can't be tagged a second time."""
    tagged = tag_floats({"a": 0.5})
    assert canonical_bytes(tagged) == b'{"a":{"$float":"0.5"}}'
    with pytest.raises(UnhashableInput, match="tagged floats"):
        canonical_hashed(tagged)


def test_reading_is_bounded() -> None:
    """A body larger than the limit is not even parsed."""
    with pytest.raises(MalformedJson, match="limit is 4"):
        strict_loads(b"[1,2]", bytes_max=4)


@pytest.mark.parametrize(
    "data", [b"\xff", b'"\xc0\x80"', b'"\xed\xa0\x80"', "[]".encode("utf-16"), b"\xef\xbb\xbf[]"]
)
def test_reading_takes_only_utf8(data: bytes) -> None:
    """Other encodings, overlong forms and encoded surrogates are refused."""
    with pytest.raises(MalformedJson):
        strict_loads(data)
