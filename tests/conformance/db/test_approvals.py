"""Approvals on every store: two persons, one use, no process at work."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from kfm.db.ledger import Ledger
from kfm.model.quarantine import Approval, QuarantineEntry, release_digest
from kfm.model.records import Run
from kfm.model.retry_budgets import granted
from kfm.model.roles import KnownPerson, hash_of, identify
from kfm.model.runs import Approve, Judge, Reject
from tests.conformance.db.ledgers import START_MS, Desk, digest, entry, new_run
from tests.conformance.db.test_quarantine import failed, held_of, state_of

DAY_MS = 86_400_000


def approval_request(number: int = 1, **changes: Any) -> Approval:
    made = Approval(
        request_id=f"request-{number}",
        kind="attempt",
        subject=digest("work"),
        digest=digest("what"),
        requested_by="ada",
        requested_names=("ada", "ada-adm"),
        requested_at_ms=START_MS,
        rationale="Yearly review.",
        about="one attempt",
        dataset_id="ks-streamflow",
    )
    return replace(made, **changes)


def yes(asked: Approval, by: str = "bob", **changes: Any) -> Approve:
    made = Approve(
        request_id=asked.request_id,
        digest=asked.digest,
        approved_by=by,
        rationale="Seen it.",
        valid_ms=DAY_MS,
        entries=(entry("approval"),),
    )
    return replace(made, **changes)


@pytest.fixture
def approved(desk: Desk) -> Approval:
    asked = approval_request()
    desk.store.request_approval(asked, entry("approval-requested"))
    assert desk.store.approve(yes(asked)).answer == "approved"
    stored = desk.store.approval(asked.request_id)
    assert stored is not None
    return stored


@pytest.mark.req("GOV-3", "RET-9")
def test_an_approval_is_used_up_by_one_attempt(desk: Desk, approved: Approval) -> None:
    """The attempt and the use of its approval land together; the next attempt finds none."""
    assert approved.expires_at_ms == (approved.approved_at_ms or 0) + DAY_MS
    use = (approved.request_id, approved.digest)
    answer = desk.admit(new_run("one"), approval=use)
    assert answer.answer == "admitted"
    assert answer.run is not None
    stored = desk.store.approval(approved.request_id)
    assert stored is not None
    assert (stored.used_by, stored.used_attempt) == (answer.run.run_id, 1)
    desk.fail(answer.run)
    seen = desk.store.run(answer.run.run_id)
    assert seen is not None
    assert desk.again(seen, approval=use).answer == "moved"
    assert desk.admit(new_run("two"), approval=use).answer == "moved"
    assert desk.store.run(seen.run_id) == seen


@pytest.mark.req("GOV-3", "RET-9")
@pytest.mark.parametrize(
    "use", [("request-1", digest("other")), ("request-2", digest("what")), ("request-3", digest("what"))]
)
def test_an_approval_that_does_not_fit_admits_nothing(
    desk: Desk, approved: Approval, use: tuple[str, str]
) -> None:
    """Of something else, not there, or not yet approved: no run, no key, no lock."""
    desk.store.request_approval(approval_request(3), entry("approval-requested"))
    assert desk.admit(new_run("one"), approval=use).answer == "moved"
    assert desk.store.runs() == []
    assert [lock for lock in desk.store.locks() if lock.holder] == []
    assert approved.used_by is None


@pytest.mark.req("GOV-3", "RET-9")
def test_an_approval_lapses(desk: Desk) -> None:
    """Unused for too long, it was for another situation."""
    asked = approval_request()
    desk.store.request_approval(asked, entry("approval-requested"))
    assert desk.store.approve(yes(asked, valid_ms=0)).answer == "approved"
    assert desk.admit(new_run("one"), approval=(asked.request_id, asked.digest)).answer == "moved"


@pytest.mark.req("GOV-3")
def test_a_rejection_is_final(desk: Desk) -> None:
    """What was rejected is neither approved nor rejected again; the requester can't reject it."""
    asked = approval_request()
    desk.store.request_approval(asked, entry("approval-requested"))
    no = Reject(
        request_id=asked.request_id, rejected_by="bob", rationale="Not now.", entries=(entry("rejection"),)
    )
    for names in (("ada",), ("cy", "ada-adm")):
        assert not desk.store.reject(replace(no, rejected_by=names[0], names=names))
    assert desk.store.reject(no)
    assert not desk.store.reject(replace(no, rejected_by="cy"))
    assert desk.store.approve(yes(asked)).answer == "moved"
    stored = desk.store.approval(asked.request_id)
    assert stored is not None
    assert (stored.status, stored.rejected_by, stored.rejection_rationale) == (
        "rejected",
        "bob",
        "Not now.",
    )
    assert desk.store.approvals(state="requested") == []
    assert desk.store.approvals(state="rejected") == [stored]


