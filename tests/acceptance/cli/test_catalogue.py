"""`kfm catalogue`, as a person types it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pystac
import pytest
from pystac_client import Client

from kfm.cli.session import CommandSession
from kfm.model.units import Content
from kfm.nodd.catalogue.item_facts import entry
from tests.catalogue_samples import DATASETS, NOW_MS, REGISTRY, keys
from tests.unit_pages import register

FORECAST = "hrrr.20240101~conus~hrrr.t00z.wrfsfcf06.grib2"


@pytest.fixture
def catalogue(project: Path) -> None:
    """A ledger that has taken in some hundred objects."""
    told = []
    for index, (bucket, key) in enumerate(keys()):
        reading = REGISTRY.read("aws", bucket, key)
        told.append(entry(reading, Content(size=index), 1, None, DATASETS.get(reading.dataset)))
    with CommandSession().app() as app:
        app.store._database.write(lambda session: register(session, told, NOW_MS))


@pytest.mark.usefixtures("catalogue")
def test_search_prints_items(kfm: Callable[..., Any], valid: Callable[..., None]) -> None:
    """A FeatureCollection that pystac takes, lines of items, or a table; the rest is said beside it."""
    asked = ("--collection", "hrrr", "--datetime", "2024-01-01T20:00:00Z/..", "--limit", "3")
    done = kfm("catalogue", "search", *asked, "--json")
    valid("catalogue-search", done.document)
    found = [item.id for item in pystac.ItemCollection.from_dict(done.document)]
    assert found == [f"hrrr.20240101~conus~hrrr.t{hour}z.wrfsfcf06.grib2" for hour in (23, 22, 21)]
    assert done.err == "there are more than 3 items; --limit shows more of them\n"
    lines = kfm("catalogue", "search", *asked, "-o", "jsonl")
    assert [json.loads(line)["id"] for line in lines.out.splitlines()] == found
    text = kfm("catalogue", "search", *asked).out.splitlines()
    assert text[0].split() == ["COLLECTION", "DATETIME", "(UTC)", "FILES", "ITEM"]
    assert [line.split()[-1] for line in text[1:]] == found
    assert text[1].split()[:3] == ["hrrr", "2024-01-02T05:00:00Z", "2"]


@pytest.mark.usefixtures("catalogue")
def test_search_pages_through_everything(kfm: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is the reader's, not a page's."""
    monkeypatch.setattr("kfm.cli.catalogue._PAGE", 10)
    done = kfm("catalogue", "search", "--limit", "1000", "-o", "jsonl")
    ids = [json.loads(line)["id"] for line in done.out.splitlines()]
    assert len(ids) == len(set(ids)) == 226
    boxed = kfm("catalogue", "search", "--bbox", "-98,37,-97,38", "--collection", "nexrad-l2", "-o", "jsonl")
    assert {json.loads(line)["properties"]["platform"] for line in boxed.out.splitlines()} == {"KICT"}
    assert kfm("catalogue", "search", "--id", "none").out == "nothing was found\n"


@pytest.mark.usefixtures("catalogue")
def test_show_tells_collections_and_items(kfm: Callable[..., Any], valid: Callable[..., None]) -> None:
    """All collections, one of them, or one item with the addresses of its files, GDAL's included."""
    rows = kfm("catalogue", "show").out.splitlines()
    assert [row.split()[0] for row in rows[1:]] == ["ghcn-d", "goes-abi", "hrrr", "mine", "nexrad-l2"]
    for arguments in ((), ("hrrr",), ("hrrr", FORECAST), ("mine",)):
        valid("catalogue-show", kfm("catalogue", "show", *arguments, "--json").document)
    lines = kfm("catalogue", "show", "hrrr", FORECAST).out.splitlines()
    place = "noaa-hrrr-bdp-pds/hrrr.20240101/conus/hrrr.t00z.wrfsfcf06.grib2"
    assert f"    s3://{place}" in lines
    assert f"    /vsis3/{place}.idx" in lines
    assert "licence  CC0-1.0" in kfm("catalogue", "show", "hrrr").out


