"""What ingest is measured against: the bare databases, and DBOS.

Each reference has `units_per_second(n, batch)`: n units go through the same three durable points
(taken in, claimed, succeeded), `batch` of them a commit. Rows are made before the clock starts, so
that the floor is the database and nothing else. A reference keeps its database from round to
round, as ours does.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

import apsw

from kfm.db.sqlite import CHECKPOINT_PAGES

ROOT = Path(__file__).resolve().parents[1]

# The twenty-eight: a unit's record, its lease and when it is due.
COLUMNS = {
    "wal_id": "TEXT NOT NULL PRIMARY KEY",
    "dataset": "TEXT NOT NULL",
    "object_uri": "TEXT NOT NULL",
    "provider": "TEXT NOT NULL",
    "queue": "TEXT NOT NULL",
    "event_time_ms": "BIGINT",
    "time_range_start_ms": "BIGINT",
    "time_range_end_ms": "BIGINT",
    "status": "TEXT NOT NULL",
    "attempts": "BIGINT NOT NULL",
    "last_attempt_at_ms": "BIGINT",
    "last_error_code": "TEXT",
    "last_error_message": "TEXT",
    "integrity_status": "TEXT NOT NULL",
    "metadata_status": "TEXT NOT NULL",
    "stac_status": "TEXT NOT NULL",
    "provenance_status": "TEXT NOT NULL",
    "stac_item_id": "TEXT",
    "stac_collection_id": "TEXT",
    "stac_item_href": "TEXT",
    "ingest_run_id": "TEXT",
    "worker_id": "TEXT",
    "replay_reason": "TEXT",
    "created_at_ms": "BIGINT NOT NULL",
    "updated_at_ms": "BIGINT NOT NULL",
    "version": "BIGINT NOT NULL",
    "lease_until_ms": "BIGINT NOT NULL",
    "not_before_ms": "BIGINT NOT NULL",
}
assert len(COLUMNS) == 28

SCHEMA = (
    f"CREATE TABLE units ({', '.join(f'{name} {kind}' for name, kind in COLUMNS.items())})",
    "CREATE INDEX units_due ON units (dataset, provider, not_before_ms) WHERE status = 'pending'",
)

DATASET = "goes-abi"
BUCKET = "noaa-goes19"
WORKER = "worker-6f1c2a9e"
RUN = "0198c2c4-5f1e-7a41-9d0b-2f6c1f3f9a10"
LEASE_MS = 120_000
START_MS = 1_772_323_200_000  # 2026-03-01
CHANNELS = 16  # of one image, announced together
IMAGE_MS = 300  # from one image to the next: about four million objects a day
EPOCH_SHIFT_MS = 62_135_596_800_000  # from 0001-01-01 to 1970-01-01

Row = tuple[Any, ...]
Journal = Literal["write-ahead", "as-shipped"]


def start_of(number: int) -> int:
    return START_MS + number // CHANNELS * IMAGE_MS


def _stamp(at_ms: int) -> str:
    return time.strftime("%Y%j%H%M%S", time.gmtime(at_ms // 1000)) + str(at_ms % 1000 // 100)


def object_key(number: int) -> str:
    start_ms = start_of(number)
    start, end, made = (_stamp(at_ms) for at_ms in (start_ms, start_ms + 9_500, start_ms + 12_300))
    folder = f"ABI-L1b-RadC/{start[:4]}/{start[4:7]}/{start[7:9]}"
    return f"{folder}/OR_ABI-L1b-RadC-M6C{number % CHANNELS + 1:02}_G19_s{start}_e{end}_c{made}.nc"


def unit_row(number: int) -> Row:
    """A unit as it is taken in, every column given; ids in the order of time, as a feed's are."""
    start_ms = start_of(number)
    heard_ms = start_ms + 15_000
    uri = f"s3://{BUCKET}/{object_key(number)}"
    wal_id = f"{start_ms + EPOCH_SHIFT_MS:013x}-{sha256(f'{DATASET} {uri}'.encode()).hexdigest()[:20]}"
    return (
        *(wal_id, DATASET, uri, "aws", "nodd", start_ms + 13_000, start_ms, start_ms + 9_500),
        *("pending", 0, None, None, None, "unknown", "unknown", "unknown", "unknown"),
        *(None, None, None, None, None, None, heard_ms, heard_ms, 1, 0, heard_ms),
    )


def item_of(row: Row) -> tuple[str, str, str]:
    return item_at(row[2])


