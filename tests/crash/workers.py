"""Workers on one feed, killed at any moment: what every announced object must have become in the end.

Workers are forked from a process that has loaded everything, so that a kill costs milliseconds and thousands
of them fit into minutes; what is killed is a process like any other, with its own connections and locks. The
feed repeats messages, announces objects anew with other bytes, brings indexes before and after their data,
and has nonsense in between.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import threading
import time
import traceback
from collections import Counter
from contextlib import closing, redirect_stderr, redirect_stdout
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from kfm.app import open_app
from kfm.config.loader import load
from kfm.model.units import TOPIC
from kfm.nodd.worker_loop import WorkerOptions, run_worker
from tests import unit_pages

CONFIG = """\
version: 1
environment: workers
{store}
lineage: {{export: file}}
ingest:
  queues: [{{name: feed, kind: folder, path: spool}}]
  batch: 8
  visibility_seconds: 20
  safety_seconds: 5
"""
STORE = "KFM_WORKERS_STORE"  # which variable names the server
LIFE_S = (0.01, 0.5)  # how long a worker lives before it is killed
SETTLE_S = 60.0
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class Told:
    seed: int
    backend: str
    workers: int
    kills: int = 0
    objects: int = 0
    messages: int = 0
    lapsed: int = 0  # units that a killed worker had in its hands
    problems: list[str] = field(default_factory=list)


class Feed:
    """Announcements, and what they come to."""

    def __init__(self, spool: Path, rng: random.Random) -> None:
        self._spool = spool
        self._rng = rng
        self._numbers = 0
        self._files = 0
        self.newest: dict[str, tuple[str, str]] = {}  # uri → (sequencer, etag)
        self.sidecars: set[str] = set()
        self.dead = 0
        self._said: list[dict[str, Any]] = []

    def announce(self, count: int) -> None:
        """So many new objects, with all that goes wrong in a feed, in any order."""
        records = [record for _ in range(count) for record in self._object()]
        if self._said:
            records += self._rng.sample(self._said, min(len(self._said), count // 2))  # repeats
            records += [self._anew(self._rng.choice(self._said)) for _ in range(count // 8)]
        self._rng.shuffle(records)
        while records:
            size = self._rng.choice((1, 1, 1, 2, 5))
            self._write(json.dumps({"Records": records[:size]}).encode())
            del records[:size]
        if self._rng.random() < 0.3:
            self.dead += 1
            self._write(b'{"Records": [nonsense %d' % self.dead)

    def _object(self) -> list[dict[str, Any]]:
        number = self._numbers
        self._numbers += 1
        at = BEGIN + timedelta(minutes=number)
        if number % 3 == 0:
            key = f"hrrr.{at:%Y%m%d}/conus/hrrr.t{at:%H}z.wrfsfcf{number % 18:02d}.grib2"
            data, index = (
                self._record("noaa-hrrr-bdp-pds", key),
                self._record("noaa-hrrr-bdp-pds", f"{key}.idx"),
            )
            self.sidecars.add(f"s3://noaa-hrrr-bdp-pds/{key}.idx")
            return [data, index]
        stamp = f"{at:%Y%j%H%M}000"
        key = (
            f"ABI-L1b-RadC/{at:%Y}/{at:%j}/{at:%H}/"
            f"OR_ABI-L1b-RadC-M6C{number % 16 + 1:02d}_G16_s{stamp}_e{stamp}_c{stamp}.nc"
        )
        return [self._record("noaa-goes16", key)]

    def _record(self, bucket: str, key: str, version: int = 1) -> dict[str, Any]:
        uri = f"s3://{bucket}/{key}"
        sequencer, etag = f"{version:016X}", f"{abs(hash((uri, version))):032x}"[-32:]
        if sequencer > self.newest.get(uri, ("", ""))[0]:
            self.newest[uri] = (sequencer, etag)
        said = {
            "eventVersion": "2.1",
            "eventSource": "aws:s3",
            "awsRegion": "us-east-1",
            "eventTime": "2026-01-02T00:00:00.000Z",
            "eventName": "ObjectCreated:Put",
            "s3": {
                "s3SchemaVersion": "1.0",
                "bucket": {"name": bucket, "arn": f"arn:aws:s3:::{bucket}"},
                "object": {"key": key, "size": 100 + version, "eTag": etag, "sequencer": sequencer},
            },
        }
        self._said.append(said)
        del self._said[:-400]
        return said

    def _anew(self, said: dict[str, Any]) -> dict[str, Any]:
        """The same key with other bytes."""
        bucket, key = said["s3"]["bucket"]["name"], said["s3"]["object"]["key"]
        known = int(self.newest[f"s3://{bucket}/{key}"][0], 16)
        return self._record(bucket, key, known + 1)

    def _write(self, body: bytes) -> None:
        self._files += 1
        temporary = self._spool / f".{self._files}.tmp"
        temporary.write_bytes(body)
        temporary.rename(self._spool / f"{self._files:09d}.json")


def campaign(seed: int, folder: Path, dsn: str | None, workers: int, kills: int, deadline: float) -> Told:
    told = Told(seed, "postgresql" if dsn else "sqlite", workers)
    rng = random.Random(seed)
    spool = folder / "spool"
    spool.mkdir(parents=True)
    config = folder / "kfm.yml"
    if dsn:
        os.environ[STORE] = dsn
    config.write_text(CONFIG.format(store=f"store: env:{STORE}" if dsn else ""))
    feed = Feed(spool, rng)
    _warm_up(folder / "elsewhere")
    _run(config, "once")  # the tables are there before anybody is killed
    alive: list[int] = []
    try:
        while told.kills < kills and time.monotonic() < deadline:
            if len(list(spool.iterdir())) < 60:
                feed.announce(12)
            while len(alive) < workers:
                alive.append(_forked(config))
            time.sleep(rng.uniform(*LIFE_S))
            victim = alive.pop(rng.randrange(len(alive)))
            os.kill(victim, signal.SIGKILL)
            os.waitpid(victim, 0)
            told.kills += 1
    finally:
        for pid in alive:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            told.kills += 1
    _settle(config, folder)
    told.objects, told.messages = len(feed.newest), feed._files
    told.problems += _check(config, feed, told)
    return told


def _warm_up(folder: Path) -> None:
    """Load all that a worker needs, so that those who are forked begin to work at once."""
    (folder / "spool").mkdir(parents=True)
    (folder / "kfm.yml").write_text(CONFIG.format(store=""))
    Feed(folder / "spool", random.Random(1)).announce(3)
    _work(folder / "kfm.yml", "until-idle")


def _forked(config: Path) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
            while os.getpid() % 2:  # half of them hear and work in one thread
                _work(config, "until-idle")
            _work(config, "until-stopped")
        code = 0
    finally:
        os._exit(code)


def _work(config: Path, mode: Any) -> None:
    with open_app(load(str(config))) as app:
        run_worker(app, WorkerOptions(mode=mode), threading.Event())


def _run(config: Path, mode: str) -> None:
    """In a process of its own: this one forks, so it must never have threads or open databases."""
    pid = os.fork()
    if not pid:
        code = 1
        try:
            _work(config, mode)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    if status:
        raise RuntimeError(f"a worker that was not killed ended with {status}")


def _settle(config: Path, folder: Path) -> None:
    """Until nothing waits; what was put off by a retry's delay is due now, as if that time had passed."""
    until = time.monotonic() + SETTLE_S
    while time.monotonic() < until:
        _run(config, "until-idle")
        pid = os.fork()
        if not pid:
            code = 2
            try:
                code = _hasten(config)
            finally:
                os._exit(code)
        _, status = os.waitpid(pid, 0)
        if os.waitstatus_to_exitcode(status) == 0 and not list((folder / "spool").glob("*.json")):
            return


