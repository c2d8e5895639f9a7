"""`kfm` as it is, on a host whose clock may be wrong: `python -m tests.hosts.process CLOCK ARGUMENTS…`.

Namespaces share the machine's clock, so the difference is injected: CLOCK is a file with the milliseconds
that this host is ahead, which may change while it runs. (libfaketime breaks `time.sleep` of Python 3.11.)
What services wait for is shorter, as in `tests.crash.served`.
"""

from __future__ import annotations

import mmap
import struct
import sys
import time
from pathlib import Path

from kfm.cli import main
from tests.crash.served import hurry

_AHEAD = struct.Struct("=q")


def set_clock(path: Path, ahead_ms: int) -> None:
    """In place: processes that run have it mapped."""
    if not path.exists():
        path.write_bytes(bytes(_AHEAD.size))
    with path.open("r+b") as file:
        file.write(_AHEAD.pack(ahead_ms))


def shift_clock(path: Path) -> None:
    with path.open("rb") as file:
        ahead = mmap.mmap(file.fileno(), _AHEAD.size, prot=mmap.PROT_READ)
    real_ns = time.time_ns

    def time_ns() -> int:
        return real_ns() + int(_AHEAD.unpack(ahead[:])[0]) * 1_000_000

    time.time_ns = time_ns
    time.time = lambda: time_ns() / 1_000_000_000


if __name__ == "__main__":
    shift_clock(Path(sys.argv.pop(1)))
    hurry()
    main()