def item_at(uri: str) -> tuple[str, str, str]:
    """Item id, collection and href that the success writes."""
    name = uri.rsplit("/", 1)[1].removesuffix(".nc")
    return name, "noaa-goes19-abi", f"collections/noaa-goes19-abi/items/{name}"


def batches(rows: Sequence[Row], batch: int) -> Iterator[Sequence[Row]]:
    for first in range(0, len(rows), batch):
        yield rows[first : first + batch]


class Floor:
    """Three commits a batch, and nothing else: insert, claim, succeed."""

    _database: Any  # a connection that executes
    _next = 0

    def units_per_second(self, n: int, batch: int) -> float:
        rows = [unit_row(number) for number in range(self._next, self._next + n)]
        self._next += n
        items = {row[0]: item_of(row) for row in rows}
        now_ms = rows[-1][-1]
        began_s = time.perf_counter()
        for some in batches(rows, batch):
            self._through(some, items, now_ms)
        took_s = time.perf_counter() - began_s
        counted = "SELECT COUNT(*) FROM units WHERE status = 'succeeded'"
        assert self._database.execute(counted).fetchone() == (self._next,)
        return n / took_s

    def _through(self, rows: Sequence[Row], items: dict[str, tuple[str, str, str]], now_ms: int) -> None:
        raise NotImplementedError

    def close(self) -> None:
        self._database.close()


# --- SQLite ----------------------------------------------------------------------------


class SqliteFloor(Floor):
    """Three commits a batch through apsw, WAL and FULL, checkpoints as rare as ours."""

    INSERT = f"INSERT INTO units ({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))})"
    CLAIM = """\
UPDATE units SET status = 'in_progress', version = version + 1, attempts = attempts + 1, worker_id = ?1,
  ingest_run_id = ?2, last_attempt_at_ms = ?3, updated_at_ms = ?3, lease_until_ms = ?4
WHERE rowid IN (
  SELECT rowid FROM units
  WHERE status = 'pending' AND dataset = ?5 AND provider = ?6 AND not_before_ms <= ?3
  ORDER BY not_before_ms LIMIT ?7)
RETURNING wal_id, version, object_uri"""
    SUCCEED = """\
UPDATE units SET status = 'succeeded', version = version + 1, integrity_status = 'ok', metadata_status = 'ok',
  stac_status = 'created', provenance_status = 'ok', stac_item_id = ?1, stac_collection_id = ?2,
  stac_item_href = ?3, updated_at_ms = ?4, lease_until_ms = 0
WHERE wal_id = ?5 AND version = ?6"""

    def __init__(self, path: str) -> None:
        self._database = apsw.Connection(path)
        pragma = self._database.pragma
        assert pragma("journal_mode", "wal") == "wal"
        pragma("synchronous", "FULL")
        pragma("wal_autocheckpoint", CHECKPOINT_PAGES)
        assert pragma("synchronous") == 2
        for statement in SCHEMA:
            self._database.execute(statement)

    def _through(self, rows: Sequence[Row], items: dict[str, tuple[str, str, str]], now_ms: int) -> None:
        execute = self._database.execute
        execute("BEGIN IMMEDIATE")
        self._database.executemany(self.INSERT, rows)
        execute("COMMIT")
        execute("BEGIN IMMEDIATE")
        asked = (WORKER, RUN, now_ms, now_ms + LEASE_MS, DATASET, "aws", len(rows))
        claimed = execute(self.CLAIM, asked).fetchall()
        execute("COMMIT")
        done = [(*items[wal_id], now_ms, wal_id, version) for wal_id, version, _uri in claimed]
        execute("BEGIN IMMEDIATE")
        self._database.executemany(self.SUCCEED, done)
        execute("COMMIT")


# --- PostgreSQL ------------------------------------------------------------------------


