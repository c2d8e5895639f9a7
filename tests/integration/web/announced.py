"""A project whose feed has come in part: what is there, failed, quarantined, waits, and what never came."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kfm.config.loader import load
from kfm.model.feeds import HOUR_MS
from kfm.model.times import rfc3339
from kfm.model.units import Content, IntakeUnit, RejectedRecord, created, wal_id
from kfm.system import SystemClock
from kfm.web.api.routes import api_app
from kfm.web.request_context import WebContext
from tests.conformance.units.scene import Scene, done, undone
from tests.integration.web.api.world import World
from tests.world.clock import served_from

FEED = "mrms"
BUCKET = "noaa-mrms-pds"
PRODUCT = "PrecipRate_00.00"
HOURS = 6  # that have objects, but for the one before the last
PER_HOUR = 4
FORMER = 3  # of the first hour: failed, quarantined, to be tried again
DEAD = "e" * 64


EXPECTED = (HOURS + 1) * PER_HOUR  # nothing came of the last whole hour
NOW_MS = 1_794_834_600_000  # ten minutes past an hour


@contextmanager
def announced_project(folder: Path) -> Iterator[Announced]:
    """At a time that stands still: it has its hours, however long it is looked at."""
    with served_from(NOW_MS, frozen=True):
        yield Announced(folder)


class Announced(World):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.now_ms = SystemClock().now_ms()
        self.first_ms = self.now_ms // HOUR_MS * HOUR_MS - (HOURS + 1) * HOUR_MS
        (folder / "upstream").mkdir()
        with (folder / "kfm.yml").open("a") as file:
            file.write(
                "ingest:\n  queues: [{name: noaa, kind: folder, path: spool}]\n"
                f"  policies: [{{datasets: [{FEED}], replay_quarantined: [SIZE_MISMATCH]}}]\n"
                f'  mirrors: {{"*": upstream}}\n  feeds:\n    - {{dataset: {FEED}, products: [{PRODUCT}], '
                f'per_hour: {PER_HOUR}, within: PT5M, from: "{rfc3339(self.first_ms)}"}}\n'
            )
        self.loaded = load(str(folder / "kfm.yml"))
        self.context = WebContext(self.loaded)
        self.app = api_app(self.context)
        self._announce()

    def _announce(self) -> None:
        arrivals = tuple(
            self._object(hour, number)
            for hour in range(HOURS)
            for number in range(PER_HOUR)
            if hour != HOURS - 2
        )
        dead = RejectedRecord(
            envelope_hash=f"sha256:{DEAD}", index=0, queue="noaa", error_code="JSON_INVALID", error="no JSON"
        )
        app = self.opened()
        try:
            scene = Scene(app.kernel.store)
            scene.take(*arrivals, dead)
            claimed = sorted(scene.claim(FEED), key=lambda one: one.wal_id)
            scene.end(
                undone(claimed[0], "spent", error_code="OBJECT_MISSING"),
                undone(claimed[1], "quarantine", error_code="SIZE_MISMATCH"),
                undone(claimed[2]),
                *(done(one) for one in claimed[FORMER:]),
            )
        finally:
            app.close()
        self.failed, self.quarantined, self.retried = (one.wal_id for one in claimed[:FORMER])

    def _object(self, hour: int, number: int) -> IntakeUnit:
        at_ms = self.first_ms + hour * HOUR_MS + number * 120_000
        uri = f"s3://{BUCKET}/CONUS/{PRODUCT}/{number}-{hour}.grib2.gz"
        made = created(
            wal_id=wal_id(FEED, uri, at_ms),
            dataset=FEED,
            object_uri=uri,
            provider="aws",
            queue="noaa",
            event_time_ms=at_ms,
            time_range_start_ms=at_ms,
            time_range_end_ms=at_ms,
            now_ms=self.now_ms,
            extra={"product": PRODUCT, "platform": "CONUS"},
        )
        return IntakeUnit(unit=made, content=Content(etag=f"e{hour}{number}", sequencer="01", size=1))
