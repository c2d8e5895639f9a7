"""What the ledger costs beyond the database that it is kept in.

All files lie on the disk that holds this repository, WAL and FULL on both sides: a memory disk
would favour the side that syncs more.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import apsw
import msgspec

from bench.harness import Benchmark
from kfm.db import rows
from kfm.db.ledger import Ledger
from kfm.db.queries import migrate, queries
from kfm.db.session import Session
from kfm.db.sqlite import CHECKPOINT_PAGES, SqliteDatabase
from kfm.model.records import GateResult, Invocation, Run
from kfm.model.runs import Admit
from kfm.system import SystemClock

ROOT = Path(__file__).resolve().parents[1]
KNOWN = 5_000  # runs in the ledger before anything is measured
ROUND = 300  # admissions a round: about one checkpoint
LOOKUPS = 500
WORKER_MS = 5.0
COMMITS = 15
PATIENCE_MS = 1_000  # without the turnstile a commit can wait for ever; such a wait counts as this much


def _folder(stack: ExitStack) -> str:
    place = ROOT / ".bench"
    place.mkdir(exist_ok=True)
    stack.callback(lambda: place.rmdir() if not any(place.iterdir()) else None)
    return stack.enter_context(tempfile.TemporaryDirectory(dir=place))


def _digest(text: str) -> str:
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def _run(number: int) -> Run:
    hexes = _digest(f"run {number}")[7:]
    return Run(
        run_id=f"{hexes[:8]}-{hexes[8:12]}-8{hexes[13:16]}-8{hexes[17:20]}-{hexes[20:32]}",
        source_id="usgs-daily",
        dataset_id="ks-streamflow",
        pipeline_id="usgs-daily",
        idempotency_key=_digest(f"key {number}"),
        work_key=_digest(f"work {number}"),
        work_base=_digest(f"base {number}"),
        revision=0,
        trigger_type="cron",
        window_spec="P1D",
        window_start_ms=1_767_225_600_000,
        window_end_ms=1_767_312_000_000,
        partition=None,
        pipeline_version=_digest("pipeline"),
        status="running",
        attempts=1,
        fence=1,
        start_time_ms=1_767_312_000_000 + number,
    )


def _request(number: int, scope: str) -> Admit:
    run = _run(number)
    gates = tuple(
        GateResult(gate=name, allowed=True, reason="Nothing refuses it.")
        for name in ("switch", "freeze", "policy", "rights")
    )
    call = Invocation(
        invocation_id=f"{number:08x}-0000-7000-8000-000000000000",
        run_id=run.run_id,
        source_id=run.source_id,
        dataset_id=run.dataset_id,
        trigger_type=run.trigger_type,
        idempotency_key=run.idempotency_key,
        outcome=None,
        actor="ada",
        requested_at_ms=run.start_time_ms,
        reason="This work has not been done yet.",
        gates=gates,
    )
    return Admit(run=run, seen=None, scope=scope, worker_id="w", lease_ms=0, invocation=call, policy_epoch=1)


@dataclass
class Ledgers:
    """Three ledgers with the same past: one is used through the store, one for bare inserts, and in one the
    statements of the first are made again by hand, which is what no code around them could be faster than."""

    store: Ledger
    raw: apsw.Connection
    floor: apsw.Connection
    next_run: int = KNOWN
    latest: list[float | None] = field(default_factory=lambda: [None, None, None])

    def numbers(self) -> range:
        self.next_run += ROUND
        return range(self.next_run - ROUND, self.next_run)


def _open(path: str) -> SqliteDatabase:
    database = SqliteDatabase(path, SystemClock())
    migrate(database, "sqlite", 1)

    def past(session: Session) -> None:
        for number in range(KNOWN):
            run = msgspec.structs.replace(_run(number), status="failed")
            session.all("runs.insert", **rows.run_parameters(run))
            call = msgspec.structs.replace(_request(number, "").invocation, outcome="failed")
            session.all("invocations.insert", **rows.invocation_parameters(call))
        for number in range(ROUND):
            session.all("locks.ensure", scope=f"dataset:{number}")

    database.write(past)
    return database


def _ledgers(stack: ExitStack) -> Ledgers:
    folder = _folder(stack)
    ours = _open(os.path.join(folder, "ours.db"))
    stack.callback(ours.close)
    return Ledgers(Ledger(ours), _raw(stack, folder, "reference.db"), _raw(stack, folder, "floor.db"))


def _raw(stack: ExitStack, folder: str, name: str) -> apsw.Connection:
    _open(os.path.join(folder, name)).close()
    raw = apsw.Connection(os.path.join(folder, name))
    stack.callback(raw.close)
    raw.pragma("synchronous", "FULL")
    raw.pragma("wal_autocheckpoint", CHECKPOINT_PAGES)
    assert raw.pragma("journal_mode") == "wal"
    return raw


def _timed(work: Callable[[], object]) -> float:
    started_s = time.perf_counter()
    work()
    return time.perf_counter() - started_s


def _round(ledgers: Ledgers) -> tuple[float, float, float]:
    """Seconds an admission, a bare insert-and-commit of the same row, and a commit of the statements of an
    admission made by hand, one beside the other.

    In turns, because a disk's mood lasts longer than a commit. Preparing the requests and freeing
    the locks afterwards does not count; the checkpoints of both sides do.
    """
    store, execute, sql = ledgers.store, ledgers.raw.execute, queries("sqlite")["runs.insert"]
    floor = ledgers.floor.execute
    numbers = ledgers.numbers()
    requests = [_request(number, f"dataset:{index}") for index, number in enumerate(numbers)]
    prepared = [rows.run_parameters(_run(number)) for number in numbers]
    ours_s = reference_s = floor_s = 0.0
    said: list[tuple[str, Any]] = []
    session: Any = store.database.session
    executed = session._execute

    def noted(sql: str, parameters: Any = None) -> Any:
        said.append((sql, parameters))
        return executed(sql, parameters)

    def again() -> None:
        floor("BEGIN IMMEDIATE")
        for statement in said:
            floor(*statement).fetchall()
        floor("COMMIT")

    def insert(parameters: dict[str, Any]) -> None:
        execute("BEGIN IMMEDIATE")
        execute(sql, parameters).fetchall()
        execute("COMMIT")

    for request, parameters in zip(requests, prepared, strict=True):
        said.clear()
        session._execute = noted
        ours_s += _timed(lambda request=request: store.admit(request, _none_dead))  # type: ignore[misc]
        session._execute = executed
        floor_s += _timed(again)
        reference_s += _timed(lambda parameters=parameters: insert(parameters))  # type: ignore[misc]
    assert len(store.reap(_none_dead)) == ROUND
    floor("UPDATE locks SET worker_id = NULL, run_id = NULL, lease_until_ms = 0, fence = 0, known_fence = 0")
    return ours_s / ROUND, reference_s / ROUND, floor_s / ROUND


def _none_dead(_worker_id: str) -> bool:
    """No worker is known to be dead."""
    return False


def _side(side: int) -> Callable[[Ledgers], float]:
    """One side of the latest round; whichever is asked for a second time begins a new one."""

    def measured(ledgers: Ledgers) -> float:
        if ledgers.latest[side] is None:
            ledgers.latest = list(_round(ledgers))
        took_s = ledgers.latest[side]
        assert took_s is not None
        ledgers.latest[side] = None
        return took_s

    return measured


def _keys() -> list[str]:
    return [_digest(f"key {number}") for number in range(0, KNOWN, KNOWN // LOOKUPS)]


def _find(ledgers: Ledgers) -> None:
    find = ledgers.store.run_by_key
    for key in _KEYS:
        assert find(key) is not None


def _select(ledgers: Ledgers) -> None:
    execute, sql, fields = ledgers.raw.execute, queries("sqlite")["runs.by_key"], Run.__struct_fields__
    for key in _KEYS:
        row = execute(sql, {"idempotency_key": key}).fetchall()[0]
        assert msgspec.convert(dict(zip(fields, row, strict=True)), Run) is not None


_KEYS = _keys()


# --- the turnstile -------------------------------------------------------------------

_WORKER = """
import select, sys, time
import apsw
from kfm.db.session import Session
from kfm.db.sqlite import CHECKPOINT_PAGES, SqliteDatabase
from kfm.system import SystemClock
kind, path, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
if kind == "ours":
    write = SqliteDatabase(path, SystemClock()).write
    def work(): write(lambda session: (session.all("policy.advance"), time.sleep(seconds)))
