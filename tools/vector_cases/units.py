"""Ids of units, and the one name of an object."""

from __future__ import annotations

from typing import Any

from kfm.model.input_hash import sha256_text
from kfm.model.units import canonical_object_uri, wal_id
from tools.vector_cases.shape import Case, Family, error


def _unit(given: dict[str, Any]) -> Any:
    if "uri" in given:
        return canonical_object_uri(given["uri"])
    return wal_id(given["dataset"], given["object_uri"], given["start_ms"])


def _same(name: str, uri: str, canonical: str) -> Case:
    return Case(name, {"uri": uri}, canonical, "by hand")


def _wal(name: str, dataset: str, uri: str, start_ms: int | None, canonical: str, prefix: str) -> Case:
    document = f'{{"dataset":"{dataset}","kfm":"wal/1","object_uri":"{canonical}"}}'
    pin = prefix + "-" + sha256_text(document.encode())[7:27]
    return Case(
        name,
        {"dataset": dataset, "object_uri": uri, "start_ms": start_ms},
        pin,
        "prefix and document by hand",
    )


_KEY = "ABI-L2/2024/123/f.nc"
_S3 = f"s3://noaa-goes16/{_KEY}"

WAL_ID = Family(
    "wal_id",
    "The id of a unit: 13 hex digits of ms since 0001-01-01, a hyphen, 20 of a hash; and the one name of an object.",
    _unit,
    [
        _same("plain", _S3, _S3),
        _same("capital scheme", f"S3://noaa-goes16/{_KEY}", _S3),
        _same("s3a", f"s3a://noaa-goes16/{_KEY}", _S3),
        _same("virtual host", f"https://noaa-goes16.s3.amazonaws.com/{_KEY}", _S3),
        _same("virtual host with region", f"https://noaa-goes16.s3.us-east-1.amazonaws.com/{_KEY}", _S3),
        _same("virtual host with old region", f"https://noaa-goes16.s3-us-west-2.amazonaws.com/{_KEY}", _S3),
        _same(
            "virtual host, dual stack",
            f"https://noaa-goes16.s3.dualstack.us-east-1.amazonaws.com/{_KEY}",
            _S3,
        ),
        _same("accelerated", f"https://noaa-goes16.s3-accelerate.amazonaws.com/{_KEY}", _S3),
        _same("China", f"https://noaa-goes16.s3.cn-north-1.amazonaws.com.cn/{_KEY}", _S3),
        _same("path style", f"https://s3.amazonaws.com/noaa-goes16/{_KEY}", _S3),
        _same("path style with region", f"https://s3.us-east-1.amazonaws.com/noaa-goes16/{_KEY}", _S3),
        _same("path style with old region", f"https://s3-us-west-2.amazonaws.com/noaa-goes16/{_KEY}", _S3),
        _same("http and port", f"http://noaa-goes16.s3.amazonaws.com:80/{_KEY}", _S3),
        _same("capital host", f"https://NOAA-GOES16.S3.AMAZONAWS.COM/{_KEY}", _S3),
        _same("bucket with dots", "https://a.b.c.s3.us-east-1.amazonaws.com/k", "s3://a.b.c/k"),
        _same("bucket named like a service", "https://my-s3.s3.amazonaws.com/k", "s3://my-s3/k"),
        _same("query goes", f"{_S3}?versionId=3", _S3),
        _same("signed query goes", f"https://s3.amazonaws.com/noaa-goes16/{_KEY}?X-Amz-Signature=ab#x", _S3),
        _same("escapes are decoded", "s3://b/a%20b%2Fc.nc", "s3://b/a b/c.nc"),
        _same("escapes are decoded once", "s3://b/100%2525", "s3://b/100%25"),
        _same("plain per cent stays", "s3://b/100%.nc", "s3://b/100%.nc"),
        _same("plus stays", "s3://b/a+b", "s3://b/a+b"),
        _same("outside ASCII", "s3://b/gr%C3%B6%C3%9Fe", "s3://b/größe"),
        _same("case of keys stays", "s3://b/A/a", "s3://b/A/a"),
        _same("empty folders stay", "s3://b//a//b", "s3://b//a//b"),
        _same("dots in keys stay", "s3://b/a/../b", "s3://b/a/../b"),
        _same("Google", "gs://bucket/key", "gs://bucket/key"),
        _same("Google by path", "https://storage.googleapis.com/bucket/key", "gs://bucket/key"),
        _same("Google by host", "https://bucket.storage.googleapis.com/key", "gs://bucket/key"),
        _same("Azure", "https://noaa.blob.core.windows.net/goes/k.nc?sv=1", "az://noaa/goes/k.nc"),
        _same("Azure file system", "abfss://goes@noaa.dfs.core.windows.net/k.nc", "az://noaa/goes/k.nc"),
        _same("other host", "https://Example.org:443/a%20b?x=1#y", "https://example.org/a b"),
        _same("other host and port", "https://user:pw@example.org:8443/a", "https://example.org:8443/a"),
        _same(
            "looks like S3, is not",
            "https://s3.amazonaws.com.example.org/b/k",
            "https://s3.amazonaws.com.example.org/b/k",
        ),
        Case("no key", {"uri": "s3://bucket/"}, error("KFM200"), "names no object"),
        Case("no bucket", {"uri": "s3:///key"}, error("KFM200"), "names no object"),
        Case(
            "path style without key",
            {"uri": "https://s3.amazonaws.com/bucket"},
            error("KFM200"),
            "names no object",
        ),
        Case("no scheme", {"uri": "bucket/key"}, error("KFM200"), "names no object"),
        Case("unknown scheme", {"uri": "ftp://host/key"}, error("KFM200"), "names no object"),
        Case("empty", {"uri": ""}, error("KFM200"), "names no object"),
        _wal("epoch", "goes16", _S3, 0, _S3, "03883122cd800"),
        _wal("underivable time", "goes16", _S3, None, _S3, "0000000000000"),
        _wal("year one", "goes16", _S3, -62135596800000, _S3, "0000000000000"),
        _wal("one millisecond on", "goes16", _S3, 1, _S3, "03883122cd801"),
        _wal(
            "other way to write it",
            "goes16",
            f"https://noaa-goes16.s3.amazonaws.com/{_KEY}",
            0,
            _S3,
            "03883122cd800",
        ),
        _wal("other dataset", "goes17", _S3, 0, _S3, "03883122cd800"),
        _wal("2024-05-02T12:00:00Z", "goes16", _S3, 1714651200000, _S3, "03a124b59d200"),
        Case(
            "before year one",
            {"dataset": "d", "object_uri": _S3, "start_ms": -62135596800001},
            error("KFM200"),
            "no such time",
        ),
    ],
)

FAMILIES = [WAL_ID]
