"""The fast way to canonical bytes is the reference's, for every document there is."""

from __future__ import annotations

import json
import math
import struct
from typing import Any

import pytest
import rfc8785
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kfm.model.canonical import (
    INT_MAX,
    canonical_bytes,
    canonical_hashed,
    float_text,
    strict_loads,
    tag_floats,
)
from kfm.model.errors import KfmError, UnhashableInput

# Drawn so that code point order and UTF-16 order disagree often.
_TRICKY = st.text(
    st.sampled_from('aZ09 "\\/\x00\x1f\x7f\x80é€\ud7ff\ue000\ufffd\uffff\U00010000😀\U0010ffff'), max_size=4
)
_TEXT = st.one_of(_TRICKY, st.text(max_size=8))
_WHOLE = st.integers(-INT_MAX, INT_MAX)
_SCALARS = st.one_of(st.none(), st.booleans(), _WHOLE, _TEXT)


def _nested(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.recursive(
        leaves,
        lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(_TEXT, inner, max_size=4)),
        max_leaves=12,
    )


DOCUMENTS = _nested(_SCALARS)
WITH_FLOATS = _nested(st.one_of(_SCALARS, st.floats(allow_nan=False, allow_infinity=False)))


@pytest.mark.req("RS-6")
@settings(max_examples=400, deadline=None)
@given(DOCUMENTS)
@example({"\uffff": 1, "\U00010000": 2})
def test_bytes_are_the_references(document: Any) -> None:
    """Whichever path is taken, the bytes are those of the RFC 8785 reference."""
    assert canonical_bytes(document) == rfc8785.dumps(document)


@settings(max_examples=200, deadline=None)
@given(DOCUMENTS)
def test_reading_gives_the_document_back(document: Any) -> None:
    """Canonical bytes, read strictly, are the document, and become the same bytes again."""
    encoded = canonical_bytes(document)
    assert strict_loads(encoded) == document
    assert canonical_bytes(strict_loads(encoded)) == encoded


def _has_tag(document: Any) -> bool:
    return '"$float":' in json.dumps(document)


@pytest.mark.req("RS-6")
@settings(max_examples=300, deadline=None)
@given(WITH_FLOATS)
def test_tagging_is_what_hashing_does(document: Any) -> None:
    """`canonical_hashed` takes short cuts, and none of them shows."""
    if not _has_tag(document):
        assert canonical_hashed(document) == rfc8785.dumps(tag_floats(document))


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(_TEXT, _SCALARS, min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_order_of_members_does_not_matter(document: dict[str, Any], chance: Any) -> None:
    """Two objects with the same members have the same bytes."""
    members = list(document.items())
    chance.shuffle(members)
    assert canonical_bytes(dict(members)) == canonical_bytes(document)


@settings(max_examples=300, deadline=None)
@given(st.binary(min_size=8, max_size=8).map(lambda raw: struct.unpack(">d", raw)[0]))
def test_float_text_is_exact_and_shortest(value: float) -> None:
    """The text of a float reads back as the float, and has no digit more than Python's shortest."""
    if not math.isfinite(value):
        with pytest.raises(UnhashableInput):
            tag_floats(value)
        return
    text = float_text(value)
    assert float(text) == value
    digits = [part.partition("e")[0].replace(".", "").strip("-0") for part in (text, repr(value))]
    assert digits[0] == digits[1]


@settings(max_examples=200, deadline=None)
@given(
    st.one_of(st.binary(max_size=30), st.text('{}[]",:0123456789eE+-.ntf\\ua ', max_size=20).map(str.encode))
)
def test_strict_reading_reads_or_refuses(data: bytes) -> None:
    """Any bytes are either read, and then the usual reader agrees, or refused with our own error."""
    try:
        document = strict_loads(data)
    except KfmError:
        return
    assert document == json.loads(data)
