"""A project with units that failed, windows that never came and scheduled times that were missed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

from kfm.app import App
from kfm.config.loader import Loaded, load
from kfm.nodd.ingest import NoddIngest
from kfm.nodd.poller import Poller
from kfm.system import SystemClock
from kfm.web.request_context import WebContext
from tests.conformance.units.scene import Scene, undone

DAY_MS = 86_400_000
TOKENS = {who: f"kfm-{who}-0123456789abcdef0123456789abcdef" for who in ("ann", "bob", "cy")}
_HASHES = {who: "sha256:" + sha256(token.encode()).hexdigest() for who, token in TOKENS.items()}
CONFIG = f"""\
version: 1
environment: test
datasets:
  - id: lakes
    rights: {{license: CC0-1.0, care: {{label: Public}}}}
  - id: burials
    rights: {{license: CC0-1.0, care: {{label: Restricted, level: restricted}}}}
sources:
  - id: lake
    dataset: lakes
    kind: files
    folder: lakes
    pattern: "{{window.start:%Y-%m-%d}}.csv"
    window: P1D
    expect: {{from: FIRST_DAY, within: P1D}}
  - id: mound
    dataset: burials
    kind: files
    folder: lakes
    window: P1D
    expect: {{from: FIRST_DAY, within: P1D}}
ingest:
  queues:
    - {{name: spool, kind: folder, path: spool}}
  policies:
    - {{datasets: [mrms], replay_quarantined: [GZIP_BOMB]}}
people:
  - {{subject: ann, roles: [operate], tokens: ["{_HASHES["ann"]}"]}}
  - {{subject: bob, roles: [approve], tokens: ["{_HASHES["bob"]}"]}}
  - {{subject: cy, roles: [read], tokens: ["{_HASHES["cy"]}"]}}
  - {{subject: service, roles: [operate], accounts: ["root"]}}
"""
CRON = """\
schedules:
  - {id: lake-daily, source: lake, cron: "15 7 * * *"}
"""


class PlansWorld:
    """One project; its ledger is opened for each thing that happens in it."""

    def __init__(self, folder: Path) -> None:
        for name in ("lakes", "spool"):
            (folder / name).mkdir(parents=True)
        self.first_ms = (SystemClock().now_ms() // DAY_MS - 6) * DAY_MS
        (folder / "kfm.yml").write_text(CONFIG.replace("FIRST_DAY", _day(self.first_ms)))
        (folder / "cron.yml").write_text(CRON)
        self.folder = folder
        self.loaded: Loaded = load(str(folder / "kfm.yml"))
        self.context = WebContext(self.loaded)

    @contextmanager
    def opened(self) -> Iterator[App]:
        app = App(self.loaded, read_only=False, progress=None)
        try:
            yield app
        finally:
            app.close()

    def given_up(self, *numbers: int, fate: str = "spent", code: str = "HTTP_503") -> list[str]:
        """Announced, tried and given up."""
        with self.opened() as app:
            (self.folder / "spool" / "message.json").write_text(_announcement(*numbers))
            ingest = NoddIngest(app)
            ((queue, check),) = ingest.queues()
            assert Poller(ingest.context(), queue, check).step().messages == 1
            queue.close()
            ingest.close()
            scene = Scene(app.kernel.store)
            claimed = scene.claim("mrms")
            assert len(claimed) == len(numbers)
            scene.end(*(undone(one, fate, error_code=code) for one in claimed))
            return sorted(one.wal_id for one in claimed)

    def carried_on(self) -> int:
        """What a service does each second."""
        from kfm.nodd.replay import carry_on

        with self.opened() as app:
            return carry_on(app)

    def kinds(self) -> list[str]:
        with self.context.reader() as ledger:
            return [one.kind for one in reversed(ledger.governance(limit=500))]

    def cell(self, day: int) -> str:
        """A day of the lake."""
        return f"window:lake@{_day(self.first_ms + day * DAY_MS)}T00:00:00Z"

    def day(self, number: int) -> str:
        return _day(self.first_ms + number * DAY_MS)


def _day(at_ms: int) -> str:
    from kfm.model.times import rfc3339

    return rfc3339(at_ms)[:10]


def _announcement(*numbers: int) -> str:
    records = [
        {
            "eventVersion": "2.1",
            "eventSource": "aws:s3",
            "eventName": "ObjectCreated:Put",
            "eventTime": f"2026-01-01T00:{number:02}:30.000Z",
            "s3": {
                "bucket": {"name": "noaa-mrms-pds"},
                "object": {"key": _key(number), "size": 10, "eTag": "e"},
            },
        }
        for number in numbers
    ]
    return json.dumps({"Records": records})


def _key(number: int) -> str:
    return f"CONUS/PrecipRate_00.00/20260101/MRMS_PrecipRate_00.00_20260101-00{number:02}00.grib2.gz"
