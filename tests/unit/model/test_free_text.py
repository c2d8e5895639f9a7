"""Prose that is kept quotes no place and no person, and ordinary messages stay as they are."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfm.model.canonical import tag_floats
from kfm.model.redaction import (
    COORDINATES,
    PERSONAL_NUMBER,
    PROSE_CHARS_MAX,
    Discretion,
    free_text,
    redact,
    redacted_document,
)
from tools.vector_cases.prose import MAIL, REMOVED, STAYS

pytestmark = pytest.mark.req("RS-13")


@pytest.mark.parametrize(("text", "kept"), REMOVED)
def test_places_and_persons_are_taken_out(text: str, kept: str) -> None:
    """What was taken out is named in its place; the rest of the message stays."""
    assert free_text(text) == kept


@pytest.mark.parametrize("text", STAYS)
def test_ordinary_messages_stay(text: str) -> None:
    """Versions, times, sizes, ids, dates, digests, addresses and figures are no places and no persons."""
    assert free_text(text) == text


degrees = st.decimals(min_value=-90, max_value=90, places=5, allow_nan=False, allow_infinity=False)
words = st.text(alphabet="abcdefghijklmnop ", max_size=20)


@given(
    latitude=degrees.filter(lambda one: abs(one) >= 1),
    longitude=st.decimals(min_value=-180, max_value=180, places=4),
    between=st.sampled_from([", ", ",", " ", "; "]),
    around=words,
)
def test_no_pair_of_degrees_survives(latitude: object, longitude: object, between: str, around: str) -> None:
    """Whatever their order and separator, and whatever stands around them."""
    for text in (f"{latitude}{between}{longitude}", f"[{longitude}{between}{latitude}]"):
        kept = free_text(f"{around} ({text}) {around}")
        assert str(latitude).lstrip("-") not in kept
        assert COORDINATES in kept


@given(
    user=st.from_regex(r"[a-z][a-z0-9._+-]{0,30}", fullmatch=True),
    host=st.from_regex(r"([a-z][a-z0-9]{0,9}\.){1,3}[a-z]{2,6}", fullmatch=True),
    around=words,
)
def test_no_mail_address_survives(user: str, host: str, around: str) -> None:
    """In whatever text."""
    assert f"{user}@{host}" not in free_text(f"{around} <{user}@{host}>, {around}")


@given(text=st.text(max_size=300))
def test_filtering_twice_changes_nothing(text: str) -> None:
    """What was filtered passes the next filter as it is."""
    once = free_text(text)
    assert free_text(once) == once


@given(st.uuids(), st.datetimes(), st.binary(min_size=32, max_size=32), st.integers(0, 10**12))
def test_ids_times_digests_and_numbers_stay(name: object, at: object, digest: bytes, number: int) -> None:
    """The facts by which a record is found are never taken for a person."""
    text = f"run {name} at {at}Z: sha256:{digest.hex()} has {number} bytes, {number:,} in words"
    assert free_text(text) == text


def test_whole_values_are_cut() -> None:
    """A data frame in an error is no record: the beginning is kept, and how much was removed is said."""
    kept = free_text("x" * (PROSE_CHARS_MAX + 1234))
    assert kept == "x" * PROSE_CHARS_MAX + "… [1,234 characters removed]"


def test_every_record_passes_it() -> None:
    """Errors and what people say, with secrets masked as before; an address keeps its path."""
    discretion = Discretion(lambda: ["hunter2-and-more"])
    text = "hunter2-and-more at 38.123456, -97.654321"
    assert discretion(text) == discretion.said(text) == f"*** at {COORDINATES}"
    assert discretion.said("ann@example.org") == "ann@example.org"
    assert redact("https://example.org/points/38.1234,-97.6543").endswith("/points/38.1234,-97.6543")


def test_parameters_that_are_places_or_persons() -> None:
    """By their values, and by their names; figures that are neither stay as they are."""
    document: Any = {
        "aoi": [-97.654321, 38.123456],
        "ring": [[-97.654, 38.123], [-97.111, 38.999]],
        "center_lat": 38.12,
        "contact": "john.smith@example.com",
        "ssn": "078051120",
        "thresholds": [0.125, 0.375],
        "levels": [1, 2, 3],
        "rate": 12.345,
        "version": "3.11.4",
    }
    text = msgspec.json.encode(tag_floats({"inputs": [], "params": document})).decode()
    kept = msgspec.json.decode(redacted_document(text))["params"]
    document = tag_floats(document)
    assert kept == {
        **document,
        "aoi": COORDINATES,
        "ring": [COORDINATES, COORDINATES],
        "center_lat": COORDINATES,
        "contact": MAIL,
        "ssn": PERSONAL_NUMBER,
    }


@pytest.mark.parametrize(
    "text", ["1.234 " * 3000, "a@" * 4000, "+1 (" * 3000, "1-" * 5000, "38.1234," * 2000]
)
def test_no_text_takes_long(text: str) -> None:
    """The patterns are linear in what they read."""
    import time

    began = time.process_time()
    free_text(text)
    assert time.process_time() - began < 1
