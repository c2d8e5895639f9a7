"""Upstream objects: announced ones, read at Amazon, Google and Azure, or in folders in place of buckets.

Public data are read without credentials unless options for a bucket bring some. A stream is a row of ranges,
each with the timeout of one call and bound to the ETag of the first: a large object needs no endless request,
and one that is replaced meanwhile is noticed.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import md5
from stat import S_ISREG
from typing import TYPE_CHECKING

from kfm.model.errors import (
    BackendUnavailable,
    CircuitOpen,
    ConfigError,
    LimitExceeded,
    ObjectMissing,
    UpstreamUnavailable,
    UsageError,
)
from kfm.model.records import ObjectStat
from kfm.model.redaction import redact
from kfm.model.units import provider_of, scheme_of
from kfm.system import OutsideFolder, open_below

if TYPE_CHECKING:
    from kfm.objects.bucket_client import ObstoreBucket

READ_BYTES_MAX = 16 * 1024 * 1024
PIECE_BYTES = 8 * 1024 * 1024
BUCKETS_MAX = 64  # open at once
ETAGS_MAX = 1024
TIMEOUT_MS = 60_000
REGION = "us-east-1"  # where NOAA's buckets are
# Any of these means that requests are to be signed.
_SIGNS = ("key", "token", "secret", "credential", "service_account", "skip_signature", "profile", "role")


def split_uri(object_uri: str) -> tuple[str, str, str]:
    """(scheme, bucket, key); an Azure bucket is `account/container`. Keys are not escaped."""
    scheme, _, rest = object_uri.partition("://")
    bucket, _, key = rest.partition("/")
    if scheme == "az":
        container, _, key = key.partition("/")
        bucket = f"{bucket}/{container}" if container else ""
    if provider_of(scheme) is None or not bucket or not key:
        raise UsageError(f"{object_uri[:128]!r} is no object of s3://, gs:// or az://.")
    return scheme, bucket, key


class CloudUpstream:
    """`kfm.ports.Upstream`.

    `options`: `s3://bucket`, or `s3://*` for all others → options of the client (endpoint, region, keys).
    `mirrors`: bucket, or `s3://bucket` where a name exists at two providers → a folder that stands in for it;
    `*` → a folder of folders, for all others.
    """

    def __init__(
        self,
        *,
        options: Mapping[str, Mapping[str, str]] | None = None,
        mirrors: Mapping[str, str] | None = None,
        timeout_ms: int = TIMEOUT_MS,
        discreet: Callable[[str], str] = redact,
    ) -> None:
        self._options = dict(options or {})
        self._mirrors = {
            name: FolderMirror(folder) for name, folder in (mirrors or {}).items() if name != "*"
        }
        self._all = (mirrors or {}).get("*")
        self._timeout_ms = timeout_ms
        self._discreet = discreet
        self._buckets: OrderedDict[str, ObstoreBucket] = OrderedDict()
        self._lock = threading.Lock()  # workers share one

    def check(self) -> None:
        """Can a client be made with the options? Nothing is asked of anybody. Raises ConfigError."""
        for address in self._options:
            scheme, _, bucket = address.partition("://")
            anyone = "any/any" if scheme == "az" else "any"
            self._open(scheme, anyone if bucket == "*" else bucket, address)

    def head(self, object_uri: str) -> ObjectStat | None:
        scheme, bucket, key = split_uri(object_uri)
        mirror = self._mirror(scheme, bucket)
        if mirror is not None:
            return mirror.head(key)
        with _upstream():
            return self._bucket(scheme, bucket).head(key)

    def read(self, object_uri: str, start: int, length: int) -> bytes:
        if not 0 <= length <= READ_BYTES_MAX or start < 0:
            raise LimitExceeded(f"A range has at most {READ_BYTES_MAX} bytes; {length} were asked for.")
        scheme, bucket, key = split_uri(object_uri)
        mirror = self._mirror(scheme, bucket)
        if length == 0:
            return b""
        if mirror is not None:
            return mirror.read(key, start, length)
        return self._range(scheme, bucket, key, start, length, None)[1]

    def stream(self, object_uri: str) -> Iterator[bytes]:
        """Raises ChecksumMismatch if the object is replaced meanwhile."""
        scheme, bucket, key = split_uri(object_uri)
        mirror = self._mirror(scheme, bucket)
        if mirror is not None:
            yield from mirror.stream(key)
            return
        start, etag = 0, None
        while True:
            stat, piece = self._range(scheme, bucket, key, start, PIECE_BYTES, etag)
            if piece:
                yield piece
            start += len(piece)
            if stat is None or not piece or start >= stat.size:
                return
            etag = stat.etag

    def list(self, provider: str, bucket: str, prefix: str) -> Iterator[ObjectStat]:
        """Keys that begin so, in whatever order the store has them. Not tried again: the caller can."""
        scheme = scheme_of(provider)
        mirror = self._mirror(scheme, bucket)
        if mirror is not None:
            yield from mirror.list(prefix)
            return
        with _upstream():
            yield from self._bucket(scheme, bucket).list(prefix)

    def _range(
        self, scheme: str, bucket: str, key: str, start: int, length: int, etag: str | None
    ) -> tuple[ObjectStat | None, bytes]:
        with _upstream():
            return self._bucket(scheme, bucket).read_range(key, start, length, if_match=etag)

    def _mirror(self, scheme: str, bucket: str) -> FolderMirror | None:
        mirrors = self._mirrors
        if not mirrors and self._all is None:
            return None
        found = mirrors.get(f"{scheme}://{bucket}") or mirrors.get(bucket)
        if found is None and self._all is not None:
            found = mirrors[bucket] = FolderMirror(os.path.join(self._all, _safe(bucket)))
        return found

    def _bucket(self, scheme: str, bucket: str) -> ObstoreBucket:
        name = f"{scheme}://{bucket}"
        with self._lock:
            found = self._buckets.get(name)
            if found is not None:
                self._buckets.move_to_end(name)
                return found
        opened = self._open(scheme, bucket, name)
        with self._lock:
            self._buckets[name] = opened
            while len(self._buckets) > BUCKETS_MAX:
                self._buckets.popitem(last=False)
        return opened

    def _open(self, scheme: str, bucket: str, name: str) -> ObstoreBucket:
        from kfm.objects.bucket_client import open_bucket

        options = dict(self._options.get(name) or self._options.get(f"{scheme}://*") or {})
        if not any(sign in option.lower() for option in options for sign in _SIGNS):
            options["skip_signature"] = "true"
        if scheme == "az":
            account, _, bucket = bucket.partition("/")
            options.setdefault("account_name", account)
        elif scheme.startswith("s3") and not any(option.lower().endswith("region") for option in options):
            options["region"] = REGION
        protocol, _, provider = scheme.partition("+")
        if provider and not any("endpoint" in option.lower() for option in options):
            raise ConfigError(
                f"Where the buckets of {provider} are is not known.",
                remedy=f'Give its address: ingest.object_options: {{"{scheme}://*": {{endpoint: "https://…"}}}}.',
            )
        return open_bucket(
            f"{protocol}://{bucket}", options, timeout_ms=self._timeout_ms, discreet=self._discreet
        )


@contextmanager
def _upstream() -> Iterator[None]:
    """A bucket that is read from is upstream: say so, keep the facts."""
    try:
        yield
    except (UpstreamUnavailable, CircuitOpen):
        raise
    except BackendUnavailable as error:
        if error.facts.get("status") == 404:
            raise ObjectMissing(error.detail, **error.facts) from None
        raise UpstreamUnavailable(error.detail, **error.facts) from None


# --- a folder that stands in for a bucket ----------------------------------------------


class FolderMirror:
    """Files of a folder as objects of a bucket. Nothing outside the folder is read, wherever links lead."""

    def __init__(self, folder: str) -> None:
        self._folder = os.path.realpath(folder)
        self._etags: OrderedDict[tuple[str, int, int], str] = OrderedDict()
        self._lock = threading.Lock()

    def head(self, key: str) -> ObjectStat | None:
        try:
            with self._opened(key) as file:
                return self._stat(key, file)
        except ObjectMissing:
            return None

    def read(self, key: str, start: int, length: int) -> bytes:
        with self._opened(key) as file:
            return os.pread(file, length, start)

    def stream(self, key: str) -> Iterator[bytes]:
        with self._opened(key) as file:
            while piece := os.read(file, PIECE_BYTES):
                yield piece

    def list(self, prefix: str) -> Iterator[ObjectStat]:
        begin = prefix.rpartition("/")[0]
        try:
            folder = self._descriptor(begin, os.O_RDONLY | os.O_DIRECTORY)
        except OSError:
            return
        try:
            for where, folders, names, _ in os.fwalk(".", dir_fd=folder):
                folders.sort()
                for name in sorted(names):
                    key = os.path.normpath(f"{begin}/{where}/{name}").lstrip("/")
                    stat = self.head(key) if key.startswith(prefix) else None
                    if stat is not None:
                        yield stat
        finally:
            os.close(folder)

    def _descriptor(self, key: str, flags: int) -> int:
        """FileNotFoundError for a key that is no plain path, OutsideFolder for one that leads out."""
        if "\0" in key or any(part in ("", ".", "..") for part in key.split("/") if key):
            raise FileNotFoundError(key)
        return open_below(self._folder, key, flags)[0] if key else os.open(self._folder, flags)

    @contextmanager
    def _opened(self, key: str) -> Iterator[int]:
        missing = ObjectMissing(f"There is no {key} in the mirror.", status=404)
        with _files():
            try:
                file = self._descriptor(key, os.O_RDONLY)
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError, OutsideFolder):
                raise missing from None
        try:
            if not S_ISREG(os.fstat(file).st_mode):
                raise missing
            yield file
        finally:
            os.close(file)

    def _stat(self, key: str, file: int) -> ObjectStat:
        found = os.fstat(file)
        with _files():
            etag = self._etag(key, file, found)
        return ObjectStat(key=key, size=found.st_size, modified_ms=found.st_mtime_ns // 1_000_000, etag=etag)

    def _etag(self, key: str, file: int, found: os.stat_result) -> str:
        """As S3 makes it for an object that was put in one piece."""
        known = (key, found.st_mtime_ns, found.st_size)
        with self._lock:
            if known in self._etags:
                return self._etags[known]
        digest = md5(usedforsecurity=False)
        while piece := os.read(file, PIECE_BYTES):
            digest.update(piece)
        etag = f'"{digest.hexdigest()}"'
        with self._lock:
            self._etags[known] = etag
            while len(self._etags) > ETAGS_MAX:
                self._etags.popitem(last=False)
        return etag


@contextmanager
def _files() -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise ObjectMissing("It went from the mirror meanwhile.", status=404) from None
    except OSError as error:
        raise UpstreamUnavailable(f"The mirror can't be read: {error.strerror}.", transient=False) from None


def _safe(bucket: str) -> str:
    if any(part in ("", ".", "..") for part in bucket.split("/")) or "\0" in bucket:
        raise UsageError(f"{bucket[:128]!r} is no bucket's name.")
    return bucket
