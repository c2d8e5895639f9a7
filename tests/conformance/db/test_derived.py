"""What derived sources have read and asked for: the same on every database, and once for all processes."""

from __future__ import annotations

import pytest

from kfm.model.derived import InputPin, pins_digest
from kfm.model.requests import CHANGES
from kfm.model.runs import PinnedInputs
from kfm.model.windows import SNAPSHOT, window_of
from tests.conformance.db.ledgers import START_MS, Desk, digest

pytestmark = pytest.mark.req("DAT-7")

DAY_MS = 86_400_000
DAY = (START_MS, START_MS + DAY_MS)
NEXT = (START_MS + DAY_MS, START_MS + 2 * DAY_MS)
SOURCE = "usgs-daily"


def pins(text: str) -> tuple[InputPin, ...]:
    return (
        InputPin("air", "window", 3, digest("version"), digest(text)),
        InputPin("zones", "current", 1, digest("other"), digest("zones")),
    )


def test_pins_come_with_the_promotion(desk: Desk) -> None:
    """What a run has read is there with its success, and its window counts as made."""
    run = desk.admitted("a")
    assert (
        desk.promote(run, "one", inputs=PinnedInputs(pins=pins("one"), published=True)).answer == "promoted"
    )
    reader = desk.store.derived_reader()
    assert reader.pins(run.run_id) == pins("one")
    (window,) = reader.windows(SOURCE)
    assert (window.span, window.pinned, window.run_id) == (DAY, pins_digest(pins("one")), run.run_id)


def test_a_promotion_that_is_lost_pins_nothing(desk: Desk) -> None:
    """Pins are part of the one transaction."""
    run = desk.admitted("a")
    lost = desk.promote(
        run, "one", fence=run.fence + 1, inputs=PinnedInputs(pins=pins("one"), published=True)
    )
    assert lost.answer == "lost"
    assert desk.store.derived_reader().windows(SOURCE) == []
    assert desk.store.derived_reader().pins(run.run_id) == ()


def test_nothing_published_is_not_made(desk: Desk) -> None:
    """Where an input held nothing it is on record, and the window is not made."""
    run = desk.admitted("a")
    desk.promote(run, "one", inputs=PinnedInputs(pins=pins("one"), published=False))
    assert desk.store.derived_reader().windows(SOURCE) == []
    assert desk.store.derived_reader().pins(run.run_id) == pins("one")


def test_a_change_is_noted_once(desk: Desk) -> None:
    """Of two that have looked at the same, one gathers; that becomes one request for each window."""
    noted, wanted = desk.store.derived(), {DAY: "a", NEXT: "b"}
    looks = {"before": None, "seen": "1", "wanted": wanted, "moved": {"air": 3, "zones": 7}}
    assert noted.note(SOURCE, **looks) == 2  # type: ignore[arg-type]
    assert noted.note(SOURCE, **looks) == 0  # type: ignore[arg-type]
    assert noted.note(SOURCE, before="0", seen="2", wanted=wanted, moved={"air": 4}) == 0
    assert noted.seen(SOURCE) == "1"
    made = desk.store.bursts().close_due(
        0, lambda _source, at_ms: window_of("P1D", "UTC", at_ms), lambda _source: "ks-streamflow", "ada"
    )
    assert made == 2
    requests = desk.store.request_reader().requests(source_id=SOURCE)
    assert {(one.window_start_ms, one.window_end_ms) for one in requests} == {DAY, NEXT}
    for one in requests:
        assert (one.kind, one.details[CHANGES], one.members) == ("upstream-event", {"air": 3, "zones": 7}, 0)
        assert one.changes == {"air": 3, "zones": 7}


def test_the_same_content_is_asked_for_once_and_another_again(desk: Desk) -> None:
    """Only what is wanted, not made and not asked for is asked for."""
    noted = desk.store.derived()

    def look(number: int, digest_: str) -> int | str:
        before = noted.seen(SOURCE)
        return noted.note(
            SOURCE, before=before, seen=str(number), wanted={DAY: digest_}, moved={"air": number}
        )

    assert look(1, "a") == 1
    assert look(2, "a") == 0
    assert look(3, "b") == 1
    assert look(4, "a") == 1
    run = desk.admitted("a")
    made = pins("made")
    desk.promote(run, "one", inputs=PinnedInputs(pins=made, published=True))
    assert look(5, pins_digest(made)) == 0
    assert look(6, "a") == 1  # it was asked for before, and something else was made since


def test_a_window_that_is_not_known_is_looked_at_again(desk: Desk) -> None:
    """A window that was made while others were computed is not passed over."""
    desk.promote(desk.admitted("a"), "one", inputs=PinnedInputs(pins=pins("one"), published=True))
    noted = desk.store.derived()
    assert noted.note(SOURCE, before=None, seen="1", wanted={NEXT: "b"}, moved={"air": 1}) == "again"
    assert noted.seen(SOURCE) is None


def test_a_source_without_windows_is_asked_for_as_such(desk: Desk) -> None:
    """Its one window goes through gathering as it is."""
    span = (SNAPSHOT.start_ms, SNAPSHOT.end_ms)
    desk.store.derived().note(SOURCE, before=None, seen="1", wanted={span: "a"}, moved={"air": 1})
    desk.store.bursts().close_due(0, lambda _s, _at: pytest.fail("not asked"), lambda _s: "d", "ada")
    (request,) = desk.store.request_reader().requests(source_id=SOURCE)
    assert (request.window_start_ms, request.window_end_ms) == span
