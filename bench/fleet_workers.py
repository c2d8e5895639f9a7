"""Workers of the fleet benchmark, each a process of its own that works off what waits in one lane.

    python -m bench.fleet_workers ours CONFIG       `kfm worker` without queues, with its duties
    python -m bench.fleet_workers bare DSN BATCH    the least that a queue on PostgreSQL needs

Both end a batch and claim the next in one transaction, record an item for each unit, and write a page of
history for either. Ours reads keys, asks the gates, compares the policy epoch, makes lineage events, counts
and does the duties of the ledger besides. Each says `ready` when it has ended its first batch, and ends when
its standard input does.
"""

from __future__ import annotations

import json
import select
import sys
import threading
from typing import Any

import psycopg

from bench.ingest_references import DATASET, LEASE_MS, SCHEMA, START_MS


def _is_over() -> bool:
    return bool(select.select([sys.stdin], [], [], 0)[0])


def _ready() -> None:
    print("ready", flush=True)


# --- ours ------------------------------------------------------------------------------------------------


def _ours(config: str) -> None:
    from kfm.app import open_app
    from kfm.config.loader import load
    from kfm.nodd.ingest import NoddIngest
    from kfm.nodd.worker import Worker
    from kfm.nodd.worker_loop import WorkerCounts, WorkerLoop, WorkerTotals, due_in_ms, maintenance

    stop = threading.Event()
    is_ready = False

    def progress(counts: WorkerCounts) -> None:
        nonlocal is_ready
        if counts.succeeded and not is_ready:
            is_ready = True
            _ready()
        if _is_over():
            stop.set()

    with open_app(load(config, environ={})) as app:
        ingest = NoddIngest(app)
        context = ingest.context()
        tasks = maintenance(app, ingest, stop, lambda: loop.drain(), deliveries=False, dispatches=False)
        loop = WorkerLoop(
            Worker(context),
            app.clock,
            totals=WorkerTotals(),
            # What is sent to others is not of the ledger, and the bare loop has none of it.
            maintenance=[task for task in tasks if task.name not in ("lineage", "incidents")],
            stopping=lambda: stop.is_set() or _is_over(),
            rest=lambda delay_ms: stop.wait(delay_ms / 1000),
            progress=progress,
            due_in_ms=lambda: due_in_ms(context.wal),
            unit_random=app.rng.unit,
        )
        loop.run_until_stopped()
        ingest.close()


# --- bare ------------------------------------------------------------------------------------------------

TABLES = (
    *SCHEMA,
    "CREATE TABLE pages (number BIGSERIAL PRIMARY KEY, event TEXT NOT NULL, at_ms BIGINT NOT NULL, "
    "members TEXT NOT NULL, units BIGINT NOT NULL)",
    "CREATE TABLE items (collection TEXT NOT NULL, item TEXT NOT NULL PRIMARY KEY, at_ms BIGINT NOT NULL, "
    "west FLOAT8, south FLOAT8, east FLOAT8, north FLOAT8)",
    "CREATE INDEX items_by_time ON items (collection, at_ms)",
)
SUCCEED = """\
UPDATE units SET status = 'succeeded', version = version + 1, integrity_status = 'ok', metadata_status = 'ok',
  stac_status = 'created', provenance_status = 'ok', stac_collection_id = 'noaa-goes19-abi',
  updated_at_ms = %(now)s, lease_until_ms = 0
WHERE wal_id = ANY(%(ids)s) AND version = 2 AND status = 'in_progress'"""
CLAIM = """\
UPDATE units SET status = 'in_progress', version = version + 1, attempts = attempts + 1,
  worker_id = %(worker)s, last_attempt_at_ms = %(now)s, updated_at_ms = %(now)s, lease_until_ms = %(until)s
WHERE wal_id = ANY(ARRAY(
  SELECT wal_id FROM units
  WHERE status = 'pending' AND dataset = %(dataset)s AND provider = 'aws' AND not_before_ms <= %(now)s
  ORDER BY not_before_ms LIMIT %(limit)s FOR UPDATE SKIP LOCKED))
RETURNING wal_id, version, time_range_start_ms, object_uri"""
ITEMS = """\
INSERT INTO items SELECT 'noaa-goes19-abi', item, at_ms, -152.1093, 14.5713, -52.9469, 56.7615
FROM unnest(%(items)s::text[], %(times)s::bigint[]) AS one (item, at_ms)"""
PAGE = "INSERT INTO pages (event, at_ms, members, units) VALUES (%s, %s, %s, %s)"
FILL = """\
INSERT INTO units
SELECT lpad(to_hex(n), 13, '0') || '-' || substr(md5(n::text), 1, 20), %(dataset)s,
  's3://noaa-goes19/ABI-L1b-RadC/2026/060/00/OR_ABI-L1b-RadC-M6C01_G19_s' || n || '.nc', 'aws', 'nodd',
  n, n, n, 'pending', 0, NULL, NULL, NULL, 'unknown', 'unknown', 'unknown', 'unknown',
  NULL, NULL, NULL, NULL, NULL, NULL, n, n, 1, 0, %(due)s
FROM generate_series(%(first)s::bigint, %(last)s::bigint) AS n"""


def fill_bare(dsn: str, first: int, count: int) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        if first == 0:
            for statement in TABLES:
                connection.execute(statement)
        parameters = {"dataset": DATASET, "first": first, "last": first + count - 1, "due": START_MS}
        connection.execute(FILL, parameters)
        connection.execute("ANALYZE units")


def _bare(dsn: str, batch: str) -> None:
    """Two round trips for each batch: its pages need what was claimed."""
    held: list[Any] = []
    is_ready = False
    now = START_MS + 1
    with psycopg.connect(dsn, autocommit=True, prepare_threshold=0) as connection:
        asked = {
            "worker": str(connection.info.backend_pid),
            "now": now,
            "until": now + LEASE_MS,
            "dataset": DATASET,
            "limit": int(batch),
        }
        while not _is_over():
            with connection.pipeline() as pipeline, connection.transaction():
                ids = [row[0] for row in held]
                if ids:
                    connection.execute(SUCCEED, {"now": now, "ids": ids})
                    items = [row[3].rpartition("/")[2].removesuffix(".nc") for row in held]
                    connection.execute(ITEMS, {"items": items, "times": [row[2] for row in held]})
                    told = json.dumps([(one, 3, 1) for one in ids])
                    connection.execute(PAGE, ("succeeded", now, told, len(ids)))
                claimed = connection.execute(CLAIM, asked)
                pipeline.sync()
                held = claimed.fetchall()
                if held:
                    told = json.dumps([(row[0], 2, 1) for row in held])
                    connection.execute(PAGE, ("claimed", now, told, len(held)))
            if ids and not is_ready:
                is_ready = True
                _ready()


if __name__ == "__main__":
    {"ours": _ours, "bare": _bare}[sys.argv[1]](*sys.argv[2:])
