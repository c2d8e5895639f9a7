"""The id of a unit of the write-ahead ledger, and the one name that an object has."""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import sha256
from urllib.parse import unquote, urlsplit

from kfm.core.canonical import canonical_bytes
from kfm.core.errors import UsageError
from kfm.core.times import MS_MIN

WAL_TAG = "wal/1"
URI_CHARS_MAX = 4096
_TIME_MAX = 16**13 - 1

_S3_HOST = re.compile(
    r"(?:(?P<bucket>[a-z0-9][a-z0-9._-]{1,254})\.)?"
    r"s3(?:-accelerate|-fips|-website)?(?:\.dualstack)?(?:[.-](?P<region>[a-z0-9-]+))?\.amazonaws\.com(?:\.cn)?\Z"
)
_GCS_HOST = re.compile(
    r"(?:(?P<bucket>[a-z0-9][a-z0-9._-]{1,221})\.)?storage\.(?:googleapis|cloud\.google)\.com\Z"
)
_AZURE_HOST = re.compile(r"(?P<account>[a-z0-9]{3,24})\.(?:blob|dfs)\.core\.windows\.net\Z")
_PLAIN = re.compile(r"(?:s3|gs|az)://[A-Za-z0-9_.-]+/[A-Za-z0-9_.=+/-]+\Z")
_BUCKET_SCHEMES = {"s3": "s3", "s3a": "s3", "s3n": "s3", "gs": "gs", "az": "az"}


def wal_id(dataset: str, object_uri: str, start_ms: int | None) -> str:
    """13 hex digits of time, so that neighbours in time are neighbours on disk, and 20 of a hash.

    An underivable time counts as zero. The time must come from the dataset's
    frozen function: another time is another unit.
    """
    time_ms = _since_year_one(start_ms)
    document = _document(dataset, canonical_object_uri(object_uri))
    return f"{time_ms:013x}-{sha256(document).hexdigest()[:20]}"


def is_plain(object_uri: str) -> bool:
    """Is an address its own canonical form, and written in JSON as it is? Almost all are."""
    return _PLAIN.match(object_uri) is not None and len(object_uri) <= URI_CHARS_MAX


def plain_wal_id(dataset: str, object_uri: str, start_ms: int | None) -> str:
    """`wal_id` of an address that is plain, at less cost."""
    document = b'%b%b"}' % (_document_head(dataset), object_uri.encode("ascii"))
    return f"{_since_year_one(start_ms):013x}-{sha256(document).hexdigest()[:20]}"


def _since_year_one(start_ms: int | None) -> int:
    since_year_one_ms = 0 if start_ms is None else start_ms - MS_MIN
    if not 0 <= since_year_one_ms <= _TIME_MAX:
        raise UsageError(f"{start_ms} ms is before the year 0001 or too far ahead for an id.")
    return since_year_one_ms


def _document(dataset: str, canonical_uri: str) -> bytes:
    return canonical_bytes({"kfm": WAL_TAG, "dataset": dataset, "object_uri": canonical_uri})


@lru_cache(maxsize=256)  # there are some dozens of datasets
def _document_head(dataset: str) -> bytes:
    """The document's bytes up to its address, which comes last."""
    return _document(dataset, "").removesuffix(b'"}')


def canonical_object_uri(uri: str) -> str:
    """Scheme, bucket and decoded key; no query, no fragment, no region, no credentials.

    All the ways to write an S3 address become `s3://bucket/key`, Google's
    `gs://bucket/key`, Azure's `az://account/container/key`. Percent escapes are
    decoded once; a key that holds a plain % keeps it.
    """
    if not uri or len(uri) > URI_CHARS_MAX:
        raise UsageError(f"An object's URI has 1 to {URI_CHARS_MAX} characters.")
    scheme, separator, rest = uri.partition("://")
    scheme = scheme.lower()
    if not separator:
        raise UsageError(f"{uri[:128]!r} is not a URI.")
    if scheme in _BUCKET_SCHEMES:
        # Taken apart by hand: an object's key may hold anything, also what a URL parser would drop or refuse.
        bucket, _, key = _without_query(rest).partition("/")
        return _joined(_BUCKET_SCHEMES[scheme], bucket, key, uri)
    if scheme in ("abfs", "abfss"):
        authority, _, key = _without_query(rest).partition("/")
        container, _, host = authority.partition("@")
        account = _AZURE_HOST.match(host.lower())
        if account is None:
            raise UsageError(f"{uri[:128]!r} names no storage account.")
        return _joined("az", account["account"], f"{container}/{key}", uri)
    if scheme in ("http", "https"):
        return _from_http(scheme, uri)
    if scheme == "file":
        return "file://" + unquote(_without_query(rest))
    raise UsageError(f"{uri[:128]!r} has a scheme that names no object: {scheme}.")


def _from_http(scheme: str, uri: str) -> str:
    try:
        parts = urlsplit(uri)
        host, port = (parts.hostname or "").lower(), parts.port
    except ValueError:
        raise UsageError(f"{uri[:128]!r} is not a URI.") from None
    path = parts.path.removeprefix("/")
    for target, pattern in (("s3", _S3_HOST), ("gs", _GCS_HOST)):
        match = pattern.match(host)
        if match is not None:
            bucket = match["bucket"]
            if bucket is None:
                bucket, _, path = path.partition("/")
            return _joined(target, bucket, path, uri)
    azure = _AZURE_HOST.match(host)
    if azure is not None:
        return _joined("az", azure["account"], path, uri)
    if not host:
        raise UsageError(f"{uri[:128]!r} names no host.")
    default = {"http": 80, "https": 443}[scheme]
    where = host if port in (None, default) else f"{host}:{port}"
    return f"{scheme}://{where}/{unquote(path)}"


def _joined(scheme: str, bucket: str, key: str, uri: str) -> str:
    if not bucket or not key:
        raise UsageError(f"{uri[:128]!r} names no bucket, or no key in it.")
    return f"{scheme}://{unquote(bucket)}/{unquote(key)}"


def _without_query(text: str) -> str:
    return text.partition("?")[0].partition("#")[0]
