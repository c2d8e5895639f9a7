"""Files in a folder of this machine, chosen by a pattern.

Content decides, not times: each file's SHA-256 is its identity, so a file that was touched, copied
or checked out again is the same file. Names that begin with a dot are skipped.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Iterator
from urllib.parse import quote, unquote

from kfm.model.errors import LimitExceeded, UpstreamUnavailable
from kfm.model.records import Found, Window
from kfm.model.settings import Limits, SourceSettings
from kfm.model.templates import render
from kfm.sources.placement import (
    PathPattern,
    StreamDownload,
    media_type,
    place_fields,
    published_path,
    settled,
)

CHUNK_BYTES = 1024 * 1024
ENTRIES_MAX = 1_000_000
DEPTH_MAX = 64


class FilesSource:
    """`folder` is where it really is; the configured spelling goes into the addresses."""

    def __init__(self, source: SourceSettings, folder: str, limits: Limits) -> None:
        self._source = source
        self._folder = os.path.realpath(folder)
        spelt = source.folder or ""
        # Published records hold no absolute path of this machine.
        label = (
            os.path.basename(spelt.rstrip("/"))
            if spelt.startswith("/")
            else spelt.strip("/").removeprefix("./")
        )
        self._base = f"file:{quote(label)}/" if label not in ("", ".") else "file:"
        self._limits = limits

    def discover(self, window: Window) -> list[Found]:
        pattern = render(self._source.pattern, place_fields(self._source, window))
        wanted = PathPattern(pattern)
        if not os.path.isdir(self._folder):
            raise UpstreamUnavailable(f"There is no folder {self._source.folder}.", transient=False)
        relpaths = []
        for relpath in self._walk("", 0):
            if wanted.matches(relpath):
                relpaths.append(_utf8(relpath))
                if len(relpaths) > self._limits.objects_per_run_max:
                    raise LimitExceeded(
                        f"More than {self._limits.objects_per_run_max} files match {pattern!r} "
                        "(limits.objects_per_run_max)."
                    )
        return settled(self._source.id, (self._found(relpath, window) for relpath in relpaths), self._limits)

    @contextlib.contextmanager
    def open(self, found: Found, offset: int) -> Iterator[StreamDownload]:
        relpath = unquote(found.uri.removeprefix(self._base))
        descriptor, _ = self._opened(relpath)
        try:
            os.lseek(descriptor, offset, os.SEEK_SET)
            yield StreamDownload(offset, found, _chunks(descriptor))
        finally:
            os.close(descriptor)

    def _found(self, relpath: str, window: Window) -> Found:
        descriptor, size = self._opened(relpath)
        try:
            if size > self._limits.object_bytes_max:
                raise LimitExceeded(f"{relpath} has {size} bytes, more than limits.object_bytes_max.")
            digest, read = hashlib.sha256(), 0
            for chunk in _chunks(descriptor):
                digest.update(chunk)
                read += len(chunk)
        finally:
            os.close(descriptor)
        return Found(
            uri=self._base + quote(relpath),
            path=published_path(self._source, window, relpath),
            media_type=media_type(relpath),
            size=read,
            checksum=f"sha256:{digest.hexdigest()}",
        )

    def _opened(self, relpath: str) -> tuple[int, int]:
        """A regular file below the folder; a link may lead to another place in it, not out of it."""
        path = os.path.realpath(os.path.join(self._folder, relpath))
        if not path.startswith(self._folder.rstrip("/") + "/"):
            raise UpstreamUnavailable(
                f"{relpath} leads out of the folder {self._source.folder}.", transient=False
            )
        try:
            # A name that became a link or a pipe meanwhile is neither followed nor waited for.
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError as error:
            raise UpstreamUnavailable(
                f"{relpath} can't be read: {error.strerror}.", transient=False
            ) from None
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            os.close(descriptor)
            raise UpstreamUnavailable(f"{relpath} is not a regular file.", transient=False)
        return descriptor, status.st_size

    def _walk(self, below: str, depth: int, seen: list[int] | None = None) -> Iterator[str]:
        seen = [0] if seen is None else seen
        if depth > DEPTH_MAX:
            raise LimitExceeded(f"The folder {self._source.folder} is nested deeper than {DEPTH_MAX}.")
        try:
            entries = sorted(os.scandir(os.path.join(self._folder, below)), key=lambda entry: entry.name)
        except OSError as error:
            raise UpstreamUnavailable(
                f"The folder {_legible(below) or self._source.folder} can't be read: {error.strerror}.",
                transient=False,
            ) from None
        for entry in entries:
            seen[0] += 1
            if seen[0] > ENTRIES_MAX:
                raise LimitExceeded(f"The folder {self._source.folder} has more than {ENTRIES_MAX} entries.")
            if entry.name.startswith("."):
                continue
            relpath = f"{below}/{entry.name}" if below else entry.name
            if entry.is_dir(follow_symlinks=False):
                yield from self._walk(relpath, depth + 1, seen)
            elif not entry.is_dir():  # nor a link to a folder
                yield relpath


def _utf8(relpath: str) -> str:
    """Records and addresses are UTF-8: a name that is not can't be kept in them."""
    legible = _legible(relpath)
    if legible != relpath:
        raise UpstreamUnavailable(
            f"The file name {legible} is not UTF-8.",
            remedy="Rename the file, or leave it out by the source's `pattern`.",
            transient=False,
        )
    return relpath


def _legible(name: str) -> str:
    return os.fsencode(name).decode(errors="replace")


def _chunks(descriptor: int) -> Iterator[bytes]:
    while data := os.read(descriptor, CHUNK_BYTES):
        yield data
