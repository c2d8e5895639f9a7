"""The requests of a run: ended, put off or cancelled by the transaction that ends its attempt."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from kfm.model.keys import request_id
from kfm.model.quarantine import RetryState
from kfm.model.records import Run
from kfm.model.requests import PutOff, RequestOutcome, UpdateRequest
from tests.conformance.db.ledgers import START_MS, Desk, digest, new_run

pytestmark = pytest.mark.req("UPD-12", "TRG-2")

LATER = PutOff(not_before_ms=START_MS + 30_000, blocked_by="retry", reason="No answer.")
ENDED = RequestOutcome(state="done", outcome="failed", reason="Given up.")


def request(name: str, run: Run | None = None, **more: Any) -> UpdateRequest:
    key = digest(f"request {name}")
    made = UpdateRequest(
        request_id=request_id(key),
        key=key,
        kind="webhook",
        source_id="usgs-daily",
        dataset_id="ks-streamflow",
        window_start_ms=START_MS,
        window_end_ms=START_MS + 86_400_000,
        actor="webhook:usgs",
        accepted_at_ms=START_MS,
        run_id=run.run_id if run else None,
    )
    return replace(made, **more)


def claimed(desk: Desk, name: str = "mine") -> tuple[UpdateRequest, Run]:
    """A request that a worker has claimed, and the run that it has become."""
    desk.store.requests().accept([request(name)])
    mine = desk.store.requests().claim("worker-1", 60_000, lambda _worker: False)
    assert mine is not None
    return mine, desk.admitted(name, claim=(mine.request_id, "worker-1"))


def now(desk: Desk, one: UpdateRequest) -> UpdateRequest:
    found = desk.store.requests().request(one.request_id)
    assert found is not None
    return found


def state_of(run: Run, fate: Any = "retry") -> RetryState:
    return RetryState(
        run_id=run.run_id,
        attempt=run.attempts,
        fate=fate,
        reason="retry" if fate == "retry" else "attempts-spent",
        error_class="timeout",
        grants=1,
        grant_attempts=run.attempts,
        granted_at_ms=START_MS,
        not_before_ms=START_MS + 30_000 if fate == "retry" else None,
        updated_at_ms=START_MS,
    )


def test_a_claimed_request_has_its_run_with_the_admission(desk: Desk) -> None:
    """From the admission on the request names its run; a request that has passed on begins none."""
    mine, run = claimed(desk)
    assert now(desk, mine).run_id == run.run_id
    other = request("other")
    desk.store.requests().accept([other])
    assert desk.fail(run, settle=ENDED)
    late = desk.admit(run, claim=(other.request_id, "worker-1"))
    assert late.answer == "unclaimed"


def test_a_synchronous_call_s_request_exists_with_its_run(desk: Desk) -> None:
    """It costs no commit of its own, and is claimed from the beginning."""
    asked = request("call", state="running", claimed_by="worker-1", claim_until_ms=START_MS)
    run = desk.admitted("a", asked=replace(asked, run_id=new_run("a").run_id))
    assert [one.request_id for one in desk.store.requests().of_run(run.run_id)] == [asked.request_id]
    assert now(desk, asked).state == "running"


def test_a_promotion_ends_all_requests_of_its_run(desk: Desk) -> None:
    """Also those that only waited for it; what asked for other work is not touched."""
    mine, run = claimed(desk)
    tied, other = request("tied", run), request("other")
    desk.store.requests().accept([tied, other])
    assert desk.promote(run, request_id=mine.request_id).answer == "promoted"
    for one in (mine, tied):
        ended = now(desk, one)
        assert (ended.state, ended.outcome, ended.run_id) == ("done", "success", run.run_id)
        assert ended.claimed_by is None
    assert now(desk, other) == other


def test_a_cancelled_request_is_not_promoted(desk: Desk) -> None:
    """Whenever the cancel came, it is heard where the promotion commits; nothing of the promotion stays."""
    mine, run = claimed(desk)
    assert desk.store.requests().cancel(mine.request_id, "not this one")
    assert desk.promote(run, request_id=mine.request_id).answer == "cancelled"
    assert desk.store.head("ks-streamflow") is None
    assert desk.store.cancelled(run.run_id) == "not this one"
    assert desk.store.run(run.run_id) == run
    assert desk.fail(run, error_code="CANCELLED", settle=LATER)
    ended = now(desk, mine)
    assert (ended.state, ended.outcome, ended.reason) == ("cancelled", "cancelled", "not this one")


def test_a_failure_puts_its_requests_off(desk: Desk) -> None:
    """They wait for the attempt that is promised, open to every runner, each with what blocks it."""
    mine, run = claimed(desk)
    tied = request("tied", run)
    desk.store.requests().accept([tied])
    assert desk.fail(run, settle=LATER, retry=state_of(run))
    for one in (mine, tied):
        waiting = now(desk, one)
        assert (waiting.state, waiting.blocked_by, waiting.reason) == ("open", "retry", "No answer.")
        assert (waiting.not_before_ms, waiting.claimed_by) == (LATER.not_before_ms, None)


def test_a_run_that_is_given_up_ends_its_requests(desk: Desk) -> None:
    """In the transaction of its failure."""
    mine, run = claimed(desk)
    assert desk.fail(run, settle=ENDED, retry=state_of(run, "spent"))
    ended = now(desk, mine)
    assert (ended.state, ended.outcome, ended.reason) == ("done", "failed", "Given up.")


def test_a_failure_that_does_not_land_settles_nothing(desk: Desk) -> None:
    """A process that has lost its run says nothing about the requests either."""
    mine, run = claimed(desk)
    before = now(desk, mine)
    assert not desk.fail(replace(run, fence=run.fence + 1), settle=ENDED)
    assert now(desk, mine) == before


def test_cancelling_what_waits_takes_the_promised_attempt_back(desk: Desk) -> None:
    """Unless another request asks for it, too."""
    mine, run = claimed(desk)
    tied = request("tied", run)
    desk.store.requests().accept([tied])
    desk.fail(run, settle=LATER, retry=state_of(run))
    requests = desk.store.requests()
    assert requests.cancel(mine.request_id, "not this one")
    state = desk.store.retry_state(run.run_id)
    assert state is not None
    assert state.fate == "retry"
    assert requests.cancel(tied.request_id, "nor that one")
    state = desk.store.retry_state(run.run_id)
    assert state is not None
    assert (state.fate, state.reason) == ("spent", "stopped")


def test_a_promised_attempt_without_a_request_gets_one(desk: Desk) -> None:
    """Once, however often it is looked for."""
    run = desk.admitted("a")
    desk.fail(run, retry=state_of(run))
    made = request("adopted", run, not_before_ms=START_MS + 30_000)
    seen: list[tuple[str, int, int]] = []

    def make(*found: Any) -> UpdateRequest:
        seen.append(found)
        return made

    requests = desk.store.requests()
    assert requests.adopt(10, make) == 1
    assert requests.adopt(10, make) == 0
    assert seen == [(run.run_id, START_MS + 30_000, 1)]
    assert now(desk, made) == made


@pytest.mark.req("RET-6")
def test_an_intent_is_kept_with_its_attempt(desk: Desk) -> None:
    """What a run is about to do outside is durable before, once by name, and outlives the attempt."""
    run = desk.admitted("a")
    for _ in range(2):
        assert desk.store.intend(run, "call notify")
    assert not desk.store.intend(replace(run, fence=run.fence + 1), "another"), "the run has passed on"
    assert desk.store.acts(run.run_id) == ("call notify",)
    assert desk.fail(run, retry=state_of(run, "spent"))
    assert desk.store.acts(run.run_id) == ("call notify",)
