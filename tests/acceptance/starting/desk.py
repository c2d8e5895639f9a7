"""A project with two datasets, and what these tests need around it: requests, due times, another hour."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import apsw
import pytest

from tests.acceptance.runs.conftest import Inside
from tests.acceptance.service.served import SECRET
from tests.crash.project import Ended

if TYPE_CHECKING:
    from kfm.model.requests import UpdateRequest

DAY_MS = 86_400_000
HOUR_MS = 3_600_000
START_MS = 1_767_225_600_000  # 2026-01-01
PUBLIC = "{license: CC0-1.0, care: {label: Public, level: public}}"
BLOCKED = "{license: CC0-1.0, care: {label: Not to be shared, level: blocked}}"
REVIEW = "{license: CC0-1.0, care: {label: By review, level: review}}"
REASONS = ("--rationale", "the flood is now", "--ticket", "OPS-7")
CONFIG = """\
version: 1
environment: test
lease: {{seconds: 1}}
datasets:
  - {{id: rivers, domain: hydrology, rights: {rights}}}
  - {{id: lakes, domain: hydrology, rights: {{license: CC0-1.0, care: {{label: Public, level: public}}}}}}
sources:
  - id: river
    dataset: rivers
    kind: files
    folder: incoming
    pipeline: "pipeline.py:publish"
    output_version: "1"
    webhook: {{secrets: ["env:RIVER_SECRET"]}}
    {river}
  - id: lake
    dataset: lakes
    kind: files
    folder: incoming
    pipeline: "pipeline.py:publish"
    output_version: "1"
publish:
  - {{kind: local, path: published}}
serve: {{runners: {runners}}}
{more}
"""
# Yearly: no scheduled time comes while a test runs, so no retry is left to the next run of its schedule.
CRON = 'version: 1\nschedules:\n  - {id: yearly, source: river, cron: "0 0 2 1 *", window: P1D}\n'
# Whether it fails is decided by a file, so that the code, and with it the work, stays the same.
PIPELINE = """\
import os


def publish(context):
    if os.path.exists("broken"):
        raise TimeoutError("no answer")
    for one in context.inputs:
        context.publisher.write_file(one.path, one.fetched)
"""
WRONG = 'def publish(context):\n    raise ValueError("riddles")\n'
ANNOUNCED = """\
ingest:
  coalesce_seconds: 0
  queues: [{name: spool, kind: folder, path: spool}]
"""
BUCKET = "unidata-nexrad-level2"


def open_desk(
    folder: Path, *, rights: str = PUBLIC, river: str = "", more: str = "", runners: int = 2
) -> Inside:
    """A new project; its pipeline publishes what it finds, or fails while `broken` is there."""
    project = Inside(folder / "project")
    project.env["RIVER_SECRET"] = SECRET
    configure(project, rights=rights, river=river, more=more, runners=runners)
    project.write("cron.yml", CRON)
    project.write("pipeline.py", PIPELINE)
    project.write("incoming/a.csv", "station,level_m\na-1,1.5\n")
    return project


def configure(
    project: Inside, *, rights: str = PUBLIC, river: str = "", more: str = "", runners: int = 2
) -> None:
    project.write("kfm.yml", CONFIG.format(rights=rights, river=river, more=more, runners=runners))


def open_announced(folder: Path) -> Inside:
    """A project whose river follows announced objects."""
    (folder / "project" / "spool").mkdir(parents=True)
    return open_desk(folder, river="follows: [nexrad-l2]", more=ANNOUNCED)


def break_down(project: Inside) -> None:
    """From now on the pipeline fails with an error that may pass."""
    project.write("broken", "")


def mend(project: Inside) -> None:
    (project.folder / "broken").unlink()


# --- time --------------------------------------------------------------------------------


def change(project: Inside, sql: str, *parameters: Any) -> None:
    connection = apsw.Connection(str(project.state / "kfm.db"))
    try:
        connection.set_busy_timeout(5000)
        connection.execute(sql, parameters)
    finally:
        connection.close()


def make_due(project: Inside, dataset: str | None = None, at_ms: int = 1) -> None:
    """Let the time of everything that waits have come: requests, and what is promised to failed runs."""
    of_runs = "run_id IN (SELECT run_id FROM runs WHERE ? IS NULL OR dataset_id = ?)"
    change(
        project,
        f"UPDATE retry_states SET not_before_ms = ? WHERE fate = 'retry' AND {of_runs}",
        at_ms,
        dataset,
        dataset,
    )
    change(
        project,
        "UPDATE requests SET not_before_ms = ? WHERE state = 'open' AND (? IS NULL OR dataset_id = ?)",
        at_ms,
        dataset,
        dataset,
    )


def pass_time(monkeypatch: pytest.MonkeyPatch, span_ms: int) -> None:
    """As if so much time had passed, for every command in this process."""
    from kfm.system import SystemClock

    before = SystemClock.now_ms
    monkeypatch.setattr(SystemClock, "now_ms", lambda clock: before(clock) + span_ms)


def eventually(holds: Callable[[], bool], what: Callable[[], object], seconds: float = 20.0) -> None:
    """Other processes take their time; a promise that is not kept within it is broken."""
    ends = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < ends, what()
        time.sleep(0.02)


# --- requests ----------------------------------------------------------------------------


def ask(project: Inside, name: str, *, source: str = "river", day: int = 0) -> str:
    """A webhook's request, accepted as the service accepts it; its id."""
    return ask_for_days(project, [day], source=source, name=name)[0]


