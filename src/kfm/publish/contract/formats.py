"""Which format a file has: what the contract says, its media type, its name."""

from __future__ import annotations

from kfm.model.records import Asset
from kfm.publish.contract.model import Format

_BY_MEDIA_TYPE: dict[str, Format] = {
    "text/csv": "csv",
    "text/tab-separated-values": "csv",
    "application/geo+json": "geojson",
    "application/vnd.geo+json": "geojson",
    "application/json": "json",
    "application/x-ndjson": "jsonl",
    "application/ndjson": "jsonl",
    "application/jsonl": "jsonl",
    "application/vnd.apache.parquet": "parquet",
    "application/x-parquet": "parquet",
}
_BY_SUFFIX: dict[str, Format] = {
    ".csv": "csv",
    ".tsv": "csv",
    ".geojson": "geojson",
    ".json": "json",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
}


def format_of(asset: Asset) -> Format | None:
    """The format; a name that says GeoJSON outweighs a media type that says only JSON."""
    name = asset.path.lower()
    by_name = next((found for suffix, found in _BY_SUFFIX.items() if name.endswith(suffix)), None)
    by_type = _BY_MEDIA_TYPE.get(asset.media_type.partition(";")[0].strip().lower())
    if by_type == "json" and by_name in ("geojson", "jsonl"):
        return by_name
    return by_type or by_name
