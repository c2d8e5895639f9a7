"""What goes on while hosts fail: objects are announced, and a person sets and lifts the kill switch."""

from __future__ import annotations

import gzip
import hashlib
import http.client
import json
import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg

from tests.hosts.machines import ANNOUNCED, TOKEN, Backend, Host
from tests.nodd_objects import grib2

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
TWICE = 0.1  # of all announcements: SNS delivers at least once
SWITCH_S_MAX = 2.0
HELD_S = (0.8, 2.0)
APART_S = (4.0, 12.0)


class Announcements:
    """Objects put into the bucket upstream, each announced by the topic until that is acknowledged."""

    def __init__(self, backend: Backend, seed: int, pace_s: float) -> None:
        self._backend = backend
        self._rng = random.Random(f"announcements {seed}")
        self._pace = pace_s
        self._over = threading.Event()
        self.newest: dict[str, tuple[str, str]] = {}  # as `tests.crash.workers.Feed` tells it
        self.sidecars: set[str] = set()
        self.dead = 0
        self.messages = 0
        self._thread = threading.Thread(target=self._go_on, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def finish(self, seconds: float) -> None:
        self._over.set()
        self._thread.join(seconds)

    def _go_on(self) -> None:
        s3, sns = self._backend.client("s3"), self._backend.client("sns")
        number = 0
        while not self._over.is_set():
            at = BEGIN + timedelta(seconds=2 * number)
            key = f"CONUS/PrecipRate_00.00/{at:%Y%m%d}/MRMS_PrecipRate_00.00_{at:%Y%m%d-%H%M%S}.grib2.gz"
            data = gzip.compress(grib2(f"{at:%Y-%m-%dT%H:%M:%S}"), mtime=0)
            etag, sequencer = hashlib.md5(data).hexdigest(), f"{number + 1:016X}"
            record = _record(key, len(data), etag, sequencer)
            until_done(lambda: s3.put_object(Bucket=ANNOUNCED, Key=key, Body=data))  # noqa: B023
            for _ in range(1 + (self._rng.random() < TWICE)):
                until_done(lambda: sns.publish(TopicArn=self._backend.topic, Message=record))  # noqa: B023
                self.messages += 1
            self.newest[f"s3://{ANNOUNCED}/{key}"] = (sequencer, etag)
            number += 1
            self._over.wait(self._rng.uniform(0, 2 * self._pace))


def _record(key: str, size: int, etag: str, sequencer: str) -> str:
    said = {
        "eventVersion": "2.1",
        "eventSource": "aws:s3",
        "awsRegion": "us-east-1",
        "eventTime": "2026-01-02T00:00:00.000Z",
        "eventName": "ObjectCreated:Put",
        "s3": {
            "bucket": {"name": ANNOUNCED},
            "object": {"key": key, "size": size, "eTag": etag, "sequencer": sequencer},
        },
    }
    return json.dumps({"Records": [said]})


def until_done(call: Callable[[], Any], seconds: float = 120) -> Any:
    """A client tries again as long as the network is broken."""
    from botocore.exceptions import BotoCoreError, ClientError

    until = time.monotonic() + seconds
    while True:
        try:
            return call()
        except (BotoCoreError, ClientError):
            if time.monotonic() > until:
                raise
            time.sleep(0.2)


@dataclass
class Throw:
    """One time that the switch was set."""

    position: str
    by: str  # which service
    seconds: float
    undisturbed: bool  # neither that service nor the backend was failing


@dataclass
class Standing:
    """What had begun at some moment."""

    attempts: set[tuple[str, int]]
    pending: set[str]
    done: set[str]


class Person:
    """Sets the kill switch for everything through any service that can be reached, and lifts it."""

    def __init__(
        self,
        dsn: str,
        seed: int,
        reachable: Callable[[], list[Host]],
        undisturbed: Callable[[str, float], bool],
    ) -> None:
        self._dsn = dsn
        self._rng = random.Random(f"person {seed}")
        self._reachable = reachable
        self._undisturbed = undisturbed
        self._over = threading.Event()
        self.throws: list[Throw] = []
        self.lifts: list[Throw] = []
        self.unanswered = 0
        self.looks = 0  # how often it was seen that nothing had begun
        self.problems: list[str] = []
        self._thread: threading.Thread | None = None

    def start(self, times: int) -> None:
        """So many times at once; 0: now and then, until the end."""
        self._thread = threading.Thread(target=self._go_on, args=(times,), daemon=True)
        self._thread.start()

    @property
    def is_at_it(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def finish(self, seconds: float) -> None:
        self._over.set()
        assert self._thread is not None
        self._thread.join(seconds)
        if self.is_at_it:
            self.problems.append("the switch could not be lifted")

    def _go_on(self, times: int) -> None:
        for _ in range(times):
            self._throw()
        while not times and not self._over.wait(self._rng.uniform(*APART_S)):
            self._throw()

    def _throw(self) -> None:
        position = self._rng.choice(("paused", "stopped"))
        self.throws.append(self._set(position))
        with suppress(psycopg.Error):  # the server is away: nothing can begin
            before = self._standing()
            self._over.wait(self._rng.uniform(*HELD_S))
            self._compare(position, before, self._standing())
        self.lifts.append(self._set("running"))

    def _set(self, position: str) -> Throw:
        until = time.monotonic() + 120
        while time.monotonic() < until:
            for host in sorted(self._reachable(), key=lambda _: self._rng.random())[:1]:
                began = time.monotonic()
                status = self._post(host, position)
                seconds = time.monotonic() - began
                if status == 200:
                    made = Throw(position, host.name, seconds, self._undisturbed(host.name, began))
                    if made.undisturbed and seconds > SWITCH_S_MAX:
                        self.problems.append(
                            f"{position} by {host.name} took {seconds:.1f} s, with nothing wrong there"
                        )
                    return made
                self.unanswered += 1
                if status is not None and status < 500:
                    self.problems.append(f"{host.name} refused the switch with {status}")
            time.sleep(0.1)
        self.problems.append(f"the switch could not be set to {position} within two minutes")
        return Throw(position, "", 0.0, undisturbed=False)

    def _post(self, host: Host, position: str) -> int | None:
        connection = http.client.HTTPConnection(*host.endpoint, timeout=40)
        body = json.dumps({"position": position, "rationale": "an exercise"})
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
        try:
            connection.request("POST", "/api/v1/switches/all", body, headers)
            response = connection.getresponse()
            response.read()
            return response.status
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()

    def _standing(self) -> Standing:
        with psycopg.connect(self._dsn, connect_timeout=3, autocommit=True) as server:
            attempts = server.execute("SELECT run_id, attempts FROM runs").fetchall()
            units = server.execute("SELECT wal_id, status FROM units").fetchall()
        return Standing(
            {(str(run_id), int(count)) for run_id, count in attempts},
            {str(wal_id) for wal_id, status in units if status == "pending"},
            {str(wal_id) for wal_id, status in units if status == "succeeded"},
        )

    def _compare(self, position: str, before: Standing, after: Standing) -> None:
        self.looks += 1
        for run_id, attempt in after.attempts - before.attempts:
            self.problems.append(f"attempt {attempt} at {run_id} began while everything was {position}")
        for wal_id in before.pending & after.done:
            self.problems.append(f"unit {wal_id} was begun and done while everything was {position}")


@dataclass
class Disturbances:
    """Which hosts are failing, and since or until when."""

    _now: dict[str, int] = field(default_factory=dict)
    _last: dict[str, float] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, name: str) -> None:
        with self._lock:
            self._now[name] = self._now.get(name, 0) + 1
            self._last[name] = time.monotonic()

    def end(self, name: str) -> None:
        with self._lock:
            self._now[name] -= 1
            self._last[name] = time.monotonic()

    def now(self, name: str) -> bool:
        with self._lock:
            return self._now.get(name, 0) > 0

    def none_since(self, name: str, since: float) -> bool:
        with self._lock:
            return self._now.get(name, 0) == 0 and self._last.get(name, 0.0) < since
