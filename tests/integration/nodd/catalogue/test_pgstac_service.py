"""How the STAC API behaves that replicas are tested with: whatever writes to one stands on this."""

from __future__ import annotations

import json
import secrets
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest

Ask = Callable[..., tuple[int, Any]]


@pytest.fixture
def ask(pgstac_address: str) -> Ask:
    """One request by plain HTTP; gives the status and the body."""

    def answer(method: str, path: str, body: Any = None) -> tuple[int, Any]:
        request = urllib.request.Request(
            pgstac_address + path,
            data=None if body is None else json.dumps(body).encode(),
            method=method,
            headers={"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as response:
                status, data = response.status, response.read()
        except urllib.error.HTTPError as error:
            with error:
                status, data = error.code, error.read()
        try:
            return status, json.loads(data)
        except ValueError:
            return status, data.decode()

    return answer


@pytest.fixture
def collection(ask: Ask) -> str:
    """The id of a new, empty collection."""
    name = f"goes-{secrets.token_hex(6)}"
    body = {
        "type": "Collection",
        "stac_version": "1.1.0",
        "id": name,
        "description": "A collection for one test.",
        "license": "other",
        "extent": {
            "spatial": {"bbox": [[-180, -90, 180, 90]]},
            "temporal": {"interval": [["2017-01-01T00:00:00Z", None]]},
        },
        "links": [],
    }
    assert ask("PUT", f"/collections/{name}", body)[0] == 404  # PUT replaces, it does not create
    assert ask("POST", "/collections", body)[0] == 201
    assert ask("POST", "/collections", body)[0] == 409
    assert ask("PUT", f"/collections/{name}", body)[0] == 200
    return name


def _item(collection: str, name: str, revision: int, **changes: Any) -> dict[str, Any]:
    item = {
        "type": "Feature",
        "stac_version": "1.1.0",
        "stac_extensions": [],
        "id": name,
        "collection": collection,
        "geometry": {"type": "Point", "coordinates": [-97.3, 37.7]},
        "bbox": [-97.3, 37.7, -97.3, 37.7],
        "properties": {"datetime": "2026-03-01T00:00:00Z", "revision": revision},
        "links": [],
        "assets": {"data": {"href": f"s3://bucket/{name}", "roles": ["data"]}},
    }
    return {**item, **changes}


def _held(ask: Ask, collection: str) -> dict[str, int]:
    """Item → revision, as a search tells."""
    status, found = ask("POST", "/search", {"collections": [collection], "limit": 100})
    assert status == 200
    return {feature["id"]: feature["properties"]["revision"] for feature in found["features"]}


def test_an_item_is_created_replaced_and_deleted(ask: Ask, collection: str) -> None:
    """POST creates, PUT replaces, however often; PUT of an unknown and POST of a known item are refused."""
    items, one = f"/collections/{collection}/items", f"/collections/{collection}/items/one"
    assert ask("PUT", one, _item(collection, "one", 1))[0] == 404
    assert ask("POST", items, _item(collection, "one", 1))[0] == 201
    assert ask("POST", items, _item(collection, "one", 2))[0] == 409
    assert _held(ask, collection) == {"one": 1}
    assert ask("PUT", one, _item(collection, "one", 3))[0] == 200
    assert ask("PUT", one, _item(collection, "one", 3))[0] == 200
    status, told = ask("GET", one)
    assert (status, told["properties"]["revision"]) == (200, 3)
    assert told["assets"] == {"data": {"href": "s3://bucket/one", "roles": ["data"]}}
    assert ask("DELETE", one)[0] == 200
    assert ask("DELETE", one)[0] == 404
    assert ask("GET", one)[0] == 404
    assert ask("PUT", one, _item(collection, "one", 4))[0] == 404
    assert _held(ask, collection) == {}


def test_an_item_that_moves_in_time_stays_one(ask: Ask, collection: str) -> None:
    """A replaced item whose time has changed is not found twice."""
    assert ask("POST", f"/collections/{collection}/items", _item(collection, "one", 1))[0] == 201
    later = {"datetime": "2031-07-01T00:00:00Z", "revision": 2}
    moved = _item(collection, "one", 2, properties=later)
    assert ask("PUT", f"/collections/{collection}/items/one", moved)[0] == 200
    assert _held(ask, collection) == {"one": 2}


def test_many_items_at_once_are_all_or_nothing(ask: Ask, collection: str) -> None:
    """POST of many is refused whole if one is known; a bulk upsert takes known and unknown ones alike."""
    items = f"/collections/{collection}/items"
    bodies = [_item(collection, f"n{number}", 1) for number in range(3)]
    assert ask("POST", items, {"type": "FeatureCollection", "features": bodies[:2]}) == (201, "")
    assert ask("POST", items, {"type": "FeatureCollection", "features": bodies[1:]})[0] == 409
    assert _held(ask, collection) == {"n0": 1, "n1": 1}
    bulk = {f"n{number}": _item(collection, f"n{number}", 2) for number in (1, 2)}
    path = f"/collections/{collection}/bulk_items"
    status, told = ask("POST", path, {"items": bulk, "method": "upsert"})
    assert (status, told["success"]) == (200, 2)
    assert _held(ask, collection) == {"n0": 1, "n1": 2, "n2": 2}


@pytest.mark.parametrize("name", ["a:b", "a/b", "a+b", "a=b", "a,b"])
def test_some_characters_are_refused_in_ids(ask: Ask, collection: str, name: str) -> None:
    """An id with a character that has a meaning in an address is refused for good."""
    assert ask("POST", f"/collections/{collection}/items", _item(collection, name, 1))[0] == 400


def test_other_characters_are_taken_in_ids(ask: Ask, collection: str) -> None:
    """Dots, dashes, underscores and tildes are all right."""
    assert ask("POST", f"/collections/{collection}/items", _item(collection, "a.b_c-d~e", 1))[0] == 201
    assert ask("GET", f"/collections/{collection}/items/a.b_c-d~e")[0] == 200


def test_an_item_without_geometry_is_refused(ask: Ask, collection: str) -> None:
    """STAC allows an item without a place; this API does not."""
    nowhere = _item(collection, "one", 1, geometry=None)
    del nowhere["bbox"]
    assert ask("POST", f"/collections/{collection}/items", nowhere)[0] == 400


def test_an_item_of_an_unknown_collection_is_a_server_error(ask: Ask) -> None:
    """Not a 404: a writer creates the collection first, and may meet this after another person dropped it."""
    assert ask("POST", "/collections/absent/items", _item("absent", "one", 1))[0] == 500
    assert ask("PUT", "/collections/absent/items/one", _item("absent", "one", 1))[0] == 404
    assert ask("DELETE", "/collections/absent/items/one")[0] == 404
