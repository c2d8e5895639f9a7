"""Hours of feeds: over random histories, coverage and health are what a recount of the raw rows gives."""

from __future__ import annotations

import json
import random
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from kfm.datasets.completeness import CompletenessReader
from kfm.model.completeness import SETTLED, Dismissal
from kfm.model.feeds import HOUR_MS, LATE_MS, FeedProduct, HourCounts, product_id
from kfm.model.settings import FeedSettings, Ingest, Settings
from kfm.model.units import Content, IntakeBatch, IntakeUnit, created, wal_id
from kfm.service.overdue import _look_at_feed
from tests.conformance.db.ledgers import entry
from tests.conformance.units.scene import START_MS, Scene, done, undone

DATASET = "hrrr"
HOURS = 8
SINCE = "2026-01-01T02:00:00Z"  # two hours after START_MS
SETTINGS = Settings(
    ingest=Ingest(
        feeds=(
            FeedSettings(
                dataset=DATASET,
                products=("sfc", "prs"),
                platforms=("conus", "alaska"),
                per_hour=2,
                since=SINCE,
            ),
            FeedSettings(dataset=DATASET, products=("nat",), per_hour=1, hours=(3, 4, 6), since=SINCE),
        )
    )
)
ROWS: list[tuple[str, str | None, int, tuple[int, ...]]] = [
    *(
        (product, platform, 2, tuple(range(24)))
        for product in ("sfc", "prs")
        for platform in ("conus", "alaska")
    ),
    ("nat", None, 1, (3, 4, 6)),
]


def announced(number: int, product: str, platform: str, hour: int, rng: random.Random) -> IntakeUnit:
    """A forecast, whose hour is that of its cycle, an observation, or a file that describes another."""
    kind = rng.choice(("forecast", "observation", "observation", "sidecar"))
    data_ms = START_MS + hour * HOUR_MS + rng.choice((0, 1, HOUR_MS - 1))
    start_ms = data_ms + 18 * HOUR_MS if kind == "forecast" else data_ms
    uri = f"s3://noaa-hrrr/{number}"
    extra: dict[str, Any] = {"product": product, "platform": platform}
    if kind == "forecast":
        extra["reference_time_ms"] = data_ms
    if kind == "sidecar":
        extra["asset"] = "index"
    made = created(
        wal_id=wal_id(DATASET, uri, start_ms),
        dataset=DATASET,
        object_uri=uri,
        provider="aws",
        queue="nodd",
        event_time_ms=start_ms,
        time_range_start_ms=start_ms,
        time_range_end_ms=start_ms,
        now_ms=START_MS,
        extra=extra,
    )
    return IntakeUnit(unit=made, content=Content(etag=f"e{number}", sequencer="01", size=1))


