"""Media types by suffix, the ones that open geospatial data uses; the machine's own table is not used."""

from __future__ import annotations

_TYPES = {
    "csv": "text/csv",
    "tsv": "text/tab-separated-values",
    "txt": "text/plain",
    "json": "application/json",
    "jsonl": "application/x-ndjson",
    "ndjson": "application/x-ndjson",
    "geojson": "application/geo+json",
    "topojson": "application/json",
    "xml": "application/xml",
    "gml": "application/gml+xml",
    "kml": "application/vnd.google-earth.kml+xml",
    "kmz": "application/vnd.google-earth.kmz",
    "html": "text/html",
    "md": "text/markdown",
    "yaml": "application/yaml",
    "yml": "application/yaml",
    "pdf": "application/pdf",
    "parquet": "application/vnd.apache.parquet",
    "geoparquet": "application/vnd.apache.parquet",
    "arrow": "application/vnd.apache.arrow.file",
    "feather": "application/vnd.apache.arrow.file",
    "fgb": "application/vnd.flatgeobuf",
    "gpkg": "application/geopackage+sqlite3",
    "shp": "application/vnd.shp",
    "dbf": "application/vnd.dbf",
    "nc": "application/netcdf",
    "nc4": "application/netcdf",
    "h5": "application/x-hdf5",
    "hdf5": "application/x-hdf5",
    "hdf": "application/x-hdf",
    "grib": "application/wmo-GRIB",
    "grb": "application/wmo-GRIB",
    "grib2": "application/wmo-GRIB2",
    "grb2": "application/wmo-GRIB2",
    "idx": "text/plain",
    "tif": "image/tiff; application=geotiff",
    "tiff": "image/tiff; application=geotiff",
    "png": "image/png",
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "jp2": "image/jp2",
    "las": "application/vnd.las",
    "laz": "application/vnd.laszip",
    "zarr": "application/vnd+zarr",
    "pmtiles": "application/vnd.pmtiles",
    "zip": "application/zip",
    "gz": "application/gzip",
    "bz2": "application/x-bzip2",
    "zst": "application/zstd",
    "tar": "application/x-tar",
    "tgz": "application/gzip",
}
_SUFFIXES = {
    "application/json": ".json",
    "application/geo+json": ".geojson",
    "text/csv": ".csv",
    "application/xml": ".xml",
    "text/xml": ".xml",
}
UNKNOWN = "application/octet-stream"


def media_type(name: str, declared: str | None = None) -> str:
    """What the suffix says, else what the answer declared, else bytes."""
    suffix = name.rpartition(".")[2].lower() if "." in name else ""
    plain = (declared or "").partition(";")[0].strip().lower()
    return _TYPES.get(suffix) or (plain if plain.count("/") == 1 and plain.isascii() else UNKNOWN)


def suffix_for(declared: str | None) -> str:
    """A suffix for a resource whose address has none."""
    return _SUFFIXES.get((declared or "").partition(";")[0].strip().lower(), "")
