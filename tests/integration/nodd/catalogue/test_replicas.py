"""From an announcement to an external STAC API."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests import services

BUCKET = "noaa-hrrr-bdp-pds"
TOKEN = "t0ken-of-the-replica"
POLICY = {"datasets": ["*"], "removal": "remove"}


class Site:
    """A project with one replica, and the replica itself."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.url = url
        self.far = httpx.Client(base_url=url, timeout=30)
        (folder / "spool").mkdir()
        self.configure(url)

    def configure(self, url: str) -> None:
        settings = {
            "version": 1,
            "ingest": {
                "queues": [{"name": "feed", "kind": "folder", "path": "spool"}],
                "generic": [{"dataset": "mine", "bucket": "my-bucket"}],
                "policies": [POLICY],
                "replicas": [{"name": "far", "url": url, "token": "env:FAR_TOKEN"}],
            },
        }
        (self.folder / "kfm.yml").write_text(json.dumps(settings))

    def announce(
        self, key: str, version: int = 1, *, bucket: str = BUCKET, name: str = "ObjectCreated:Put"
    ) -> None:
        record = {
            "eventVersion": "2.1",
            "eventSource": "aws:s3",
            "awsRegion": "us-east-1",
            "eventTime": f"2026-01-02T00:00:0{version}.000Z",
            "eventName": name,
            "s3": {
                "bucket": {"name": bucket},
                "object": {
                    "key": key,
                    "size": version,
                    "eTag": f"{version:032x}",
                    "sequencer": f"{version:016X}",
                },
            },
        }
        number = len(list((self.folder / "spool").iterdir()))
        body = json.dumps({"Records": [record]})
        (self.folder / "spool" / f"{number:04}-{abs(hash((key, version, name)))}.json").write_text(body)

    def kfm(self, *arguments: str, code: int = 0) -> Any:
        command = [sys.executable, "-m", "kfm", *arguments, "--json"]
        told = {**os.environ, "FAR_TOKEN": TOKEN}
        done = subprocess.run(command, cwd=self.folder, env=told, capture_output=True, text=True, timeout=120)
        assert done.returncode == code, done.stderr
        assert TOKEN not in done.stderr + done.stdout
        self.said = done.stderr
        return json.loads(done.stdout) if done.stdout else None

    def worked(self) -> dict[str, int]:
        return dict(self.kfm("worker", "--until-idle")["tasks"])

    def compared(self, *arguments: str, code: int = 0) -> dict[str, Any]:
        (row,) = self.kfm("catalogue", "reconcile", *arguments, code=code)["replicas"]
        return dict(row)

    def shown(self, collection: str = "hrrr") -> dict[str, tuple[int, list[str]]]:
        """Item → its revision and its assets, as the replica tells."""
        found = self.far.get(f"/collections/{collection}/items", params={"limit": 100}).json()
        return {
            one["id"].rpartition("~")[2]: (one["properties"]["kfm:revision"], sorted(one["assets"]))
            for one in found.get("features", [])
        }


def key(hour: int) -> str:
    return f"hrrr.20240101/conus/hrrr.t{hour:02d}z.wrfsfcf06.grib2"


def name(hour: int) -> str:
    return key(hour).rpartition("/")[2]


@pytest.fixture
def site(tmp_path: Path, pgstac_address: str) -> Site:
    made = Site(tmp_path, pgstac_address)
    for collection in ("hrrr", "mine"):
        made.far.delete(f"/collections/{collection}")
    return made


@pytest.mark.req("WAL-8", "WAL-9")
def test_an_announced_object_is_shown_by_the_replica(site: Site) -> None:
    """Made, replaced as its file and its index come anew, and removed; its collection tells the extent."""
    for hour in (0, 1, 2):
        site.announce(key(hour))
    site.announce(f"{key(0)}.idx")
    assert site.worked()["succeeded"] == 4
    shown = site.shown()
    assert {one: assets for one, (_, assets) in shown.items()} == {
        name(0): ["data", "index"],
        name(1): ["data"],
        name(2): ["data"],
    }
    extent = site.far.get("/collections/hrrr").json()["extent"]
    assert extent["temporal"]["interval"] == [["2024-01-01T06:00:00Z", "2024-01-01T08:00:00Z"]]
    site.announce(key(1), 2)
    site.announce(key(2), 2, name="ObjectRemoved:Delete")
    site.announce(key(3))
    site.worked()
    after = site.shown()
    assert sorted(after) == [name(0), name(1), name(3)]
    assert after[name(1)][0] > shown[name(1)][0]
    assert after[name(0)] == shown[name(0)]
    extent = site.far.get("/collections/hrrr").json()["extent"]
    assert extent["temporal"]["interval"][0][1] == "2024-01-01T09:00:00Z"
    compared = site.compared()
    assert (compared["items"], compared["equal"], compared["extra"]) == (3, 3, 0)


