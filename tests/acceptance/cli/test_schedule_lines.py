"""The lines of `kfm schedule history`: outcomes of scheduled times."""

from __future__ import annotations

from typing import Any

from kfm.cli.schedule import TOGETHER_MIN, history_rows
from kfm.model.scheduled_times import FIRST_SEEN


def instant(second: int, fate: str = "redefined", **more: Any) -> dict[str, Any]:
    return {
        "instant": f"2026-11-16T10:04:{second:02d}.000Z",
        "window_start": "2026-11-15T06:00:00.000Z",
        "window_end": "2026-11-16T06:00:00.000Z",
        "fate": fate,
        "reason": FIRST_SEEN if fate == "redefined" else None,
        "before_first_seen": fate == "redefined",
        "request_id": None,
        "state": None,
        "outcome": None,
        "blocked_by": None,
        "run_id": None,
        **more,
    }


def test_what_came_before_anybody_knew_the_schedule_is_called_so() -> None:
    """It was not redefined: there was nothing to redefine."""
    assert [row[1] for row in history_rows([instant(1)])] == ["not seen yet"]
    assert history_rows([instant(1, before_first_seen=False)])[0][1] == "redefined"


def test_many_of_one_fate_share_a_row() -> None:
    """With the first, the last and how many there are; fewer are told one by one."""
    many = [instant(second) for second in range(TOGETHER_MIN)]
    (row,) = history_rows(many)
    assert row[0] == f"2026-11-16 10:04:00 … 2026-11-16 10:04:{TOGETHER_MIN - 1:02d}"
    assert row[4] == f"{TOGETHER_MIN} scheduled times: {FIRST_SEEN}"
    assert len(history_rows(many[1:])) == TOGETHER_MIN - 1


def test_what_became_a_request_has_a_row_of_its_own() -> None:
    """However alike they ended, each has its run."""
    many = [
        instant(second, "request", request_id="one", state="done", outcome="noop", run_id="5cf7deaa-d612")
        for second in range(2 * TOGETHER_MIN)
    ]
    assert len(history_rows(many)) == 2 * TOGETHER_MIN
    mixed = [*(instant(second) for second in range(TOGETHER_MIN)), many[0], instant(50)]
    assert [row[1] for row in history_rows(mixed)] == ["not seen yet", "unchanged", "not seen yet"]
