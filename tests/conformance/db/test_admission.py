"""Admission: key, gate decision and lock in one transaction."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from kfm.db.leases import GONE
from kfm.model.errors import IllegalTransition
from kfm.model.quarantine import RetryState
from kfm.model.records import Holder, Run
from kfm.model.runs import Judge
from tests.conformance.db.ledgers import MINUTE_MS, Desk, dead, digest, entry, invocation, new_run, switch

pytestmark = pytest.mark.req("UPD-2", "UPD-8", "TRG-2")

SCOPE = "dataset:ks-streamflow"


def test_a_new_run_is_stored_with_its_lock_and_its_call(desk: Desk) -> None:
    """After an admission the run, the lock, the call and the governance entries are there together."""
    answer = desk.admit(new_run("a"), entries=(entry("force"),))
    assert answer.answer == "admitted"
    run = answer.run
    assert run is not None
    assert run.fence == 1
    assert desk.store.run(run.run_id) == run
    assert desk.store.run_by_key(run.idempotency_key) == run
    lock = desk.store.lock(SCOPE)
    assert lock is not None
    assert (lock.fence, lock.holder) == (1, Holder(worker_id="worker-1", run_id=run.run_id))
    assert lock.lease_until_ms - lock.acquired_at_ms == MINUTE_MS
    assert desk.store.invocations(run_id=run.run_id) == [invocation(1, run)]
    assert [found.kind for found in desk.store.governance()] == ["force"]


@pytest.mark.parametrize("shared", ["run_id", "idempotency_key", "work_key", "work_base"])
def test_a_key_is_used_once(desk: Desk, shared: str) -> None:
    """Whichever key a second run shares with the first, it is not stored, and the first is handed back."""
    first = desk.admitted("a")
    assert desk.fail(first)
    first = desk.store.run(first.run_id)  # type: ignore[assignment]
    second = replace(new_run("b"), **{shared: getattr(first, shared)})
    answer = desk.admit(second)
    assert answer.answer == "moved"
    if shared != "work_key":  # an equal work key with another base and id is no work of ours
        assert answer.run == first
    assert desk.store.runs() == [first]
    assert len(desk.store.invocations()) == 1
    lock = desk.store.lock(SCOPE)
    assert lock is not None
    assert lock.holder is None


def test_a_held_lock_refuses(desk: Desk) -> None:
    """While a live run holds the lock no other starts; the answer names the holder, and nothing is stored."""
    first = desk.admitted("a")
    answer = desk.admit(new_run("b"), worker_id="worker-2", entries=(entry("force"),))
    assert answer.answer == "locked"
    assert answer.lock is not None
    assert answer.lock.holder == Holder(worker_id="worker-1", run_id=first.run_id)
    assert desk.store.runs() == [first]
    assert len(desk.store.invocations()) == 1
    assert desk.store.governance() == []


def test_locks_of_different_scopes_do_not_touch(desk: Desk) -> None:
    """Work on another dataset goes on beside it."""
    desk.admitted("a")
    assert desk.admit(new_run("b"), scope="dataset:other").answer == "admitted"
    assert [lock.scope for lock in desk.store.locks() if lock.holder] == [
        "dataset:ks-streamflow",
        "dataset:other",
    ]


@pytest.mark.req("GOV-1")
def test_a_switch_thrown_after_the_gates_refuses(desk: Desk) -> None:
    """Gates asked under an earlier policy epoch admit nothing."""
    before = desk.store.policy_epoch()
    desk.store.set_switch(switch(), entry("switch"))
    answer = desk.admit(new_run("a"), policy_epoch=before)
    assert answer.answer == "epoch-moved"
    assert desk.store.runs() == []
    assert desk.store.invocations() == []


@pytest.mark.req("UPD-5")
@pytest.mark.parametrize("gone", ["lapsed", "dead"])
def test_a_gone_holder_is_taken_over_by_other_work(desk: Desk, gone: str) -> None:
    """The run of a holder that is gone fails with the reason, its call ends, and the new run has the lock."""
    first = desk.admitted("a", lease_ms=0 if gone == "lapsed" else MINUTE_MS)
    answer = desk.admit(
        new_run("b"), worker_id="worker-2", dead=dead("worker-1") if gone == "dead" else dead()
    )
    assert answer.answer == "admitted"
    assert answer.run is not None
    assert answer.run.fence == 2
    code = "LEASE_EXPIRED" if gone == "lapsed" else "WORKER_DIED"
    ended = desk.store.run(first.run_id)
    assert ended is not None
    assert (ended.status, ended.error_code) == ("failed", code)
    assert ended.end_time_ms is not None
    (call,) = desk.store.invocations(run_id=first.run_id)
    assert (call.outcome, call.reason, call.reason_code) == ("failed", GONE, code)
    lock = desk.store.lock(SCOPE)
    assert lock is not None
    assert (lock.fence, lock.holder) == (2, Holder(worker_id="worker-2", run_id=answer.run.run_id))


@pytest.mark.req("UPD-5")
@pytest.mark.parametrize("gone", ["lapsed", "dead"])
def test_the_same_work_is_taken_over_in_its_own_row(desk: Desk, gone: str) -> None:
    """A takeover is an attempt more and a higher fence of the same run; the first call ends as failed."""
    first = desk.admitted("a", lease_ms=0 if gone == "lapsed" else MINUTE_MS)
    answer = desk.again(first, worker_id="worker-2", dead=dead("worker-1") if gone == "dead" else dead())
    assert answer.answer == "admitted"
    expected = replace(first, attempts=2, fence=2)
    assert answer.run == expected
    assert desk.store.runs() == [expected]
    calls = {call.invocation_id: call for call in desk.store.invocations(run_id=first.run_id)}
    assert [call.outcome for _, call in sorted(calls.items())] == ["failed", None]


@pytest.mark.req("UPD-5")
def test_a_failed_run_is_restarted_in_its_own_row(desk: Desk) -> None:
    """A retry keeps the keys and the first start, clears the error, and counts one attempt more."""
    first = desk.admitted("a")
    assert desk.fail(first)
    failed = desk.store.run(first.run_id)
    assert failed is not None
    answer = desk.again(failed)
    assert answer.answer == "admitted"
    stored = desk.store.run(first.run_id)
    assert answer.run == stored == replace(first, attempts=2, fence=2)


def test_a_restart_of_what_has_moved_is_refused(desk: Desk) -> None:
    """Two calls that saw the same failed run: one restarts it, the other is shown the row as it is now."""
    first = desk.admitted("a")
    desk.fail(first)
    failed = desk.store.run(first.run_id)
    assert failed is not None
    winner = desk.again(failed, lease_ms=0)
    assert winner.answer == "admitted"
    loser = desk.again(failed, worker_id="worker-2")
    assert loser.answer == "moved"
    assert loser.run == winner.run


def promised(run: Run) -> RetryState:
    return RetryState(
        run_id=run.run_id,
        attempt=run.attempts,
        grants=0,
        grant_attempts=0,
        granted_at_ms=0,
        not_before_ms=9_000_000_000_000,
        fate="retry",
        error_class="network",
        reason="retry",
        updated_at_ms=1,
    )


@pytest.mark.req("RS-5")
def test_a_take_over_does_not_overtake_a_promise(desk: Desk) -> None:
    """Who saw an attempt at work and takes it over is refused once that has ended: its next attempt may have
    been promised for later, and nothing begins before its time."""
    first = desk.admitted("a", lease_ms=0)
    assert desk.fail(first, retry=promised(first))
    late = desk.again(first, worker_id="worker-2", judged=None)
    assert late.answer == "moved"
    stored = desk.store.run(first.run_id)
    assert stored is not None
    assert (stored.status, stored.attempts) == ("failed", 1)


@pytest.mark.req("RS-5")
def test_what_was_decided_meanwhile_is_seen(desk: Desk) -> None:
    """Who saw a failed run about which nothing was decided yet is refused once something is."""
    first = desk.admitted("a")
    assert desk.fail(first)
    failed = desk.store.run(first.run_id)
    assert failed is not None
    assert desk.store.judge(Judge(run=failed, seen=None, retry=promised(failed)))
    assert desk.again(failed, judged=None).answer == "moved"
    assert desk.again(failed).answer == "admitted"


def test_a_call_that_comes_too_late_evicts_no_holder(desk: Desk) -> None:
    """A refused admission leaves a lapsed holder as it is: still able to renew and to promote."""
    first = desk.admitted("a", lease_ms=0)
    assert desk.admit(new_run("a"), worker_id="worker-2").answer == "moved"
    assert desk.store.run(first.run_id) == first
    assert desk.store.renew(SCOPE, first.fence, MINUTE_MS) == (desk.store.policy_epoch(), None)
    assert desk.promote(first).answer == "promoted"


def test_finished_work_is_not_restarted(desk: Desk) -> None:
    """A run that succeeded can't be opened again, whatever the caller believes."""
    first = desk.admitted("a")
    desk.promote(first)
    done = desk.store.run(first.run_id)
    assert done is not None
    with pytest.raises(IllegalTransition):
        desk.again(done)
    assert desk.again(first).answer == "moved"  # seen while it was still running
    assert desk.store.run(first.run_id) == done


