"""The catalogue's answers on every database, beside those of a model that is too plain to be wrong."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from kfm.core.catalogue import Entry, Item, Search
from kfm.core.wal import Content
from kfm.ingest.entries import entry
from kfm.store.catalogue import register
from kfm.store.ledger import SqlStore
from tests.catalogue_model import ModelCatalogue
from tests.catalogue_samples import DATASETS, NOW_MS, REGISTRY, keys

START_MS = 1_704_067_200_000
NAMES = ("hrrr", "mine", "nexrad-l2", "goes-abi", "ghcn-d", "none")
BATCH = 7
EVERYTHING = 10_000


def entries() -> list[Entry]:
    found = []
    for index, (bucket, key) in enumerate(keys()):
        reading = REGISTRY.read("aws", bucket, key)
        content = Content(etag=f"e{index}", size=index)
        found.append(entry(reading, content, 1, None, DATASETS.get(reading.dataset)))
    random.Random(5).shuffle(found)
    return found


def searches(chance: random.Random, items: list[str]) -> Search:
    def moment() -> int | None:
        return chance.choice([None, START_MS + chance.randint(-3_600_000, 90_000_000)])

    west, east = (round(chance.uniform(-180, 180), 2) for _ in range(2))
    south, north = sorted(round(chance.uniform(-90, 90), 2) for _ in range(2))
    return Search(
        collections=tuple(chance.sample(NAMES, chance.randint(0, 3))),
        ids=chance.choice([(), (), (), tuple(chance.sample(items, 20))]),
        bbox=chance.choice([None, (west, south, east, north)]),
        from_ms=moment(),
        until_ms=moment(),
        limit=EVERYTHING,
    )


def plain(item: Item) -> Item:
    """Without what counts and dates changes."""
    assets = tuple(sorted(item.assets, key=lambda each: each.wal_id))
    return replace(item, number=0, revision=0, created_at_ms=0, updated_at_ms=0, assets=assets)


@pytest.mark.req("WAL-9")
def test_searches_find_what_the_model_finds(open_store: Callable[[], SqlStore]) -> None:
    """By collection, id, box and time; page by page none is missing and none comes twice."""
    store, model, chance = open_store(), ModelCatalogue(), random.Random(7)
    told = entries()
    for start in range(0, len(told), BATCH):
        batch, now_ms = told[start : start + BATCH], NOW_MS + start
        store._database.write(lambda session, batch=batch, now_ms=now_ms: register(session, batch, now_ms))
        for one in batch:
            model.put(one, now_ms, now_ms)
    catalogue: Any = store.catalogue()

    def found(search: Search) -> list[tuple[str, str]]:
        return [(each.collection_id, each.item_id) for each in catalogue.find_items(search)]

    everything = {each.item_id: plain(each) for each in catalogue.find_items(Search(limit=EVERYTHING))}
    assert everything == {each.item_id: plain(each) for each in model.visible()}
    assert catalogue.collections() == model.collections()
    for _ in range(150):
        search = searches(chance, list(everything))
        wanted = {(each.collection_id, each.item_id) for each in model.find_items(search)}
        whole = found(search)
        assert set(whole) == wanted, search
        pages: list[tuple[str, str]] = []
        page = replace(search, limit=max(1, len(whole) // 4))
        while items := catalogue.find_items(page):
            pages += ((each.collection_id, each.item_id) for each in items)
            page = replace(page, after=(items[-1].at_ms, items[-1].number))
        assert pages == whole, search
