"""Sources that follow announced objects: from a message to a published version."""

from __future__ import annotations

import io
import json
import threading
from pathlib import Path
from typing import Any

import pytest

from kfm.app import open_app
from kfm.config.loader import load
from kfm.nodd.worker_loop import WorkerOptions, run_worker

CONFIG = """\
version: 1
environment: test
datasets:
  - id: levels
    domain: hydrology
    rights: {license: CC0-1.0, care: {label: Public}}
sources:
  - {id: daily, dataset: levels, kind: files, folder: incoming, follows: [nexrad-l2]}
publish:
  - {kind: local, path: published}
ingest:
  coalesce_seconds: 0
"""


def message(second: int, day: int = 1) -> bytes:
    stamp = f"202601{day:02d}_0000{second:02d}"
    record = {
        "eventVersion": "2.1",
        "eventSource": "aws:s3",
        "awsRegion": "us-east-1",
        "eventTime": "2026-01-03T01:00:00.000Z",
        "eventName": "ObjectCreated:Put",
        "s3": {
            "bucket": {"name": "unidata-nexrad-level2"},
            "object": {
                "key": f"2026/01/{day:02d}/KTLX/KTLX{stamp}_V06",
                "size": 1,
                "eTag": f"{second:032x}",
                "sequencer": f"{second:016X}",
            },
        },
    }
    return json.dumps({"Records": [record]}).encode() + b"\n"


def work(folder: Path, *messages: bytes) -> list[Any]:
    """What a worker left: runs, the oldest first."""
    with open_app(load(str(folder / "kfm.yml"))) as app:
        options = WorkerOptions(mode="until-idle", stream=io.BytesIO(b"".join(messages)))
        run_worker(app, options, threading.Event())
        rows: Any = app.kernel.store.database  # type: ignore[attr-defined]
        runs = rows._connection.execute(
            "SELECT window_start_ms, revision, status FROM runs ORDER BY start_time_ms, revision"
        ).fetchall()
    return list(runs)


@pytest.mark.req("TRG-6", "TRG-2")
def test_arrivals_start_what_follows_them(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One run for each period; repeats start none; late data open their period's next revision."""
    (tmp_path / "kfm.yml").write_text(CONFIG)
    incoming = tmp_path / "incoming"
    incoming.mkdir()
    (incoming / "a.csv").write_text("a,b\n1,2\n")
    caplog.set_level("INFO", "kfm.service.dispatcher")
    runs = work(tmp_path, message(1), message(2), message(3), message(4, day=2))
    assert len(runs) == 2, caplog.messages
    assert {status for *_, status in runs} == {"success"}
    told = [record for record in caplog.records if record.name == "kfm.service.dispatcher"]
    assert told[0].getMessage().startswith("daily: published, asked for by upstream-event, run ")
    assert vars(told[0])["source"] == "daily"
    same = work(tmp_path, message(1), message(2))
    assert same == runs
    (incoming / "a.csv").write_text("a,b\n1,3\n")
    late = work(tmp_path, message(9))
    assert len(late) == 3
    assert late[-1][0] == runs[0][0]
    assert late[-1][1] > runs[0][1]
