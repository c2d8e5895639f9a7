"""What is kept of failed runs, on every store: it survives, it is decided once, two people let it go."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from kfm.db.ledger import Ledger
from kfm.model.quarantine import Approval, QuarantineEntry, RetryState, held_run, release_digest
from kfm.model.records import Found, Run
from kfm.model.requests import RequestOutcome
from kfm.model.retry_budgets import given_up, granted
from kfm.model.runs import Approve, Judge
from kfm.system import SystemClock
from tests.conformance.db import ledgers
from tests.conformance.db.ledgers import START_MS, Desk, digest, entry
from tests.conformance.requests.test_requests import claimed, made, now

DUE_MS = START_MS + 30_000
FOUND = (Found(uri="https://example.org/a.csv", path="a.csv", media_type="text/csv", etag="1"),)


def state_of(run: Run, **changes: Any) -> RetryState:
    made = RetryState(
        run_id=run.run_id,
        attempt=run.attempts,
        grants=1,
        grant_attempts=run.attempts,
        granted_at_ms=run.start_time_ms,
        not_before_ms=DUE_MS,
        fate="retry",
        error_class="timeout",
        reason="retry",
        updated_at_ms=START_MS + 1,
    )
    return replace(made, **changes)


def held_of(run: Run, **changes: Any) -> QuarantineEntry:
    given_up = state_of(run, fate="quarantine", reason="non-retryable", error_class="schema")
    made = held_run(
        run,
        given_up,
        payload_hash=digest("inputs"),
        inputs=FOUND,
        error_classes=("timeout", "schema"),
        error_code="KFM303",
        error_message="The staged data breaks its contract. \N{SNOWMAN}",
    )
    assert made is not None
    return replace(made, **changes)


def failed(desk: Desk, name: str = "one", **changes: Any) -> Run:
    run = desk.admitted(name)
    desk.fail(run, **changes)
    stored = desk.store.run(run.run_id)
    assert stored is not None
    assert stored.status == "failed"
    return stored


@pytest.mark.req("TRG-1", "RET-3")
def test_the_decision_is_kept_with_the_end(desk: Desk) -> None:
    """What was decided about a failed run is read back as it was, and due from its own time on."""
    run = desk.admitted("one")
    state = state_of(run)
    assert desk.fail(run, retry=state)
    assert desk.store.retry_state(run.run_id) == state
    assert desk.store.waiting(DUE_MS - 1) == []
    (waiting,) = desk.store.waiting(DUE_MS)
    assert (waiting.state, waiting.run) == (state, desk.store.run(run.run_id))


@pytest.mark.req("TRG-1")
def test_budgets_survive_a_restart(tmp_path: Path) -> None:
    """Attempts, grant and not-before are there after the process is gone."""
    path = str(tmp_path / "kfm.db")
    first = ledgers.sqlite_store(path, SystemClock())
    desk = Desk(first)
    run = desk.admitted("one")
    state = state_of(run, grants=2, grant_attempts=4, not_before_ms=DUE_MS + 7)
    desk.fail(run, retry=state)
    first.close()
    second = ledgers.sqlite_store(path, SystemClock())
    assert second.retry_state(run.run_id) == state
    assert [one.run.run_id for one in second.waiting(DUE_MS + 7)] == [run.run_id]
    second.close()


def test_a_stale_failure_decides_nothing(desk: Desk) -> None:
    """A process that lost the run neither changes its retries nor quarantines it."""
    run = desk.admitted("one")
    assert not desk.fail(replace(run, fence=run.fence + 1), retry=state_of(run), held=held_of(run))
    assert desk.store.retry_state(run.run_id) is None
    assert desk.store.held() == []


def test_a_running_run_is_not_due(desk: Desk) -> None:
    """Once the next attempt has begun, the last one's decision is history."""
    run = failed(desk, retry=None)
    desk.store.judge(Judge(run=run, seen=None, retry=state_of(run)))
    assert len(desk.store.waiting(DUE_MS)) == 1
    assert desk.again(run).answer == "admitted"
    assert desk.store.waiting(DUE_MS) == []


@pytest.mark.req("TRG-1")
def test_one_attempt_is_admitted_once(desk: Desk) -> None:
    """Two processes that saw the same due attempt: the admission transaction lets one of them make it."""
    run = failed(desk)
    assert desk.again(run).answer == "admitted"
    late = desk.again(run, worker_id="worker-2", dead=ledgers.dead("worker-1"))
    assert late.answer == "moved"


