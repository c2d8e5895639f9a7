"""Objects that no dataset describes, from a message to an item."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kfm.model.catalogue import Search
from kfm.nodd.catalogue.stac_items import render_item
from tests.acceptance.nodd.conftest import Worked

GENERIC = "  generic: [{bucket: gauges, dataset: gauges}]\n"


@pytest.mark.req("WAL-12", "WAL-20")
def test_an_object_without_a_time_is_dated_by_its_announcement(spool: Path, worked: Worked) -> None:
    """Not by the time of processing: the same record makes the same item."""
    record = {
        "eventVersion": "2.1",
        "eventSource": "aws:s3",
        "eventTime": "2026-01-01T00:00:00.000Z",
        "eventName": "ObjectCreated:Put",
        "s3": {"bucket": {"name": "gauges"}, "object": {"key": "levels.csv", "size": 3, "eTag": "e1"}},
    }
    (spool / "one.json").write_text(json.dumps({"Records": [record]}))
    with worked(GENERIC) as (app, tasks):
        assert tasks.succeeded == 1
        (item,) = app.ledger.catalogue().find_items(Search())
    properties = render_item(item)["properties"]
    assert properties["datetime"] == "2026-01-01T00:00:00Z"
    assert properties["kfm:datetime_basis"] == "announcement"
