"""A process that acts on the outside, and is killed at a chosen place.

Its pipelines append a line for each effect to a file that no transaction protects. They pass named places;
between those, each commit to the ledger is two more (before it, after it). At the chosen one the process
kills itself, with all its threads, or raises there.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

Anchor = Literal["start", "begun", "acting", "acted", "ended"]
How = Literal["kill", "raise"]
FAILURE = "no answer comes"

PIPELINE = '''\
"""Three pipelines with one effect each."""

import kfm
from tests.crash import acting


def sent(context):
    acting.reached("begun")
    acting.act(context)
    publish(context)


def called(context):
    acting.reached("begun")
    kfm.call(acting.act, context, idempotent=False)
    publish(context)


def publish(context):
    for entry in context.inputs:
        context.publisher.write_file(entry.path, entry.fetched)
    acting.reached("ended")
'''


class Strike(NamedTuple):
    """Where a process ends: so many commits after it has passed a place for the n-th time."""

    anchor: Anchor
    ticks: int = 0
    time: int = 1
    how: How = "kill"

    @property
    def place(self) -> str:
        return f"after {self.anchor}" if self.ticks else self.anchor

    def __str__(self) -> str:
        return f"{'killed' if self.how == 'kill' else 'failed'}, {self.place}"


class Striker:
    """Counts places and commits of all threads, and strikes once."""

    def __init__(self, counter: str, child: int, strike: Strike | None) -> None:
        self.counter = counter
        self.child = child
        self._strike = strike
        self._left = strike.time if strike else 0
        self._ticks = -1  # to go, once the place is passed
        self._lock = threading.RLock()

    def reached(self, place: Anchor) -> None:
        with self._lock:
            if self._strike is None or place != self._strike.anchor or self._left == 0:
                return
            self._left -= 1
            if self._left == 0:
                self._ticks = self._strike.ticks
                self._maybe()

    def tick(self) -> None:
        with self._lock:
            if self._ticks > 0:
                self._ticks -= 1
                self._maybe()

    def _maybe(self) -> None:
        if self._ticks or self._strike is None:
            return
        strike, self._strike = self._strike, None
        if strike.how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        raise TimeoutError(FAILURE)


_striker = Striker(os.devnull, 0, None)


def install(counter: str, child: int, strike: Strike | None) -> None:
    """In a process of its own: it is watched from now on."""
    global _striker  # noqa: PLW0603 - a pipeline's file has no other way to find it
    _striker = Striker(counter, child, strike)
    _watch_commits()
    reached("start")


def reached(place: Anchor) -> None:
    _striker.reached(place)


def act(context: Any) -> None:
    """The effect: one line, durable when it returns."""
    reached("acting")
    line = {
        "source": context.source_id,
        "window": [context.window.start_ms, context.window.end_ms],
        "child": _striker.child,
        "pid": os.getpid(),
    }
    file = os.open(_striker.counter, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(file, json.dumps(line).encode() + b"\n")
        os.fsync(file)
    finally:
        os.close(file)
    reached("acted")


def _watch_commits() -> None:
    from kfm.db.sqlite import SqliteDatabase

    write = SqliteDatabase.write

    def watched(self: SqliteDatabase, change: Callable[..., Any]) -> Any:
        def inside(session: Any) -> Any:
            result = change(session)
            _striker.tick()
            return result

        result = write(self, inside)
        _striker.tick()
        return result

    SqliteDatabase.write = watched  # type: ignore[method-assign]
