"""Every attempt has one start and one end, however it ends and whichever process ends it."""

from __future__ import annotations

from collections import Counter

import pytest
from msgspec.structs import replace

from kfm.db.ledger import Ledger
from kfm.model import keys
from kfm.model.energy import Energy
from kfm.model.records import Found, Run
from kfm.model.runs import Attempt, AttemptRecord, CallRetry, Circumstances, Step
from tests.conformance.db import ledgers
from tests.conformance.db.ledgers import Desk

pytestmark = pytest.mark.req("TRG-8")


def told(store: Ledger, run: Run) -> list[str]:
    return [message.body for message in store.outbox_messages(run.run_id)]


def node(run: Run, name: str, **changes: object) -> Attempt:
    attempt = Attempt(
        run_id=run.run_id,
        attempt=run.attempts,
        node=name,
        lineage_id=keys.node_attempt_id(run.run_id, run.attempts, name),
        invocation_id="00000001-0000-7000-8000-000000000000",
        started_at_ms=ledgers.START_MS,
    )
    return replace(attempt, **changes)


def opened(store: Ledger, run: Run, name: str) -> Attempt:
    attempt = node(run, name)
    assert store.step(Step(run=run, opens=AttemptRecord(attempt=attempt)))
    return attempt


def test_a_promoted_run_and_its_nodes_are_complete(store: Ledger, desk: Desk) -> None:
    """A run that is promoted leaves a start and a completion for itself and each node, in order."""
    run = desk.admitted("one")
    fetch = opened(store, run, "fetch")
    done = replace(fetch, ending="complete", outcome="success", ended_at_ms=ledgers.START_MS + 5)
    step = Step(
        run=run, closes=AttemptRecord(attempt=done), opens=AttemptRecord(attempt=node(run, "publish"))
    )
    assert store.step(step)
    assert desk.promote(run).answer == "promoted"
    assert told(store, run) == [
        "START",
        "START fetch",
        "COMPLETE fetch",
        "START publish",
        "COMPLETE publish",
        "COMPLETE",
    ]
    assert [attempt.ending for attempt in store.attempts(run.run_id)] == ["complete"] * 3


def test_a_failed_run_ends_its_open_node_first(store: Ledger, desk: Desk) -> None:
    """What was under way when a run failed has failed, and the reason is on its row."""
    run = desk.admitted("one")
    opened(store, run, "fetch")
    assert desk.fail(run)
    assert told(store, run) == ["START", "START fetch", "FAIL fetch", "FAIL"]
    whole, fetch = store.attempts(run.run_id)
    assert (whole.error_code, fetch.error_code, fetch.outcome) == ("KFM601", "KFM601", "failed")


def test_a_node_whose_opening_got_no_answer_ends_before_its_run(store: Ledger, desk: Desk) -> None:
    """Who fails without knowing that a node was opened ends it all the same, as its run and before it."""
    run = desk.admitted("one")
    fetch = opened(store, run, "fetch")
    done = replace(fetch, ending="complete", outcome="success", ended_at_ms=ledgers.START_MS + 5)
    unheard = Step(
        run=run, closes=AttemptRecord(attempt=done), opens=AttemptRecord(attempt=node(run, "transform"))
    )
    assert store.step(unheard)
    over = {
        "ending": "abort",
        "error_code": "KFM301",
        "error_class": "policy",
        "ended_at_ms": ledgers.START_MS,
    }
    closes = tuple(AttemptRecord(attempt=node(run, name, **over)) for name in ("fetch", ""))
    assert desk.fail(run, closes=closes, outcome="refused")
    assert told(store, run)[2:] == ["COMPLETE fetch", "START transform", "ABORT transform", "ABORT"]
    assert [one.ending for one in store.attempts(run.run_id)] == ["abort", "complete", "abort"]


