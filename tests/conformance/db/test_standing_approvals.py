"""Approvals for more than one attempt, on every store: of a preview, and standing ones."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from kfm.model.quarantine import Approval
from kfm.model.requests import UpdateRequest
from tests.conformance.db.ledgers import START_MS, Desk, digest, entry, new_run
from tests.conformance.db.test_approvals import DAY_MS, approval_request, yes

pytestmark = pytest.mark.req("DAT-9")

CLAIM_MS = 60_000


def ask(desk: Desk, number: int, *, plan: str = "plan", window_ms: int = 0) -> tuple[UpdateRequest, Approval]:
    """A request that waits for an approval of its preview."""
    now_ms = desk.store.now_ms()
    request = UpdateRequest(
        request_id=f"{number:08d}-0000-8000-8000-000000000000",
        key=digest(f"key {number}"),
        kind="cron",
        source_id="gauges",
        dataset_id="ks-streamflow",
        window_start_ms=window_ms,
        window_end_ms=window_ms + DAY_MS,
        actor="service",
        accepted_at_ms=now_ms,
    )
    requests = desk.store.requests()
    assert requests.accept([request]) == [None]
    taken = requests.take(request.request_id, "worker-1", CLAIM_MS)
    assert taken is not None
    approval = approval_request(
        number,
        kind="update",
        subject=request.request_id,
        digest=digest(plan),
        requested_by="service",
        requested_names=(),
        terms=digest("terms"),
        fingerprint=digest("inputs"),
        base_sequence=0,
    )
    assert requests.await_approval(taken, (approval.digest, "{}\n"), approval, entry("approval-requested"))
    return taken, approval


def stored(desk: Desk, approval: Approval) -> Approval:
    found = desk.store.approval(approval.request_id)
    assert found is not None
    return found


def standing(**changes: Any) -> Approval:
    given = approval_request(
        kind="standing",
        subject="gauges",
        requested_by="source:gauges",
        requested_names=(),
        state="approved",
        approved_by="bob",
        approved_at_ms=START_MS,
        approval_rationale="agreed",
        expires_at_ms=2**50,
    )
    return replace(given, **changes)


def test_an_approved_preview_is_for_every_attempt(desk: Desk) -> None:
    """Each attempt uses it, also after its date, if the first was in time; each use is kept."""
    request, approval = ask(desk, 1)
    assert desk.store.approve(yes(approval, update=request.request_id)).answer == "approved"
    use = (approval.request_id, approval.digest)
    first = desk.admit(new_run("one"), approval=use)
    assert first.answer == "admitted"
    assert first.run is not None
    desk.fail(first.run)
    seen = desk.store.run(first.run.run_id)
    assert seen is not None
    assert desk.again(seen, approval=use).answer == "admitted"
    assert desk.store.approval_uses(approval.request_id) == 2
    for attempt in (1, 2):
        found = desk.store.approval_of_attempt(first.run.run_id, attempt)
        assert found is not None
        assert found.request_id == approval.request_id
    assert desk.store.approval_of_attempt(first.run.run_id, 3) is None


def test_an_approved_preview_lapses_unused(desk: Desk) -> None:
    """Not begun in time, it begins nothing."""
    request, approval = ask(desk, 1)
    assert desk.store.approve(yes(approval, update=request.request_id, valid_ms=0)).answer == "approved"
    assert desk.admit(new_run("one"), approval=(approval.request_id, approval.digest)).answer == "moved"


def test_a_newer_preview_of_the_same_work_supersedes(desk: Desk) -> None:
    """The older request ends, its approval can't be given; another window is not touched."""
    older, first = ask(desk, 1)
    other, apart = ask(desk, 2, window_ms=DAY_MS)
    _newer, second = ask(desk, 3, plan="newer")
    assert stored(desk, first).status == "superseded"
    assert stored(desk, first).superseded_by == second.request_id
    assert [stored(desk, one).status for one in (apart, second)] == ["requested"] * 2
    ended = desk.store.requests().request(older.request_id)
    assert ended is not None
    assert (ended.state, ended.outcome) == ("cancelled", "superseded")
    assert desk.store.approve(yes(first, update=older.request_id)).answer == "moved"
    assert desk.store.approve(yes(apart, update=other.request_id)).answer == "approved"


def test_a_cancelled_request_asks_no_more(desk: Desk) -> None:
    """With its request the approval ends, too."""
    request, approval = ask(desk, 1)
    assert desk.store.requests().cancel(request.request_id, "Not needed.")
    assert stored(desk, approval).status == "superseded"
    assert desk.store.approvals(state="requested") == []


def test_a_standing_approval_is_not_used_up(desk: Desk) -> None:
    """Any number of runs begin under it; revoked, none does, and the policies are asked anew."""
    given = standing()
    desk.store.stand(given, entry("standing-approval"))
    use = (given.request_id, given.digest)
    for name in ("one", "two"):
        answer = desk.admit(new_run(name), approval=use, scope=f"dataset:{name}")
        assert answer.answer == "admitted"
    assert desk.store.approval_uses(given.request_id) == 2
    epoch = desk.store.policy_epoch()
    assert desk.store.revoke_approval(given.request_id, "bob", "over", [entry("approval-revoked")])
    assert desk.store.policy_epoch() > epoch
    assert not desk.store.revoke_approval(given.request_id, "bob", "over", [entry("approval-revoked")])
    assert stored(desk, given).status == "revoked"
    answer = desk.admit(
        new_run("three"), approval=use, scope="dataset:three", policy_epoch=desk.store.policy_epoch()
    )
    assert answer.answer == "moved"


def test_a_standing_approval_ends_at_its_date(desk: Desk) -> None:
    """From that moment on no run begins under it."""
    given = standing(expires_at_ms=1)
    desk.store.stand(given, entry("standing-approval"))
    assert desk.admit(new_run("one"), approval=(given.request_id, given.digest)).answer == "moved"


def test_what_was_used_up_is_not_revoked(desk: Desk) -> None:
    """An approval of one attempt that was made stays what it is."""
    asked = approval_request()
    desk.store.request_approval(asked, entry("approval-requested"))
    assert desk.store.approve(yes(asked)).answer == "approved"
    assert desk.admit(new_run("one"), approval=(asked.request_id, asked.digest)).answer == "admitted"
    assert not desk.store.revoke_approval(asked.request_id, "bob", "late", [entry("approval-revoked")])
