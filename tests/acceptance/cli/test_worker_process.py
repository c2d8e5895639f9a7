"""`kfm worker` as a process: signals, streams, and several of them on one ledger."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import IO, Any

import pytest

from kfm.db.connection import open_ledger
from kfm.model.errors import KfmError
from kfm.system import SystemClock
from tests import services

DEADLINE_S = 40.0


def config(folder: Path, **ingest: Any) -> None:
    (folder / "spool").mkdir(exist_ok=True)
    queues = [{"name": "feed", "kind": "folder", "path": "spool"}]
    settings: dict[str, Any] = {"version": 1, "ingest": {"queues": queues, **ingest}}
    if "store" in ingest:
        settings = {**settings, "store": ingest.pop("store")}
        settings["ingest"].pop("store")
    (folder / "kfm.yml").write_text(json.dumps(settings))


def message(number: int) -> str:
    minute, second = divmod(number, 60)
    key = f"2026/01/01/KTLX/KTLX20260101_00{minute:02d}{second:02d}_V06"
    record = {
        "eventVersion": "2.1",
        "eventSource": "aws:s3",
        "awsRegion": "us-east-1",
        "eventTime": "2026-01-01T01:00:00.000Z",
        "eventName": "ObjectCreated:Put",
        "s3": {
            "bucket": {"name": "unidata-nexrad-level2"},
            "object": {
                "key": key,
                "size": number + 1,
                "eTag": f"{number:032x}",
                "sequencer": f"{number:016X}",
            },
        },
    }
    return json.dumps({"Records": [record]})


def announce(folder: Path, count: int) -> None:
    lines = "".join(f"{message(number)}\n" for number in range(count))
    (folder / "spool" / ".feed.tmp").write_text(lines)
    (folder / "spool" / ".feed.tmp").rename(folder / "spool" / "feed.jsonl")


def start(folder: Path, *arguments: str, **streams: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "kfm", "worker", "--json", *arguments]
    return subprocess.Popen(
        command,
        cwd=folder,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **streams,
    )


def units(folder: Path) -> dict[str, int]:
    """Status → units, as the ledger tells a reader."""
    try:
        ledger = open_ledger(None, str(folder / ".kfm"), SystemClock())
    except KfmError:  # it is being made
        return {}
    try:
        counts = ledger.unit_reader().unit_counts()
    finally:
        ledger.close()
    found: dict[str, int] = {}
    for (_, name), amount in counts.items():
        if name in ("pending", "in_progress", "succeeded", "failed") and amount:
            found[name] = found.get(name, 0) + amount
    return found


def until(true: Any) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not true():
        assert time.monotonic() < deadline, "it takes too long"
        time.sleep(0.05)


def ended(process: subprocess.Popen[str]) -> tuple[int, dict[str, Any], str]:
    out, err = process.communicate(timeout=DEADLINE_S)
    assert process.returncode in (0, 130), err
    return process.returncode, json.loads(out) if out else {}, err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
@pytest.mark.req("WAL-5")
def test_a_signal_lets_it_end_what_it_holds(tmp_path: Path, number: int, code: int) -> None:
    """It stops soon, tells what it did, and leaves nothing in anybody's hands."""
    config(tmp_path)
    announce(tmp_path, 300)
    process = start(tmp_path, "--rate", "20", "--batch", "5")
    until(lambda: units(tmp_path).get("succeeded", 0) >= 10)
    process.send_signal(number)
    returned, told, err = ended(process)
    assert returned == code, err
    left = units(tmp_path)
    assert left.get("in_progress", 0) == 0
    assert told["tasks"]["succeeded"] == left["succeeded"] < 300
    assert told["waiting"] == left["pending"] == 300 - left["succeeded"]
    assert told["exit_code"] == code
    assert "Traceback" not in err


