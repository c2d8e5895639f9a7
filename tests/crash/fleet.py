"""Two processes that retry the same failed runs, one provider that is down, and kills at any operation.

What has to hold is counted from outside: by the provider, which sees every request, and in the rows.
Time passes by making the rows older, so that no process waits and nothing depends on how fast the machine is.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kfm.model.breaker import COOLDOWN_MS, FAILURES_MAX, PROBE_LEASE_MS
from kfm.model.retry import policy_for
from tests.crash.project import RIGHTS, WINDOW, Project, finish, table
from tests.crash.upstream import Upstream, serving

ROOT = Path(__file__).resolve().parents[2]
MINUTE_MS = 60_000
EARLY_MS = 45_000
ROUNDS = 14
RECOVERY_ROUNDS_MAX = 16
ATTEMPTS_MAX = policy_for("manual").attempts_max
TICKS_FIRST = 700  # until one was counted
FAILING = 'def publish(context):\n    raise TimeoutError("no answer")\n'
CONFIG = f"""\
version: 1
environment: fleet
lease: {{seconds: 30}}
{{store}}
datasets:
  - {{id: notes, title: Notes, domain: hydrology, rights: {RIGHTS}}}
  - {{id: gauges, title: Gauges, domain: hydrology, rights: {RIGHTS}}}
  - {{id: wells, title: Wells, domain: hydrology, rights: {RIGHTS}}}
publish:
  - {{kind: local, path: published}}
sources:
  - {{id: notes, dataset: notes, kind: files, folder: incoming, pipeline: "pipeline.py:publish",
      output_version: "1"}}
  - {{id: gauges, dataset: gauges, kind: http, url: "{{url}}/gauges.csv", provider: river}}
  - {{id: wells, dataset: wells, kind: http, url: "{{url}}/wells.csv", provider: river}}
"""

# What grows older when time passes; what was recorded stays, and so does what is sealed.
AGES = {
    "retry_states": ("granted_at_ms", "not_before_ms", "updated_at_ms"),
    "requests": ("not_before_ms", "claim_until_ms", "tried_at_ms"),
    "breakers": ("opened_at_ms", "probe_until_ms", "tripped_at_ms", "closed_at_ms"),
    "runs": ("start_time_ms",),
    "locks": ("lease_until_ms",),
}


class Book:
    """The ledger's rows, on either database."""

    def __init__(self, project: Project, dsn: str | None) -> None:
        self._path, self._dsn = str(project.state / "kfm.db"), dsn

    @contextmanager
    def _open(self) -> Iterator[Callable[[str], Any]]:
        if self._dsn is None:
            import apsw

            connection = apsw.Connection(self._path)
            connection.set_busy_timeout(20_000)
            try:
                yield connection.execute
            finally:
                connection.close()
        else:
            import psycopg

            with psycopg.connect(self._dsn, autocommit=True) as server:
                yield server.execute

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        with self._open() as execute:
            return [tuple(row) for row in execute(sql).fetchall()]

    def age(self, span_ms: int) -> None:
        with self._open() as execute:
            for name, columns in AGES.items():
                execute(f"UPDATE {name} SET " + ", ".join(f"{one} = {one} - {span_ms}" for one in columns))

    def hasten(self) -> None:
        """Every attempt that waits is due."""
        with self._open() as execute:
            execute("UPDATE retry_states SET not_before_ms = 1 WHERE fate = 'retry' AND not_before_ms > 1")
            execute("UPDATE requests SET not_before_ms = 1 WHERE state = 'open' AND not_before_ms > 1")

    def now_ms(self) -> int:
        """By the clock that the processes go by; on one machine all clocks are the same."""
        return time.time_ns() // 1_000_000


@dataclass(frozen=True)
class Standing:
    """One run, as the rows tell it."""

    attempts: int
    counted: int  # without those that an open circuit refused
    status: str
    fate: str | None
    judged: int  # up to which attempt
    grant_attempts: int
    not_before_ms: int | None

    @property
    def is_waiting(self) -> bool:
        """Is it known when the next attempt is due? What a dead process left is judged by the next one."""
        return self.status == "failed" and self.fate == "retry" and self.judged == self.attempts

    @property
    def is_ahead(self) -> bool:
        """Is another attempt to come, or has no process decided about it yet?"""
        return self.status != "success" and (self.fate == "retry" or self.judged < self.attempts)


