"""Objects of a bucket below a prefix that the window chooses."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from urllib.parse import quote, unquote

from kfm.model.errors import (
    BackendUnavailable,
    ChecksumMismatch,
    CircuitOpen,
    LimitExceeded,
    UpstreamUnavailable,
)
from kfm.model.records import Found, ObjectStat, Window
from kfm.model.redaction import redact_url
from kfm.model.settings import Limits, SourceSettings
from kfm.model.templates import render
from kfm.ports import Bucket, Guard
from kfm.sources.placement import (
    PathPattern,
    StreamDownload,
    media_type,
    place_fields,
    published_path,
    settled,
)


class BucketSource:
    """The bucket is opened at first use: credentials are read only when they are needed."""

    def __init__(
        self, source: SourceSettings, connect: Callable[[], Bucket], guard: Guard, limits: Limits
    ) -> None:
        self._source = source
        self._connect = connect
        self._guard = guard
        self._limits = limits
        self._base = redact_url(source.bucket or "").rstrip("/") + "/"
        self._opened: Bucket | None = None

    def discover(self, window: Window) -> list[Found]:
        fields = place_fields(self._source, window)
        prefix = render(self._source.prefix, fields).lstrip("/")
        wanted = PathPattern(render(self._source.pattern, fields))
        folder = prefix[: prefix.rfind("/") + 1]

        def listed(timeout_ms: int) -> list[ObjectStat]:
            del timeout_ms  # the client has it
            kept = []
            for stat in self._bucket().list(prefix):
                if not stat.key.endswith("/") and wanted.matches(stat.key.removeprefix(folder)):
                    kept.append(stat)
                    if len(kept) > self._limits.objects_per_run_max:
                        raise LimitExceeded(
                            f"Over {self._limits.objects_per_run_max} objects below {self._base}{prefix} "
                            "(limits.objects_per_run_max)."
                        )
            return kept

        with _upstream():
            stats = self._guard(listed)
        return settled(self._source.id, (self._found(stat, folder, window) for stat in stats), self._limits)

    @contextlib.contextmanager
    def open(self, found: Found, offset: int) -> Iterator[StreamDownload]:
        key = unquote(found.uri.removeprefix(self._base))
        if found.etag is None:
            offset = 0  # nothing tells whether it is still the same object
        with _upstream(), self._bucket().read(key, offset=offset, if_match=found.etag) as (stat, chunks):
            if found.size is not None and stat.size != found.size:
                raise ChecksumMismatch(f"{found.uri} changed its size.", transient=False, retryable=True)
            yield StreamDownload(offset, found, chunks)

    def _found(self, stat: ObjectStat, folder: str, window: Window) -> Found:
        return Found(
            uri=self._base + quote(stat.key),
            path=published_path(self._source, window, stat.key.removeprefix(folder), default=stat.key),
            media_type=media_type(stat.key),
            size=stat.size,
            modified_ms=stat.modified_ms,
            etag=stat.etag,
            version=stat.version,
        )

    def _bucket(self) -> Bucket:
        if self._opened is None:
            self._opened = self._connect()
        return self._opened


@contextlib.contextmanager
def _upstream() -> Iterator[None]:
    """A bucket that is read from is upstream: say so, keep the facts."""
    try:
        yield
    except (UpstreamUnavailable, CircuitOpen):
        raise
    except ChecksumMismatch as error:
        # Asking again gives the same answer: the run has to look anew.
        raise ChecksumMismatch(
            error.detail, **{**error.facts, "transient": False, "retryable": True}
        ) from None
    except BackendUnavailable as error:
        raise UpstreamUnavailable(error.detail, **error.facts) from None
