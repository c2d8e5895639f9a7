"""Versions that were kept whole get trees, one after the other, while everything goes on."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from kfm.model.quantities import counted
from kfm.runs.kernel import Kernel

logger = logging.getLogger(__name__)


class VersionConversion:
    """Where the conversion is. Nothing of it is kept: what is converted is not listed again."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._upkeep = kernel.store.version_upkeep()
        self._waiting: Iterator[tuple[str, str]] | None = self._listed()
        self._next: tuple[str, str] | None = None

    def step(self, limit: int) -> int:
        """Convert some; returns how many were looked at. 0: none is left, or a collection is under way."""
        looked = 0
        while self._waiting is not None and looked < limit:
            self._next = self._next or next(self._waiting, None)
            if self._next is None:
                self._waiting = None
                break
            answer = self._upkeep.convert(*self._next)
            if answer == "busy":
                break
            if answer == "damaged":
                logger.warning(
                    "version %s stays as it is: its manifest is not what its id says", self._next[0]
                )
            looked, self._next = looked + 1, None
        return looked

    def finish(self) -> int:
        """Convert what is left; returns how many were looked at."""
        left = self._upkeep.count_whole()
        if not left:
            return 0
        logger.info("%s of before versions were trees", counted(left, "manifest"))
        self._kernel.progress.phase("convert versions", left)
        looked = 0
        while self.step(1):
            looked += 1
            self._kernel.progress.advance(1)
        self._kernel.progress.done()
        return looked

    def _listed(self) -> Iterator[tuple[str, str]]:
        """Heads first: the others are stored by what they do not share with them."""
        if not self._upkeep.count_whole():
            return
        for head in self._kernel.ledger.heads():
            if self._upkeep.is_whole(head.version_id):
                yield head.version_id, head.dataset_id
        found = self._upkeep.next_whole("")
        while found is not None:
            yield found
            found = self._upkeep.next_whole(found[0])