def test_what_the_replica_refuses_holds_nothing_up(site: Site) -> None:
    """pgSTAC takes no item without a place: it is told, kept, and found by comparing; others are there."""
    site.announce("some/file.bin", bucket="my-bucket")
    site.announce(key(0))
    assert site.worked()["succeeded"] == 2
    assert "replica far: mine/" in site.said
    assert "is refused: " in site.said
    assert sorted(site.shown()) == [name(0)]
    assert site.shown("mine") == {}
    compared = site.compared(code=1)
    assert (compared["equal"], compared["missing"]) == (1, 1)
    repaired = site.compared("--repair", code=1)
    assert (repaired["refused"], repaired["delivered"], repaired["waiting"]) == (1, 0, 1)


def test_comparing_repairs_what_others_left_behind(site: Site) -> None:
    """A late request overwrote something newer, one was lost, one came back from the dead."""
    for hour in range(5):
        site.announce(key(hour))
    site.worked()
    path = "/collections/hrrr/items/"
    items = {hour: site.far.get(f"{path}hrrr.20240101~conus~{name(hour)}").json() for hour in range(5)}
    for hour in (0, 1):
        site.announce(key(hour), 2)
    site.announce(key(2), 2, name="ObjectRemoved:Delete")
    site.worked()
    before = site.shown()
    for hour in (0, 1):  # as they were
        assert site.far.put(f"{path}{items[hour]['id']}", json=items[hour]).status_code == 200
    assert site.far.post("/collections/hrrr/items", json=items[2]).status_code == 201
    assert site.far.delete(f"{path}{items[3]['id']}").status_code == 200
    theirs = {**items[4], "id": "theirs-alone", "properties": {"datetime": "2024-01-01T00:00:00Z"}}
    assert site.far.post("/collections/hrrr/items", json=theirs).status_code == 201
    found = site.compared(code=1)
    assert {one: found[one] for one in ("items", "equal", "stale", "missing", "extra")} == {
        "items": 4,
        "equal": 1,
        "stale": 2,
        "missing": 1,
        "extra": 1,
    }
    assert site.compared("--repair")["delivered"] == 4
    assert site.far.delete(f"{path}theirs-alone").status_code == 200, "what others put there is theirs"
    assert site.shown() == before
    assert site.compared()["equal"] == 4


@pytest.mark.slow
def test_an_outage_loses_nothing_and_blocks_nothing(site: Site) -> None:
    """Units succeed while the replica is away; it gets everything once it is back."""
    site.configure(f"http://127.0.0.1:{services.free_port()}")
    for hour in range(6):
        site.announce(key(hour))
    assert site.worked()["succeeded"] == 6
    assert "replica far: " in site.said
    assert "Connection refused" in site.said
    site.kfm("catalogue", "reconcile", code=4)
    site.configure(site.url)
    assert site.shown() == {}
    assert site.compared("--repair")["delivered"] == 6
    assert len(site.shown()) == 6


@pytest.mark.slow
def test_a_replica_that_is_named_later_gets_everything(site: Site) -> None:
    """Comparing brings what was there before; from then on it follows."""
    text = (site.folder / "kfm.yml").read_text()
    settings = json.loads(text)
    settings["ingest"]["replicas"] = []
    (site.folder / "kfm.yml").write_text(json.dumps(settings))
    site.announce(key(0))
    site.worked()
    (site.folder / "kfm.yml").write_text(text)
    assert site.compared("--repair")["delivered"] == 1
    site.announce(key(1))
    site.worked()
    assert sorted(site.shown()) == [name(0), name(1)]


def started(site: Site) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "kfm", "worker", "--json"],
        cwd=site.folder,
        env={**os.environ, "FAR_TOKEN": TOKEN},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 40
    while not true():
        assert time.monotonic() < deadline, "it takes too long"
        time.sleep(0.1)


@pytest.mark.slow
def test_a_worker_that_goes_on_serves_its_replicas(site: Site) -> None:
    """What comes is there soon; two workers at once do no harm."""
    workers = [started(site) for _ in range(2)]
    try:
        for hour in range(4):
            site.announce(key(hour))
        until(lambda: len(site.shown()) == 4)
        site.announce(key(1), 2, name="ObjectRemoved:Delete")
        until(lambda: len(site.shown()) == 3)
    finally:
        for worker in workers:
            worker.terminate()
        ended = [worker.communicate(timeout=40) for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0], ended
    assert sum(json.loads(out)["tasks"]["succeeded"] for out, _ in ended) == 4
    assert site.compared()["equal"] == 3


@pytest.mark.slow
def test_a_replica_that_hangs_blocks_no_unit(site: Site) -> None:
    """It takes connections and never answers: units succeed meanwhile, and the worker ends when told to."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(40)
        site.configure(f"http://127.0.0.1:{silent.getsockname()[1]}")
        worker = started(site)
        try:
            site.announce(key(0))
            connection, _ = silent.accept()
            for hour in range(1, 6):
                site.announce(key(hour))
            until(lambda: not list((site.folder / "spool").glob("*.json")))
            time.sleep(1.5)  # a worker looks at the ledger every second
        finally:
            worker.terminate()
            out, err = worker.communicate(timeout=40)
    connection.close()
    assert worker.returncode == 0, err
    assert json.loads(out)["tasks"]["succeeded"] == 6
    site.configure(site.url)
    assert site.compared("--repair")["equal"] == 0
    assert len(site.shown()) == 6
