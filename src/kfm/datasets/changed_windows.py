"""Windows after changes by persons: which are withdrawn, which lost their data, which show an older revision.

What a run once published is not what readers see once a person has changed the dataset: the head decides.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from kfm.model.completeness import REMOVALS, Removal, WindowFacts
from kfm.model.dataset_changes import ChangeTime, Withdrawal, active
from kfm.model.remembered import remembered

if TYPE_CHECKING:
    from kfm.db.ledger_reader import LedgerReader
    from kfm.model.records import Item
    from kfm.model.settings import SourceSettings
    from kfm.model.versions import Version

Span = tuple[int, int]


class ChangedWindows:
    """What changes of its dataset made of the windows of one source."""

    def __init__(self, ledger: LedgerReader, source: SourceSettings) -> None:
        self._ledger = ledger
        self._source = source
        self._reader = ledger.change_reader()

    def seen(self, span: Span, known: WindowFacts) -> WindowFacts:
        """The facts of a window, as they are after every change."""
        if not self._changes:
            return known
        settled = next((one for one in self._withdrawn if one.covers(self._source.id, *span)), None)
        if settled is not None:
            at_ms, why = settled.withdrawn_at_ms, settled.reason
            return replace(known, settled="withdrawn", settled_ms=at_ms, settled_why=why)
        if self._is_removed(span, known):
            cause, at_ms = self._cause(span, known)
            known = replace(known, run_id=None, run_status=None, run_ended_ms=None, outcome=None)
            return _since(replace(known, removed=cause, removed_ms=at_ms), at_ms)
        lifted_ms = self._lifted_ms(span)
        if known.refused_by == "withdrawal" and (known.refused_ms or 0) <= lifted_ms:
            return _since(replace(known, removed=REMOVALS["withdraw"], removed_ms=lifted_ms), lifted_ms)
        shown = self._older(span, known)
        if shown:
            return replace(known, run_id=_made_by(shown[0]) or known.run_id, is_older=True)
        return known

    @property
    def is_changed(self) -> bool:
        """Has any person changed the dataset?"""
        return bool(self._changes)

    # --- what readers see ------------------------------------------------------------

    def _is_removed(self, span: Span, known: WindowFacts) -> bool:
        """Has a change taken from readers what the newest run of this window published?"""
        if known.run_status != "success" or known.outcome not in ("published", "unchanged"):
            return False
        ended_ms = known.run_ended_ms or 0
        if ended_ms > self._changes[-1].changed_at_ms or span in self._shown:
            return False
        if self._source.mode == "merge":
            return True
        # A newer window replaces this one: it has lost its data only if it was the newest that was shown.
        before = self._before(next(one for one in self._changes if ended_ms <= one.changed_at_ms))
        newest_ms = max((end_ms for _, end_ms in before), default=None)
        later = any(end_ms >= span[1] for _, end_ms in self._shown)
        return newest_ms is not None and newest_ms <= span[1] and not later and before != self._shown

    def _older(self, span: Span, known: WindowFacts) -> list[Item]:
        """What is shown of this window, where a rollback put it in the place of what its newest run
        published."""
        shown, ended_ms = self._shown.get(span, []), known.run_ended_ms or 0
        if known.run_status != "success" or not shown:
            return []
        back = next((one for one in self._rollbacks if ended_ms <= one.changed_at_ms), None)
        before = self._before(back).get(span, []) if back is not None else []
        return shown if before and not _same(before, shown) else []

    def _cause(self, span: Span, known: WindowFacts) -> tuple[Removal, int]:
        """The change because of which its data is not there, and when that was."""
        ended_ms, lifted_ms = known.run_ended_ms or 0, self._lifted_ms(span)
        backs = [one.changed_at_ms for one in self._rollbacks if one.changed_at_ms >= ended_ms]
        if backs and backs[-1] > lifted_ms:
            return REMOVALS["rollback"], backs[-1]
        return REMOVALS["withdraw"], lifted_ms or self._changes[-1].changed_at_ms

    def _lifted_ms(self, span: Span) -> int:
        """When the last withdrawal of this window was lifted; 0: none was."""
        lifted = (one for one in self._withdrawals if one.covers(self._source.id, *span) and one.lifted_by)
        times = {one.change_id: one.changed_at_ms for one in self._changes}
        return max((times.get(one.lifted_by or "", one.withdrawn_at_ms) for one in lifted), default=0)

    # --- read once -------------------------------------------------------------------

    @remembered
    def _changes(self) -> list[ChangeTime]:
        return self._reader.times(self._source.dataset)

    @remembered
    def _rollbacks(self) -> list[ChangeTime]:
        return [one for one in self._changes if one.kind == "rollback"]

    @remembered
    def _withdrawals(self) -> list[Withdrawal]:
        return self._reader.withdrawals(self._source.dataset)

    @remembered
    def _withdrawn(self) -> tuple[Withdrawal, ...]:
        return active(self._withdrawals)

    @remembered
    def _shown(self) -> dict[Span, list[Item]]:
        head = self._ledger.head(self._source.dataset)
        return self._windows(head[1]) if head is not None else {}

    @remembered
    def _bases(self) -> dict[int, dict[Span, list[Item]]]:
        return {}

    def _before(self, change: ChangeTime) -> dict[Span, list[Item]]:
        """What was shown before a change, by window."""
        found = self._bases.get(change.base_sequence)
        if found is None:
            promotion = self._ledger.promotion(self._source.dataset, change.base_sequence)
            version = self._ledger.version(promotion.version_id) if promotion is not None else None
            found = self._windows(version) if version is not None else {}
            self._bases[change.base_sequence] = found
        return found

    def _windows(self, version: Version) -> dict[Span, list[Item]]:
        found: dict[Span, list[Item]] = {}
        for item in version.items():
            if item.source_id == self._source.id:
                found.setdefault((item.window_start_ms, item.window_end_ms), []).append(item)
        return found


def _same(before: Iterable[Item], shown: Iterable[Item]) -> bool:
    from kfm.publish.manifest import same_contents

    return same_contents(before, shown)


def _made_by(item: Item) -> str | None:
    return item.run_state.run_id if item.run_state is not msgspec.UNSET else None


def _since(known: WindowFacts, at_ms: int) -> WindowFacts:
    """Ends of earlier attempts, and a dismissal of before, are over: data was there since, or may be."""
    if (known.refused_ms or 0) <= at_ms:
        known = replace(known, refused_ms=None, refused_by=None)
    if (known.failed_ms or 0) <= at_ms:
        known = replace(known, failed_ms=None, failed_by=None)
    return known
