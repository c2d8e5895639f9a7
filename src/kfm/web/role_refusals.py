"""Refused changes in the audit log: the first at once, repeated ones as one entry a minute.

Every caller that may only read could otherwise make the ledger grow as fast as requests come.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from kfm.model.records import GovernanceEntry, Record
from kfm.model.roles import Identity, Role, refusal_entry

REPEAT_MS = 60_000


class RoleRefusal(Record, frozen=True):
    """A change that a person has no role for."""

    identity: Identity
    role: Role
    what: str
    reason: str

    def entry(self, at_ms: int, count: int) -> GovernanceEntry:
        return refusal_entry(self.identity, self.role, self.what, self.reason, at_ms, count)


class RefusalCounter:
    """Counts refusals by person and operation: as many counters as there are people and operations."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._lock = threading.Lock()
        self._entered_ms: dict[tuple[str, str], int] = {}
        self._waiting: dict[tuple[str, str], tuple[RoleRefusal, int]] = {}

    def note(self, refused: RoleRefusal) -> None:
        """Counts it; `due` tells when it is to be entered."""
        key = (refused.identity.subject, refused.what)
        with self._lock:
            _, count = self._waiting.get(key, (refused, 0))
            self._waiting[key] = (refused, count + 1)

    def due(self, *, closing: bool = False) -> list[GovernanceEntry]:
        """The entries to be made now: of what was not entered within the last minute, or all at the end."""
        now_ms = self._now_ms()
        with self._lock:
            ready = [
                key
                for key in self._waiting
                if closing or now_ms - self._entered_ms.get(key, -REPEAT_MS) >= REPEAT_MS
            ]
            entries = []
            for key in ready:
                refused, count = self._waiting.pop(key)
                self._entered_ms[key] = now_ms
                entries.append(refused.entry(now_ms, count))
            return entries
