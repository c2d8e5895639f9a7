"""Three `kfm serve` on one ledger, killed and stopped at any moment, while schedules fire and senders send.

Schedules have an instant each second, webhooks come as fast as they are answered, files change all the time.
What must hold in the end is read from the ledger alone: `tests.crash.serves_checks`.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.crash.fleet import Book
from tests.crash.project import RIGHTS, Project, environment, table
from tests.crash.senders import SECRET, Address, Senders
from tests.crash.served import CLAIM_MS
from tests.crash.serves_checks import Found, check

ROOT = Path(__file__).resolve().parents[2]
SERVES = 3
SCHEDULED = {  # schedule, and its source → overlap, missed
    "skip-all": "overlap: skip, missed: {run: all, within: PT1H, cap: 20}",
    "queue-last": "overlap: queue-one, missed: {run: last}",
    "cancel-none": "overlap: cancel-older, missed: {run: none}",
}
HOOKED = ("orders", "parcels", "returns")
PIPELINE = """\
import random, time

def slow(context):
    publish(context, random.choice((0.0, 0.4, 0.8, 1.6, 2.4)))

def quick(context):
    publish(context, random.uniform(0.0, 0.2))

def publish(context, seconds):
    for entry in context.inputs:
        context.publisher.write_file(f"{context.window.start_ms}/{entry.path}", entry.fetched)
        time.sleep(seconds / len(context.inputs))