def test_the_process_that_finds_an_abandoned_attempt_emits_its_end(store: Ledger, desk: Desk) -> None:
    """A killed process can't end its attempt: the reaper does, once, nodes before their run."""
    run = desk.admitted("one")
    opened(store, run, "transform")
    assert len(store.reap(ledgers.dead("worker-1"))) == 1
    assert store.reap(ledgers.dead("worker-1")) == []
    assert told(store, run) == ["START", "START transform", "ABORT transform", "ABORT"]
    assert {attempt.error_code for attempt in store.attempts(run.run_id)} == {"WORKER_DIED"}


def test_a_taken_over_attempt_ends_before_the_next_begins(store: Ledger, desk: Desk) -> None:
    """Who takes a run over closes the attempt that he found; what the old holder says then counts nothing."""
    run = desk.admitted("one")
    opened(store, run, "fetch")
    answer = desk.again(run, worker_id="worker-2", dead=ledgers.dead("worker-1"))
    assert answer.run is not None
    assert not desk.fail(run)
    assert not store.step(Step(run=run, opens=AttemptRecord(attempt=node(run, "transform"))))
    assert desk.promote(answer.run).answer == "promoted"
    assert told(store, run) == ["START", "START fetch", "ABORT fetch", "ABORT", "START", "COMPLETE"]
    ids = [message.event_id for message in store.outbox_messages(run.run_id)]
    assert max(Counter(ids).values()) == 1
    assert {each.lineage_id for each in store.attempts(run.run_id) if not each.node} == {
        keys.attempt_id(run.run_id, 1),
        keys.attempt_id(run.run_id, 2),
    }


def test_a_retry_says_how_long_it_waited(store: Ledger, desk: Desk) -> None:
    """The delay of an attempt is the time since the one before it ended."""
    run = desk.admitted("one")
    assert desk.fail(run)
    failed = store.run(run.run_id)
    assert failed is not None
    assert desk.again(failed).answer == "admitted"
    first, second = store.attempts(run.run_id)
    assert first.ended_at_ms is not None
    assert second.delay_ms == second.started_at_ms - first.ended_at_ms


def test_a_refused_call_emits_events_and_a_busy_one_does_not(store: Ledger) -> None:
    """A call that was refused has a start and an end of its own; without circumstances there are none."""
    refused = ledgers.invocation(7, None, outcome="refused")
    busy = ledgers.invocation(8, None, outcome="busy")
    store.record_invocation(refused, (), Circumstances())
    store.record_invocation(busy)
    assert [message.body for message in store.outbox_messages(refused.invocation_id)] == ["START", "ABORT"]
    assert store.outbox_messages(busy.invocation_id) == []
    assert store.invocation(refused.invocation_id) == refused


def test_nothing_is_said_of_what_did_not_happen(store: Ledger, desk: Desk) -> None:
    """A promotion that is refused by the store leaves no event behind."""
    run = desk.admitted("one")
    assert desk.promote(run, policy_epoch=99).answer == "epoch-moved"
    assert desk.promote(run, base_sequence=5).answer == "head-moved"
    assert told(store, run) == ["START"]


def test_what_is_known_of_an_attempt_comes_back(store: Ledger, desk: Desk) -> None:
    """Energy, validation, inputs and retries are stored as they were given."""
    run = desk.admitted("one")
    found = (Found(uri="https://x.test/a", path="a", media_type="text/csv", size=3, etag='"1"'),)
    energy = Energy(cpu_us=5, energy_uwh=1, co2_ug=1, assumption="a guess", package_uwh=9)
    retry = CallRetry(
        run_id=run.run_id,
        attempt=1,
        node="fetch",
        call=1,
        number=1,
        delay_ms=400,
        error_class="http-5xx",
        retryable=True,
        outcome="retried",
        circuit_open=False,
        at_ms=ledgers.START_MS,
    )
    fetch = opened(store, run, "fetch")
    done = replace(
        fetch,
        ending="complete",
        outcome="success",
        ended_at_ms=ledgers.START_MS + 1,
        validation={"checks": 2, "passed": 2, "failed": 0},
        inputs_hash="sha256:aa",
        retryable=False,
        error_message="ünïcode \ud800",
        energy=energy,
    )
    step = Step(
        run=run, closes=AttemptRecord(attempt=done), retries=(retry,), fingerprint="sha256:aa", inputs=found
    )
    assert store.step(step)
    assert store.attempts(run.run_id)[1] == replace(done, error_message="ünïcode ?")
    assert store.retries(run.run_id) == [retry]
    assert store.inputs("sha256:aa") == found
    assert store.inputs("sha256:bb") is None
    numbered = store.attempts_since(0)
    assert [(attempt.node, of.run_id) for _, attempt, of in numbered] == [
        ("", run.run_id),
        ("fetch", run.run_id),
    ]
    assert store.attempts_since(numbered[-1][0]) == []
    assert [each for _, each in store.retries_since(0)] == [retry]