@pytest.mark.usefixtures("catalogue")
def test_export_writes_a_tree(kfm: Callable[..., Any], valid: Callable[..., None], project: Path) -> None:
    """What was written is told; a second time it is refused."""
    done = kfm("catalogue", "export", "out", "--format", "both", "--collection", "hrrr", "--json")
    valid("catalogue-export", done.document)
    assert (done.document["items"], done.document["collections"]) == (
        24,
        [{"collection": "hrrr", "items": 24}],
    )
    root = pystac.Catalog.from_file(str(project / "out" / "catalog.json"))
    assert len(list(root.get_items(recursive=True))) == 24
    assert (project / "out" / "hrrr" / "items.parquet").is_file()
    again = kfm("catalogue", "export", "out")
    assert (again.code, "is there already" in again.err) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("search", "--bbox", "1,2,3"), "`bbox` can't be used"),
        (("search", "--datetime", "yesterday"), "`datetime` can't be used"),
        (("search", "--limit", "0"), "--limit"),
        (("show", "hrr"), "no collection `hrr`"),
        (("show", "hrrr", "none"), "no item `none`"),
        (("export", "out", "--collection", "none"), "no collection `none`"),
        (("serve", "--host", "0.0.0.0"), "Other machines could read"),
        (("serve", "--host", "example.org"), "no address to listen on"),
        (("serve", "--port", "70000"), "--port"),
    ],
)
def test_mistakes_are_told_with_a_way_out(
    kfm: Callable[..., Any], arguments: tuple[str, ...], said: str
) -> None:
    """Exit code 2, what is wrong, and what to do; nothing on stdout."""
    done = kfm("catalogue", *arguments)
    assert (done.code, done.out) == (2, "")
    assert said in done.err
    assert "fix: " in done.err


def test_an_empty_catalogue_is_no_error(kfm: Callable[..., Any]) -> None:
    """Before anything was taken in."""
    assert kfm("catalogue", "show").out == "it is empty\n"
    assert kfm("catalogue", "search", "--json").document["features"] == []


@pytest.mark.usefixtures("catalogue")
@pytest.mark.parametrize(("how", "host"), [(signal.SIGTERM, "127.0.0.1"), (signal.SIGINT, "127.0.0.2")])
def test_serve_until_it_is_stopped(project: Path, how: signal.Signals, host: str) -> None:
    """Its address is on stderr, a client searches it, and a signal ends it in good order."""
    server = subprocess.Popen(
        [sys.executable, "-m", "kfm", "catalogue", "serve", "--port", "0", "--host", host],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    try:
        assert server.stderr is not None
        line = server.stderr.readline()
        assert line.startswith(f"serving http://{host}:"), line
        client = Client.open(line.split()[1].rstrip(";"))
        found = list(client.search(collections=["nexrad-l2"], bbox=[-98, 37, -97, 38], limit=5).items())
        assert len(found) == 24
        server.send_signal(how)
        out, err = server.communicate(timeout=20)
    finally:
        server.kill()
        server.wait()
    assert (server.returncode, out, err) == (0, "", "stopped\n")


@pytest.mark.req("GOV-3")
@pytest.mark.usefixtures("catalogue")
def test_where_people_are_declared_one_who_may_read_is_asked_for(project: Path) -> None:
    """The server that is for this machine alone asks for a token, too, if people have roles here."""
    token = "kfm-cy-0123456789abcdef0123456789abcdef"
    hashed = sha256(token.encode()).hexdigest()
    with (project / "kfm.yml").open("a") as file:
        file.write(f'people:\n  - {{subject: cy, roles: [read], tokens: ["sha256:{hashed}"]}}\n')
    server = subprocess.Popen(
        [sys.executable, "-m", "kfm", "catalogue", "serve", "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    try:
        assert server.stderr is not None
        address = server.stderr.readline().split()[1].rstrip(";")
        shown = {"Authorization": f"Bearer {token}"}
        assert httpx.get(address).status_code == 401
        assert httpx.get(address, headers={"Authorization": "Bearer other"}).status_code == 401
        assert httpx.get(address, headers=shown).status_code == 200
        assert httpx.get(address, headers={**shown, "Host": "rebound.example"}).status_code == 421
    finally:
        server.kill()
        server.communicate()
