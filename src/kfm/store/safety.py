"""Refusals: what kfm will not keep records on."""

from __future__ import annotations

import os
import re

from kfm.core.errors import StoreUnsafe

_NETWORK_FILE_SYSTEMS = {
    "nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "9p", "ceph", "glusterfs", "lustre", "beegfs",
    "fuse.sshfs", "fuse.s3fs", "fuse.gcsfuse", "fuse.glusterfs", "fuse.rclone", "fuse.blobfuse",
}  # fmt: skip

_OCTAL = re.compile(r"\\([0-7]{3})")  # how the kernel writes blanks and backslashes in mount points


def check_sqlite_library(version: str) -> None:
    """Refuse libraries with the WAL-reset bug: two processes that write and checkpoint lose commits."""
    number = tuple(int(part) for part in version.split(".")[:3])
    patched = (3, 44, 6) <= number < (3, 45) or (3, 50, 7) <= number < (3, 51)
    if number < (3, 51, 3) and not patched:
        raise StoreUnsafe(
            f"SQLite {version} can lose commits when two processes write (fixed in 3.51.3).",
            remedy="Install the apsw wheel that the requirements pin: it carries its own SQLite.",
        )


def file_system_type(path: str, mounts: str = "/proc/self/mountinfo") -> str | None:
    """The type of the file system that holds a path; None where the machine does not tell."""
    try:
        with open(mounts, encoding="utf-8", errors="replace") as lines:
            table = [line.split() for line in lines]
    except OSError:
        return None
    real = os.path.realpath(path)
    best, kind = "", None
    for fields in table:
        point = _OCTAL.sub(lambda found: chr(int(found[1], 8)), fields[4])
        inside = real == point or real.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, fields[fields.index("-") + 1]
    return kind


def check_local_disk(path: str, kind: str | None) -> None:
    """SQLite's locks and shared memory do not work over a network."""
    if kind in _NETWORK_FILE_SYSTEMS:
        raise StoreUnsafe(
            f"{path} lies on a network file system ({kind}).",
            remedy="Set `state` to a folder on a local disk, or `store` to a postgresql:// address.",
        )
