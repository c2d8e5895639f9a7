"""From the outbox to a collector: at least once, in order, and without delay for any run."""

from __future__ import annotations

import json

import pytest

from kfm.lineage.delivery import BACKOFF_BASE_MS, BACKOFF_MAX_MS, PARKED_MS, Delivered, deliver_messages
from kfm.lineage.emitter import TOPIC
from kfm.model.errors import BackendUnavailable, CollectorRefused
from kfm.model.retry import backoff_ms
from kfm.model.runs import OutboxMessage
from tests.stand_ins import FakeClock
from tests.unit.lineage.outbox import Scripted, bodies, deliver, make_store, post


def down(_message: OutboxMessage) -> None:
    raise BackendUnavailable("No answer.")


@pytest.mark.req("UPD-15")
def test_what_waits_is_delivered_once_and_in_order() -> None:
    """All messages arrive in the order in which they were written, with the bytes that were stored."""
    clock = FakeClock()
    store, collector = make_store(clock), Scripted()
    ids = post(store, 12)
    assert deliver(store, collector, clock) == Delivered(sent=24)
    assert collector.taken == bodies(store, ids)
    assert deliver(store, collector, clock) == Delivered()
    assert len(collector.taken) == 24


def test_no_collector_is_made_for_an_empty_outbox() -> None:
    """Where nothing waits, nothing is opened."""

    def never() -> Scripted:
        raise AssertionError("opened for nothing")

    clock = FakeClock()
    assert (
        deliver_messages(make_store(clock), never, clock, topic=TOPIC, batch=5, deadline_ms=9) == Delivered()
    )


@pytest.mark.req("UPD-15")
def test_a_dead_collector_loses_nothing() -> None:
    """While a collector is down messages rest for longer and longer; once it is back all arrive."""
    clock = FakeClock()
    store, collector = make_store(clock), Scripted(down)
    ids = post(store, 3)
    rests = []
    for _ in range(12):
        before_ms = clock.now_ms()
        told = deliver(store, collector, clock)
        assert (told.sent, told.waiting) == (0, 6)
        assert told.trouble == "No answer"
        rest_ms = store.outbox_messages(ids[0])[0].not_before_ms - before_ms
        rests.append(rest_ms)
        clock.passed_ms += rest_ms
    assert rests == [min(BACKOFF_MAX_MS, 1000 * 2**n) for n in range(12)]
    collector.before = lambda _message: None
    assert deliver(store, collector, clock) == Delivered(sent=6)
    assert collector.taken == bodies(store, ids)


def test_messages_at_rest_are_not_overtaken() -> None:
    """A newer message of a subject waits for the older one that is being rested."""
    clock = FakeClock()
    store, collector = make_store(clock), Scripted(down)
    ids = post(store, 1)
    deliver(store, collector, clock, batch=1)
    collector.before = lambda _message: None
    assert deliver(store, collector, clock).sent == 0
    clock.passed_ms += 1000
    assert deliver(store, collector, clock).sent == 2
    assert collector.taken == bodies(store, ids)


@pytest.mark.req("UPD-15")
def test_trouble_in_the_middle_keeps_what_has_arrived() -> None:
    """What arrived before the trouble is marked; the rest goes out later, and nothing twice."""
    clock = FakeClock()
    store, collector = make_store(clock), Scripted()
    ids = post(store, 4)
    expected = bodies(store, ids)

    def third(message: OutboxMessage) -> None:
        if message.body == expected[2]:
            down(message)

    collector.before = third
    assert (deliver(store, collector, clock).sent, collector.taken) == (2, expected[:2])
    collector.before = lambda _message: None
    clock.passed_ms += 1000
    assert deliver(store, collector, clock).sent == 6
    assert collector.taken == expected


