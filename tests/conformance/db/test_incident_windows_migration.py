"""Migration 34 on both databases: what was affected before keeps its incident and gets its window."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kfm.db.ledger import Ledger
from kfm.db.postgres import PostgresDatabase
from kfm.db.queries import migrate, migration_files
from kfm.db.sqlite import SqliteDatabase
from kfm.system import SystemClock
from tests.conformance.db.ledgers import START_MS, Recorder, settle_window

DAY_MS = 86_400_000
RUN = "11111111-1111-8111-8111-111111111111"
UNIT = "22222222-2222-8222-8222-222222222222"

BEFORE = f"""
INSERT INTO runs (
  run_id, source_id, dataset_id, pipeline_id, idempotency_key, work_key, work_base, revision, trigger_type,
  window_spec, window_start_ms, window_end_ms, pipeline_version, status, attempts, fence, start_time_ms, force
) VALUES (
  '{RUN}', 'gauges', 'levels', 'gauges', 'k', 'w', 'b', 0, 'manual', 'P1D', {START_MS}, {START_MS + DAY_MS},
  'v', 'failed', 1, 1, {START_MS}, 0
);
INSERT INTO incidents VALUES (
  'sha256:c', 'i', 'dataset', 'levels', 'quarantine', 'schema', 'KFM303', 'm', '{RUN}', 'open', 2, 3, 2,
  {START_MS}, {START_MS + 1}, NULL
);
INSERT INTO incident_subjects VALUES ('sha256:c', '{RUN}', 'levels', 'gauges');
INSERT INTO incident_subjects VALUES ('sha256:c', '{UNIT}', 'levels', 'queue');
"""


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "sqlite":
        made: Any = SqliteDatabase(str(tmp_path / "kfm.db"), SystemClock())
    else:
        made = PostgresDatabase(request.getfixturevalue("postgres_schema")())
    older = [one for one in migration_files() if one[0] < 33]
    migrate(made, request.param, START_MS, older)
    made.write(lambda _session: made.script(BEFORE))
    migrate(made, request.param, START_MS)
    yield made
    made.close()


@pytest.mark.req("DAT-10")
def test_what_was_open_gets_its_windows(database: Any) -> None:
    """The incident is as it was; its run has its window, its unit has none, and the run's window ends it."""
    ledger = Ledger(database, Recorder())
    (incident,) = ledger.incidents(state="open")
    assert (incident.occurrence, incident.changes, incident.affected, incident.subject) == (2, 3, 2, RUN)
    assert (incident.acknowledged_at_ms, incident.escalated_at_ms) == (None, None)
    run, unit = (ledger.incident_subject("sha256:c", one) for one in (RUN, UNIT))
    assert run is not None
    assert (run.source_id, run.window_start_ms, run.window_end_ms) == ("gauges", START_MS, START_MS + DAY_MS)
    assert unit is not None
    assert unit.window_start_ms is None
    settle_window(ledger, "gauges", (START_MS, START_MS + DAY_MS))
    assert ledger.incident_subjects("sha256:c") == [UNIT]
