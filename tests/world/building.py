"""Makes the world: the product works through sixty days of the script, as `kfm serve` would."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import md5
from pathlib import Path
from typing import NamedTuple

import httpx

from kfm.app import App, open_app
from kfm.config.loader import load
from kfm.config.schedules import load_schedules
from kfm.nodd.worker_loop import WorkerOptions, run_worker
from kfm.objects.http_client import HttpxClient
from kfm.runs.derived_changes import follow_changes
from kfm.service.incidents import deliver_incidents
from kfm.service.overdue import mark_overdue
from kfm.service.runner import dispatch_due
from kfm.service.scheduler import Scheduler, make_scheduler
from tests.world import story
from tests.world.clock import WorldTime, installed
from tests.world.story import BUSY_DAYS, DAY_MS, DAYS, FIRST_MS, HOUR_MS, MINUTE_MS, NOW_MS, at, day_of

# When the service looks, in minutes of a quiet day: a minute after something was scheduled.
LOOKS = (1, 301, 361, 736, 781, 796, 1086)
RECORDS_PER_MESSAGE = 50
STARTED_SECONDS_MAX = 60.0
UNIT_HOURS = 37  # of announced objects, the last ones


class Deed(NamedTuple):
    """What a person does, and when."""

    at_ms: int
    who: str
    words: tuple[str, ...]
    codes: tuple[int, ...] = (0,)


def _why(text: str, ticket: str | None = None) -> tuple[str, ...]:
    return ("--rationale", text, *(("--ticket", ticket) if ticket else ()))


DEEDS = (
    Deed(at("2026-10-14T09:00"), "bob",
         ("withdraw", "ks-streamflow", "--window", "2026-10-12/P1D", "--yes",
          *_why("The owner of gauge 0614 asked for it", "OPS-402"))),
    Deed(at("2026-10-15T09:00"), "ann",
         ("dismiss", "ks-rainfall", "2026-10-10/P1D", "--yes", *_why("The radar was in maintenance"))),
    Deed(at("2026-11-12T12:10"), "bob",
         ("switch", "set", "paused", "--dataset", "ks-soil-moisture",
          *_why("USDA reissues October", "OPS-477"))),
    Deed(at("2026-11-13T18:00"), "ann",
         ("schedule", "pause", "gauges", *_why("API key is being rotated, OPS-481", "OPS-481"))),
    Deed(at("2026-11-15T09:00"), "ann", ("run", "--source", "roads"), (3,)),  # the freeze refuses it
    Deed(at("2026-11-16T12:34"), "ann",
         ("approvals", "request", "--source", "heritage-sites",
          *_why("The council met on Friday", "OPS-490")), (3,)),
)  # fmt: skip


class World:
    """The project of the world, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.time = WorldTime(FIRST_MS)
        for name, text in (
            ("kfm.yml", story.config()),
            ("cron.yml", story.cron()),
            ("contracts/wells.odcs.yaml", story.CONTRACT),
            ("pipelines/drought.py", story.DROUGHT),
            ("pipelines/crops.py", story.CROPS),
            ("pipelines/summary.py", story.SUMMARY),
        ):
            self.write(name, text.encode())
        (folder / "spool").mkdir()

    def write(self, name: str, data: bytes) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    # --- sixty days ---

    def play(self) -> None:
        deeds = list(DEEDS)
        with inside(self.folder, "ann"), installed(self.time), self._service() as (app, scheduler):
            for day in range(DAYS + 1):
                day_ms = FIRST_MS + day * DAY_MS
                for name, data in story.drops(day_ms):
                    self.write(name, data)
                for look_ms in self._looks(day, day_ms):
                    while deeds and deeds[0].at_ms <= look_ms:
                        self._act(deeds.pop(0))
                    self.time.move_to(look_ms)
                    self._look(app, scheduler, look_ms)
            for deed in deeds:
                self._act(deed)
            self._end(app, scheduler)

    def _looks(self, day: int, day_ms: int) -> list[int]:
        minutes: tuple[int, ...] | range = LOOKS
        if day > DAYS - BUSY_DAYS:
            minutes = tuple(sorted({*LOOKS, *range(20, 24 * 60, 60)}))
        return [
            day_ms + minute * MINUTE_MS
            for minute in minutes
            if day_ms + minute * MINUTE_MS < story.STARTED_MS
        ]

    @contextmanager
    def _service(self) -> Iterator[tuple[App, Scheduler]]:
        """As `kfm serve` puts it together, without its threads; upstream is in this process."""
        with open_app(load(None, {})) as app:
            transport = httpx.MockTransport(self._answer)
            app.http = HttpxClient(resolve=lambda _host, _port: ["203.0.113.7"], transport=transport)
            yield app, make_scheduler(app, load_schedules(app.loaded))

    def _answer(self, _request: httpx.Request) -> httpx.Response:
        """The air in Kansas changes every five days; since some days the provider is down."""
        now_ms = self.time.now_ms()
        if now_ms >= story.DOWN_FROM:
            return httpx.Response(503, stream=httpx.ByteStream(b"try again later"))
        body = f"site,ozone\nWichita,{20 + now_ms // DAY_MS // 5 % 40}\n"
        return httpx.Response(200, stream=httpx.ByteStream(body.encode()))

    def _look(self, app: App, scheduler: Scheduler, look_ms: int) -> None:
        """What the threads of a service do at one moment."""
        scheduler.step()
        dispatch_due(app, "all")
        follow_changes(app)
        dispatch_due(app, "all")
        if look_ms >= NOW_MS - UNIT_HOURS * HOUR_MS and look_ms // MINUTE_MS % 60 == 20:
            self._announce(look_ms // HOUR_MS * HOUR_MS - HOUR_MS)
        if look_ms >= NOW_MS - UNIT_HOURS * HOUR_MS:
            run_worker(app, WorkerOptions(mode="until-idle", concurrency=1), threading.Event())
        mark_overdue(app)
        deliver_incidents(app)

    def _announce(self, hour_ms: int) -> None:
        records = []
        for one in story.announced(hour_ms, 45):
            if one.there is not None:
                self.write(f"upstream/{one.bucket}/{one.key}", b"x" * one.there)
            records.append(
                {
                    "eventVersion": "2.1",
                    "eventSource": "aws:s3",
                    "awsRegion": "us-east-1",
                    "eventTime": f"{day_of(hour_ms)}T{hour_ms // HOUR_MS % 24:02d}:59:00.000Z",
                    "eventName": "ObjectCreated:Put",
                    "s3": {
                        "bucket": {"name": one.bucket},
                        "object": {
                            "key": one.key,
                            "size": one.size,
                            "eTag": md5(b"x" * (one.there or 0)).hexdigest(),
                            "sequencer": f"{hour_ms:016X}",
                        },
                    },
                }
            )
        for start in range(0, len(records), RECORDS_PER_MESSAGE):
            message = json.dumps({"Records": records[start : start + RECORDS_PER_MESSAGE]})
            self.write(f"spool/{hour_ms}-{start:04d}.json", message.encode())

    # --- the last minutes ---

    def _end(self, app: App, scheduler: Scheduler) -> None:
        """A release is asked for, a run begins and does not end, another one is published."""
        self._release(app)
        self.time.move_to(story.STARTED_MS)
        (self.folder / "crops.wait").touch()
        child = subprocess.Popen(
            [sys.executable, "-m", "tests.world.waiting", str(self.folder)],
            cwd=Path(__file__).parents[2],
            env={**os.environ, "PYTHONPATH": "."},
        )
        try:
            _wait_for(self.folder / "crops.waits", child)
            self.time.move_to(NOW_MS - 9 * MINUTE_MS)
            self._look(app, scheduler, NOW_MS - 9 * MINUTE_MS)
            self.time.move_to(NOW_MS)
        finally:
            child.send_signal(
                signal.SIGKILL
            )  # its lease lasts; the process that serves the world takes its place
            child.wait()

    def _release(self, app: App) -> None:
        held = next(
            one for one in app.ledger.held(state="held", limit=500) if one.dataset_id == "ks-air-quality"
        )
        self._act(
            Deed(at("2026-11-16T12:35"), "ann",
                 ("quarantine", "resume", held.held_id, *_why("AirNow is back", "OPS-489")), (3,))
        )  # fmt: skip

    # --- people ---

    def _act(self, deed: Deed) -> None:
        self.time.move_to(deed.at_ms)
        out = io.StringIO()
        with as_person(deed.who), contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            code = _kfm(deed.words)
        assert code in deed.codes, (deed, code, out.getvalue())


def _kfm(words: tuple[str, ...]) -> int:
    from kfm.cli import main

    try:
        main(list(words))
    except SystemExit as ended:
        return int(str(ended.code or 0))
    return 0


def _wait_for(path: Path, child: subprocess.Popen[bytes]) -> None:
    ends = time.monotonic() + STARTED_SECONDS_MAX
    while not path.exists():
        assert child.poll() is None, "the run that should not end has ended"
        assert time.monotonic() < ends, "the run that should not end has not begun"
        time.sleep(0.02)


@contextmanager
def as_person(who: str) -> Iterator[None]:
    before = os.environ.get("KFM_TOKEN")
    os.environ["KFM_TOKEN"] = story.TOKENS[who]
    try:
        yield
    finally:
        if before is None:
            del os.environ["KFM_TOKEN"]
        else:
            os.environ["KFM_TOKEN"] = before


@contextmanager
def inside(folder: Path, who: str) -> Iterator[None]:
    """Work there, as this person, with nothing of the caller's settings."""
    before, here = dict(os.environ), os.getcwd()
    for name in [name for name in before if name.startswith(("KFM_", "OPENLINEAGE"))]:
        del os.environ[name]
    os.environ["XDG_CACHE_HOME"] = str(folder / ".cache")
    os.chdir(folder)
    try:
        with as_person(who):
            yield
    finally:
        os.chdir(here)
        os.environ.clear()
        os.environ.update(before)


def build(folder: Path, note: Callable[[str], None] = lambda _line: None) -> None:
    """The world, in a folder that is not there yet."""
    began = time.monotonic()
    folder.mkdir(parents=True)
    logging.disable()  # the story has failures enough
    try:
        World(folder).play()
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    note(f"made in {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    build(Path(sys.argv[1]), print)
