"""Files in a folder of this machine, chosen by a pattern.

Content decides, not times: each file's SHA-256 is its identity, so a file that was touched, copied
or checked out again is the same file. Names that begin with a dot are skipped.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import itertools
import os
import stat
from collections.abc import Iterator
from urllib.parse import quote, unquote

from kfm.model.errors import LimitExceeded, UpstreamUnavailable
from kfm.model.records import Found, Window
from kfm.model.settings import Limits, SourceSettings
from kfm.model.templates import render
from kfm.model.windows import SNAPSHOT
from kfm.sources.placement import (
    PathPattern,
    StreamDownload,
    media_type,
    place_fields,
    published_path,
    settled,
)
from kfm.system import OutsideFolder, open_below

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
        self._entries = 0
        self._names: dict[int, int] = {}  # inode → how many names it has below the folder
        self._is_walked = False

    def discover(self, window: Window) -> list[Found]:
        pattern = render(self._source.pattern, place_fields(self._source, window))
        wanted = PathPattern(pattern)
        if not os.path.isdir(self._folder):
            raise UpstreamUnavailable(f"There is no folder {self._source.folder}.", transient=False)
        relpaths = []
        self._is_walked = False
        for relpath in self._matching(wanted, pattern):
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
        descriptor, _ = self._opened(relpath, judged=True)  # by `discover`, and its bytes are compared
        try:
            os.lseek(descriptor, offset, os.SEEK_SET)
            yield StreamDownload(offset, found, _chunks(descriptor))
        finally:
            os.close(descriptor)

    def _found(self, relpath: str, window: Window) -> Found:
        descriptor, status = self._opened(relpath)
        size = status.st_size
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
            # Without windows nothing else says what time the content is of. It decides nothing.
            modified_ms=status.st_mtime_ns // 1_000_000 if window == SNAPSHOT else None,
        )

    def _opened(self, relpath: str, *, judged: bool = False) -> tuple[int, os.stat_result]:
        """A regular file below the folder; a link may lead to another place in it, not out of it."""
        try:
            descriptor, around = open_below(self._folder, relpath)
        except OutsideFolder:
            raise UpstreamUnavailable(
                f"{relpath} leads out of the folder {self._source.folder}.", transient=False
            ) from None
        except OSError as error:
            raise UpstreamUnavailable(
                f"{relpath} can't be read: {error.strerror}.", transient=False
            ) from None
        status = os.fstat(descriptor)
        problem = None
        if not stat.S_ISREG(status.st_mode):
            problem = "is not a regular file"
        elif not judged and self._is_elsewhere(status) and _made_by_others(status, around):
            problem = f"is also a file outside of {self._source.folder}"
        if problem is not None:
            os.close(descriptor)
            raise UpstreamUnavailable(
                f"{relpath} {problem}.",
                remedy="Put a copy of the file there, or leave it out by the source's `pattern`.",
                transient=False,
            )
        return descriptor, status

    def _is_elsewhere(self, file: os.stat_result) -> bool:
        """Has it more names than are found below the folder?"""
        if file.st_nlink > 1 and not self._is_walked:
            for _ in self._all():
                pass
        return file.st_nlink > self._names.get(file.st_ino, 1)

    def _matching(self, wanted: PathPattern, pattern: str) -> Iterator[str]:
        """A pattern that names one file costs one look, however many others there are."""
        if not wanted.is_literal:
            yield from filter(wanted.matches, self._all())
        elif self._is_there(pattern):
            yield pattern

    def _is_there(self, relpath: str) -> bool:
        """Is there such a file, or a link to one? By the rules of a walk."""
        names = relpath.split("/")
        if any(name.startswith(".") for name in names):
            return False
        try:
            for depth in range(1, len(names)):
                status = os.lstat(os.path.join(self._folder, *names[:depth]))
                if not stat.S_ISDIR(status.st_mode):
                    return False
            path = os.path.join(self._folder, *names)
            return not stat.S_ISDIR(os.lstat(path).st_mode) and not os.path.isdir(path)
        except (FileNotFoundError, NotADirectoryError, ValueError):
            return False
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                return False
            raise UpstreamUnavailable(
                f"{relpath} can't be read: {error.strerror}.", transient=False
            ) from None

    def _all(self) -> Iterator[str]:
        """Every file below the folder. Its names are known once this has come to its end."""
        self._names, self._entries = {}, 0
        yield from self._walk("", 0)
        self._is_walked = True

    def _walk(self, below: str, depth: int) -> Iterator[str]:
        if depth > DEPTH_MAX:
            raise LimitExceeded(f"The folder {self._source.folder} is nested deeper than {DEPTH_MAX}.")
        try:
            descriptor = _folder_below(self._folder, below)
            try:
                with os.scandir(descriptor) as found:
                    some = itertools.islice(found, ENTRIES_MAX + 1)
                    entries = sorted((each.name, each.inode(), _kind(each)) for each in some)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise UpstreamUnavailable(
                f"The folder {_legible(below) or self._source.folder} can't be read: {error.strerror}.",
                transient=False,
            ) from None
        for name, inode, kind in entries:
            self._entries += 1
            if self._entries > ENTRIES_MAX:
                raise LimitExceeded(f"The folder {self._source.folder} has more than {ENTRIES_MAX} entries.")
            if kind == "file":
                self._names[inode] = self._names.get(inode, 0) + 1
            if name.startswith("."):
                continue
            relpath = f"{below}/{name}" if below else name
            if kind == "folder":
                yield from self._walk(relpath, depth + 1)
            elif kind != "link to a folder":
                yield relpath


def _folder_below(folder: str, below: str) -> int:
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    return open_below(folder, below, flags)[0] if below else os.open(folder, flags)


def _kind(entry: os.DirEntry[str]) -> str:
    """Asked while the folder is open: what its entries are is read through it."""
    if entry.is_dir(follow_symlinks=False):
        return "folder"
    if not entry.is_symlink():
        return "file"
    with contextlib.suppress(OSError):  # a link to itself
        return "link to a folder" if entry.is_dir() else "link"
    return "link"


def _made_by_others(file: os.stat_result, folder: os.stat_result) -> bool:
    """May the name have been made by an account that could not read the file? Then it is not ours to read.

    The owner of a folder that is closed to others links what is the owner's own, as a published tree does.
    """
    return file.st_uid != folder.st_uid or bool(folder.st_mode & (stat.S_IWGRP | stat.S_IWOTH))


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