@dataclass
class Told:
    seed: int
    backend: str
    kills: int = 0
    probes: int = 0
    early: int = 0  # how often a run was seen not to be tried before its time
    requests: int = 0
    rounds: int = 0
    attempts: int = 0
    problems: list[str] = field(default_factory=list)


class Fleet:
    def __init__(self, seed: int, folder: Path, upstream: Upstream, dsn: str | None) -> None:
        self._rng = random.Random(f"fleet {seed}")
        self._upstream = upstream
        self._project = Project(folder)
        self._book = Book(self._project, dsn)
        self._ticks = TICKS_FIRST
        self._started = 0
        self.told = Told(seed, "postgresql" if dsn else "sqlite")
        store = "store: env:FLEET_STORE" if dsn else ""
        self._project.env |= {"PYTHONPATH": os.pathsep.join([str(ROOT), *_python_path()])}
        if dsn:
            self._project.env["FLEET_STORE"] = dsn
        self._project.write("kfm.yml", CONFIG.replace("{store}", store).replace("{url}", upstream.url))
        self._project.write("incoming/a.csv", table("a", 3))
        self._project.write("pipeline.py", FAILING)

    # --- a whole life --------------------------------------------------------------------

    def live(self, rounds: int = ROUNDS) -> Told:
        """Everything fails once; then two retry, round after round; at last all is well again."""
        self._upstream.bodies.clear()
        self._upstream.status = 503
        for source in ("gauges", "wells", "notes"):  # the first opens the circuit, the second probes in vain
            finish(self._start(0, "run", "--window", WINDOW, "--source", source)[0])
            self._book.age(COOLDOWN_MS + 1_000)
        assert [run.attempts for run in self._standing().values()] == [1, 1, 1]
        for number in range(rounds):
            if self.told.problems:
                break
            self._round(number, early=number % 3 == 2)
        if not self.told.problems:
            self._recovered()
        self.told.requests = len(self._upstream.asked)
        self.told.attempts = sum(run.attempts for run in self._standing().values())
        return self.told

    def _round(self, number: int, *, early: bool) -> None:
        """Two passes at a time at which all that waits is due; or, if early, a little before the first is."""
        breaker = self._breaker()
        left_ms = [(run.not_before_ms or 0) - self._book.now_ms() for run in self._waiting()]
        early = early and bool(left_ms)
        span_ms = min(left_ms) - EARLY_MS if early else max([MINUTE_MS, *left_ms]) + 1_000
        self._book.age(max(0, span_ms))
        before, asked = self._standing(), len(self._upstream.asked)
        self._both(kill=not early)
        self.told.rounds += 1
        calls, now_ms, after = len(self._upstream.asked) - asked, self._book.now_ms(), self._standing()
        problems = [f"{name}: {line}" for name in after for line in _lost(before[name], after[name])]
        for name, run in after.items():
            is_early = before[name].is_waiting and now_ms < (before[name].not_before_ms or 0)
            if is_early and run.attempts != before[name].attempts:
                problems.append(f"{name} was tried before its time")
            self.told.early += is_early
        if breaker != "closed":
            self.told.probes += calls
            problems += [f"{calls} requests while one may probe"] if calls > 1 else []
        elif calls > FAILURES_MAX + 1:  # those that open it, and one that is under way meanwhile
            problems.append(f"{calls} requests until the circuit was open")
        self.told.problems += [f"round {number}: {line}" for line in problems]

    def _both(self, *, kill: bool) -> None:
        """Two at the same time; mostly one of them is killed, sometimes both."""
        which = self._rng.choice(((True, False), (False, True), (True, True))) if kill else (False, False)
        started = []
        for struck in which:
            tick = 1 + int(self._rng.random() * self._ticks) if struck else 0
            started.append(self._start(tick, "retry", "--due", "--json"))
        for process, note in started:
            ended = finish(process)
            lines = note.read_text().splitlines() if note.exists() else []
            told = json.loads(lines[-1]) if lines else {}
            self.told.kills += ended.code == -9
            if "ticks" in told:
                self._ticks = max(200, told["ticks"])
            if ended.code not in (-9, 0, 1, 4) or (ended.code != -9 and '"waiting"' not in ended.out):
                self.told.problems.append(f"ended with {ended.code}: {ended.err.strip()[-300:]}")

    def _recovered(self) -> None:
        """The provider is well: whatever has budget left succeeds, and what is spent is not tried again."""
        self._upstream.status = 200
        self._upstream.bodies |= {"/gauges.csv": table("g", 5), "/wells.csv": table("w", 5)}
        before = self._standing()
        for _ in range(RECOVERY_ROUNDS_MAX):
            waiting = [run for run in self._standing().values() if run.is_ahead]
            if not waiting:
                break
            due = [run.not_before_ms or 0 for run in waiting]
            self._book.age(max([COOLDOWN_MS + PROBE_LEASE_MS, *(one - self._book.now_ms() for one in due)]))
            self._both(kill=False)
        after = self._standing()
        for name, run in after.items():
            self.told.problems += [f"{name}: {line}" for line in _lost(before[name], run)]
            if before[name].fate == "spent" and run != before[name]:
                self.told.problems.append(f"{name} was spent, and is {run}")
            if name != "notes" and before[name].is_ahead and run.status != "success" and run.fate != "spent":
                self.told.problems.append(f"{name} is left as {run}; {self._asked_for(name)}")

    # --- what is seen --------------------------------------------------------------------

    def _start(self, tick: int, *arguments: str) -> tuple[subprocess.Popen[str], Path]:
        self._started += 1
        note = self._project.folder / f"note-{self._started}"
        command = [sys.executable, "-m", "tests.crash.retrier", str(note), str(tick), *arguments]
        return self._project.start(command=command), note

    def _breaker(self) -> str:
        ((state,),) = self._book.rows("SELECT state FROM breakers WHERE provider = 'river'")
        return str(state)

    def _waiting(self) -> list[Standing]:
        return [run for run in self._standing().values() if run.is_waiting]

    def _asked_for(self, name: str) -> str:
        columns = "state, blocked_by, not_before_ms, claim_until_ms, tries"
        found = self._book.rows(f"SELECT {columns} FROM requests WHERE source_id = '{name}'")
        return f"now {self._book.now_ms()}, requests {found}"

    def _standing(self) -> dict[str, Standing]:
        found = self._book.rows(
            "SELECT r.source_id, r.attempts, r.status, s.fate, s.attempt, s.grant_attempts, s.not_before_ms,"
            " (SELECT COUNT(*) FROM attempts a WHERE a.run_id = r.run_id AND a.node = ''"
            "  AND (a.error_code IS NULL OR a.error_code <> 'KFM408'))"
            " FROM runs r LEFT JOIN retry_states s ON s.run_id = r.run_id ORDER BY r.source_id"
        )
        return {
            name: Standing(attempts, counted, status, fate, judged or 0, used or 0, not_before_ms)
            for name, attempts, status, fate, judged, used, not_before_ms, counted in found
        }


