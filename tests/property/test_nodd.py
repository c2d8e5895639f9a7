"""Generated keys, and generated bodies that no sender would send."""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import quote_plus

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from kfm.model.units import newer
from kfm.nodd.dataset_registry import built_in, load_registry
from kfm.nodd.grammar import Dataset, escaped, item_id, read
from kfm.nodd.messages.record_outcomes import Arrival, line, parse_key, parse_message
from kfm.nodd.messages.refusals import IGNORED, REFUSED, SUSPECT, RecordRefusal
from kfm.nodd.object_keys import decode_key
from tests.nodd_keys import alike, fields_of

NOW_MS = 1_790_000_000_000
REGISTRY = load_registry()
DATASETS = built_in()
QUICK = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
_JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-3, 2**65), st.floats(), _TEXT),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_TEXT, inner, max_size=3)),
    max_leaves=8,
)


@pytest.mark.req("WAL-20")
@pytest.mark.parametrize("dataset", DATASETS, ids=lambda dataset: dataset.name)
@given(data=st.data())
@QUICK
def test_two_objects_are_two_items(dataset: Dataset, data: Any) -> None:
    """No two data objects of a dataset share an item; a sidecar has the item of what it describes."""
    items: dict[str, str] = {}
    units: dict[str, str] = {}
    for key in data.draw(alike(dataset)):
        for place in dataset.places:
            try:
                reading = read(dataset, place, key)
            except RecordRefusal:
                continue
            if reading is None:  # a file without folders need not be a key
                continue
            data_uri = reading.data_uri or reading.object_uri
            assert items.setdefault(reading.stac_item_id, data_uri) == data_uri
            assert units.setdefault(reading.wal_id, reading.object_uri) == reading.object_uri
            assert "/" not in reading.stac_item_id


@pytest.mark.parametrize("dataset", DATASETS, ids=lambda dataset: dataset.name)
@given(data=st.data())
@QUICK
def test_keys_are_read_and_written_again(dataset: Dataset, data: Any) -> None:
    """A key made of fields is read, and what was read makes the same key."""
    rule = data.draw(st.sampled_from(dataset.rules))
    fields = data.draw(fields_of(rule))
    key = rule.pattern.render(fields)
    found = rule.pattern.match(key)
    assert found is not None
    assert rule.pattern.render(found) == key
    if not any("." in kind or "_" in kind or "/" in kind for kind in rule.pattern.kinds.values()):
        # Fields that can't hold what separates them come back as they went.
        assert all(value in (None, fields[name]) for name, value in found.items())


@given(
    st.one_of(_TEXT.filter(bool), st.text("ab/~-2D.%+", min_size=1, max_size=8)),
    st.text("ab/~-2D.%+", min_size=1),
)
@settings(deadline=None)
def test_escaped_keys_do_not_collide(one: str, other: str) -> None:
    """Ids that follow from keys differ if the keys do, and none looks like one with a hash."""
    assume(one != other)
    assert escaped(one) != escaped(other)
    assert "~--" not in escaped(one)
    assert re.fullmatch(r"[A-Za-z0-9._~-]*", escaped(one))
    where = ("aws", "b-b")
    assert item_id(one, where) != item_id(other, where, marked=True)
    assert len(item_id(one * 300, where)) <= 200


@given(_TEXT)
@settings(deadline=None)
def test_keys_survive_their_encoding(key: str) -> None:
    """What S3 encodes is decoded to the same key."""
    assert decode_key(quote_plus(key, safe="/")) == key


@given(st.text("%+0aFg ", max_size=12))
@settings(deadline=None)
def test_any_escapes_are_decoded_or_refused(text: str) -> None:
    """Malformed escapes are an answer, not a crash."""
    try:
        key = decode_key(text)
    except RecordRefusal:
        assert "%" in text
    else:
        assert "+" not in key or "%2b" in text.lower()


@given(st.text("0123456789ABCDEFabcdef", min_size=1), st.text("0123456789ABCDEF", min_size=1))
def test_sequencers_have_one_order(one: str, other: str) -> None:
    """Never are both of two sequencers the newer one."""
    assert not (newer(one, other) and newer(other, one))


@pytest.mark.req("WAL-20")
@given(st.binary(max_size=200))
@settings(deadline=None)
def test_no_bytes_crash_it(body: bytes) -> None:
    """Any bytes have at least one answer with a known code."""
    _check(body)


@pytest.mark.req("WAL-20")
@given(
    _JSON, st.sampled_from(["raw", "records", "s3", "object", "sns", "detail", "message", "data", "chunk"])
)
@settings(deadline=None, max_examples=200)
def test_no_document_crashes_it(value: Any, where: str) -> None:
    """Anything in the place of anything has an answer."""
    thing = {"s3": {"bucket": {"name": "noaa-goes16"}, "object": {"key": "x"}}}
    record: dict[str, Any] = {
        "eventSource": "aws:s3",
        "eventVersion": "2.1",
        "eventName": "ObjectCreated:Put",
        **thing,
    }
    made = {
        "raw": value,
        "records": {"Records": value},
        "s3": {
            "Records": [record | {"s3": value}, record | {"eventTime": value}, record | {"eventName": value}]
        },
        "object": {"Records": [record | {"s3": thing["s3"] | {"object": value}}]},
        "sns": {"Type": "Notification", "TopicArn": value, "Message": value},
        "detail": {"source": "aws.s3", "detail-type": "Object Created", "detail": value},
        "message": {
            "message": {"attributes": {"eventType": "OBJECT_FINALIZE", "bucketId": value}, "data": value}
        },
        "data": {
            "specversion": "1.0",
            "type": "Microsoft.Storage.BlobCreated",
            "data": value,
            "subject": value,
        },
        "chunk": {"S3Bucket": value, "Key": value, "VolumeID": value},
    }
    _check(json.dumps(made[where]).encode())


@given(
    st.sampled_from(sorted({place.bucket for dataset in DATASETS for place in dataset.places})),
    st.text(max_size=60),
)
@settings(deadline=None)
def test_no_key_crashes_it(bucket: str, key: str) -> None:
    """Any text is a key of the bucket, or an error line."""
    outcome = parse_key(bucket, key, REGISTRY, NOW_MS)
    assert isinstance(outcome, Arrival) or getattr(line(outcome), "error_code", "") in REFUSED


def _check(body: bytes) -> None:
    outcomes = parse_message(body, REGISTRY, NOW_MS)
    assert outcomes
    for outcome in outcomes:
        said = line(outcome)
        if isinstance(outcome, Arrival):
            assert set(outcome.reading.suspect) <= set(SUSPECT)
        else:
            assert getattr(said, "error_code", None) in REFUSED.keys() | IGNORED.keys()
