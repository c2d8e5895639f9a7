"""The files of a project: found by pattern, identified by their checksums."""

from __future__ import annotations

import errno
import hashlib
import os
import stat

from kfm.model.errors import UsageError

MATCHES_MAX = 1_000_000
_MAGIC = "*?["
_NO_FILE = (errno.EINVAL, "it is no regular file")


class DiskProject:
    """Implements `ports.ProjectFiles` on a folder."""

    def __init__(self, root: str) -> None:
        self._root = root.rstrip("/") + "/"

    def match(self, pattern: str) -> list[str]:
        if not any(sign in pattern for sign in _MAGIC):
            return [pattern] if self.stat(pattern) is not None else []
        import glob

        found = []
        for path in glob.iglob(pattern, root_dir=self._root, recursive=True):
            if os.path.isfile(self._at(path)):
                found.append(path)
            if len(found) > MATCHES_MAX:
                raise UsageError(f"{pattern} matches more than {MATCHES_MAX} files.")
        return sorted(found)

    def stat(self, path: str) -> tuple[int, int, int] | None:
        try:
            found = os.stat(self._at(path))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENAMETOOLONG):  # a name that leads to no file
                return None
            raise
        return found.st_size, found.st_mtime_ns, found.st_ino

    def checksum(self, path: str) -> str:
        # Something else in its place, such as a pipe, must not block for ever.
        descriptor = os.open(self._at(path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            kind = stat.S_IFMT(os.fstat(descriptor).st_mode)
            if kind != stat.S_IFREG:
                problem = (errno.EISDIR, "it is a folder") if kind == stat.S_IFDIR else _NO_FILE
                raise OSError(*problem, path)
            with open(descriptor, "rb", buffering=0, closefd=False) as file:
                return "sha256:" + hashlib.file_digest(file, "sha256").hexdigest()
        finally:
            os.close(descriptor)

    def _at(self, path: str) -> str:
        return path if path[:1] == "/" else self._root + path
