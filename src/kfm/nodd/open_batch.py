"""A batch of claimed units whose objects are read: how long it may take, and how its leases are kept."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from kfm.model.errors import BackendUnavailable
from kfm.model.quantities import counted

if TYPE_CHECKING:
    from kfm.model.units import ClaimedUnit, UnitFailure, UnitSuccess
    from kfm.nodd.worker import IngestContext

RENEWALS_MAX = 100  # of one batch: an object that is read for longer than hours is given up
LOST_NAMED_MAX = 20  # units that one line of the log names
logger = logging.getLogger(__name__)


class OpenBatch:
    """Hands units out for half of their lease, and none once the worker is to stop. Until they are recorded,
    the leases of all of them are renewed; what another worker has taken over is not begun, and not recorded.
    """

    def __init__(
        self,
        context: IngestContext,
        process: Callable[[ClaimedUnit], UnitSuccess | UnitFailure],
        claimed: list[ClaimedUnit],
        leased_ms: int,
    ) -> None:
        """`leased_ms`: when the leases began, on the clock that nothing sets, or before."""
        self._context = context
        self._lease_ms = context.settings.lease_ms
        self._leased_ms = leased_ms
        self._cut_ms = context.clock.monotonic_ms() + self._lease_ms // 2
        self._held = {one.wal_id: one for one in claimed}
        self._waiting = deque(claimed)
        self._results = iter(context.map_units(process, self._hand_out(), True))
        self._renewals = 0
        self._lost = 0
        self._is_over = False
        self._keep()

    def ended(self) -> list[UnitSuccess | UnitFailure]:
        """Results, until all units have ended or are others'; of a batch that is cut, until one takes longer
        than others."""
        found: list[UnitSuccess | UnitFailure] = []
        for result in self._results:
            if result is not None and result.claimed.wal_id in self._held:
                found.append(result)
            self._keep()
            if result is None and (not self._held or ((found or self._waiting) and self._is_cut())):
                break
        else:
            self._is_over = True
        return [one for one in found if self._held.pop(one.claimed.wal_id, None) is not None]

    def not_begun(self) -> list[ClaimedUnit]:
        """What no result will come of; it is not held any more."""
        rest = [one for one in self._waiting if self._held.pop(one.wal_id, None) is not None]
        self._waiting.clear()
        return rest

    def begun(self) -> list[ClaimedUnit]:
        """What is being read, and will end later. Nothing: the batch is over, whatever is still read of what
        others have by now."""
        return [] if self._is_over else list(self._held.values())

    def take_lost(self) -> int:
        """How many units others have taken over, since this was asked last."""
        lost, self._lost = self._lost, 0
        return lost

    def _is_cut(self) -> bool:
        return self._context.stopping() or self._context.clock.monotonic_ms() >= self._cut_ms

    def _hand_out(self) -> Iterator[ClaimedUnit]:
        while self._waiting and not self._is_cut():
            one = self._waiting.popleft()
            if one.wal_id in self._held:
                yield one

    def _keep(self) -> None:
        """Renew the leases, if a third of their time is over."""
        context, began_ms = self._context, self._context.clock.monotonic_ms()
        age_ms = began_ms - self._leased_ms
        if age_ms < self._lease_ms // 3 or not self._held or self._renewals >= RENEWALS_MAX:
            return
        try:
            kept = context.wal.renew_units(tuple(self._held.values()), self._lease_ms)
        except BackendUnavailable as error:  # the results' own transaction meets it, too, and waits
            logger.warning("Leases of units can't be renewed: %s", error, extra={"code": error.code})
            self._leased_ms = began_ms - self._lease_ms // 6  # asked again after as long
            return
        self._leased_ms = began_ms
        self._renewals += 1
        lost = [one for wal_id, one in self._held.items() if wal_id not in kept]
        for one in lost:
            del self._held[one.wal_id]
        self._lost += len(lost)
        if lost:
            log_lost([one.wal_id for one in lost], lost[0].dataset, age_ms)


def log_lost(wal_ids: list[str], dataset: str, held_ms: int) -> None:
    logger.warning(
        "%s of %s lost after %d s: leases lapsed, or other bytes were announced. What was done of them does "
        "not count",
        counted(len(wal_ids), "unit"),
        dataset,
        held_ms // 1000,
        extra={"dataset": dataset, "units": wal_ids[:LOST_NAMED_MAX], "held_ms": held_ms},
    )
