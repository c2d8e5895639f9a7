"""The list of datasets: how each is, filtered, in an order, page by page to the last."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from kfm.model.completeness import ASKED_FOR, HEALTH_RANK, SETTLED, DatasetHealth, HealthState

if TYPE_CHECKING:
    from kfm.model.settings import Settings

ListOrder = Literal["name", "health", "lag", "holes", "newest"]
ORDERS: tuple[ListOrder, ...] = get_args(ListOrder)
_UNDER_WAY = ("waiting", "running")
_LAST = 10**15 - 1  # the largest number that a position may have

Position = tuple[int, str]  # of a row: what it is ordered by, and its shown name


class ListFilter(NamedTuple):
    state: HealthState | None = None
    domain: str | None = None
    find: str | None = None  # a part of its shown name
    order: ListOrder = "name"
    after: Position | None = None  # the last row of the page before


class ListedDataset(NamedTuple):
    dataset_id: str
    shown: str  # as this caller may know it
    health: DatasetHealth
    position: Position


def listed_datasets(
    known: Sequence[str],
    judge: Callable[[str], DatasetHealth],
    settings: Settings,
    wanted: ListFilter,
    limit: int,
    shown: Callable[[str], str] = str,
) -> tuple[list[ListedDataset], bool]:
    """At most so many of those that are known, and whether more follow. `judge`: how one is; `shown`: its
    name as the caller may know it. One that is masked has no domain for them."""
    names = [
        (shown(name), name)
        for name in known
        if (wanted.find or "").lower() in shown(name).lower() and _is_in(settings, name, wanted, shown)
    ]
    if wanted.order == "name" and wanted.state is None:  # others have to be judged before they are ordered
        after = wanted.after[1] if wanted.after is not None else ""
        later = sorted(each for each in names if each[0] > after)
        chosen = [_row(judge, name, text, "name") for text, name in later[:limit]]
        return chosen, len(later) > limit
    rows = [_row(judge, name, text, wanted.order) for text, name in names]
    rows = sorted(
        (
            row
            for row in rows
            if wanted.state in (None, row.health.state)
            and (wanted.after is None or row.position > wanted.after)
        ),
        key=lambda row: row.position,
    )
    return rows[:limit], len(rows) > limit


def _is_in(settings: Settings, name: str, wanted: ListFilter, shown: Callable[[str], str]) -> bool:
    return wanted.domain is None or (shown(name) == name and settings.domain_of(name) == wanted.domain)


def _row(judge: Callable[[str], DatasetHealth], name: str, text: str, order: ListOrder) -> ListedDataset:
    health = judge(name)
    return ListedDataset(name, text, health, (_key(health, order), text))


def _key(health: DatasetHealth, order: ListOrder) -> int:
    """What comes first has the smallest: the worst, the latest, the most holes, the oldest data."""
    if order == "health":
        return HEALTH_RANK.index(health.state)
    if order == "lag":
        return _LAST - (health.lag_ms or 0)
    if order == "holes":
        return _LAST - holes(health)
    if order == "newest":
        return max(health.newest_ms or 0, 0)
    return 0


def holes(health: DatasetHealth) -> int:
    """Windows that are due, have no data and no end."""
    return sum(health.counts.get(state, 0) for state in ASKED_FOR)


def complete_percent(health: DatasetHealth) -> int | None:
    """How many of the windows that are due are settled, rounded down; None: none is due."""
    due = health.expected - sum(health.counts.get(state, 0) for state in _UNDER_WAY)
    settled = sum(health.counts.get(state, 0) for state in SETTLED)
    return None if due <= 0 else min(settled, due) * 100 // due


def domains(settings: Settings, hides: Callable[[str], bool]) -> Sequence[str]:
    return sorted({one.domain for one in settings.datasets if not hides(one.id)})


def listed_document(settings: Settings, row: ListedDataset) -> dict[str, Any]:
    """What the list tells beside the health and the version of a dataset."""
    declared = settings.declared(row.dataset_id)
    return {
        "domain": settings.domain_of(row.dataset_id),
        "owner": declared.owner.name if declared is not None and declared.owner is not None else None,
        "holes": holes(row.health),
        "complete_percent": complete_percent(row.health),
    }
