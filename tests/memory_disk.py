"""Where tests put their files: in memory, if the machine has room there. A sync costs milliseconds on a disk,
and proves nothing here: what power cuts leave is tested on disks that forget (`tests/power.py`)."""

from __future__ import annotations

import os

PLACE = "/dev/shm"
ROOM_MIN = 4 << 30  # bytes that must be free


def memory_disk() -> str | None:
    """The folder; None: files go to the usual place."""
    if not os.access(PLACE, os.W_OK | os.X_OK):
        return None
    found = os.statvfs(PLACE)
    may_execute = not found.f_flag & os.ST_NOEXEC
    return PLACE if may_execute and found.f_bavail * found.f_frsize >= ROOM_MIN else None
