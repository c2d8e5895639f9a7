"""The files of a project: found by pattern, told apart by their checksums."""

from __future__ import annotations

import hashlib
import os

from kfm.core.errors import UsageError

MATCHES_MAX = 1_000_000
_MAGIC = "*?["


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
            if os.path.isfile(self._root + path):
                found.append(path)
            if len(found) > MATCHES_MAX:
                raise UsageError(f"{pattern} matches more than {MATCHES_MAX} files.")
        return sorted(found)

    def stat(self, path: str) -> tuple[int, int, int] | None:
        try:
            told = os.stat(self._root + path if path[:1] != "/" else path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return told.st_size, told.st_mtime_ns, told.st_ino

    def checksum(self, path: str) -> str:
        with open(self._root + path if path[:1] != "/" else path, "rb", buffering=0) as file:
            return "sha256:" + hashlib.file_digest(file, "sha256").hexdigest()
