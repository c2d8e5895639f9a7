"""Derived datasets, with processes killed between a change and what is made of it.

In each round one input changes: a day of readings, or the zones. The process that promotes it, and those that
look for changes and work them off, are killed at random commits. Then one is not killed, and the round is
judged: exactly the windows that read what has changed were made, each once, from what the inputs hold now.
Processes are forked from one that has loaded everything, as in `tests.crash.effects`.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

import apsw

from tests.crash import acting
from tests.crash.acting import Strike
from tests.crash.project import PERSON, RIGHTS, Project

DAYS = 6
KILLS_EACH = 3  # of one round, and of each of its parts: a run has no more attempts than six
TICKS_MAX = 24
ROUNDS_MAX = 20  # of processes that are not killed, until nothing is left to do
CHILD_S_MAX = 40.0
CODES = (0, 1, 3, 5)

CONFIG = f"""\
version: 1
environment: derived
ingest: {{coalesce_seconds: 0}}
datasets:
  - {{id: readings, rights: {RIGHTS}}}
  - {{id: zones, rights: {RIGHTS}}}
  - {{id: exposure, rights: {RIGHTS}}}
sources:
  - {{id: readings, dataset: readings, kind: files, folder: incoming, pattern: "{{window.start:date}}.csv"}}
  - {{id: zones, dataset: zones, kind: files, folder: shapes, window: none}}
  - id: exposure
    dataset: exposure
    kind: dataset
    datasets: {{readings: window, zones: current}}
    pipeline: "pipeline.py:table"
publish:
  - {{kind: local, path: published}}
