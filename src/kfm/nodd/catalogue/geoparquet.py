"""stac-geoparquet: the items of a collection as one Parquet file (extra `parquet`)."""

from __future__ import annotations

import contextlib
import json
import os
import struct
from collections.abc import Mapping
from typing import Any

import msgspec

from kfm.model.errors import ExtraMissing

GEO_VERSION = "1.1.0"
STAC_GEOPARQUET_VERSION = "1.0.0"
ROW_GROUP_ROWS = 20_000
TIMES = frozenset(("datetime", "start_datetime", "end_datetime", "created", "updated"))
_EDGES = ("xmin", "ymin", "xmax", "ymax")
_WKB = {"Point": 1, "Polygon": 3, "MultiPolygon": 6}
_FIRST = ("id", "collection", "geometry", "bbox", "datetime", "start_datetime", "end_datetime")


class ItemTable:
    """Collects rendered items, then writes them as a table."""

    def __init__(self, spool: str) -> None:
        try:
            import arro3.core
            import arro3.io  # noqa: F401 - to fail now, not when everything is spooled
        except ImportError:
            raise ExtraMissing(
                "stac-geoparquet is written with the extra `parquet`.",
                remedy="pip install 'kfm-kernel[parquet]', or export with --format static.",
            ) from None
        self._spool = spool
        self._file = open(spool, "xb")  # noqa: SIM115 - closed by `close`
        self._kinds: dict[str, Kind] = {}
        self._times = {"datetime"}  # always a column, as STAC always has it
        self._geometry_types: set[str] = set()

    def add(self, item: Mapping[str, Any]) -> None:
        """One rendered item. Its properties become columns of their own."""
        row = {name: value for name, value in item.items() if name not in ("properties", "bbox", "geometry")}
        row |= {name: value for name, value in item["properties"].items() if value is not None}
        for name, value in row.items():
            if name in TIMES:
                self._times.add(name)
            else:
                self._kinds[name] = merged(self._kinds.get(name), kind_of(value))
        if item["geometry"] is not None:
            self._geometry_types.add(item["geometry"]["type"])
            row["geometry"] = wkb(item["geometry"]).hex()
            row["bbox"] = dict(zip(_EDGES, item["bbox"], strict=True))
        self._file.write(msgspec.json.encode(row) + b"\n")

    def write(self, path: str, collection: Mapping[str, Any]) -> None:
        from arro3.io import read_json, write_parquet

        self._file.flush()
        odd = {name for name, kind in self._kinds.items() if is_mixed(kind)}
        if odd:
            self._as_text(odd)
            self._kinds |= dict.fromkeys(odd, "text")
        metadata = {
            "geo": json.dumps(self._geo()),
            "stac-geoparquet": json.dumps(
                {"version": STAC_GEOPARQUET_VERSION, "collections": {collection["id"]: collection}}
            ),
        }
        with open(path, "xb") as file:
            write_parquet(
                read_json(self._spool, self._schema(), batch_size=1024),
                file,
                compression="zstd(3)",
                max_row_group_size=ROW_GROUP_ROWS,
                key_value_metadata=metadata,
            )

    def close(self) -> None:
        self._file.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._spool)

    def _as_text(self, odd: set[str]) -> None:
        """Columns whose values are of several kinds hold them as JSON."""
        self._file.close()
        rewritten = f"{self._spool}.new"
        with open(self._spool, "rb") as lines, open(rewritten, "xb") as out:
            for line in lines:
                row = msgspec.json.decode(line)
                row |= {name: msgspec.json.encode(row[name]).decode() for name in odd & row.keys()}
                out.write(msgspec.json.encode(row) + b"\n")
        os.replace(rewritten, self._spool)

    def _schema(self) -> Any:
        from arro3.core import DataType, Field, Schema

        edges = [Field(edge, DataType.float64(), nullable=True) for edge in _EDGES]
        types: dict[str, Any] = {
            "geometry": DataType.binary(),
            "bbox": DataType.struct(edges),
            **{name: DataType.timestamp("ms", tz="UTC") for name in self._times},
            **{name: arrow_type(kind) for name, kind in self._kinds.items() if has_values(kind)},
        }
        order = [*(name for name in _FIRST if name in types), *sorted(types.keys() - set(_FIRST))]
        wkb_mark = {"ARROW:extension:name": "geoarrow.wkb"}
        return Schema(
            [
                Field(name, types[name], nullable=True, metadata=wkb_mark if name == "geometry" else None)
                for name in order
            ]
        )

    def _geo(self) -> dict[str, Any]:
        """No `crs` means longitude and latitude on WGS 84."""
        return {
            "version": GEO_VERSION,
            "primary_column": "geometry",
            "columns": {
                "geometry": {
                    "encoding": "WKB",
                    "geometry_types": sorted(self._geometry_types),
                    "covering": {"bbox": {edge: ["bbox", edge] for edge in _EDGES}},
                }
            },
        }


