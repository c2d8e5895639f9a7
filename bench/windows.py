"""What a year of an hourly feed costs: files and folders, objects, bytes of the ledger.

One window after the other is published into a merged dataset, by the product itself, to a folder and to a
bucket. Two things are counted, and a thousand windows more must cost in the end what they cost in the
beginning:

*Left*: what is there after `kfm gc`. Collection spares what is young, and a benchmark publishes in minutes
what takes months, so the product's clock is put an hour ahead with each window, as when the next one comes.

*Written*: files, folders and links made, objects put, and the time that it took this process, whether
collected later or not.

The bucket is one in memory, of the library that the product's own client is made of: requests and objects are
what is counted, not how fast a server is. `--emulator` takes the S3 emulator of the tests instead; the counts
are the same, after thrice the time.

`python -m bench.windows 5000` prints a line of JSON for each 250 windows and for each figure, and draws them
(`--chart FILE`); as a benchmark it is among those that run only if they are named. `TMPDIR=/dev/shm` spares
the disk, which is not what grows.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from bench.charts import windows_charts
from bench.harness import Benchmark
from tests import services

ON_REQUEST = True
WINDOWS = 5000
PART = 1000  # windows whose cost is compared
LOOK_EVERY = 250  # windows between two collections, after which is counted
HOUR_MS = 3_600_000
FIRST = datetime(2025, 1, 1, tzinfo=UTC)

CONFIG = """\
version: 1
environment: bench
limits: {versions_kept: 3}
datasets:
  - id: levels
    title: Levels
    domain: hydrology
    rights: {license: CC0-1.0, care: {label: Public, level: public}}
sources:
  - id: gauges
    dataset: levels
    kind: files
    folder: incoming
    pattern: "{window.start:%Y%m%dT%H}.csv"
    mode: merge
    window: PT1H
    time_zone: UTC
    path: "{window.start:%Y/%m/%d}/{name}"
publish:
  - {kind: local, path: published}
  - {kind: s3, url: "ADDRESS", options: OPTIONS}
"""


class Point(NamedTuple):
    """After so many windows."""

    windows: int
    # left
    files: int  # in the published folder; links and folders are counted, too
    objects: int  # in the bucket
    object_bytes: int
    ledger: int  # bytes of the database that are in use
    state_files: int  # beside the ledger: bytes by their hashes, documents of runs, lineage
    state_bytes: int
    # written since the beginning
    made: int  # files, links and folders, wherever
    puts: int
    put_bytes: int
    gets: int
    cpu_s: float


LEFT = ("files", "objects", "object_bytes", "ledger", "state_files", "state_bytes")
WRITTEN = ("made", "puts", "put_bytes", "gets", "cpu_s")


class Written:
    """Counts what the product makes, while it is switched on: entries of folders, requests to the bucket."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._on = False
        self._lock = threading.Lock()
        sys.addaudithook(self._hear)

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self._on and (
            event in {"os.mkdir", "os.link", "os.symlink"}
            or (event == "open" and isinstance(arguments[2], int) and arguments[2] & os.O_CREAT)
        ):
            self._add("made")

    def _add(self, name: str, number: float = 1) -> None:
        with self._lock:
            self.counts[name] += number  # type: ignore[assignment]

    @contextlib.contextmanager
    def counting(self) -> Iterator[None]:
        from kfm.objects.bucket_client import ObstoreBucket

        get, put = ObstoreBucket.get, ObstoreBucket.put

        def counted_get(bucket: ObstoreBucket, key: str) -> tuple[bytes, str] | None:
            self._add("gets")
            return get(bucket, key)

        def counted_put(bucket: ObstoreBucket, key: str, data: bytes, **conditions: Any) -> bool:
            self._add("puts")
            self._add("put_bytes", len(data))
            return put(bucket, key, data, **conditions)

        began_s, self._on = time.process_time(), True
        try:
            with (
                patch.object(ObstoreBucket, "get", counted_get),
                patch.object(ObstoreBucket, "put", counted_put),
            ):
                yield
        finally:
            self._on = False
            self._add("cpu_s", time.process_time() - began_s)


class MemoryBucket:
    """A bucket in this process, opened anew by each command."""

    address, options = "s3://bench/open", {"region": "us-east-1"}

    def __init__(self) -> None:
        from obstore.store import MemoryStore

        self._store = MemoryStore()

    def opened(self) -> contextlib.AbstractContextManager[Any]:
        from obstore import store

        return patch.object(store, "from_url", lambda _url, **_options: self._store)

    def sizes(self) -> list[int]:
        return [one["size"] for some in self._store.list() for one in some]


class EmulatedBucket:
    """A bucket of an S3 server."""

    def __init__(self, endpoint: str, name: str) -> None:
        self._client, self._name = services.s3_client(endpoint), name
        self.address = f"s3://{name}/open"
        self.options = {"endpoint": endpoint, "allow_http": "true", "region": "us-east-1"}
        self.options |= dict.fromkeys(("access_key_id", "secret_access_key"), "file:secret.txt")

    def opened(self) -> contextlib.AbstractContextManager[Any]:
        return contextlib.nullcontext()

    def sizes(self) -> list[int]:
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self._name)
        return [one["Size"] for page in pages for one in page.get("Contents", ())]


