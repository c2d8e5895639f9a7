"""RFC 7946 on staged bytes, and the bounding box."""

from __future__ import annotations

import io
import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfm.model.records import Asset
from kfm.publish.contract import bbox_of
from kfm.publish.contract.geojson import decimal_text
from tests.unit.publish.contract.staged import Slowly, check_files, contract_text, failed, find, table

RING = [[0, 0], [1, 0], [1, 1], [0, 1], [0, 0]]
CRS84 = {"type": "name", "properties": {"name": "urn:ogc:def:crs:OGC:1.3:CRS84"}}


def _feature(geometry: Any, **more: Any) -> dict[str, Any]:
    return {"type": "Feature", "properties": {}, "geometry": geometry, **more}


def _collection(*features: Any, **more: Any) -> bytes:
    return json.dumps({"type": "FeatureCollection", "features": list(features), **more}).encode()


def _failed(data: bytes, *, slowly: bool = False, **custom: Any) -> list[str]:
    text = contract_text(table(custom=custom))
    return failed(check_files(text, {"x.geojson": data}, slowly=slowly))


@pytest.mark.req("UPD-9")
@pytest.mark.parametrize(
    ("geometry", "check"),
    [
        ({"type": "Point", "coordinates": [-98.5, 38.5]}, None),
        ({"type": "Point", "coordinates": [180, -90, 300.5]}, None),
        ({"type": "Point", "coordinates": []}, None),
        ({"type": "MultiPoint", "coordinates": [[0, 0], [1, 1]]}, None),
        ({"type": "LineString", "coordinates": [[0, 0], [1, 1]]}, None),
        ({"type": "MultiLineString", "coordinates": [[[0, 0], [1, 1]]]}, None),
        ({"type": "Polygon", "coordinates": [RING]}, None),
        ({"type": "MultiPolygon", "coordinates": [[RING]]}, None),
        ({"type": "GeometryCollection", "geometries": [{"type": "Point", "coordinates": [0, 0]}]}, None),
        ({"type": "Polygon", "coordinates": [RING], "bbox": [0, 0, 1, 1]}, None),
        ({"type": "point", "coordinates": [0, 0]}, "structure"),
        ({"type": ["Point"], "coordinates": [0, 0]}, "structure"),
        ({"type": "Point"}, "structure"),
        ({"type": "Point", "coordinates": "0,0"}, "structure"),
        ({"type": "Point", "coordinates": [0]}, "positions"),
        ({"type": "Point", "coordinates": [0, 0, 0, 0]}, "positions"),
        ({"type": "Point", "coordinates": ["0", 0]}, "positions"),
        ({"type": "Point", "coordinates": [True, 0]}, "positions"),
        ({"type": "Point", "coordinates": [None, 0]}, "positions"),
        ({"type": "Point", "coordinates": [180.0001, 0]}, "positions"),
        ({"type": "Point", "coordinates": [0, -90.0001]}, "positions"),
        ({"type": "Point", "coordinates": [4286731.2, 1500000]}, "positions"),
        ({"type": "Point", "coordinates": [0, 0, 10**400]}, None),
        ({"type": "LineString", "coordinates": [[0, 0]]}, "structure"),
        ({"type": "LineString", "coordinates": [0, 0]}, "positions"),
        ({"type": "Polygon", "coordinates": RING}, "positions"),
        ({"type": "Polygon", "coordinates": [RING[:4]]}, "rings"),
        ({"type": "Polygon", "coordinates": [[[0, 0], [1, 1], [0, 0]]]}, "rings"),
        ({"type": "MultiPolygon", "coordinates": [RING]}, "positions"),
        ({"type": "GeometryCollection"}, "structure"),
        ({"type": "GeometryCollection", "geometries": [7]}, "structure"),
        ({"type": "Polygon", "coordinates": [RING], "bbox": [0, 0, 1]}, "bbox"),
        ("Point", "structure"),
        (None, "null"),
    ],
)
def test_geometries(geometry: Any, check: str | None) -> None:
    """Each rule of the standard is a check of its own."""
    expected = [] if check is None else [f"geojson.{check}:t"]
    assert _failed(_collection(_feature(geometry))) == expected
    assert _failed(_collection(_feature(geometry)), slowly=True) == expected


