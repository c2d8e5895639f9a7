"""The lease of a run: renewed by a heartbeat while work goes on, and checked between steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kfm.model.errors import BackendUnavailable, Cancelled, LostLease
from kfm.runs.kernel import Kernel

if TYPE_CHECKING:
    from kfm.db.ledger import Ledger


class HeldLease:
    """A held lock with its fence, until the ledger reports that it is lost.

    `check` is called between any two steps. Safety does not depend on it: the fence is compared
    where the promotion commits. It only stops work that has become pointless.
    """

    def __init__(
        self,
        kernel: Kernel,
        scope: str,
        fence: int,
        policy_epoch: int,
        on_epoch: Callable[[], None],
    ) -> None:
        self._kernel = kernel
        self._scope = scope
        self._fence = fence
        self._epoch = policy_epoch
        self._epoch_seen = policy_epoch
        self._on_epoch = on_epoch
        self._lost = False
        self._cancelled: str | None = None  # why, once a person or a newer request cancels it
        self._due_ms = kernel.clock.monotonic_ms() + kernel.heartbeat_ms

    def beat(self, store: Ledger) -> None:
        """Renew; called here between steps, and by a heartbeat beside long ones."""
        renewed = store.renew(self._scope, self._fence, self._kernel.lease_ms)
        if renewed is None:
            self._lost = True
        else:
            self._epoch_seen, self._cancelled = renewed

    def check(self) -> None:
        """Raise if the lock is lost, or a person or a switch cancels work in flight."""
        clock = self._kernel.clock
        if self._kernel.heartbeat is None and clock.monotonic_ms() >= self._due_ms:
            self._due_ms = clock.monotonic_ms() + self._kernel.heartbeat_ms
            self.beat(self._kernel.store)
        if self._cancelled is not None:
            raise Cancelled(self._cancelled)
        if self._lost:
            raise LostLease(f"{self._scope} has passed to another run.")
        if self._epoch_seen != self._epoch:
            self._epoch = self._epoch_seen
            self._on_epoch()

    @contextmanager
    def beating(self) -> Iterator[None]:
        """Renew in the background, where the kernel has a heartbeat."""
        if self._kernel.heartbeat is None:
            yield
            return

        def beat(store: Ledger) -> None:
            try:
                self.beat(store)
            except BackendUnavailable:
                return  # the next beat tries again; if the lease lapses meanwhile, the fence decides

        stop = self._kernel.heartbeat.start(beat, self._kernel.heartbeat_ms)
        try:
            yield
        finally:
            stop()
