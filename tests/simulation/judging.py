"""How a broken promise is told, and how the simulated disk is read by onlookers."""

from __future__ import annotations

from typing import Any

from tests.power import PowerCutFiles


class Violation(BaseException):
    """The kernel broke a promise. Not an Exception: the kernel must not take it for a failure of the work."""


def require(held: bool, promise: str, /, **facts: Any) -> None:
    if not held:
        raise Violation(f"{promise} {facts}")


def read(files: PowerCutFiles, path: str) -> bytes:
    reader = files.open(path)
    return b"".join(iter(lambda: reader.read(1 << 20), b""))
