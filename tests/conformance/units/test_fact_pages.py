"""What repeats from unit to unit is kept once for each batch; nothing that is read changes by it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest

from bench.feed_day import Feed
from kfm.db.fact_pages import item_key
from kfm.db.ledger import Ledger
from kfm.db.queries import migrate, migration_files
from kfm.db.sqlite import MemoryDatabase, SqliteSession
from kfm.model.catalogue import Search
from kfm.model.errors import SchemaViolation, StoreCorrupt
from kfm.model.replays import Selection
from kfm.sinks.event_file import event_lines
from tests import unit_pages
from tests.conformance.units.scene import START_MS, Scene, done, entry, gone, id_of, taken, undone, uri_of
from tests.stand_ins import FakeClock

MANY = [f"20260101_{number:06}" for number in range(100)]


def all_done(scene: Scene, names: list[str]) -> None:
    scene.take(*map(taken, names))
    claimed = scene.claim(limit=len(names))
    assert len(scene.end(*map(done, claimed)).succeeded) == len(names)


@pytest.mark.req("GRO-5")
def test_a_batch_leaves_a_page_for_each_thing_that_it_did(scene: Scene) -> None:
    """Whatever its size: one that came in, one that succeeded; rows have neither address nor item's name."""
    all_done(scene, MANY)
    counts = {
        table: int(scene.sql(f"SELECT COUNT(*) FROM {table}")[0][0])
        for table in ("units", "items", "fact_pages", "unit_pages", "outbox", "unit_workers")
    }
    expected = {"units": 100, "items": 100, "fact_pages": 2, "unit_pages": 3, "outbox": 1, "unit_workers": 1}
    assert counts == expected
    assert scene.sql("SELECT COUNT(*) FROM units WHERE object_uri <> '' OR stac_item_id IS NOT NULL") == [
        (0,)
    ]
    assert scene.sql("SELECT COUNT(*) FROM items WHERE item_id <> '' OR properties <> ''") == [(0,)]
    packed = scene.sql("SELECT SUM(length(packed)) FROM unit_pages WHERE members = ''")
    assert 0 < int(packed[0][0]) < 100 * 80


@pytest.mark.req("GRO-5")
def test_a_unit_tells_what_it_told_before(scene: Scene) -> None:
    """Its address, its item and who worked on it, by itself, in a list, to a replay and after a change."""
    all_done(scene, MANY)
    for stored in (scene.stored(MANY[7]).unit, *scene.units.find_units(_everything())):
        name = stored.object_uri.rpartition("/")[2]
        assert (stored.wal_id, stored.object_uri) == (id_of(name), uri_of(name))
        assert (stored.stac_item_id, stored.stac_item_href) == (name, f"collections/hrrr/items/{name}")
        assert (stored.worker_id, stored.ingest_run_id) == ("w1", "run-1")
    chosen = scene.store.replay_reader().select(Selection(wal_ids=(id_of(MANY[3]),)), 10)
    assert [one.object_uri for one in chosen] == [uri_of(MANY[3])]
    scene.take(taken(MANY[7], "e2", "02"))  # other bytes: it is opened again
    assert scene.stored(MANY[7]).unit.stac_item_id == MANY[7]
    (again,) = scene.claim()
    assert (again.object_uri, again.content_version) == (uri_of(MANY[7]), 2)
    scene.end(undone(again, "spent"))
    assert scene.stored(MANY[7]).unit.object_uri == uri_of(MANY[7])
    scene.take(gone(MANY[8], "03", "remove"))
    assert (MANY[8] in scene.items(), len(scene.items())) == (False, 99)
    scene.check()


def _everything() -> Any:
    from kfm.model.units import UnitFilter

    return UnitFilter(limit=1000)


@pytest.mark.req("GRO-5")
def test_units_that_wait_are_claimed_with_their_addresses(scene: Scene) -> None:
    """From several pages at once; those of a small batch stand in their rows."""
    scene.take(*map(taken, MANY[:10]))
    scene.take(*map(taken, MANY[10:50]))
    scene.take(*map(taken, MANY[50:52]))
    claimed = scene.claim(limit=100)
    assert {one.object_uri for one in claimed} == {*map(uri_of, MANY[:52])}
    assert scene.sql("SELECT COUNT(*) FROM units WHERE object_uri <> ''") == [(2,)]


@pytest.mark.req("GRO-5")
def test_an_item_that_changes_stands_in_its_row(scene: Scene) -> None:
    """And is the same to readers as one that never was on a page."""
    all_done(scene, MANY[:4])
    (before,) = scene.catalogue.find_items(Search(ids=(MANY[0],)))
    scene.take(taken(MANY[0], "e2", "02"))
    (again,) = scene.claim()
    told = entry(again, properties='{"product":"prs"}', geometry='{"coordinates":[1,2],"type":"Point"}')
    scene.end(done(again, told))
    (after,) = scene.catalogue.find_items(Search(ids=(MANY[0],)))
    assert (before.properties, after.properties) == ({"product": "sfc"}, {"product": "prs"})
    assert (after.geometry, after.assets[0].etag, after.revision) == (
        {"coordinates": [1, 2], "type": "Point"},
        "e2",
        2,
    )
    assert after.created_at_ms == before.created_at_ms == before.updated_at_ms <= after.updated_at_ms


@pytest.mark.req("GRO-5")
def test_a_page_that_is_damaged_is_said_to_be(scene: Scene) -> None:
    """Not guessed at: the ledger is corrupt."""
    all_done(scene, MANY[:4])
    scene.sql("DELETE FROM fact_pages")
    with pytest.raises(StoreCorrupt, match="does not tell the address"):
        scene.stored(MANY[0])


