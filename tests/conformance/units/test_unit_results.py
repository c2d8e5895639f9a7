"""Ends: effects and final status land together, once, and only for the worker that still holds the lease."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from kfm.model.catalogue import Search
from kfm.model.errors import IllegalTransition
from kfm.model.units import Content, Ended, ExchangeReport, ResultReport
from tests import unit_pages
from tests.conformance.db import ledgers
from tests.conformance.units.scene import START_MS, Scene, done, entry, gone, id_of, taken, undone
from tests.stand_ins import FakeClock

EVERYWHERE = Search(bbox=(-180.0, -90.0, 180.0, 90.0))


def ended(scene: Scene) -> list[Ended]:
    found = unit_pages.bodies(scene.sql, "topic = 'unit-lineage'")
    return [one for body in found for one in msgspec.json.decode(body, type=list[Ended])]


@pytest.mark.req("WAL-8", "WAL-9")
def test_a_success_is_one_transaction(scene: Scene) -> None:
    """Status, item, lineage, history and counters are there together."""
    claimed = scene.claimed("a")
    assert scene.items() == set()
    assert scene.messages() == 0
    assert scene.end(done(claimed)).succeeded == (claimed.wal_id,)
    unit = scene.stored("a").unit
    assert (unit.status, unit.version, unit.attempts) == ("succeeded", 3, 1)
    assert (unit.stac_status, unit.provenance_status) == ("created", "ok")
    assert (unit.integrity_status, unit.metadata_status) == ("ok", "ok")
    assert (unit.stac_collection_id, unit.stac_item_id) == ("hrrr", "a")
    assert unit.stac_item_href == "collections/hrrr/items/a"
    assert scene.items() == {"a"}
    (told,) = ended(scene)
    assert (told.wal_id, told.attempt, told.item_id, told.error_code) == (id_of("a"), 1, "a", None)
    assert scene.events("a") == ["created", "claimed", "succeeded"]
    assert scene.units.totals()["hrrr", "watermark"] == (1, START_MS + 3_600_000)
    assert scene.count("attempts:1") == 1
    scene.check()


def test_what_a_look_found_takes_the_place_of_what_was_announced(scene: Scene) -> None:
    """Size and ETag from upstream are what is kept, and further facts under extra."""
    claimed = scene.claimed("a")
    found = Content(etag="e9", size=99)
    scene.end(done(claimed, content=found, extra='{"seen":true}'))
    stored = scene.stored("a")
    assert (stored.etag, stored.size, stored.unit.extra) == ("e9", 99, {"seen": True})
    assert stored.sequencer == "01"


@pytest.mark.req("WAL-9", "WAL-1")
def test_what_is_no_success_does_not_land(scene: Scene) -> None:
    """Without its provenance a unit has not succeeded, and no operator shadows the record's own fields."""
    claimed = scene.claimed("a")
    before = scene.everything()
    for wrong in (
        done(claimed, provenance_status="failed"),
        done(claimed, provenance_status="unknown"),
        done(claimed, extra='{"status":"ok"}'),
    ):
        with pytest.raises(IllegalTransition):
            scene.end(wrong)
        assert scene.everything() == before
    assert scene.end(done(claimed)).succeeded == (claimed.wal_id,)
    scene.check()


@pytest.mark.req("WAL-12")
def test_the_same_story_ends_the_same() -> None:
    """The same announcements, answers and times leave the same ledger, to the last byte."""
    ledgers_left = []
    for _ in range(2):
        clock = FakeClock()
        scene = Scene(ledgers.memory_store(clock))
        scene.take(*(taken(name) for name in "abcd"))
        first, second, third, fourth = sorted(scene.claim(), key=lambda one: one.wal_id)
        scene.end(done(first), undone(second), undone(third, "quarantine"))
        clock.sleep_ms(3_600_000)
        assert scene.units.reap_units(0.5) == 1
        scene.take(taken("a", "e2", "02"), taken("b", "e1", "02"), gone("c", "02", "remove"))
        clock.sleep_ms(3_600_000)
        scene.end(*(done(one) for one in scene.claim()), done(fourth))
        ledgers_left.append(scene.everything())
        scene.check()
    assert ledgers_left[0] == ledgers_left[1]


