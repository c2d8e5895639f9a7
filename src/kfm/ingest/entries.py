"""What the catalogue is told of one object: from its key, its announcement, and a look at it where one was taken.

This runs once for each unit, so whatever repeats from object to object is made once.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from kfm.core.catalogue import AssetFacts, Bbox, Entry
from kfm.core.records import Record
from kfm.core.times import rfc3339
from kfm.core.wal import Content
from kfm.ingest.geometry import Box, Footprint
from kfm.ingest.grammar import Dataset, Reading
from kfm.ingest.object_keys import quoted_uri

_LEVEL = re.compile(r"-(L\d[a-z]?)-")
_LICENCE = re.compile(r"[A-Za-z0-9.+-]+\Z")
_ABOUT_THE_MESSAGE = "EVENT_TIME_"  # doubts about an announcement are none about the data
OCTETS = "application/octet-stream"
# By the end of a file's name. Many names have none that means anything: then the dataset's own type holds.
MEDIA_TYPES = {
    "bz2": "application/x-bzip2",
    "csv": "text/csv",
    "fits": "application/fits",
    "grb2": "application/wmo-GRIB2",
    "grib2": "application/wmo-GRIB2",
    "gz": "application/gzip",
    "h5": "application/x-hdf5",
    "idx": "text/plain",
    "json": "application/json",
    "nc": "application/netcdf",
    "parquet": "application/vnd.apache.parquet",
    "pdf": "application/pdf",
    "tar": "application/x-tar",
    "tif": "image/tiff; application=geotiff",
    "txt": "text/plain",
    "xml": "application/xml",
    "zip": "application/zip",
}


class Looked(Record, frozen=True):
    """What was found in an object's bytes or header. Only what was looked for is there."""

    checksum: str | None = None  # sha256:HEX of all bytes
    start_ms: int | None = None
    end_ms: int | None = None
    footprint: Footprint | None = None
    suspect: tuple[str, ...] = ()
    disagreements: dict[str, Any] = {}  # field → {"key": …, "header": …}
    properties: dict[str, Any] = {}  # of the item, with the prefix of a STAC extension or `kfm:`


def entry(
    reading: Reading,
    content: Content,
    content_version: int,
    looked: Looked | None = None,
    dataset: Dataset | None = None,
) -> Entry:
    """The entry. What a sidecar says of its item is what the data object's key says of it."""
    is_data = reading.asset == "data"
    seen = looked if is_data else None
    start_ms, end_ms = reading.time_range_start_ms, reading.time_range_end_ms
    footprint = reading.footprint
    if seen is not None:
        start_ms = seen.start_ms if start_ms is None else start_ms
        end_ms = seen.end_ms if end_ms is None else end_ms
        footprint = seen.footprint or footprint
    bbox, geometry = (None, None) if footprint is None else shape(footprint)
    at_ms = start_ms
    if at_ms is None:
        at_ms = reading.reference_time_ms
        if at_ms is None:
            at_ms = reading.issued_ms
    return Entry(
        collection_id=reading.stac_collection_id,
        item_id=reading.stac_item_id,
        asset=AssetFacts(
            role=reading.asset,
            wal_id=reading.wal_id,
            content_version=content_version,
            href=quoted_uri(reading.provider, reading.bucket, reading.key),
            media_type=media_type(reading.key, dataset),
            size=content.size,
            etag=content.etag,
            checksum=None if looked is None else looked.checksum,
        ),
        start_ms=start_ms,
        end_ms=end_ms,
        properties=_properties(reading, footprint, seen, dataset),
        bbox=bbox,
        geometry=geometry,
        at_ms=at_ms,
    )


def _properties(
    reading: Reading, footprint: Footprint | None, seen: Looked | None, dataset: Dataset | None
) -> dict[str, Any]:
    properties: dict[str, Any] = {"kfm:dataset": reading.dataset}
    product = reading.product
    if product is not None:
        properties["kfm:product"] = product
        if level := _level(product):
            properties["processing:level"] = level
    if reading.platform is not None:
        properties["platform"] = reading.platform
    hours, reference_ms = reading.forecast_hour, reading.reference_time_ms
    if reference_ms is not None:
        properties["forecast:reference_datetime"] = _text(reference_ms)
        if hours is not None:
            properties["forecast:horizon"] = f"PT{hours}H"
    elif hours is not None:  # the extension knows no horizon without a beginning
        properties["kfm:forecast_hour"] = hours
    if reading.issued_ms is not None:
        properties["kfm:issued"] = _text(reading.issued_ms)
    if reading.created_ms is not None:
        properties["processing:datetime"] = rfc3339(reading.created_ms)
    if dataset is not None:
        properties.update(licence_fields(dataset.licence))
    if footprint is not None:
        properties["kfm:geometry_basis"] = footprint.basis
    doubts = reading.suspect
    if doubts:
        doubts = tuple(doubt for doubt in doubts if not doubt.startswith(_ABOUT_THE_MESSAGE))
    if seen is not None:
        doubts = (*doubts, *(doubt for doubt in seen.suspect if doubt not in doubts))
        properties.update(seen.properties)
        if seen.disagreements:
            properties["kfm:disagreements"] = seen.disagreements
    if doubts:
        properties["kfm:suspect"] = list(doubts)
    return properties


@lru_cache(4096)
def _text(at_ms: int) -> str:
    return rfc3339(at_ms)


@lru_cache(4096)
def _level(product: str) -> str | None:
    """GOES says it in the product: `ABI-L1b-RadC`."""
    found = _LEVEL.search(product)
    return found[1].upper() if found else None


@lru_cache(64)
def licence_fields(licence: str) -> dict[str, str]:
    """An SPDX identifier as it is; for an address or an expression the word that STAC has for that."""
    if _LICENCE.match(licence):
        return {"license": licence}
    return {"license": "other", "kfm:license": licence}


def media_type(key: str, dataset: Dataset | None) -> str:
    known = MEDIA_TYPES.get(key[key.rfind(".") + 1 :])
    if known is None:
        return OCTETS if dataset is None else dataset.media_type
    return known


# --- where it lies -------------------------------------------------------------------


@lru_cache(4096)
def shape(footprint: Footprint) -> tuple[Bbox | None, dict[str, Any] | None]:
    """Box and GeoJSON of a footprint; the same objects for the same footprint, which nobody may change."""
    if footprint.point is not None:
        longitude, latitude = footprint.point
        return (longitude, latitude, longitude, latitude), {
            "type": "Point",
            "coordinates": [longitude, latitude],
        }
    if footprint.box is not None:
        return footprint.box, polygon(footprint.box)
    return None, None


def polygon(box: Box) -> dict[str, Any]:
    """The box, counter-clockwise; cut in two where it crosses the antimeridian, as RFC 7946 asks."""
    west, south, east, north = box

    def ring(left: float, right: float) -> list[list[list[float]]]:
        return [[[left, south], [right, south], [right, north], [left, north], [left, south]]]

    if west > east:
        return {"type": "MultiPolygon", "coordinates": [ring(west, 180.0), ring(-180.0, east)]}
    return {"type": "Polygon", "coordinates": ring(west, east)}
