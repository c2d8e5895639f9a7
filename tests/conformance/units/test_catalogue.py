"""The catalogue's answers on every database, beside those of a model that is too plain to be wrong."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from kfm.db.ledger import Ledger
from kfm.model.catalogue import CatalogueEntry, CatalogueItem, Search
from kfm.model.units import Content
from kfm.nodd.catalogue.item_facts import entry
from tests.catalogue_model import ModelCatalogue
from tests.catalogue_samples import DATASETS, NOW_MS, REGISTRY, keys
from tests.conformance.units.scene import Scene, done, gone, taken
from tests.conformance.units.scene import entry as told_of
from tests.unit_pages import register

START_MS = 1_704_067_200_000
NAMES = ("hrrr", "mine", "nexrad-l2", "goes-abi", "ghcn-d", "none")
BATCH = 7
EVERYTHING = 10_000


def entries() -> list[CatalogueEntry]:
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


def plain(item: CatalogueItem) -> CatalogueItem:
    """Without what counts and dates changes."""
    assets = tuple(sorted(item.assets, key=lambda each: each.wal_id))
    return replace(item, number=0, revision=0, created_at_ms=0, updated_at_ms=0, assets=assets)


@pytest.mark.req("WAL-9")
def test_searches_find_what_the_model_finds(open_store: Callable[[], Ledger]) -> None:
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


@pytest.mark.req("WAL-9")
def test_figures_are_kept_without_counting(open_store: Callable[[], Ledger]) -> None:
    """How many items there are follows every change; extents cover all that was ever to be seen."""
    scene = Scene(open_store())
    for number, hour in enumerate((5, 3, 8)):
        claimed = scene.claimed(f"n{number}")
        at_ms = START_MS + hour * 3_600_000
        west = -100.0 + hour + 0.1234567
        told = told_of(
            claimed, start_ms=at_ms, end_ms=at_ms + 1, at_ms=at_ms, bbox=(west, 1.5, west + 2, 9.25)
        )
        scene.end(done(claimed, told))
        if number == 1:
            scene.units.fold_counts()
    (figures,) = scene.catalogue.collections()
    assert (figures.collection_id, figures.items) == ("hrrr", 3)
    assert (figures.start_ms, figures.end_ms) == (START_MS + 3 * 3_600_000, START_MS + 8 * 3_600_000 + 1)
    assert figures.bbox == (-96.8765433, 1.5, -89.8765433, 9.25)
    scene.take(gone("n2", removing="remove"), gone("n2", "03", removing="remove"))
    (after,) = scene.catalogue.collections()
    assert after == replace(figures, items=2)
    scene.take(taken("n2", "e2", "04"))
    claimed = scene.claimed("n2")
    scene.end(done(claimed))
    assert scene.catalogue.collections()[0].items == 3
    for name in ("n0", "n1", "n2"):
        scene.take(gone(name, "09", removing="remove"))
    assert scene.catalogue.collections() == []
    assert scene.catalogue.collection_ids() == ["hrrr"]
    assert not any(name.startswith("catalogue:") for _, name in scene.units.unit_counts())


def test_an_item_is_counted_when_its_data_are_there(scene: Scene) -> None:
    """An index alone is nothing to be seen; neither does it widen the extent."""
    index = scene.claimed("n.idx")
    scene.end(done(index, told_of(index, "n", role="index", bbox=(0.0, 0.0, 1.0, 1.0))))
    assert scene.catalogue.collections() == []
    data = scene.claimed("n")
    scene.end(done(data, told_of(data, "n")))
    (figures,) = scene.catalogue.collections()
    assert (figures.items, figures.bbox) == (1, (-102.0, 37.0, -94.5, 40.0))
