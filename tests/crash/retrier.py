"""A production command that ends itself at its N-th operation, whichever that is.

    python retrier.py NOTE NUMBER retry --due --json

As `child.py`, but it counts operations of all kinds and phases together, and those on PostgreSQL, too.
With NUMBER 0 it only counts. Waiting between two tries of a call takes no time: the tests turn the clock by
making rows older, and no process has to live through the pauses.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from tests.crash.child import Meter, watch_network, watch_sqlite, watch_system_calls

WAIT_REALLY_MAX_MS = 100  # for a turn at the database; longer pauses are those between two tries


class Counter(Meter):
    """Counts ticks, and strikes at one of them."""

    def __init__(self, note: str, number: int) -> None:
        super().__init__(note, "end", number, signal.SIGKILL if number else 0)
        self.ticks = 0

    def tick(self, operation: str) -> None:
        if threading.get_ident() != self._thread:
            return
        self.ticks += 1
        if self._signal and self.ticks == self._number:
            self.say({"operation": operation, "tick": self.ticks})
            os.kill(os.getpid(), signal.SIGKILL)


def watch_postgres(meter: Meter) -> None:
    from kfm.db.postgres import PostgresDatabase

    write, execute = PostgresDatabase.write, PostgresDatabase.execute

    def written(self: PostgresDatabase, change: Callable[..., Any]) -> Any:
        def inside(session: Any) -> Any:
            meter.tick("transaction begun")
            result = change(session)
            meter.tick("before commit")
            return result

        meter.tick("before a transaction")
        result = write(self, inside)
        meter.tick("after commit")
        return result

    def executed(self: PostgresDatabase, *args: Any, **options: Any) -> Any:
        result = execute(self, *args, **options)
        meter.tick("after a statement")
        return result

    PostgresDatabase.write = written  # type: ignore[method-assign,assignment]
    PostgresDatabase.execute = executed  # type: ignore[method-assign]


def wait_for_nothing() -> None:
    from kfm.system import SystemClock

    def sleep_ms(_self: SystemClock, delay_ms: int) -> None:
        if 0 < delay_ms <= WAIT_REALLY_MAX_MS:
            time.sleep(delay_ms / 1000)

    SystemClock.sleep_ms = sleep_ms  # type: ignore[method-assign]


def main() -> int:
    note, number, *arguments = sys.argv[1:]
    meter = Counter(note, int(number))
    watch_sqlite(meter)
    watch_postgres(meter)
    watch_network(meter)
    watch_system_calls(meter)
    wait_for_nothing()
    from kfm.cli import main as kfm

    sys.argv = ["kfm", *arguments]
    code: Any = 0
    try:
        kfm()
    except SystemExit as ended:
        code = ended.code
    meter.say({"ticks": meter.ticks})
    return int(code or 0)


if __name__ == "__main__":
    sys.exit(main())
