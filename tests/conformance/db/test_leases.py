"""Leases: renewed, lost, reaped; and the collector's, which excludes every run."""

from __future__ import annotations

import pytest

from kfm.model.keys import request_id
from kfm.model.records import Holder
from kfm.model.requests import UpdateRequest
from tests.conformance.db.ledgers import MINUTE_MS, Desk, alive, dead, entry, new_run, switch

pytestmark = pytest.mark.req("UPD-8")

SCOPE = "dataset:ks-streamflow"


def test_renewing_answers_with_the_policy_epoch(desk: Desk) -> None:
    """The holder's heartbeat moves the end of the lease and learns whether a switch was thrown."""
    run = desk.admitted("a", lease_ms=1_000)
    before = desk.store.lock(SCOPE)
    first = desk.store.renew(SCOPE, run.fence, MINUTE_MS)
    after = desk.store.lock(SCOPE)
    assert before is not None
    assert after is not None
    assert after.lease_until_ms >= before.lease_until_ms + MINUTE_MS - 1_000
    assert (after.fence, after.holder) == (before.fence, before.holder)
    moved = desk.store.set_switch(switch(), entry("switch"))
    assert first == (moved - 1, None)
    assert desk.store.renew(SCOPE, run.fence, MINUTE_MS) == (moved, None)


@pytest.mark.req("UPD-13", "TRG-2")
def test_a_lease_holds_the_requests_of_its_run(desk: Desk) -> None:
    """The holder's heartbeat keeps the claims of the requests that it works for, and hears of a cancel."""
    run = desk.admitted("a")
    requests = desk.store.requests()
    key = f"sha256:{'1' * 64}"
    request = UpdateRequest(
        request_id=request_id(key),
        key=key,
        kind="webhook",
        source_id=run.source_id,
        dataset_id=run.dataset_id,
        window_start_ms=run.window_start_ms,
        window_end_ms=run.window_end_ms,
        actor="webhook:a",
        accepted_at_ms=1,
        state="running",
        run_id=run.run_id,
        claimed_by="w1",
        claim_until_ms=1,
    )
    requests.accept([request])
    assert desk.store.renew(SCOPE, run.fence, MINUTE_MS) == (desk.store.policy_epoch(), None)
    held = requests.request(request.request_id)
    assert held is not None
    assert held.claim_until_ms > desk.store.now_ms()
    assert requests.cancel(request.request_id, "not this one")
    assert desk.store.renew(SCOPE, run.fence, MINUTE_MS) == (desk.store.policy_epoch(), "not this one")


def test_a_lost_lease_is_not_renewed(desk: Desk) -> None:
    """After a takeover, and after a release, the old fence renews nothing."""
    first = desk.admitted("a", lease_ms=0)
    second = desk.admitted("b", worker_id="worker-2")
    assert desk.store.renew(SCOPE, first.fence, MINUTE_MS) is None
    assert desk.fail(second)
    assert desk.store.renew(SCOPE, second.fence, MINUTE_MS) is None
    assert desk.store.renew("dataset:unknown", 1, MINUTE_MS) is None


def test_a_lapsed_lease_that_no_process_took_can_be_renewed(desk: Desk) -> None:
    """A lease that lapsed is still its holder's as long as no other process has taken it."""
    run = desk.admitted("a", lease_ms=0)
    assert desk.store.renew(SCOPE, run.fence, MINUTE_MS) == (desk.store.policy_epoch(), None)
    assert desk.admit(new_run("b")).answer == "locked"


def test_reaping_ends_the_runs_whose_holder_is_gone(desk: Desk) -> None:
    """Lapsed and dead holders' runs fail with the reason; the living keep their locks; fences grow."""
    lapsed = desk.admitted("a", scope="dataset:a", worker_id="w-lapsed", lease_ms=0)
    died = desk.admitted("b", scope="dataset:b", worker_id="w-dead")
    living = desk.admitted("c", scope="dataset:c", worker_id="w-live")
    reaped = {one.run_id: one for one in desk.store.reap(dead("w-dead"))}
    assert reaped.keys() == {lapsed.run_id, died.run_id}
    assert reaped[lapsed.run_id].lapsed is True
    assert reaped[died.run_id].lapsed is False
    codes = {run.run_id: (run.status, run.error_code) for run in desk.store.runs()}
    assert codes == {
        lapsed.run_id: ("failed", "LEASE_EXPIRED"),
        died.run_id: ("failed", "WORKER_DIED"),
        living.run_id: ("running", None),
    }
    locks = {lock.scope: lock for lock in desk.store.locks()}
    assert [locks[f"dataset:{name}"].fence for name in "abc"] == [2, 2, 1]
    assert [lock.scope for lock in locks.values() if lock.holder] == ["dataset:c"]
    assert [call.outcome for call in desk.store.invocations()] == [None, "failed", "failed"]
    assert desk.store.reap(dead("w-dead")) == []


