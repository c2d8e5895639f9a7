"""The last days of a dataset, as Home draws them."""

from __future__ import annotations

from kfm.model.completeness import WindowState, WindowVerdict
from kfm.web.console.views.home import _days

HOUR_MS = 3_600_000
TODAY_MS = 20_000 * 24 * HOUR_MS


def day(*states: WindowState) -> str:
    windows = [
        WindowVerdict(
            source_id="river",
            start_ms=TODAY_MS + 6 * number * HOUR_MS,
            end_ms=TODAY_MS + 6 * (number + 1) * HOUR_MS,
            state=state,
            due_ms=TODAY_MS,
        )
        for number, state in enumerate(states)
    ]
    return list(_days(windows, TODAY_MS))[-1].title.partition(": ")[2]


def test_a_day_of_several_windows_says_how_many_are_in_each_state() -> None:
    """One that is missing of four is not four that are missing; the worst comes first."""
    assert day("published", "missing", "published", "published") == "1 missing, 3 published"
    assert day("missing", "missing") == "2 missing"
    assert day("published") == "published"
    assert day() == "no window"