else:
    raw = apsw.Connection(path)
    raw.set_busy_timeout(30_000)
    raw.pragma("synchronous", "FULL")
    def work():
        raw.execute("BEGIN IMMEDIATE")
        raw.execute("UPDATE counters SET value = value + 1")
        time.sleep(seconds)
        raw.execute("COMMIT")
work()
print("ready", flush=True)
while not select.select([sys.stdin], [], [], 0)[0]:
    work()
"""


@dataclass
class Intruder:
    """A client that commits now and then beside a process that commits back to back."""

    commit: Callable[[int], object]
    commits: int = 0

    def p95(self, folder: str, kind: str) -> float:
        """The 95th percentile of the seconds that a commit takes."""
        worker = subprocess.Popen(
            [sys.executable, "-c", _WORKER, kind, os.path.join(folder, f"{kind}.db"), str(WORKER_MS / 1000)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert worker.stdin is not None
        assert worker.stdout is not None
        assert worker.stdout.readline() == b"ready\n"
        waits = []
        for _ in range(COMMITS):
            self.commits += 1
            waits.append(_timed(lambda: self.commit(self.commits)))
            time.sleep(0.002)
        worker.stdin.close()
        worker.wait()
        worker.stdout.close()
        return sorted(waits)[int(0.95 * COMMITS)]


@dataclass
class Queue:
    folder: str
    ours: Intruder
    reference: Intruder


def _queue(stack: ExitStack) -> Queue:
    folder = _folder(stack)
    store = Ledger(_open(os.path.join(folder, "ours.db")))
    stack.callback(store.close)
    _open(os.path.join(folder, "reference.db")).close()
    raw = apsw.Connection(os.path.join(folder, "reference.db"))
    stack.callback(raw.close)
    raw.pragma("synchronous", "FULL")
    raw.set_busy_timeout(PATIENCE_MS)
    sql = queries("sqlite")["projections.raise"]

    def commit(number: int) -> None:
        try:
            raw.execute("BEGIN IMMEDIATE")
        except apsw.BusyError:
            return
        raw.execute(sql, {"dataset_id": "d", "target": "t", "sequence": number})
        raw.execute("COMMIT")

    return Queue(
        folder,
        ours=Intruder(lambda number: store.raise_projected("d", "t", number)),
        reference=Intruder(commit),
    )


def benchmarks() -> list[Benchmark]:
    return [
        Benchmark(
            name="admission_new",
            kind="cost",
            goal=1.3,
            setup=_ledgers,
            ours=_side(0),
            reference=_side(1),
            rounds=15,
        ),
        Benchmark(  # beside the goals: what the rows of an admission cost by themselves
            name="admission_floor",
            kind="cost",
            goal=1.3,
            setup=_ledgers,
            ours=_side(2),
            reference=_side(1),
            rounds=15,
        ),
        Benchmark(
            name="admission_duplicate",
            kind="cost",
            goal=1.5,
            setup=_ledgers,
            ours=_find,
            reference=_select,
            rounds=41,
        ),
        Benchmark(
            name="turnstile_wait",
            kind="speedup",
            goal=5.0,
            setup=_queue,
            ours=lambda queue: queue.ours.p95(queue.folder, "ours"),
            reference=lambda queue: queue.reference.p95(queue.folder, "reference"),
            rounds=3,
        ),
    ]
