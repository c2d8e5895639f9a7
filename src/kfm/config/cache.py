"""Remember a parsed configuration, so that an unchanged file is not parsed again.

The YAML parser costs more than all else that `kfm status` does. An entry holds the very bytes that
it was made from and is used only for those, so a stale or foreign entry can't be mistaken for the
file. A folder or file that others could write is not used; anything unreadable is ignored.
"""

from __future__ import annotations

import os
import stat
from zlib import crc32

import msgspec

from kfm import __version__
from kfm.model.settings import Settings

ENTRY_BYTES_MAX = 8 * 1024 * 1024


class CachedConfig(msgspec.Struct, frozen=True):
    """A file that was read, shaped and checked without complaint."""

    kfm_version: str
    path: str
    source: bytes
    settings: Settings
    lines: dict[str, int]


def _place(folder: str, path: str) -> str:
    # One entry a file, so that the cache does not grow with every edit.
    return f"{folder}/config-{crc32(path.encode('utf-8', 'surrogateescape')):08x}.json"


def recall(folder: str, path: str, source: bytes) -> CachedConfig | None:
    """The entry made from exactly these bytes by this release, or None."""
    try:
        handle = os.open(_place(folder, path), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            facts = os.fstat(handle)
            if not _ours(facts) or facts.st_size > ENTRY_BYTES_MAX:
                return None
            data = os.read(handle, facts.st_size)
        finally:
            os.close(handle)
        entry = msgspec.json.decode(data, type=CachedConfig)
    except (OSError, msgspec.MsgspecError, ValueError, RecursionError):
        return None
    same = entry.kfm_version == __version__ and entry.source == source and entry.path == path
    return entry if same else None


def remember(folder: str, path: str, source: bytes, settings: Settings, lines: dict[str, int]) -> None:
    """Keep an entry; no cache is no failure."""
    entry = CachedConfig(kfm_version=__version__, path=path, source=source, settings=settings, lines=lines)
    place = _place(folder, path)
    draft = f"{place}.{os.getpid()}"
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        if not _ours(os.stat(folder)):
            return
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        try:
            os.write(handle, msgspec.json.encode(entry))
        finally:
            os.close(handle)
        os.rename(draft, place)
    except OSError:
        return


def _ours(facts: os.stat_result) -> bool:
    return facts.st_uid == os.getuid() and not facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
