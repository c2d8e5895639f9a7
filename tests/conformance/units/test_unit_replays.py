"""Replays: exactly the units of a frozen plan come back, each once, each with its receipt."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from kfm.db.ledger import Ledger
from kfm.model.errors import NotApproved, PlanDrifted, ReplayTooLarge, SwitchThrown, UsageError
from kfm.model.gates import replay_gate
from kfm.model.quarantine import Approval
from kfm.model.records import GovernanceEntry, Justification, Switch
from kfm.model.replays import ReplayPlan, Selection, differing
from kfm.model.runs import Approve
from kfm.model.settings import Ingest, IngestPolicy
from kfm.nodd.replay import ReplayContext, ReplayPace, ReplayReport, begin, execute, plan
from tests.conformance.units.scene import START_MS, Scene, done, entry, id_of, taken, undone
from tests.stand_ins import FakeClock

ANA = Justification(actor="ana", rationale="the bucket is back", ticket="OPS-1")
SETTINGS = Ingest(policies=(IngestPolicy(replay_quarantined=("GZIP_BOMB", "REPLAY_MISMATCH")),))
HRRR = Selection(datasets=("hrrr",))


def kernel(scene: Scene, settings: Ingest = SETTINGS, clock: FakeClock | None = None) -> ReplayContext:
    return ReplayContext(
        settings=settings,
        replays=scene.store.replays(),
        gate=lambda dataset: replay_gate(scene.store.switches(), dataset, "weather"),
        clock=clock or FakeClock(),
        now_ms=scene.store.now_ms,
    )


def planned(
    scene: Scene,
    selection: Selection = HRRR,
    mode: Any = "failed-only",
    settings: Ingest = SETTINGS,
    **more: Any,
) -> ReplayPlan:
    said = {"reason": "incident", "limit": None, "now_ms": START_MS, **more}
    return plan(scene.store.replay_reader(), settings, selection, mode=mode, **said)


def ran(scene: Scene, made: ReplayPlan, pace: ReplayPace | None = None, **more: Any) -> ReplayReport:
    doing = kernel(scene, **more)
    return execute(doing, begin(doing, made, ANA), pace or ReplayPace(), ANA)


def agreed(scene: Scene, made: ReplayPlan, request_id: str = "r1", **changes: Any) -> str:
    """Asked for by ana, approved by bob."""
    approval = Approval(
        request_id=request_id,
        kind="replay",
        subject=made.replay_id,
        digest=made.digest,
        requested_by="ana",
        requested_at_ms=START_MS,
        rationale="repair",
    )
    noted = GovernanceEntry(kind="replay-requested", subject=made.replay_id, actor="ana", recorded_at_ms=1)
    assert scene.store.replays().request(made, approval, noted, rationale="repair") == []
    consent = Approve(
        request_id=request_id,
        digest=made.digest,
        approved_by="bob",
        rationale="fine",
        names=("bob",),
        valid_ms=60_000,
    )
    assert scene.store.approve(replace(consent, **changes)).answer == "approved"
    return request_id


def chain(scene: Scene) -> list[str]:
    return [row[0] for row in scene.sql("SELECT kind FROM governance ORDER BY number")]


def switch(scene: Scene, scope: str, position: Any) -> None:
    thrown = Switch(
        scope=scope, position=position, rationale="x", actor="ana", set_at_ms=scene.store.now_ms()
    )
    noted = GovernanceEntry(kind="switch", subject=scope, actor="ana", recorded_at_ms=1)
    scene.store.set_switch(thrown, noted)


# --- coming back -----------------------------------------------------------------------


@pytest.mark.req("WAL-13", "WAL-14", "WAL-6")
def test_failed_units_come_back_with_a_new_grant(scene: Scene) -> None:
    """Due at once, one attempt more, a fresh budget, nothing held any more, counted and on record."""
    scene.failed("a")
    scene.failed("b", error_code="HTTP_500")
    scene.succeeded("c")
    assert [one.subject for one in scene.store.held(state="held")]
    made = planned(scene)
    assert (made.by_error_code, made.by_status) == ({"HTTP_500": 1, "HTTP_503": 1}, {"failed": 2})
    carried = ran(scene, made)
    assert (carried.replay.state, carried.receipts, carried.waiting) == ("done", {"replayed": 2}, 0)
    for name in ("a", "b"):
        stored = scene.stored(name)
        assert (stored.unit.status, stored.unit.attempts, stored.unit.replay_reason) == (
            "pending",
            2,
            "incident",
        )
        assert (stored.grants, stored.grant_attempts, stored.granted_at_ms) == (2, 0, 0)
        assert scene.history(name)[-1].details["replay_id"] == made.replay_id
    assert scene.store.held(state="held") == []
    assert scene.count("replays:incident") == 2
    assert len(scene.claim()) == 2
    assert chain(scene)[-2:] == ["replay", "replay-ended"]
    scene.check()


@pytest.mark.req("WAL-10", "WAL-12", "WAL-13")
def test_a_failure_that_is_replayed_ends_as_if_it_had_never_been(scene: Scene) -> None:
    """The same item as of an object that never failed, and no second one."""
    scene.succeeded("smooth")
    scene.failed("rough")
    ran(scene, planned(scene))
    again = scene.claimed("rough")
    assert again.replay_reason == "incident"
    assert scene.end(done(again)).succeeded == (again.wal_id,)
    smooth, rough = (scene.catalogue.item("hrrr", name) for name in ("smooth", "rough"))
    assert smooth is not None
    assert rough is not None
    assert (rough.properties, rough.bbox) == (smooth.properties, smooth.bbox)
    assert scene.items() == {"smooth", "rough"}
    assert scene.stored("rough").unit.stac_status == scene.stored("smooth").unit.stac_status == "created"
    scene.check()


@pytest.mark.req("WAL-13")
def test_a_plan_is_refused_once_a_unit_has_changed(scene: Scene) -> None:
    """It says since when and how many; nothing at all is done."""
    for name in ("a", "b", "c"):
        scene.failed(name)
    made = planned(scene)
    ran(scene, planned(scene, Selection(wal_ids=(id_of("b"),))))
    before = scene.everything()
    with pytest.raises(PlanDrifted, match=r"plan made at 2026-01-01T00:00:00Z, 1 unit changed since"):
        ran(scene, made)
    assert scene.everything() == before
    assert scene.store.replay_reader().replay(made.replay_id) is None


@pytest.mark.req("WAL-13")
def test_the_ledger_itself_refuses_what_moved_since_it_was_looked_at(scene: Scene) -> None:
    """Another process may be faster between the check and the transaction."""
    scene.failed("a")
    made = planned(scene)
    ran(scene, planned(scene, reason="test"))
    before = scene.everything()
    noted = GovernanceEntry(kind="replay", subject="x", actor="ana", recorded_at_ms=1)
    assert scene.store.replays().begin(made, rationale="x", requested_by="ana", entry=noted) == [id_of("a")]
    assert scene.everything() == before
    assert scene.store.replay_reader().replay(made.replay_id) is None


@pytest.mark.req("WAL-13", "WAL-14")
def test_the_same_plan_goes_on_where_it_was_left(scene: Scene) -> None:
    """What moved meanwhile gets a receipt that says so; a plan that is done changes nothing any more."""
    for name in ("a", "b", "c", "d", "e"):
        scene.failed(name)
    made = planned(scene)
    first = ran(scene, made, ReplayPace(batch_size=2, max_batches=1))
    assert (first.replay.state, first.receipts) == ("running", {"": 3, "replayed": 2})
    waiting = made.units[4].wal_id
    ran(scene, planned(scene, Selection(wal_ids=(waiting,)), reason="test"))
    second = ran(scene, made, ReplayPace(batch_size=2))
    assert (second.replay.state, second.receipts) == ("done", {"drifted": 1, "replayed": 4})
    receipts = scene.store.replay_reader().receipts(made.replay_id)
    assert [one.receipt for one in receipts] == ["replayed"] * 4 + ["drifted"]
    before = scene.everything()
    assert ran(scene, made).receipts == second.receipts
    assert scene.everything() == before
    assert chain(scene).count("replay-ended") == 2
    scene.check()


@pytest.mark.req("WAL-11", "WAL-13")
def test_two_that_run_one_plan_bring_each_unit_back_once(
    open_store: Callable[[], Ledger], kind: str, scene: Scene
) -> None:
    """They share the work, and both see it done."""
    if kind == "memory":
        pytest.skip("a ledger in memory has one connection")
    names = [f"u{number:02}" for number in range(30)]
    for name in names:
        scene.failed(name)
    made, others = planned(scene), [Scene(open_store()) for _ in range(2)]
    ended: list[ReplayReport] = []
    barrier = threading.Barrier(2)

    def work(own: Scene) -> None:
        barrier.wait()
        ended.append(ran(own, made, ReplayPace(batch_size=3)))

    threads = [threading.Thread(target=work, args=(own,)) for own in others]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [one.receipts for one in ended] == [{"replayed": 30}] * 2
    assert all(scene.events(name).count("replayed") == 1 for name in names)
    assert all(scene.stored(name).grants == 2 for name in names)
    assert chain(scene).count("replay") == chain(scene).count("replay-ended") == 1
    scene.check()


# --- what had ended --------------------------------------------------------------------


@pytest.mark.req("WAL-18", "WAL-13", "GOV-3")
def test_what_had_ended_comes_back_only_with_an_approval(scene: Scene) -> None:
    """Without one nothing happens; with one the history names it, and it is used up."""
    scene.succeeded("a")
    scene.failed("b", "quarantine", error_code="GZIP_BOMB")
    made = planned(scene, mode="repair-and-replace")
    assert made.by_status == {"quarantined": 1, "succeeded": 1}
    before = scene.everything()
    with pytest.raises(NotApproved, match="has no approval"):
        ran(scene, made)
    assert scene.everything() == before
    request = agreed(scene, made)
    assert scene.store.replay_reader().replay(made.replay_id).state == "requested"  # type: ignore[union-attr]
    assert ran(scene, made).receipts == {"replayed": 2}
    for name in ("a", "b"):
        last = scene.history(name)[-1]
        assert (last.event, last.details["approval"], scene.status(name)) == ("migrated", request, "pending")
        assert scene.stored(name).replacing == 1
    used = scene.store.approval(request)
    assert used is not None
    assert used.used_by == made.replay_id
    scene.check()


@pytest.mark.req("WAL-18")
@pytest.mark.parametrize("how", ["lapsed", "another plan"])
def test_an_approval_is_for_one_plan_and_for_a_while(scene: Scene, how: str) -> None:
    """Neither a lapsed one nor one of another plan lets units come back."""
    scene.succeeded("a")
    scene.succeeded("b")
    made = planned(scene, mode="repair-and-replace")
    if how == "lapsed":
        agreed(scene, made, valid_ms=-1)
    else:
        agreed(scene, planned(scene, Selection(wal_ids=(id_of("a"),)), mode="repair-and-replace"))
    with pytest.raises(NotApproved):
        ran(scene, made)
    assert (scene.status("a"), scene.status("b")) == ("succeeded", "succeeded")


@pytest.mark.req("WAL-18", "WAL-15")
def test_a_repair_of_failed_units_needs_an_approval_too(scene: Scene) -> None:
    """It may replace what is published, whatever state the units are in."""
    scene.failed("a")
    assert not planned(scene).needs_approval
    assert planned(scene, mode="repair-and-replace").needs_approval


@pytest.mark.req("WAL-15")
def test_a_replay_that_makes_another_item_is_told_field_by_field(scene: Scene) -> None:
    """What is published stays; both values of each field that differs are on record."""
    scene.succeeded("a")
    repair = planned(scene, mode="repair-and-replace")
    agreed(scene, repair)
    ran(scene, repair)
    scene.end(undone(scene.claimed("a"), "spent"))  # the repair was given up
    ran(scene, planned(scene))
    again = scene.claimed("a")
    scene.end(done(again, entry(again, properties='{"product":"other"}')))
    assert (scene.status("a"), scene.stored("a").unit.last_error_code) == ("quarantined", "REPLAY_MISMATCH")
    assert differing(scene.history("a")) == {"properties": ('{"product":"sfc"}', '{"product":"other"}')}
    assert scene.count("mismatches") == 1
    assert [one.error_code for one in scene.store.replay_reader().receipts(repair.replay_id)] == [
        "REPLAY_MISMATCH"
    ]
    scene.check()


@pytest.mark.req("WAL-13", "WAL-14")
def test_units_that_no_replay_may_touch_are_left_out_with_the_reason(scene: Scene) -> None:
    """A quarantine that no policy names, and what was granted as often as anything is."""
    scene.failed("a", "quarantine", error_code="SCHEMA_VIOLATION")
    scene.failed("b")
    scene.sql(f"UPDATE units SET grants = 5 WHERE wal_id = '{id_of('b')}'")
    made = planned(scene, mode="backfill")
    assert made.units == ()
    assert made.left_out == {
        "its grants are used up: 5 (`retry.grants` of its policy)": 1,
        "no policy lets its quarantine end (`replay_quarantined`)": 1,
    }
    with pytest.raises(UsageError, match="no units"):
        ran(scene, made)


# --- how far and how fast ----------------------------------------------------------------


@pytest.mark.req("WAL-14", "GOV-1")
@pytest.mark.parametrize("scope", ["replays:hrrr", "dataset:hrrr"])
def test_a_switch_pauses_the_replays_of_its_dataset(scene: Scene, scope: str) -> None:
    """Others go on, although they come behind; once it is lifted the rest follows."""
    scene.failed("a")
    scene.failed("b")
    scene.take(taken("z", dataset="gfs"))
    (other,) = scene.claim("gfs")
    scene.end(undone(other, "spent"))
    made = planned(scene, Selection(datasets=("gfs", "hrrr")))
    switch(scene, scope, "paused")
    carried = ran(scene, made, ReplayPace(batch_size=1))
    assert (carried.receipts, list(carried.stopped)) == ({"": 2, "replayed": 1}, ["hrrr"])
    switch(scene, scope, "running")
    assert ran(scene, made).receipts == {"replayed": 3}
    scene.check()


@pytest.mark.req("WAL-14", "GOV-1")
@pytest.mark.parametrize("scope", ["replays:all", "all", "domain:weather"])
def test_a_switch_on_all_lets_no_replay_begin(scene: Scene, scope: str) -> None:
    """Nothing is recorded either; one that is under way ends between two batches."""
    for name in ("a", "b", "c"):
        scene.failed(name)
    made = planned(scene)
    ran(scene, made, ReplayPace(batch_size=1, max_batches=1))
    switch(scene, scope, "stopped")
    going_on = ran(scene, made)
    assert (going_on.receipts, list(going_on.stopped)) == ({"": 2, "replayed": 1}, ["hrrr"])
    rest = planned(scene, reason="test")
    with pytest.raises(SwitchThrown, match="running"):
        ran(scene, rest)
    assert scene.store.replay_reader().replay(rest.replay_id) is None


@pytest.mark.req("WAL-14")
def test_a_rate_is_kept(scene: Scene) -> None:
    """Ten units at two a second, four at a time: two pauses of two seconds."""
    for number in range(10):
        scene.failed(f"u{number}")
    clock = FakeClock()
    began_ms = clock.monotonic_ms()
    ran(scene, planned(scene), ReplayPace(batch_size=4, rate=2.0), clock=clock)
    assert clock.monotonic_ms() - began_ms == 4_000


@pytest.mark.req("WAL-14")
def test_one_replay_has_a_cap(scene: Scene) -> None:
    """More is refused, unless a part is asked for."""
    for name in ("a", "b", "c"):
        scene.failed(name)
    small = replace(SETTINGS, replays_max=2)
    with pytest.raises(ReplayTooLarge):
        planned(scene, settings=small)
    with pytest.raises(ReplayTooLarge):
        planned(scene, settings=small, limit=3)
    assert len(planned(scene, settings=small, limit=2).units) == 2
    with pytest.raises(ReplayTooLarge):
        ran(scene, planned(scene), settings=small)


# --- kept, and carried out by services -----------------------------------------------------


@pytest.mark.req("WAL-13", "WAL-14")
def test_a_kept_plan_is_begun_once_and_services_share_it(scene: Scene) -> None:
    """Kept, it changes nothing; begun, each unit gets one receipt, however many services look."""
    for name in ("a", "b", "c"):
        scene.failed(name)
    made, replays = planned(scene), scene.store.replays()
    noted = GovernanceEntry(kind="replay-planned", subject=made.replay_id, actor="ana", recorded_at_ms=1)
    for _ in range(2):
        assert replays.freeze(made, noted, rationale="x", requested_by="ana", name="storm") == []
    assert chain(scene).count("replay-planned") == 1
    assert replays.to_serve(10) == []
    assert replays.tally(made.replay_id) == {"": 3}
    assert scene.stored("a").unit.status == "failed"
    begin(kernel(scene), made, ANA)
    assert replays.serve(made.replay_id, 1, 500, None)
    assert replays.to_serve(10) == [made.replay_id]
    seen = replays.replay(made.replay_id)
    assert seen is not None
    assert (seen.name, seen.rate, seen.state) == ("storm", 0.5, "running")
    first = replays.step(seen, 1, ended=lambda _counts, _at_ms: noted, is_served=True)
    late = replays.step(seen, 1, ended=lambda _counts, _at_ms: noted, is_served=True)
    assert (first.receipts, late.looked_at, late.done) == ({"replayed": 1}, 0, False)
    assert replays.serve(made.replay_id, 0, None, None)
    stopped = replays.replay(made.replay_id)
    assert stopped is not None
    assert replays.step(stopped, 9, ended=lambda _counts, _at_ms: noted, is_served=True).looked_at == 0
    assert replays.to_serve(10) == []
    assert ran(scene, made).receipts == {"replayed": 3}
    assert not replays.serve(made.replay_id, 1, None, None)
    scene.check()


def test_a_kept_plan_of_which_a_unit_changed_is_not_kept_nor_begun(scene: Scene) -> None:
    """Nothing of it stays: no list, no entry, no receipt."""
    scene.failed("a")
    scene.failed("b")
    made = planned(scene)
    ran(scene, planned(scene, Selection(wal_ids=(id_of("a"),))))
    replays = scene.store.replays()
    noted = GovernanceEntry(kind="replay-planned", subject=made.replay_id, actor="ana", recorded_at_ms=1)
    assert replays.freeze(made, noted, rationale="x", requested_by="ana", name=None) == [id_of("a")]
    assert replays.replay(made.replay_id) is None
    assert "replay-planned" not in chain(scene)


def test_a_list_of_replays_goes_on_behind_its_last_row_without_reading_plans(scene: Scene) -> None:
    """Newest first, by time and id; what a list says of a plan is what the plan says."""
    names = [f"u{number}" for number in range(5)]
    for name in names:
        scene.failed(name)
    replays = scene.store.replays()
    kept = []
    for name in names:
        made = planned(scene, Selection(wal_ids=(id_of(name),)))
        noted = GovernanceEntry(kind="replay-planned", subject=made.replay_id, actor="ana", recorded_at_ms=1)
        replays.freeze(made, noted, rationale="x", requested_by="ana", name=name)
        kept.append(made)
    found, before = [], None
    while page := replays.replays(2, before):
        found += page
        before = (page[-1].created_at_ms, page[-1].replay_id)
    assert sorted(one.replay_id for one in found) == sorted(one.replay_id for one in kept)
    summaries = {made.replay_id: made.summary for made in kept}
    assert {one.replay_id: one.summary for one in found} == summaries
    scene.sql("UPDATE replays SET summary = NULL")  # as an earlier kfm kept them
    assert {one.summary.units for one in replays.replays(5)} == {1}