@pytest.mark.req("UPD-9")
@pytest.mark.parametrize(
    ("data", "check"),
    [
        (_collection(), None),
        (json.dumps(_feature(None)).encode(), "geojson.null:t"),
        (json.dumps({"type": "Point", "coordinates": [0, 0]}).encode(), None),
        (b'{"features": [], "type": "FeatureCollection"}', None),
        (_collection(crs=CRS84), None),
        (_collection(crs={"type": "name", "properties": {"name": "EPSG:4326"}}), "geojson.crs:t"),
        (_collection(crs=None), "geojson.crs:t"),
        (_collection(bbox=[-102, 37, -94, 40]), None),
        (_collection(bbox=[170, -10, -170, 10]), None),
        (_collection(bbox=[0, 10, 1, -10]), "geojson.bbox:t"),
        (_collection(bbox="0,0,1,1"), "geojson.bbox:t"),
        (_collection(_feature(None, bbox=[0, 0, 0, 1, 1])), "geojson.bbox:t"),
        (_collection({"type": "Feature", "properties": {}}), "geojson.structure:t"),
        (_collection({"type": "Feature", "geometry": None, "properties": []}), "geojson.structure:t"),
        (_collection({"type": "Feature", "geometry": None}), "geojson.structure:t"),
        (_collection(3), "geojson.structure:t"),
        (_collection(_feature({"type": "Point", "coordinates": [0, 0]}, id={})), "geojson.structure:t"),
        (b'{"type": "FeatureCollection", "features": {}}', "schema.readable:t"),
        (b'{"type": "FeatureCollection"}', "schema.readable:t"),
        (b'{"type": "Topology"}', "schema.readable:t"),
        (b"[]", "schema.readable:t"),
        (b"{}", "schema.readable:t"),
    ],
)
def test_documents(data: bytes, check: str | None) -> None:
    """The document around the features has rules too."""
    assert _failed(data, slowly=True) == ([] if check is None else [check])


def test_null_geometries_may_be_allowed() -> None:
    """Features without a place are allowed where the contract says so."""
    assert _failed(_collection(_feature(None)), kfmNullGeometry="allow") == []


def test_winding_is_off_unless_asked_for() -> None:
    """The right-hand rule is ignored, warned about or enforced, as the contract says."""
    data = _collection(_feature({"type": "Polygon", "coordinates": [RING[::-1]]}))
    assert _failed(data) == []
    assert _failed(data, kfmWinding="refuse") == ["geojson.winding:t"]
    text = contract_text(table(custom={"kfmWinding": "warn"}))
    report = check_files(text, {"x.geojson": data})
    assert find(report, "geojson.winding:t").detail.startswith("Warning only: ")
    hole = {"type": "Polygon", "coordinates": [RING, RING[::-1]]}
    assert _failed(_collection(_feature(hole)), kfmWinding="refuse") == []


@pytest.mark.req("UPD-9")
def test_properties_of_features_are_columns() -> None:
    """Members of `properties` are columns; id and geometry can be named as well."""
    text = contract_text(
        table(
            {"name": "name", "logicalType": "string", "required": True},
            {"name": "id", "logicalType": "string", "unique": True},
            {"name": "geometry", "logicalType": "object"},
        )
    )
    point = {"type": "Point", "coordinates": [0, 0]}
    good = _feature(point, id="1", properties={"name": "a"})
    assert failed(check_files(text, {"x.geojson": _collection(good)})) == []
    bad = _feature(point, id="1", properties={"name": None, "more": 1})
    assert failed(check_files(text, {"x.geojson": _collection(good, bad)})) == [
        "schema.columns.extra:t",
        "schema.column.required:name",
        "schema.column.unique:id",
    ]


# --- the bounding box


def _bbox(*files: bytes, name: str = "x.geojson") -> Any:
    assets = [
        Asset(path=f"{index}/{name}", sha256=str(index), size=len(data), media_type="")
        for index, data in enumerate(files)
    ]
    return bbox_of(assets, lambda sha256: Slowly(files[int(sha256)]))


def test_bbox_of_all_files() -> None:
    """West, south, east, north over all geometries of all GeoJSON files, as decimal text."""
    one = _collection(_feature({"type": "Polygon", "coordinates": [RING]}), _feature(None))
    nested = {"type": "GeometryCollection", "geometries": [{"type": "Point", "coordinates": [-98.125, 1e-7]}]}
    assert _bbox(one, _collection(_feature(nested))) == ("-98.125", "0", "1", "1")
    assert _bbox(_collection(_feature({"type": "Point", "coordinates": [1e-7, -1e-10, 9]}))) == (
        "0.0000001",
        "-0.0000000001",
        "0.0000001",
        "-0.0000000001",
    )


def test_no_bbox_without_trust() -> None:
    """Nothing to measure, or something broken, gives no box rather than a wrong one."""
    assert _bbox() is None
    assert _bbox(_collection()) is None
    assert _bbox(b"a,b\n", name="x.csv") is None
    good = _collection(_feature({"type": "Point", "coordinates": [0, 0]}))
    for bad in (b"{", b"\xff", _collection(_feature({"type": "Point", "coordinates": [999, 0]}))):
        assert _bbox(good, bad) is None


@given(st.floats(-180, 180) | st.integers(-180, 180))
def test_decimal_text_is_exact_and_plain(number: float) -> None:
    """The text means exactly the number, has no exponent and no needless zeros."""
    text = decimal_text(number)
    assert float(text) == number
    assert "e" not in text.lower()
    assert text == "0" or not text.startswith("-0") or text.startswith("-0.")
    assert "." not in text or not text.endswith("0")
    assert Decimal(text) == Decimal(repr(number))


def test_readers_are_closed() -> None:
    """Every opened object is closed, good or bad."""
    opened: list[io.BytesIO] = []

    def open_object(_sha256: str) -> io.BytesIO:
        opened.append(io.BytesIO(b"{"))
        return opened[-1]

    bbox_of([Asset(path="x.geojson", sha256="0", size=1, media_type="")], open_object)
    assert opened[0].closed
