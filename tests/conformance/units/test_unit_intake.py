"""Taking in: every announcement is counted once, and only what is new changes anything."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from kfm.model.units import IntakeRemoval, IntakeReport, IntakeUnit, RejectedRecord
from tests.conformance.units.scene import (
    START_MS,
    Scene,
    done,
    entry,
    gone,
    id_of,
    taken,
    undone,
    unit,
)

pytestmark = pytest.mark.req("WAL-2")


@pytest.mark.req("WAL-1", "WAL-6")
def test_a_new_unit_is_kept_as_it_was_announced(scene: Scene) -> None:
    """Its record comes back field by field; no attempt is counted yet; its history begins."""
    assert scene.take(taken("a")) == IntakeReport(created=1)
    stored, said = scene.stored("a"), unit("a")
    for name in ("wal_id", "dataset", "object_uri", "provider", "queue", "event_time_ms", "extra"):
        assert getattr(stored.unit, name) == getattr(said, name), name
    assert (stored.unit.time_range_start_ms, stored.unit.time_range_end_ms) == (
        START_MS,
        START_MS + 3_600_000,
    )
    assert (stored.unit.status, stored.unit.attempts, stored.unit.version) == ("pending", 0, 1)
    assert (stored.etag, stored.sequencer, stored.size) == ("e1", "01", 10)
    assert (stored.content_version, stored.done_version, stored.grants) == (1, 0, 1)
    assert scene.events("a") == ["created"]
    scene.check()


def test_a_duplicate_changes_nothing_but_its_count(scene: Scene) -> None:
    """The same bytes announced again, whenever that is, leave the unit as it is."""
    scene.take(taken("a"))
    for step in ("pending", "in_progress", "succeeded"):
        assert scene.status("a") == step
        before = scene.stored("a")
        assert scene.take(taken("a"), taken("a", "e1", "00")) == IntakeReport(duplicate=2)
        assert scene.stored("a") == before
        if step == "pending":
            claimed = scene.claimed("a")
        elif step == "in_progress":
            scene.end(done(claimed))
    assert scene.count("duplicates") == 6
    scene.check()


def test_repeats_within_one_intake(scene: Scene) -> None:
    """Of several announcements of one object the first makes the unit, the others count as what they are."""
    report = scene.take(taken("a"), taken("a"), taken("b"), taken("a", "e2", "02"), taken("a", "e0", "00"))
    assert report == IntakeReport(created=2, duplicate=1, reissued=1, stale=1)
    assert scene.stored("a").content_version == 2
    assert scene.stored("a").etag == "e2"
    scene.check()


def test_repeats_of_a_known_unit_are_heard_in_their_order(scene: Scene) -> None:
    """Two new versions in one intake are two, not a new one and a late one."""
    scene.take(taken("a"))
    assert scene.take(taken("a", "e2", "02"), taken("a", "e3", "03")) == IntakeReport(reissued=2)
    assert (scene.stored("a").content_version, scene.stored("a").etag) == (3, "e3")
    scene.check()


@pytest.mark.req("WAL-18", "WAL-14", "WAL-6")
@pytest.mark.parametrize("status", ["pending", "in_progress", "succeeded", "failed", "quarantined"])
def test_new_bytes_under_a_known_key(scene: Scene, status: str) -> None:
    """The same unit with its next content version and a grant of its own; from an end only as a migration
    that the policy approved."""
    claimed = None
    if status == "pending":
        scene.take(taken("a"))
    elif status == "in_progress":
        claimed = scene.claimed("a")
    elif status == "succeeded":
        scene.succeeded("a")
    else:
        scene.failed("a", "spent" if status == "failed" else "quarantine")
    attempts = scene.stored("a").unit.attempts
    assert scene.status("a") == status
    assert scene.take(taken("a", "e2", "02", size=20)) == IntakeReport(reissued=1)
    stored = scene.stored("a")
    assert (stored.content_version, stored.etag, stored.sequencer, stored.size) == (2, "e2", "02", 20)
    last = scene.history("a")[-1]
    if status == "in_progress":
        assert claimed is not None
        assert stored.unit.version == claimed.version, "the worker that has it keeps its lease"
        assert (stored.unit.status, last.event) == ("in_progress", "reissued")
    else:
        assert (stored.unit.status, stored.grants, stored.grant_attempts) == ("pending", 1, 0)
        assert last.event == {"pending": "reissued", "failed": "replayed"}.get(status, "migrated")
        assert stored.unit.attempts == attempts + (status != "pending")
    if last.event == "migrated":
        assert last.details["approval"] == "policy:reissue"
        assert stored.unit.replay_reason == "reissue"
    if status in ("failed", "quarantined"):
        assert [held.state for held in scene.store.held(subject=id_of("a"))] == ["resolved"]
    scene.check()


@pytest.mark.req("WAL-18")
@pytest.mark.parametrize("ends", ["success", "failure", "lapse"])
def test_what_was_done_with_bytes_that_are_no_longer_there(scene: Scene, ends: str) -> None:
    """New bytes came while the old ones were looked at: nothing of the old is shown, the new come next."""
    claimed = scene.claimed("a")
    scene.take(taken("a", "e2", "02"))
    if ends == "success":
        assert scene.end(done(claimed)).lost == (claimed.wal_id,)
    elif ends == "failure":
        scene.end(undone(claimed, "quarantine"))
    else:
        assert scene.lapse() == 1
    assert scene.items() == set()
    assert scene.store.held() == []
    stored = scene.stored("a")
    assert (stored.unit.status, stored.content_version, stored.grants) == ("pending", 2, 1)
    again = scene.claimed("a")
    assert (again.content_version, again.etag, again.grant_attempts) == (2, "e2", 1)
    assert scene.end(done(again)).succeeded == (again.wal_id,)
    assert (scene.items(), scene.stored("a").done_version) == ({"a"}, 2)
    scene.check()


def test_an_older_version_is_recorded_and_left(scene: Scene) -> None:
    """An announcement that comes late is in the history and changes no bytes."""
    scene.take(taken("a", "e2", "0A"))
    assert scene.take(taken("a", "e1", "09")) == IntakeReport(stale=1)
    stored = scene.stored("a")
    assert (stored.etag, stored.content_version, stored.unit.version) == ("e2", 1, 1)
    assert scene.events("a") == ["created", "stale"]
    assert scene.history("a")[-1].details["etag"] == "e1"
    assert scene.count("stale") == 1
    scene.check()


def test_a_late_version_stays_late_after_equal_bytes(scene: Scene) -> None:
    """Equal bytes put anew are a duplicate, and yet what came between is older from then on."""
    scene.take(taken("a", "e1", "01"))
    assert scene.take(taken("a", "e1", "05")) == IntakeReport(duplicate=1)
    assert scene.take(taken("a", "e0", "03")) == IntakeReport(stale=1)
    assert scene.take(gone("a", "04", "remove")) == IntakeReport()
    assert (scene.stored("a").etag, scene.stored("a").removed) == ("e1", 0)
    scene.check()


def test_versions_that_cannot_be_compared_are_unclear(scene: Scene) -> None:
    """A listing tells no sequence: the bytes are taken as new and marked, so that a HEAD decides."""
    scene.take(taken("a", "e1", "01"))
    assert scene.take(taken("a", "e2", None)) == IntakeReport(reissued=1)
    assert scene.claimed("a").unclear == 1
    scene.check()


@pytest.mark.req("WAL-18")
@pytest.mark.parametrize("status", ["pending", "succeeded", "quarantined"])
def test_a_policy_that_ignores_new_bytes(scene: Scene, status: str) -> None:
    """They are recorded as newer, and left; what is older than they are is late from then on."""
    if status == "pending":
        scene.take(taken("a"))
    elif status == "succeeded":
        scene.succeeded("a")
    else:
        scene.failed("a", "quarantine")
    assert scene.take(taken("a", "e2", "03", reissue="ignore")) == IntakeReport(reissues_ignored=1)
    stored = scene.stored("a")
    assert (stored.unit.status, stored.etag, stored.content_version) == (status, "e1", 1)
    last = scene.history("a")[-1]
    assert (last.event, last.details) == ("ignored", {"etag": "e2", "sequencer": "03", "verdict": "newer"})
    assert (scene.count("reissues_ignored"), scene.count("stale")) == (1, 0)
    assert scene.take(gone("a", "02", "remove")) == IntakeReport()
    assert scene.stored("a").removed == 0
    scene.check()


# --- removals ------------------------------------------------------------------------


@pytest.mark.req("WAL-20")
@pytest.mark.parametrize("removing", ["keep", "remove"])
def test_a_removal_is_a_tombstone(scene: Scene, removing: str) -> None:
    """It stands in the history; the item stays or goes as the policy says; when the object comes back,
    even with the same bytes, it is news."""
    scene.succeeded("a")
    version = scene.stored("a").unit.version
    assert scene.take(gone("a", "02", removing)) == IntakeReport(removed=1)
    assert scene.take(gone("a", "02", removing)) == IntakeReport()
    assert scene.items() == ({"a"} if removing == "keep" else set())
    assert (scene.status("a"), scene.stored("a").unit.version) == ("succeeded", version + 1)
    assert scene.events("a")[-1] == "removed"
    assert scene.take(taken("a", "e1", "01")) == IntakeReport(duplicate=1)
    assert scene.take(taken("a", "e0", "00")) == IntakeReport(stale=1)
    assert scene.take(taken("a", "e1", "03")) == IntakeReport(reissued=1)
    assert scene.stored("a").removed == 0
    scene.succeeded("a")
    assert scene.items() == {"a"}
    scene.check()


@pytest.mark.req("WAL-20")
def test_a_later_removal_outlasts_a_late_arrival(scene: Scene) -> None:
    """Removed, put, removed again: the middle one, when it comes at last, brings nothing back. An item that
    stays after its object is of the bytes that the object had last."""
    for name, removing, told in (("a", "remove", "stale"), ("b", "keep", "reissued")):
        scene.take(taken(name, "e1", "01"))
        scene.take(gone(name, "02", removing))
        scene.take(gone(name, "04", removing))
        assert getattr(scene.take(taken(name, "e3", "03")), told) == 1
    assert (scene.stored("a").removed, scene.stored("b").removed) == (2, 1)
    assert scene.stored("b").etag == "e3"
    scene.check()


@pytest.mark.req("WAL-20")
def test_removals_that_say_nothing_new(scene: Scene) -> None:
    """Of objects that were never announced, and of versions that are gone anyhow."""
    assert scene.take(gone("never")) == IntakeReport()
    scene.take(taken("a", "e2", "05"))
    assert scene.take(gone("a", "04")) == IntakeReport()
    scene.take(taken("b", "e1", None))
    assert scene.take(gone("b", None, at_ms=START_MS)) == IntakeReport(), "an event before the arrival's"
    assert scene.events("a") == scene.events("b") == ["created"]
    assert scene.take(gone("b", None, at_ms=START_MS + 6)) == IntakeReport(removed=1)
    scene.check()


@pytest.mark.req("WAL-20")
def test_a_removal_that_overtakes_its_arrival(scene: Scene) -> None:
    """Where items go with their objects: the arrival, when it comes at last, makes no item. Where they stay,
    it makes the one that would have stayed."""
    early = replace(gone("a", "02", "remove"), unit=unit("a"))
    assert scene.take(early) == IntakeReport(removed=1)
    assert scene.take(early) == IntakeReport()
    assert scene.take(taken("a", "e1", "01")) == IntakeReport(stale=1)
    assert scene.stored("a").removed == 2
    (claimed,) = scene.claim()
    scene.end(done(claimed, entry=None))
    assert (scene.status("a"), scene.items()) == ("succeeded", set())
    assert scene.take(taken("a", "e3", "03")) == IntakeReport(reissued=1)
    scene.succeeded("a")
    assert scene.items() == {"a"}
    assert scene.take(replace(gone("b", "02", "keep"), unit=unit("b"))) == IntakeReport(removed=1)
    assert scene.take(taken("b", "e1", "01")) == IntakeReport(reissued=1)
    scene.succeeded("b")
    assert (scene.stored("b").removed, scene.items()) == (1, {"a", "b"})
    scene.check()


@pytest.mark.req("WAL-2", "WAL-20")
@pytest.mark.parametrize("removing", ["keep", "remove"])
def test_a_removal_in_no_order_that_overtakes_its_arrival(scene: Scene, removing: str) -> None:
    """Without a sequencer it is remembered all the same: whether the object is there, a HEAD has to tell."""
    assert scene.take(replace(gone("a", None, removing), unit=unit("a"))) == IntakeReport(removed=1)
    assert scene.take(taken("a", "e1", "01")) == IntakeReport(reissued=1)
    assert scene.stored("a").unclear == 1
    scene.check()


@pytest.mark.req("WAL-20")
def test_a_removal_in_no_order_of_a_quarantined_unit(scene: Scene) -> None:
    """It ends no quarantine, for only a person does that; what the person replays is looked for first."""
    scene.take(taken("a"))
    scene.end(undone(scene.claimed("a"), "quarantine"))
    before = scene.stored("a")
    assert scene.take(gone("a", None, "remove")).removed == 0
    assert scene.stored("a") == replace(before, unclear=1)
    scene.check()


def test_a_head_that_finds_nothing_takes_the_item_out(scene: Scene) -> None:
    """Where it was unclear whether the object exists, the unit ends as one whose object was removed."""
    scene.succeeded("a")
    assert scene.take(gone("a", None, "remove", at_ms=START_MS + 6)) == IntakeReport()
    assert scene.items() == {"a"}, "nothing is taken out before it is known"
    claimed = scene.claimed("a")
    assert (claimed.unclear, claimed.removed) == (1, 0)
    scene.end(done(claimed, entry=None, gone=2), replicas=("north",))
    assert (scene.items(), scene.stored("a").removed, scene.status("a")) == (set(), 2, "succeeded")
    scene.check()


def version(name: str, version_id: str, sequencer: str, **changes: Any) -> IntakeUnit:
    said = taken(name, f"e-{version_id}", sequencer, **changes)
    return replace(said, content=replace(said.content, version_id=version_id))


def deleted(name: str, version_id: str, sequencer: str, **changes: Any) -> IntakeRemoval:
    said = gone(name, sequencer, "remove")
    return replace(said, version_id=version_id, **{"of_version": True, **changes})


@pytest.mark.req("WAL-20")
def test_a_version_that_expires_leaves_the_object(scene: Scene) -> None:
    """In a bucket that keeps versions an older one is deleted for good: the item of the present one stays.
    Where it is the present one, a HEAD tells what is there now; a delete marker is the object's removal."""
    scene.take(version("a", "v1", "01"))
    scene.succeeded("a")
    scene.take(version("a", "v2", "02"))
    scene.succeeded("a")
    before = scene.stored("a")
    assert scene.take(deleted("a", "v1", "03")) == IntakeReport()
    assert scene.stored("a") == replace(before, removal_sequencer="03")
    assert scene.take(deleted("a", "v2", "04")) == IntakeReport()
    assert (scene.stored("a").unclear, scene.items()) == (1, {"a"})
    scene.succeeded("a")
    assert scene.take(deleted("a", "m1", "05", of_version=False)) == IntakeReport(removed=1)
    assert (scene.items(), scene.stored("a").removal_version_id) == (set(), "m1")
    assert scene.take(deleted("a", "m1", "06")) == IntakeReport()
    assert scene.claimed("a").unclear == 1, "the marker is gone: the object may be back"
    scene.check()


