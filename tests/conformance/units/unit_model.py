"""What the ledger of units should say, on one page: no tables, no transactions."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Literal

from kfm.model.retry_budgets import lapse_fate
from kfm.model.units import ClaimedUnit

Outcome = Literal["success", "retry", "uncharged", "spent", "quarantine"]


@dataclass
class Known:
    """One unit."""

    etag: str
    sequencer: str | None
    not_before_ms: int = 0
    status: str = "pending"
    version: int = 1
    attempts: int = 0
    content_version: int = 1
    done_version: int = 0
    grant_attempts: int = 0
    granted_at_ms: int = 0
    alone: int = 0
    removed: int = 0
    removal: str | None = None  # the sequencer of the newest removal
    lease_until_ms: int = 0
    worker: str = ""
    shown: bool = False  # its item is visible

    def facts(self) -> tuple[object, ...]:
        return (
            self.status,
            self.version,
            self.attempts,
            self.etag,
            self.sequencer,
            self.content_version,
            self.done_version,
            self.grant_attempts,
            self.alone,
            self.removed,
            self.removal,
        )

    def reopen(self) -> None:
        """Pending, with a new grant, among the others, and due at once."""
        if self.status != "pending":
            self.attempts += 1
        self.status, self.version, self.not_before_ms = "pending", self.version + 1, 0
        self.grant_attempts = self.granted_at_ms = self.alone = 0

    def looked_at_again(self, now_ms: int) -> None:
        self.content_version, self.removed = self.content_version + 1, 0
        if self.status == "in_progress":
            self.grant_attempts, self.granted_at_ms = 1, now_ms
        else:
            self.reopen()


@dataclass
class Oracle:
    units: dict[str, Known] = field(default_factory=dict)

    # --- intake --------------------------------------------------------------------------

    def announce(self, name: str, etag: str, sequencer: str | None, policy: str, now_ms: int) -> str:
        one = self.units.get(name)
        if one is None:
            self.units[name] = Known(etag, sequencer)
            return "created"
        after = sequencer > one.sequencer if sequencer and one.sequencer else None
        furthest = max(sequencer or "", one.sequencer or "") or None
        if (etag == one.etag and not one.removed) or (sequencer and sequencer == one.sequencer):
            one.sequencer = furthest
            return "duplicate"
        if after is False:
            return "stale"
        late = bool(sequencer and one.removal and sequencer <= one.removal)
        overtaken = bool(after and one.removed and late)
        unclear = after is None or (late and not one.removed) or bool(one.removed and one.removal is None)
        doubted = unclear and (one.removed or late)
        one.sequencer = furthest
        if overtaken and one.removed == 2:
            return "stale"
        if policy == "ignore" and one.removed != 2 and not doubted:  # 2: it is back in the catalogue
            if not overtaken and not unclear:
                one.removed = 0
            return "reissues_ignored"
        removed = one.removed if overtaken else 0
        one.etag = etag
        one.looked_at_again(now_ms)
        one.removed = removed
        return "reissued"

    def remove(self, name: str, sequencer: str | None, policy: str, now_ms: int) -> int:
        one = self.units.get(name)
        if one is None:
            return 0
        known, furthest = one.sequencer, max(sequencer or "", one.removal or "") or None
        if sequencer and known and sequencer < known:
            one.removal = furthest
            return 0
        if not one.removed and not sequencer and policy == "remove":  # in no order: a HEAD decides
            if one.status != "quarantined":  # only a person ends that
                one.looked_at_again(now_ms)
            return 0
        one.removal = furthest if sequencer else None
        if one.removed:
            return 0
        one.removed = 2 if policy == "remove" else 1
        one.version += one.status != "in_progress"
        if policy == "remove" and one.done_version:
            one.shown = False
        return 1

    # --- work ----------------------------------------------------------------------------

    def due(self, alone: int, now_ms: int) -> dict[str, int]:
        return {
            name: one.not_before_ms
            for name, one in self.units.items()
            if one.status == "pending" and one.alone == alone and one.not_before_ms <= now_ms
        }

    def claim(self, name: str, now_ms: int, lease_ms: int, worker: str = "") -> None:
        one = self.units[name]
        one.worker = worker
        one.status, one.version, one.lease_until_ms = "in_progress", one.version + 1, now_ms + lease_ms
        one.attempts = max(one.attempts, 1)
        if one.grant_attempts == 0:
            one.granted_at_ms = now_ms
        one.grant_attempts += 1

    def end(self, name: str, held: ClaimedUnit, outcome: Outcome, not_before_ms: int, now_ms: int) -> str:
        """Where the unit's name appears in the answer."""
        one = self.units[name]
        if one.status != "in_progress" or one.version != held.version:
            return "lost"
        moved = one.content_version != held.content_version
        if outcome == "success":
            if moved or (one.removed == 2 and held.removed != 2):
                self._put_back(one)
                return "lost"
            one.status, one.version, one.alone = "succeeded", one.version + 1, 0
            one.done_version = held.content_version
            one.shown = one.shown or held.removed != 2
            return "succeeded"
        if moved:
            self._put_back(one)
        else:
            if outcome == "uncharged":
                one.grant_attempts = max(0, one.grant_attempts - 1)
            self._fail(one, outcome, not_before_ms, charged=outcome != "uncharged")
        return "failed"

    def reap(self, now_ms: int, dead: Collection[str] = ()) -> int:
        lapsed = [
            one
            for one in self.units.values()
            if one.status == "in_progress" and (one.lease_until_ms <= now_ms or one.worker in dead)
        ]
        for one in lapsed:
            outlook = lapse_fate(
                alone=bool(one.alone),
                grants=1,
                grant_attempts=one.grant_attempts,
                granted_at_ms=one.granted_at_ms,
                now_ms=now_ms,
                unit_random=0.5,
            )
            if not one.alone:
                one.grant_attempts = max(0, one.grant_attempts - 1)
            one.alone = 1
            self._fail(one, outlook.fate, outlook.not_before_ms or 0)
        return len(lapsed)

    @staticmethod
    def _fail(one: Known, fate: str, not_before_ms: int, *, charged: bool = True) -> None:
        one.version, one.status = one.version + 1, "failed"
        if fate in ("retry", "uncharged"):
            one.version, one.status, one.not_before_ms = one.version + 1, "pending", not_before_ms
            one.attempts += charged
        elif fate == "quarantine":
            one.version, one.status = one.version + 1, "quarantined"

    @staticmethod
    def _put_back(one: Known) -> None:
        one.version, one.status = one.version + 1, "failed"
        one.reopen()
