"""Requests share commits, and each gets its own answer, only after one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from kfm.model.errors import BackendUnavailable, Busy, KfmError
from kfm.model.requests import UpdateRequest
from kfm.model.webhooks import WebhookEnvelope, as_request, read_webhook
from kfm.web.accept_queue import Accepted, AcceptQueue
from tests.webhook_samples import NOW_MS, encoded, kfm, payload, source, to

pytestmark = pytest.mark.req("UPD-12")


def request_of(name: str) -> UpdateRequest:
    body = encoded(payload(request_uuid=name))
    envelope = read_webhook(to(), kfm(body), body, NOW_MS)
    assert isinstance(envelope, WebhookEnvelope)
    return as_request(envelope, source(), NOW_MS)


class Ledger:
    """Commits batches; a gate lets a test hold the first one up."""

    def __init__(self, *, poison: Sequence[str] = ()) -> None:
        self.batches: list[list[str]] = []
        self.kept: dict[str, UpdateRequest] = {}
        self.opened = 0
        self.away = False
        self.gate = threading.Event()
        self.entered = threading.Event()
        self.gate.set()
        self._poison = set(poison)

    @contextmanager
    def open(self) -> Iterator[Any]:
        self.opened += 1
        yield self

    def accept(self, wanted: Sequence[UpdateRequest]) -> list[UpdateRequest | None]:
        self.entered.set()
        assert self.gate.wait(10)
        names = [str(one.request_uuid) for one in wanted]
        self.batches.append(names)
        if self.away:
            raise BackendUnavailable("The ledger is away.")
        if self._poison.intersection(names):
            raise ValueError("a value of the payload")
        found = []
        for one in wanted:
            found.append(self.kept.get(one.request_id))
            self.kept.setdefault(one.request_id, one)
        return found


async def together(queue: AcceptQueue, names: Sequence[str]) -> list[Any]:
    return await asyncio.gather(*(queue.accept(request_of(name)) for name in names), return_exceptions=True)


async def behind_one(ledger: Ledger, queue: AcceptQueue, names: Sequence[str]) -> list[Any]:
    """The first is being committed while all others arrive."""
    ledger.gate.clear()
    first = asyncio.ensure_future(queue.accept(request_of("first")))
    await asyncio.to_thread(ledger.entered.wait, 10)
    rest = asyncio.ensure_future(together(queue, names))
    await asyncio.sleep(0)
    ledger.gate.set()
    await first
    return await rest


def test_what_waits_shares_a_commit() -> None:
    """While one commit is under way others gather, and all of them go with the next."""
    ledger, told = Ledger(), []
    queue = AcceptQueue(ledger.open, committed=lambda: told.append(len(ledger.kept)), batch_max=20)
    queue.start()
    names = [f"r{number}" for number in range(30)]
    answers = asyncio.run(behind_one(ledger, queue, names))
    queue.close()
    assert ledger.batches == [["first"], names[:20], names[20:]]
    assert [answer.request.request_uuid for answer in answers] == names
    assert all(isinstance(answer, Accepted) and answer.first is None for answer in answers)
    assert told == [1, 21, 31], "told once for each commit"
    assert ledger.opened == 1


def test_the_second_use_is_told_of_the_first() -> None:
    """Also within one batch."""
    ledger = Ledger()
    queue = AcceptQueue(ledger.open)
    queue.start()
    answers = asyncio.run(behind_one(ledger, queue, ["a", "a", "first"]))
    queue.close()
    assert [answer.first is None for answer in answers] == [True, False, False]
    assert answers[1].first.request_uuid == "a"


def test_a_poison_row_fails_alone() -> None:
    """One request that can't be stored takes none of its neighbours with it, and its words are not told."""
    ledger = Ledger(poison=["r5"])
    queue = AcceptQueue(ledger.open)
    queue.start()
    names = [f"r{number}" for number in range(9)]
    answers = asyncio.run(behind_one(ledger, queue, names))
    queue.close()
    assert [type(answer) for answer in answers] == [KfmError if name == "r5" else Accepted for name in names]
    assert "payload" not in str(answers[5])
    assert len(ledger.kept) == 9, "the first, and eight of the nine"
    assert len(ledger.batches) <= 1 + 2 * 9, "halves, not one by one for ever"