class PostgresFloor(Floor):
    """Three commits a batch through psycopg: statements are prepared, a batch is one pipeline. Of several on
    one database each claims what any of them has inserted."""

    INSERT = f"INSERT INTO units ({', '.join(COLUMNS)}) VALUES ({', '.join(['%s'] * len(COLUMNS))})"
    CLAIM = """\
UPDATE units SET status = 'in_progress', version = version + 1, attempts = attempts + 1,
  worker_id = %(worker)s, ingest_run_id = %(run)s, last_attempt_at_ms = %(now)s, updated_at_ms = %(now)s,
  lease_until_ms = %(until)s
WHERE wal_id = ANY (ARRAY(
  SELECT wal_id FROM units
  WHERE status = 'pending' AND dataset = %(dataset)s AND provider = 'aws' AND not_before_ms <= %(now)s
  ORDER BY not_before_ms LIMIT %(limit)s FOR UPDATE SKIP LOCKED))
RETURNING wal_id, version, object_uri"""
    SUCCEED = """\
UPDATE units SET status = 'succeeded', version = version + 1, integrity_status = 'ok', metadata_status = 'ok',
  stac_status = 'created', provenance_status = 'ok', stac_item_id = %s, stac_collection_id = %s,
  stac_item_href = %s, updated_at_ms = %s, lease_until_ms = 0
WHERE wal_id = %s AND version = %s"""

    def __init__(self, dsn: str) -> None:
        import psycopg

        self._database = psycopg.connect(dsn, autocommit=True, prepare_threshold=0)
        for setting in ("fsync", "synchronous_commit", "full_page_writes"):
            assert self._database.execute(f"SHOW {setting}").fetchone() == ("on",)

    def create(self) -> None:
        for statement in SCHEMA:
            self._database.execute(statement)

    def _through(self, rows: Sequence[Row], items: dict[str, tuple[str, str, str]], now_ms: int) -> None:
        self.through(rows, items, now_ms)

    def through(self, rows: Sequence[Row], items: dict[str, tuple[str, str, str]], now_ms: int) -> int:
        """How many were claimed, and succeeded."""
        self._commit(self.INSERT, rows)
        asked = {
            "worker": WORKER,
            "run": RUN,
            "now": now_ms,
            "until": now_ms + LEASE_MS,
            "dataset": DATASET,
            "limit": len(rows),
        }
        claimed = self._database.execute(self.CLAIM, asked).fetchall()  # a transaction by itself
        done = [
            (*(items.get(wal_id) or item_at(uri)), now_ms, wal_id, version)
            for wal_id, version, uri in claimed
        ]
        if done:  # others may have claimed all
            self._commit(self.SUCCEED, done)
        return len(done)

    def _commit(self, statement: str, rows: Sequence[Row]) -> None:
        if len(rows) == 1:
            self._database.execute(statement, rows[0])  # a transaction by itself: one round trip
            return
        with self._database.pipeline(), self._database.transaction(), self._database.cursor() as cursor:
            cursor.executemany(statement, rows)


# --- DBOS ------------------------------------------------------------------------------


class Dbos:
    """DBOS on SQLite, in a process and an environment of its own (`make dbos`); see dbos_loop.py."""

    def __init__(self, path: str, journal: Journal = "write-ahead") -> None:
        script = ROOT / "requirements" / "environment.sh"
        asked = subprocess.run([str(script), "where", "dbos"], capture_output=True, text=True, check=True)
        python = Path(asked.stdout.strip(), "bin", "python")
        if not python.exists():
            raise FileNotFoundError("DBOS's environment is not there: `make dbos` makes it")
        environ = {"PATH": os.defpath, "HOME": os.path.dirname(path)}
        self._process = subprocess.Popen(
            [str(python), str(ROOT / "bench" / "dbos_loop.py"), path, journal],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environ,
            cwd=os.path.dirname(path),
        )
        assert self._answer() == "ready"

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        if not line:
            raise RuntimeError(f"DBOS's process ended: {self._process.wait()}")
        return line

    def units_per_second(self, n: int, batch: int, steps: int = 1) -> float:
        """One step: three commits a unit, as the floor has. Three steps, one for each point: five."""
        assert self._process.stdin is not None
        print(n, batch, steps, file=self._process.stdin, flush=True)
        return float(self._answer())

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()  # its end
        try:
            self._process.wait(15)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


# --- for a benchmark's setup -------------------------------------------------------------


def sqlite_floor(stack: ExitStack, folder: str) -> SqliteFloor:
    floor = SqliteFloor(os.path.join(folder, "raw.db"))
    stack.callback(floor.close)
    return floor


def postgres_floor(stack: ExitStack, server_dsn: str) -> PostgresFloor:
    """In a database of its own on the server that ours uses, too."""
    from tests.services import postgres_database

    floor = PostgresFloor(stack.enter_context(postgres_database(server_dsn)))
    stack.callback(floor.close)
    floor.create()
    return floor


def dbos(stack: ExitStack, folder: str, journal: Journal = "write-ahead") -> Dbos:
    reference = Dbos(os.path.join(os.path.abspath(folder), f"dbos-{journal}.db"), journal)
    stack.callback(reference.close)
    return reference