@pytest.mark.req("TRG-1")
def test_a_promise_ends_with_the_request_that_it_was_claimed_for(desk: Desk) -> None:
    """An attempt that is not made after all: its request has its answer when the promise is gone, in its own
    words, so that no promise is left for which no request asks any more."""
    run, requests = failed(desk, retry=None), desk.store.requests()
    assert desk.store.judge(Judge(run=run, seen=None, retry=state_of(run)))
    requests.accept([made("adopted", run_id=run.run_id, source_id=run.source_id)])
    mine = claimed(requests, "worker-2")
    seen = desk.store.retry_state(run.run_id)
    assert seen is not None
    spent = given_up(seen, "superseded", START_MS + 2)
    ending = RequestOutcome(state="done", outcome="failed", reason="A newer revision has begun.")
    other = RequestOutcome(state="done", outcome="failed", reason="Not retried.")
    assert desk.store.judge(Judge(run=run, seen=seen, retry=spent, settle=other, answer=(mine, ending)))
    assert desk.store.retry_state(run.run_id) == spent
    answered = now(requests, mine)
    assert (answered.state, answered.reason) == ("done", ending.reason)
    assert not desk.store.judge(Judge(run=run, seen=seen, retry=spent, answer=(mine, other)))
    assert now(requests, mine) == answered


def test_a_dead_run_is_unjudged_until_a_process_judges(desk: Desk) -> None:
    """A killed run waits for a decision; the first one stands."""
    run = desk.admitted("one")
    assert desk.store.unjudged() == []
    desk.store.reap(ledgers.dead("worker-1"))
    (dead,) = desk.store.unjudged()
    assert (dead.run_id, dead.error_code) == (run.run_id, "WORKER_DIED")
    assert desk.store.judge(Judge(run=dead, seen=None, retry=state_of(dead)))
    assert not desk.store.judge(Judge(run=dead, seen=None, retry=state_of(dead, not_before_ms=DUE_MS + 1)))
    assert desk.store.unjudged() == []
    assert desk.store.retry_state(run.run_id) == state_of(dead)


def test_success_leaves_nothing_ahead(desk: Desk) -> None:
    """A run that succeeded has no retry ahead, and what was held of the same work is resolved by it."""
    run = failed(desk, held=None)
    desk.store.judge(Judge(run=run, seen=None, retry=state_of(run), held=held_of(run)))
    again = desk.again(run).run
    assert again is not None
    assert desk.promote(again).answer == "promoted"
    assert desk.store.retry_state(run.run_id) is None
    (held,) = desk.store.held()
    assert (held.state, held.released_by) == ("resolved", run.run_id)
    assert desk.store.held(state="held") == []


@pytest.mark.req("TRG-7", "RET-2")
def test_what_is_held_is_read_back(desk: Desk) -> None:
    """Payload hash, source ids, code, key, attempts and error classes: enough to replay it."""
    run = desk.admitted("one")
    held = held_of(run)
    state = state_of(run, fate="quarantine", reason="non-retryable")
    desk.fail(run, retry=state, held=held, entries=(entry("quarantine", run.run_id),))
    assert desk.store.held() == [held]
    assert desk.store.held_one(held.held_id) == held
    assert desk.store.held(kind="dead-letter") == []
    assert [one.kind for one in desk.store.governance(subject=run.run_id)] == ["quarantine"]
    assert held.payload_hash == digest("inputs")
    assert held.source_ids == ("https://example.org/a.csv",)
    assert (held.code_sha, held.idempotency_key) == (run.pipeline_version, run.idempotency_key)
    assert desk.store.waiting(2**53 - 1) == []


def test_one_thing_is_held_once(desk: Desk) -> None:
    """A second failure of the same run renews its entry."""
    run = failed(desk)
    desk.store.judge(Judge(run=run, seen=None, retry=state_of(run), held=held_of(run)))
    again = desk.again(run).run
    assert again is not None
    desk.fail(again, retry=state_of(again, fate="quarantine"), held=held_of(again))
    (held,) = desk.store.held()
    assert held.attempts == 2