def test_a_ledger_that_is_away_is_told_and_opened_again() -> None:
    """Nothing is accepted meanwhile; afterwards it is, over a new connection."""
    ledger = Ledger()
    queue = AcceptQueue(ledger.open)
    queue.start()
    ledger.away = True
    (refused, _) = asyncio.run(together(queue, ["a", "b"]))
    ledger.away = False
    (accepted,) = asyncio.run(together(queue, ["a"]))
    queue.close()
    assert isinstance(refused, BackendUnavailable)
    assert isinstance(accepted, Accepted)
    assert accepted.first is None
    assert ledger.opened == 2


def test_too_many_are_refused_at_once() -> None:
    """The queue has an end: who is beyond it is told to come back, and the others are served."""
    ledger = Ledger()
    queue = AcceptQueue(ledger.open, waiting_max=3)
    queue.start()
    answers = asyncio.run(behind_one(ledger, queue, ["a", "b", "c", "d", "e"]))
    queue.close()
    assert [type(answer) for answer in answers] == [Accepted, Accepted, Accepted, Busy, Busy]


def test_stopping_commits_what_waits_and_refuses_what_comes() -> None:
    """No caller is left without an answer, and none is answered before its commit."""
    ledger = Ledger()

    async def scene(queue: AcceptQueue) -> tuple[list[Any], list[Any]]:
        ledger.gate.clear()
        first = asyncio.ensure_future(together(queue, ["a"]))
        await asyncio.to_thread(ledger.entered.wait, 10)
        waiting = asyncio.ensure_future(together(queue, ["b", "c"]))
        await asyncio.sleep(0)
        closing = asyncio.ensure_future(asyncio.to_thread(queue.close))
        while not queue._closed:
            await asyncio.sleep(0)
        late = await together(queue, ["late"])
        assert not first.done()
        assert not waiting.done()
        ledger.gate.set()
        await closing
        return [*await first, *await waiting], late

    queue = AcceptQueue(ledger.open)
    queue.start()
    answers, late = asyncio.run(scene(queue))
    assert all(isinstance(answer, Accepted) for answer in answers)
    assert isinstance(late[0], Busy)
    assert sorted(one.request_uuid or "" for one in ledger.kept.values()) == ["a", "b", "c"]


def test_a_caller_who_left_disturbs_no_other() -> None:
    """His request is accepted all the same: it may have been durable already."""
    ledger = Ledger()

    async def scene(queue: AcceptQueue) -> Any:
        ledger.gate.clear()
        left = asyncio.ensure_future(queue.accept(request_of("left")))
        await asyncio.to_thread(ledger.entered.wait, 10)
        left.cancel()
        ledger.gate.set()
        return await queue.accept(request_of("next"))

    queue = AcceptQueue(ledger.open)
    queue.start()
    answer = asyncio.run(scene(queue))
    queue.close()
    assert answer.first is None
    assert len(ledger.kept) == 2


def test_a_ledger_that_does_not_answer() -> None:
    """No caller waits for ever: each is told to send the same again, and then learns that it was accepted."""
    ledger = Ledger()
    queue = AcceptQueue(ledger.open, seconds_max=1.0)
    queue.start()

    async def talk() -> Accepted:
        ledger.gate.clear()
        with pytest.raises(Busy, match="again"):
            await queue.accept(request_of("slow"))
        ledger.gate.set()
        return await queue.accept(request_of("slow"))

    try:
        accepted = asyncio.run(talk())
    finally:
        ledger.gate.set()
        queue.close()
    assert accepted.first is not None
