"""DBOS on SQLite, for `ingest_references.py`: runs in DBOS's own environment, not in ours.

Asked `n batch steps` on a line of stdin, it says units a second on a line of stdout.

A unit is a workflow. DBOS makes its start durable (taken in), each step's result (claimed) and its
end (succeeded): with one step that is three commits a unit, the same durable points as ours; with
three steps it is five. The steps do nothing. What is stored is the object's address, no row of
ours, no item and no lineage.

At a batch of one the workflows are called one after the other. At a larger one that many are started
at once and under way together; the faster of the two counts. It is hardly denser, as DBOS commits each start,
step and end by itself and SQLite has one writer. (Its queues claim many workflows in one commit, but then
each unit has one commit more, and their polling takes time: they are slower here.)

DBOS leaves SQLite as it comes: journal DELETE, synchronous FULL. WAL with FULL is as durable and
quicker, so it gets that, and rare checkpoints as ours; `as-shipped` leaves it alone.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

CHECKPOINT_PAGES = 4_000
THREADS = 2  # more get into each other's way

Workflow = Callable[[str], str]


def _write_ahead(connection: Any, _record: Any) -> None:
    assert connection.execute("PRAGMA journal_mode=WAL").fetchone() == ("wal",)
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute(f"PRAGMA wal_autocheckpoint={CHECKPOINT_PAGES}")


def _check_durability(connection: Any, _record: Any) -> None:
    assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
    assert connection.execute("PRAGMA journal_mode").fetchone() in {("wal",), ("delete",)}


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


def _at_once(workflow: Workflow, uris: list[str], batch: int) -> None:
    from dbos import DBOS

    for first in range(0, len(uris), batch):
        handles = [DBOS.start_workflow(workflow, uri) for uri in uris[first : first + batch]]
        for handle in handles:
            handle.get_result()


def _uris(n: int) -> list[str]:
    return [f"s3://noaa-goes19/ABI-L2-MCMIPC/2026/060/00/{time.time_ns()}_{number}.nc" for number in range(n)]


def _rate(work: Callable[[], None], n: int) -> float:
    began_s = time.perf_counter()
    work()
    return n / (time.perf_counter() - began_s)


def _serve(path: str, journal: str) -> None:
    from dbos import DBOS
    from sqlalchemy import Engine, event

    if journal == "write-ahead":
        event.listen(Engine, "connect", _write_ahead)
    event.listen(Engine, "connect", _check_durability)
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
    print("ready", flush=True)
    for line in sys.stdin:
        n, batch, steps = (int(part) for part in line.split())
        uris = _uris(n)
        rate = _rate(partial(_one_by_one, workflows[steps], uris), n)
        if batch > 1:
            rate = max(rate, _rate(partial(_at_once, workflows[steps], uris, batch), n))
        print(rate, flush=True)
    os._exit(0)  # nothing is under way, and its threads need not be waited for


if __name__ == "__main__":
    _serve(*sys.argv[1:])
