"""Group commit of requests: one writer, one commit for all that wait, an answer only after it.

Requests that arrive during a commit share the next one. None is answered before it is durable.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from typing import NamedTuple

from kfm.db.requests import Requests
from kfm.model.errors import BackendUnavailable, Busy, KfmError
from kfm.model.requests import UpdateRequest

WAITING_MAX = 4096  # more are refused as busy: each costs memory, and its sender waits
BATCH_MAX = 512  # one commit must not hold the ledger for long
ACCEPTING_SECONDS_MAX = 20.0  # senders have timeouts, too: an answer must come before
CLOSING_SECONDS_MAX = 30.0

Open = Callable[[], AbstractContextManager[Requests]]
Answer = UpdateRequest | None | BaseException


class Accepted(NamedTuple):
    """A request that is durable."""

    request: UpdateRequest
    first: UpdateRequest | None  # None: it is new; else the one that has its key already


class _Waiting(NamedTuple):
    request: UpdateRequest
    future: asyncio.Future[Accepted]
    loop: asyncio.AbstractEventLoop


class AcceptQueue:
    """`open_requests` is entered in the writer's own thread, and again after the ledger was unavailable."""

    def __init__(
        self,
        open_requests: Open,
        *,
        committed: Callable[[], None] = lambda: None,
        waiting_max: int = WAITING_MAX,
        batch_max: int = BATCH_MAX,
        seconds_max: float = ACCEPTING_SECONDS_MAX,
    ) -> None:
        """`committed` is called once for each commit that holds a new request."""
        self._committed = committed
        self._open = open_requests
        self._waiting_max = waiting_max
        self._batch_max = batch_max
        self._seconds_max = seconds_max
        self._waiting: deque[_Waiting] = deque()
        self._lock = threading.Condition()
        self._closed = False
        self._idle = False
        self._thread = threading.Thread(target=self._write, name="kfm-accept-queue", daemon=True)

    def start(self) -> None:
        self._thread.start()

    async def accept(self, request: UpdateRequest) -> Accepted:
        """Waits until it is durable. Busy if too many wait or it takes too long, BackendUnavailable if the
        ledger can't be used. The same request, sent again, is answered with the first one if that was
        accepted after all."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Accepted] = loop.create_future()
        with self._lock:
            if self._closed:
                raise Busy("The service is stopping.")
            if len(self._waiting) >= self._waiting_max:
                raise Busy("Too many requests wait to be accepted.")
            self._waiting.append(_Waiting(request, future, loop))
            if self._idle:
                self._idle = False
                self._lock.notify()
        late = loop.call_later(self._seconds_max, _give_up, future)
        try:
            return await future
        finally:
            late.cancel()

    def close(self) -> None:
        """Commit and answer the requests that wait; refuse new ones."""
        with self._lock:
            self._closed = True
            self._lock.notify()
        if self._thread.is_alive():
            self._thread.join(CLOSING_SECONDS_MAX)

    # --- the writer ------------------------------------------------------------------

    def _write(self) -> None:
        store = _Store(self._open)
        try:
            while batch := self._next():
                try:
                    answers = store.answers([one.request for one in batch])
                except BaseException:  # the thread ends; the senders of this batch must not wait for ever
                    _deliver(batch, [Busy("The service is stopping.")] * len(batch))
                    raise
                _deliver(batch, answers)
                if any(answer is None for answer in answers):
                    self._committed()
        finally:
            store.close()
            self._refuse_rest()

    def _next(self) -> list[_Waiting]:
        """The next batch; empty only at the end."""
        with self._lock:
            while not self._waiting and not self._closed:
                self._idle = True
                self._lock.wait()
            count = min(len(self._waiting), self._batch_max)
            return [self._waiting.popleft() for _ in range(count)]

    def _refuse_rest(self) -> None:
        """If the writer itself failed: the requests that wait are refused."""
        with self._lock:
            self._closed = True
            rest = list(self._waiting)
            self._waiting.clear()
        _deliver(rest, [Busy("The service is stopping.")] * len(rest))


class _Store:
    """The store of requests, opened when needed, and again after a failure."""

    def __init__(self, open_requests: Open) -> None:
        self._open = open_requests
        self._opened = ExitStack()
        self._requests: Requests | None = None

    def answers(self, batch: Sequence[UpdateRequest]) -> list[Answer]:
        """For each the result of `Requests.accept`, or the error."""
        try:
            if self._requests is None:
                self._requests = self._opened.enter_context(self._open())
            return list(self._requests.accept(batch))
        except BackendUnavailable as error:
            self.close()
            return [error] * len(batch)
        except Exception as error:  # noqa: BLE001 - it is the answer; the writer goes on
            if len(batch) == 1:
                self.close()
                return [error if isinstance(error, KfmError) else _defect(error)]
        # One of them is at fault. Halves: the others are still accepted, in few commits.
        middle = len(batch) // 2
        return [*self.answers(batch[:middle]), *self.answers(batch[middle:])]

    def close(self) -> None:
        opened, self._opened, self._requests = self._opened, ExitStack(), None
        with suppress(Exception):
            opened.close()


def _defect(error: Exception) -> KfmError:
    """Only the type of the error: its message may quote the request."""
    return KfmError(f"A request could not be stored: {type(error).__name__}.")


def _give_up(future: asyncio.Future[Accepted]) -> None:
    if not future.done():
        future.set_exception(Busy("The ledger does not answer in time. Send the same again."))


def _deliver(batch: Sequence[_Waiting], answers: Sequence[Answer]) -> None:
    """Wakes each event loop once for all of its results."""
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[_Waiting, Answer]]] = {}
    for one, answer in zip(batch, answers, strict=True):
        by_loop.setdefault(one.loop, []).append((one, answer))
    for loop, results in by_loop.items():
        with suppress(RuntimeError):  # the event loop has ended
            loop.call_soon_threadsafe(_resolve, results)


def _resolve(results: Sequence[tuple[_Waiting, Answer]]) -> None:
    for one, answer in results:
        if one.future.done():  # the sender has disconnected
            continue
        if isinstance(answer, BaseException):
            one.future.set_exception(answer)
        else:
            one.future.set_result(Accepted(one.request, answer))
