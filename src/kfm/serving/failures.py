"""Webhooks that were refused, one line each: by the hash of what was sent, never by what it said.

A flood of them must neither fill the disk nor slow down what is genuine: lines have a rate, the file has a
size. Who sent it is not kept.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from contextlib import suppress

import msgspec

from kfm.core.times import rfc3339

NAME = "webhook_failures.jsonl"
BYTES_MAX = 4 * 1024 * 1024  # then it becomes NAME.1, and the one before that is gone
LINES_PER_SECOND = 50
BURST = 200


class Failures:
    """Appends to `folder`/webhook_failures.jsonl. Trouble with the file is no reason to answer otherwise."""

    def __init__(
        self,
        folder: str,
        now_ms: Callable[[], int],
        *,
        bytes_max: int = BYTES_MAX,
        per_second: int = LINES_PER_SECOND,
        burst: int = BURST,
    ) -> None:
        self._path = f"{folder}/{NAME}"
        self._now_ms = now_ms
        self._bytes_max = bytes_max
        self._per_second = per_second
        self._burst = burst
        self._left = float(burst)
        self._last_ms = now_ms()
        self._unwritten = 0

    def note(self, source_id: str | None, envelope_hash: str | None, reason: str, code: str) -> None:
        """`source_id` is None where there is no such source: its name would be a stranger's word."""
        now_ms = self._now_ms()
        self._left = min(self._burst, self._left + max(0, now_ms - self._last_ms) * self._per_second / 1000)
        self._last_ms = now_ms
        if self._left < 1:
            self._unwritten += 1
            return
        self._left -= 1
        line = {
            "time": rfc3339(now_ms),
            "source_id": source_id,
            "envelope_hash": envelope_hash,
            "reason": reason,
            "code": code,
        }
        if self._unwritten:
            line["unwritten_before"] = self._unwritten  # type: ignore[assignment]
        with suppress(OSError):
            self._append(msgspec.json.encode(line) + b"\n")
            self._unwritten = 0

    def _append(self, line: bytes) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(self._path, flags, 0o600)
        try:
            if os.fstat(descriptor).st_size + len(line) > self._bytes_max:
                self._rotate(descriptor)
                os.close(descriptor)
                descriptor = -1
                descriptor = os.open(self._path, flags, 0o600)
            os.write(descriptor, line)
        finally:
            if descriptor >= 0:
                os.close(descriptor)

    def _rotate(self, descriptor: int) -> None:
        """Several processes may see that it is full: one of them moves it, the others find that done."""
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        full, there = os.fstat(descriptor), os.stat(self._path)
        if (full.st_dev, full.st_ino) == (there.st_dev, there.st_ino):
            os.replace(self._path, f"{self._path}.1")
