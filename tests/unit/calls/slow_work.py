"""Work for other processes, which must find it by its name."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import Any

import kfm


class Untold(Exception):
    def __init__(self, one: str, two: str) -> None:
        super().__init__(one)


@kfm.call(provider="isolated", timeout=20, isolation="process", idempotent=True)
def add(one: int, two: int) -> tuple[int, int, bool]:
    left = kfm.deadline()
    return one + two, os.getpid(), left is not None and 0 < left <= 20


@kfm.call(timeout=3, isolation="process")
def hang(path: str) -> None:
    """Starts another process that would hang, too, and tells both ids."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    with open(path, "w") as file:
        file.write(f"{os.getpid()} {child.pid}")
    time.sleep(60)


@kfm.call(timeout=20, isolation="process", idempotent=True, attempts=1)
def fail(how: str) -> Any:
    if how == "known":
        raise kfm.CircuitOpen("as said", provider="x")
    if how == "untold":
        raise Untold("one", "two")
    if how == "lambda":
        return lambda: None
    os._exit(7)


def plain(value: int) -> int:
    return value