def test_messages_are_claimed_in_order_and_delivered_once_marked(store: Ledger, desk: Desk) -> None:
    """A claimed message is not handed out again before its claim ends; a delivered one never."""
    run = desk.admitted("one")
    assert desk.promote(run).answer == "promoted"
    first = store.claim_messages("openlineage", 1, 60_000)
    assert [message.body for message in first] == ["START"]
    assert store.claim_messages("openlineage", 10, 60_000) == []  # the end waits for its start
    store.messages_delivered([first[0].number])
    (second,) = store.claim_messages("openlineage", 10, 60_000)
    assert (second.body, second.tries) == ("COMPLETE", 1)
    store.messages_put_back([second.number], 0)
    (again,) = store.claim_messages("openlineage", 10, 60_000)
    assert (again.event_id, again.tries, again.body) == (second.event_id, 2, second.body)
    assert store.backlog("openlineage").waiting == 1
    store.messages_delivered([again.number])
    assert store.backlog("openlineage").waiting == 0
    assert [message.delivered_at_ms is not None for message in store.outbox_messages(run.run_id)] == [
        True,
        True,
    ]


def test_one_subject_that_must_wait_holds_up_no_other(store: Ledger, desk: Desk) -> None:
    """Order is kept for each run; a run whose event was put back does not delay its neighbours."""
    one = desk.admitted("one")
    assert desk.promote(one).answer == "promoted"
    two = desk.admitted("two")
    assert desk.promote(two, "other").answer == "promoted"
    first = store.claim_messages("openlineage", 1, 60_000)
    store.messages_put_back([first[0].number], store.now_ms() + 3_600_000)
    assert [message.subject for message in store.claim_messages("openlineage", 10, 60_000)] == [
        two.run_id
    ] * 2


def test_marks_and_policies_are_given_once(store: Ledger) -> None:
    """The first value stays; policies that were in force once can be read for ever."""
    assert store.mark("mask_key") is None
    assert store.ensure_mark("mask_key", "a") == "a"
    assert store.ensure_mark("mask_key", "b") == "a"
    store.keep_policies("bundle", {"team.rule": "forbid (principal, action, resource);"})
    store.keep_policies("bundle", {"team.rule": "changed"})
    assert store.policy_texts("bundle") == {"team.rule": "forbid (principal, action, resource);"}
    assert store.policy_texts("other") is None


def test_retries_that_are_told_again_count_once(store: Ledger, desk: Desk) -> None:
    """Who lost the answer to a step tells of its retries again when the run ends: each is kept once."""
    run = desk.admitted("one")
    tried = [
        CallRetry(
            run_id=run.run_id,
            attempt=1,
            node="fetch",
            call=1,
            number=number,
            delay_ms=500,
            error_class="timeout",
            retryable=True,
            outcome="retried",
            circuit_open=False,
            at_ms=ledgers.START_MS + number,
        )
        for number in (1, 2, 3)
    ]
    assert store.step(
        Step(run=run, opens=AttemptRecord(attempt=node(run, "fetch")), retries=tuple(tried[:2]))
    )
    assert desk.fail(run, retries=tuple(tried))
    assert store.retries(run.run_id) == tried