@pytest.mark.req("UPD-9")
def test_a_lapsed_lock_closes_nothing_of_a_run_that_goes_on_elsewhere(desk: Desk) -> None:
    """A run that goes on under a lock of another scope keeps its open records when the old lock is swept;
    what was left of its earlier attempt ends."""
    first = desk.admitted("a", scope="dataset:a", worker_id="w1", lease_ms=0)
    again = desk.again(first, scope="domain:a", worker_id="w2")
    assert again.answer == "admitted"
    assert again.run is not None
    assert desk.store.reap(alive) == []
    run = desk.store.run(first.run_id)
    assert run is not None
    assert (run.status, run.attempts) == ("running", 2)
    assert [call.outcome for call in desk.store.invocations()] == [None, "failed"]
    assert [attempt.ending for attempt in desk.store.attempts(run.run_id)] == ["abort", None]
    assert {lock.scope for lock in desk.store.locks() if lock.holder} == {"domain:a"}
    assert desk.promote(again.run, scope="domain:a").answer == "promoted"
    assert [call.outcome for call in desk.store.invocations()] == ["success", "failed"]


def test_a_reaped_run_can_do_nothing_more(desk: Desk) -> None:
    """Whatever an evicted worker still tries is refused."""
    run = desk.admitted("a", lease_ms=0)
    assert len(desk.store.reap(alive)) == 1
    assert desk.store.renew(SCOPE, run.fence, MINUTE_MS) is None
    assert desk.promote(run).answer == "lost"
    assert desk.fail(run) is False
    assert desk.store.head("ks-streamflow") is None
    assert desk.store.run(run.run_id).error_code == "LEASE_EXPIRED"  # type: ignore[union-attr]


def test_collection_excludes_runs_and_runs_exclude_collection(desk: Desk) -> None:
    """Garbage is collected only while no run is under way, and no run starts meanwhile."""
    run = desk.admitted("a")
    standing = desk.store.begin_collection("sweeper", MINUTE_MS, alive)
    assert not isinstance(standing, int)
    assert standing.holder == Holder(worker_id="worker-1", run_id=run.run_id)
    desk.fail(run)
    fence = desk.store.begin_collection("sweeper", MINUTE_MS, alive)
    assert isinstance(fence, int)
    assert not isinstance(desk.store.begin_collection("sweeper-2", MINUTE_MS, alive), int)
    refused = desk.admit(new_run("b"))
    assert refused.answer == "locked"
    assert refused.lock is not None
    assert refused.lock.scope == "gc"
    assert desk.store.renew("gc", fence, MINUTE_MS) is not None
    desk.store.end_collection(fence, entry("gc"))
    assert [found.kind for found in desk.store.governance()] == ["gc"]
    assert desk.admit(new_run("b")).answer == "admitted"


@pytest.mark.req("GRO-2")
def test_a_collection_that_waits_holds_new_runs_back(desk: Desk) -> None:
    """While a collection waits, no run begins, and one in progress goes on to its end: then it collects.
    Another collection neither begins nor waits meanwhile."""
    run = desk.admitted("a")
    waiting = desk.store.await_collection("sweeper", MINUTE_MS, alive)
    assert waiting is not None
    refused = desk.admit(new_run("b", dataset_id="other"), scope="dataset:other")
    assert refused.answer == "locked"
    assert refused.lock is not None
    assert refused.lock.scope == "gc"
    assert desk.store.await_collection("sweeper-2", MINUTE_MS, alive) is None
    standing = desk.store.begin_collection("sweeper", MINUTE_MS, alive, waiting)
    assert not isinstance(standing, int)
    assert standing.holder == Holder(worker_id="worker-1", run_id=run.run_id)
    assert desk.store.renew(SCOPE, run.fence, MINUTE_MS) is not None
    assert desk.store.renew("gc", waiting, MINUTE_MS) is not None
    assert desk.promote(run).answer == "promoted"
    assert not isinstance(desk.store.begin_collection("sweeper-2", MINUTE_MS, alive), int)
    fence = desk.store.begin_collection("sweeper", MINUTE_MS, alive, waiting)
    assert isinstance(fence, int)
    assert fence > waiting
    assert desk.store.renew("gc", waiting, MINUTE_MS) is None
    desk.store.leave_collection(waiting)  # frees nothing that is not its own any more
    assert desk.admit(new_run("b")).answer == "locked"
    desk.store.end_collection(fence, entry("gc"))
    assert desk.admit(new_run("b")).answer == "admitted"