class Feed:
    """A project of its own, with a folder and a bucket."""

    def __init__(self, folder: Path, bucket: MemoryBucket | EmulatedBucket) -> None:
        self.folder = folder
        self._bucket = bucket
        (folder / "incoming").mkdir(parents=True)
        (folder / "secret.txt").write_text("test")
        (folder / "secret.txt").chmod(0o600)
        text = CONFIG.replace("ADDRESS", bucket.address).replace("OPTIONS", json.dumps(bucket.options))
        (folder / "kfm.yml").write_text(text)
        self.windows = 0
        self._written = Written()

    def publish(self) -> None:
        """One window more, by `kfm run`."""
        start = FIRST + timedelta(hours=self.windows)
        (self.folder / "incoming" / f"{start:%Y%m%dT%H}.csv").write_text(f"gauge,level\na,{self.windows}\n")
        end = start + timedelta(hours=1)
        span = f"{start:%Y-%m-%dT%H:%M:%SZ}/{end:%Y-%m-%dT%H:%M:%SZ}"
        with self._written.counting():
            self._kfm("run", "--source", "gauges", "--window", span)
        lineage = self.folder / ".kfm" / "lineage" / "openlineage.jsonl"
        now_s = time.time() + self._ahead_ms() / 1000  # a file is moved away a day after it was written
        os.utime(lineage, (now_s, now_s))
        self.windows += 1

    def collect(self) -> None:
        """As a service would. Everything is an hour old at least."""
        self._kfm("gc", "--apply", "--rationale", "old versions")

    def _ahead_ms(self) -> int:
        return (self.windows + 2) * HOUR_MS

    def _kfm(self, *arguments: str) -> None:
        from kfm.cli import main
        from kfm.system import SystemClock

        ahead_ms, real = self._ahead_ms(), SystemClock.now_ms
        before, out = os.getcwd(), io.StringIO()
        os.chdir(self.folder)
        try:
            with (
                self._bucket.opened(),
                patch.object(SystemClock, "now_ms", lambda clock: real(clock) + ahead_ms),
                contextlib.redirect_stdout(out),
                contextlib.redirect_stderr(out),
            ):
                main(list(arguments))
        except SystemExit as ended:
            if ended.code:
                raise RuntimeError(out.getvalue()) from ended
        finally:
            os.chdir(before)

    def point(self) -> Point:
        """What is left, and was written."""
        sizes = self._bucket.sizes()
        state = [path for path in (self.folder / ".kfm").rglob("*") if not path.name.startswith("kfm.db")]
        counts = self._written.counts
        return Point(
            windows=self.windows,
            files=sum(len(dirs) + len(names) for _, dirs, names in os.walk(self.folder / "published")),
            objects=len(sizes),
            object_bytes=sum(sizes),
            ledger=self._ledger_bytes(),
            state_files=len(state),
            state_bytes=sum(path.stat().st_size for path in state if path.is_file()),
            made=counts["made"],
            puts=counts["puts"],
            put_bytes=counts["put_bytes"],
            gets=counts["gets"],
            cpu_s=round(float(counts["cpu_s"]), 3),
        )

    def _ledger_bytes(self) -> int:
        import apsw

        connection = apsw.Connection(str(self.folder / ".kfm" / "kfm.db"), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            names = ("page_count", "freelist_count", "page_size")
            pages, free, size = (next(connection.execute(f"PRAGMA {name}"))[0] for name in names)
        finally:
            connection.close()
        return int((pages - free) * size)


@contextlib.contextmanager
def feed(emulator: bool = False) -> Iterator[Feed]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if not emulator:
            yield Feed(folder, MemoryBucket())
            return
        endpoint = stack.enter_context(services.s3())
        yield Feed(folder, EmulatedBucket(endpoint, stack.enter_context(services.s3_bucket(endpoint))))


@cache
def grown(windows: int, part: int, emulator: bool = False) -> tuple[Point, ...]:
    """After the first window, when everything is there that is made once, and then after every few."""
    found = []
    with feed(emulator) as one:
        for number in range(1, windows + 1):
            one.publish()
            if number == 1 or number % LOOK_EVERY == 0 or number % part == 0:
                one.collect()
                found.append(one.point())
                print(json.dumps(found[-1]._asdict()), flush=True)
    return tuple(found)


def slopes(found: Sequence[Point], part: int = PART) -> dict[str, list[float]]:
    """For each figure what a window costs in each part, from the first to the last."""
    ends = [found[0], *(one for one in found if one.windows % part == 0)]

    def slope(name: str, before: Point, after: Point) -> float:
        return float(getattr(after, name) - getattr(before, name)) / (after.windows - before.windows)

    return {name: [slope(name, *pair) for pair in pairwise(ends)] for name in (*LEFT, *WRITTEN)}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.windows", description=__doc__.partition("\n")[0])
    parser.add_argument("windows", type=int, nargs="?", default=WINDOWS)
    parser.add_argument("--part", type=int, default=PART)
    parser.add_argument("--chart", type=Path)
    parser.add_argument("--emulator", action="store_true")
    chosen = parser.parse_args(arguments)
    if not 1 < chosen.part <= chosen.windows // 2:
        parser.error("a part has more than one window, and there are two of them at least")
    found = grown(chosen.windows, chosen.part, chosen.emulator)
    for name, costs in slopes(found, chosen.part).items():
        line = {"figure": name, "per_window": [round(one, 3) for one in costs]}
        print(json.dumps(line | {"last_to_first": round(costs[-1] / costs[0], 3)}), flush=True)
    if chosen.chart is not None:
        chosen.chart.write_text(windows_charts([one._asdict() for one in found]))
    return 0


def benchmarks() -> list[Benchmark]:
    def both(name: str) -> Benchmark:
        return Benchmark(
            name=f"windows_{name}",
            kind="cost",
            goal=1.1,
            setup=lambda _: slopes(grown(WINDOWS, PART)),
            ours=lambda found: found[name][-1],
            reference=lambda found: found[name][0],
            unit="",
            rounds=1,
        )

    return [both(name) for name in (*LEFT, *WRITTEN)]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
