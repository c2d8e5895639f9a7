"""Whole processes on one PostgreSQL ledger under load: services that answer webhooks, workers on a feed.

What must hold in the end is read from the ledger by the auditors of the other campaigns: every webhook that a
sender was told is accepted has one run, every announced object one unit and one place in the catalogue.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from unittest import mock

import psycopg

from kfm.db.postgres import PostgresDatabase
from kfm.db.queries import migrate, migration_files, newest
from tests import services
from tests.crash import serves_checks, workers
from tests.crash.fleet import Book
from tests.crash.project import RIGHTS, Project, table
from tests.crash.senders import SECRET, Address, Senders
from tests.crash.serves import HOOKED, PIPELINE, ROOT, Served
from tests.integration.db.test_failover import Pair, kill_server, wait_for_standby

STORE = "KFM_PROCESSES_STORE"
WAIT_S = 90.0
UNITS = 20  # that are worked off between two events
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
  visibility_seconds: 4
  safety_seconds: 1
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
        self._senders = Senders(self._addresses, HOOKED, seed, pace_seconds=PACE_S, crowded=lambda: False)
        self._announcer = threading.Thread(target=self._announce, daemon=True)

    def service(self, source: Path | None = None) -> Served:
        """`kfm serve`, from this tree or from another; it works units, too."""
        return self._start(source, "serve", "--port", "0")

    def worker(self, source: Path | None = None) -> Served:
        return self._start(source, "worker")

    def _start(self, source: Path | None, *command: str) -> Served:
        self.started.append(Served(self.of(source), command=("tests.crash.served", *command)))
        return self.started[-1]

    def of(self, source: Path | None) -> Project:
        """The project, for the kfm of a source tree."""
        if source is None:
            return self.project
        other = Project(self.project.folder)
        other.env |= self.project.env | {"PYTHONPATH": os.pathsep.join([str(source), str(ROOT)])}
        return other

    def _addresses(self) -> list[Address]:
        return [("127.0.0.1", one.port) for one in self.started if one.is_up and one.port is not None]

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

    def go_on(self, units: int, requests: int = 3) -> None:
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


# --- an old and a new version ----------------------------------------------------------

EXPAND, CONTRACT = newest() + 1, newest() + 2
FLOOR = max(number for number, _, text in migration_files() if not text.startswith("-- expand"))
# Processes that write units or requests afterwards are noted, by what their connections say of them.
MIGRATIONS = {
    f"{EXPAND:04}_more.sql": """\
-- expand: Adds a table, and a column that may be left out.
CREATE TABLE later_writers (name TEXT NOT NULL PRIMARY KEY);
ALTER TABLE units ADD COLUMN later TEXT;
""",
    f"{CONTRACT:04}_less.sql": """\
-- contract: Takes the column away, and notes who writes.
@sqlite ALTER TABLE units DROP COLUMN later;
@postgresql ALTER TABLE units DROP COLUMN later;
@postgresql CREATE FUNCTION note_writer() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
@postgresql   INSERT INTO later_writers VALUES (current_setting('application_name')) ON CONFLICT DO NOTHING;
@postgresql   RETURN NULL;
@postgresql END $$;
@postgresql CREATE TRIGGER units_noted AFTER INSERT OR UPDATE ON units EXECUTE FUNCTION note_writer();
@postgresql CREATE TRIGGER requests_noted AFTER INSERT OR UPDATE ON requests EXECUTE FUNCTION note_writer();
""",
}


def versions_together(folder: Path, dsn: str, seed: int = 1, units: int = UNITS) -> None:
    """The new one expands the ledger, both work; it contracts, and the old one ends by itself."""
    later = next_version(folder, MIGRATIONS)
    with processes(folder / "project", dsn, seed) as fleet:
        old = [fleet.service(), fleet.worker()]
        fleet.load()
        fleet.go_on(1, 1)
        new = fleet.service(later)
        fleet.until(lambda: new.is_up, "the new service answers")
        assert fleet.book.rows("SELECT level, floor FROM schema_level") == [(EXPAND, FLOOR)]
        fleet.go_on(units)
        fleet.until(lambda: all(one.said("goes on beside it") for one in old), "the old ones say so")
        assert [one.wait(0) for one in (*old, new)] == [None] * 3

        other = fleet.of(later)
        plan = other.kfm("migrate", "--plan", "--json").document
        assert [(one["version"], one["kind"]) for one in plan["migrations"]] == [(CONTRACT, "contract")]
        assert {(one["level"], one["can_go_on"]) for one in plan["processes"]} == {
            (newest(), False),
            (CONTRACT, True),
        }
        done = other.kfm("migrate", "--digest", plan["digest"], "--stop-older", "--rationale", "it is time")
        assert done.code == 0, done.err
        assert [one.wait(WAIT_S) for one in old] == [4, 4], [list(one.lines)[-5:] for one in old]
        assert all(one.said("KFM401") for one in old)
        fleet.go_on(units)
        fleet.finish()
        writers = {name for (name,) in fleet.book.rows("SELECT name FROM later_writers")}
        assert writers
        assert all(f"(level {CONTRACT})" in name for name in writers - {""}), writers
        # The auditors are of the old version, and write nothing.
        fleet.book.rows(f"UPDATE schema_level SET floor = {newest()} RETURNING 1")
        assert fleet.problems() == []


# --- failover ----------------------------------------------------------------------------


def fail_over(folder: Path, seed: int = 1, units: int = UNITS) -> None:
    """The primary is killed, and its synchronous standby promoted."""
    with services.postgres() as primary, services.standby_of(primary) as (standby, promote):
        pair = Pair(primary, standby, promote)
        with psycopg.connect(primary, autocommit=True) as admin:
            admin.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            admin.execute("SELECT pg_reload_conf()")
            wait_for_standby(admin, "sync")
            (data,) = admin.execute("SHOW data_directory").fetchone() or ("",)
        with processes(folder / "project", pair.both, seed) as fleet:
            started = [fleet.service(), fleet.worker()]
            fleet.load()
            fleet.go_on(units)
            kill_server(data)
            promote()
            fleet.go_on(units)
            assert [one.wait(0) for one in started] == [None] * 2  # none was started again
            fleet.finish()
            assert [one.wait(0) for one in started] == [0] * 2
            assert fleet.problems() == []


def main() -> int:
    parser = argparse.ArgumentParser(prog="processes", description=__doc__)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--units", type=int, default=400, help="that are worked off between two events")
    asked = parser.parse_args()
    for seed in range(1, asked.rounds + 1):
        with tempfile.TemporaryDirectory(prefix="kfm-processes-") as name:
            began_s = time.monotonic()
            with services.postgres() as server:
                versions_together(Path(name, "versions"), server, seed, asked.units)
            between_s = time.monotonic()
            fail_over(Path(name, "failover"), seed, asked.units)
            sys.stdout.write(
                f"seed {seed}: two versions {between_s - began_s:.0f} s, "
                f"a failover {time.monotonic() - between_s:.0f} s\n"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