def ask_for_days(
    project: Inside, days: Sequence[int], *, source: str = "river", name: str = "many"
) -> list[str]:
    """A webhook's request for each day."""
    from kfm.app import open_app
    from kfm.config.loader import load

    with project._surroundings(), open_app(load(None, {})) as app:
        store = app.kernel.store
        wanted = [_request(source, f"{name}-{day}", day, store.now_ms()) for day in days]
        assert store.requests().accept(wanted) == [None] * len(days)
    return [one.request_id for one in wanted]


def _request(source: str, name: str, day: int, now_ms: int) -> UpdateRequest:
    from kfm.model.keys import request_id, webhook_key
    from kfm.model.records import Trigger
    from kfm.model.requests import UpdateRequest

    dataset = f"{source}s"
    key = webhook_key(Trigger(type="webhook", source_id=source, dataset_id=dataset, request_uuid=name))
    return UpdateRequest(
        request_id=request_id(key),
        key=key,
        kind="webhook",
        source_id=source,
        dataset_id=dataset,
        window_start_ms=START_MS + day * DAY_MS,
        window_end_ms=START_MS + (day + 1) * DAY_MS,
        actor=f"webhook:{source}",
        accepted_at_ms=now_ms,
        request_uuid=name,
        envelope_hash="sha256:" + "e" * 64,
        details={"signature": "valid", "reason": "source.updated"},
    )


def schedule_once(project: Inside) -> str:
    """A schedule's request for 2026-01-01; its id."""
    asked = ("--from", "2026-01-01", "--to", "2026-02-01", "--yes", "--rationale", "caught up")
    made = project.kfm("schedule", "backfill", "yearly", *asked)
    assert made.code == 0, made
    ((request,),) = project.rows("SELECT request_id FROM requests WHERE kind = 'cron'")
    return str(request)


def announce(project: Inside, second: int = 1) -> str:
    """Put an announcement into the queue; the key of the object."""
    key = f"2026/01/01/KTLX/KTLX20260101_0000{second:02d}_V06"
    thing = {"key": key, "size": 1, "eTag": f"{second:032x}", "sequencer": f"{second:016X}"}
    record = {
        "eventVersion": "2.1",
        "eventSource": "aws:s3",
        "awsRegion": "us-east-1",
        "eventTime": "2026-01-03T01:00:00.000Z",
        "eventName": "ObjectCreated:Put",
        "s3": {"bucket": {"name": BUCKET}, "object": thing},
    }
    project.write(f"spool/{second}.json", json.dumps({"Records": [record]}))
    return key


def work(project: Inside) -> Ended:
    """A worker that takes in what is announced, and ends when nothing is due."""
    return project.kfm("worker", "--until-idle")


def run_due(project: Inside) -> Ended:
    return project.kfm("schedule", "run-due", "--json")


def retry_due(project: Inside) -> Ended:
    return project.kfm("retry", "--due", "--json")


def shown(project: Inside, request: str) -> dict[str, Any]:
    """What `kfm requests show` tells programs of a request."""
    told = project.kfm("requests", "show", request, "--json")
    assert told.code == 0, told
    return dict(told.document["request"])


def only_request(project: Inside, kind: str) -> dict[str, Any]:
    """The one request of a kind, as it is now."""
    found = project.rows("SELECT request_id FROM requests WHERE kind = ?", kind)
    assert len(found) == 1, f"{len(found)} requests of kind {kind}"
    return shown(project, str(found[0][0]))


def runs(project: Inside) -> list[tuple[Any, ...]]:
    """Dataset, state and attempts of each run."""
    return project.rows("SELECT dataset_id, status, attempts FROM runs ORDER BY start_time_ms, run_id")


def run_id(project: Inside) -> str:
    ((only,),) = project.rows("SELECT run_id FROM runs")
    return str(only)


def published(project: Inside, dataset: str = "rivers") -> bool:
    return project.rows("SELECT 1 FROM promotions WHERE dataset_id = ?", dataset) != []
