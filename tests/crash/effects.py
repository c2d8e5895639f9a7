"""Work that acts on the outside, killed around its effects, and asked for again by every starter there is.

A source with `idempotent: false`, one whose pipeline makes a `kfm.call(idempotent=False)`, and one that may
be repeated. Each effect is a line in a file beside the project, so it is counted from outside. Processes are
forked from one that has loaded everything, and kill themselves where it matters: `tests.crash.acting`. Then
others come: `kfm run`, webhooks, schedules, announced objects, retries, and now and then a person. What
waits is made due in between. In the end no work may have more effects than one, and one more for each time
that a person asked for it.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import random
import re
import signal
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import apsw

from kfm.model.times import rfc3339
from kfm.model.webhook_signatures import sign_kfm
from tests.crash import acting
from tests.crash.acting import Strike
from tests.crash.project import RIGHTS, Project, table
from tests.crash.senders import SECRET, Message, post

SOURCES = {"orders": "sent", "calls": "called", "copies": "sent"}  # → its pipeline's function
ACTING, CONTROL = ("orders", "calls"), "copies"
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
DAY_MS = 86_400_000
CHILD_S_MAX = 40.0
SERVE_S_MAX = 15.0
POLL_S = 0.004
SETTLES_MAX = 12
PERSONS = 0.07  # of all rounds, while there is a failed run
CODES = (0, 1, 3, 4, 5)  # how a command may end; anything else is a defect
_PORT = re.compile(r"serving http://127\.0\.0\.1:(\d+)/")

HOOK = 'webhook: {secrets: ["env:EFFECTS_SECRET"]}'

# What waits for a time, in which state; tables that a ledger does not have are left out.
WAITING = {
    "retry_states": "fate = 'retry'",
    "requests": "state = 'open'",
    "bursts": "state = 'open'",
    "units": "status = 'pending'",
}

Work = tuple[str, int, int]  # source, and the window


@dataclass
class Told:
    seed: int
    seconds: float = 0.0
    kills: int = 0
    inside: int = 0  # of these during an attempt
    failures: int = 0  # pipelines that raised after their effect
    starts: dict[str, int] = field(default_factory=dict)
    places: dict[str, int] = field(default_factory=dict)  # where they were killed
    works: int = 0
    effects: int = 0  # of sources that must not be repeated
    repeated: int = 0  # effects of the one that may, beyond the first of each work
    persons: int = 0
    by_persons: int = 0  # effects that persons repeated
    published: int = 0  # works that may be repeated
    waiting: int = 0  # works that wait for a person
    untouched: int = 0  # of these without any effect
    doubled: int = 0  # works with an effect too many
    doublers: dict[str, int] = field(default_factory=dict)  # which machines repeated one
    problems: list[str] = field(default_factory=list)


def configuration() -> str:
    lines = [
        "version: 1",
        "environment: effects",
        "serve: {runners: 2, late_seconds: 2}",
        "datasets:",
        *(f"  - {{id: {name}, title: {name}, domain: hydrology, rights: {RIGHTS}}}" for name in SOURCES),
        "publish:",
        "  - {kind: local, path: published}",
        "sources:",
        *(
            f"  - {{id: {name}, dataset: {name}, kind: files, folder: incoming, window: P1D"
            f", follows: [nexrad-l2], pipeline: 'pipeline.py:{function}', output_version: '1'"
            f", idempotent: {'false' if name == 'orders' else 'true'}, {HOOK}}}"
            for name, function in SOURCES.items()
        ),
        "ingest:",
        "  queues: [{name: feed, kind: folder, path: spool}]",
        "  coalesce_seconds: 0",
    ]
    return "\n".join(lines) + "\n"


def schedules() -> str:
    how = "every: PT3S, window: PT3S, missed: {run: last}"
    lines = [f"  - {{id: {name}, source: {name}, {how}}}" for name in SOURCES]
    return "\n".join(["version: 1", "schedules:", *lines]) + "\n"


class Start(NamedTuple):
    """One process: what it runs, and where it ends."""

    kind: str
    arguments: tuple[str, ...]
    strike: Strike | None = None
    work: Work | None = None  # what a webhook or a person asks for


class Child:
    """One forked process, from its start to its end."""

    def __init__(self, pid: int, number: int, start: Start, log: Path) -> None:
        self.pid = pid
        self.number = number
        self.start = start
        self.code: int | None = None
        self._log = log

    def has_ended(self) -> bool:
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code = os.waitstatus_to_exitcode(status)
        return self.code is not None

    def wait(self, seconds: float) -> bool:
        until = time.monotonic() + seconds
        while not self.has_ended():
            if time.monotonic() > until:
                return False
            time.sleep(POLL_S)
        return True

    def end(self) -> None:
        if not self.has_ended():
            os.kill(self.pid, signal.SIGKILL)
            self.wait(CHILD_S_MAX)

    @property
    def said(self) -> str:
        with suppress(OSError):
            return self._log.read_text(errors="replace")
        return ""

    def __str__(self) -> str:
        strike = self.start.strike
        hit = strike is not None and self.code == (-signal.SIGKILL if strike.how == "kill" else 1)
        return f"{self.start.kind} ({strike})" if hit else self.start.kind


class World:
    """One project, the processes that work in it, and what they have done."""

    def __init__(self, seed: int, folder: Path) -> None:
        self._rng = random.Random(f"effects {seed}")
        self._project = Project(folder / "project")
        self._counter = folder / "effects.jsonl"
        self._logs = folder / "logs"
        self._logs.mkdir(parents=True)
        self._children: list[Child] = []
        self._persons: Counter[Work] = Counter()
        self._days: list[int] = []
        self._messages = 0
        self.told = Told(seed)
        os.environ |= {"EFFECTS_SECRET": SECRET, "XDG_CACHE_HOME": str(folder / "cache")}
        self._write()

    def _write(self) -> None:
        project = self._project
        project.write("kfm.yml", configuration())
        project.write("cron.yml", schedules())
        project.write("pipeline.py", acting.PIPELINE)
        project.write("incoming/a.csv", table("a", 3))
        (project.folder / "spool").mkdir()

    # --- the course of it ----------------------------------------------------------------

    def bear(self, kills: int, deadline: float) -> Told:
        began = time.monotonic()
        self._load()
        try:
            while self.told.kills < kills and time.monotonic() < deadline:
                if self._rng.random() < 0.7:
                    self._hasten()
                self._round(self._drawn())
            self._settle()
            self._judge()
        finally:
            for child in self._children:
                child.end()
        self.told.seconds = round(time.monotonic() - began, 1)
        self.told.starts = dict(Counter(child.start.kind for child in self._children))
        return self.told

    def _load(self) -> None:
        """Load what the commands load, so that those who are forked begin at once; and make the ledger.

        A first process does the work and writes down what it had to load: this one has no threads, and no
        database open.
        """
        modules = self._logs / "modules"
        pid = os.fork()
        if not pid:
            code = 1
            try:
                self._enter(self._logs / "first", 0, None)
                for arguments in (
                    ("schedule", "run-due"),
                    ("run", "--window", _spec(self._day(0))),
                    ("worker", "--until-idle"),
                    ("retry", "--due"),
                    ("audit", "verify"),
                ):
                    _command(arguments)
                serving = ("uvicorn", "kfm.cli.serve", "kfm.web.server", "kfm.web.web_app")
                modules.write_text("\n".join([*sys.modules, *serving]))
                code = 0
            finally:
                os._exit(code)
        if os.waitpid(pid, 0)[1]:
            raise RuntimeError((self._logs / "first").read_text())
        for name in modules.read_text().split():
            if not name.startswith(("__", "kfm_pipeline_")):
                with suppress(ImportError):
                    importlib.import_module(name)
        assert threading.active_count() == 1, "what forks has no threads"

    def _round(self, starts: list[Start]) -> None:
        """Processes side by side, each until its end; a service ends when it has nothing to do."""
        began_ms = time.time_ns() // 1_000_000
        children = [self._forked(start) for start in starts]
        for child in children:
            if child.start.kind == "webhook":
                self._serve(child)
        for child in children:
            if not child.wait(CHILD_S_MAX):
                self.told.problems.append(f"{child} did not end: {child.said[-300:]}")
                child.end()
        killed = sum(self._was_killed(child) for child in children)
        if killed:
            self.told.kills += killed
            self.told.inside += min(killed, self._interrupted(began_ms))

    def _was_killed(self, child: Child) -> bool:
        told, strike = self.told, child.start.strike
        if strike is not None and child.code == -signal.SIGKILL:
            told.places[strike.place] = told.places.get(strike.place, 0) + 1
            return True
        if child.code not in CODES or "Traceback" in child.said:
            told.problems.append(f"{child} ended with {child.code}: {child.said.strip()[-400:]}")
        return False

    # --- who comes -----------------------------------------------------------------------

    def _drawn(self) -> list[Start]:
        """One machine or two, or a person, who comes alone: what was done before is known then."""
        failed = [work for source in ACTING for work in self._failed(source)]
        if failed and self._rng.random() < PERSONS:
            return [self._person(self._rng.choice(failed), self._strike())]
        kinds = ("run", "webhook", "schedule", "announced", "retry")
        drawn = self._rng.choices(kinds, (5, 3, 3, 3, 4), k=self._rng.choice((1, 1, 2)))
        return [self._start(kind, self._strike()) for kind in drawn]

    def _strike(self) -> Strike | None:
        rng = self._rng
        if rng.random() < 0.25:
            return None
        at = 1 if rng.random() < 0.8 else 2
        places = {
            Strike("start", rng.randint(1, 16)): 2,
            Strike("begun", rng.choice((0, 0, 1, 2)), at): 3,  # the intent of a call comes after it
            Strike("acting", 0, at): 2,
            Strike("acted", rng.choice((0, 0, 0, 1)), at): 5,
            Strike("ended", rng.randint(0, 8), at): 3,  # the promotion, and what follows it
            Strike("acted", 0, at, "raise"): 1,
        }
        return rng.choices(list(places), list(places.values()))[0]

    def _start(self, kind: str, strike: Strike | None = None) -> Start:
        rng = self._rng
        if kind == "run":
            return Start(kind, _run_arguments(self._some_work()), strike)
        if kind == "webhook":
            workers = () if rng.random() < 0.3 else ("--no-worker",)
            arguments = ("serve", "--port", "0", "--no-schedules", *workers)
            return Start(kind, arguments, strike, self._some_work())
        if kind == "schedule":
            return Start(kind, ("schedule", "run-due"), strike)
        if kind == "announced":
            self._announce(self._some_work()[1])
            return Start(kind, ("worker", rng.choice(("--once", "--until-idle"))), strike)
        return Start("retry", ("retry", "--due"), strike)

    def _person(self, work: Work, strike: Strike | None = None) -> Start:
        self.told.persons += 1
        if any(work == done for done, _ in self._lines()):  # else its effect is the first
            self._persons[work] += 1
        reasons = ("--rationale", "seen that nothing was sent", "--ticket", "T-1")
        now = ("--now",) if _has_now() else ()
        return Start("person", (*_run_arguments(work), *now, *reasons), strike, work)

    def _some_work(self) -> Work:
        """Mostly of a day that was asked for before."""
        day = self._rng.choice(self._days) if self._days and self._rng.random() < 0.7 else len(self._days) + 1
        start_ms, end_ms = self._day(day)
        return self._rng.choice(list(SOURCES)), start_ms, end_ms

    def _day(self, number: int) -> tuple[int, int]:
        if number and number not in self._days:
            self._days.append(number)
        start_ms = round((BEGIN + timedelta(days=number)).timestamp() * 1000)
        return start_ms, start_ms + DAY_MS

    def _announce(self, start_ms: int) -> None:
        """One more object of that day: all three sources follow it."""
        self._messages += 1
        number = self._messages
        at = datetime.fromtimestamp(start_ms / 1000, UTC) + timedelta(seconds=number)
        key = f"{at:%Y/%m/%d}/KTLX/KTLX{at:%Y%m%d_%H%M%S}_V06"
        said = {"key": key, "size": 1, "eTag": f"{number:032x}", "sequencer": f"{number:016X}"}
        record = {
            "eventVersion": "2.1",
            "eventSource": "aws:s3",
            "awsRegion": "us-east-1",
            "eventTime": "2026-01-03T01:00:00.000Z",
            "eventName": "ObjectCreated:Put",
            "s3": {"bucket": {"name": "unidata-nexrad-level2"}, "object": said},
        }
        spool = self._project.folder / "spool"
        temporary = spool / f".{number}.tmp"
        temporary.write_text(json.dumps({"Records": [record]}))
        temporary.rename(spool / f"{number:06d}.json")

    # --- processes -----------------------------------------------------------------------

    def _forked(self, start: Start) -> Child:
        number = len(self._children) + 1
        log = self._logs / f"{number:04d}"
        pid = os.fork()
        if not pid:
            code = 1
            try:
                self._enter(log, number, start.strike)
                code = _command(start.arguments)
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        self._children.append(Child(pid, number, start, log))
        return self._children[-1]

    def _enter(self, log: Path, number: int, strike: Strike | None) -> None:
        """In the child: its folder, its streams, what it is watched by."""
        os.chdir(self._project.folder)
        file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(file, 1)
        os.dup2(file, 2)
        acting.install(str(self._counter), number, strike)

    def _serve(self, child: Child) -> None:
        """Send a webhook, once there is a service, and end the service when nothing is due."""
        until = time.monotonic() + SERVE_S_MAX
        port: int | None = None
        while port is None and not child.has_ended() and time.monotonic() < until:
            found = _PORT.search(child.said)
            port = int(found[1]) if found else None
            time.sleep(POLL_S)
        if port is not None and child.start.work is not None:
            post(("127.0.0.1", port), self._message(child.number, child.start.work))
        while not child.has_ended() and time.monotonic() < until and self._is_due():
            time.sleep(POLL_S * 5)
        if not child.has_ended():
            os.kill(child.pid, signal.SIGTERM)

    def _message(self, number: int, work: Work) -> Message:
        source_id, *window = work
        document = {
            "source_id": source_id,
            "request_uuid": f"m-{self.told.seed}-{number}",
            "trigger": "webhook",
            "event_type": "file.changed",
            "sent_at": datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
            "metadata": {"window": _spec((window[0], window[1]))},
        }
        body = json.dumps(document).encode()
        headers = {"Content-Type": "application/json", "X-KFM-Signature": sign_kfm(SECRET.encode(), body)}
        return Message(str(document["request_uuid"]), source_id, (window[0], window[1]), body, headers)

    # --- the ledger ----------------------------------------------------------------------

    def _is_due(self) -> bool:
        now_ms = time.time_ns() // 1_000_000
        return bool(
            self._project.rows(
                "SELECT 1 FROM requests WHERE state = 'running' OR (state = 'open' AND not_before_ms <= ?)",
                now_ms,
            )
        )

    def _hasten(self) -> None:
        """Whatever waits for a time is due."""
        path = self._project.state / "kfm.db"
        with closing(apsw.Connection(str(path))) as connection:
            connection.set_busy_timeout(20_000)
            for name, condition in WAITING.items():
                if connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (name,)).fetchall():
                    connection.execute(
                        f"UPDATE {name} SET not_before_ms = 1 WHERE not_before_ms > 1 AND {condition}"
                    )

    def _unsettled(self) -> list[str]:
        """What has no end, and waits for no person."""
        found = [
            f"request {request_id} ({kind}) of {source} is {state}: {reason}"
            for request_id, kind, source, state, reason in self._project.rows(
                "SELECT q.request_id, q.kind, q.source_id, q.state, q.reason FROM requests q"
                " LEFT JOIN retry_states s ON s.run_id = q.run_id"
                " WHERE q.state = 'running' OR (q.state = 'open' AND COALESCE(s.fate, 'retry') = 'retry')"
            )
        ]
        found += [
            f"run {run_id} of {source} is {status}, {fate or 'not judged'}"
            for run_id, source, status, fate in self._project.rows(
                "SELECT r.run_id, r.source_id, r.status, s.fate FROM runs r"
                " LEFT JOIN retry_states s ON s.run_id = r.run_id AND s.attempt = r.attempts"
                " WHERE r.status = 'running'"
                " OR (r.status = 'failed' AND COALESCE(s.fate, 'retry') = 'retry')"
            )
        ]
        if self._project.rows("SELECT 1 FROM sqlite_master WHERE name = 'bursts'"):
            found += [
                f"burst {burst_id} of {source} is open"
                for burst_id, source in self._project.rows(
                    "SELECT burst_id, source_id FROM bursts WHERE state = 'open'"
                )
            ]
        return found

    def _interrupted(self, since_ms: int) -> int:
        """How many attempts that began since then have no end of their own."""
        ((count,),) = self._project.rows(
            "SELECT COUNT(*) FROM attempts WHERE node = '' AND started_at_ms >= ? AND (ending IS NULL"
            f" OR (ending <> 'complete' AND COALESCE(error_message, '') NOT LIKE '%{acting.FAILURE}%'))",
            since_ms,
        )
        return int(count)

    def _failed(self, source: str) -> list[Work]:
        return [
            (source, start_ms, end_ms)
            for start_ms, end_ms in self._project.rows(
                "SELECT window_start_ms, window_end_ms FROM runs WHERE source_id = ? AND status <> 'success'",
                source,
            )
        ]

    def _lines(self) -> Iterator[tuple[Work, int]]:
        """Each effect: of which work, by which process."""
        with suppress(FileNotFoundError):
            for line in self._counter.read_text().splitlines():
                said = json.loads(line)
                if said["child"]:  # of those that are killed
                    yield (said["source"], *said["window"]), said["child"]

    # --- the end -------------------------------------------------------------------------

    def _settle(self) -> None:
        """Nothing is killed any more: every starter comes, until nothing is left for them to do."""
        self._work_off()
        for day in self._days:
            self._round([Start("run", ("run", "--window", _spec(self._day(day))))])
        if self._unsettled():
            self._work_off()
        for work in self._failed(CONTROL):  # killed as often as its budget allows: a person goes on
            self._round([self._person(work)])

    def _work_off(self) -> None:
        for _ in range(SETTLES_MAX):
            self._hasten()
            for kind in ("announced", "schedule", "retry"):
                self._round([self._start(kind)])
            if not self._unsettled():
                break

    def _judge(self) -> None:
        told, effects, by = self.told, Counter[Work](), dict[Work, list[Child]]()
        for work, number in self._lines():
            effects[work] += 1
            by.setdefault(work, []).append(self._children[number - 1])
        told.works = len(effects)
        ((told.failures,),) = self._project.rows(
            f"SELECT COUNT(*) FROM attempts WHERE node = '' AND error_message LIKE '%{acting.FAILURE}%'"
        )
        told.repeated = sum(count - 1 for work, count in effects.items() if work[0] == CONTROL)
        doublers: Counter[str] = Counter()
        for work, count in sorted(effects.items()):
            if work[0] == CONTROL:
                continue
            told.effects += count
            told.by_persons += sum(child.start.kind == "person" for child in by[work][1:])
            if count > 1 + self._persons[work]:
                told.doubled += 1
                machines = Counter(child.start.kind for child in by[work][1:] if child.start.kind != "person")
                doublers.update(machines)
                told.problems.append(
                    f"{work[0]}, {_spec((work[1], work[2]))}: {count} effects and {self._persons[work]} "
                    f"persons: {' → '.join(map(str, by[work]))}"
                )
        told.doublers = dict(doublers)
        waiting = [work for source in ACTING for work in self._failed(source)]
        told.waiting, told.untouched = len(waiting), sum(not effects[work] for work in waiting)
        told.problems += self._unsettled()
        told.problems += [f"{CONTROL}, {_spec(work[1:])} is not published" for work in self._failed(CONTROL)]
        ((told.published,),) = self._project.rows(
            "SELECT COUNT(*) FROM runs WHERE source_id = ? AND status = 'success'", CONTROL
        )
        verified = self._forked(Start("audit verify", ("audit", "verify")))
        if not verified.wait(CHILD_S_MAX) or verified.code != 0:
            told.problems.append(f"audit verify ended with {verified.code}: {verified.said[-300:]}")


def _spec(window: tuple[int, int]) -> str:
    return f"{rfc3339(window[0])}/{rfc3339(window[1])}"


def _run_arguments(work: Work) -> tuple[str, ...]:
    return "run", "--source", work[0], "--window", _spec(work[1:])


def _has_now() -> bool:
    from kfm.cli.run import command

    return any("--now" in parameter.opts for parameter in command.params)


def _command(arguments: tuple[str, ...]) -> int:
    from kfm.cli import main

    try:
        main(list(arguments))
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="effects", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kills", type=int, default=25)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=300.0)
    options = parser.parse_args()
    told = World(options.seed, options.folder).bear(options.kills, time.monotonic() + options.seconds)
    with closing(sys.stdout):
        json.dump(asdict(told), sys.stdout)
    return int(bool(told.problems))


if __name__ == "__main__":
    sys.exit(main())