@pytest.mark.req("WAL-2", "WAL-20")
def test_a_version_that_was_deleted_before_it_was_announced(scene: Scene) -> None:
    """The announcement of a version that a deletion overtook is checked before it counts."""
    scene.take(version("a", "v1", "01"))
    assert scene.take(deleted("a", "v2", "03")) == IntakeReport()
    assert scene.take(version("a", "v2", "02")) == IntakeReport(reissued=1)
    assert scene.stored("a").unclear == 1
    scene.check()


@pytest.mark.req("WAL-18", "WAL-20")
def test_what_was_taken_out_comes_back_also_where_reissues_are_ignored(scene: Scene) -> None:
    """A new object under the key of one that is gone, with its item, is no re-issue of what is there."""
    scene.succeeded("a")
    scene.take(gone("a", "02", "remove"))
    assert scene.take(replace(taken("a", "e3", "03"), reissue="ignore")) == IntakeReport(reissued=1)
    scene.succeeded("a")
    assert scene.items() == {"a"}
    assert scene.take(replace(taken("a", "e4", "04"), reissue="ignore")) == IntakeReport(reissues_ignored=1)
    scene.check()


@pytest.mark.req("WAL-20", "WAL-8")
def test_an_object_that_is_removed_while_it_is_looked_at(scene: Scene) -> None:
    """Where items go with their objects, none appears for one that is gone; where they stay, it does."""
    claimed = scene.claimed("a")
    scene.take(gone("a", "02", "remove"))
    assert scene.end(done(claimed)).lost == (claimed.wal_id,)
    assert scene.items() == set()
    again = scene.claimed("a")
    assert again.removed == 2
    scene.end(done(again, entry=None))
    assert (scene.status("a"), scene.items()) == ("succeeded", set())
    kept = scene.claimed("b")
    scene.take(gone("b", "02", "keep"))
    assert scene.end(done(kept)).succeeded == (kept.wal_id,)
    assert scene.items() == {"b"}
    scene.check()


