"""One transaction that ends units, takes in new ones and claims them: as three would, and all or nothing."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from kfm.model.units import IntakeBatch, ResultBatch
from tests.conformance.units.scene import Scene, done, id_of, taken

NEVER_MS = 1 << 62


@pytest.mark.req("WAL-8", "WAL-11")
def test_what_is_new_is_claimed_as_if_it_had_waited(scene: Scene) -> None:
    """The same record, lease, history and figures as after an intake and a claim."""
    exchanged = scene.units.exchange(None, scene.claim_request(), [taken("a")])
    scene.take(taken("b"))
    (later,) = scene.claim()
    (now,) = exchanged.claimed
    assert (exchanged.created, exchanged.waited, exchanged.skipped) == (1, 0, ())
    assert _plain(scene, "a") == _plain(scene, "b")
    times = {"claimed_at_ms": 0, "granted_at_ms": 0, "wal_id": "", "object_uri": ""}
    assert replace(now, **times) == replace(later, **times)
    assert scene.end(done(now)).succeeded == (now.wal_id,)
    scene.check()


def _plain(scene: Scene, name: str) -> tuple[object, ...]:
    """All that is kept of a unit but its name and the time of day."""
    stored = scene.stored(name)
    unit = replace(
        stored.unit, wal_id="", object_uri="", created_at_ms=0, updated_at_ms=0, last_attempt_at_ms=0
    )
    lease_ms = stored.lease_until_ms - stored.granted_at_ms
    moves = [(one.version, one.status, one.event, one.attempts, one.worker_id) for one in scene.history(name)]
    rest = replace(stored, unit=unit, lease_until_ms=0, granted_at_ms=0, not_before_ms=0, trail="")
    return rest, lease_ms, moves


@pytest.mark.req("WAL-11")
def test_what_waits_comes_first(scene: Scene) -> None:
    """New units have the room that is left; the others are pending, those of other lanes, too."""
    scene.take(taken("a"), taken("b"))
    fresh = [taken("c"), taken("d"), taken("e", dataset="nam")]
    exchanged = scene.units.exchange(None, scene.claim_request(limit=3), fresh)
    ids = [one.wal_id for one in exchanged.claimed]
    assert (exchanged.waited, exchanged.created) == (2, 3)
    assert set(ids[:2]) == {id_of("a"), id_of("b")}
    assert len(ids) == 3
    assert ids[2] in {id_of("c"), id_of("d")}
    waiting = {lane.dataset for lane in scene.units.lanes()}
    assert waiting == {"hrrr", "nam"}
    scene.check()


def test_a_lane_that_is_not_due_is_not_looked_into(scene: Scene) -> None:
    """A lane in which nothing is due is not searched: only new units are claimed."""
    scene.take(taken("a"))
    request = scene.claim_request()
    exchanged = scene.units.exchange(
        None, replace(request, lane=replace(request.lane, due_ms=NEVER_MS)), [taken("b")]
    )
    assert [one.wal_id for one in exchanged.claimed] == [id_of("b")]
    assert [one.wal_id for one in scene.claim()] == [id_of("a")]
    scene.check()


@pytest.mark.req("WAL-8")
def test_what_is_known_comes_back(scene: Scene) -> None:
    """It is neither claimed nor changed; it is returned, to be taken in by itself."""
    held = scene.claimed("a")
    exchanged = scene.units.exchange(None, scene.claim_request(), [taken("a"), taken("b"), taken("b")])
    assert [one.wal_id for one in exchanged.claimed] == [id_of("b")]
    assert exchanged.created == 1
    assert sorted(one.unit.wal_id for one in exchanged.skipped) == sorted([id_of("a"), id_of("b")])
    assert scene.stored("a").unit.version == held.version
    assert scene.units.take_in(IntakeBatch(arrivals=exchanged.skipped)).duplicate == 2
    scene.check()


@pytest.mark.req("WAL-8")
def test_ends_intake_and_claim_are_one_transaction(scene: Scene) -> None:
    """Gates that have to be asked again stop all of it; afterwards all of it lands."""
    first = scene.claimed("a")
    epoch = scene.store.policy_epoch()
    finish = ResultBatch(successes=(done(first),), policy_epoch=epoch + 1)
    refused = scene.units.exchange(finish, scene.claim_request(), [taken("b")])
    assert refused.results.epoch_moved
    assert [one.unit.wal_id for one in refused.skipped] == [id_of("b")]
    assert scene.units.unit(id_of("b")) is None
    assert scene.stored("a").unit.status == "in_progress"
    landed = scene.units.exchange(replace(finish, policy_epoch=epoch), scene.claim_request(), [taken("b")])
    assert landed.results.succeeded == (first.wal_id,)
    assert [one.wal_id for one in landed.claimed] == [id_of("b")]
    scene.check()
