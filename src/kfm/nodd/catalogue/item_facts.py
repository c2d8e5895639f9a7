"""The catalogue entry of one object: from its key, its announcement, and its inspection where there was one.

This runs once for each unit, so whatever repeats from object to object is made once.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from kfm.model.catalogue import AssetFacts, Bbox, CatalogueEntry
from kfm.model.times import rfc3339
from kfm.model.units import Content
from kfm.nodd.catalogue.geometry import Box, Footprint
from kfm.nodd.grammar import Dataset, Reading
from kfm.nodd.object_keys import quoted_uri

if TYPE_CHECKING:
    from kfm.nodd.inspect.inspection import InspectionResult

_SORTED = msgspec.json.Encoder(order="sorted").encode
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


def entry(
    reading: Reading,
    content: Content,
    content_version: int,
    found: InspectionResult | None = None,
    dataset: Dataset | None = None,
) -> CatalogueEntry:
    """The entry. A sidecar describes its item by the data object's key."""
    is_data = reading.asset == "data"
    seen = found if is_data else None
    start_ms, end_ms = reading.time_range_start_ms, reading.time_range_end_ms
    footprint, reference_ms, platform = reading.footprint, reading.reference_time_ms, reading.platform
    if seen is not None:  # the header has what the key lacks
        start_ms = seen.start_ms if start_ms is None else start_ms
        end_ms = seen.end_ms if end_ms is None else end_ms
        reference_ms = seen.reference_ms if reference_ms is None else reference_ms
        platform = platform or seen.platform
        footprint = footprint or seen.footprint
    if start_ms is not None and end_ms is not None and end_ms < start_ms:
        end_ms = None  # one is the key's, the other the header's: a range they are not
    bbox, geometry = (None, None) if footprint is None else shape(footprint)
    at_ms = start_ms
    if at_ms is None:
        at_ms = reading.issued_ms if reference_ms is None else reference_ms
    # By position, in the order of the records' fields.
    return CatalogueEntry(
        reading.stac_collection_id,
        reading.stac_item_id,
        AssetFacts(
            reading.asset,
            reading.wal_id,
            content_version,
            quoted_uri(reading.provider, reading.bucket, reading.key),
            media_type(reading.key, dataset),
            content.size,
            content.etag,
            None if found is None else found.checksum,
        ),
        start_ms,
        end_ms,
        _plain(reading, footprint, dataset)
        if seen is None and not reading.suspect and reading.issued_ms is None
        else _SORTED(_properties(reading, platform, reference_ms, footprint, seen, dataset)).decode(),
        bbox,
        geometry,
        at_ms,
    )


def _properties(
    reading: Reading,
    platform: str | None,
    reference_ms: int | None,
    footprint: Footprint | None,
    seen: InspectionResult | None,
    dataset: Dataset | None,
) -> dict[str, Any]:
    properties: dict[str, Any] = {"kfm:dataset": reading.dataset}
    product = reading.product
    if product is not None:
        properties["kfm:product"] = product
        if level := _level(product):
            properties["processing:level"] = level
    if platform is not None:
        properties["platform"] = platform
    hours = reading.forecast_hour
    if reference_ms is not None:
        properties["forecast:reference_datetime"] = _text(reference_ms)
    if hours is not None:
        if _has_horizon(reference_ms, hours):
            properties["forecast:horizon"] = f"PT{hours}H"
        else:
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
    if seen is not None:
        doubts += seen.doubts
        if seen.disagrees:
            properties["kfm:disagrees"] = seen.disagrees
    if doubts:
        about_data = {doubt for doubt in doubts if not doubt.startswith(_ABOUT_THE_MESSAGE)}
        if about_data:
            properties["kfm:suspect"] = sorted(about_data)
    return properties


def _plain(reading: Reading, footprint: Footprint | None, dataset: Dataset | None) -> str:
    """The same text where there is nothing unusual, put together from cached parts."""
    before, after = _constant(
        reading.dataset,
        reading.product,
        reading.platform,
        None if footprint is None else footprint.basis,
        None if dataset is None else dataset.licence,
        reading.forecast_hour if not _has_horizon(reading.reference_time_ms, reading.forecast_hour) else None,
    )
    if reading.reference_time_ms is not None:
        before = _cycle(reading.reference_time_ms, reading.forecast_hour) + before
    if reading.created_ms is not None:
        return f'{{{before},"processing:datetime":"{rfc3339(reading.created_ms)}"{after}'
    return f"{{{before}{after}"


def _has_horizon(reference_ms: int | None, hours: int | None) -> bool:
    """The extension knows no horizon without a beginning, and an analysis of the hours before has none."""
    return reference_ms is not None and hours is not None and hours >= 0


@lru_cache(8192)
def _cycle(reference_ms: int, hours: int | None) -> str:
    horizon = f'"forecast:horizon":"PT{hours}H",' if _has_horizon(reference_ms, hours) else ""
    return f'{horizon}"forecast:reference_datetime":"{rfc3339(reference_ms)}",'


@lru_cache(8192)
def _constant(
    dataset: str,
    product: str | None,
    platform: str | None,
    basis: str | None,
    licence: str | None,
    hours: int | None,
) -> tuple[str, str]:
    """What stands between the fields of forecast and processing, in the order of names; and what follows."""
    values = {
        "kfm:dataset": dataset,
        "kfm:forecast_hour": hours,
        "kfm:geometry_basis": basis,
        "kfm:product": product,
        "platform": platform,
        **({} if licence is None else licence_fields(licence)),
    }
    known = {name: value for name, value in values.items() if value is not None}
    level = None if product is None else _level(product)
    after = "}" if level is None else f',"processing:level":"{level}"}}'
    return _SORTED(known).decode()[1:-1], after


@lru_cache(4096)
def _text(at_ms: int) -> str:
    return rfc3339(at_ms)


@lru_cache(4096)
def _level(product: str) -> str | None:
    """GOES has it in the product: `ABI-L1b-RadC`."""
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
def shape(footprint: Footprint) -> tuple[Bbox | None, str | None]:
    """Box and GeoJSON text of a footprint."""
    if footprint.point is not None:
        longitude, latitude = footprint.point
        point = {"type": "Point", "coordinates": [longitude, latitude]}
        return (longitude, latitude, longitude, latitude), _SORTED(point).decode()
    if footprint.box is not None:
        return footprint.box, _SORTED(polygon(footprint.box)).decode()
    return None, None


def polygon(box: Box) -> dict[str, Any]:
    """The box, counter-clockwise; cut in two where it crosses the antimeridian, as RFC 7946 asks."""
    west, south, east, north = box

    def ring(left: float, right: float) -> list[list[list[float]]]:
        return [[[left, south], [right, south], [right, north], [left, north], [left, south]]]

    if west > east:
        return {"type": "MultiPolygon", "coordinates": [ring(west, 180.0), ring(-180.0, east)]}
    return {"type": "Polygon", "coordinates": ring(west, east)}
