"""How many connections to PostgreSQL real processes have, counted by the server."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from tests.acceptance.cli.test_worker_process import announce, config, ended, start, until
from tests.acceptance.service.served import serving

pytestmark = [pytest.mark.slow, pytest.mark.req("FLT-1")]

_OURS = (
    "SELECT COUNT(*) FROM pg_stat_activity "
    "WHERE application_name LIKE 'kfm %' AND datname = current_database()"
)
_SESSIONS = "SELECT sessions FROM pg_stat_database WHERE datname = current_database()"
_DONE = "SELECT COUNT(*) FROM units WHERE status = 'succeeded'"
REQUESTS = 80


class Counted:
    most = 0


@contextmanager
def counting(dsn: str) -> Iterator[Counted]:
    """The most connections that the server has seen at a time."""
    counted, stop = Counted(), threading.Event()

    def look() -> None:
        with psycopg.connect(dsn, autocommit=True) as admin:
            while not stop.wait(0.005):
                row = admin.execute(_OURS).fetchone()
                assert row is not None
                counted.most = max(counted.most, row[0])

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield counted
    finally:
        stop.set()
        thread.join()


def _number(dsn: str, sql: str) -> int:
    with psycopg.connect(dsn) as admin:
        row = admin.execute(sql).fetchone()
    assert row is not None
    return int(row[0])


def test_a_worker_has_three_and_a_service_six(
    tmp_path: Path, postgres_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever goes on in them: a queue, lineage, heartbeats, a crowd of requests. A request opens none."""
    monkeypatch.setenv("WORKERS_STORE", postgres_database)
    config(tmp_path, store="env:WORKERS_STORE", batch=20)
    ended(start(tmp_path, "--once"))  # the tables are there
    announce(tmp_path, 300)
    with counting(postgres_database) as counted:
        worker = start(tmp_path)
        until(lambda: _number(postgres_database, _DONE) == 300)
        worker.terminate()
        ended(worker)
    assert 2 <= counted.most <= 3
    before = _number(postgres_database, _SESSIONS)
    with counting(postgres_database) as counted, serving(tmp_path) as served:
        announce(tmp_path, 60)
        with ThreadPoolExecutor(16) as threads:
            paths = ("/api/v1/status", "/readyz", "/metrics", "/api/v1/runs")
            answers = list(threads.map(lambda n: served.get(paths[n % 4]).status_code, range(REQUESTS)))
        assert set(answers) == {200}
        assert served.stop() == 0, served.said
    assert 2 <= counted.most <= 6, served.said
    assert _number(postgres_database, _SESSIONS) - before < REQUESTS / 4
