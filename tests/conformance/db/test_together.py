"""Runs that begin and end together: one lock, one fence, one version; all of them or none."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from kfm.model.records import Run, is_promotion_of
from kfm.model.runs import Admit, AdmitResult, Promote, PromoteResult
from kfm.model.versions import version_of
from tests.conformance.db.ledgers import (
    MINUTE_MS,
    Desk,
    alive,
    dead,
    digest,
    entry,
    invocation,
    manifest,
    new_run,
)

pytestmark = pytest.mark.req("UPD-5", "UPD-8", "DAT-3")

SCOPE = "dataset:ks-streamflow"
NAMES = ("a", "b", "c")


def admission(desk: Desk, run: Run, seen: Run | None = None) -> Admit:
    desk.calls += 1
    return Admit(
        run=run,
        seen=seen,
        scope=SCOPE,
        worker_id="worker-1",
        lease_ms=MINUTE_MS,
        invocation=invocation(desk.calls, run),
        policy_epoch=desk.store.policy_epoch(),
        judged=desk.store.retry_state(seen.run_id) if seen else None,
    )


def admit(desk: Desk, *runs: Run, seen: tuple[Run | None, ...] = ()) -> AdmitResult:
    asked = [
        admission(desk, run, before) for run, before in zip(runs, seen or [None] * len(runs), strict=True)
    ]
    return desk.store.admit(replace(asked[0], together=tuple(asked[1:])), alive)


def begun(desk: Desk, *names: str) -> list[Run]:
    answer = admit(desk, *map(new_run, names or NAMES))
    assert answer.answer == "admitted"
    assert answer.run is not None
    return [answer.run, *answer.together]


def promotion(desk: Desk, run: Run, **changes: Any) -> Promote:
    head = desk.store.head(run.dataset_id)
    call = desk.store.invocations(run_id=run.run_id)[-1]
    request = Promote(
        run_id=run.run_id,
        dataset_id=run.dataset_id,
        scope=SCOPE,
        fence=run.fence,
        policy_epoch=desk.store.policy_epoch(),
        base_sequence=head[0].sequence if head else 0,
        fingerprint=digest(f"fingerprint {run.run_id}"),
        version_id=digest("version"),
        version=version_of(manifest("bytes")),
        invocation_id=call.invocation_id,
        reason="This work has not been done yet.",
    )
    return replace(request, **changes)


def promote(desk: Desk, runs: list[Run], **changes: Any) -> PromoteResult:
    first, *others = [promotion(desk, run) for run in runs]
    return desk.store.promote(
        replace(first, together=tuple(others), entries=(entry("promotion", first.run_id),), **changes)
    )


def stored(desk: Desk, runs: list[Run]) -> list[Run]:
    found = [desk.store.run(run.run_id) for run in runs]
    assert all(found)
    return [run for run in found if run is not None]


def restarted(run: Run) -> Run:
    return replace(
        run,
        status="running",
        attempts=run.attempts + 1,
        end_time_ms=None,
        error_code=None,
        error_message=None,
    )


def test_they_begin_and_end_as_one(desk: Desk) -> None:
    """All have one fence, end in one transaction with one version, and each knows its promotion."""
    runs = begun(desk)
    assert len({run.fence for run in runs}) == 1
    lock = desk.store.lock(SCOPE)
    assert lock is not None
    assert lock.holder is not None
    assert lock.holder.run_id == runs[0].run_id
    assert promote(desk, runs).answer == "promoted"
    ended = stored(desk, runs)
    assert [(run.status, run.outcome) for run in ended] == [("success", "published")] * 3
    (only,) = desk.store.promotions("ks-streamflow")
    assert all(is_promotion_of(only, run) for run in ended)
    assert {call.outcome for run in runs for call in desk.store.invocations(run_id=run.run_id)} == {"success"}
    lock = desk.store.lock(SCOPE)
    assert lock is not None
    assert lock.holder is None


def test_one_that_has_moved_keeps_all_from_beginning(desk: Desk) -> None:
    """A run that another process began meanwhile: nothing of the others is stored."""
    desk.fail(desk.admitted("c"))
    answer = admit(desk, *map(new_run, NAMES))
    assert answer.answer == "moved"
    assert desk.store.run(new_run("a").run_id) is None
    assert desk.store.lock(SCOPE).holder is None  # type: ignore[union-attr]


def test_one_that_is_lost_keeps_all_from_being_promoted(desk: Desk) -> None:
    """The last of them went on elsewhere: no version, no success, and the lock is still held."""
    runs = begun(desk)
    assert desk.again(runs[2], scope="domain:hydrology").answer == "admitted"
    assert promote(desk, runs).answer == "lost"
    assert desk.store.head("ks-streamflow") is None
    assert [run.status for run in stored(desk, runs)] == ["running"] * 3
    lock = desk.store.lock(SCOPE)
    assert lock is not None
    assert lock.holder is not None


@pytest.mark.parametrize("bent", ["holder", "fence", "epoch", "head"])
def test_nothing_is_promoted_once_the_world_has_moved(desk: Desk, bent: str) -> None:
    """Lock, fence, policy epoch and head are compared for all of them."""
    runs = begun(desk)
    changes: dict[str, Any] = {
        "holder": {"holder": runs[1].run_id},
        "fence": {"fence": runs[0].fence + 1},
        "epoch": {"policy_epoch": desk.store.policy_epoch() + 1},
        "head": {"base_sequence": 7},
    }[bent]
    assert promote(desk, runs, **changes).answer in ("lost", "epoch-moved", "head-moved")
    assert desk.store.head("ks-streamflow") is None
    assert [run.status for run in stored(desk, runs)] == ["running"] * 3


def test_the_version_may_be_recorded_with_another_than_the_holder(desk: Desk) -> None:
    """The first that changes something has the version; the lock is the first one's all the same."""
    runs = begun(desk)
    order = [runs[1], runs[0], runs[2]]
    assert promote(desk, order, holder=runs[0].run_id).answer == "promoted"
    head = desk.store.head("ks-streamflow")
    assert head is not None
    assert head[0].run_id == runs[1].run_id