@pytest.mark.req("GOV-3")
def test_what_was_approved_is_not_rejected(desk: Desk, approved: Approval) -> None:
    """A no that comes too late changes nothing."""
    late = Reject(request_id=approved.request_id, rejected_by="cy", rationale="No.")
    assert not desk.store.reject(late)
    assert desk.store.approval(approved.request_id) == approved


@pytest.mark.req("GOV-3")
def test_no_attempt_that_loses_a_race_uses_an_approval(desk: Desk, approved: Approval) -> None:
    """Where admission finds another world, the approval is as it was."""
    use = (approved.request_id, approved.digest)
    first = desk.admitted("one")
    assert desk.admit(new_run("one"), approval=use, scope="dataset:other").answer == "moved"
    assert desk.admit(new_run("two"), approval=use).answer == "locked"
    assert desk.store.approval(approved.request_id) == approved
    assert first.attempts == 1


@pytest.mark.req("GOV-3")
@pytest.mark.parametrize("names", [("ada",), ("bob", "ada-adm"), ("ada-adm",), ("bob", "ada")])
def test_one_person_with_two_names_does_not_agree_with_himself(desk: Desk, names: tuple[str, ...]) -> None:
    """The store compares every name of both, whatever its caller checked."""
    asked = approval_request()
    desk.store.request_approval(asked, entry("approval-requested"))
    assert desk.store.approve(yes(asked, by=names[0], names=names)).answer == "moved"
    assert desk.store.approval(asked.request_id) == asked


@pytest.mark.req("GOV-3")
def test_nothing_is_released_while_a_process_works_on_it(desk: Desk) -> None:
    """The answer names the holder; once that attempt has ended, it is another request."""
    run = failed(desk)
    held = held_of(run)
    state = state_of(run, fate="quarantine", not_before_ms=None)
    desk.store.judge(Judge(run=run, seen=None, retry=state, held=held))
    asked = approval_request(kind="release", subject=held.held_id, digest=release_digest(held))
    desk.store.request_approval(asked, entry("release-requested", run.run_id))
    assert desk.again(run, worker_id="worker-7").answer == "admitted"
    wanted = yes(asked, held_id=held.held_id, grant=granted(run, state, START_MS + 5), valid_ms=None)
    answer = desk.store.approve(wanted)
    assert answer.answer == "busy"
    assert answer.lock is not None
    assert answer.lock.holder is not None
    assert (answer.lock.holder.worker_id, answer.lock.holder.run_id) == ("worker-7", run.run_id)
    assert desk.store.approval(asked.request_id) == asked
    assert desk.store.held(state="held") == [held]