def test_the_fence_rises_also_when_the_scope_changes(desk: Desk) -> None:
    """A run that is taken over under another lock still has a higher fence, so its first holder has lost."""
    desk.admitted("other", scope="domain:hydrology", lease_ms=0)
    first = desk.admitted("a", scope="domain:hydrology")
    assert first.fence == 2
    answer = desk.again(first, scope=SCOPE)
    assert answer.answer == "admitted"
    second = answer.run
    assert second is not None
    assert second.fence == 3
    assert desk.promote(first, scope="domain:hydrology").answer == "lost"
    assert desk.fail(first, scope="domain:hydrology") is False
    assert desk.promote(second).answer == "promoted"


def test_a_retry_keeps_its_original_trigger(desk: Desk) -> None:
    """Only the invocation says that it was a retry."""
    first = desk.admitted("a")
    desk.fail(first)
    failed = desk.store.run(first.run_id)
    assert failed is not None
    desk.again(failed, invocation=invocation(9, failed, trigger_type="retry"))
    assert [call.trigger_type for call in desk.store.invocations(run_id=first.run_id)] == ["retry", "manual"]
    assert desk.store.run(first.run_id).trigger_type == "manual"  # type: ignore[union-attr]


@pytest.mark.req("UPD-4", "UPD-5")
def test_a_refused_call_stores_only_the_call(desk: Desk) -> None:
    """A refusal, a no-op and a busy answer leave an invocation and consume no key."""
    run = desk.admitted("a")
    desk.store.record_invocation(invocation(7, run, outcome="busy", reason="held"))
    desk.store.record_invocation(invocation(8, None, outcome="refused"), (entry("gate-refused"),))
    assert [call.outcome for call in desk.store.invocations()] == ["refused", "busy", None]
    assert [found.kind for found in desk.store.governance()] == ["gate-refused"]
    assert desk.store.run_by_key(digest("none")) is None
    assert desk.store.runs() == [run]
