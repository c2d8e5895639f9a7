"""What a page says does not depend on how much has happened since elsewhere."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from kfm.app import App
from kfm.config.loader import load
from kfm.runs.kernel import RunRequest
from kfm.web.request_context import WebContext
from tests.integration.web.console.reading import Reader
from tests.seeded.site import plain, site_of
from tests.seeded.test_lists import CONFIG
from tests.world.keeping import copied_world

NEWER = 10_000
FRESH_ID = "printf('%08x-0000-8000-8000-%012x', i, i)"


def _goes_on(ledger: str, source: str, rows: int) -> None:
    """So many newer triggers and runs of a source, each copied from its last one, and all unchanged."""
    tables = {
        "runs": {
            "run_id": FRESH_ID,
            "idempotency_key": "'sha256:' || printf('%064x', i)",
            "work_key": "'sha256:' || printf('%064x', i)",
            "revision": "o.revision + i",
            "start_time_ms": "o.start_time_ms + i",
            "end_time_ms": "o.end_time_ms + i",
        },
        "invocations": {
            "number": "NULL",
            "invocation_id": FRESH_ID,
            "outcome": "'noop'",
            "run_id": "NULL",
            "requested_at_ms": "o.requested_at_ms + i",
        },
    }
    connection = apsw.Connection(ledger)
    connection.execute("PRAGMA synchronous = OFF; BEGIN")
    for table, made in tables.items():
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
        order = "start_time_ms" if table == "runs" else "number"
        connection.execute(
            f"INSERT INTO {table} ({', '.join(columns)}) WITH RECURSIVE many (i) AS "
            f"(SELECT 1 UNION ALL SELECT i + 1 FROM many WHERE i < {rows}) "
            f"SELECT {', '.join(made.get(column, f'o.{column}') for column in columns)} FROM many, "
            f"(SELECT * FROM {table} WHERE source_id = ? ORDER BY {order} DESC LIMIT 1) AS o",
            (source,),
        )
    connection.execute("COMMIT")
    connection.close()


@pytest.mark.req("DAT-1", "REL-4")
@pytest.mark.parametrize("rows", [501, NEWER])
def test_no_cause_is_forgotten_under_traffic(tmp_path: Path, rows: int) -> None:
    """After so many newer triggers and runs of one source, Home names the same causes, and every dataset is
    as it was: none is never published, no blocker has gone."""
    with site_of(copied_world(tmp_path / "world")) as site:
        ann = site.as_person("ann")
        before = ann.api("/status")
        _goes_on(str(site.folder / ".kfm" / "kfm.db"), "counties", rows)
        after = ann.api("/status")
        for name in ("needs", "breakers", "switches", "blockers"):
            assert after.get(name) == before.get(name), name
        health = {one["dataset_id"]: one["health"]["state"] for one in before["datasets"]}
        assert {one["dataset_id"]: one["health"]["state"] for one in after["datasets"]} == health
        home = plain(ann.page())
        assert home.count("∅ never") == list(health.values()).count("never") == 1


@pytest.mark.req("DAT-1")
def test_what_was_mended_stays_mended(tmp_path: Path) -> None:
    """A failure whose work has succeeded since does not come back, however many runs are newer."""
    (tmp_path / "incoming").mkdir()
    (tmp_path / "incoming" / "a.csv").write_text("day,flow\n1,2\n")
    (tmp_path / "broken.py").write_text("def publish(context):\n    raise ValueError('no such column')\n")
    (tmp_path / "kfm.yml").write_text(CONFIG)
    loaded = load(str(tmp_path / "kfm.yml"))
    app = App(loaded, read_only=False, progress=None)
    app.run(RunRequest(source_id="broken", actor="ann"))
    app.run(RunRequest(source_id="river", actor="ann"))
    app.close()
    reader = Reader(WebContext(loaded))
    assert "KFM607" in reader.page("").text
    (tmp_path / "broken.py").write_text("def publish(context):\n    pass\n")
    app = App(loaded, read_only=False, progress=None)
    mended = app.run(
        RunRequest(source_id="broken", actor="ann", force=True, rationale="mended", ticket="T-1")
    )
    app.close()
    assert mended.run is not None
    assert mended.run.status == "success"
    assert "KFM607" not in reader.page("").text
    _goes_on(str(tmp_path / ".kfm" / "kfm.db"), "river", NEWER)
    assert "KFM607" not in reader.page("").text
