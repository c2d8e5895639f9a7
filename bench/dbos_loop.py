"""DBOS on SQLite, for `ingest_references.py`: runs in DBOS's own environment, not in ours.

Asked `n batch steps` on a line of stdin, it says units a second on a line of stdout.

A unit is a workflow. DBOS makes its start durable (taken in), each step's result (claimed) and its
end (succeeded): with one step that is three commits a unit, the same durable points as ours; with
three steps it is five. The steps do nothing. What is stored is the object's address, no row of
ours, no item and no lineage.

At a batch of one the workflows are called one after the other. At a larger one that many are under way at once
from a queue, which claims many in one commit; starts and ends are a commit each whatever
one does, and SQLite has one writer, so that this is hardly denser. The faster of the two counts.

DBOS leaves SQLite's journal as it is (DELETE, FULL). WAL with FULL is as durable and quicker,
so it gets that, and rare checkpoints as ours.
"""

from __future__ import annotations

import os
import sqlite3
import sys
import time
from collections.abc import Callable
from typing import Any

CHECKPOINT_PAGES = 4_000
THREADS = 4  # more get into each other's way
POLL_S = 0.05
WAIT_S = 0.005

Workflow = Callable[[str], str]


def _prepare(connection: Any, _record: Any) -> None:
    assert connection.execute("PRAGMA journal_mode=WAL").fetchone() == ("wal",)
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute(f"PRAGMA wal_autocheckpoint={CHECKPOINT_PAGES}")
    assert connection.execute("PRAGMA synchronous").fetchone() == (2,)


def _workflows() -> dict[int, Workflow]:
    from dbos import DBOS

    @DBOS.step()
    def take_in(uri: str) -> str:
        return uri

    @DBOS.step()
    def claim(uri: str) -> str:
        return uri

    @DBOS.step()
    def succeed(uri: str) -> str:
        return uri

    @DBOS.workflow()
    def with_one_step(uri: str) -> str:
        return claim(uri)

    @DBOS.workflow()
    def with_three_steps(uri: str) -> str:
        return succeed(claim(take_in(uri)))

    return {1: with_one_step, 3: with_three_steps}


def _one_by_one(workflow: Workflow, uris: list[str]) -> None:
    for uri in uris:
        workflow(uri)


def _queued(workflow: Workflow, uris: list[str], reader: sqlite3.Connection) -> None:
    from dbos import DBOS

    for uri in uris:
        DBOS.enqueue_workflow("units", workflow, uri)
    left = "SELECT EXISTS (SELECT 1 FROM workflow_status WHERE status IN ('ENQUEUED', 'PENDING'))"
    while reader.execute(left).fetchone() != (0,):
        time.sleep(WAIT_S)


def _rate(work: Callable[[], None], n: int) -> float:
    began_s = time.perf_counter()
    work()
    return n / (time.perf_counter() - began_s)


def _serve(path: str) -> None:
    from dbos import DBOS
    from sqlalchemy import Engine, event

    event.listen(Engine, "connect", _prepare)
    DBOS(
        config={
            "name": "bench",
            "system_database_url": f"sqlite:///{path}",
            "log_level": "ERROR",
            "max_executor_threads": THREADS,
        }
    )
    workflows = _workflows()
    DBOS.launch()
    reader = sqlite3.connect(path, timeout=30)
    asked_for_many = False
    print("ready", flush=True)
    for line in sys.stdin:
        n, batch, steps = (int(part) for part in line.split())
        workflow = workflows[steps]
        uris = [
            f"s3://noaa-goes19/ABI-L2-MCMIPC/2026/060/00/{time.time_ns()}_{number}.nc" for number in range(n)
        ]
        rate = _rate(lambda workflow=workflow, uris=uris: _one_by_one(workflow, uris), n)  # type: ignore[misc]
        if batch > 1:
            if not asked_for_many:  # its polling costs something, too
                asked_for_many = True
                DBOS.register_queue("units", worker_concurrency=batch, polling_interval_sec=POLL_S)
                _queued(workflow, uris[:1], reader)
            queued = _rate(lambda workflow=workflow, uris=uris: _queued(workflow, uris, reader), n)  # type: ignore[misc]
            rate = max(rate, queued)
        print(rate, flush=True)
    os._exit(0)  # nothing is under way, and its threads need not be waited for


if __name__ == "__main__":
    _serve(sys.argv[1])