def asked(held: QuarantineEntry, number: int = 1) -> Approval:
    return Approval(
        request_id=f"request-{number}",
        kind="release",
        subject=held.held_id,
        digest=release_digest(held),
        requested_by="ada",
        requested_at_ms=START_MS,
        rationale="The contract was too narrow.",
    )


def agreed(request: Approval, run: Run, by: str = "bob") -> Approve:
    return Approve(
        request_id=request.request_id,
        held_id=request.subject,
        digest=request.digest,
        approved_by=by,
        rationale="Seen it.",
        grant=granted(run, None, START_MS + 5),
        entries=(entry("approval", run.run_id), entry("release", run.run_id)),
    )


@pytest.fixture
def quarantined(desk: Desk) -> tuple[Run, QuarantineEntry]:
    run = failed(desk)
    held = held_of(run)
    state = state_of(run, fate="quarantine", not_before_ms=None)
    desk.store.judge(Judge(run=run, seen=None, retry=state, held=held))
    return run, held


@pytest.mark.req("GOV-3")
def test_a_release_is_approved_once(desk: Desk, quarantined: tuple[Run, QuarantineEntry]) -> None:
    """Approval, release and the new grant land together; a second use of the approval does nothing."""
    run, held = quarantined
    request = asked(held)
    desk.store.request_approval(request, entry("release-requested", run.run_id))
    assert desk.store.approval(request.request_id) == request
    assert desk.store.approvals(state="requested") == [request]
    assert desk.store.approve(agreed(request, run)).answer == "approved"
    released = desk.store.held_one(held.held_id)
    assert released is not None
    assert (released.state, released.released_by) == ("released", "bob")
    (waiting,) = desk.store.waiting(START_MS + 5)
    assert (waiting.state.grants, waiting.state.grant_attempts) == (2, 0)
    kinds = [one.kind for one in desk.store.governance(subject=run.run_id)]
    assert kinds == ["release", "approval", "release-requested"]
    assert desk.store.approve(agreed(request, run)).answer == "moved"
    assert desk.store.approve(agreed(request, run, by="cy")).answer == "moved"
    assert len(desk.store.governance(subject=run.run_id)) == 3


@pytest.mark.req("GOV-3")
def test_no_person_approves_their_own_request(desk: Desk, quarantined: tuple[Run, QuarantineEntry]) -> None:
    """The store itself refuses the requester, whatever its caller checked."""
    run, held = quarantined
    request = asked(held)
    desk.store.request_approval(request, entry("release-requested", run.run_id))
    assert desk.store.approve(agreed(request, run, by="ada")).answer == "moved"
    assert desk.store.held(state="held") == [held]
    assert desk.store.approval(request.request_id) == request


@pytest.mark.req("GOV-3")
def test_an_approval_is_bound_to_what_was_asked(desk: Desk, quarantined: tuple[Run, QuarantineEntry]) -> None:
    """If another failure has come since, the request does not stand for it."""
    run, held = quarantined
    request = asked(held)
    desk.store.request_approval(request, entry("release-requested", run.run_id))
    again = desk.again(run).run
    assert again is not None
    renewed = held_of(again, error_code="KFM309", held_id=held.held_id)
    desk.fail(again, retry=state_of(again, fate="quarantine"), held=renewed)
    assert desk.store.approve(agreed(request, run)).answer == "moved"
    assert desk.store.approve(replace(agreed(request, run), digest=release_digest(renewed))).answer == "moved"
    assert desk.store.held(state="held") == [renewed]


def test_columns_are_the_records(store: Ledger) -> None:
    """Every field is a column, in the record's order."""
    from tests.conformance.db.test_statements import _columns, _selected

    for record, table, statements in (
        (RetryState, "retry_states", ["retry_states.get"]),
        (Approval, "approvals", ["approvals.get", "approvals.list"]),
    ):
        assert _columns(table) == list(record.__struct_fields__)  # type: ignore[attr-defined]
        for name in statements:
            assert _selected(name) == list(record.__struct_fields__)  # type: ignore[attr-defined]
    assert _columns("held") == ["number", *QuarantineEntry.__struct_fields__]
    assert _selected("held.list") == [*QuarantineEntry.__struct_fields__, "number"]
    for name in ("held.get", "held.get_for_update"):
        assert _selected(name) == list(QuarantineEntry.__struct_fields__)
