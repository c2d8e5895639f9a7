"""Objects that no dataset describes, from a message to an item."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from kfm.config import load
from kfm.core.catalogue import Search
from kfm.ingest.stac import render_item
from kfm.wiring import open_app
from kfm.wiring.worker import WorkerWish, run_worker

CONFIG = """\
version: 1
ingest:
  queues: [{name: spool, kind: folder, path: spool}]
  generic: [{bucket: gauges, dataset: gauges}]
"""


@pytest.mark.req("WAL-12", "WAL-20")
def test_an_object_without_a_time_is_dated_by_its_announcement(tmp_path: Path) -> None:
    """Not by whenever somebody worked on it: the same record makes the same item."""
    (tmp_path / "spool").mkdir()
    (tmp_path / "kfm.yml").write_text(CONFIG)
    record = {
        "eventVersion": "2.1",
        "eventSource": "aws:s3",
        "eventTime": "2026-01-01T00:00:00.000Z",
        "eventName": "ObjectCreated:Put",
        "s3": {"bucket": {"name": "gauges"}, "object": {"key": "levels.csv", "size": 3, "eTag": "e1"}},
    }
    (tmp_path / "spool" / "one.json").write_text(json.dumps({"Records": [record]}))
    with open_app(load(str(tmp_path / "kfm.yml"))) as app:
        assert run_worker(app, WorkerWish(mode="until-idle"), threading.Event()).tasks.succeeded == 1
        (item,) = app.ledger.catalogue().find_items(Search())
    properties = render_item(item)["properties"]
    assert properties["datetime"] == "2026-01-01T00:00:00Z"
    assert properties["kfm:datetime_basis"] == "announcement"