"""
PIPELINE = '''\
"""One file of all that a window is made of."""


def table(context):
    day = context.window.start_ms // 86_400_000
    text = "\\n".join(each.read().decode() for each in context.inputs)
    context.publisher.write_file(f"{day}.txt", text.encode())
'''


@dataclass
class Told:
    seed: int
    seconds: float = 0.0
    kills: int = 0
    rounds: int = 0
    changes: int = 0
    rebuilt: int = 0
    inside: int = 0  # kills that interrupted a run
    problems: list[str] = field(default_factory=list)


class World:
    """One project, the processes that work in it, and what they have made."""

    def __init__(self, seed: int, folder: Path) -> None:
        self._rng = random.Random(f"derived {seed}")
        self._project = Project(folder / "project")
        self._log = folder / "log"
        self._counter = folder / "effects"
        self._day_texts = {day: f"day {day}, 0" for day in range(1, DAYS + 1)}
        self._zones = "zones 0"
        self._changes = 0
        self.told = Told(seed)
        os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
        self._project.write("kfm.yml", CONFIG)
        self._project.write("cron.yml", "version: 1\nschedules: []\n")
        self._project.write("pipeline.py", PIPELINE)

    def bear(self, kills: int, deadline: float) -> Told:
        began = time.monotonic()
        self._load()
        for day in self._day_texts:
            self._promote_day(day, 0)
        self._promote_zones(0)
        self._settle()
        self._judge(set(self._day_texts), Counter(), Counter())
        while self.told.kills < kills and time.monotonic() < deadline and not self.told.problems:
            self._round()
        self.told.seconds = round(time.monotonic() - began, 1)
        return self.told

    def _round(self) -> None:
        self.told.rounds += 1
        made, asked = self._made(), self._asked()
        if self._rng.random() < 0.2:
            affected = set(self._day_texts)
            self._changes += 1
            self._zones = f"zones {self._changes}"
            self._promote_zones(KILLS_EACH)
        else:
            day = self._rng.choice(list(self._day_texts))
            affected = {day}
            self._changes += 1
            self._day_texts[day] = f"day {day}, {self._changes}"
            self._promote_day(day, KILLS_EACH)
        self.told.changes += 1
        for _ in range(self._rng.randint(1, KILLS_EACH)):
            self._hasten()
            self._command(("schedule", "run-due"), self._strike())
        self._settle()
        self._judge(affected, made, asked)

    # --- what happens ------------------------------------------------------------------------

    def _promote_day(self, day: int, kills: int) -> None:
        self._project.write(f"incoming/2026-01-{day:02}.csv", self._day_texts[day])
        self._promote(("--source", "readings", "--window", f"2026-01-{day:02}/P1D"), "readings", kills)

    def _promote_zones(self, kills: int) -> None:
        self._project.write("shapes/zones.csv", self._zones)
        self._promote(("--source", "zones"), "zones", kills)

    def _promote(self, arguments: tuple[str, ...], dataset: str, kills: int) -> None:
        """Until it is promoted, whatever becomes of the processes that try."""
        before = self._sequence(dataset)
        for number in range(kills + ROUNDS_MAX):
            self._hasten()
            strike = self._strike() if number < kills else None
            self._command(("run", *arguments, *PERSON), strike)
            if self._sequence(dataset) > before:
                return
        self.told.problems.append(f"{dataset} was not promoted: {self._said()}")

    def _settle(self) -> None:
        """One process after the other, none killed, until nothing is left to do."""
        for _ in range(ROUNDS_MAX):
            self._hasten()
            self._command(("schedule", "run-due"), None)
            if not self._project.rows("SELECT 1 FROM requests WHERE state IN ('open', 'running')") and (
                not self._project.rows("SELECT 1 FROM burst_members")
            ):
                self._command(("project",), None)  # what was promoted by a process that was killed then
                return
        left = self._project.rows("SELECT source_id, state, reason FROM requests WHERE state <> 'done'")
        self.told.problems.append(f"not settled: {left}")

    def _strike(self) -> Strike | None:
        return Strike("start", self._rng.randint(1, TICKS_MAX)) if self._rng.random() < 0.8 else None

    # --- what is left ------------------------------------------------------------------------

    def _sequence(self, dataset: str) -> int:
        found = self._project.rows("SELECT MAX(sequence) FROM promotions WHERE dataset_id = ?", dataset)
        return int(found[0][0] or 0) if found else 0

    def _made(self) -> Counter[int]:
        """How often each window of the derived dataset was made: runs that succeeded, by day."""
        found = self._project.rows(
            "SELECT window_start_ms, COUNT(*) FROM runs WHERE source_id = 'exposure' AND status = 'success' "
            "GROUP BY window_start_ms"
        )
        return Counter({_day(start_ms): count for start_ms, count in found})

    def _asked(self) -> Counter[int]:
        """How often each window was asked for by a change."""
        found = self._project.rows(
            "SELECT window_start_ms, COUNT(*) FROM requests WHERE source_id = 'exposure' "
            "AND kind = 'upstream-event' AND details LIKE '%\"changes\"%' GROUP BY window_start_ms"
        )
        return Counter({_day(start_ms): count for start_ms, count in found})

    def _judge(self, affected: set[int], made_before: Counter[int], asked_before: Counter[int]) -> None:
        made, asked = self._made() - made_before, self._asked() - asked_before
        self.told.rebuilt += made.total()
        if made != Counter(affected):
            self.told.problems.append(f"affected were {sorted(affected)}, made were {dict(made)}")
        if asked != Counter(affected):
            self.told.problems.append(f"affected were {sorted(affected)}, asked for were {dict(asked)}")
        shown = {
            _day(int(path.stem) * 86_400_000): path.read_text()
            for path in (self._project.published / "exposure/current/data").glob("*.txt")
        }
        wanted = {day: f"{text}\n{self._zones}" for day, text in self._day_texts.items()}
        if shown != wanted:
            self.told.problems.append(f"shown is {shown}, wanted {wanted}")
        failed = self._project.rows("SELECT error_message FROM runs WHERE status = 'failed' LIMIT 3")
        if failed:
            self.told.problems.append(f"runs that stay failed: {failed}")

    def _hasten(self) -> None:
        """Whatever waits for a time is due."""
        path = self._project.state / "kfm.db"
        if not path.exists():
            return
        with closing(apsw.Connection(str(path))) as connection:
            connection.set_busy_timeout(20_000)
            connection.execute(
                "UPDATE requests SET not_before_ms = 1 WHERE not_before_ms > 1 AND state = 'open'"
            )
            connection.execute(
                "UPDATE retry_states SET not_before_ms = 1 WHERE not_before_ms > 1 AND fate = 'retry'"
            )

    # --- processes ---------------------------------------------------------------------------

    def _load(self) -> None:
        """Load what the commands load, so that those who are forked begin at once."""
        modules = self._log.with_name("modules")
        pid = os.fork()
        if not pid:
            code = 1
            try:
                self._enter(None)
                _main(("run", "--source", "zones"))
                _main(("schedule", "run-due"))
                modules.write_text("\n".join(sys.modules))
                code = 0
            finally:
                os._exit(code)
        if os.waitpid(pid, 0)[1]:
            raise RuntimeError(self._said())
        for name in modules.read_text().split():
            if not name.startswith(("__", "kfm_pipeline_")):
                with suppress(ImportError):
                    importlib.import_module(name)
        assert threading.active_count() == 1, "what forks has no threads"

    def _command(self, arguments: tuple[str, ...], strike: Strike | None) -> None:
        pid = os.fork()
        if not pid:
            code = 1
            try:
                self._enter(strike)
                code = _main(arguments)
            finally:
                os._exit(code)
        until = time.monotonic() + CHILD_S_MAX
        while True:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                break
            if time.monotonic() > until:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                self.told.problems.append(f"{arguments} did not end: {self._said()}")
                return
            time.sleep(0.004)
        code = os.waitstatus_to_exitcode(status)
        if strike is not None and code == -signal.SIGKILL:
            self.told.kills += 1
            self.told.inside += bool(self._project.rows("SELECT 1 FROM runs WHERE status = 'running'"))
        elif code not in CODES or "Traceback" in self._said():
            self.told.problems.append(f"{arguments} ended with {code}: {self._said()}")

    def _enter(self, strike: Strike | None) -> None:
        """In the child: its folder, its streams, what it is watched by."""
        os.chdir(self._project.folder)
        file = os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(file, 1)
        os.dup2(file, 2)
        acting.install(str(self._counter), 0, strike)

    def _said(self) -> str:
        with suppress(OSError):
            return self._log.read_text(errors="replace")[-600:]
        return ""


def _day(start_ms: int) -> int:
    return int(time.gmtime(start_ms / 1000).tm_mday)


def _main(arguments: tuple[str, ...]) -> int:
    from kfm.cli import main

    try:
        main(list(arguments))
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="derived", description=__doc__)
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