def test_a_process_that_dies_leaves_none_of_them_running(desk: Desk) -> None:
    """Reaping ends all that are under way under its fence, once, and their next attempts begin together."""
    runs = begun(desk)
    assert {one.run_id for one in desk.store.reap(dead("worker-1"))} == {run.run_id for run in runs}
    ended = stored(desk, runs)
    assert [(run.status, run.error_code) for run in ended] == [("failed", "WORKER_DIED")] * 3
    assert desk.store.reap(dead("worker-1")) == []
    assert desk.store.head("ks-streamflow") is None
    answer = admit(desk, *map(restarted, ended), seen=tuple(ended))
    assert answer.answer == "admitted"
    again = [answer.run, *answer.together]
    assert [(run.attempts, run.fence > runs[0].fence) for run in again if run] == [(2, True)] * 3


def test_a_dead_process_is_found_at_the_door(desk: Desk) -> None:
    """Where nothing has reaped, the run that takes the lock ends all that were under it."""
    runs = begun(desk)
    taken = desk.admit(new_run("d"), dead=dead("worker-1"), worker_id="worker-2")
    assert taken.answer == "admitted"
    assert [run.status for run in stored(desk, runs)] == ["failed"] * 3


def test_another_dataset_s_runs_are_not_reaped_with_them(desk: Desk) -> None:
    """A run of the same fence, of another dataset or under a lock of its own, goes on."""
    runs = begun(desk)
    other = new_run("other", dataset_id="ks-counties")
    assert desk.admit(other, scope="dataset:ks-counties", worker_id="worker-2").answer == "admitted"
    own = desk.admit(new_run("own"), scope="domain:hydrology", worker_id="worker-2")
    assert own.run is not None
    assert own.run.fence == runs[0].fence
    reaped = {one.run_id for one in desk.store.reap(dead("worker-1"))}
    assert reaped == {run.run_id for run in runs}


def test_one_that_fails_can_leave_the_lock_to_the_others(desk: Desk) -> None:
    """The holder fails and the others are promoted; the last that fails gives the lock back."""
    runs = begun(desk)
    assert desk.fail(runs[0], keeps_lock=True)
    lock = desk.store.lock(SCOPE)
    assert lock is not None
    assert lock.holder is not None
    assert promote(desk, runs[1:], holder=runs[0].run_id).answer == "promoted"
    assert [run.status for run in stored(desk, runs)] == ["failed", "success", "success"]


def test_what_was_left_by_a_holder_that_failed_is_reaped(desk: Desk) -> None:
    """The holder's run has failed already: those beside it are ended all the same."""
    runs = begun(desk)
    assert desk.fail(runs[0], keeps_lock=True)
    assert {one.run_id for one in desk.store.reap(dead("worker-1"))} == {run.run_id for run in runs[1:]}
    assert [run.status for run in stored(desk, runs)] == ["failed"] * 3
