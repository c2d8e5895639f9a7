"""Overdue windows: expected data that has not come by its time becomes an incident, once, by any service."""

from __future__ import annotations

import logging
from itertools import takewhile
from typing import TYPE_CHECKING

from kfm.datasets.completeness import completeness_of
from kfm.db.window_facts import OpenHour
from kfm.model.completeness import WindowVerdict, overdue_rule
from kfm.model.errors import KfmError
from kfm.model.incidents import OverdueWindow

if TYPE_CHECKING:
    from kfm.app import App
    from kfm.datasets.completeness import CompletenessReader
    from kfm.model.settings import SourceSettings

WINDOWS_MAX = 500  # of one source in one pass; the mark moves on with the next
logger = logging.getLogger(__name__)


def mark_overdue(app: App) -> int:
    """Look at the windows that have come due since the last pass, by the ledger's clock; how many are
    overdue. Trouble with one source stops no other."""
    completeness, found = completeness_of(app), 0
    marks = app.ledger.window_reader().overdue_marks()
    for source in completeness.watched():
        try:
            found += _look(app, completeness, source, marks.get((source.id, overdue_rule(source))))
        except KfmError as error:
            if error.exit_code == 4:
                raise  # the ledger's: the caller opens it anew
            logger.warning("%s: %s", source.id, error.message, extra={"source": source.id})
    for dataset in completeness.feeds():
        found += _look_at_feed(app, completeness, dataset)
    return found


def _look(app: App, completeness: CompletenessReader, source: SourceSettings, mark_ms: int | None) -> int:
    mark_ms = _taken_back(app, source.id, overdue_rule(source), mark_ms)
    judged: list[WindowVerdict] = []
    for one in completeness.due(source, mark_ms, WINDOWS_MAX):
        if one.state == "running":  # it has its end soon: the next pass begins here
            break
        judged.append(one)
    if not judged:
        return 0
    late = [_overdue(source.dataset, one) for one in judged if one.needs_overdue]
    moved = app.kernel.store.windows().mark_overdue(
        late, source.id, overdue_rule(source), mark_ms, judged[-1].end_ms
    )
    return len(late) if moved else 0


def _taken_back(app: App, source_id: str, rule: str, mark_ms: int | None) -> int | None:
    """The mark; the present, where a clock that was ahead has set it further. What was told stays told."""
    now_ms = app.ledger.now_ms()
    if mark_ms is None or mark_ms <= now_ms:
        return mark_ms
    app.kernel.store.windows().mark_overdue((), source_id, rule, mark_ms, now_ms)
    return now_ms


def _look_at_feed(app: App, completeness: CompletenessReader, dataset: str) -> int:
    """Hours that have come due since the last pass; then those that were open, as they are now."""
    count, store = 0, app.kernel.store.windows()
    for product, hours in completeness.due_hours(dataset, WINDOWS_MAX):
        judged = list(takewhile(lambda one: one.state != "running", hours))
        if not judged:
            continue
        late = [_overdue(dataset, one) for one in judged if one.needs_overdue]
        left = [
            OpenHour(dataset=dataset, source_id=product.id, hour_ms=one.start_ms, is_told=one.needs_overdue)
            for one in judged
            if not one.is_settled
        ]
        mark_ms = completeness.marked_ms(product)
        if store.mark_overdue(late, product.id, product.rule, mark_ms, judged[-1].end_ms, left):
            count += len(late)
    again = completeness.open_hours(dataset)
    closed = [
        OpenHour(dataset=dataset, source_id=one.source_id, hour_ms=one.start_ms)
        for one, _ in again
        if one.is_settled
    ]
    late = [_overdue(dataset, one) for one, is_told in again if one.needs_overdue and not is_told]
    store.look_again(closed, late)
    return count + len(late)


def _overdue(dataset: str, one: WindowVerdict) -> OverdueWindow:
    return OverdueWindow(
        source_id=one.source_id, dataset_id=dataset, window=(one.start_ms, one.end_ms), due_ms=one.due_ms
    )
