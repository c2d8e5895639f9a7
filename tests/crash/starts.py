"""Services and workers that start, answer, and end when asked to: each as often as is said, none may die.

Each start is a process of its own in which nothing was decoded before. Work waits for it, and threads are
switched as often as can be, so that they do for the first time what they do, and do it at once.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.crash.project import RIGHTS, Project, table
from tests.crash.serves import Served
from tests.crash.workers import Feed

ROOT = Path(__file__).resolve().parents[2]
SERVE = ("tests.crash.started", "serve", "--port", "0")
WORKER = ("tests.crash.started", "worker")
SCHEDULED = ("levels", "rivers", "wells", "springs")
# Each of these decodes something else, in threads of the server.
PATHS = ("/readyz", "/", "/metrics", "/stac", "/api/v1/openapi.json", "/api/v1/status", "/api/v1/runs")
OBJECTS = 6
START_S_MAX = 60.0
END_S_MAX = 60.0
SAID_MAX = 5


@dataclass
class Told:
    serves: int = 0
    workers: int = 0
    answers: int = 0  # of services, before they were asked to end
    objects: int = 0  # announced to services and workers
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)


def configuration() -> str:
    lines = [
        "version: 1",
        "environment: starts",
        "serve: {runners: 4}",
        "ingest:",
        "  queues:",
        "    - {name: first, kind: folder, path: spool/first}",
        "    - {name: second, kind: folder, path: spool/second}",
        "datasets:",
        *(f"  - {{id: {name}, title: {name}, domain: hydrology, rights: {RIGHTS}}}" for name in SCHEDULED),
        "publish:",
        "  - {kind: local, path: published}",
        "sources:",
        *(
            f"  - {{id: {name}, dataset: {name}, kind: files, folder: incoming, window: PT1S, mode: replace}}"
            for name in SCHEDULED
        ),
    ]
    return "\n".join(lines) + "\n"


def schedules() -> str:
    lines = [f"  - {{id: {name}, source: {name}, every: PT1S}}" for name in SCHEDULED]
    return "\n".join(["version: 1", "schedules:", *lines]) + "\n"


class Starts:
    def __init__(self, seed: int, folder: Path) -> None:
        self.told = Told()
        self._project = Project(folder)
        self._project.env["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "src")])
        self._project.write("kfm.yml", configuration())
        self._project.write("cron.yml", schedules())
        self._project.write("incoming/levels.csv", table("levels", 3))
        self._spools = [folder / "spool/first", folder / "spool/second"]
        for spool in self._spools:
            spool.mkdir(parents=True)
        self._feeds = [Feed(spool, random.Random(f"starts {seed} {spool.name}")) for spool in self._spools]

    def run(self, serves: int, workers: int, seconds: float) -> Told:
        began = time.monotonic()
        for number in range(max(serves, workers)):
            if time.monotonic() - began > seconds:
                break
            if number < serves:
                self.told.serves += 1
                self._start(f"service {number + 1}", SERVE, self._answered)
            if number < workers:
                self.told.workers += 1
                self._start(f"worker {number + 1}", WORKER, self._taken_in)
        self.told.seconds = round(time.monotonic() - began, 1)
        self.told.objects = sum(len(feed.newest) for feed in self._feeds)
        return self.told

    def _start(self, name: str, command: tuple[str, ...], ready: Callable[[Served], bool]) -> None:
        for feed in self._feeds:
            feed.announce(OBJECTS // 2)
        one = Served(self._project, command=command)
        try:
            until = time.monotonic() + START_S_MAX
            while (code := one.wait(0.05)) is None and not ready(one) and time.monotonic() < until:
                pass
            if code is None and time.monotonic() >= until:
                self._blame(name, f"was not ready within {START_S_MAX:.0f} s", one)
            if code is None:
                one.signal(signal.SIGTERM)
                code = one.wait(END_S_MAX)
            if code != 0:
                self._blame(name, f"ended with {code}", one)
            elif one.complaints:
                self._blame(name, "said what looks like a defect", one)
        finally:
            one.kill()

    def _blame(self, name: str, what: str, one: Served) -> None:
        said = " / ".join((one.complaints or list(one.lines))[-SAID_MAX:])
        self.told.problems.append(f"{name} {what}: {said[:1000]}")

    def _answered(self, one: Served) -> bool:
        if not one.is_up:
            return False
        with ThreadPoolExecutor(len(PATHS)) as pool:
            statuses = list(pool.map(lambda path: _status(f"http://127.0.0.1:{one.port}{path}"), PATHS))
        if None in statuses or not one.is_up:
            return False  # it has died, or dies now: its end says how
        self.told.answers += len(statuses)
        wrong = [f"{path}: {status}" for path, status in zip(PATHS, statuses, strict=True) if status != 200]
        if wrong:
            self.told.problems.append(f"a service answered {', '.join(wrong)}")
        return True

    def _taken_in(self, _one: Served) -> bool:
        """A worker has no port: it is at work once it has taken in what was announced."""
        return not any(path for spool in self._spools for path in spool.glob("*.json"))


def _status(url: str) -> int | None:
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            answer.read()
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return None


def main() -> int:
    parser = argparse.ArgumentParser(prog="starts", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--serves", type=int, default=100)
    parser.add_argument("--workers", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1200.0, help="begin no other after this long")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    told = Starts(options.seed, options.folder).run(options.serves, options.workers, options.seconds)
    with closing(sys.stdout):
        json.dump(asdict(told), sys.stdout)
    return int(bool(told.problems))


if __name__ == "__main__":
    sys.exit(main())