def wkb(geometry: Mapping[str, Any]) -> bytes:
    """Well-known binary, little-endian, of the geometries that items have."""
    kind, parts = geometry["type"], geometry["coordinates"]
    head = struct.pack("<BI", 1, _WKB[kind])
    if kind == "Point":
        return head + struct.pack("<2d", *parts[:2])
    if kind == "Polygon":
        rings = (
            struct.pack("<I", len(ring)) + b"".join(struct.pack("<2d", *position[:2]) for position in ring)
            for ring in parts
        )
        return head + struct.pack("<I", len(parts)) + b"".join(rings)
    polygons = (wkb({"type": "Polygon", "coordinates": part}) for part in parts)
    return head + struct.pack("<I", len(parts)) + b"".join(polygons)


# None: only nulls so far. "mixed": no column can hold all of them.
Kind = str | dict[str, Any] | list[Any] | None


def kind_of(value: object) -> Kind:
    """A text's kind is `text`, an object's is a dict of its fields' kinds, a list's a list of one kind."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "int" if -(2**63) <= value < 2**63 else "float"
    if isinstance(value, float):
        return "float"
    if isinstance(value, str):
        return "text"
    if isinstance(value, dict):
        return {str(name): kind_of(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        inner: Kind = None
        for each in value:
            inner = merged(inner, kind_of(each))
        return [inner]
    return "mixed"


def merged(one: Kind, other: Kind) -> Kind:
    """The kind that holds both."""
    if one == other or other is None:
        return one
    if one is None:
        return other
    if isinstance(one, dict) and isinstance(other, dict):
        return {name: merged(one.get(name), other.get(name)) for name in {**one, **other}}
    if isinstance(one, list) and isinstance(other, list):
        return [merged(one[0], other[0])]
    if isinstance(one, str) and isinstance(other, str) and {one, other} == {"int", "float"}:
        return "float"
    return "mixed"


def is_mixed(kind: Kind) -> bool:
    """Is there anything within that no column can hold?"""
    if isinstance(kind, dict):
        return any(map(is_mixed, kind.values()))
    if isinstance(kind, list):
        return is_mixed(kind[0])
    return kind == "mixed"


def has_values(kind: Kind) -> bool:
    """Was there ever more than nulls? What was not, gets no column."""
    return any(map(has_values, kind.values())) if isinstance(kind, dict) else kind is not None


def arrow_type(kind: Kind) -> Any:
    from arro3.core import DataType, Field

    if isinstance(kind, list):
        return DataType.list(Field("item", arrow_type(kind[0]), nullable=True))
    if isinstance(kind, dict):
        known = [(name, each) for name, each in kind.items() if has_values(each)]
        return DataType.struct([Field(name, arrow_type(each), nullable=True) for name, each in known])
    plain = {"bool": DataType.bool, "int": DataType.int64, "float": DataType.float64}
    return plain[kind]() if kind in plain else DataType.utf8()