# --- fences --------------------------------------------------------------------------


@pytest.mark.req("WAL-5")
@pytest.mark.parametrize("late", ["success", "failure", "quarantine"])
@pytest.mark.parametrize("meanwhile", ["unclaimed", "claimed", "succeeded"])
def test_a_lapsed_worker_loses_with_all_its_effects(scene: Scene, late: str, meanwhile: str) -> None:
    """Its end finds another version: no item, no message, no page, nothing held, and one loss is counted."""
    old = scene.claimed("a", worker="w1")
    assert scene.lapse() == 1
    assert scene.events("a")[-2:] == ["failed", "retry_scheduled"]
    assert scene.history("a")[-2].details["error_code"] == "LEASE_EXPIRED"
    if meanwhile != "unclaimed":
        new = scene.claimed("a", worker="w2")
        if meanwhile == "succeeded":
            scene.end(done(new))
    *before, counted = scene.everything()
    other = entry(old, "another-item")
    end = done(old, other) if late == "success" else undone(old, "retry" if late == "failure" else late)
    finished = scene.end(end, replicas=("north",), downstream=(("hrrr", "source"),))
    assert (finished.succeeded, finished.failed, finished.lost) == ((), (), (old.wal_id,))
    assert scene.everything() == (*before, {**counted, ("hrrr", "lost"): 1})
    assert scene.sql("SELECT * FROM replica_items") == scene.sql("SELECT * FROM burst_members") == []
    scene.check()


@pytest.mark.req("WAL-5")
def test_one_of_a_batch_is_lost_and_the_others_land(scene: Scene) -> None:
    """A fence is each unit's own."""
    scene.take(*(taken(name) for name in "abc"))
    batch = {one.wal_id: one for one in scene.claim()}
    scene.sql(f"UPDATE units SET lease_until_ms = 1 WHERE wal_id = '{id_of('b')}'")
    assert scene.units.reap_units(0.5) == 1
    finished = scene.end(*(done(one) for one in batch.values()))
    assert set(finished.succeeded) == {id_of("a"), id_of("c")}
    assert finished.lost == (id_of("b"),)
    assert scene.items() == {"a", "c"}
    scene.check()


@pytest.mark.req("WAL-5", "WAL-6")
def test_a_lapsed_lease_fails_and_is_tried_again(scene: Scene) -> None:
    """failed with LEASE_EXPIRED, then pending, in one transaction; the attempt that follows is the next."""
    scene.claimed("a")
    assert scene.units.reap_units(0.5) == 0, "its lease still holds"
    assert scene.lapse() == 1
    assert scene.lapse() == 0
    unit = scene.stored("a").unit
    assert (unit.status, unit.attempts, unit.last_error_code) == ("pending", 2, "LEASE_EXPIRED")
    assert scene.claimed("a").attempts == 2, "the claim that follows does not count again"
    scene.check()


@pytest.mark.req("WAL-5")
def test_a_worker_that_is_known_to_be_gone_is_not_waited_for(scene: Scene) -> None:
    """Its units come back before their leases end; those of others stay with them."""
    scene.take(taken("a"), taken("b"))
    scene.claim(limit=1, worker="w1")
    scene.claim(limit=1, worker="w2")
    assert scene.units.reap_units(0.5, {"w1"}) == 1
    assert sorted([scene.status("a"), scene.status("b")]) == ["in_progress", "pending"]
    scene.check()


