"""Promotion and failure: everything together or nothing, and never twice."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from kfm.model.records import GateResult
from tests.conformance.db.ledgers import MINUTE_MS, Desk, digest, entry, manifest, switch

pytestmark = pytest.mark.req("UPD-5", "UPD-8")

SCOPE = "dataset:ks-streamflow"


def test_a_promotion_is_one_whole(desk: Desk) -> None:
    """Version, pointer, success, states, events, governance and the freed lock appear together."""
    run = desk.admitted("a")
    gates = (GateResult(gate="contract", allowed=True, reason="12 checks passed."),)
    answer = desk.promote(
        run,
        "one",
        gates=gates,
        entries=(entry("promotion", run.run_id),),
        states=(("watermark", {"at": 5}), ("note", None)),
        events=(("row.count", {"rows": 3}), ("row.count", {"rows": 4})),
    )
    assert (answer.answer, answer.sequence) == ("promoted", 1)
    stored = desk.store.run(run.run_id)
    assert stored is not None
    assert stored.end_time_ms is not None
    version = digest("version one ks-streamflow")
    assert stored == replace(
        run,
        status="success",
        outcome="published",
        end_time_ms=stored.end_time_ms,
        fingerprint=digest("fingerprint one"),
        version_id=version,
    )
    head = desk.store.head("ks-streamflow")
    assert head is not None
    promotion, shown = head
    assert (promotion.sequence, promotion.version_id, promotion.run_id) == (1, version, run.run_id)
    assert (promotion.fence, promotion.policy_epoch) == (run.fence, desk.store.policy_epoch())
    assert shown.manifest() == manifest("one")
    assert shown == desk.store.version(version)
    assert desk.store.states("ks-streamflow") == {"watermark": {"at": 5}, "note": None}
    assert desk.store.events(run.run_id) == [("row.count", {"rows": 3}), ("row.count", {"rows": 4})]
    assert [found.kind for found in desk.store.governance(subject=run.run_id)] == ["promotion"]
    (call,) = desk.store.invocations(run_id=run.run_id)
    assert (call.outcome, call.gates) == ("success", gates)
    lock = desk.store.lock(SCOPE)
    assert lock is not None
    assert (lock.holder, lock.fence) == (None, run.fence)


def test_heads_grow_by_one(desk: Desk) -> None:
    """Each promotion of a dataset has the next number; each dataset counts for itself."""
    for text in ("one", "two", "three"):
        desk.promote(desk.admitted(text), text)
    other = replace(desk.admitted("other"), dataset_id="ks-counties")
    desk.promote(other, "one")
    assert [one.sequence for one in desk.store.promotions("ks-streamflow")] == [3, 2, 1]
    assert [one.sequence for one in desk.store.promotions("ks-streamflow", limit=2)] == [3, 2]
    assert [(one.dataset_id, one.sequence) for one in desk.store.heads()] == [
        ("ks-counties", 1),
        ("ks-streamflow", 3),
    ]


def test_content_that_comes_back_is_promoted_again(desk: Desk) -> None:
    """The same version may be the head a second time."""
    for name, text in (("a", "one"), ("b", "two"), ("c", "one")):
        assert desk.promote(desk.admitted(name), text).answer == "promoted"
    head = desk.store.head("ks-streamflow")
    assert head is not None
    assert (head[0].sequence, head[1].manifest()) == (3, manifest("one"))


def test_unchanged_content_moves_no_pointer(desk: Desk) -> None:
    """A run whose result the head already shows succeeds without a new promotion."""
    desk.promote(desk.admitted("a"), "one")
    second = desk.admitted("b")
    answer = desk.promote(second, None, states=(("seen", 1),))
    assert (answer.answer, answer.sequence) == ("unchanged", 1)
    assert desk.store.run(second.run_id).status == "success"  # type: ignore[union-attr]
    assert len(desk.store.promotions("ks-streamflow")) == 1
    assert desk.store.states("ks-streamflow") == {"seen": 1}
    assert desk.store.lock(SCOPE).holder is None  # type: ignore[union-attr]


def _nothing_happened(desk: Desk, name: str) -> None:
    assert desk.store.head("ks-streamflow") is None
    assert desk.store.states("ks-streamflow") == {}
    assert desk.store.governance() == []
    assert desk.store.version(digest(f"version {name} ks-streamflow")) is None


def test_a_lost_fence_promotes_nothing(desk: Desk) -> None:
    """A worker that was taken over can't publish, and its successor can."""
    first = desk.admitted("a", lease_ms=0)
    second = desk.again(first, worker_id="worker-2").run
    assert second is not None
    late = desk.promote(first, "late", entries=(entry("promotion"),), states=(("x", 1),))
    assert late.answer == "lost"
    _nothing_happened(desk, "late")
    assert desk.promote(second, "good").answer == "promoted"


