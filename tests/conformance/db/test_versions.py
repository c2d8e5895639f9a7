"""Versions as trees: what versions share is kept once, and every version is what it was."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from kfm.db.ledger import Ledger
from kfm.db.session import Session
from kfm.db.versions import VersionReader
from kfm.model.errors import LostLease, StoreCorrupt
from kfm.model.item_ids import item_id
from kfm.model.records import Item, Manifest, Window
from kfm.model.version_trees import header_of, manifest_pieces
from kfm.model.versions import Version, edited, new_rows, version_of, whole_id
from kfm.publish.manifest import of_window
from kfm.runs.version_conversion import VersionConversion
from tests.conformance.db import ledgers
from tests.conformance.db.ledgers import START_MS, Desk, digest, entry, manifest

pytestmark = pytest.mark.req("GRO-1")

HOUR_MS = 3_600_000


def window(number: int) -> Window:
    return Window(start_ms=START_MS + number * HOUR_MS, end_ms=START_MS + (number + 1) * HOUR_MS, spec="PT1H")


def hourly(number: int, text: str = "") -> Item:
    (item,) = manifest(text or f"hour {number}").items
    at = window(number)
    asset = replace(item.assets[0], path=f"{number:05d}.csv")
    name = item_id(item.source_id, at, None)
    return replace(item, id=name, window_start_ms=at.start_ms, window_end_ms=at.end_ms, assets=(asset,))


def of_hours(items: Iterable[Item]) -> Manifest:
    return replace(manifest(""), items=tuple(sorted(items, key=lambda item: item.id)))


def promote(desk: Desk, name: str, made: Manifest | Version) -> str:
    """On top of the head, as a run does it."""
    version = made if isinstance(made, Version) else on_head(desk.store, made)
    answer = desk.promote(desk.admitted(name), version_id=version.version_id, version=version)
    assert answer.answer == "promoted"
    return version.version_id


def on_head(store: Ledger, made: Manifest) -> Version:
    head = store.head("ks-streamflow")
    if head is None:
        return version_of(made)
    there, wanted = ({item.id: item for item in some} for some in (head[1].items(), made.items))
    changes: dict[str, Item | None] = {name: None for name in there if name not in wanted}
    return edited(head[1], header_of(made), changes | wanted)


def kept(store: Ledger, version: str) -> Manifest:
    found = store.version(version)
    assert found is not None
    return found.manifest()


def rows(store: Ledger, name: str) -> list[str]:
    return [row[0] for row in store.database.session.all(f"{name}.ids", after_id="", row_limit=100_000)]


def keep_whole(store: Ledger, version: str, made: Manifest) -> None:
    """As versions were stored before they were trees."""
    from kfm.db.rows import text_of

    values = {"version_id": version, "dataset_id": "ks-streamflow", "manifest": text_of(made)}
    values |= {"tree_id": None, "files_id": None}  # type: ignore[dict-item]
    store.database.write(lambda session: session.all("versions.insert", **values))


def test_versions_share_what_they_have_in_common(desk: Desk) -> None:
    """A version adds its own items and the pages that lead to them; each reads back as it was promoted."""
    store, items, made = desk.store, [hourly(number) for number in range(300)], {}
    first = of_hours(items)
    made[promote(desk, "first", first)] = first
    pages = len(rows(store, "version_pages"))
    assert len(rows(store, "version_items")) == 300
    for number in (300, 301):
        items.append(hourly(number))
        made[promote(desk, str(number), of_hours(items))] = of_hours(items)
    items[7] = hourly(7, "corrected")
    made[promote(desk, "corrected", of_hours(items))] = of_hours(items)
    made[promote(desk, "fewer", of_hours(items[5:]))] = of_hours(items[5:])
    assert len(rows(store, "version_items")) == 303
    assert len(rows(store, "version_pages")) <= pages + 4 * 2 * 3, "a page on each level of both trees"
    for version, promoted in made.items():
        assert kept(store, version) == promoted
        assert version_of(promoted).version_id == version
        assert VersionReader(store.database).version(version).manifest() == promoted  # type: ignore[union-attr]


def test_an_empty_version_has_no_page(desk: Desk) -> None:
    """Everything may be taken out, and put back."""
    store, full, empty = desk.store, of_hours([hourly(1)]), of_hours([])
    for name, made in (("a", full), ("b", empty), ("c", full)):
        assert kept(store, promote(desk, name, made)) == made
    assert len(rows(store, "version_pages")) == 2


def test_one_window_is_read_by_its_way_through_the_tree(desk: Desk) -> None:
    """What a version has of a window is found without its other items."""
    version = promote(desk, "all", of_hours(hourly(number) for number in range(300)))
    reader = VersionReader(desk.store.database)
    found = reader.version(version)
    assert found is not None
    assert of_window(found, "usgs-daily", window(123)) == [hourly(123)]
    assert of_window(found, "usgs-daily", window(300)) == []
    assert len(reader.remembered.items) == 1
    assert found.header == replace(manifest(""), items=())


@pytest.mark.parametrize("table", ["version_pages", "version_items"])
def test_what_was_altered_or_removed_is_found(desk: Desk, table: str) -> None:
    """A page or item that is not what its hash says, or is gone, is an error and never another version."""
    version = promote(desk, "all", of_hours(hourly(number) for number in range(3)))
    (one, *_) = rows(desk.store, table)
    key = "page_id" if table == "version_pages" else "digest"
    database = desk.store.database
    database.write(lambda session: session.all(f"{table}.delete", **{key: one}))
    with pytest.raises(StoreCorrupt, match="is not in the database"):
        VersionReader(database).version(version).manifest()  # type: ignore[union-attr]
    altered = (one, '[0,[["a","b",1]]]' if table == "version_pages" else "{}")
    database.write(lambda session: session.bulk(f"{table}.insert", [altered]))
    with pytest.raises(StoreCorrupt, match="is not what was stored"):
        VersionReader(database).version(version).manifest()  # type: ignore[union-attr]


# --- upkeep ----------------------------------------------------------------------------------------


def test_versions_of_before_are_read_and_get_their_trees(desk: Desk) -> None:
    """Kept whole, a version is read as it is; converted, it is the same one and shares with the head. The
    conversion can stop after any; one whose text is not what its id says is left."""
    store = desk.store
    items = [hourly(number) for number in range(40)]
    old = {whole_id(of_hours(items[:size])): of_hours(items[:size]) for size in (1, 20, 39)}
    damaged = digest("another manifest")
    for version, made in {**old, damaged: of_hours(items[:5])}.items():
        keep_whole(store, version, made)
    promote(desk, "head", of_hours(items))
    assert {version: kept(store, version) for version in old} == old
    documents = len(rows(store, "version_items"))
    upkeep = store.version_upkeep()
    assert upkeep.count_whole() == 4
    assert upkeep.convert(min(old), "ks-streamflow") == "done"
    assert upkeep.count_whole() == 3
    for version in old:  # again, and the rest
        assert upkeep.convert(version, "ks-streamflow") == "done"
    assert upkeep.convert(damaged, "ks-streamflow") == "damaged"
    assert upkeep.next_whole("") == (damaged, "ks-streamflow")
    assert upkeep.next_whole(damaged) is None
    assert len(rows(store, "version_items")) == documents
    fresh = VersionReader(store.database)
    assert {version: fresh.version(version).manifest() for version in old} == old  # type: ignore[union-attr]


def test_what_was_kept_whole_and_stays_as_it_is_makes_no_version(desk: Desk) -> None:
    """Whether anything changes is decided by what a version says and holds, not by the form of its id."""
    made = of_hours([hourly(1)])
    keep_whole(desk.store, whole_id(made), made)
    before = desk.store.version(whole_id(made))
    assert before is not None
    again = version_of(made)
    assert again.version_id != before.version_id
    assert again.is_same(before)
    assert edited(before, before.header, {hourly(1).id: hourly(1)}).is_same(before)
    assert b"".join(before.pieces()) == b"".join(manifest_pieces(made)), "published again as it was"


def test_nothing_is_converted_while_a_collection_is_under_way(desk: Desk) -> None:
    """What a version would share may be on its way out."""
    store, made = desk.store, of_hours([hourly(1)])
    keep_whole(store, whole_id(made), made)
    fence = store.begin_collection("collector", 60_000, ledgers.alive)
    assert isinstance(fence, int)
    assert store.version_upkeep().convert(whole_id(made), "ks-streamflow") == "busy"
    store.end_collection(fence, entry("gc", "test"))
    assert store.version_upkeep().convert(whole_id(made), "ks-streamflow") == "done"


def test_a_conversion_goes_on_where_it_stopped(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    """In steps, by this process or the next, every version gets its tree; progress is told, and what is
    damaged is named and kept."""
    store, items = desk.store, [hourly(number) for number in range(12)]
    promote(desk, "head", of_hours(items))
    old = [of_hours(items[:size]) for size in range(1, 8)]
    for made in old:
        keep_whole(store, whole_id(made), made)
    keep_whole(store, digest("another manifest"), of_hours(items[:2]))
    told: list[int] = []
    progress = SimpleNamespace(phase=lambda _name, total: told.append(total), advance=told.append)
    progress.done = lambda: told.append(0)
    kernel: Any = SimpleNamespace(store=store, ledger=store, progress=progress)
    assert VersionConversion(kernel).step(3) == 3
    left = store.version_upkeep().count_whole()
    assert VersionConversion(kernel).finish() == left == sum(told[1:]) == told[0]
    assert store.version_upkeep().count_whole() == 1
    assert "stays as it is" in caplog.text
    assert [kept(store, whole_id(made)) for made in old] == old
    assert VersionConversion(kernel).step(100) == 1, "the damaged one is looked at again"


def test_what_no_version_needs_goes(desk: Desk) -> None:
    """Pages and items of versions that are gone are removed, by the collector alone; the others stay."""
    store, items = desk.store, [hourly(number) for number in range(100)]
    version = promote(desk, "all", of_hours(items))
    before = rows(store, "version_pages"), rows(store, "version_items")
    gone = new_rows(on_head(store, of_hours([*items[1:], hourly(200)])))

    def leave(session: Session) -> None:
        session.bulk("version_pages.insert", sorted(gone.pages.items()))
        session.bulk("version_items.insert", [(one, text.decode()) for one, text in gone.items.items()])

    store.database.write(leave)
    with pytest.raises(LostLease):
        store.version_upkeep().sweep(7, lambda: None)
    fence = store.begin_collection("collector", 60_000, ledgers.alive)
    assert isinstance(fence, int)
    swept = store.version_upkeep().sweep(fence, lambda: None)
    assert (swept.pages, swept.items) == (len(gone.pages), 1)
    assert (rows(store, "version_pages"), rows(store, "version_items")) == before
    assert VersionReader(store.database).version(version).manifest() == of_hours(items)  # type: ignore[union-attr]
    store.end_collection(fence, entry("gc", "test"))
