"""Folders for as long as their process: what a killed one left goes with the next of its kind."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress

ATTEMPTS_MAX = 10
_RANDOM = "[a-z0-9_]{8}"  # as tempfile ends its names


@contextmanager
def scratch_folder(within: str | None, prefix: str) -> Iterator[str]:
    """A new folder, locked: the kernel frees the lock at the moment of death.

    `within`: None is where the system has temporary files, and removes them.
    """
    if within is not None:
        _remove_left(within, prefix)
    path, lock = _made(within, prefix)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def _made(within: str | None, prefix: str) -> tuple[str, int | None]:
    for _ in range(ATTEMPTS_MAX):
        path = tempfile.mkdtemp(prefix=prefix, dir=within)
        lock = _locked(path)
        # Before it was locked, another could take it for one that was left.
        if os.path.isdir(path):
            return path, lock
        if lock is not None:
            os.close(lock)
    raise FileNotFoundError(f"folders are removed from {within} as soon as they are made")


def _locked(path: str) -> int | None:
    """None: it is gone, another has the lock, or there are none on this file system."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def _remove_left(within: str, prefix: str) -> None:
    for name in os.listdir(within):
        path = os.path.join(within, name)
        if re.fullmatch(re.escape(prefix) + _RANDOM, name) and (lock := _locked(path)) is not None:
            with suppress(OSError):
                shutil.rmtree(path, ignore_errors=True)
            os.close(lock)
