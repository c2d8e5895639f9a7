"""Answers that mean "not yet": which they are, how slowly it is asked again, and until when."""

from __future__ import annotations

import pytest

from kfm.model.arrival import asked_again_ms, asked_until_ms, not_yet_answer, not_yet_error
from kfm.model.errors import DataNotYet, DataOverdue
from kfm.model.records import Found
from kfm.model.settings import Expect, SourceSettings
from kfm.model.windows import resolve_window

pytestmark = pytest.mark.req("DAT-2")

MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
MIDNIGHT_MS = 20_000 * DAY_MS
WINDOW = resolve_window("P1D", "UTC", MIDNIGHT_MS)


def found(size: int | None) -> Found:
    return Found(uri="file:a", path="a", media_type="text/csv", size=size, checksum="sha256:0")


def source(**rule: object) -> SourceSettings:
    return SourceSettings(id="s", dataset="d", kind="files", expect=Expect(**rule) if rule else None)  # type: ignore[arg-type]


def test_what_is_not_yet() -> None:
    """Only what is listed; a status counts for an error alone, files of no bytes are nothing, and a size that
    is not known may be data."""
    rules = (404, "empty", "unchanged")
    assert not_yet_answer(rules, status=404, found=None, is_unchanged=False) == 404
    assert not_yet_answer(rules, status=410, found=None, is_unchanged=False) is None
    assert not_yet_answer(rules, status=None, found=None, is_unchanged=False) is None
    assert not_yet_answer(rules, status=None, found=[], is_unchanged=False) == "empty"
    assert not_yet_answer(rules, status=None, found=[found(0)], is_unchanged=False) == "empty"
    assert not_yet_answer(rules, status=None, found=[found(0), found(3)], is_unchanged=False) is None
    assert not_yet_answer(rules, status=None, found=[found(None)], is_unchanged=True) == "unchanged"
    assert not_yet_answer((), status=404, found=None, is_unchanged=False) is None
    assert not_yet_answer((404,), status=None, found=[], is_unchanged=True) is None


def test_asked_again_more_and_more_slowly() -> None:
    """From five minutes to an hour, spread by a quarter either way, the last time exactly at the end."""
    until_ms = MIDNIGHT_MS + 2 * DAY_MS
    delays = []
    for waited_ms in (0, 10 * MINUTE_MS, 2 * HOUR_MS, DAY_MS):
        now_ms = MIDNIGHT_MS + waited_ms
        low, high = (asked_again_ms(MIDNIGHT_MS, now_ms, until_ms, at) - now_ms for at in (0.0, 1.0))
        assert 0 < low < high
        delays.append((low + high) // 2)
    assert delays == [5 * MINUTE_MS, 5 * MINUTE_MS, 30 * MINUTE_MS, HOUR_MS]
    assert asked_again_ms(MIDNIGHT_MS, until_ms - MINUTE_MS, until_ms, 0.5) == until_ms


def test_until_when() -> None:
    """As declared, whichever is later; else until the next window is over, or the contract wants it."""
    assert asked_until_ms(source(within="P2D"), WINDOW, None) == MIDNIGHT_MS + 2 * DAY_MS
    assert asked_until_ms(source(by="08:00"), WINDOW, None) == MIDNIGHT_MS + 8 * HOUR_MS
    assert asked_until_ms(source(by="08:00", within="P2D"), WINDOW, None) == MIDNIGHT_MS + 2 * DAY_MS
    assert asked_until_ms(source(), WINDOW, None) == MIDNIGHT_MS + DAY_MS
    assert asked_until_ms(source(), WINDOW, 3 * DAY_MS) == MIDNIGHT_MS + 3 * DAY_MS


def test_told_once_its_time_is_over() -> None:
    """Before: when it is asked for again. After: that it is overdue."""
    before = not_yet_error(404, MIDNIGHT_MS, MIDNIGHT_MS, MIDNIGHT_MS + DAY_MS, 0.5)
    assert isinstance(before, DataNotYet)
    assert before.facts["not_before_ms"] == MIDNIGHT_MS + 5 * MINUTE_MS
    assert before.exit_code == 5
    after = not_yet_error("empty", MIDNIGHT_MS, MIDNIGHT_MS + DAY_MS, MIDNIGHT_MS + DAY_MS, 0.5)
    assert isinstance(after, DataOverdue)
