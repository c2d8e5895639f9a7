"""What external catalogues are still to be told, on every database."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kfm.db.ledger import Ledger
from tests.conformance.units.scene import Scene, done, gone

FAR = "far"
CLAIM_MS = 60_000
LATER_MS = 120_000  # time was only moved: claims one after the other end at different times


def arrive(scene: Scene, *names: str) -> None:
    for name in names:
        claimed = scene.claimed(name)
        assert scene.end(done(claimed), replicas=(FAR, "near")).succeeded


def lapse(scene: Scene) -> None:
    scene.sql("UPDATE replica_items SET not_before_ms = not_before_ms - 3600000 WHERE not_before_ms > 0")


@pytest.mark.req("WAL-8")
def test_each_replica_is_owed_what_changed(scene: Scene) -> None:
    """In the transaction of the change; also what is removed; not before and not without it."""
    replicas = scene.store.replicas()
    assert replicas.claim(FAR, 10, CLAIM_MS) == []
    arrive(scene, "a", "b")
    owed = replicas.claim(FAR, 10, CLAIM_MS)
    assert sorted((one.item_id, one.wanted, one.tries) for one in owed) == [("a", 1, 1), ("b", 1, 1)]
    replicas.delivered(FAR, [(one, 1) for one in owed])
    assert (replicas.backlog(FAR), replicas.backlog("near")) == (0, 2)
    scene.take(gone("a", removing="remove"))
    assert [one.item_id for one in replicas.claim(FAR, 10, CLAIM_MS)] == ["a"]


def test_one_delivery_for_each_item_is_under_way(open_store: Callable[[], Ledger], kind: str) -> None:
    """Two deliverers share what is owed; no item is claimed twice."""
    scene = Scene(open_store())
    arrive(scene, *"abcdef")
    mine = scene.store.replicas()
    theirs = mine if kind == "memory" else open_store().replicas()
    first, second = mine.claim(FAR, 4, CLAIM_MS), theirs.claim(FAR, 4, CLAIM_MS)
    assert (len(first), len(second), theirs.claim(FAR, 4, CLAIM_MS)) == (4, 2, [])
    assert not {one.item_id for one in first} & {one.item_id for one in second}


def test_what_is_wanted_meanwhile_is_due_again(scene: Scene) -> None:
    """A delivery settles what was wanted when it was claimed."""
    replicas = scene.store.replicas()
    arrive(scene, "a")
    (owed,) = replicas.claim(FAR, 10, CLAIM_MS)
    scene.take(gone("a", removing="remove"))
    assert replicas.claim(FAR, 10, CLAIM_MS) == [], "his claim lasts"
    replicas.delivered(FAR, [(owed, 1)])
    (again,) = replicas.claim(FAR, 10, CLAIM_MS)
    assert again.wanted > owed.wanted
    replicas.delivered(FAR, [(again, again.wanted)])
    assert replicas.backlog(FAR) == 0


@pytest.mark.parametrize("how", ["delivered", "failed"])
def test_who_overslept_his_claim_wants_it_once_more(scene: Scene, how: str) -> None:
    """He may have overwritten what came after him, whether he was answered or not."""
    replicas = scene.store.replicas()
    arrive(scene, "a")
    (slow,) = replicas.claim(FAR, 10, CLAIM_MS)
    lapse(scene)
    (fast,) = replicas.claim(FAR, 10, LATER_MS)
    replicas.delivered(FAR, [(fast, 1)])
    assert replicas.backlog(FAR) == 0
    if how == "delivered":
        replicas.delivered(FAR, [(slow, 1)])
    else:
        replicas.put_back(FAR, [slow], 5)
    (again,) = replicas.claim(FAR, 10, CLAIM_MS)
    replicas.delivered(FAR, [(again, 1)])
    assert replicas.backlog(FAR) == 0


def test_what_was_not_tried_is_not_charged(scene: Scene) -> None:
    """Putting back an item that another process has claimed meanwhile changes nothing."""
    replicas = scene.store.replicas()
    arrive(scene, "a")
    (owed,) = replicas.claim(FAR, 10, CLAIM_MS)
    replicas.put_back(FAR, [owed], 0, charged=False)
    (owed,) = replicas.claim(FAR, 10, CLAIM_MS)
    assert owed.tries == 1
    lapse(scene)
    (other,) = replicas.claim(FAR, 10, LATER_MS)
    replicas.put_back(FAR, [owed], 0, charged=False)
    replicas.delivered(FAR, [(other, 1)])
    assert replicas.backlog(FAR) == 0


def test_a_repair_is_due_at_once(scene: Scene) -> None:
    """Also for what was parked, and for what was never known here."""
    replicas = scene.store.replicas()
    arrive(scene, "a", "b")
    owed = replicas.claim(FAR, 10, CLAIM_MS)
    replicas.delivered(FAR, [(one, 1) for one in owed if one.item_id == "a"])
    replicas.put_back(FAR, [one for one in owed if one.item_id == "b"], 2**50)
    replicas.again(FAR, [("hrrr", "a", 1), ("hrrr", "b", 1), ("hrrr", "c", 1)])
    again = replicas.claim(FAR, 10, CLAIM_MS)
    assert sorted(one.item_id for one in again) == ["a", "b", "c"]
    replicas.delivered(FAR, [(one, 1) for one in again])
    assert replicas.backlog(FAR) == 0