def test_two_names_of_one_digest_are_refused(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are never taken for each other; nothing of the second lands."""
    monkeypatch.setattr("kfm.db.catalogue.item_key", lambda *_: (1, 2))
    all_done(scene, MANY[:1])
    other = scene.claimed(MANY[1])
    with pytest.raises(SchemaViolation, match="can't be told apart"):
        scene.end(done(other))
    assert scene.status(MANY[1]) == "in_progress"


def test_neighbours_in_time_are_neighbours_by_key() -> None:
    """Whatever a dataset's names look like; without a time the digest alone decides."""
    named = {
        "OR_ABI-L1b-RadC-M6C13_G16_s20221682001178_e20221682003562_c20221682004026": 20221682001178,
        "KHPX19970707_000827_V06": 19970707000827,
        "CONUS_MRMS_LayerCompositeReflectivity_Low_00.50_20250704-001040": 20250704001040,
        "hrrr.20140730~conus~hrrr.t23z.wrfsubhf08.grib2": 20140730,
        "ASN00002022": 2022,
        "x": 0,
    }
    assert {name: item_key("c", name)[0] for name in named} == named
    assert item_key("a", "b") != item_key("b", "a") != item_key("a", "c")


# --- from before -----------------------------------------------------------------------------


@pytest.mark.req("GRO-5")
def test_rows_from_before_are_read_and_go_on() -> None:
    """Nothing is rewritten; units and items that a ledger had already are found, changed, counted once."""
    clock = FakeClock()
    database = MemoryDatabase(clock)
    before = [one for one in migration_files() if one[0] < 42]
    migrate(database, "sqlite", 1, before)
    execute = database._connection.execute
    execute(_OLD_UNIT, (id_of("a"), uri_of("a"), START_MS, START_MS))
    execute("INSERT INTO unit_pages (number, event, status, at_ms, members) VALUES (1, 'created', 'x', 1, ?)",
            (f'[["{id_of("a")}",3,1]]',))  # fmt: skip
    execute(_OLD_ITEM, (_OLD_DATA % (id_of("a"), uri_of("a")),))
    migrate(database, "sqlite", 2)
    scene = Scene(Ledger(database))
    unit = scene.stored("a").unit
    assert (unit.object_uri, unit.stac_item_id, unit.worker_id) == (uri_of("a"), "a", "w0")
    assert (unit.stac_item_href, unit.ingest_run_id) == ("elsewhere", "run-0")
    assert scene.items() == {"a"}
    scene.take(taken("a", "e2", "02"), *map(taken, MANY[:4]))
    claimed = scene.claim()
    assert len(scene.end(*map(done, claimed)).succeeded) == 5
    assert scene.items() == {"a", *MANY[:4]}
    (item,) = scene.catalogue.find_items(Search(ids=("a",)))
    assert (item.assets[0].etag, item.revision) == ("e2", 2)
    assert scene.sql("SELECT COUNT(*) FROM items") == [(5,)]


_OLD_UNIT = """\
INSERT INTO units (wal_id, object_uri, created_at_ms, updated_at_ms, dataset, provider, queue, status,
  attempts, integrity_status, metadata_status, stac_status, provenance_status, stac_item_id,
  stac_collection_id, stac_item_href, ingest_run_id, worker_id, version, extra, etag, sequencer, size,
  content_version, done_version, lease_until_ms, not_before_ms, grants, grant_attempts, granted_at_ms, alone,
  removed, unclear, replacing, trail)
VALUES (?, ?, ?, ?, 'hrrr', 'aws', 'nodd', 'succeeded', 1, 'ok', 'ok', 'created', 'ok', 'a', 'hrrr',
  'elsewhere', 'run-0', 'w0', 3, '{}', 'e1', '01', 10, 1, 1, 0, 0, 1, 1, 0, 0, 0, 0, 0, '1')"""
_OLD_DATA = """\
{"role":"data","wal_id":"%s","content_version":1,"href":"%s","media_type":"application/wmo-GRIB2","size":10,\
"etag":"e1","checksum":null}"""
_OLD_ITEM = """\
INSERT INTO items (collection_id, item_id, at_ms, properties, data, revision, created_at_ms, updated_at_ms)
VALUES ('hrrr', 'a', 1, '{}', ?, 1, 1, 1)"""


# --- in bytes and statements ----------------------------------------------------------------


@pytest.mark.req("GRO-5")
def test_what_a_unit_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the mix of a day, evidence on: bytes of the ledger, statements, and events in the lineage file."""
    asked: list[str] = []

    def counting(method: Callable[..., Any]) -> Callable[..., Any]:
        def counted(self: Any, name: str, /, *given: Any, **values: Any) -> Any:
            asked.append(name)
            return method(self, name, *given, **values)

        return counted

    with ExitStack() as stack:
        feed = Feed(stack)
        feed.take(500)
        before = feed.ledger_bytes()
        with monkeypatch.context() as patch:
            for name in ("all", "one", "_each"):
                patch.setattr(SqliteSession, name, counting(getattr(SqliteSession, name)))
            feed.take(1_500)
        # 900 in the long run (`make bench-growth`). So few end with some pages that have just been split.
        assert (feed.ledger_bytes() - before) / 1_500 <= 930
        assert len(asked) / 1_500 <= 0.8
        (path,) = map(str, feed.folder.rglob("openlineage.jsonl"))
        lines = list(event_lines(path))
        assert len(lines) == 2 * 2_000
        assert len({line.partition(b'"runId":"')[2][:36] for line in lines}) == 2_000
        assert len(unit_pages.objects(_rows(feed))) == 2_000


def _rows(feed: Feed) -> Callable[[str], list[Any]]:
    database: Any = feed.app.store._database  # type: ignore[union-attr]
    return lambda sql: database._connection.execute(sql).fetchall()
