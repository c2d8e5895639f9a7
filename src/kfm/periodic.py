"""Periodic tasks of long-running commands; leases, renewed and watched by heartbeat threads."""

from __future__ import annotations

import contextvars
import logging
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from kfm.model.errors import (
    BackendUnavailable,
    Cancelled,
    KfmError,
    LostLease,
    RunTimedOut,
    StoreTooNew,
    code_on_record,
    outage_of,
)

if TYPE_CHECKING:
    from kfm.db.ledger import Ledger
    from kfm.ports import Clock, Heartbeat

LOOK_MS = 2_000  # between two looks for a stop
GRACE_MS = 10_000  # in which a function has to end after a stop
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
            about = {"task": name, "code": error.code, **outage_of(error)}
            logger.warning("%s: %s", name, error, extra=about)
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
    """Renews a lease from a thread with a store of its own."""

    def __init__(self, open_own_store: Callable[[], Ledger]) -> None:
        self._open = open_own_store

    def start(self, beat: Callable[[Ledger], None], interval_ms: int) -> Callable[[], None]:
        stop = threading.Event()

        def beating() -> None:
            store: Ledger | None = None
            while not stop.wait(interval_ms / 1000):
                # A failed renewal does not end it: the next one tries again, with a store opened anew.
                try:
                    store = store or self._open()
                    beat(store)
                except Exception as error:  # noqa: BLE001
                    logger.warning("heartbeat: %s", error, extra=outage_of(error))
                    if store is not None:
                        with suppress(Exception):
                            store.close()
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


class HeldLease:
    """A held lock with its fence: renewed while work goes on, until something stops that work.

    `check` is called between any two steps, by functions and by their calls. Safety does not depend on it:
    the fence is compared where the promotion commits. It only stops work that has become pointless.
    """

    def __init__(
        self,
        scope: str,
        fence: int,
        run_id: str,
        *,
        clock: Clock,
        lease_ms: int,
        renew_ms: int,
        policy_epoch: int,
        gate: Callable[[Ledger], KfmError | None],
        heartbeat: Heartbeat | None = None,
        store: Ledger | None = None,
        run_ms: int | None = None,
        grace_ms: int = GRACE_MS,
        redact: Callable[[str], str] = str,
    ) -> None:
        """`gate` says what stops the work once the policy epoch has moved. Without a heartbeat the thread
        that makes this renews the lease, with `store`."""
        self._scope = scope
        self._fence = fence
        self._run_id = run_id
        self._clock = clock
        self._lease_ms = lease_ms
        self._renew_ms = renew_ms
        self._epoch = policy_epoch
        self._gate = gate
        self._heartbeat = heartbeat
        self._store = store
        self._run_ms = run_ms
        self._grace_ms = grace_ms
        self._redact = redact
        self._home = threading.current_thread()
        self._began_ms = clock.monotonic_ms()
        self._due_ms = self._began_ms + renew_ms
        self._error: KfmError | None = None  # what stops the work: set once, read from any thread
        self._stopped_ms = 0
        self._abandoned = False

    def check(self) -> None:
        """Raise if something has stopped the work; from any thread."""
        renews = self._heartbeat is None and threading.current_thread() is self._home
        if renews and self._store is not None and self._clock.monotonic_ms() >= self._due_ms:
            self.look(self._store)
        error = self.error
        if error is not None:
            raise error

    @property
    def error(self) -> KfmError | None:
        """What stops the work, as a new object: several threads may raise it."""
        self._look_here()
        error = self._error
        return None if error is None else type(error)(error.detail, remedy=error.own_remedy, **error.facts)

    def begin_anew(self) -> None:
        """The limit of time counts from here: another run begins under the same lease."""
        self._began_ms = self._clock.monotonic_ms()

    def beat(self, store: Ledger) -> None:
        """Called by a heartbeat beside the work: look for a stop, and abandon what does not end after one."""
        if self._abandoned:
            return
        if self._error is not None and self._clock.monotonic_ms() - self._stopped_ms >= self._grace_ms:
            self._abandon(store, self._error)
        else:
            self.look(store)

    def look(self, store: Ledger) -> None:
        """Look for a stop; renew the lease if that is due."""
        self._look_here()
        now_ms = self._clock.monotonic_ms()
        seen: tuple[int, str | None] | None
        if now_ms >= self._due_ms:
            seen = store.renew(self._scope, self._fence, self._lease_ms)
            self._due_ms = now_ms + self._renew_ms
        else:
            seen = store.policy_epoch(), store.cancelled(self._run_id)
        if seen is None:
            self._error = None  # whatever else has stopped it
            self._stop(LostLease(f"{self._scope} has passed to another run."))
            return
        epoch, cancelled = seen
        if cancelled is not None:
            self._stop(Cancelled(cancelled))
        if epoch != self._epoch:
            self._stop(self._gate(store))
            self._epoch = epoch

    @contextmanager
    def beating(self) -> Iterator[None]:
        """Renew and look in the background, where there is a heartbeat."""
        if self._heartbeat is None:
            yield
            return

        def beat(store: Ledger) -> None:
            try:
                self.beat(store)
            except StoreTooNew as error:
                self._stop(error)  # nothing of it can land any more
            except BackendUnavailable:
                return  # the next beat tries again; if the lease lapses meanwhile, the fence decides

        finish = self._heartbeat.start(beat, min(self._renew_ms, LOOK_MS))
        try:
            yield
        except KeyboardInterrupt:
            if self._abandoned:  # interrupted by us, not by a person
                self.check()
            raise
        finally:
            finish()

    def _look_here(self) -> None:
        """For a stop that needs no ledger."""
        if self._error is not None:
            return
        if self._run_ms is not None and self._clock.monotonic_ms() - self._began_ms >= self._run_ms:
            self._stop(RunTimedOut(f"Its limit is {self._run_ms / 1000:g} s."))

    def _stop(self, error: KfmError | None) -> None:
        if error is not None and self._error is None:
            self._stopped_ms = self._clock.monotonic_ms()
            self._error = error

    def _abandon(self, store: Ledger, error: KfmError) -> None:
        """Give up the lease: the function goes on, and nothing that it does counts any more."""
        text = f"its function did not end within {self._grace_ms / 1000:g} s after the stop"
        if not isinstance(error, LostLease | StoreTooNew):
            from kfm.model.retry import classify_exception  # late: only what is abandoned needs it

            kind = classify_exception(error)
            store.abandon(
                self._scope,
                self._fence,
                self._run_id,
                code_on_record(error),
                f"{self._redact(error.message)} It was abandoned: {text}.",
                kind.error_class,
                retryable=kind.retryable,
            )
        self._error = LostLease(
            f"Run {self._run_id} was abandoned: {text}.",
            remedy="Let long work call the context's check(); `kfm explain RUN` says what stopped it.",
        )
        self._abandoned = True
        logger.warning("run %s was abandoned: %s", self._run_id, text, extra={"run_id": self._run_id})
        if self._home is threading.main_thread() and self._home.ident is not None:
            signal.pthread_kill(self._home.ident, signal.SIGINT)  # `kfm run` has nothing else to do
