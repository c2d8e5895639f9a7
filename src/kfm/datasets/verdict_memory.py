"""Verdicts that still hold: of a source of which the ledger says what it said, before the clock changes one.

What was read is compared with what was read before, row by row, so that nothing has to say that it changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from kfm.model.completeness import WindowVerdict

Verdicts = tuple["WindowVerdict", ...]
WINDOWS_KEPT_MAX = 50_000  # of all sources; those beyond are judged each time


class Judged(NamedTuple):
    of: Any  # all that the verdicts follow from, but for the time
    from_ms: int
    until_ms: int  # the first moment at which another time gives another verdict, or another window
    verdicts: Verdicts


class VerdictMemory:
    """The verdicts of each source that a process found last. Any number of threads may ask."""

    def __init__(self, kept_max: int = WINDOWS_KEPT_MAX) -> None:
        self._kept_max = kept_max
        self._judged: dict[str, Judged] = {}

    def recall(self, source_id: str, of: Any, now_ms: int) -> Verdicts | None:
        known = self._judged.get(source_id)
        if known is None or not known.from_ms <= now_ms < known.until_ms or known.of != of:
            return None
        return known.verdicts

    def keep(self, source_id: str, of: Any, from_ms: int, until_ms: int, verdicts: Verdicts) -> None:
        others = sum(len(one.verdicts) for name, one in list(self._judged.items()) if name != source_id)
        if others + len(verdicts) <= self._kept_max:
            self._judged[source_id] = Judged(of, from_ms, until_ms, verdicts)
        else:
            self._judged.pop(source_id, None)
