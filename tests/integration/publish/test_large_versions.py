"""Large versions on a real disk: thousands of windows, each of which costs what it changes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kfm.model.errors import TargetUnavailable
from kfm.model.item_ids import item_id
from kfm.model.records import Asset, Item, Window
from kfm.model.times import parse_rfc3339
from kfm.model.versions import Version, version_of
from kfm.publish.catalogue import documents
from kfm.publish.manifest import merge_items
from kfm.publish.targets.folder import LocalTree
from kfm.system import PosixFiles, SystemIds
from tests.integration.publish.test_tree_on_disk import DiskDatabase, UnsyncedFiles
from tests.unit.publish.stand_ins import DATASET, sha

pytestmark = [pytest.mark.req("TRG-4"), pytest.mark.req("GRO-1")]

START_MS = parse_rfc3339("2026-01-01T00:00:00Z")
HOUR_MS = 3_600_000
KEPT = 10


class Feed:
    """An hourly feed: a file and an item for each hour."""

    def __init__(self, root: Path, files: PosixFiles) -> None:
        self.database = DiskDatabase(root, files)
        self.tree = LocalTree("tree", files, self.database.store, SystemIds(), f"{root}/tree")
        self.folder = root / "tree" / DATASET.id
        for data in (b"the same", b"revised"):
            self.database.add(data)

    def item(self, hour: int, data: bytes = b"the same") -> Item:
        window = Window(start_ms=START_MS + hour * HOUR_MS, end_ms=START_MS + (hour + 1) * HOUR_MS, spec="")
        name = item_id("usgs", window, None)
        path = f"{name[5:9]}/{name[9:11]}/{name[11:13]}/{name[14:16]}.csv"
        return Item(
            id=name,
            source_id="usgs",
            window_start_ms=window.start_ms,
            window_end_ms=window.end_ms,
            partition=None,
            assets=(Asset(path=path, sha256=sha(data), size=len(data), media_type="text/csv"),),
        )

    def merge(self, *items: Item) -> Version:
        head = self.database.head()
        version = merge_items(head[1] if head else None, DATASET, items, "merge")
        if len(version) % 250 == 0:  # in memory versions hold those that they were made from
            version = version_of(version.manifest())
        self.database.show(version)
        return version

    def project(self) -> int | None:
        return self.tree.project(DATASET.id, self.database.head, self.database)

    def discard(self, kept: int = KEPT) -> None:
        names = [name for name, _ in self.tree.versions(DATASET.id)]
        self.tree.discard(DATASET.id, names[:-kept])

    def entries(self) -> int:
        """Files, folders and links of the whole tree."""
        return sum(len(folders) + len(files) for _, folders, files in os.walk(self.folder))

    def require_whole(self) -> None:
        head = self.database.head()
        assert head is not None
        expected = {name: sha(data) for name, data in documents(head[1])}
        expected |= {f"data/{path}": sha256 for path, sha256, _ in head[1].files()}
        found = {
            str(path.relative_to(self.folder / "current")): sha(path.read_bytes())
            for path in _files(self.folder / "current")
        }
        assert found == expected


def _files(folder: Path) -> Iterator[Path]:
    for place, _, names in os.walk(folder, followlinks=True):
        yield from (Path(place) / name for name in names)


@pytest.mark.slow
@pytest.mark.parametrize("collected", [True, False], ids=["collected", "all kept"])
def test_the_three_thousandth_window_costs_what_the_thousandth_did(tmp_path: Path, collected: bool) -> None:
    """Hourly windows, one promotion each: entries grow by the same number from first to last. With every
    version kept, each has no more than a year's months, a month's days and a day's hours of its own.
    (`python -m bench.windows 5000` goes on, with a ledger and a bucket.)"""
    feed = Feed(tmp_path, UnsyncedFiles())
    feed.merge(*map(feed.item, range(1000)))  # from here on folders are shared
    feed.project()
    counts = {1000: feed.entries()}
    for hour in range(1000, 3000):
        feed.merge(feed.item(hour))
        feed.project()
        if collected and hour % KEPT == KEPT - 1:
            feed.discard()
        if hour % 1000 == 999:
            if collected:  # all but the newest: what others have of their own depends on the day of the month
                feed.discard(1)
            counts[hour + 1] = feed.entries()
    feed.require_whole()
    first, last = counts[2000] - counts[1000], counts[3000] - counts[2000]
    if collected:
        assert abs(last - first) <= first / 10, counts
        assert counts[3000] < 3000 * 4, counts
    else:
        most = 3 * (12 + 31) + 2 * 24 + 20  # of files, items and pages; of a day's; folders and documents
        assert max(first, last) < 1000 * most, counts


def test_versions_grow_and_shrink_across_the_limit(tmp_path: Path) -> None:
    """Small, large, small, nothing: what is shown is whole, and small versions have folders of their own."""
    feed = Feed(tmp_path, UnsyncedFiles())
    current = feed.folder / "current"
    feed.merge(*map(feed.item, range(30)))
    feed.project()
    assert not (current / "data").is_symlink()
    feed.merge(*map(feed.item, range(30, 700)))
    feed.project()
    feed.require_whole()
    assert (current / "data").is_symlink()
    feed.merge(feed.item(700), feed.item(3, b"revised"))
    feed.project()
    feed.require_whole()
    feed.database.show(merge_items(None, DATASET, [feed.item(3, b"revised"), feed.item(31)], "merge"))
    feed.project()
    feed.require_whole()
    assert not (current / "data").is_symlink()
    assert not (current / "catalogue").exists()
    feed.database.show(merge_items(None, DATASET, [], "merge"))
    feed.project()
    assert sorted(os.listdir(current)) == ["collection.json", "dcat.jsonld", "manifest.json"]
    names = [name for name, _ in feed.tree.versions(DATASET.id)]
    assert feed.tree.discard(DATASET.id, names) == names[:-1]
    assert os.listdir(feed.folder / ".versions" / ".shared") == []


@pytest.mark.parametrize("place", [".versions/.shared", "shared data", "version's data"])
def test_a_link_that_is_not_ours_leads_nowhere(tmp_path: Path, place: str) -> None:
    """A foreign link in the tree: nothing is written or removed behind it, and none of it is shown."""
    feed = Feed(tmp_path, UnsyncedFiles())
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "2026").mkdir(parents=True)
    (elsewhere / "2026" / "kept").write_bytes(b"kept")
    feed.merge(*map(feed.item, range(600)))
    if place == ".versions/.shared":
        (feed.folder / ".versions").mkdir(parents=True)
        (feed.folder / place).symlink_to(elsewhere)
        with pytest.raises(TargetUnavailable, match="is a link, and is not followed"):
            feed.project()
        with pytest.raises(TargetUnavailable):
            feed.tree.discard(DATASET.id, [])
        (feed.folder / place).unlink()
    else:
        feed.project()
        data = feed.folder / "current" / "data"
        link = data.resolve() / "2026" if place == "shared data" else data
        link.unlink()
        link.symlink_to(elsewhere)
    feed.merge(feed.item(600))
    feed.project()
    feed.require_whole()
    feed.discard()
    assert [str(path.relative_to(elsewhere)) for path in elsewhere.rglob("*")] == ["2026", "2026/kept"]


def test_an_edit_stays_until_something_beside_it_changes(tmp_path: Path) -> None:
    """An edited file of a shared folder is in the versions that share it; the folder made anew has the right
    bytes."""
    feed = Feed(tmp_path, UnsyncedFiles())
    feed.merge(*map(feed.item, range(600)))
    feed.project()
    path = feed.item(30).assets[0].path
    (feed.folder / "current" / "data" / path).write_bytes(b"by hand!")
    feed.merge(feed.item(600))
    feed.project()
    assert (feed.folder / "current" / "data" / path).read_bytes() == b"by hand!"
    feed.merge(feed.item(31, b"revised"))
    feed.project()
    feed.require_whole()
