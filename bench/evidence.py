"""What evidence costs a run: processor time for each of its nodes, beside a run that leaves none.

A run reads three small tables from a folder, transforms them, checks them against a contract and publishes
them, on a ledger in SQLite. All threads of the process count, also those that send.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest import mock

from bench.admission import _folder as scratch
from bench.harness import Benchmark
from kfm.app import App
from kfm.config.loader import load
from kfm.db import governance, rows
from kfm.db.outbox import Journal
from kfm.db.session import Session
from kfm.lineage.collectors import deliver
from kfm.model.records import GovernanceEntry
from kfm.runs.kernel import RunRequest, Unmetered
from kfm.telemetry.exporter import Off

NODES = 4
RUNS = 6  # a round
TABLES = 3
ROWS = 100

_CONFIG = """\
version: 1
environment: bench
datasets:
  - id: levels
    title: Levels
    domain: hydrology
    rights: {license: CC0-1.0, care: {label: "Public", level: public}}
publish:
  - {kind: local, path: published}
sources:
  - id: notes
    dataset: levels
    kind: files
    folder: incoming
    mode: replace
    contract: contract.odcs.yaml
    pipeline: "pipeline.py:publish"
"""
_ON = """\
lineage: {export: file}
telemetry: {otlp: "http://127.0.0.1:%d"}
"""
_OFF = """\
lineage: {export: none}
"""
_CONTRACT = """\
apiVersion: v3.1.0
kind: DataContract
id: levels
version: 1.0.0
status: active
schema:
  - name: levels
    physicalName: "**"
    logicalType: object
    properties:
      - {name: station, logicalType: string, required: true}
      - {name: level_m, logicalType: number, required: true, logicalTypeOptions: {minimum: -10, maximum: 50}}
"""
_PIPELINE = """\
def publish(context):
    for entry in context.inputs:
        context.publisher.write_file(entry.path, entry.read().replace(b";", b","), {"media_type": "text/csv"})
"""
_SINK = """
import http.server, sys
class Sink(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()
    def log_message(self, *_): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Sink)
print(server.server_address[1], flush=True)
server.serve_forever()
"""


@dataclass
class Side:
    """One project, and how a round of runs is measured in it."""

    app: App
    around: Callable[[], Any]
    after: Callable[[], None]
    day: int = 0

    def round(self) -> float:
        """Seconds of processor time for a node."""
        with self.around():
            began_s = time.process_time()
            for _ in range(RUNS):
                self._run()
            self.after()
            return (time.process_time() - began_s) / (RUNS * NODES)

    def _run(self) -> None:
        self.day += 1
        start = datetime(2020, 1, 1, tzinfo=UTC) + timedelta(days=self.day)
        window = f"{start:%Y-%m-%d}/P1D"
        table(self.app, 0, first=f"d{self.day},0.5")
        report = self.app.run(RunRequest(source_id="notes", window_spec=window, actor="bench"))
        assert report.word == "published", report


def _project(stack: ExitStack, config: str) -> App:
    folder = Path(scratch(stack))
    (folder / "incoming").mkdir()
    (folder / "kfm.yml").write_text(_CONFIG + config)
    (folder / "contract.odcs.yaml").write_text(_CONTRACT)
    (folder / "pipeline.py").write_text(_PIPELINE)
    app = App(load(str(folder / "kfm.yml")), read_only=False, progress=None)
    stack.callback(app.close)
    for number in range(TABLES):
        table(app, number, first="s,0.5")
    return app


def table(app: App, number: int, *, first: str) -> None:
    """One of the files that a run publishes; with another first row it is another one."""
    lines = [f"s{number}-{row},{row % 40}.5" for row in range(ROWS)]
    path = Path(app.loaded.folder) / f"incoming/t{number}.csv"
    path.write_text("\n".join(("station,level_m", first, *lines, "")))


def _sink(stack: ExitStack) -> int:
    sink = subprocess.Popen([sys.executable, "-c", _SINK], stdout=subprocess.PIPE)
    assert sink.stdout is not None
    stack.callback(sink.stdout.close)
    stack.callback(sink.wait)
    stack.callback(sink.terminate)
    return int(sink.stdout.readline())


# --- the sides -------------------------------------------------------------------------


@contextmanager
def _as_it_is() -> Iterator[None]:
    yield


@contextmanager
def _unchained() -> Iterator[None]:
    """Entries of the audit log as rows, and no more."""
    with mock.patch.object(governance, "append", _plain):
        yield


_NUMBERS = iter(range(1, 1_000_000_000))


def _plain(session: Session, entries: Any) -> None:
    for entry in entries:
        assert isinstance(entry, GovernanceEntry)
        session.one("governance.append", number=next(_NUMBERS), hash="", **rows.entry_parameters(entry))


def _stubbed(stack: ExitStack) -> Side:
    """No emitter, no telemetry, no chain, no meter."""
    app = _project(stack, _OFF)
    store: Any = app.store
    store._journal = Journal(None)
    app.__dict__["kernel"] = replace(app.kernel, meter=Unmetered(), telemetry=Off())
    return Side(app, _unchained, lambda: None)


def _off(stack: ExitStack) -> Side:
    return Side(_project(stack, _OFF), _as_it_is, lambda: None)


def _on(stack: ExitStack) -> Side:
    """Events to a file, spans and metrics to a collector: both are there when the round ends."""
    app = _project(stack, _ON % _sink(stack))
    telemetry: Any = app.telemetry

    def send() -> None:
        told = deliver(app)
        assert told.waiting == 0, told
        telemetry._tracers.force_flush()
        telemetry._meters.force_flush()

    return Side(app, _as_it_is, send)


def _pair(ours: Callable[[ExitStack], Side]) -> Callable[[ExitStack], tuple[Side, Side]]:
    def setup(stack: ExitStack) -> tuple[Side, Side]:
        for name in [name for name in os.environ if name.startswith(("KFM_", "OTEL_", "OPENLINEAGE"))]:
            stack.enter_context(mock.patch.dict(os.environ))
            del os.environ[name]
        return ours(stack), _stubbed(stack)

    return setup


def benchmarks() -> list[Benchmark]:
    return [
        Benchmark(
            name=name,
            kind="cost",
            goal=goal,
            setup=_pair(side),
            ours=lambda sides: sides[0].round(),
            reference=lambda sides: sides[1].round(),
            rounds=30,
            seconds_max=180.0,
        )
        for name, goal, side in (("evidence_off", 1.05, _off), ("evidence_on", 1.3, _on))
    ]
