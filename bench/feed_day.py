"""A day of NODD, and what each of its objects leaves behind.

`feed_day`: announcements as SQS hands them out, in the mix of a day, through our poller and worker to items
that are found, their lineage events in the file: one hour of the day is measured, in six parts, on a ledger
that holds two million units already, which the same poller and worker made. One thread does all of it in
turns, so two cores have room to spare; what is compared is the pace of the day itself, 46 objects a second.

`feed_day_cpu` is the same by this process's own time, which other work on the machine does not change. What
the process holds in memory is looked at all along, from the first units of the two million to the last of the
hour; `feed_day_memory` compares the most with the first, and the points are printed beside.

Bytes are counted in the ledger's own pages, everything that is written with a unit included, once its
write-ahead file is copied back; lineage is counted in compressed files. `python -m bench.feed_day`
prints them for each ten thousand units, a line of JSON each: the points of a chart in the documentation.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import apsw
from msgspec.structs import replace

from bench.admission import _folder as scratch
from bench.harness import Benchmark
from bench.ingest_feed import Spool, configuration
from bench.nodd_mix import DAY_UNITS, messages
from kfm.app import App, open_app
from kfm.config.loader import load
from kfm.model.catalogue import Search
from kfm.nodd.ingest import NoddIngest
from kfm.nodd.poller import Poller
from kfm.nodd.unit_evidence import deliver_units
from kfm.nodd.worker import Worker
from kfm.nodd.worker_loop import WorkerLoop, WorkerTotals
from kfm.ports import QueueMessage

ON_REQUEST = True
BATCH = 100
BEFORE = int(os.environ.get("KFM_BENCH_UNITS", "2000000"))  # on record when the hour begins
PARTS = 6  # of the hour
PART_UNITS = DAY_UNITS // 24 // PARTS
PACE = DAY_UNITS / 86_400  # objects a second
STEP = 10_000  # objects that are handed over at once
STEPS = 10  # of the curve
LOOK_UNITS = 100_000  # between two looks at what is held in memory
MIB = 1 << 20


class Feed:
    """One project with a ledger in SQLite, and the feed from its first object on."""

    def __init__(self, stack: ExitStack) -> None:
        self.folder = Path(scratch(stack))
        self.app: App = stack.enter_context(open_app(load(configuration(str(self.folder)), environ={})))
        self._place = NoddIngest(self.app)
        stack.callback(self._place.close)
        self._place.settings = replace(self._place.settings, batch=BATCH)
        self._next = 0
        self.points: list[tuple[int, float]] = []  # units on record, MiB held
        self.cpu_rates: list[float] = []

    def take(self, count: int) -> None:
        """So many more, until their items are there and their events are in the file."""
        while count > 0:
            some = min(count, STEP)
            self._work_off(messages(self._next, some), some)
            self._next += some
            count -= some
            if self._next % LOOK_UNITS == 0:
                self._look()

    def _work_off(self, announced: Iterator[QueueMessage], count: int) -> None:
        spool = Spool()
        spool.waiting.extend(announced)
        kernel = self._place.context()
        loop = WorkerLoop(
            Worker(kernel),
            kernel.clock,
            totals=WorkerTotals(),
            pollers=[Poller(kernel, spool)],
            rest=time.sleep,
        )
        done = loop.run_until_idle()
        assert (done.succeeded, done.failed, done.lost) == (count, 0, 0), done
        while (told := deliver_units(self.app, deadline_ms=60_000)).waiting:
            assert told.trouble is None, told

    def part(self) -> float:
        """Objects a second, for the next part of the hour. Messages are made beforehand, step by step."""
        took_s = took_cpu_s = 0.0
        for first in range(self._next, self._next + PART_UNITS, STEP):
            announced = list(messages(first, min(STEP, self._next + PART_UNITS - first)))
            began_s, began_cpu_s = time.perf_counter(), time.process_time()
            self._work_off(iter(announced), len(announced))
            took_s += time.perf_counter() - began_s
            took_cpu_s += time.process_time() - began_cpu_s
        self.cpu_rates.append(PART_UNITS / took_cpu_s)
        self._next += PART_UNITS
        self._look()
        newest = self.app.store.catalogue().find_items(Search(limit=1)) if self.app.store else []
        assert newest, "what was taken in is found"
        return PART_UNITS / took_s

    def cpu_rate(self) -> float:
        """Objects for each second of our own."""
        if not self.cpu_rates:
            self.part()
        return statistics.median(self.cpu_rates)

    def _look(self) -> None:
        self.points.append((self._next, self.resident_mib()))

    def most_mib(self) -> float:
        told = ", ".join(f"{units:,} units {mib:.1f} MiB" for units, mib in self.points)
        print(f"bench: memory: {told}", file=sys.stderr)
        return max(mib for _, mib in self.points)

    def resident_mib(self) -> float:
        gc.collect()
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / MIB

    def ledger_bytes(self) -> int:
        """Of all tables and indexes, once figures are added up, which a worker does every now and then."""
        assert self.app.store is not None
        while self.app.store.units().fold_counts():
            pass
        (path,) = self.folder.rglob("kfm.db")
        connection = apsw.Connection(str(path))
        connection.pragma("wal_checkpoint(TRUNCATE)")
        (found,) = connection.execute("SELECT SUM(pgsize) FROM dbstat").fetchone()  # type: ignore[misc]
        connection.close()
        return int(found)

    def lineage_bytes(self) -> tuple[int, int]:
        """Of compressed files; and how many units they tell of."""
        from kfm.sinks.event_file import event_lines, moved_files

        (path,) = map(str, self.folder.rglob("openlineage.jsonl"))
        packed = sum(map(os.path.getsize, moved_files(path)))
        with open(path, "rb") as file:
            not_yet = sum(1 for _ in file)
        return packed, (sum(1 for _ in event_lines(path)) - not_yet) // 2


@cache
def _day() -> Feed:
    """Made once: two million units take a while."""
    stack = ExitStack()
    atexit.register(stack.close)
    feed = Feed(stack)
    feed.take(BEFORE)
    return feed


# --- bytes -------------------------------------------------------------------------------------------

COUNTED = 40_000


class Bytes:
    """What `COUNTED` units of the mix leave behind, each."""

    def __init__(self, stack: ExitStack) -> None:
        feed = Feed(stack)
        feed.take(STEP)  # so that what every ledger has is not counted
        before = feed.ledger_bytes()
        feed.take(COUNTED)
        self.ledger = (feed.ledger_bytes() - before) / COUNTED
        packed, units = feed.lineage_bytes()
        self.lineage = packed / units


def curve() -> None:
    """Bytes of the ledger, and of lineage, from one step to the next."""
    with ExitStack() as stack:
        feed = Feed(stack)
        for number in range(STEPS + 1):
            if number:
                feed.take(STEP)
            packed, told = feed.lineage_bytes() if number else (0, 0)
            point = {"units": number * STEP, "ledger": feed.ledger_bytes()}
            print(json.dumps(point | {"lineage": packed, "lineage_units": told}), flush=True)


def benchmarks() -> list[Benchmark]:
    return [
        Benchmark(
            name="ledger_bytes_per_unit",
            kind="cost",
            goal=900,
            unit="B",
            setup=Bytes,
            ours=lambda bytes_: bytes_.ledger,
            reference=lambda _: 1.0,
            rounds=1,
        ),
        Benchmark(
            name="lineage_bytes_per_unit",
            kind="cost",
            goal=600,
            unit="B",
            setup=Bytes,
            ours=lambda bytes_: bytes_.lineage,
            reference=lambda _: 1.0,
            rounds=1,
        ),
        Benchmark(
            name="feed_day",
            kind="throughput",
            goal=10,
            unit="objects/s",
            setup=lambda _: _day(),
            ours=lambda feed: feed.part(),
            reference=lambda _: PACE,
            rounds=PARTS,
            seconds_max=3_600,
        ),
        Benchmark(
            name="feed_day_cpu",
            kind="throughput",
            goal=10,
            unit="objects/s",
            setup=lambda _: _day(),
            ours=lambda feed: feed.cpu_rate(),
            reference=lambda _: PACE,
            rounds=1,
        ),
        Benchmark(
            name="feed_day_memory",
            kind="cost",
            goal=1.1,
            unit="MiB",
            setup=lambda _: _day(),
            ours=lambda feed: feed.most_mib(),
            reference=lambda feed: feed.points[0][1],
            rounds=1,
        ),
    ]


if __name__ == "__main__":
    curve()
