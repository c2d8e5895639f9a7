"""Where found objects are placed in the dataset, patterns for relative paths, media types by suffix."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase

import msgspec

from kfm.model.errors import ConfigError, LimitExceeded, PathConflict
from kfm.model.records import Found, Window
from kfm.model.settings import Limits, SourceSettings
from kfm.model.templates import Fields, render, safe_path
from kfm.model.times import is_all_time, rfc3339

SHORTEST_DAY_MS = 23 * 3_600_000


def place_fields(source: SourceSettings, window: Window) -> Fields:
    """What templates of addresses and patterns may speak of."""
    return Fields(
        window=window,
        time_zone=source.time_zone,
        source=source.id,
        dataset=source.dataset,
        partition=source.partition,
    )


def published_path(source: SourceSettings, window: Window, relpath: str, default: str | None = None) -> str:
    """The path by the source's template; without one, as it stands upstream.

    Where windows add up (`mode: merge`), each gets a folder of its own, or tomorrow's file would
    meet today's at the same path. A source without windows has one place for all that it gives.
    """
    name = relpath.rpartition("/")[2]
    fields = msgspec.structs.replace(place_fields(source, window), name=name, relpath=relpath)
    if source.path is not None:
        return safe_path(render(source.path, fields))
    place = default or relpath
    if source.mode == "replace" or is_all_time(window.start_ms, window.end_ms):
        return safe_path(place)
    whole_days = window.end_ms - window.start_ms >= SHORTEST_DAY_MS
    folder = (
        render("{window.start:date}", fields) if whole_days else rfc3339(window.start_ms).replace(":", "")
    )
    return safe_path(f"{folder}/{place}")


def settled(source_id: str, found: Iterable[Found], limits: Limits) -> list[Found]:
    """In the order of their paths, which must differ, and not too many."""
    placed: dict[str, Found] = {}
    for one in found:
        other = placed.setdefault(one.path, one)
        if other is not one:
            raise PathConflict(
                f"Source `{source_id}`: {one.uri} and {other.uri} would both be {one.path!r}.",
                remedy="Use {name} or {relpath} in the source's `path` template.",
            )
        if len(placed) > limits.objects_per_run_max:
            raise LimitExceeded(
                f"Source `{source_id}` has more than {limits.objects_per_run_max} objects "
                "(limits.objects_per_run_max)."
            )
        if one.size is not None and one.size > limits.object_bytes_max:
            raise LimitExceeded(f"{one.uri} has {one.size} bytes, more than limits.object_bytes_max.")
    return [placed[path] for path in sorted(placed)]


class StreamDownload:
    """A download under way, with the metadata of its response."""

    def __init__(self, offset: int, found: Found, chunks: Iterator[bytes]) -> None:
        self.offset = offset
        self.found = found
        self._chunks = chunks

    def chunks(self) -> Iterator[bytes]:
        return self._chunks


class PathPattern:
    def __init__(self, pattern: str) -> None:
        segments = pattern.split("/")
        if any(segment in ("", ".", "..") for segment in segments):
            raise ConfigError(
                f"The pattern {pattern!r} must be relative, without empty segments, `.` or `..`."
            )
        self._segments = segments
        # One file, if any: it need not be looked for among others.
        self.is_literal = not any(sign in pattern for sign in "*?[")

    def matches(self, relpath: str) -> bool:
        names = relpath.split("/")
        # reached[i]: the pattern so far can end before names[i]. One pass, whatever the stars.
        reached = [True] + [False] * len(names)
        for segment in self._segments:
            if segment == "**":
                for at in range(len(names)):
                    reached[at + 1] = reached[at + 1] or reached[at]
            else:
                reached = [False] + [
                    before and fnmatchcase(name, segment)
                    for before, name in zip(reached[:-1], names, strict=True)
                ]
        return reached[-1]


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
