"""The STAC API over a socket, asked by a client that is not ours."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pystac
import pytest
from pystac_client import Client

from kfm.model.catalogue import Search
from kfm.model.errors import BackendUnavailable
from kfm.nodd.catalogue.geometry import Shape
from kfm.web.stac import CONFORMS_TO, stac_app
from tests.catalogue_model import ModelCatalogue, matches
from tests.catalogue_samples import DATASETS, sample_catalogue
from tests.catalogue_server import serving
from tests.stac_checks import problems

KANSAS = {"type": "Polygon", "coordinates": [[[-102, 37], [-94.6, 37], [-94.6, 40], [-102, 40], [-102, 37]]]}
# Its box holds KDDC and KICT, of which the triangle itself holds KDDC only.
TRIANGLE = {"type": "Polygon", "coordinates": [[[-102, 37], [-97, 37], [-102, 40], [-102, 37]]]}
DAY_MS = 1_704_067_200_000
WEB = httpx.Client(verify=False, timeout=30)  # one for all: making it takes longer than a request


@pytest.fixture(scope="module")
def model() -> ModelCatalogue:
    return sample_catalogue()


@pytest.fixture(scope="module")
def address(model: ModelCatalogue) -> Iterator[str]:
    with serving(stac_app(model.open, DATASETS)) as url:
        yield url


@pytest.fixture(scope="module")
def client(address: str) -> Client:
    return Client.open(address)


def expected(model: ModelCatalogue, search: Search, shape: Shape | None = None) -> list[str]:
    fitting = [
        each
        for each in model.visible()
        if matches(each, search) and (shape is None or (each.bbox is not None and shape.touches(each.bbox)))
    ]
    fitting.sort(key=lambda each: (each.at_ms, each.number), reverse=True)
    return [each.item_id for each in fitting]


SEARCHES: dict[str, tuple[dict[str, Any], Search]] = {
    "everything": ({}, Search()),
    "a box": ({"bbox": [-98, 37, -97, 38]}, Search(bbox=(-98.0, 37.0, -97.0, 38.0))),
    "over the antimeridian": ({"bbox": [179, -1, -179, 1]}, Search(bbox=(179.0, -1.0, -179.0, 1.0))),
    "a time": (
        {"datetime": "2024-01-01T06:00:00Z"},
        Search(from_ms=DAY_MS + 21_600_000, until_ms=DAY_MS + 21_600_000),
    ),
    "a range": (
        {"datetime": "2024-01-01T03:00:00Z/2024-01-01T06:01:23Z"},
        Search(from_ms=DAY_MS + 10_800_000, until_ms=DAY_MS + 21_683_000),
    ),
    "until": ({"datetime": "../1995-06-01T00:00:00Z"}, Search(until_ms=801_964_800_000)),
    "collections": ({"collections": ["hrrr", "mine", "none"]}, Search(collections=("hrrr", "mine", "none"))),
    "ids": (
        {"ids": ["KICT20240101_000123_V06", "nothing"]},
        Search(ids=("KICT20240101_000123_V06", "nothing")),
    ),
    "all of it": (
        {
            "collections": ["nexrad-l2"],
            "bbox": [-102, 37, -94.6, 40],
            "datetime": "2024-01-01T12:00:00Z/..",
        },
        Search(collections=("nexrad-l2",), bbox=(-102.0, 37.0, -94.6, 40.0), from_ms=DAY_MS + 43_200_000),
    ),
    "nothing": ({"collections": ["none"]}, Search(collections=("none",))),
}


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("name", SEARCHES)
def test_a_client_finds_exactly_what_there_is(
    client: Client, model: ModelCatalogue, name: str, method: str
) -> None:
    """Page by page, by GET and by POST: none is missing, none comes twice, the newest are first."""
    asked, search = SEARCHES[name]
    wanted = expected(model, search)
    limit = max(1, len(wanted) // 5)
    pages = list(client.search(method=method, limit=limit, **asked).pages())
    found = [item.id for page in pages for item in page.items]
    assert found == wanted
    assert len(pages) > 3 or len(wanted) < 4


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("geometry", [KANSAS, TRIANGLE], ids=["box", "triangle"])
def test_a_client_finds_what_lies_in_a_shape(
    client: Client, model: ModelCatalogue, geometry: dict[str, Any], method: str
) -> None:
    """A shape is more than its box."""
    found = [item.id for item in client.search(method=method, intersects=geometry, limit=10).items()]
    assert found == expected(model, Search(), Shape(geometry))
    radars = {each[:4] for each in found if each.startswith("K")}
    assert radars == ({"KDDC", "KICT"} if geometry is KANSAS else {"KDDC"})


def test_a_client_walks_the_catalogue(client: Client, model: ModelCatalogue) -> None:
    """Collections with their extents; their items; one item by its id; no warning about conformance."""
    collections = {each.id: each for each in client.get_collections()}
    figures = {each.collection_id: each for each in model.collections()}
    assert collections.keys() == figures.keys()
    for name, collection in collections.items():
        assert problems(collection.to_dict(transform_hrefs=False)) == []
        items = list(collection.get_items())
        assert len(items) == figures[name].items
        one = client.get_collection(name).get_item(items[-1].id)
        assert one is not None
        one.links, items[-1].links = [], []  # the client decorates them
        assert one.to_dict() == items[-1].to_dict()
    assert client.get_collection("hrrr").get_item("none") is None
    assert set(client.get_conforms_to()) == set(CONFORMS_TO)


def test_every_item_is_valid(address: str) -> None:
    """As it is served, by the public schemas; its own address leads to it."""
    page = WEB.get(f"{address}/search?limit=1000").json()
    assert page["numberReturned"] == len(page["features"]) > 200
    for document in page["features"]:
        assert problems(document) == []
    links = {each["rel"]: each["href"] for each in page["features"][0]["links"]}
    assert WEB.get(links["self"]).json() == page["features"][0]
    assert pystac.ItemCollection.from_dict(page)


@pytest.mark.parametrize(
    ("path", "media_type"),
    [
        ("/", "application/json"),
        ("/conformance", "application/json"),
        ("/collections", "application/json"),
        ("/collections/hrrr", "application/json"),
        ("/collections/hrrr/items", "application/geo+json"),
        ("/search", "application/geo+json"),
        ("/api", "application/vnd.oai.openapi+json;version=3.0"),
        ("/livez", "application/json"),
        ("/readyz", "application/json"),
    ],
)
def test_pages(address: str, path: str, media_type: str) -> None:
    """Each has its type; HEAD gives the same headers without a body; no other site may read it."""
    got = WEB.get(address + path, headers={"origin": "https://example.org"})
    assert (got.status_code, got.headers["content-type"]) == (200, media_type)
    assert "access-control-allow-origin" not in got.headers
    head = WEB.head(address + path)
    assert (head.status_code, head.headers["content-length"], head.content) == (
        200,
        str(len(got.content)),
        b"",
    )


def test_the_description_names_what_is_there(address: str) -> None:
    """Every path of the OpenAPI document answers, and every parameter in it is understood."""
    document = WEB.get(f"{address}/api").json()
    for path, methods in document["paths"].items():
        there = path.replace("{collectionId}", "hrrr").replace(
            "{itemId}", "hrrr.20240101~conus~hrrr.t00z.wrfsfcf06.grib2"
        )
        assert WEB.get(address + there).status_code == 200
        for parameter in methods["get"]["parameters"]:
            if parameter["in"] == "query":
                answered = WEB.get(address + there, params={parameter["name"]: "?"})
                assert "is not a parameter here" not in answered.text


BAD = [
    "/search?bbox=1,2,3",
    "/search?bbox=a,b,c,d",
    "/search?bbox=0,0,0,91",
    "/search?bbox=",
    "/search?bbox=0,0,1,1&intersects=%7B%7D",
    "/search?intersects=x",
    "/search?intersects=%7B%22type%22:%22Point%22%7D",
    "/search?datetime=yesterday",
    "/search?datetime=../..",
    "/search?datetime=2024-01-02T00:00:00Z/2024-01-01T00:00:00Z",
    "/search?limit=0",
    "/search?limit=10001",
    "/search?limit=x",
    "/search?limit=1&limit=2",
    "/search?token=x",
    "/search?ids=" + ",".join(["x"] * 1001),
    "/search?ids=a,,b",
    "/search?collections=" + "x" * 300,
    "/search?query=%7B%7D",
    "/collections/hrrr/items?bbox=1",
    "/collections/hrrr/items?collections=nexrad-l2",
    "/collections/hrrr/items?intersects=%7B%7D",
    "/collections?x=1",
    "/?x=1",
]


@pytest.mark.parametrize("path", BAD)
def test_bad_queries_are_told_so(address: str, path: str) -> None:
    """400 with a problem that names what is wrong, never 500 and never a guess."""
    got = WEB.get(address + path)
    assert (got.status_code, got.headers["content-type"]) == (400, "application/problem+json")
    assert {"type", "title", "status", "detail"} <= got.json().keys()


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"[]", 400),
        (b"{", 400),
        (b"\xff", 400),
        (b"[" * 100_000, 400),
        (b'{"bbox": "1,2,3,4"}', 400),
        (b'{"bbox": [1, 2, 3, "x"]}', 400),
        (b'{"limit": "1.5"}', 400),
        (b'{"limit": 1e3}', 400),
        (b'{"datetime": 5}', 400),
        (b'{"collections": "hrrr"}', 400),
        (b'{"ids": [1]}', 400),
        (b'{"token": 7}', 400),
        (b'{"intersects": [1]}', 400),
        (b'{"filter": {}}', 400),
        (b'{"ids": ["' + b"x" * (1 << 20) + b'"]}', 413),
    ],
)
def test_bad_bodies_are_told_so(address: str, body: bytes, status: int) -> None:
    """The same for searches that are posted; too large a body is not read to its end."""
    got = WEB.post(f"{address}/search", content=body, headers={"content-type": "application/json"})
    assert (got.status_code, got.headers["content-type"]) == (status, "application/problem+json")


def test_what_is_not_there_and_what_is_not_done(address: str) -> None:
    """404 for the unknown, 405 for whatever would change something, 415 for what is not JSON."""
    for path in ("/nothing", "/collections/none", "/collections/none/items", "/collections/hrrr/items/none"):
        assert WEB.get(address + path).status_code == 404
    for method in ("PUT", "DELETE", "PATCH"):
        assert WEB.request(method, f"{address}/search").status_code == 405
    assert WEB.post(f"{address}/collections", json={}).status_code == 405
    assert WEB.post(f"{address}/collections/hrrr/items", json={}).status_code == 405
    assert (
        WEB.post(f"{address}/search", content=b"{}", headers={"content-type": "text/plain"}).status_code
        == 415
    )
    assert WEB.options(f"{address}/search").status_code == 405


@pytest.mark.parametrize("host", ["example.org", "127.0.0.1.example.org", "localhost:80x", "", "[::1]:1:2"])
def test_it_answers_to_names_of_this_machine_only(address: str, host: str) -> None:
    """A page elsewhere can't read it under a name that it makes lead here."""
    assert WEB.get(address, headers={"host": host}).status_code in (400, 421)
    assert WEB.get(address, headers={"host": "localhost:9999"}).status_code == 200