@pytest.mark.req("UPD-15")
def test_a_refused_message_waits_with_its_subject_and_hinders_no_other() -> None:
    """What a collector will not have is kept and told, its successors wait for it, all others go on."""
    clock = FakeClock()
    store, collector = make_store(clock), Scripted()
    ids = post(store, 3)
    poison = store.outbox_messages(ids[1])[0]

    def refuse(message: OutboxMessage) -> None:
        if message.number == poison.number:
            raise CollectorRefused("422")

    collector.before = refuse
    told = deliver(store, collector, clock, batch=100)
    assert (told.sent, told.refused, told.waiting) == (4, 1, 2)
    assert isinstance(told.error, CollectorRefused)
    assert collector.taken == bodies(store, [ids[0], ids[2]])
    assert {message.not_before_ms for message in store.outbox_messages(ids[1])} == {
        clock.now_ms() + PARKED_MS
    }
    collector.before = lambda _message: None
    assert deliver(store, collector, clock).sent == 0
    clock.passed_ms += PARKED_MS
    assert deliver(store, collector, clock).sent == 2
    assert collector.taken[4:] == bodies(store, [ids[1]])


def test_a_pass_ends_at_its_deadline() -> None:
    """A slow collector gets nothing more when the time is up, and the rest is due at once."""
    clock = FakeClock()
    store = make_store(clock)
    post(store, 5)
    collector = Scripted(lambda _message: clock.sleep_ms(400))
    told = deliver(store, collector, clock, batch=1, deadline_ms=1000)
    assert (told.sent, told.waiting, told.trouble) == (3, 7, None)
    assert deliver(store, collector, clock, batch=1, deadline_ms=10_000).sent == 7


def test_a_deliverer_that_died_is_followed_by_another() -> None:
    """The claim of a dead process lapses: the message goes out again, the same bytes."""
    clock = FakeClock()
    store, collector = make_store(clock), Scripted()
    ids = post(store, 1)
    assert len(store.claim_messages(TOPIC, 10, 5_000)) == 2  # and its claimer is killed
    assert deliver(store, collector, clock) == Delivered(waiting=2)
    clock.passed_ms += 5_000
    assert deliver(store, collector, clock).sent == 2
    assert collector.taken == bodies(store, ids)


def test_two_deliverers_keep_the_order() -> None:
    """While one holds a subject's older messages, another does not send its newer ones."""
    clock = FakeClock()
    store, one, other = make_store(clock), Scripted(), Scripted()
    ids = post(store, 6)

    def meanwhile(_message: OutboxMessage) -> None:
        one.before = lambda _message: None
        deliver(store, other, clock, batch=3)

    one.before = meanwhile
    deliver(store, one, clock, batch=3)
    clock.passed_ms += 10 * 60_000
    deliver(store, one, clock)
    for call_id in ids:
        mine = bodies(store, [call_id])
        kinds = [json.loads(body)["eventType"] for body in one.taken + other.taken if body in mine]
        assert sorted(kinds) == ["ABORT", "START"]
        for taken in (one.taken, other.taken):
            assert [body for body in taken if body in mine] in ([], mine, mine[:1], mine[1:])


def test_delivery_never_raises() -> None:
    """Whatever a collector, its making or the store does, it ends in a sentence."""
    clock = FakeClock()
    store = make_store(clock)
    post(store, 1)

    def broken(_message: OutboxMessage) -> None:
        raise RuntimeError("token=hunter22")

    assert deliver(store, Scripted(broken), clock).trouble == "token=***"

    def unmade() -> Scripted:
        raise ValueError("no such thing")

    told = deliver_messages(store, unmade, clock, topic=TOPIC, batch=5, deadline_ms=9)
    assert (told.trouble, told.waiting) == ("no such thing", 2)

    class Lazy(Scripted):
        def deliver(self, messages: object) -> int:
            return 0

    clock.passed_ms += 10_000
    assert "took nothing" in (deliver(store, Lazy(), clock).trouble or "")
    store.close()
    assert deliver(store, Scripted(), clock).trouble


@pytest.mark.parametrize(("tries", "rest_ms"), [(0, 1000), (1, 1000), (2, 2000), (9, 256_000), (99, 300_000)])
def test_rests_grow_and_are_bounded(tries: int, rest_ms: int) -> None:
    """Each try doubles the rest, up to five minutes."""
    assert backoff_ms(BACKOFF_BASE_MS, BACKOFF_MAX_MS, tries) == rest_ms