def _hasten(config: Path) -> int:
    """0: nothing waits, and nothing is under way."""
    with open_app(load(str(config))) as app:
        database: Any = app.kernel.store.database  # type: ignore[attr-defined]
        open_units = _rows(database, "SELECT COUNT(*) FROM units WHERE status IN ('pending', 'in_progress')")
        _rows(database, "UPDATE units SET not_before_ms = 0 WHERE status = 'pending' RETURNING wal_id")
        return int(open_units[0][0] > 0)


def _rows(database: Any, sql: str) -> list[tuple[Any, ...]]:
    if hasattr(database, "execute"):
        return list(database.execute(sql))
    found: list[tuple[Any, ...]] = database._connection.execute(sql).fetchall()
    return found


# --- what has to hold ----------------------------------------------------------------


def _check(config: Path, feed: Feed, told: Told) -> list[str]:
    with open_app(load(str(config)), read_only=False) as app:
        database: Any = app.kernel.store.database  # type: ignore[attr-defined]
        told.lapsed = sum(
            member[3].get("error_code") == "LEASE_EXPIRED"
            for text in unit_pages.members(partial(_rows, database), "event = 'failed'")
            for member in json.loads(text)
        )
        return check_all(app, feed)


class Announced(Protocol):
    """What a feed has announced."""

    newest: dict[str, tuple[str, str]]
    sidecars: set[str]
    dead: int


def check_all(app: Any, feed: Announced) -> list[str]:
    """What is wrong, once everything has come to rest."""
    database: Any = app.kernel.store.database
    return [
        *_check_units(database, feed),
        *_check_items(database, feed),
        *_check_lineage(database),
        *_check_histories(app, database),
        *_check_counts(app, database),
    ]


