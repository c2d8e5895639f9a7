"""A fair queue for the writers of one SQLite file.

SQLite hands its write lock to whoever asks at the right instant, so a process that writes back
to back starves the others. Here a writer passes a gate, waits for the room, and opens the gate
again only once it is inside: whoever stands in the gate is next, and the busy writer has to
queue behind it. Both locks are empty databases held by BEGIN EXCLUSIVE, because that is a lock
that every language with SQLite can take and that the kernel drops when a process dies.
"""

from __future__ import annotations

import apsw

from kfm.core.errors import StoreBusy
from kfm.ports import Clock

WAIT_MAX_MS = 30_000
_FIRST_WAITS_MS = (1, 1, 1, 2, 2, 3)
_LATER_WAIT_MS = 5


class Turnstile:
    """`with turnstile: …` holds the room; one writer at a time, in the order of arrival at the gate."""

    def __init__(self, path: str, clock: Clock, wait_max_ms: int = WAIT_MAX_MS) -> None:
        self._path = path
        self._clock = clock
        self._wait_max_ms = wait_max_ms
        self._deadline_ms = 0
        self._gate = self._lock_file(f"{path}-gate")
        self._room = self._lock_file(f"{path}-room")

    def _lock_file(self, path: str) -> apsw.Connection:
        connection = apsw.Connection(path)
        connection.set_busy_handler(self._keep_waiting)
        return connection

    def _keep_waiting(self, tries: int) -> bool:
        if self._clock.monotonic_ms() >= self._deadline_ms:
            return False
        self._clock.sleep_ms(_FIRST_WAITS_MS[tries] if tries < len(_FIRST_WAITS_MS) else _LATER_WAIT_MS)
        return True

    def __enter__(self) -> None:
        self._deadline_ms = self._clock.monotonic_ms() + self._wait_max_ms
        try:
            self._gate.execute("BEGIN EXCLUSIVE")
            try:
                self._room.execute("BEGIN EXCLUSIVE")
            finally:
                self._gate.execute("COMMIT")
        except apsw.BusyError as error:
            raise StoreBusy(f"{self._path}: other writers have had it for {self._wait_max_ms} ms.") from error

    def __exit__(self, *_: object) -> None:
        self._room.execute("COMMIT")

    def close(self) -> None:
        self._gate.close()
        self._room.close()