class History:
    """Random announcements, work, decisions of persons, and looks for what is overdue."""

    def __init__(self, scene: Scene, seed: int) -> None:
        self.scene, self.rng, self.number = scene, random.Random(seed), 0
        self.known: list[IntakeUnit] = []
        self.now_ms = START_MS + 2 * HOUR_MS

    def play(self, steps: int) -> None:
        kinds = (
            self.announce,
            self.announce,
            self.announce,
            self.work,
            self.work,
            self.reissue,
            self.dismiss,
        )
        for _ in range(steps):
            self.rng.choice((*kinds, self.look, self.wait))()

    def wait(self) -> None:
        self.now_ms = min(self.now_ms + self.rng.choice((HOUR_MS // 2, HOUR_MS)), START_MS + 40 * HOUR_MS)
        if self.rng.random() < 0.05:
            self.now_ms += 26 * HOUR_MS

    def announce(self) -> None:
        arrivals = []
        for _ in range(self.rng.randrange(1, 6)):
            self.number += 1
            product, platform = (
                self.rng.choice(("sfc", "prs", "nat", "other")),
                self.rng.choice(("conus", "alaska")),
            )
            hour = self.rng.randrange(HOURS)
            arrivals.append(announced(self.number, product, platform, hour, self.rng))
        self.known += arrivals
        self.scene.units.take_in(IntakeBatch(arrivals=tuple(arrivals)))

    def work(self) -> None:
        self.scene.due()
        claimed = self.scene.claim(limit=self.rng.randrange(1, 12))
        ends: list[Any] = []
        for one in claimed:
            word = self.rng.choice(("done", "done", "done", "retry", "spent", "quarantine", "left"))
            if word == "done":
                ends.append(done(one))
            elif word != "left":
                ends.append(undone(one, word))
        self.scene.end(*ends)

    def reissue(self) -> None:
        """New bytes under a known key: looked at again, and what was there stays."""
        if self.known:
            one = self.rng.choice(self.known)
            self.number += 1
            content = Content(etag=f"e{self.number}", sequencer=f"{self.number:06x}", size=2)
            self.scene.units.take_in(IntakeBatch(arrivals=(IntakeUnit(unit=one.unit, content=content),)))

    def dismiss(self) -> None:
        product, platform, _, _ = self.rng.choice(ROWS)
        start_ms = START_MS + self.rng.randrange(HOURS) * HOUR_MS
        one = Dismissal(
            source_id=product_id(DATASET, product, platform),
            dataset_id=DATASET,
            start_ms=start_ms,
            end_ms=start_ms + HOUR_MS,
            actor="a",
            rationale="b",
        )
        windows = self.scene.store.windows()
        if self.rng.random() < 0.6:
            windows.dismiss([one], entry("window-dismissed"))
        else:
            windows.undismiss([one], entry("undone"))

    def look(self) -> None:
        app: Any = SimpleNamespace(kernel=SimpleNamespace(store=self.scene.store))
        _look_at_feed(app, reader(self.scene, self.now_ms), DATASET)


def reader(scene: Scene, now_ms: int) -> CompletenessReader:
    return CompletenessReader(
        SETTINGS, scene.store, now_ms, schedules=tuple, is_dead=lambda _: False, latency_ms=lambda _: None
    )


def recounted(scene: Scene, now_ms: int) -> dict[tuple[str, int], tuple[str, bool]]:
    """State, and whether it is late, of each hour of each row: straight from the rows of units."""
    found = {}
    units = [
        (json.loads(extra), start_ms, status, done_version, updated_ms)
        for extra, start_ms, status, done_version, updated_ms in scene.sql(
            "SELECT extra, time_range_start_ms, status, done_version, updated_at_ms FROM units"
        )
    ]
    for product, platform, needed, hours in ROWS:
        name = product_id(DATASET, product, platform)
        settled = {one.start_ms: one.settled_at_ms for one in scene.store.window_reader().settled(name)}
        for hour in range(2, (now_ms - START_MS) // HOUR_MS):
            if hour % 24 not in hours:
                continue
            start_ms = START_MS + hour * HOUR_MS
            mine = [
                (status, bool(done_version) or status == "succeeded", updated_ms)
                for extra, valid_ms, status, done_version, updated_ms in units
                if extra["product"] == product
                and platform in (None, extra["platform"])
                and "asset" not in extra
                and extra.get("reference_time_ms", valid_ms) // HOUR_MS == start_ms // HOUR_MS
            ]
            due_ms = start_ms + 2 * HOUR_MS
            state = _state(mine, needed, settled.get(start_ms), due_ms, now_ms)
            found[name, start_ms] = (state, state not in SETTLED and now_ms >= due_ms)
    return found


def _state(mine: Any, needed: int, settled_ms: int | None, due_ms: int, now_ms: int) -> str:
    there = [updated_ms for _, is_there, updated_ms in mine if is_there]
    complete = len(there) >= needed
    if settled_ms is not None and not (complete and max(there) > settled_ms):
        return "dismissed"
    if complete:
        return "published"
    words = {status for status, is_there, _ in mine if not is_there}
    for status, word in (
        ("in_progress", "running"),
        ("quarantined", "quarantined"),
        ("pending", "waiting"),
        ("failed", "failed"),
    ):
        if status in words:
            return word
    if now_ms < due_ms:
        return "waiting"
    return "overdue" if now_ms < due_ms + LATE_MS else "missing"


def compare(scene: Scene, now_ms: int) -> None:
    known, expected = reader(scene, now_ms), recounted(scene, now_ms)
    coverage = known.coverage(DATASET, START_MS, now_ms)
    states = {(one.source_id, one.start_ms): (one.state, one.is_late) for one in coverage.windows}
    assert states == expected
    health = known.health(DATASET)
    assert health == coverage.health
    assert health.counts == Counter(state for state, _ in expected.values())
    assert health.expected == len(expected)
    there = [start + HOUR_MS for (_, start), (state, _) in expected.items() if state == "published"]
    assert health.newest_ms == max(there, default=None)
    broken = any(state in ("failed", "quarantined") for state, _ in expected.values())
    late = [start + HOUR_MS for (_, start), (_, is_late) in expected.items() if is_late]
    if broken:
        assert health.state == "failing"
    elif any(end >= max(there, default=0) for end in late):
        assert health.state == "late"
    elif late:
        assert health.state == "incomplete"
    else:
        assert health.state in ("fresh", "never")
    reached = None
    for (_, start), (state, _) in sorted(expected.items(), key=lambda one: (one[0][1], one[0][0])):
        if state not in SETTLED:
            break
        reached = start + HOUR_MS
    assert health.watermark_ms == reached


@pytest.mark.req("DAT-1", "DAT-2")
@pytest.mark.parametrize("seed", range(6))
def test_coverage_and_health_of_a_feed_equal_a_recount(scene: Scene, seed: int) -> None:
    """Whatever was announced, failed, came again, was dismissed, and however far was looked before."""
    history = History(scene, seed)
    for _ in range(6):
        history.play(10)
        compare(scene, history.now_ms)


@pytest.mark.req("DAT-2")
def test_open_hours_are_told_once_and_end_one_by_one(scene: Scene) -> None:
    """Each look finds what is new; an hour that is there leaves the incident and the list."""
    history = History(scene, 1)
    history.now_ms = START_MS + 6 * HOUR_MS
    history.look()
    history.look()
    told = scene.sql("SELECT COUNT(*) FROM open_hours WHERE is_told = 1")[0][0]
    assert told == len([1 for state, _ in recounted(scene, history.now_ms).values() if state == "overdue"])
    subjects = scene.sql("SELECT COUNT(*) FROM incident_subjects")[0][0]
    assert subjects == told > 10
    one = announced(1, "nat", "conus", 3, random.Random(3))
    assert "asset" not in one.unit.extra
    scene.units.take_in(IntakeBatch(arrivals=(one,)))
    (claimed,) = scene.claim()
    scene.end(done(claimed))
    history.look()
    assert scene.sql("SELECT COUNT(*) FROM incident_subjects")[0][0] == told - 1
    assert scene.sql("SELECT COUNT(*) FROM open_hours")[0][0] == told - 1


@pytest.mark.req("DAT-1")
def test_an_hour_is_found_by_the_index_of_data_times(scene: Scene, kind: str) -> None:
    """No walk over all units: the cost follows the hours that are asked for."""
    from kfm.db import queries

    rng = random.Random(5)
    for number in range(40):
        batch = tuple(announced(number * 50 + each, "sfc", "conus", number * 6, rng) for each in range(50))
        scene.units.take_in(IntakeBatch(arrivals=batch))
    database: Any = scene.store._database
    values = {"dataset": DATASET, "start_ms": START_MS, "end_ms": START_MS + HOUR_MS}
    if kind == "postgresql":
        scene.sql("ANALYZE units")
        rows = database.execute("EXPLAIN " + queries.queries("postgresql")["units.hours"], values)
        plan = "\n".join(row[0] for row in rows)
        assert "units_by_data_time" in plan, plan
        assert "Seq Scan on units" not in plan, plan
    else:
        rows = database._connection.execute(
            "EXPLAIN QUERY PLAN " + queries.queries("sqlite")["units.hours"], values
        )
        plan = "\n".join(row[3] for row in rows)
        assert "SEARCH units USING INDEX units_by_data_time" in plan, plan
    found = scene.units.hours(DATASET, [START_MS, START_MS + 6 * HOUR_MS])
    assert {key[0] for key in found} == {START_MS, START_MS + 6 * HOUR_MS}
    assert all(isinstance(one, HourCounts) and one.waiting > 20 for one in found.values())


def test_the_number_of_settled_hours_needs_no_walk() -> None:
    """Counted by days and hours of the day; the last of them is found from the end."""
    from kfm.model.feeds import Cadence, expected_hours, settled_hours

    rng = random.Random(7)
    for _ in range(200):
        hours = tuple(sorted(rng.sample(range(24), rng.randrange(1, 24))))
        cadence = Cadence(products=("p",), per_hour=1, latency_ms=0, hours=hours)
        since_ms = START_MS + rng.randrange(100 * HOUR_MS)
        row = FeedProduct(dataset="d", product="p", platform=None, since_ms=since_ms, cadences=(cadence,))
        mark_ms = START_MS + rng.randrange(200) * HOUR_MS
        every = [one.window.start_ms for one in expected_hours(row, mark_ms)]
        but = rng.sample(every, len(every) // 3)
        found = settled_hours(row, mark_ms, but)
        left = sorted(set(every) - set(but))
        assert found.count == len(left)
        limit_ms = START_MS + rng.randrange(200 * HOUR_MS)
        assert found.last_end_ms() == max((hour + HOUR_MS for hour in left), default=None)
        assert found.last_end_ms(limit_ms) == max(
            (hour + HOUR_MS for hour in left if hour + HOUR_MS <= limit_ms), default=None
        )
