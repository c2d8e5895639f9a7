"""A bucket's listing against the ledger: in folders that stand in, and on an S3 server."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kfm.app import open_app
from kfm.config.loader import load
from kfm.model.records import Justification
from kfm.nodd.reconciliation import Gap, ReconciliationReport, reconcile_bucket, reconciliation_options
from kfm.nodd.worker_loop import WorkerOptions, run_worker
from tests import services

KEY = "2026/01/01/KTLX/KTLX20260101_{hour:02d}0000_V06"


class Place:
    """A bucket, and a project that knows it as radar volumes."""

    def __init__(self, folder: Path, bucket: str, put: Callable[[str, bytes], None], **ingest: Any) -> None:
        self.folder = folder
        self.bucket = bucket
        self.put = put
        settings = {"version": 1, "ingest": ingest}
        (folder / "kfm.yml").write_text(json.dumps(settings))

    def reconcile(self, *, opened: bool = False, **options: Any) -> tuple[ReconciliationReport, list[Gap]]:
        gaps: list[Gap] = []
        asked: dict[str, Any] = {
            "dataset": None,
            "prefixes": (),
            "from_ms": None,
            "until_ms": None,
            "limit": 1_000_000,
            **options,
        }
        with open_app(load(str(self.folder / "kfm.yml"))) as app:
            result = reconcile_bucket(
                app,
                reconciliation_options(self.bucket, **asked),
                gaps.append,
                lambda _count: None,
                by=Justification(actor=app.actor, rationale="a test") if opened else None,
            )
        return result, gaps

    def work(self) -> Any:
        with open_app(load(str(self.folder / "kfm.yml"))) as app:
            return run_worker(app, WorkerOptions(mode="until-idle", intake=False), threading.Event()).tasks


@pytest.fixture(params=["mirror", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """Of a bucket that no dataset knows by its name: a generic one."""
    if request.param == "mirror":

        def write(key: str, data: bytes) -> None:
            path = tmp_path / "bucket" / key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)

        (tmp_path / "bucket").mkdir()
        generic = [{"dataset": "mine", "bucket": "my-bucket"}]
        yield Place(tmp_path, "my-bucket", write, generic=generic, mirrors={"my-bucket": "bucket"})
        return
    pytest.importorskip("obstore")
    endpoint, bucket = request.getfixturevalue("s3_endpoint"), request.getfixturevalue("s3_bucket")
    client = services.s3_client(endpoint)
    client.put_bucket_acl(Bucket=bucket, ACL="public-read")
    yield Place(
        tmp_path,
        bucket,
        lambda key, data: client.put_object(Bucket=bucket, Key=key, Body=data, ACL="public-read"),
        generic=[{"dataset": "mine", "bucket": bucket}],
        object_options={"s3://*": {"endpoint": endpoint}},
    )


def test_gaps_are_found_and_opened_once(place: Place) -> None:
    """An object that was not announced is missing; opened it is a unit like any other; then it is known."""
    for number in range(7):
        place.put(f"a/{number}.bin", b"x" * number)
    place.put("b/odd name +%.bin", b"x")
    found, gaps = place.reconcile()
    assert (found.listed, found.missing, found.opened, found.complete) == (8, 8, 0, True)
    assert {gap.what for gap in gaps} == {"missing"}
    assert place.reconcile(prefixes=("a/",))[0].missing == 7
    assert place.reconcile(prefixes=("b/", "c/"))[0].listed == 1
    opened, _ = place.reconcile(opened=True, prefixes=("a/",))
    assert (opened.missing, opened.opened) == (7, 7)
    again, _ = place.reconcile(opened=True)
    assert (again.known, again.missing, again.opened) == (7, 1, 1)
    assert place.work().succeeded == 8
    after, gaps = place.reconcile(opened=True)
    assert (after.known, after.missing, after.changed, after.opened, gaps) == (8, 0, 0, 0, [])


def test_what_changed_is_looked_at_again(place: Place) -> None:
    """Other bytes without a message: the object itself decides, and then it is known."""
    place.put("a.bin", b"first")
    place.reconcile(opened=True)
    place.work()
    place.put("a.bin", b"second one")
    found, gaps = place.reconcile()
    assert (found.changed, found.known, [gap.what for gap in gaps]) == (1, 0, ["changed"])
    assert place.reconcile(opened=True)[0].opened == 1
    assert place.work().succeeded == 1
    assert place.reconcile()[0].known == 1
    with open_app(load(str(place.folder / "kfm.yml"))) as app:
        catalogue = app.ledger.catalogue()
        (figures,) = catalogue.collections()
        assert figures.items == 1


def test_a_limit_is_a_limit(place: Place) -> None:
    """So many objects are looked at, and it is said that there are more."""
    for number in range(5):
        place.put(f"{number}.bin", b"x")
    found, gaps = place.reconcile(limit=3)
    assert (found.listed, len(gaps), found.complete) == (3, 3, False)
    assert place.reconcile(limit=5)[0].complete
    assert place.reconcile(limit=5, opened=True)[0].opened == 5


@pytest.fixture
def radar(tmp_path: Path) -> Place:
    def write(key: str, data: bytes) -> None:
        path = tmp_path / "bucket" / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    (tmp_path / "bucket").mkdir()
    bucket = "unidata-nexrad-level2"
    return Place(tmp_path, bucket, write, mirrors={bucket: "bucket"})


def test_times_and_datasets_narrow_it(radar: Place) -> None:
    """By the time that keys tell, not by that of the listing; what is not meant is counted apart."""
    for hour in range(6):
        radar.put(KEY.format(hour=hour), b"AR2V0006.001")
    radar.put("index.html", b"x")
    day_ms, hour_ms = 1_767_225_600_000, 3_600_000
    found, _ = radar.reconcile(from_ms=day_ms + 2 * hour_ms, until_ms=day_ms + 4 * hour_ms)
    assert (found.listed, found.missing, found.outside, found.unreadable) == (7, 2, 4, 1)
    assert radar.reconcile(dataset="nexrad-l2")[0].missing == 6
    assert radar.reconcile(dataset="hrrr")[0].outside == 6


def test_many_pages_are_compared_one_after_the_other(radar: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many there are, few are in memory."""
    monkeypatch.setattr("kfm.nodd.reconciliation.BATCH", 4)
    for hour in range(23):
        radar.put(KEY.format(hour=hour), b"x")
    found, gaps = radar.reconcile(opened=True)
    assert (found.listed, found.opened, len({gap.wal_id for gap in gaps})) == (23, 23, 23)
    assert radar.reconcile(limit=6)[0].listed == 6


def test_opening_is_on_record(radar: Place) -> None:
    """Who, why, and how many; and the units tell that they are a backfill."""
    radar.put(KEY.format(hour=1), b"x")
    _, (gap,) = radar.reconcile(opened=True)
    with open_app(load(str(radar.folder / "kfm.yml"))) as app:
        unit = app.ledger.unit_reader().unit(gap.wal_id)
        assert unit is not None
        assert (unit.replay_reason, unit.queue) == ("backfill", "reconcile")
        (entry,) = [one for one in app.ledger.governance() if one.kind == "backfill"]
    assert (entry.subject, entry.details["opened"], entry.rationale) == (
        "aws:unidata-nexrad-level2",
        1,
        "a test",
    )
