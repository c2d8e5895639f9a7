"""A signature detects every change of a signed field."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kfm.nodd.dataset_registry import load_registry
from kfm.nodd.messages.record_outcomes import parse_message
from kfm.nodd.messages.refusals import RecordRefusal
from kfm.nodd.messages.sns import SIGNED, text_to_sign
from kfm.nodd.messages.sns_signatures import Verifier
from tests.sns_topic import TOPICS, Shelf, body, notification, signed
from tests.stand_ins import START_MS, FakeClock

pytestmark = pytest.mark.req("WAL-20")
VERIFIER = Verifier(Shelf(), FakeClock(), TOPICS)
# Texts in which the names of fields stand on lines of their own, as who would deceive us would write them.
LINES = st.lists(st.sampled_from([*SIGNED, "x", "", "Notification"]), max_size=6).map("\n".join)
TEXTS = LINES | st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
FIELDS = ("Message", "MessageId", "Subject", "Timestamp")
DOCUMENTS = st.fixed_dictionaries(
    {"Message": TEXTS, "MessageId": TEXTS, "Timestamp": TEXTS}, optional={"Subject": TEXTS}
)


def said(document: dict[str, Any]) -> dict[str, Any]:
    return {name: document[name] for name in SIGNED if document.get(name) is not None}


@given(DOCUMENTS, st.sampled_from(FIELDS), TEXTS | st.none())
def test_any_change_of_a_signed_field_is_refused(
    fields: dict[str, str], name: str, changed: str | None
) -> None:
    """Replaced, taken away or added: the signature is for exactly what was said."""
    document = notification(**fields)
    forged = signed(document) | {name: changed}
    assume(said(forged) != said(document))
    refusal = VERIFIER.check(body(forged))
    assert refusal is not None
    assert refusal.code in ("SIGNATURE_INVALID", "ENVELOPE_INVALID")


@given(DOCUMENTS, DOCUMENTS)
def test_two_that_differ_have_no_signed_text_in_common(one: dict[str, str], other: dict[str, str]) -> None:
    """However fields are moved into each other."""
    first, second = notification(**one), notification(**other)
    assume(one != other)
    with contextlib.suppress(RecordRefusal):
        assert text_to_sign(first) != text_to_sign(second)


@given(DOCUMENTS)
def test_a_signed_text_can_be_read_back(fields: dict[str, str]) -> None:
    """From its end, line by line, without any doubt: so no other fields have the same."""
    document = notification(**fields)
    try:
        lines = text_to_sign(document).decode().removesuffix("\n").split("\n")
    except RecordRefusal:
        return
    found: dict[str, str] = {}
    for name in ("Type", "TopicArn", "Timestamp", "Subject", "MessageId"):
        if name == "Subject" and lines[-2] != "Subject":
            continue
        assert lines[-2] == name
        found[name] = lines.pop()
        lines.pop()
    assert lines[0] == "Message"
    assert found | {"Message": "\n".join(lines[1:])} == said(document)


@given(st.binary(max_size=200) | st.text().map(str.encode))
def test_no_body_raises(raw: bytes) -> None:
    """And none that its topic did not sign passes."""
    assert VERIFIER.check(raw) is not None


RECORD = {
    "eventVersion": "2.1",
    "eventSource": "aws:s3",
    "eventTime": "2026-01-01T00:01:00.000Z",
    "eventName": "ObjectCreated:Put",
    "s3": {
        "bucket": {"name": "noaa-mrms-pds"},
        "object": {"key": "CONUS/PrecipRate_00.00/20260101/MRMS_PrecipRate_00.00_20260101-000000.grib2.gz"},
    },
}
GENUINE = body(signed(notification(body({"Records": [RECORD]}).decode())))
REGISTRY = load_registry()
PIECES = st.sampled_from(
    [b'"', b"\\", b"{", b"}", b",", b" ", b"\n", b'"Message":"{}",', b'"Type":"x",', b"0"]
)


@given(st.lists(st.tuples(st.floats(0, 1), st.integers(0, 2), PIECES | st.binary(max_size=3)), max_size=3))
def test_what_passes_is_read_as_it_was_signed(changes: list[tuple[float, int, bytes]]) -> None:
    """Whatever bytes are changed: who checks a message and who reads it never understand two things."""
    raw = GENUINE
    for place, cut, piece in changes:
        at = int(place * len(raw))
        raw = raw[:at] + piece + raw[at + cut :]
    if VERIFIER.check(raw) is None:
        assert parse_message(raw, REGISTRY, START_MS) == parse_message(GENUINE, REGISTRY, START_MS)