def _python_path() -> list[str]:
    return [one for one in os.environ.get("PYTHONPATH", "").split(os.pathsep) if one]


def _lost(before: Standing | None, after: Standing) -> list[str]:
    """What a restart or a kill must not give back."""
    problems = []
    if after.counted > ATTEMPTS_MAX:
        problems.append(f"{after.counted} attempts, {ATTEMPTS_MAX} were granted")
    if after.fate is not None and after.judged == after.attempts and after.grant_attempts != after.counted:
        problems.append(f"{after.counted} attempts were made, {after.grant_attempts} are on record")
    if before is not None and after.attempts < before.attempts:
        problems.append(f"{before.attempts} attempts became {after.attempts}")
    if before is not None and after.fate is not None and after.grant_attempts < before.grant_attempts:
        problems.append(f"the budget grew: {before.grant_attempts} used, now {after.grant_attempts}")
    if before is not None and before.fate == "spent" and after.attempts != before.attempts:
        problems.append("what was spent was tried again")
    return problems


def fleet(seed: int, folder: Path, dsn: str | None = None, rounds: int = ROUNDS) -> Told:
    with serving() as upstream:
        return Fleet(seed, folder, upstream, dsn).live(rounds)


def fleets(
    count: int, scratch: Path, seed: int, dsn: str | None, deadline: float, on_done: Callable[[Told], None]
) -> list[Told]:
    """One after the other, on both databases by turns; each is two processes already."""
    from tests.services import postgres_database

    told = []
    for number in range(count):
        if time.monotonic() > deadline:
            break
        folder = scratch / f"fleet-{number}"
        if number % 2 and dsn is not None:
            with postgres_database(dsn) as database:
                told.append(fleet(seed + number, folder / "project", database))
        else:
            told.append(fleet(seed + number, folder / "project"))
        on_done(told[-1])
        shutil.rmtree(folder, ignore_errors=True)
    return told