def _check_units(database: Any, feed: Announced) -> list[str]:
    problems = []
    rows = _rows(
        database, "SELECT wal_id, status, etag, last_error_code, done_version, content_version FROM units"
    )
    objects = unit_pages.objects(partial(_rows, database))
    units = {objects[row[0]]: row for row in rows}
    if len(units) != len(rows):
        problems.append("an object has two units")
    for uri, (_, etag) in feed.newest.items():
        if uri not in units:
            problems.append(f"lost: {uri}")
        elif units[uri][1] != "succeeded":
            problems.append(f"{uri} is {units[uri][1]} ({units[uri][3]})")
        elif units[uri][2] != etag:
            problems.append(f"{uri} has the bytes {units[uri][2]}, not {etag}")
    ((dead,),) = _rows(database, "SELECT COUNT(*) FROM dead_messages")
    if dead != feed.dead:
        problems.append(f"{dead} dead messages of {feed.dead}")
    return problems


def _check_items(database: Any, feed: Announced) -> list[str]:
    problems = []
    seen: Counter[str] = Counter()
    for number, data in unit_pages.data_files(partial(_rows, database)):
        if data is None:
            problems.append(f"item {number} has no data")
            continue
        facts = json.loads(data)
        seen[facts["href"]] += 1
        if facts["etag"] != feed.newest.get(facts["href"], ("", ""))[1]:
            problems.append(f"a stale commit: {facts['href']} shows {facts['etag']}")
    beside: Counter[str] = Counter()
    for (text,) in _rows(database, "SELECT facts FROM assets"):
        facts = json.loads(text)
        beside[facts["href"]] += 1
        if facts["etag"] != feed.newest.get(facts["href"], ("", ""))[1]:
            problems.append(f"a stale sidecar: {facts['href']} shows {facts['etag']}")
    for uri in feed.newest:
        found = beside[uri] if uri in feed.sidecars else seen[uri]
        if found != 1:
            problems.append(f"{uri} is in the catalogue {found} times")
    return problems


def _check_lineage(database: Any) -> list[str]:
    """One success for each version of an object that was entered, and none for another."""
    edges: Counter[tuple[str, int]] = Counter()
    for body in unit_pages.bodies(partial(_rows, database), f"topic = '{TOPIC}'"):
        for ended in json.loads(body):
            if ended.get("error_code") is None:
                edges[ended["wal_id"], ended.get("content_version", 1)] += 1
    problems = [f"{edge} has {count} lineage edges" for edge, count in edges.items() if count != 1]
    done = {(row[0], row[1]) for row in _rows(database, "SELECT wal_id, done_version FROM units")}
    problems += [f"{edge} has no lineage edge" for edge in done if edge[1] and edges[edge] != 1]
    return problems


ALLOWED = {
    (None, "pending"),
    ("pending", "in_progress"),
    ("in_progress", "succeeded"),
    ("in_progress", "failed"),
    ("failed", "pending"),
    ("failed", "quarantined"),
    ("pending", "quarantined"),
    ("succeeded", "pending"),
    ("quarantined", "pending"),
}


def _check_histories(app: Any, database: Any) -> list[str]:
    problems = []
    units = app.kernel.store.units()
    for (wal_id,) in _rows(database, "SELECT wal_id FROM units"):
        before: str | None = None
        version = 0
        for move in units.history_of(wal_id):
            if move.status == before:
                continue  # something happened to it that is no transition
            if (before, move.status) not in ALLOWED or move.version <= version:
                problems.append(f"{wal_id}: {before} → {move.status} at version {move.version}")
            before, version = move.status, move.version
        if before != "succeeded":
            problems.append(f"{wal_id}: its history ends with {before}")
    return problems


def _check_counts(app: Any, database: Any) -> list[str]:
    counted = {
        key: amount
        for key, amount in app.kernel.store.units().unit_counts().items()
        if key[1] in ("pending", "in_progress", "succeeded", "failed", "quarantined") and amount
    }
    scanned = {
        (dataset, status): count
        for dataset, status, count in _rows(
            database, "SELECT dataset, status, COUNT(*) FROM units GROUP BY dataset, status"
        )
    }
    return [] if counted == scanned else [f"counters say {counted}, a scan {scanned}"]


def main() -> int:
    parser = argparse.ArgumentParser(prog="workers", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--dsn")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=600.0)
    options = parser.parse_args()
    deadline = time.monotonic() + options.seconds
    told = campaign(options.seed, options.folder, options.dsn, options.workers, options.kills, deadline)
    with closing(sys.stdout):
        json.dump(asdict(told), sys.stdout)
    return int(bool(told.problems))


if __name__ == "__main__":
    sys.exit(main())
