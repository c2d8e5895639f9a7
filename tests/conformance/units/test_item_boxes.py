"""Where items lie, found by boxes that many of them share."""

from __future__ import annotations

from pathlib import Path

import pytest

from kfm.db.ledger import Ledger
from kfm.db.queries import migrate, migration_files
from kfm.db.sqlite import SqliteDatabase
from kfm.model.catalogue import Search
from kfm.system import SystemClock
from tests.conformance.units.scene import START_MS, Scene, done, entry, taken

KANSAS, IOWA, PACIFIC = (-102.0, 37.0, -94.5, 40.0), (-96.6, 40.4, -90.1, 43.5), (170.0, -10.0, -170.0, 10.0)
BEFORE = 17  # the last migration under which each item had a box for itself
_ITEM = (
    "INSERT INTO items (collection_id, item_id, at_ms, west, south, east, north, properties, data, revision,"
    f" created_at_ms, updated_at_ms) VALUES ('hrrr', ?, {START_MS}, ?, ?, ?, ?, '{{}}', ?, 1, 1, 1)"
)
_DATA = '{"role":"data","wal_id":"w","content_version":1,"href":"s3://b/k","media_type":"x/y"}'


def _found(scene: Scene, *bbox: float) -> set[str]:
    west, south, east, north = bbox
    return {one.item_id for one in scene.catalogue.find_items(Search(bbox=(west, south, east, north)))}


def _put(scene: Scene, name: str, item_id: str, box: tuple[float, float, float, float] | None) -> None:
    scene.take(taken(name))
    (claimed,) = scene.claim()
    scene.end(done(claimed, entry(claimed, item_id, bbox=box)))


def test_items_are_found_by_a_box_that_they_share(scene: Scene) -> None:
    """Also over the antimeridian; who lies nowhere is not found by any."""
    for name, item_id, box in (
        ("a", "k1", KANSAS),
        ("b", "k2", KANSAS),
        ("c", "i", IOWA),
        ("d", "p", PACIFIC),
    ):
        _put(scene, name, item_id, box)
    _put(scene, "e", "nowhere", None)
    assert _found(scene, -101, 38, -100, 39) == {"k1", "k2"}
    assert _found(scene, -92, 41, -91, 42) == {"i"}
    assert _found(scene, 175, 0, 176, 1) == _found(scene, -176, 0, -175, 1) == {"p"}
    assert _found(scene, 0, 50, 1, 51) == set()
    assert _found(scene, 0, -1, 1, 1) == set()  # the box of all longitudes is not what the item lies in
    assert _found(scene, -180, -90, 180, 90) == {"k1", "k2", "i", "p"}


@pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
def test_a_box_is_kept_once(scene: Scene) -> None:
    """However many items lie in it, and whichever process enters them."""
    for name in ("a", "b"):
        _put(scene, name, name, KANSAS)
    other = Scene(scene.store)  # knows of no box yet
    for name in ("c", "d"):
        _put(other, name, name, KANSAS)
    assert scene.sql("SELECT COUNT(*) FROM item_boxes") == [(1,)]
    assert _found(scene, -101, 38, -100, 39) == {"a", "b", "c", "d"}


def test_items_from_before_are_found(tmp_path: Path) -> None:
    """They keep the box that they had for themselves; items with the same name stay one."""
    database = SqliteDatabase(str(tmp_path / "kfm.db"), SystemClock())
    known = migration_files()
    migrate(database, "sqlite", 1, known[:BEFORE])

    def fill(_session: object) -> None:
        execute = database._connection.execute
        for item_id, box in (("old", KANSAS), ("old_20260101", IOWA)):
            execute(_ITEM, (item_id, *box, _DATA))
            west, south, east, north = box
            execute(
                "INSERT INTO item_boxes VALUES (last_insert_rowid(), ?, ?, ?, ?)", (west, east, south, north)
            )

    database.write(fill)
    migrate(database, "sqlite", 2)
    scene = Scene(Ledger(database))
    assert _found(scene, -101, 38, -100, 39) == {"old"}
    _put(scene, "a", "new", KANSAS)
    _put(scene, "b", "old_20260101", KANSAS)
    assert _found(scene, -101, 38, -100, 39) == {"old", "new", "old_20260101"}
    assert _found(scene, -92, 41, -91, 42) == set()
    assert scene.sql("SELECT COUNT(*) FROM items") == [(3,)]
    database.close()
