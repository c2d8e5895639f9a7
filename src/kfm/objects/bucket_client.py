"""Buckets through obstore: S3, GCS, Azure, or a substitute in memory or a folder.

The library's own retries are off: one tier retries a call, and that is the guarded call.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from kfm.model.bucket_options import ALLOW_HTTP, option_problems
from kfm.model.errors import BackendUnavailable, ChecksumMismatch, ConfigError, ExtraMissing
from kfm.model.records import ObjectStat
from kfm.model.redaction import is_secret_name, redact
from kfm.ports import NewObject, ObjectAttributes

LIST_CHUNK = 1000
PART_BYTES = 8 * 1024 * 1024
RANGE_NOT_SATISFIABLE = 416
PUTS_AT_ONCE = 16  # small objects in flight
SMALL_BYTES_MAX = 64 * 1024 * 1024  # get() and put() hold the object in memory


def open_bucket(
    url: str,
    options: Mapping[str, str] | None = None,
    *,
    timeout_ms: int = 60_000,
    discreet: Callable[[str], str] = redact,
) -> ObstoreBucket:
    """A bucket by its address: s3://name, gs://name, az://name, file:///folder, memory:///.

    What it says in errors is cut; `discreet` masks the secrets that others gave us before that.
    """
    try:
        from obstore import store as stores
    except ImportError:
        raise ExtraMissing("Buckets need obstore: install kfm-kernel[objects].") from None
    scheme = url.partition("://")[0]
    given = {name.lower(): value for name, value in (options or {}).items()}
    for _name, sentence in option_problems(url, given):
        raise ConfigError(f"The bucket {redact(url)} can't be opened: {sentence}.")
    connect: Any = stores.from_url  # its overloads want literal keys
    try:
        if scheme in ("file", "memory"):
            store = connect(url)
        else:
            client: dict[str, Any] = {"timeout": timedelta(milliseconds=timeout_ms)}
            plain = given.pop(ALLOW_HTTP, "").lower() == "true"
            if plain or any(
                value.startswith("http://") for name, value in given.items() if "endpoint" in name
            ):
                client[ALLOW_HTTP] = True
            store = connect(url, config=given, client_options=client, retry_config={"max_retries": 0})
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # noqa: BLE001 - it has no common class for what it refuses, and panics
        reason = redact(discreet(str(error).split("\n")[0]), given.values())
        raise ConfigError(f"The bucket {redact(url)} can't be opened: {reason}") from None
    secrets = tuple(value for name, value in given.items() if is_secret_name(name))
    # A folder has no place for what is told with an object.
    return ObstoreBucket(store, redact(url), secrets, discreet, has_attributes=scheme != "file")


class ObstoreBucket:
    def __init__(
        self,
        store: Any,
        name: str,
        secrets: tuple[str, ...] = (),
        discreet: Callable[[str], str] = redact,
        *,
        has_attributes: bool = True,
    ) -> None:
        self._store = store
        self._has_attributes = has_attributes
        self._name = name
        self._secrets = secrets
        self._discreet = discreet

    def get(self, key: str) -> tuple[bytes, str] | None:
        from obstore.exceptions import NotFoundError

        with self._explained(key):
            try:
                result = self._store.get(key)
            except (NotFoundError, FileNotFoundError) as error:
                if _no_bucket(error):
                    raise
                return None
            if result.meta["size"] > SMALL_BYTES_MAX:
                raise BackendUnavailable(
                    f"{self._name}: {key} is too large to be read at once.", transient=False
                )
            return bytes(result.bytes()), result.meta["e_tag"] or ""

    def put(
        self,
        key: str,
        data: bytes,
        *,
        if_match: str | None = None,
        if_none_match: bool = False,
        attributes: ObjectAttributes | None = None,
    ) -> bool:
        from obstore.exceptions import AlreadyExistsError, NotFoundError, PreconditionError

        mode: Any = "create" if if_none_match else {"e_tag": if_match} if if_match else "overwrite"
        with self._explained(key):
            try:
                self._store.put(
                    key, data, mode=mode, use_multipart=False, attributes=self._headers(attributes)
                )
            except (AlreadyExistsError, PreconditionError, FileExistsError):
                return False
            except (NotFoundError, FileNotFoundError):
                if if_match:  # what we meant to replace is gone
                    return False
                raise
        return True

    def put_many(self, objects: Sequence[NewObject], *, if_none_match: bool = False) -> None:
        from concurrent.futures import ThreadPoolExecutor  # imported late: start-up is measured

        def put(one: NewObject) -> None:
            key, data, attributes = one
            self.put(key, data, if_none_match=if_none_match, attributes=attributes)

        pool = ThreadPoolExecutor(PUTS_AT_ONCE, thread_name_prefix="kfm-put")
        try:
            for _ in pool.map(put, objects):
                pass
        finally:
            pool.shutdown(cancel_futures=True)  # after a failure what has not begun does not

    def put_stream(
        self, key: str, chunks: Iterable[bytes], *, attributes: ObjectAttributes | None = None
    ) -> None:
        with self._explained(key):
            self._store.put(
                key,
                iter(chunks),
                chunk_size=PART_BYTES,
                max_concurrency=4,
                attributes=self._headers(attributes),
            )

    def _headers(self, attributes: ObjectAttributes | None) -> dict[str, str] | None:
        if attributes is None or not self._has_attributes:
            return None
        named = {
            "Content-Type": attributes.content_type,
            "Cache-Control": attributes.cache_control,
            "Content-Disposition": attributes.content_disposition,
        }
        return {name: value for name, value in named.items() if value} or None

    def head(self, key: str) -> ObjectStat | None:
        from obstore.exceptions import NotFoundError

        with self._explained(key):
            try:
                return _stat(self._store.head(key))
            except (NotFoundError, FileNotFoundError):
                return None

    def list(self, prefix: str) -> Iterator[ObjectStat]:
        folder = prefix.rpartition("/")[0]  # the library knows whole segments only
        with self._explained(prefix):
            for batch in self._store.list(prefix=folder or None, chunk_size=LIST_CHUNK):
                yield from (_stat(meta) for meta in batch if meta["path"].startswith(prefix.lstrip("/")))

    def delete(self, key: str) -> None:
        from obstore.exceptions import NotFoundError

        with self._explained(key), contextlib.suppress(NotFoundError, FileNotFoundError):
            self._store.delete(key)

    def copy(self, key: str, to: str) -> bool:
        from obstore.exceptions import NotFoundError

        with self._explained(key):
            try:
                self._store.copy(key, to)
            except (NotFoundError, FileNotFoundError) as error:
                if _no_bucket(error):
                    raise
                return False
        return True

    @contextlib.contextmanager
    def read(
        self, key: str, *, offset: int = 0, if_match: str | None = None
    ) -> Iterator[tuple[ObjectStat, Iterator[bytes]]]:
        options: dict[str, Any] = {"range": {"offset": offset}} if offset else {}
        if if_match:
            options["if_match"] = if_match
        with self._explained(key):
            result = self._store.get(key, options=options)
            stat = _stat(result.meta)
        yield stat, self._stream(key, result)

    def read_range(
        self, key: str, start: int, length: int, *, if_match: str | None = None
    ) -> tuple[ObjectStat | None, bytes]:
        """Some bytes, fewer at the object's end. No stat and no bytes: it ends before `start`."""
        options: dict[str, Any] = {"range": (start, start + length)}
        if if_match:
            options["if_match"] = if_match
        try:
            with self._explained(key):
                result = self._store.get(key, options=options)
                return _stat(result.meta), bytes(result.bytes())
        except BackendUnavailable as error:
            if error.facts.get("status") == RANGE_NOT_SATISFIABLE:
                return None, b""
            raise

    def _stream(self, key: str, result: Any) -> Iterator[bytes]:
        with self._explained(key):
            for chunk in result.stream(min_chunk_size=256 * 1024):
                yield bytes(chunk)

    @contextlib.contextmanager
    def _explained(self, key: str) -> Iterator[None]:
        """Errors of the library, in our words, without secrets."""
        from obstore import exceptions

        from kfm.calls.foreign_errors import classify_error, obstore_status

        try:
            yield
        except exceptions.PreconditionError:
            raise ChecksumMismatch(f"{self._name}: {key} changed meanwhile.", transient=True) from None
        except (exceptions.NotFoundError, FileNotFoundError) as error:
            raise self._missing(error, key) from None
        except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError, PermissionError) as error:
            raise BackendUnavailable(f"{self._name} refuses us: {self._said(error)}", status=403) from None
        except NotImplementedError:
            raise BackendUnavailable(f"{self._name} knows no conditional writes.", transient=False) from None
        except (exceptions.BaseError, OSError) as error:
            if _no_bucket(error):
                raise self._missing(error, key) from None
            status = obstore_status(error)
            facts: dict[str, Any] = (
                {"transient": classify_error(error).retryable} if status is None else {"status": status}
            )
            raise BackendUnavailable(f"{self._name}: {self._said(error)}", **facts) from None

    def _missing(self, error: Exception, key: str) -> BackendUnavailable:
        if not _no_bucket(error):
            return BackendUnavailable(f"{self._name}: there is no {key}.", status=404)
        return BackendUnavailable(
            f"There is no bucket {self._name}.",
            remedy="Make the bucket, or correct its address; `kfm doctor` tries it.",
            status=404,
        )

    def _said(self, error: Exception) -> str:
        return redact(self._discreet(str(error).split("\n")[0]), self._secrets)[:500]


def _no_bucket(error: Exception) -> bool:
    """By the code or sentence in the answer of S3, Azure and GCS: each says 404 of both."""
    said = str(error)
    return any(word in said for word in ("NoSuchBucket", "ContainerNotFound", "bucket does not exist"))


def _stat(meta: Any) -> ObjectStat:
    modified = meta["last_modified"]
    return ObjectStat(
        key=meta["path"],
        size=meta["size"],
        modified_ms=int(modified.timestamp() * 1000) if isinstance(modified, datetime) else None,
        etag=meta["e_tag"],
        version=meta["version"],
    )
