"""A worker of the fleet benchmark, in a process of its own.

    python -m bench.fleet_workers ours CONFIG    the loop of `kfm worker`, with its duties
    python -m bench.fleet_workers bare DSN       `PostgresFloor`: insert, claim, succeed

Both take units through the same three durable points, a hundred of them a commit, in one lane: each claims
what any of them has taken in. Orders come by standard input, an answer follows each:

    prepare FIRST COUNT    announcements (bare: rows) with these numbers are made; `prepared`
    work                   until the next order; `begun` when the first batch has ended
    stop                   how many of them are left
"""

from __future__ import annotations

import select
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack

from bench.ingest_references import PostgresFloor, Row, item_of, unit_row

BATCH = 100  # as shipped
LATER_MS = 4_000_000_000_000  # what is due then is due


Work = Callable[[Callable[[], None]], int]  # says when it has begun, works until the next order; what is left


def _is_over() -> bool:
    return bool(select.select([sys.stdin], [], [], 0)[0])


class Once:
    """Calls it when something is true for the first time."""

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call
        self._is_done = False

    def __call__(self, is_true: bool) -> None:
        if is_true and not self._is_done:
            self._is_done = True
            self._call()


def _follow(prepare: Callable[[range], Work]) -> None:
    work, left = prepare(range(0)), 0
    for line in sys.stdin:
        order, *numbers = line.split()
        if order == "prepare":
            first, count = map(int, numbers)
            work = prepare(range(first, first + count))
            print("prepared", flush=True)
        elif order == "work":
            left = work(lambda: print("begun", flush=True))
        else:
            print(left, flush=True)


def _ours(config: str) -> None:
    from bench.ingest_feed import Spool
    from kfm.app import open_app
    from kfm.config.loader import load
    from kfm.nodd.ingest import NoddIngest
    from kfm.nodd.poller import Poller
    from kfm.nodd.worker import Worker
    from kfm.nodd.worker_loop import WorkerLoop, WorkerTotals, due_in_ms, maintenance

    with ExitStack() as stack:
        app = stack.enter_context(open_app(load(config, environ={})))
        ingest = NoddIngest(app)
        stack.callback(ingest.close)
        context, stop = ingest.context(), threading.Event()
        tasks = maintenance(app, ingest, stop, lambda: None, deliveries=False, dispatches=False)

        def prepare(numbers: range) -> Work:
            spool = Spool()
            spool.put(numbers)

            def work(begun: Callable[[], None]) -> int:
                once = Once(begun)
                loop = WorkerLoop(
                    Worker(context),
                    app.clock,
                    totals=WorkerTotals(),
                    pollers=[Poller(context, spool)],
                    # What is sent to others is not of the ledger, and the bare loop has none of it.
                    maintenance=[task for task in tasks if task.name not in ("lineage", "incidents")],
                    stopping=_is_over,
                    rest=lambda delay_ms: stop.wait(delay_ms / 1000),
                    progress=lambda counts: once(counts.succeeded > 0),
                    due_in_ms=lambda: due_in_ms(context.wal),
                    unit_random=app.rng.unit,
                )
                counts = loop.run_until_stopped()
                assert not counts.failed
                assert not counts.lost
                return len(spool.waiting)

            return work

        _follow(prepare)


def _bare(dsn: str) -> None:
    floor = PostgresFloor(dsn)

    def prepare(numbers: range) -> Work:
        rows: list[Row] = [unit_row(number) for number in numbers]
        items = {row[0]: item_of(row) for row in rows}

        def work(begun: Callable[[], None]) -> int:
            once, at = Once(begun), 0
            while at < len(rows) and not _is_over():
                once(floor.through(rows[at : at + BATCH], items, LATER_MS) > 0)
                at += BATCH
            return max(0, len(rows) - at)

        return work

    _follow(prepare)
    floor.close()


if __name__ == "__main__":
    {"ours": _ours, "bare": _bare}[sys.argv[1]](*sys.argv[2:])