@pytest.mark.req("WAL-20")
def test_replicas_hear_of_an_item_that_went(scene: Scene) -> None:
    """An external catalogue that has an item is to be told when it is withdrawn."""
    claimed = scene.claimed("a")
    scene.end(done(claimed), replicas=("north", "south"))
    wanted = "SELECT replica, wanted FROM replica_items ORDER BY replica"
    assert [tuple(row) for row in scene.sql(wanted)] == [("north", 1), ("south", 1)]
    scene.take(gone("a", "02", "remove"))
    assert [tuple(row) for row in scene.sql(wanted)] == [("north", 2), ("south", 2)]


@pytest.mark.req("WAL-20")
def test_a_sidecar_that_is_removed_leaves_its_item(scene: Scene) -> None:
    """Only its asset is no longer listed."""
    scene.succeeded("a")
    said = taken("a.idx")
    scene.take(taken("a.idx", extra={**said.unit.extra, "asset": "index"}))
    (side,) = scene.claim()
    scene.end(done(side, entry(side, "a", "index")))
    assert [asset.role for asset in scene.catalogue.item("hrrr", "a").assets] == ["data", "index"]  # type: ignore[union-attr]
    scene.take(gone("a.idx", "02", "remove"))
    assert [asset.role for asset in scene.catalogue.item("hrrr", "a").assets] == ["data"]  # type: ignore[union-attr]
    assert scene.items() == {"a"}


# --- dead letters --------------------------------------------------------------------


@pytest.mark.req("WAL-20")
def test_dead_messages_are_kept_by_their_envelope(scene: Scene) -> None:
    """One row for a record of a message, however often it comes; its neighbours are taken in."""
    dead = RejectedRecord(
        envelope_hash="sha256:00", index=1, queue="nodd", error_code="KEY_UNKNOWN", error="No.", body="{\0}"
    )
    assert scene.take(taken("a"), dead) == IntakeReport(created=1, dead=1)
    assert scene.take(dead) == IntakeReport(dead=1)
    kept = scene.sql("SELECT envelope_hash, record_index, times, error_code, state FROM dead_messages")
    assert [tuple(row) for row in kept] == [("sha256:00", 1, 2, "KEY_UNKNOWN", "held")]
    assert scene.count("dead:KEY_UNKNOWN", "") == 2
    scene.check()