def test_only_the_run_that_holds_the_lock_promotes(desk: Desk) -> None:
    """The right fence in the hands of another run is worth nothing."""
    run = desk.admitted("a")
    assert desk.promote(run, run_id="00000000-0000-8000-8000-000000000000").answer == "lost"
    assert desk.promote(run, scope="dataset:unknown").answer == "lost"
    _nothing_happened(desk, "bytes")


@pytest.mark.req("GOV-1")
def test_a_switch_thrown_after_the_gates_stops_a_promotion(desk: Desk) -> None:
    """Gates passed under an earlier policy epoch promote nothing; asked again, they may."""
    run = desk.admitted("a")
    before = desk.store.policy_epoch()
    desk.store.set_switch(switch("running"), entry("switch"))
    assert desk.promote(run, "one", policy_epoch=before, states=(("x", 1),)).answer == "epoch-moved"
    assert desk.store.head("ks-streamflow") is None
    assert desk.store.states("ks-streamflow") == {}
    assert desk.promote(run, "one").answer == "promoted"


def test_a_version_built_on_an_older_head_is_refused(desk: Desk) -> None:
    """Two locks of different scopes can meet on one dataset: the second has to build again."""
    mine = desk.admitted("a")
    theirs = desk.admitted("b", scope="domain:hydrology")
    assert desk.promote(theirs, "theirs", scope="domain:hydrology").answer == "promoted"
    answer = desk.promote(mine, "mine", base_sequence=0)
    assert (answer.answer, answer.sequence) == ("head-moved", 1)
    assert desk.store.run(mine.run_id).status == "running"  # type: ignore[union-attr]
    assert desk.promote(mine, "mine").sequence == 2


def test_a_run_promotes_once(desk: Desk) -> None:
    """Asking again after success changes nothing."""
    run = desk.admitted("a")
    assert desk.promote(run, "one").answer == "promoted"
    assert desk.promote(run, "two").answer == "lost"
    assert len(desk.store.promotions("ks-streamflow")) == 1
    assert desk.store.run(run.run_id).version_id == digest("version one ks-streamflow")  # type: ignore[union-attr]


def test_a_state_is_replaced(desk: Desk) -> None:
    """The newest promotion's value counts."""
    desk.promote(desk.admitted("a"), "one", states=(("mark", 1), ("kept", True)))
    desk.promote(desk.admitted("b"), "two", states=(("mark", [2]),))
    assert desk.store.states("ks-streamflow") == {"mark": [2], "kept": True}


# --- failure -------------------------------------------------------------------------


def test_a_failure_frees_the_lock_and_keeps_the_reason(desk: Desk) -> None:
    """A failed run is on record with code and message, and the next run may start."""
    run = desk.admitted("a")
    assert desk.fail(run, error_code="KFM605", error_message="Wrong bytes.", entries=(entry("gate-refused"),))
    stored = desk.store.run(run.run_id)
    assert stored is not None
    assert (stored.status, stored.error_code, stored.error_message) == ("failed", "KFM605", "Wrong bytes.")
    assert stored.end_time_ms is not None
    (call,) = desk.store.invocations()
    assert (call.outcome, call.reason) == ("failed", "Wrong bytes.")
    assert [found.kind for found in desk.store.governance()] == ["gate-refused"]
    assert desk.store.lock(SCOPE).holder is None  # type: ignore[union-attr]
    desk.admitted("b")


def test_a_failure_after_a_takeover_does_not_land(desk: Desk) -> None:
    """The loser's failure neither ends the successor's run nor frees its lock."""
    first = desk.admitted("a", lease_ms=0)
    second = desk.again(first, worker_id="worker-2").run
    assert second is not None
    said = {"entries": (entry("review"),), "pause": switch(scope="dataset:ks-streamflow")}
    assert desk.fail(first, **said) is False
    assert (desk.store.governance(), desk.store.switches()) == ([], [])
    assert desk.store.run(first.run_id) == second
    assert desk.store.renew(SCOPE, second.fence, MINUTE_MS) is not None


def test_a_finished_call_is_not_overwritten(desk: Desk) -> None:
    """What an invocation's outcome was stays, also when its worker believes otherwise."""
    run = desk.admitted("a")
    assert desk.promote(run).answer == "promoted"
    assert desk.fail(run, error_message="I saw no answer.") is False
    (call,) = desk.store.invocations()
    assert call.outcome == "success"
    assert desk.store.run(run.run_id).status == "success"  # type: ignore[union-attr]


@pytest.mark.req("GOV-1")
def test_a_violation_pauses_its_dataset(desk: Desk) -> None:
    """Failure, review entry and thrown switch are one transaction, and the policy epoch moves."""
    run = desk.admitted("a")
    before = desk.store.policy_epoch()
    pause = switch(scope="dataset:ks-streamflow")
    assert desk.fail(run, outcome="refused", pause=pause, entries=(entry("review"), entry("postmortem")))
    assert desk.store.switches() == [pause]
    assert desk.store.policy_epoch() == before + 1
    assert [found.kind for found in desk.store.governance()] == ["postmortem", "review"]
    assert desk.store.invocations()[0].outcome == "refused"
