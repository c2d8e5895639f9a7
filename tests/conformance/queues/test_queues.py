"""What every queue promises: at least once, nothing lost, nothing without a limit."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from kfm.ports import QueueMessage
from tests.conformance.queues.senders import SHORT_MS, Place, all_of, bodies, receipts, texts


@pytest.mark.req("WAL-20")
def test_all_that_was_sent_arrives_as_it_was(place: Place) -> None:
    """Each message comes with its bytes, a receipt of its own, an id, and how often it was handed out."""
    sent = [*bodies(12), '{"key": "Grüße/東京 %2B"}', "no JSON at all", '{"a":\t1}']
    place.send(*sent)
    found = all_of(place.open(), len(sent), place.wait_ms)
    assert Counter(texts(found)) == Counter(sent)
    assert len({message.receipt for message in found}) == len(sent)
    assert len({message.message_id for message in found}) == len(sent)
    assert {message.receives for message in found} == {1}
    assert place.open().name == "q"


@pytest.mark.parametrize("limit", [1, 7, 23])
def test_no_more_than_the_limit_is_handed_out(place: Place, limit: int) -> None:
    """However much there is, no receiver gets more than it asked for, and no message is received twice."""
    place.send(*bodies(25))
    queue = place.open()
    found = queue.receive(limit, place.wait_ms)
    assert 1 <= len(found) <= limit
    more = all_of(queue, 25 - len(found), 0)
    assert len(set(texts([*found, *more]))) == len(found) + len(more)


@pytest.mark.req("WAL-20")
def test_what_is_acknowledged_never_comes_again(place: Place) -> None:
    """Neither to this worker nor to the next, and an empty queue answers with nothing."""
    place.visibility_ms = SHORT_MS
    place.send(*bodies(13))
    queue = place.open()
    assert queue.acknowledge(receipts(all_of(queue, 13, place.wait_ms))) == []
    queue.close()
    place.opened.remove(queue)
    again = place.open()
    assert again.receive(10, 1_500 if place.is_sqs else 0) == []  # longer than it would be hidden


@pytest.mark.req("WAL-20")
def test_what_is_not_acknowledged_comes_again(place: Place) -> None:
    """Messages of a receiver that dies are received again, unless they were acknowledged."""
    if not place.comes_again:
        pytest.skip("a stream can't be read twice")
    place.visibility_ms = SHORT_MS
    place.send(*bodies(12))
    first = place.open()
    held = all_of(first, 12, place.wait_ms)
    assert first.acknowledge(receipts(held[:5])) == []
    place.kill(first)
    together = place.kind == "folder-lines"  # its lines leave at once, or come again
    found = all_of(place.open(), 12 if together else 7, place.wait_ms)
    assert set(texts(found)) == set(texts(held if together else held[5:]))


@pytest.mark.req("WAL-20")
def test_what_is_forgotten_comes_again(place: Place) -> None:
    """By the same receiver, too: a step that failed between receiving and acknowledging loses nothing."""
    place.visibility_ms = SHORT_MS
    place.send(*bodies(12))
    queue = place.open()
    held = all_of(queue, 12, place.wait_ms)
    assert queue.acknowledge(receipts(held[:5])) == []
    place.clock.passed_ms += 3_600_000  # an emulator has a clock of its own
    found = all_of(queue, 7, place.wait_ms)
    assert sorted(texts(found)) == sorted(texts(held[5:]))
    assert {message.receives for message in found} <= {1, 2}
    assert queue.acknowledge(receipts(found)) == []


def test_what_is_put_back_comes_again_at_once(place: Place) -> None:
    """And only that: what was acknowledged in the same batch does not."""
    place.send(*bodies(12))
    queue = place.open()
    held = all_of(queue, 12, place.wait_ms)
    assert queue.acknowledge(receipts(held[:4])) == []
    queue.put_back(receipts(held[4:8]))
    found = all_of(queue, 4, 0)
    assert sorted(texts(found)) == sorted(texts(held[4:8]))
    assert queue.acknowledge(receipts([*found, *held[8:]])) == []


def test_foreign_receipts_do_no_harm(place: Place) -> None:
    """Receipts that the queue does not know come back; those beside them are acknowledged."""
    place.send(*bodies(3))
    queue = place.open()
    held = all_of(queue, 3, place.wait_ms)
    left = queue.acknowledge(["never-heard-of", *receipts(held)])
    assert left == ([] if place.kind == "stream" else ["never-heard-of"])
    queue.put_back(["never-heard-of"])
    assert queue.receive(5, 0) == []


def test_nothing_asked_for_is_nothing_done(place: Place) -> None:
    """Empty batches are no calls and no errors."""
    queue = place.open()
    assert queue.acknowledge([]) == []
    queue.put_back([])
    assert queue.receive(5, 0) == []


@pytest.mark.req("WAL-20")
def test_two_workers_share_without_losing(place: Place) -> None:
    """Two on one queue get all of it between them, and neither is handed what the other holds."""
    if not place.comes_again:
        pytest.skip("a stream has one reader")
    place.send(*bodies(10))
    place.send(*bodies(10, start=10))
    both = place.open(), place.open()
    found: list[list[QueueMessage]] = [[], []]
    for _ in range(10):
        for queue, mine in zip(both, found, strict=True):
            mine += queue.receive(3, 0)
    one, other = (set(texts(each)) for each in found)
    assert len(one | other) == 20
    assert not one & other
    for queue, mine in zip(both, found, strict=True):
        assert queue.acknowledge(receipts(mine)) == []


@pytest.mark.req("WAL-20")
def test_nothing_is_lost_whatever_happens(place: Place) -> None:
    """Workers receive, acknowledge, put back, die and come again: each message is acknowledged in the end."""
    place.visibility_ms = SHORT_MS
    for seed in range(2 if place.is_sqs else 25):
        sent = set(bodies(30, start=100 * seed))
        assert _ordeal(place, random.Random(seed), sorted(sent)) == sent, seed


def _ordeal(place: Place, rng: random.Random, sent: list[str]) -> set[str]:
    """What was acknowledged."""
    steps = 12 if place.is_sqs else 60
    later = len(sent) if place.kind == "stream" else len(sent) // 2
    place.send(*sent[:later])
    queue = place.open()
    held: list[QueueMessage] = []
    done: set[str] = set()
    for step in range(steps):
        if step == steps // 2:
            place.send(*sent[later:])
        chosen = [message for message in held if rng.random() < 0.6]
        action = rng.choice(["receive", "receive", "acknowledge", "put back", "die"])
        if action == "receive":
            held += queue.receive(rng.randint(1, 8), 0)
        elif action == "die":
            if place.comes_again:
                place.kill(queue)
                queue, held = place.open(), []
        else:
            held = [message for message in held if message not in chosen]
            if action == "put back":
                queue.put_back(receipts(chosen))
                continue
            left = set(queue.acknowledge(receipts(chosen)))
            done |= set(texts(message for message in chosen if message.receipt not in left))
    queue.put_back(receipts(held))
    for _ in range(60):
        missing = set(sent) - done
        found = queue.receive(10, place.wait_ms if missing else 0)
        if not found and not missing:
            break
        queue.acknowledge(receipts(found))
        done |= set(texts(found))
    return done
