"""Folders of files that runs leave in the state folder: copies of what the ledger knows."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kfm.model.records import Record

if TYPE_CHECKING:
    from kfm.db.ledger_reader import LedgerReader


class ArtifactFolder(Record, frozen=True):
    """What one run has left."""

    run_id: str
    path: str
    files: int
    size: int


class ArtifactFolders:
    """The artifacts of runs: `runs/RUN/attempt-N` in the state folder."""

    def __init__(self, path: str, ledger: LedgerReader) -> None:
        self._path = path
        self._ledger = ledger

    def old(self, before_ms: int) -> Iterator[ArtifactFolder]:
        """Those of runs that succeeded before that. Others stay: they say what went wrong."""
        for run_id in sorted(os.listdir(self._path)) if os.path.isdir(self._path) else ():
            run = self._ledger.run(run_id)
            is_done = run is not None and run.status == "success" and run.end_time_ms is not None
            if is_done and run is not None and (run.end_time_ms or 0) < before_ms:
                path = f"{self._path}/{run_id}"
                if os.path.isdir(path) and not os.path.islink(path):
                    files = sum(len(names) for _, _, names in os.walk(path))
                    yield ArtifactFolder(run_id=run_id, path=path, files=files, size=folder_size(path))

    @staticmethod
    def remove(one: ArtifactFolder) -> None:
        shutil.rmtree(one.path, ignore_errors=True)


def folder_size(path: str) -> int:
    """Bytes of the files in a folder and below; a file that several names lead to counts once."""
    seen: set[tuple[int, int]] = set()
    total = 0
    for folder, _, names in os.walk(path):
        for name in names:
            try:
                found = os.lstat(os.path.join(folder, name))
            except OSError:
                continue
            if (found.st_dev, found.st_ino) not in seen:
                seen.add((found.st_dev, found.st_ino))
                total += found.st_size
    return total
