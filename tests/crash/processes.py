"""Whole processes on one PostgreSQL ledger under load: services that answer webhooks, workers on a feed.

What must hold in the end is read from the ledger by the auditors of the other campaigns: every webhook that a
sender was told is accepted has one run, every announced object one unit and one place in the catalogue.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from unittest import mock

from kfm.db.postgres import PostgresDatabase
from kfm.db.queries import migrate
from tests.crash import serves_checks, workers
from tests.crash.fleet import Book
from tests.crash.project import RIGHTS, Project, table
from tests.crash.senders import SECRET, Senders
from tests.crash.serves import HOOKED, PIPELINE, ROOT, Served

STORE = "KFM_PROCESSES_STORE"
WAIT_S = 90.0
PACE_S = 0.5
BATCH = 8  # objects that are announced at once
SPOOLED_MAX = 20
CONFIG = f"""\
version: 1
environment: processes
store: env:{STORE}
lease: {{seconds: 2}}
serve: {{runners: 2, late_seconds: 4}}
lineage: {{export: file}}
ingest:
  queues: [{{name: feed, kind: folder, path: spool}}]
  batch: 8
  visibility_seconds: 20
  safety_seconds: 5
publish: [{{kind: local, path: published}}]
datasets:
"""


def _configuration() -> str:
    lines = [f"  - {{id: {name}, title: {name}, domain: hydrology, rights: {RIGHTS}}}\n" for name in HOOKED]
    lines += ["sources:\n"]
    lines += [
        f"  - {{id: {name}, dataset: {name}, kind: files, folder: incoming, window: PT1S, "
        "pipeline: 'pipeline.py:quick', output_version: '1', "
        'webhook: {secrets: ["env:SERVES_SECRET"]}}\n'
        for name in HOOKED
    ]
    return CONFIG + "".join(lines)


class Processes:
    """A project, the processes that were started in it, and the load."""

    def __init__(self, folder: Path, dsn: str, seed: int = 1) -> None:
        self.project = Project(folder)
        self.project.env |= {
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")]),
            "SERVES_SECRET": SECRET,
            STORE: dsn,
        }
        self.project.write("kfm.yml", _configuration())
        self.project.write("pipeline.py", PIPELINE)
        self.project.write("incoming/t.csv", table("t", 3))
        (folder / "spool").mkdir()
        self.book = Book(self.project, dsn)
        self.started: list[Served] = []
        self.feed = workers.Feed(folder / "spool", random.Random(seed))
        self._spool = folder / "spool"
        self._over = threading.Event()
        self._senders = Senders(self._ports, HOOKED, seed, pace_seconds=PACE_S, crowded=lambda: False)
        self._announcer = threading.Thread(target=self._announce, daemon=True)

    def service(self, source: Path | None = None) -> Served:
        """`kfm serve`, from this tree or from another."""
        return self._start(source, "tests.crash.served", "serve", "--port", "0", "--no-worker")

    def worker(self, source: Path | None = None) -> Served:
        return self._start(source, "kfm", "worker")

    def _start(self, source: Path | None, *command: str) -> Served:
        self.started.append(Served(self.of(source), command=command))
        return self.started[-1]

    def of(self, source: Path | None) -> Project:
        """The project, for the kfm of a source tree."""
        if source is None:
            return self.project
        other = Project(self.project.folder)
        other.env |= self.project.env | {"PYTHONPATH": os.pathsep.join([str(source), str(ROOT)])}
        return other

    def _ports(self) -> list[int]:
        return [one.port for one in self.started if one.is_up and one.port is not None]

    # --- load ------------------------------------------------------------------------------

    def load(self) -> None:
        """From now on senders send, and objects are announced."""
        self._senders.start(2)
        self._announcer.start()

    def _announce(self) -> None:
        while not self._over.wait(PACE_S):
            if len(list(self._spool.iterdir())) < SPOOLED_MAX:
                self.feed.announce(BATCH)

    def amounts(self) -> tuple[int, int]:
        """Units and requests that have come to their end."""
        ((units, requests),) = self.book.rows(
            "SELECT (SELECT COUNT(*) FROM units WHERE status = 'succeeded'), "
            "(SELECT COUNT(*) FROM requests WHERE state = 'done')"
        )
        return int(units), int(requests)

    def go_on(self, units: int = 20, requests: int = 3) -> None:
        """Wait until so much more has come to its end."""
        before = self.amounts()
        self.until(
            lambda: (now := self.amounts())[0] >= before[0] + units and now[1] >= before[1] + requests,
            f"work goes on from {before}",
        )

    def finish(self) -> None:
        """No more load; what there is comes to its end, and every process is asked to end."""
        self._over.set()
        self._announcer.join(WAIT_S)
        self._senders.finish(WAIT_S)
        self.until(self._is_done, "everything has come to its end")
        for one in self.started:
            if one.wait(0) is None:
                one.signal(signal.SIGTERM)
        for one in self.started:
            one.wait(WAIT_S)

    def _is_done(self) -> bool:
        self.book.hasten()
        self.book.rows("UPDATE units SET not_before_ms = 0 WHERE status = 'pending' RETURNING wal_id")
        ((units, requests),) = self.book.rows(
            "SELECT (SELECT COUNT(*) FROM units WHERE status IN ('pending', 'in_progress')), "
            "(SELECT COUNT(*) FROM requests WHERE state IN ('open', 'running'))"
        )
        return not units and not requests and not list(self._spool.glob("*.json"))

    def problems(self) -> list[str]:
        """What the ledger contradicts of what was promised."""
        told, found = workers.Told(0, "postgresql", 0), serves_checks.Found()
        with mock.patch.dict(os.environ, self.project.env):
            config = self.project.folder / "kfm.yml"
            audited = serves_checks.check(self.project, self.book, self._senders.messages, found)
            defects = [line for one in self.started for line in one.complaints]
            return [*workers._check(config, self.feed, told), *audited, *defects]

    def until(self, is_so: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + WAIT_S
        while not is_so():
            last = [list(one.lines)[-3:] for one in self.started]
            assert time.monotonic() < deadline, f"{what}: {last}"
            time.sleep(0.05)

    def close(self) -> None:
        self._over.set()
        self._senders.finish(0)
        for one in self.started:
            one.kill()


@contextmanager
def processes(folder: Path, dsn: str, seed: int = 1) -> Iterator[Processes]:
    """A ledger that is there, without anything at work yet."""
    made = Processes(folder, dsn, seed)
    try:
        with closing(PostgresDatabase(dsn)) as database:
            migrate(database, "postgresql", 1)
        yield made
    finally:
        made.close()


def next_version(folder: Path, migrations: dict[str, str]) -> Path:
    """The source of a kfm that has these migrations, too: this one, with more files."""
    source = folder / "src"
    shutil.copytree(ROOT / "src", source, symlinks=True)  # with what Python has compiled
    for name, text in migrations.items():
        (source / "kfm" / "contracts" / "sql" / "migrations" / name).write_text(text)
    return source
