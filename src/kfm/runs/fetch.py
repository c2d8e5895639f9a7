"""The fetch step: found objects are brought into the object store, bounded, verified, resumable.

Bytes go straight into staging and are hashed there. An attempt that breaks off leaves its bytes for
the next one, if something proves that they belong to the same content.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from kfm.model.errors import ChecksumMismatch, LimitExceeded, UpstreamUnavailable
from kfm.model.records import Fetched, Found
from kfm.model.settings import Limits
from kfm.sources.http_bodies import TransferPace

if TYPE_CHECKING:
    from kfm.ports import Clock, Download, Guard, Objects, Source, Staging


class FetchHooks(msgspec.Struct, frozen=True, kw_only=True):
    """Callbacks between any two chunks: progress, and a check that may stop the fetch."""

    on_progress: Callable[[int, str], None]  # bytes more, path
    check: Callable[[], None]  # raises where the run must stop: lease lost, cancelled


def fetch_all(
    source: Source,
    found: Sequence[Found],
    objects: Objects,
    clock: Clock,
    guard: Guard,
    limits: Limits,
    on_progress: Callable[[int, str], None],
    check: Callable[[], None],
) -> list[Fetched]:
    """Everything that was found, staged, in the same order. Nothing else changes anywhere."""
    if len(found) > limits.objects_per_run_max:
        raise LimitExceeded(
            f"{len(found)} objects, {limits.objects_per_run_max} allowed (limits.objects_per_run_max)."
        )
    _within_run(sum(one.size or 0 for one in found), limits)
    hooks = FetchHooks(on_progress=on_progress, check=check)
    fetched: list[Fetched] = []
    total = 0
    for one in found:
        check()
        fetch = Fetch(source, one, objects, clock, limits, limits.run_bytes_max - total, hooks)
        fetched.append(guard(fetch.attempt))
        total += fetched[-1].size
    return fetched


def resume_key(found: Found) -> str | None:
    """What kept bytes must agree on; None if nothing proves that content is the same."""
    strong = found.etag if found.etag and not found.etag.startswith("W/") else None
    proof = found.checksum or found.version or strong
    return f"{found.uri}\n{proof}\n{found.size}" if proof else None


class Fetch:
    """One object; `attempt` may be called again after a failure and goes on where it can."""

    def __init__(
        self,
        source: Source,
        found: Found,
        objects: Objects,
        clock: Clock,
        limits: Limits,
        bytes_left: int,
        hooks: FetchHooks,
    ) -> None:
        self._source = source
        self._found = found
        self._objects = objects
        self._clock = clock
        self._limits = limits
        self._bytes_max = min(limits.object_bytes_max, bytes_left)
        self._hooks = hooks
        self._reported = 0
        self._staging: Staging

    def attempt(self, timeout_ms: int) -> Fetched:
        self._staging, offset = self._objects.stage(resume_key(self._found))
        try:
            size = self._fill(offset, timeout_ms)
            sha256, stored = self._staging.commit()
        except (ChecksumMismatch, LimitExceeded):
            self._staging.abort()
            raise
        except BaseException:
            self._staging.keep_partial()
            raise
        assert stored == size
        return self._verified(sha256, size, resumed=offset > 0)

    def _fill(self, offset: int, timeout_ms: int) -> int:
        """Write what is missing; returns the whole size."""
        if offset and offset == self._found.size:
            return offset  # only the last step was missing
        with self._source.open(self._found, offset) as download:
            self._expect(download)
            # Of the bytes, not of what was asked before them.
            self._found = msgspec.structs.replace(self._found, origin=download.found.origin)
            if download.offset != offset:  # upstream begins anew, so do we
                self._staging.abort()
                self._staging = self._begun_anew()
            return self._copy(download, timeout_ms)

    def _begun_anew(self) -> Staging:
        staging, offset = self._objects.stage(resume_key(self._found))
        if offset == 0:
            return staging
        staging.abort()  # another process kept bytes at this very moment
        return self._objects.stage(None)[0]

    def _copy(self, download: Download, timeout_ms: int) -> int:
        size = download.offset
        pace = TransferPace(self._clock.monotonic_ms, timeout_ms)
        for chunk in download.chunks():
            self._hooks.check()
            size += len(chunk)
            if size > self._bytes_max:
                raise self._too_large()
            self._staging.write(chunk)
            if size > self._reported:  # an attempt that begins anew is no progress until it is
                self._hooks.on_progress(size - self._reported, self._found.path)
                self._reported = size
            if not pace.keeps_up(len(chunk)):
                raise UpstreamUnavailable(f"{self._found.uri} is too slow.", transient=True, cause="timeout")
        announced = download.found.size
        if announced is not None and size < announced:
            raise UpstreamUnavailable(
                f"{self._found.uri} ended after {size} of {announced} bytes.",
                transient=True,
                cause="truncated",
            )
        if announced is not None and size > announced:
            raise self._changed(f"has {size} bytes instead of {announced}")
        return size

    def _expect(self, download: Download) -> None:
        announced, actual = self._found.size, download.found.size
        if announced is not None and actual is not None and announced != actual:
            raise self._changed(f"has {actual} bytes instead of {announced}")
        if actual is not None and actual > self._bytes_max:
            raise self._too_large()

    def _verified(self, sha256: str, size: int, *, resumed: bool) -> Fetched:
        if self._found.checksum is not None and self._found.checksum != f"sha256:{sha256}":
            raise ChecksumMismatch(
                f"{self._found.uri} is sha256:{sha256}, announced was {self._found.checksum}.",
                transient=resumed,  # perhaps only the kept part was wrong; it is gone now
                retryable=True,
            )
        return Fetched(found=self._found, sha256=sha256, size=size)

    def _changed(self, how: str) -> ChecksumMismatch:
        return ChecksumMismatch(f"{self._found.uri} {how}.", transient=False, retryable=True)

    def _too_large(self) -> LimitExceeded:
        if self._bytes_max < self._limits.object_bytes_max:
            return LimitExceeded(
                f"The run exceeds {self._limits.run_bytes_max} bytes (limits.run_bytes_max)."
            )
        return LimitExceeded(
            f"{self._found.uri} exceeds {self._limits.object_bytes_max} bytes (limits.object_bytes_max)."
        )


def _within_run(announced: int, limits: Limits) -> None:
    if announced > limits.run_bytes_max:
        raise LimitExceeded(
            f"{announced} bytes were found, {limits.run_bytes_max} are allowed (limits.run_bytes_max)."
        )