def test_others_may_read_it_only_where_that_is_wanted(model: ModelCatalogue) -> None:
    """With origins that are allowed, their pages may."""
    with serving(stac_app(model.open, DATASETS, allow_origins=["https://example.org"])) as url:
        got = WEB.get(url, headers={"origin": "https://example.org"})
        other = WEB.get(url, headers={"origin": "https://example.com"})
    assert got.headers["access-control-allow-origin"] == "https://example.org"
    assert "access-control-allow-origin" not in other.headers


@pytest.mark.parametrize(
    ("error", "status"), [(BackendUnavailable("secret"), 503), (ValueError("secret"), 500)]
)
def test_trouble_is_told_without_its_details(
    error: Exception, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A store that fails is 503 with a time to come back, a defect is 500; what it was is logged only."""

    @contextmanager
    def broken() -> Iterator[ModelCatalogue]:
        raise error
        yield  # type: ignore[unreachable]

    with serving(stac_app(broken, DATASETS)) as url:
        got = WEB.get(f"{url}/search")
        assert WEB.get(f"{url}/livez").status_code == 200
        assert WEB.get(f"{url}/readyz").status_code == status
    assert (got.status_code, "secret" in got.text) == (status, False)
    assert ("retry-after" in got.headers) is (status == 503)
    assert "secret" in caplog.text
    assert {record.levelname for record in caplog.records if record.name.startswith("kfm")} == {"ERROR"}


def test_a_next_page_is_asked_for_in_the_same_way(address: str) -> None:
    """By GET the link has all parameters; by POST the whole body, to be sent as it is."""
    asked = {"collections": ["hrrr"], "bbox": [-100, 30, -90, 40], "limit": 2}
    posted = WEB.post(f"{address}/search", json=asked).json()
    (link,) = (each for each in posted["links"] if each["rel"] == "next")
    assert (link["method"], link["merge"]) == ("POST", False)
    assert {**link["body"], "token": None} == {**asked, "token": None}
    got = WEB.get(f"{address}/search?collections=hrrr&bbox=-100,30,-90,40&limit=2").json()
    (other,) = (each for each in got["links"] if each["rel"] == "next")
    second = WEB.post(
        link["href"], content=json.dumps(link["body"]), headers={"content-type": "application/json"}
    )
    assert second.json()["features"] == WEB.get(other["href"]).json()["features"]
    assert len(second.json()["features"]) == 2