@pytest.mark.req("WAL-8")
def test_nothing_lands_after_a_switch_was_set(scene: Scene) -> None:
    """The gates have to be asked again first; then the very same end lands."""
    claimed = scene.claimed("a")
    epoch = scene.store.policy_epoch()
    scene.store.set_switch(ledgers.switch(), ledgers.entry("switch"))
    before = scene.everything()
    finished = scene.end(done(claimed), policy_epoch=epoch)
    assert (finished.epoch_moved, finished.succeeded) == (True, ())
    assert scene.everything() == before
    scene.take(taken("b"))
    outdated = replace(scene.claim_request(), policy_epoch=epoch)
    assert scene.units.exchange(None, outdated) == ExchangeReport(ResultReport(epoch_moved=True))
    assert scene.end(done(claimed), policy_epoch=epoch + 1).succeeded == (claimed.wal_id,)
    assert len(scene.units.exchange(None, replace(outdated, policy_epoch=epoch + 1)).claimed) == 1
    scene.check()


# --- the catalogue -------------------------------------------------------------------


@pytest.mark.req("WAL-10")
def test_running_again_makes_no_second_item(scene: Scene) -> None:
    """The same bytes after a removal are the same item again, and each attempt is told of once."""
    scene.succeeded("a")
    for sequencer in ("03", "05"):
        scene.take(taken("a", f"e{sequencer}", sequencer))
        scene.succeeded("a")
    assert scene.sql("SELECT COUNT(*) FROM items")[0][0] == 1
    assert [(one.attempt, one.content_version, one.stac_status) for one in ended(scene)] == [
        (1, 1, "created"),
        (2, 2, "updated"),
        (3, 3, "updated"),
    ]
    assert scene.stored("a").unit.stac_status == "updated"
    scene.check()


@pytest.mark.req("WAL-10", "WAL-9")
def test_the_same_item_once_more_is_no_change(scene: Scene) -> None:
    """A success that tells the catalogue what it knows already leaves the item's revision."""
    scene.succeeded("a")
    scene.sql(
        "UPDATE units SET status = 'pending', not_before_ms = 1, attempts = 2, version = 4"
    )  # as a replay of the same bytes
    again = scene.claimed("a")
    scene.end(done(again))
    assert (scene.stored("a").unit.status, scene.stored("a").unit.stac_status) == ("succeeded", "no-op")
    item = scene.catalogue.item("hrrr", "a")
    assert item is not None
    assert item.revision == 1


@pytest.mark.req("WAL-20", "WAL-10")
@pytest.mark.parametrize("order", ["data first", "sidecar first", "together", "together, sidecar first"])
def test_a_sidecar_is_an_asset_of_its_item_in_either_order(scene: Scene, order: str) -> None:
    """An orphan is not visible; with its data there is one item with both."""
    scene.take(taken("a"), taken("a.idx"))
    units = {one.wal_id: one for one in scene.claim()}
    data, side = units[id_of("a")], units[id_of("a.idx")]
    ends = [done(data), done(side, entry(side, "a", "index"))]
    if "sidecar first" in order:
        ends.reverse()
    if order.startswith("together"):
        assert len(scene.end(*ends).succeeded) == 2
    else:
        scene.end(ends[0])
        alone = scene.catalogue.item("hrrr", "a")
        assert (alone is None) == (order == "sidecar first")
        assert scene.catalogue.find_items(EVERYWHERE) == ([alone] if alone else [])
        scene.end(ends[1])
    item = scene.catalogue.item("hrrr", "a")
    assert item is not None
    assert [asset.role for asset in item.assets] == ["data", "index"]
    assert [asset.wal_id for asset in item.assets] == [data.wal_id, side.wal_id]
    assert scene.sql("SELECT COUNT(*) FROM items")[0][0] == 1
    assert scene.catalogue.find_items(EVERYWHERE) == [item]
    scene.check()


