"""Documents that are rendered as far as they changed: the same bytes as if all had been rendered."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from kfm.model.item_ids import item_id
from kfm.model.records import Asset, Item, Window
from kfm.model.settings import Care, DatasetSettings, Rights
from kfm.model.times import MS_MAX, MS_MIN, parse_rfc3339
from kfm.model.versions import Version, edited
from kfm.publish.catalogue import Earlier, HashedDocuments, NamedDocuments, documents
from kfm.publish.catalogue import pages as catalogue_pages
from kfm.publish.manifest import header, merge_items

pytestmark = [pytest.mark.req("UPD-16"), pytest.mark.req("GRO-1")]

RIGHTS = Rights(license="CC0-1.0", care=Care(label="Public · Low-Risk"))
DATASET = DatasetSettings(id="goes", title="GOES", rights=RIGHTS)
# Ids of these stand between one another: only the items tell whose they are.
SOURCES = ("goes", "goes_16", "goes_2026", "goes_20260101", "goes_20260101T00", "goes east", "goes-east", "a")
START_MS = parse_rfc3339("2025-12-30T00:00:00Z")
HOUR_MS = 3_600_000


def drawn(dice: random.Random) -> Item:
    source, partition = dice.choice(SOURCES), dice.choice((None, None, "north", "a/b"))
    start_ms, end_ms = MS_MIN, MS_MAX
    if dice.random() < 0.9:
        start_ms = START_MS + dice.randrange(24 * 400 if dice.random() < 0.3 else 72) * HOUR_MS
        end_ms = start_ms + HOUR_MS
    name = item_id(source, Window(start_ms=start_ms, end_ms=end_ms, spec=""), partition)
    data = f"{dice.randrange(3)}"
    asset = Asset(path=f"{name}/a b.csv", sha256=data * 64, size=dice.randrange(9), media_type="text/csv")
    return Item(
        id=name,
        source_id=source,
        window_start_ms=start_ms,
        window_end_ms=end_ms,
        partition=partition,
        assets=(asset,),
    )


def histories(seed: int) -> Iterator[Version]:
    """Versions that grow and shrink across the number of items that a collection lists itself."""
    dice = random.Random(seed)
    version = merge_items(None, DATASET, [drawn(dice)], "merge")
    for _ in range(12):
        yield version
        described, there = version.header, version.items()
        if dice.random() < 0.2:
            described = replace(header(DATASET, dice.choice(("goes", "other"))), title=f"{dice.random()}")
        if dice.random() < 0.1:
            described = replace(described, rights=replace(RIGHTS, attribution=f"{dice.random()}"))
        gone = dice.sample(there, dice.choice((0, 1, len(there) // 2, len(there))) if there else 0)
        changes: dict[str, Item | None] = dict.fromkeys(one.id for one in gone)
        for _ in range(dice.choice((0, 1, 3, 40, 200))):
            one = drawn(dice)
            changes[one.id] = one
        version = edited(version, described, changes)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("linked_max", [3, 100])
def test_what_changed_makes_the_whole_by_name(
    seed: int, linked_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What differs from any version before, put over its documents, gives the documents of the next."""
    monkeypatch.setattr(catalogue_pages, "LINKED_MAX", linked_max)
    before: Version | None = None
    shown: dict[str, bytes] = {}
    for version in histories(seed):
        made = NamedDocuments(version, Earlier(before, shown["collection.json"]) if before else None)
        now = dict(shown)
        for name, data in made.changed():
            if data is None:
                del now[name]
            else:
                assert now.get(name) != data, "it did not change"
                now[name] = data
        now |= made.own()
        whole = dict(documents(version))
        assert now == whole
        _require_links(whole, len(version))
        before, shown = version, whole


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("linked_max", [3, 100])
def test_what_changed_makes_the_whole_by_hash(
    seed: int, linked_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Objects are written once; those that are new, with those of before, give the documents of the next."""
    monkeypatch.setattr(catalogue_pages, "LINKED_MAX", linked_max)
    before: Earlier | None = None
    bucket: dict[str, bytes] = {}
    for version in histories(seed):
        made = HashedDocuments(version, before, bucket.get)
        new = dict(made.new())
        bucket |= new
        whole = HashedDocuments(version)
        everything = dict(whole.new())
        assert everything.items() <= bucket.items()
        assert made.collection("../../") == whole.collection("../../")
        reached = _reached(made.collection("./"), bucket)
        assert reached == everything.keys()
        assert len(new) <= len(everything)
        before = Earlier(version, made.collection("../../"))


def test_one_more_window_costs_its_own_pages() -> None:
    """By hash, one window more of a large dataset is four pages and an item, whatever else there is."""
    items = [_hourly(hour) for hour in range(3000)]
    version = merge_items(None, DATASET, items, "merge")
    whole = HashedDocuments(version)
    bucket = dict(whole.new())
    read: list[str] = []

    def fetched(address: str) -> bytes | None:
        read.append(address)
        return bucket.get(address)

    after = merge_items(version, DATASET, [_hourly(3000)], "merge")
    made = HashedDocuments(after, Earlier(version, whole.collection("../../")), fetched)
    assert sorted(address.partition("/")[0] for address, _ in made.new()) == ["catalogue"] * 4 + ["items"]
    assert len(read) <= 4


@pytest.mark.parametrize("edit", ["gone", "altered", "none of ours"])
def test_an_edited_collection_is_not_believed(edit: str) -> None:
    """Sources are read from what is shown only if they account for every item; otherwise from the items."""
    dice = random.Random(1)
    first = merge_items(None, DATASET, {one.id: one for one in map(drawn, [dice] * 300)}.values(), "merge")
    shown = dict(documents(first))
    collection = json.loads(shown["collection.json"])
    if edit == "altered":
        collection["links"] = [link for link in collection["links"] if link.get("title") != "goes_16"]
    edited_bytes = {"gone": None, "altered": json.dumps(collection).encode(), "none of ours": b"[1]"}[edit]
    second = merge_items(first, DATASET, [_hourly(5)], "merge")
    assert NamedDocuments(second, Earlier(first, edited_bytes)).own() == NamedDocuments(second).own()


def _hourly(hour: int) -> Item:
    start_ms = START_MS + hour * HOUR_MS
    window = Window(start_ms=start_ms, end_ms=start_ms + HOUR_MS, spec="")
    return Item(
        id=item_id("goes", window, None),
        source_id="goes",
        window_start_ms=window.start_ms,
        window_end_ms=window.end_ms,
        partition=None,
        assets=(),
    )


def _require_links(found: dict[str, bytes], items: int) -> None:
    """Every link leads to a document, and every item and page is led to once."""
    led_to = []
    for name, data in found.items():
        if not name.endswith(".json") or name == "manifest.json":
            continue
        for link in json.loads(data)["links"]:
            if not link["href"].startswith("http"):
                target = _resolved(name, link["href"])
                assert target in found, (name, link)
                led_to += [target] if link["rel"] in ("child", "item") else []
    assert len(led_to) == len(set(led_to))
    assert set(led_to) == {name for name in found if name.startswith(("items/", "catalogue/"))}
    assert sum(name.startswith("items/") for name in led_to) == items


def _reached(collection: bytes, bucket: dict[str, bytes]) -> set[str]:
    found: set[str] = set()
    waiting = [("collection.json", collection)]
    while waiting:
        name, data = waiting.pop()
        for link in json.loads(data)["links"]:
            if link["rel"] in ("child", "item"):
                target = _resolved(name, link["href"])
                found.add(target)
                waiting.append((target, bucket[target]))
    return found


def _resolved(name: str, href: str) -> str:
    parts = name.split("/")[:-1]
    for part in href.split("/"):
        if part == "..":
            parts.pop()
        elif part != ".":
            parts.append(part)
    return "/".join(parts)
