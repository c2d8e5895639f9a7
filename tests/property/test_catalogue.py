"""Catalogue items of generated keys."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kfm.model.units import Content
from kfm.nodd.catalogue import item_facts
from kfm.nodd.catalogue.item_facts import entry
from kfm.nodd.catalogue.stac_items import render_item
from kfm.nodd.dataset_registry import built_in
from kfm.nodd.grammar import Dataset, Reading, read
from kfm.nodd.messages.refusals import RecordRefusal
from tests.catalogue_model import ModelCatalogue
from tests.nodd_keys import alike
from tests.stac_checks import problems

NOW_MS = 1_790_000_000_000
DATASETS = built_in()
QUICK = settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
_CONTENT = st.builds(
    Content,
    etag=st.none() | st.sampled_from(["abc", "d41d8cd98f00b204e9800998ecf8427e-2"]),
    size=st.none() | st.integers(0, 2**53),
)


def readings(dataset: Dataset, keys: list[str]) -> list[Reading]:
    found = []
    for key in keys:
        for place in dataset.places:
            with suppress(RecordRefusal):
                reading = read(dataset, place, key)
                if reading is not None:
                    found.append(reading)
    return found


@pytest.mark.req("WAL-9")
@pytest.mark.parametrize("dataset", DATASETS, ids=lambda dataset: dataset.name)
@given(data=st.data())
@QUICK
def test_every_item_is_valid(dataset: Dataset, data: Any) -> None:
    """Whatever is taken in becomes valid STAC 1.1: data objects items, sidecars assets of them."""
    found = readings(dataset, data.draw(alike(dataset)))
    content = data.draw(_CONTENT)
    model = ModelCatalogue()
    for reading in data.draw(st.permutations(found)):
        model.put(entry(reading, content, 1, None, dataset), NOW_MS, NOW_MS)
    items = model.visible()
    assert {item.item_id for item in items} == {each.stac_item_id for each in found if each.asset == "data"}
    for item in items:
        document = render_item(item, data.draw(st.sampled_from([None, "https://example.org/stac"])))
        assert problems(document) == [], document
    assert sum(len(item.assets) for item in items) <= len({each.wal_id for each in found})


@pytest.mark.parametrize("dataset", DATASETS, ids=lambda dataset: dataset.name)
@given(data=st.data())
@QUICK
def test_the_short_way_and_the_long_way_tell_the_same(dataset: Dataset, data: Any) -> None:
    """Properties that are put together from known parts are the bytes that encoding them would give."""
    for reading in readings(dataset, data.draw(alike(dataset))):
        made = entry(reading, Content(), 1, None, dataset)
        long = item_facts._properties(
            reading, reading.platform, reading.reference_time_ms, reading.footprint, None, dataset
        )
        assert made.properties == msgspec.json.encode(long, order="sorted").decode()


@pytest.mark.parametrize("dataset", [each for each in DATASETS if each.sidecars], ids=lambda each: each.name)
@given(data=st.data())
@QUICK
def test_a_sidecar_and_its_data_agree(dataset: Dataset, data: Any) -> None:
    """Both tell the same of their item."""
    facts: dict[str, Any] = {}
    for reading in readings(dataset, data.draw(alike(dataset))):
        made = entry(reading, Content(), 1, None, dataset)
        told = (made.start_ms, made.end_ms, made.at_ms, made.properties, made.bbox, made.geometry)
        assert facts.setdefault(made.item_id, told) == told