class SlowObjects:
    """A bucket whose objects are answered when a test lets them be."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.may_answer = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_HEAD(self) -> None:
                outer.asked.append(self.path)
                outer.may_answer.wait(DEADLINE_S)
                number = int(re.findall(r"_00(\d\d)(\d\d)_", self.path)[0][1])
                self.send_response(200)
                self.send_header("Content-Length", str(number + 1))
                self.send_header("ETag", f'"{number:032x}"')
                self.send_header("Last-Modified", "Thu, 01 Jan 2026 01:00:00 GMT")
                self.end_headers()

            def log_message(self, *_: Any) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"


@pytest.fixture
def slow_objects() -> Iterator[SlowObjects]:
    made = SlowObjects()
    yield made
    made.may_answer.set()
    made.server.shutdown()
    made.server.server_close()


@pytest.mark.req("WAL-5", "FLT-4")
def test_a_signal_ends_the_objects_that_are_read_and_no_others(
    tmp_path: Path, slow_objects: SlowObjects
) -> None:
    """What it has not begun is pending at once, while the rest is still read; none is charged or lost."""
    config(
        tmp_path,
        concurrency=3,
        policies=[{"integrity": "head"}],
        object_options={"s3://*": {"endpoint": slow_objects.endpoint}},
    )
    announce(tmp_path, 20)
    process = start(tmp_path)
    until(lambda: len(slow_objects.asked) == 3)
    assert units(tmp_path) == {"in_progress": 20}
    process.send_signal(signal.SIGTERM)
    until(lambda: units(tmp_path) == {"in_progress": 3, "pending": 17})
    slow_objects.may_answer.set()
    code, told, err = ended(process)
    assert code == 0, err
    assert units(tmp_path) == {"succeeded": 3, "pending": 17}
    tasks = told["tasks"]
    assert (tasks["succeeded"], tasks["put_back"], tasks["failed"], tasks["lost"]) == (3, 17, 0, 0)
    assert len(slow_objects.asked) == 3
    assert "Traceback" not in err


def test_a_second_signal_stops_it_at_once(tmp_path: Path) -> None:
    """Whatever it waits for."""
    config(tmp_path)
    process = start(tmp_path, "--stdin", "--until-idle", stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(f"{message(1)}\n")
    process.stdin.flush()
    until(lambda: units(tmp_path).get("succeeded") == 1)
    process.send_signal(signal.SIGTERM)
    time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    returned = process.wait(timeout=DEADLINE_S)
    process.communicate()
    assert returned in (0, 130, -signal.SIGTERM)
    assert units(tmp_path) == {"succeeded": 1}


def feed(stream: IO[str], numbers: range) -> None:
    stream.writelines(f"{message(number)}\n" for number in numbers)
    stream.flush()


def test_a_stream_is_read_to_its_end(tmp_path: Path) -> None:
    """Silence in between is not its end; after it everything is done."""
    config(tmp_path)
    process = start(tmp_path, "--stdin", "--until-idle", stdin=subprocess.PIPE)
    assert process.stdin is not None
    feed(process.stdin, range(3))
    until(lambda: units(tmp_path).get("succeeded") == 3)
    assert process.poll() is None
    feed(process.stdin, range(2, 8))
    process.stdin.close()
    process.stdin = None
    code, told, err = ended(process)
    assert (code, told["tasks"]["created"], told["tasks"]["duplicate"]) == (0, 8, 1), err
    assert units(tmp_path) == {"succeeded": 8}


@pytest.mark.slow
@pytest.mark.req("WAL-10")
def test_several_workers_share_the_work(
    tmp_path: Path, postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three on one PostgreSQL: each unit is done once, by one of them, and each has done some."""
    with services.postgres_database(postgres_dsn) as dsn:
        monkeypatch.setenv("WORKERS_STORE", dsn)
        config(tmp_path, store="env:WORKERS_STORE", batch=5)
        ended(start(tmp_path, "--once"))  # the tables are there before they begin
        announce(tmp_path, 600)
        workers = [start(tmp_path, "--until-idle", "--rate", "40") for _ in range(3)]
        tasks = [ended(one)[1]["tasks"] for one in workers]
    assert sum(one["succeeded"] for one in tasks) == 600
    assert sum(one["created"] for one in tasks) == 600
    assert sum(one["lost"] for one in tasks) == 0
    assert min(one["succeeded"] for one in tasks) > 0