"""
SERVE = ("tests.crash.served", "serve", "--port", "0")
STOPPED_S = (CLAIM_MS / 1000 + 0.5, CLAIM_MS / 1000 + 2.5)
LIFE_S = (0.2, 2.6)  # between two strokes
START_S = 10.0
CHANGE_S = 5.0
SENDERS = 3
PACE_S = 0.4
DRAIN_S_MAX = 300.0
BACKLOG_MAX = 60  # requests that wait; then senders pause, or a slow machine would drain for ever
LEFT_S_MAX = 60.0  # for a tidy end
_PORT = re.compile(r"serving http://127\.0\.0\.1:(\d+)/")


@dataclass
class Told:
    seed: int
    backend: str
    seconds: float = 0.0
    drained: float = 0.0  # of these until nothing was open
    kills: int = 0
    terminations: int = 0
    stops: int = 0
    cuts: int = 0  # connections to the server, all at once
    starts: int = 0
    messages: int = 0
    unanswered: int = 0  # answers that never came: the sender sent again
    refused: int = 0  # told to come back
    conflicts: int = 0  # told that it had been accepted
    found: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def configuration(dsn: str | None) -> str:
    names = [*SCHEDULED, *HOOKED]
    hook = ', webhook: {secrets: ["env:SERVES_SECRET"]}'
    lines = [
        "version: 1",
        "environment: serves",
        *(["store: env:SERVES_STORE"] if dsn else []),
        "lease: {seconds: 2}",
        "serve: {runners: 2, late_seconds: 4}",
        "datasets:",
        *(f"  - {{id: {name}, title: {name}, domain: hydrology, rights: {RIGHTS}}}" for name in names),
        "publish:",
        "  - {kind: local, path: published}",
        "sources:",
        *(
            f"  - {{id: {name}, dataset: {name}, kind: files, folder: incoming, window: PT1S"
            f", pipeline: 'pipeline.py:{'quick' if name in HOOKED else 'slow'}', output_version: '1'"
            f"{hook if name in HOOKED else ''}}}"
            for name in names
        ),
    ]
    return "\n".join(lines) + "\n"


def schedules() -> str:
    lines = [f"  - {{id: {name}, source: {name}, every: PT1S, {how}}}" for name, how in SCHEDULED.items()]
    return "\n".join(["version: 1", "schedules:", *lines]) + "\n"


class Served:
    """One process, from its start to its end."""

    def __init__(self, project: Project, *arguments: str, command: Sequence[str] = SERVE) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", *command, *arguments],
            cwd=project.folder,
            env=environment(**project.env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.port: int | None = None
        self.lines: deque[str] = deque(maxlen=400)
        self._ended = threading.Event()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.lines.append(line.rstrip())
            if self.port is None and (found := _PORT.search(line)):
                self.port = int(found[1])
        self._ended.set()

    @property
    def is_up(self) -> bool:
        return self.port is not None and self._process.poll() is None

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def wait(self, seconds: float) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            code = self._process.wait(seconds)
            self._ended.wait(5)
            return code
        return None

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._ended.wait(5)

    def said(self, words: str) -> bool:
        return any(words in line for line in self.lines)

    @property
    def complaints(self) -> list[str]:
        """Whatever looks like a defect of ours."""
        return [
            line for line in self.lines if "Traceback" in line or re.search(r"\b\w+(Error|Exception): ", line)
        ]


class Campaign:
    def __init__(self, seed: int, folder: Path, dsn: str | None) -> None:
        self._rng = random.Random(f"serves {seed}")
        self._dsn = dsn
        self._project = Project(folder)
        self._project.env |= {
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")]),
            "SERVES_SECRET": SECRET,
            **({"SERVES_STORE": dsn} if dsn else {}),
        }
        self._project.write("kfm.yml", configuration(dsn))
        self._project.write("cron.yml", schedules())
        self._project.write("pipeline.py", PIPELINE)
        self._change(0)
        self._book = Book(self._project, dsn)
        self._serves: list[Served] = []
        self._leaving: list[Served] = []
        self._stopped: dict[int, float] = {}  # which place is stopped, until when
        self._over = threading.Event()
        self._crowded = False
        self._cursors: dict[str, tuple[int, int]] = {}
        self.told = Told(seed, "postgresql" if dsn else "sqlite")

    def _change(self, number: int) -> None:
        """Upstream has something new; what a process may be reading stays."""
        folder = self._project.folder
        self._project.write("next.csv", table(f"t{number}", 3 + number % 5))
        (folder / "incoming").mkdir(exist_ok=True)
        (folder / "next.csv").rename(folder / f"incoming/t{number}.csv")

    # --- the course of it ----------------------------------------------------------------

    def run(self, seconds: float) -> Told:
        began = time.monotonic()
        senders = Senders(
            self._addresses, HOOKED, self.told.seed, pace_seconds=PACE_S, crowded=lambda: self._crowded
        )
        try:
            self._serves = [self._start() for _ in range(SERVES)]
            self._until(lambda: all(one.is_up for one in self._serves), 60, "three services are up")
            watchers = [threading.Thread(target=work, daemon=True) for work in (self._changes, self._watch)]
            for watcher in watchers:
                watcher.start()
            senders.start(SENDERS)
            while time.monotonic() - began < seconds:
                time.sleep(self._rng.uniform(*LIFE_S))
                self._wait_for_two()
                self._stroke()
            self._end(senders)
            self._over.set()
            for watcher in watchers:
                watcher.join(10)
        finally:
            self._over.set()
            for one in (*self._serves, *self._leaving):
                one.kill()
        self.told.seconds = round(time.monotonic() - began, 1)
        self._count(senders)
        return self.told

    def _start(self, *arguments: str) -> Served:
        self.told.starts += 1
        return Served(self._project, *arguments)

    def _addresses(self) -> list[Address]:
        return [("127.0.0.1", one.port) for one in self._serves if one.is_up and one.port is not None]

    def _stroke(self) -> None:
        for place, until in list(self._stopped.items()):
            if time.monotonic() >= until:
                self._go_on(place)
        up = [place for place, one in enumerate(self._serves) if one.is_up]
        # Mostly one that works; now and then one that is just beginning.
        place = self._rng.choice(up if up and self._rng.random() < 0.9 else range(SERVES))
        one = self._serves[place]
        if self._dsn and self._rng.random() < 0.05:
            self.told.cuts += 1
            _cut(self._dsn)
            return
        kind = self._rng.choices(("kill", "stop", "terminate"), (6, 2, 1))[0] if one.is_up else "kill"
        if kind == "stop" and place not in self._stopped and len(self._stopped) < SERVES - 1 and one.is_up:
            self.told.stops += 1
            one.signal(signal.SIGSTOP)
            self._stopped[place] = time.monotonic() + self._rng.uniform(*STOPPED_S)
        elif kind == "terminate" and one.is_up and place not in self._stopped:
            self.told.terminations += 1
            one.signal(signal.SIGTERM)
            threading.Thread(target=self._see_off, args=(one,), daemon=True).start()
            self._leaving.append(one)
            self._serves[place] = self._start()
        elif kind == "kill":
            self.told.kills += 1
            self._stopped.pop(place, None)
            self._lose(one)
            self._serves[place] = self._start()

    def _wait_for_two(self) -> None:
        """On a machine that is busy a start takes its time; those who work are to be killed, too."""
        until = time.monotonic() + START_S
        while len(self._addresses()) < 2 and time.monotonic() < until:
            time.sleep(0.05)

    def _go_on(self, place: int) -> None:
        del self._stopped[place]
        self._serves[place].signal(signal.SIGCONT)

    def _lose(self, one: Served) -> None:
        one.kill()
        self._hear(one)

    def _hear(self, one: Served) -> None:
        for line in one.complaints[:3]:
            self.told.problems.append(f"a service said: {line[:300]}")

    def _see_off(self, one: Served) -> None:
        """A service that is asked to end, ends: in time, and saying so."""
        code = one.wait(LEFT_S_MAX)
        if code != 0:
            last = " / ".join(list(one.lines)[-5:])
            self.told.problems.append(f"a service that was asked to end ended with {code}: {last}")
        self._hear(one)

    def _end(self, senders: Senders) -> None:
        """Everybody goes on; what was sent is answered; what was accepted comes to its end."""
        for place in list(self._stopped):
            self._go_on(place)
        self._until(lambda: any(one.is_up for one in self._serves), 60, "a service is up")
        senders.finish(90)
        began = time.monotonic()
        ended_ms = self._book.now_ms()
        self._until(
            lambda: all(cursor > ended_ms for cursor, _ in self._cursors.values()), 60, "schedules go on"
        )
        for one in self._serves:
            self._lose(one)
            self.told.kills += 1
        self._serves = [self._start("--no-schedules") for _ in range(SERVES)]
        self._until(
            lambda: all(one.is_up for one in self._serves) and not self._open(),
            DRAIN_S_MAX,
            "nothing is open",
        )
        self.told.drained = round(time.monotonic() - began, 1)
        for last in self._serves:
            last.signal(signal.SIGTERM)
        for last in self._serves:
            self._see_off(last)
        for one in self._leaving:
            one.wait(LEFT_S_MAX)

    def _open(self) -> int:
        """What has no end yet; what waits for its next attempt is due now, as if that time had passed."""
        self._book.hasten()
        unsettled = "state IN ('open', 'running', 'awaiting-approval')"
        ((requests, runs),) = self._book.rows(
            f"SELECT (SELECT COUNT(*) FROM requests WHERE {unsettled}), (SELECT COUNT(*) FROM runs r JOIN "
            "retry_states s ON s.run_id = r.run_id WHERE r.status = 'failed' AND s.fate = 'retry')"
        )
        return int(requests + runs)

    def _until(self, done: Any, seconds: float, what: str) -> None:
        until = time.monotonic() + seconds
        while not done():
            if time.monotonic() > until:
                self.told.problems.append(f"not within {seconds:.0f} s: {what}")
                return
            time.sleep(0.2)

    # --- beside it -------------------------------------------------------------------------

    def _changes(self) -> None:
        number = 0
        while not self._over.wait(CHANGE_S):
            number += 1
            self._change(number)

    def _watch(self) -> None:
        """Cursors only move on."""
        while not self._over.wait(0.5):
            with suppress(Exception):  # a server whose connections were cut
                ((waiting,),) = self._book.rows("SELECT COUNT(*) FROM requests WHERE state = 'open'")
                self._crowded = waiting > BACKLOG_MAX
                for name, cursor, version in self._book.rows(
                    "SELECT schedule_id, cursor_ms, version FROM schedules"
                ):
                    seen = self._cursors.get(name, (0, 0))
                    if (cursor, version) < seen or cursor < seen[0] or version < seen[1]:
                        self.told.problems.append(f"{name} went back from {seen} to {(cursor, version)}")
                    self._cursors[name] = (cursor, version)

    def _count(self, senders: Senders) -> None:
        told, messages = self.told, senders.messages
        told.messages = len(messages)
        told.unanswered = sum(message.unanswered for message in messages)
        statuses = Counter(status for message in messages for status, _ in message.answers)
        told.refused = sum(count for status, count in statuses.items() if status >= 500)
        told.conflicts = statuses[409]
        found = Found()
        told.problems += check(self._project, self._book, messages, found)
        told.found = asdict(found)


def _cut(dsn: str) -> None:
    """As if the server had been restarted: every connection is gone."""
    import psycopg

    with psycopg.connect(dsn, autocommit=True) as server:
        server.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


def main() -> int:
    parser = argparse.ArgumentParser(prog="serves", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--dsn")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=300.0)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    told = Campaign(options.seed, options.folder, options.dsn).run(options.seconds)
    with closing(sys.stdout):
        json.dump(asdict(told), sys.stdout)
    return int(bool(told.problems))


if __name__ == "__main__":
    sys.exit(main())
