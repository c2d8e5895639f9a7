"""Periodic tasks of long-running commands, and heartbeat threads that renew leases."""

from __future__ import annotations

import contextvars
import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from kfm.model.errors import KfmError

if TYPE_CHECKING:
    from kfm.db.ledger import Ledger

logger = logging.getLogger(__name__)


@dataclass
class PeriodicTask:
    """Maintenance that a loop repeats at an interval."""

    name: str
    every_ms: int
    run: Callable[[], object]
    started_ms: int | None = None  # when it was last run, in monotonic time

    def is_due(self, now_ms: int) -> bool:
        return self.started_ms is None or now_ms - self.started_ms >= self.every_ms


class TaskFailure(NamedTuple):
    """A task and the error that ended it."""

    task: PeriodicTask
    error: Exception

    def log(self) -> None:
        name, error = self.task.name, self.error
        if isinstance(error, KfmError):
            logger.warning("%s: %s", name, error, extra={"task": name, "code": error.code})
        else:  # its message alone would not say what kind of error it is
            logger.warning("%s: %s: %s", name, type(error).__name__, error, extra={"task": name})


def run_due(tasks: Iterable[PeriodicTask], now_ms: int, *, everything: bool = False) -> list[TaskFailure]:
    """Run the tasks that are due, or all of them. A failure keeps no other task from its turn."""
    failures = []
    for task in tasks:
        if everything or task.is_due(now_ms):
            task.started_ms = now_ms
            try:
                task.run()
            except Exception as error:  # noqa: BLE001 - the caller logs it, or ends because of it
                failures.append(TaskFailure(task, error))
    return failures


def repeat(task: PeriodicTask, *, stopping: Callable[[], bool], rest: Callable[[int], object]) -> None:
    """The body of a thread for one task that may take long. Failures are logged; the next run tries again."""
    while not stopping():
        for failure in run_due([task], 0, everything=True):
            failure.log()
        rest(task.every_ms)


class LeaseHeartbeat:
    """Renews a lease from a thread with a connection of its own."""

    def __init__(self, open_own_store: Callable[[], Ledger]) -> None:
        self._open = open_own_store

    def start(self, beat: Callable[[Ledger], None], interval_ms: int) -> Callable[[], None]:
        stop = threading.Event()

        def beating() -> None:
            store: Ledger | None = None
            while not stop.wait(interval_ms / 1000):
                # A failed renewal does not end it: the next one tries again, with a new connection.
                try:
                    store = store or self._open()
                    beat(store)
                    logger.debug("heartbeat: the lease is renewed")
                except Exception as error:  # noqa: BLE001
                    logger.warning("heartbeat: %s", error)
                    store = None
            if store is not None:
                store.close()

        own = contextvars.copy_context()  # so that its log lines name the run, too
        thread = threading.Thread(target=lambda: own.run(beating), name="kfm-heartbeat", daemon=True)
        thread.start()

        def finish() -> None:
            stop.set()
            thread.join()

        return finish