@pytest.mark.req("WAL-15")
def test_the_same_bytes_that_make_another_item_are_not_published(scene: Scene) -> None:
    """REPLAY_MISMATCH: quarantined, counted, and the fields that differ are named with both values."""
    scene.succeeded("a")
    before = scene.catalogue.item("hrrr", "a")
    scene.sql("UPDATE units SET status = 'pending', not_before_ms = 1, attempts = 2, version = 4")
    again = scene.claimed("a")
    told = entry(again, bbox=(-103.0, 37.0, -94.5, 40.0), properties='{"product":"other"}')
    told = replace(told, asset=replace(told.asset, media_type="text/plain"))
    finished = scene.end(done(again, told))
    assert (finished.succeeded, finished.failed) == ((), (again.wal_id,))
    assert scene.catalogue.item("hrrr", "a") == before
    unit = scene.stored("a").unit
    assert (unit.status, unit.last_error_code, unit.stac_status) == (
        "quarantined",
        "REPLAY_MISMATCH",
        "failed",
    )
    assert unit.last_error_message is not None
    for name in ("asset.media_type", "bbox", "properties"):
        assert name in unit.last_error_message
    details = scene.history("a")[-2].details
    assert details["bbox"] == [[-102.0, 37.0, -94.5, 40.0], [-103.0, 37.0, -94.5, 40.0]]
    assert details["properties"] == ['{"product":"sfc"}', '{"product":"other"}']
    assert "geometry" not in details
    assert scene.count("mismatches") == 1
    assert [held.error_code for held in scene.store.held()] == ["REPLAY_MISMATCH"]


@pytest.mark.req("WAL-15", "WAL-18")
def test_an_approved_repair_may_differ(scene: Scene) -> None:
    """Also when its first attempt failed; a repair that was given up is none any more."""
    scene.succeeded("a")
    scene.sql(
        "UPDATE units SET status = 'pending', not_before_ms = 1, attempts = 2, version = 4, replacing = 1"
    )
    first = scene.claimed("a")
    scene.end(undone(first))
    again = scene.claimed("a")
    assert again.replacing == 1
    finished = scene.end(done(again, entry(again, properties='{"product":"other"}')))
    assert finished.succeeded == (again.wal_id,)
    assert (scene.stored("a").unit.stac_status, scene.stored("a").replacing) == ("updated", 0)
    scene.sql("UPDATE units SET status = 'pending', not_before_ms = 1, version = 9, replacing = 1")
    scene.end(undone(scene.claimed("a"), "spent"))
    assert scene.stored("a").replacing == 0


@pytest.mark.req("WAL-15")
def test_a_lost_replay_is_no_mismatch(scene: Scene) -> None:
    """A result of a worker that has lost the unit is not recorded."""
    scene.succeeded("a")
    scene.sql("UPDATE units SET status = 'pending', not_before_ms = 1, attempts = 2, version = 4")
    old = scene.claimed("a")
    scene.lapse()
    assert scene.end(done(old, entry(old, properties="{}"))).lost == (old.wal_id,)
    assert (scene.count("mismatches"), scene.status("a")) == (0, "pending")


@pytest.mark.req("WAL-8")
def test_ends_of_one_batch_are_each_their_own(scene: Scene) -> None:
    """Units that end alike share a statement; those that differ in anything keep what is theirs, and one that
    was lost meanwhile is lost alone."""
    scene.take(*(taken(name) for name in "abcdef"))
    claimed = {one.object_uri.rsplit("/", 1)[-1]: one for one in scene.claim()}
    stale = replace(claimed["e"], version=claimed["e"].version - 1)
    report = scene.end(
        done(claimed["a"]),
        done(claimed["b"], metadata_status="suspect"),
        done(claimed["c"], entry(claimed["c"], collection="hrrr-copy")),
        done(claimed["d"], content=Content(etag="e9", size=99)),
        done(stale),
        done(claimed["f"]),
    )
    assert {*report.succeeded} == {id_of(name) for name in "abcdf"}
    assert report.lost == (id_of("e"),)
    assert scene.status("e") == "in_progress"
    kept = {name: scene.stored(name).unit for name in "abcdf"}
    assert {unit.status for unit in kept.values()} == {"succeeded"}
    assert {name: unit.metadata_status for name, unit in kept.items() if name != "b"} == dict.fromkeys(
        "acdf", "ok"
    )
    assert kept["b"].metadata_status == "suspect"
    assert kept["c"].stac_item_href == "collections/hrrr-copy/items/c"
    assert (scene.stored("d").etag, scene.stored("f").etag) == ("e9", "e1")
    scene.check()
