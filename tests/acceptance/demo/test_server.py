"""The demo's upstream: invented data that is well-formed, and misbehaviour only when it is asked for."""

from __future__ import annotations

import csv
import http.client
import io
import json
import sys
from collections.abc import Iterator
from datetime import date
from itertools import pairwise
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.acceptance.demo.conftest import DEMO


@pytest.fixture(scope="module")
def modules() -> Iterator[tuple[ModuleType, ModuleType]]:
    """The demo's `kansas` and `server`, which stand in no package."""
    sys.path.insert(0, str(DEMO))
    try:
        import kansas  # type: ignore[import-not-found,unused-ignore]
        import server  # type: ignore[import-not-found,unused-ignore]

        yield kansas, server
    finally:
        sys.path.remove(str(DEMO))
        for name in ("kansas", "server"):
            sys.modules.pop(name, None)


@pytest.fixture
def upstream(modules: tuple[ModuleType, ModuleType]) -> Iterator[tuple[Any, str]]:
    server = modules[1]
    provider = server.Provider()
    with server.serving(provider, port=0) as address:
        yield provider, address


def _ask(address: str, target: str, method: str = "GET", **headers: str) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=10)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, target, headers=named)
    return connection.getresponse()


def test_the_data_is_the_same_every_time(modules: tuple[ModuleType, ModuleType]) -> None:
    """Nothing in it comes from a clock or from chance."""
    kansas = modules[0]
    day = date(2026, 3, 14)
    assert kansas.streamflow(day) == kansas.streamflow(day)
    assert kansas.rainfall.__wrapped__(day) == kansas.rainfall.__wrapped__(day)
    assert kansas.streamflow(day) != kansas.streamflow(date(2026, 3, 15))


def test_readings_have_their_columns(modules: tuple[ModuleType, ModuleType]) -> None:
    """Twelve gauges, a reading each quarter of an hour, times with their offset."""
    rows = list(csv.DictReader(io.StringIO(modules[0].streamflow(date(2026, 3, 14)).decode())))
    assert list(rows[0]) == ["site_no", "datetime", "discharge_cfs", "gage_height_ft", "qualifier"]
    assert len(rows) == 12 * 96
    assert len({row["site_no"] for row in rows}) == 12
    assert all(row["datetime"].endswith("-05:00") and float(row["discharge_cfs"]) > 0 for row in rows)


def test_counties_follow_rfc_7946(modules: tuple[ModuleType, ModuleType]) -> None:
    """Rings are closed and counter-clockwise."""
    collection = json.loads(modules[0].counties())
    assert collection["type"] == "FeatureCollection"
    assert len(collection["features"]) >= 5
    for feature in collection["features"]:
        (ring,) = feature["geometry"]["coordinates"]
        assert ring[0] == ring[-1]
        area = sum(a[0] * b[1] - b[0] * a[1] for a, b in pairwise(ring))
        assert area > 0


def test_the_grid_is_what_its_header_says(modules: tuple[ModuleType, ModuleType]) -> None:
    """An ESRI ASCII grid with as many rows and columns as it announces."""
    lines = modules[0].rainfall(date(2026, 3, 14)).decode().splitlines()
    header = dict(line.split() for line in lines[:6])
    assert list(header) == ["ncols", "nrows", "xllcorner", "yllcorner", "cellsize", "NODATA_value"]
    assert len(lines) - 6 == int(header["nrows"])
    assert {len(line.split()) for line in lines[6:]} == {int(header["ncols"])}


def test_pages_lead_to_each_other(upstream: tuple[Any, str]) -> None:
    """Following `next` gives every gauge once."""
    target: str | None = "/api/gauges"
    sites = []
    while target:
        page = json.loads(_ask(upstream[1], target).read())
        sites += [gauge["site_no"] for gauge in page["gauges"]]
        target = page["next"]
    assert len(sites) == len(set(sites)) == 12


def test_validators_and_ranges(upstream: tuple[Any, str]) -> None:
    """A known ETag is answered with 304; the rest of a file comes with 206, of another file never."""
    address = upstream[1]
    whole = _ask(address, "/counties.geojson")
    body, etag = whole.read(), whole.headers["ETag"]
    assert _ask(address, "/counties.geojson", If_None_Match=etag).status == 304
    rest = _ask(address, "/counties.geojson", Range="bytes=100-", If_Range=etag)
    assert (rest.status, rest.read()) == (206, body[100:])
    other = _ask(address, "/counties.geojson", Range="bytes=100-", If_Range='"other"')
    assert (other.status, other.read()) == (200, body)


def test_misbehaviour_is_used_up(upstream: tuple[Any, str], modules: tuple[ModuleType, ModuleType]) -> None:
    """Each fault is met by one request: busy, cut, then well-behaved."""
    provider, address = upstream
    fault = modules[1].Fault
    provider.misbehave("/counties.geojson", fault("busy", seconds=7), fault("cut", after=50))
    busy = _ask(address, "/counties.geojson", "HEAD")
    assert (busy.status, busy.headers["Retry-After"]) == (503, "7")
    with pytest.raises((http.client.IncompleteRead, ConnectionResetError)):
        _ask(address, "/counties.geojson").read()
    assert _ask(address, "/counties.geojson").status == 200
    assert [heard.odd for heard in provider.heard] == [True, True, False]


def test_only_this_machine_can_reach_it(upstream: tuple[Any, str]) -> None:
    """It listens on the loopback address alone."""
    assert urlsplit(upstream[1]).hostname == "127.0.0.1"


def test_nonsense_is_not_found(upstream: tuple[Any, str]) -> None:
    """A day that is none, or a path that is none, is 404 and no crash."""
    for target in ("/streamflow.csv", "/streamflow.csv?date=yesterday", "/api/gauges?page=x", "/else"):
        assert _ask(upstream[1], target).status == 404
