"""A fair queue for the writers of one SQLite file.

SQLite gives its write lock to the process that happens to ask at the right moment, so a process that
writes back to back starves the others. Here a writer passes a gate before it asks for the write lock, and
opens the gate again only once it has it: the writer in the gate is next, and the busy writer
has to queue behind it. The gate is an empty database held by BEGIN EXCLUSIVE, because that is a
lock that every language with SQLite can take and that the kernel drops when a process dies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import apsw

from kfm.model.errors import StoreBusy

if TYPE_CHECKING:
    from kfm.ports import Clock

WAIT_MAX_MS = 30_000
_FIRST_WAITS_MS = (1, 1, 1, 2, 2, 3)
_LATER_WAIT_MS = 5


class WriteLock:
    """`with lock: …` holds the gate; get the write lock in there, then leave."""

    def __init__(self, path: str, clock: Clock, wait_max_ms: int = WAIT_MAX_MS) -> None:
        self._path = path
        self._clock = clock
        self._wait_max_ms = wait_max_ms
        self._deadline_ms = 0
        self._inside = False
        self._gate = apsw.Connection(f"{path}-gate")
        self._gate.set_busy_handler(self._keep_waiting)

    def wait_for_database(self, tries: int) -> bool:
        """The database's busy handler: in the gate the deadline goes on, elsewhere a new one begins."""
        if tries == 0 and not self._inside:
            self._deadline_ms = self._clock.monotonic_ms() + self._wait_max_ms
        return self._keep_waiting(tries)

    def _keep_waiting(self, tries: int) -> bool:
        if self._clock.monotonic_ms() >= self._deadline_ms:
            return False
        self._clock.sleep_ms(_FIRST_WAITS_MS[tries] if tries < len(_FIRST_WAITS_MS) else _LATER_WAIT_MS)
        return True

    def hurry(self, wait_max_ms: int) -> None:
        """Inside: wait no longer than this for the database."""
        self._deadline_ms = self._clock.monotonic_ms() + wait_max_ms

    def __enter__(self) -> None:
        self._deadline_ms = self._clock.monotonic_ms() + self._wait_max_ms
        try:
            self._gate.execute("BEGIN EXCLUSIVE")
        except apsw.BusyError as error:
            raise self.too_late() from error
        self._inside = True

    def __exit__(self, *_: object) -> None:
        self._inside = False
        self._gate.execute("COMMIT")

    def too_late(self) -> StoreBusy:
        return StoreBusy(f"{self._path}: other processes have had it for {self._wait_max_ms} ms.")

    def close(self) -> None:
        self._gate.close()
