"""Processes that the store's tests start: `python -m tests.integration.db.players ROLE …`.

Each prints one JSON document a line and ends when its standard input does.
"""

from __future__ import annotations

import json
import os
import select
import sys
import time
from collections.abc import Callable
from typing import Any

import apsw

from kfm.db import sqlite
from kfm.db.ledger import Ledger
from kfm.db.session import Session
from kfm.db.sqlite import WriteLock
from kfm.system import SystemClock
from tests.conformance.db.ledgers import Desk, entry, new_run, postgres_store, sqlite_store

SEATS = 50  # a server has fewer connections than a crowd has members


def say(**facts: Any) -> None:
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


def is_over() -> bool:
    return bool(select.select([sys.stdin], [], [], 0)[0])


def open_store(where: str) -> Ledger:
    return (
        postgres_store(where)
        if where.startswith("postgresql://")
        else sqlite_store(where, SystemClock(), copied=False)
    )


# --- roles ---------------------------------------------------------------------------


def hold(path: str) -> None:
    """Take SQLite's own write lock, as a foreign tool would, and keep it."""
    connection = apsw.Connection(path)
    connection.execute("BEGIN IMMEDIATE")
    say(ready=True)
    sys.stdin.read()


def hold_gate(path: str) -> None:
    """Stand in the write lock for ever."""
    with WriteLock(path, SystemClock()):
        say(ready=True)
        sys.stdin.read()


def _slow(duration_ms: float) -> Callable[[Session], None]:
    def change(session: Session) -> None:
        session.all("policy.advance")  # the epoch counts the transactions
        time.sleep(duration_ms / 1000)

    return change


def busy(path: str, duration_ms: str) -> None:
    """Write back to back."""
    database = sqlite_store(path, SystemClock())._database
    change, count = _slow(float(duration_ms)), 0
    say(ready=True)
    while not is_over():
        database.write(change)
        count += 1
    say(count=count)


def bulky(path: str, checkpoint_pages: str) -> None:
    """Write a lot, back to back, with a small write-ahead file."""
    sqlite.CHECKPOINT_PAGES = int(checkpoint_pages)
    store = sqlite_store(path, SystemClock())
    say(ready=True)
    count = 0
    while not is_over():
        store.append_governance([entry("x", details={"text": "x" * 40_000})])
        count += 1
    say(count=count)


def commit_and_die(path: str, count: str) -> None:
    """Commit some entries, say so, and stay with a write-ahead file in place until killed."""
    store = sqlite_store(path, SystemClock())
    store.append_governance([entry(f"k{number}") for number in range(int(count))])
    say(ready=True)
    sys.stdin.read()


def appending(path: str) -> None:
    """Append pairs for ever, a new connection now and then: checkpoints and removed write-ahead files."""
    say(ready=True)
    number = 0
    while not is_over():
        store = sqlite_store(path, SystemClock())
        for _ in range(3):
            number += 1
            store.append_governance([entry("left", f"{number}"), entry("right", f"{number}")])
        store.close()
    say(count=number)


def _member(where: str, number: int, barrier: int) -> dict[str, Any]:
    os.read(barrier, 1)  # opens for all at once
    store = open_store(where)
    scope = "dataset:shared" if number % 2 else f"dataset:{number}"
    desk = Desk(store)
    desk.calls = number
    answer = desk.admit(new_run("same"), scope=scope, worker_id=f"worker-{number}")
    shown = answer.run or store.run_by_key(new_run("same").idempotency_key)
    store.close()
    return {
        "answer": answer.answer,
        "run_id": shown.run_id if shown else None,
        "holder": answer.lock.holder.run_id if answer.lock and answer.lock.holder else None,
    }


def crowd(where: str, size: str) -> None:
    """That many processes admit the same key at once, into a ledger that no process has made yet."""
    if where.startswith("postgresql://"):
        import psycopg  # noqa: F401 - here once, not a hundred times in the children
    barrier_end, barrier = os.pipe()
    answers_end, answers = os.pipe()
    seat_end, seat = os.pipe()
    os.write(seat, b"x" * SEATS)
    for number in range(1, int(size) + 1):
        if os.fork() == 0:
            os.close(barrier)
            os.read(seat_end, 1)
            try:
                said = _member(where, number, barrier_end)
            except BaseException as error:
                said = {"answer": f"{type(error).__name__}: {error}"}
            os.write(seat, b"x")
            os.write(answers, (json.dumps(said) + "\n").encode())  # short enough to be one piece
            os._exit(0)
    os.close(barrier_end)
    os.close(answers)
    os.close(barrier)
    with os.fdopen(answers_end, encoding="utf-8") as lines:
        sys.stdout.writelines(lines)


ROLES: dict[str, Callable[..., None]] = {
    "hold": hold,
    "hold-gate": hold_gate,
    "busy": busy,
    "bulky": bulky,
    "commit-and-die": commit_and_die,
    "appending": appending,
    "crowd": crowd,
}

if __name__ == "__main__":
    ROLES[sys.argv[1]](*sys.argv[2:])