@pytest.mark.req("RET-9", "RET-2")
def test_a_halted_run_is_found_until_it_is_released(desk: Desk) -> None:
    """Only halts, only of this dataset, only while they are held."""
    run = failed(desk)
    held: QuarantineEntry = held_of(run, error_code="KFM302")
    other: Run = desk.admitted("two")
    assert desk.store.halted("ks-streamflow") is None
    desk.fail(other, retry=state_of(other, fate="quarantine"), held=held_of(other))
    assert desk.store.halted("ks-streamflow") is None
    state = state_of(run, fate="quarantine", not_before_ms=None)
    desk.store.judge(Judge(run=run, seen=None, retry=state, held=held))
    assert desk.store.halted("ks-streamflow") == held
    assert desk.store.halted("another") is None
    asked = approval_request(kind="release", subject=held.held_id, digest=release_digest(held))
    desk.store.request_approval(asked, entry("release-requested", run.run_id))
    agreed = yes(asked, held_id=held.held_id, grant=granted(run, state, START_MS + 5), valid_ms=None)
    assert desk.store.approve(agreed).answer == "approved"
    assert desk.store.halted("ks-streamflow") is None


# --- whatever people do --------------------------------------------------------------------

TOKENS = {name: f"{name}-{'x' * 40}" for name in ("ann", "bob")}
PEOPLE = (
    KnownPerson(
        subject="ann",
        roles=("operate", "approve"),
        accounts=("ann-os",),
        token_hashes=(hash_of(TOKENS["ann"]),),
    ),
    KnownPerson(
        subject="bob",
        roles=("operate", "approve"),
        accounts=("bob-os",),
        token_hashes=(hash_of(TOKENS["bob"]),),
    ),
)
# Who really acts, and as what: by account or token, before and after people were declared.
ACTORS = st.tuples(st.sampled_from(["ann", "bob"]), st.booleans(), st.booleans())
STEPS = st.lists(st.tuples(st.sampled_from(["ask", "agree"]), ACTORS, st.integers(0, 3)), max_size=12)


@pytest.mark.req("GOV-3")
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_no_person_ever_approves_their_own_request(store: Ledger, steps: list[Any]) -> None:
    """No order of requests and approvals, by accounts and tokens, with people declared or not."""
    salt = len(store.approvals(limit=10_000))
    asked: list[tuple[str, str]] = []
    for number, (step, (who, by_token, declared), choice) in enumerate(steps):
        token = TOKENS[who] if by_token and declared else None
        identity = identify(PEOPLE if declared else (), f"{who}-os", token)
        if step == "ask":
            request = approval_request(
                request_id=f"{salt}-{number}",
                digest=digest(f"{salt}-{number}"),  # the same would be requested once
                requested_by=identity.subject,
                requested_names=identity.names,
            )
            store.request_approval(request, entry("asked"))
            asked.append((f"{salt}-{number}", who))
        elif asked:
            request_id, requester = asked[choice % len(asked)]
            before = store.approval(request_id)
            assert before is not None
            answer = store.approve(yes(before, by=identity.subject, names=identity.names))
            landed = answer.answer == "approved"
            assert landed == (before.state == "requested" and who != requester), (before, identity)


@pytest.mark.req("GOV-3")
def test_the_same_is_requested_once(desk: Desk) -> None:
    """A second request for exactly the same is the first one: no second row, no second entry."""
    asked = approval_request()
    assert desk.store.request_approval(asked, entry("approval-requested")) == asked
    before = desk.store.chain_head()
    again = approval_request(2, requested_by="bob", requested_names=("bob",), rationale="The same.")
    assert desk.store.request_approval(again, entry("approval-requested")) == asked
    assert desk.store.chain_head() == before
    assert desk.store.approval("request-2") is None


@pytest.mark.req("GOV-3")
def test_what_was_decided_can_be_requested_anew(desk: Desk) -> None:
    """A request that was rejected does not answer the next one; nor does one for something else."""
    asked = approval_request()
    desk.store.request_approval(asked, entry("approval-requested"))
    other = approval_request(2, digest=digest("something else"))
    assert desk.store.request_approval(other, entry("approval-requested")) == other
    no = Reject(request_id=asked.request_id, rejected_by="bob", names=("bob",), rationale="No.", entries=())
    assert desk.store.reject(no)
    again = approval_request(3)
    assert desk.store.request_approval(again, entry("approval-requested")) == again
