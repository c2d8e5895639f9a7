"""Hashes of inputs, and the fingerprint of what discovery saw."""

from __future__ import annotations

import enum
from types import MappingProxyType
from typing import Any

import msgspec
import pytest

from kfm.model.errors import UnhashableInput
from kfm.model.input_hash import fingerprint, inputs_bytes, inputs_hash
from kfm.model.records import Found


class Input(msgspec.Struct, frozen=True):
    uri: str
    etag: str | None = None
    size: int | None = None


class Tag(enum.StrEnum):
    ONE = "aa11"


PLAIN = [{"uri": "s3://b/1", "etag": "aa11"}, {"uri": "s3://b/2", "etag": "bb22"}]


def _found(**fields: Any) -> Found:
    return Found(**{"uri": "http://h/a", "path": "a", "media_type": "text/csv", **fields})


@pytest.mark.req("RS-6")
@pytest.mark.parametrize(
    "inputs",
    [
        [Input("s3://b/1", "aa11"), Input("s3://b/2", "bb22")],
        [MappingProxyType(row) for row in PLAIN],
        [{"uri": "s3://b/1", "etag": Tag.ONE}, PLAIN[1]],
        [PLAIN[1], {"uri": "s3://b/1", "etag": Tag.ONE}],
        [{**row, "version": None} for row in PLAIN],
        iter(PLAIN),
        [*PLAIN, *PLAIN],
    ],
)
def test_same_inputs_in_other_clothes(inputs: Any) -> None:
    """Records, mappings, absent members and duplicates hash as the plain inputs do."""
    assert inputs_hash(inputs) == inputs_hash(PLAIN)


def test_inputs_are_not_changed() -> None:
    """Hashing sorts a copy."""
    rows = [PLAIN[1], PLAIN[0]]
    inputs_hash(rows)
    assert rows == [PLAIN[1], PLAIN[0]]


@pytest.mark.req("RS-6")
@pytest.mark.parametrize(
    ("inputs", "params", "field"),
    [
        ([PLAIN[0], {"uri": "s3://b/2", "etag": "x", "cloud": float("nan")}], {}, "inputs[1].cloud"),
        ([PLAIN[0], {"uri": "s3://b/2", "etag": "x", "n": 2**60}], {}, "inputs[1].n"),
        ([PLAIN[0], {"uri": "s3://b/2", "etag": object()}], {}, "inputs[1].etag"),
        ([PLAIN[1], PLAIN[0], {"uri": "s3://b/2", "etag": "x"}], {}, "inputs[2]"),
        ([PLAIN[1], {"uri": "s3://b/0"}], {}, "inputs[1]"),
        (PLAIN, {"area": [1, 2, 3, float("inf")]}, "params.area[3]"),
        (PLAIN, {"limit": 2**53}, "params.limit"),
        (PLAIN, {"when": object()}, "params.when"),
        ([], {"when": object()}, "params.when"),
        ([*PLAIN, 7], {}, "inputs[2]"),
    ],
)
def test_unhashable_inputs_are_named(inputs: Any, params: Any, field: str) -> None:
    """What can't be hashed fails closed and names the field, by its place in what was given."""
    with pytest.raises(UnhashableInput) as refused:
        inputs_hash(inputs, params)
    assert refused.value.facts["field"] == field


def test_different_inputs_differ() -> None:
    """Name, content, parameters and number of inputs all count."""
    hashes = {
        inputs_hash(PLAIN),
        inputs_hash(PLAIN[:1]),
        inputs_hash(PLAIN, {"a": 1}),
        inputs_hash(PLAIN, {"a": "1"}),
        inputs_hash(PLAIN, {"a": 0.1}),
        inputs_hash(PLAIN, {"a": {"b": "0.1"}}),
        inputs_hash([PLAIN[0], {**PLAIN[1], "etag": "cc"}]),
        inputs_hash([PLAIN[0], {**PLAIN[1], "uri": "s3://b/3"}]),
        inputs_hash([]),
    }
    assert len(hashes) == 9


@pytest.mark.req("UPD-5")
def test_fingerprint_uses_the_strongest_sign() -> None:
    """A touched file with the same checksum is unchanged; a new ETag is a change."""
    assert fingerprint([_found(checksum="sha256:a", modified_ms=1)]) == fingerprint(
        [_found(checksum="sha256:a", modified_ms=2)]
    )
    assert fingerprint([_found(etag="x", modified_ms=1)]) == fingerprint([_found(etag="x", modified_ms=2)])
    assert fingerprint([_found(etag="x")]) != fingerprint([_found(etag="y")])
    assert fingerprint([_found(modified_ms=1, size=4)]) != fingerprint([_found(modified_ms=1, size=5)])
    assert fingerprint([_found(modified_ms=0)]) != fingerprint([_found(modified_ms=1)])


def test_fingerprint_counts_only_upstream() -> None:
    """Where an object will be published says nothing about whether it changed."""
    assert fingerprint([_found(etag="x", path="a")]) == fingerprint([_found(etag="x", path="b")])


def test_fingerprint_of_an_object_without_signs() -> None:
    """An object that can't be told from its successor is refused by name."""
    with pytest.raises(UnhashableInput, match=r"found\[1\] \(http://h/b\)"):
        fingerprint([_found(etag="x"), _found(uri="http://h/b", size=3)])


def test_bytes_are_one_document() -> None:
    """The hashed bytes are plain canonical JSON, which other tools can check."""
    assert inputs_bytes(PLAIN[:1], {"x": 0.5}) == (
        b'{"inputs":[{"etag":"aa11","uri":"s3://b/1"}],"kfm":"inputs/1","params":{"x":{"$float":"0.5"}}}'
    )
