"""What is counted of feeds is what is listed: over random histories, page by page, to the last row."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from kfm.model.feeds import HOUR_MS
from kfm.model.records import UNIT_STATUSES, Unit
from kfm.model.units import STANDINGS, IntakeBatch, UnitFilter, data_time_ms
from kfm.reports.feeds import feed_hours, feed_standing, flow_sums
from tests.conformance.units.scene import START_MS, Scene, taken
from tests.conformance.units.test_feed_hours import DATASET, HOURS, History, reader


def listed(scene: Scene, limit: int = 7, **wanted: Any) -> list[Unit]:
    """Page by page, each behind the last row of the one before."""
    found: list[Unit] = []
    before = "~"
    for _ in range(10_000):
        page = scene.units.find_units(UnitFilter(before=before, limit=limit, **wanted))
        found += page
        if len(page) < limit:
            return found
        before = page[-1].wal_id
    raise AssertionError("the list has no end")


def timeless(scene: Scene, count: int) -> None:
    batch = tuple(
        taken(f"timeless-{number}", time_range_start_ms=None, time_range_end_ms=None, extra={})
        for number in range(count)
    )
    scene.units.take_in(IntakeBatch(arrivals=batch))


@pytest.mark.parametrize("seed", range(3))
def test_every_number_of_a_feed_equals_its_list(scene: Scene, seed: int) -> None:
    """Cells, backlog, states, causes: each has as many units behind it as it says."""
    history = History(scene, seed)
    history.play(60)
    completeness = reader(scene, history.now_ms)
    standing = feed_standing(completeness, scene.store, DATASET, history.now_ms)
    assert standing.waiting == len(listed(scene, dataset=DATASET, standing="waiting"))
    assert standing.retrying == len(listed(scene, dataset=DATASET, standing="retrying"))
    for status in UNIT_STATUSES:
        assert standing.counts[status] == len(listed(scene, dataset=DATASET, status=status)), status
    assert sum(standing.counts.values()) == len(listed(scene, dataset=DATASET))
    for cause in scene.units.causes():
        asked = {"standing" if cause.heals else "status": cause.standing}
        mine = listed(scene, dataset=cause.dataset, error_code=cause.error_code, **asked)
        assert cause.count == len(mine)
        assert cause.example == max(one.wal_id for one in mine)
        assert (cause.first_ms, cause.last_ms) == (
            min(one.updated_at_ms for one in mine),
            max(one.updated_at_ms for one in mine),
        )
    end_ms = START_MS + HOURS * HOUR_MS
    cells = feed_hours(completeness, scene.units, DATASET, START_MS, end_ms).cells
    assert {one.product for one in cells} == {"sfc", "prs", "nat", "other"}
    for cell in cells:
        where = {"start_ms": cell.start_ms, "end_ms": cell.end_ms, "dataset": DATASET}
        of = {"product": cell.product, "platform": cell.platform or ""}
        for name in STANDINGS:
            assert getattr(cell.counts, name) == len(listed(scene, standing=name, **of, **where))
        assert cell.objects == len(listed(scene, **of, **where))


def test_a_list_of_a_dataset_has_every_unit_once_the_newest_first(scene: Scene) -> None:
    """Also where many are of one time, and those without a time come last."""
    history = History(scene, 4)
    history.play(50)
    timeless(scene, 9)
    found = listed(scene, limit=4, dataset=DATASET)
    times = [data_time_ms(one) for one in found]
    known = [at_ms for at_ms in times if at_ms is not None]
    assert times == [*sorted(known, reverse=True), *[None] * 9]
    every = Counter(row[0] for row in scene.sql("SELECT wal_id FROM units"))
    assert Counter(one.wal_id for one in found) == every
    assert Counter(one.wal_id for one in listed(scene, limit=3)) == every
    span = {"start_ms": START_MS + HOUR_MS, "end_ms": START_MS + 3 * HOUR_MS}
    inside = [one for one in found if START_MS + HOUR_MS <= (data_time_ms(one) or 0) < START_MS + 3 * HOUR_MS]
    assert [one.wal_id for one in listed(scene, dataset=DATASET, **span)] == [one.wal_id for one in inside]


@pytest.mark.parametrize("count", [0, 1, 501])
def test_lists_have_no_silent_end(scene: Scene, count: int) -> None:
    """As many rows as are counted, however many there are."""
    batch = [taken(f"{number}", extra={"product": "sfc"}) for number in range(count)]
    scene.units.take_in(IntakeBatch(arrivals=tuple(batch)))
    for wanted in ({}, {"dataset": DATASET}, {"status": "pending"}, {"standing": "waiting"}):
        assert len(listed(scene, limit=50, **wanted)) == count
    assert scene.units.unit_counts().get((DATASET, "pending"), 0) == count


def test_a_list_of_ten_thousand_is_read_to_its_end(scene: Scene, kind: str) -> None:
    """No page is the last one but for the last row."""
    if kind != "memory":
        pytest.skip("the statements are the same")
    for start in range(0, 10_001, 1000):
        batch = [taken(f"{number}") for number in range(start, min(start + 1000, 10_001))]
        scene.units.take_in(IntakeBatch(arrivals=tuple(batch)))
    assert len({one.wal_id for one in listed(scene, limit=500, dataset=DATASET)}) == 10_001
    assert len({one.wal_id for one in listed(scene, limit=500, status="pending")}) == 10_001


def test_what_flows_adds_up(scene: Scene) -> None:
    """Taken in and not ended is open; the last hour's figure is the backlog of the span."""
    history = History(scene, 2)
    history.play(40)
    first_ms, last_ms = START_MS - 24 * HOUR_MS, START_MS + 48 * HOUR_MS
    rows = scene.sql("SELECT status, created_at_ms, updated_at_ms FROM units")
    hours = [at_ms // HOUR_MS * HOUR_MS for _, created, updated in rows for at_ms in (created, updated)]
    sums = flow_sums(scene.units.flow(DATASET, first_ms, last_ms), min(hours), max(hours))
    open_now = sum(status in ("pending", "in_progress") for status, _, _ in rows)
    assert sums[-1].open == open_now
    assert sum(one.taken_in for one in sums) == len(rows)
    assert sum(one.ended for one in sums) == len(rows) - open_now
    assert all(one.open >= 0 for one in sums)
    later = flow_sums(scene.units.flow(DATASET, first_ms, last_ms), max(hours), max(hours))
    assert later[-1].open == open_now