@pytest.mark.req("GRO-2")
@pytest.mark.parametrize("how", ["gave up", "lapsed", "killed"])
def test_a_collection_that_waits_no_longer_holds_nothing_back(desk: Desk, how: str) -> None:
    """One that gave up, or was killed, lets new runs begin: at once, or when its lease lapses. Should it go
    on, it finds their locks."""
    desk.admitted("a")
    waiting = desk.store.await_collection("sweeper", 0 if how == "lapsed" else MINUTE_MS, alive)
    assert waiting is not None
    if how == "gave up":
        desk.store.leave_collection(waiting)
    gone = dead("sweeper") if how == "killed" else alive
    assert desk.admit(new_run("b"), scope="dataset:other", dead=gone).answer == "admitted"
    if how != "gave up":
        assert desk.store.renew("gc", waiting, MINUTE_MS) is None
    assert not isinstance(desk.store.begin_collection("sweeper", MINUTE_MS, alive, waiting), int)


def test_collection_evicts_the_gone_first(desk: Desk) -> None:
    """Collection is not blocked by a run whose holder is gone: the run fails."""
    run = desk.admitted("a", lease_ms=0)
    assert isinstance(desk.store.begin_collection("sweeper", MINUTE_MS, alive), int)
    assert desk.store.run(run.run_id).error_code == "LEASE_EXPIRED"  # type: ignore[union-attr]
    assert desk.promote(run).answer == "lost"


@pytest.mark.req("GOV-1")
def test_an_abandoned_run_has_failed_and_its_lock_is_free(desk: Desk) -> None:
    """With the code and the words that it is given; what its process tries later is refused."""
    run = desk.admitted("a")
    assert desk.store.abandon(
        SCOPE, run.fence, run.run_id, "CANCELLED", "Stopped.", "cancelled", retryable=False
    )
    found = desk.store.run(run.run_id)
    assert found is not None
    assert (found.status, found.error_code, found.error_message) == ("failed", "CANCELLED", "Stopped.")
    lock = desk.store.lock(SCOPE)
    assert lock is not None
    assert lock.holder is None
    assert desk.store.renew(SCOPE, run.fence, MINUTE_MS) is None
    assert desk.promote(run).answer == "lost"
    assert not desk.fail(run)
    again = desk.store.abandon(
        SCOPE, run.fence, run.run_id, "CANCELLED", "Again.", "cancelled", retryable=False
    )
    assert not again
    assert desk.admit(new_run("b")).answer == "admitted"


@pytest.mark.req("GOV-1")
def test_a_run_that_has_passed_to_another_is_not_abandoned(desk: Desk) -> None:
    """The successor's lock and run stay as they are."""
    first = desk.admitted("a", lease_ms=0)
    second = desk.admitted("b", worker_id="worker-2")
    assert not desk.store.abandon(
        SCOPE, first.fence, first.run_id, "CANCELLED", "x", "cancelled", retryable=False
    )
    lock = desk.store.lock(SCOPE)
    assert lock is not None
    assert lock.holder is not None
    assert lock.holder.run_id == second.run_id


@pytest.mark.parametrize("by", ["run", "reaper", "collector"])
def test_a_gone_collector_is_replaced(desk: Desk, by: str) -> None:
    """A collector that died or stalled blocks no other, and learns at its next heartbeat that it is none."""
    first = desk.store.begin_collection("sweeper", 0, alive)
    assert isinstance(first, int)
    if by == "run":
        assert desk.admit(new_run("a")).answer == "admitted"
    elif by == "reaper":
        assert desk.store.reap(alive) == []  # no run was ended
    else:
        second = desk.store.begin_collection("sweeper-2", MINUTE_MS, alive)
        assert isinstance(second, int)
        assert second > first
    assert desk.store.renew("gc", first, MINUTE_MS) is None
    desk.store.end_collection(first, entry("gc"))  # on record, and frees nothing that is not its own
    if by == "collector":
        assert desk.admit(new_run("a")).answer == "locked"
