"""Databases and records for the store's tests."""

from __future__ import annotations

import hashlib
import os
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import apsw
from msgspec.structs import replace

from kfm.db.ledger import Ledger
from kfm.db.postgres import PostgresDatabase
from kfm.db.queries import migrate
from kfm.db.sqlite import MemoryDatabase, SqliteDatabase
from kfm.model import keys
from kfm.model.records import Asset, GateResult, GovernanceEntry, Invocation, Item, Manifest, Run, Switch
from kfm.model.runs import (
    Admit,
    AdmitResult,
    Attempt,
    Circumstances,
    Fail,
    LineageEvent,
    Promote,
    PromoteResult,
)
from kfm.model.settings import Care, Rights
from kfm.model.versions import version_of
from kfm.ports import Clock
from kfm.system import SystemClock
from tests.memory_disk import memory_disk

MINUTE_MS = 60_000
START_MS = 1_767_225_600_000


def alive(_worker_id: str) -> bool:
    """No process is known to be dead."""
    return False


def dead(*workers: str) -> Any:
    return lambda worker_id: worker_id in workers


class Recorder:
    """A lineage emitter whose events hold no more than what happened."""

    def started(self, attempt: Attempt, run: Run, known: Circumstances) -> LineageEvent:
        return self._say(attempt.lineage_id, "START", run.run_id, attempt.node)

    def ended(self, attempt: Attempt, run: Run, known: Circumstances) -> LineageEvent:
        assert attempt.ending is not None
        return self._say(attempt.lineage_id, attempt.ending.upper(), run.run_id, attempt.node)

    def refused(self, invocation: Invocation, known: Circumstances, at_ms: int) -> tuple[LineageEvent, ...]:
        lineage_id, subject = keys.refused_call_id(invocation.invocation_id), invocation.invocation_id
        return tuple(self._say(lineage_id, word, subject, "") for word in ("START", "ABORT"))

    def _say(self, lineage_id: str, word: str, subject: str, node: str) -> LineageEvent:
        body = f"{word} {node}".strip()
        return LineageEvent(event_id=f"{lineage_id}:{word}", topic="openlineage", subject=subject, body=body)


@cache
def _memory() -> apsw.Connection:
    """A ledger without a row, which is copied for each test: much faster than making its tables."""
    database = MemoryDatabase(SystemClock())
    migrate(database, "sqlite", START_MS)
    return database._connection


@cache
def _file() -> bytes:
    with tempfile.TemporaryDirectory(dir=memory_disk()) as folder:
        database = SqliteDatabase(f"{folder}/kfm.db", SystemClock())
        migrate(database, "sqlite", START_MS)
        database.close()
        return Path(folder, "kfm.db").read_bytes()


def memory_store(clock: Clock) -> Ledger:
    return Ledger(MemoryDatabase(clock, copy_of=_memory()), Recorder())


def sqlite_store(path: str, clock: Clock, *, copied: bool = True, **options: Any) -> Ledger:
    """`copied`: a new one is a copy of one that was made once; for one process alone."""
    if copied and not os.path.exists(path):
        Path(path).write_bytes(_file())
        os.chmod(path, 0o600)
    database = SqliteDatabase(path, clock, **options)
    migrate(database, "sqlite", clock.now_ms())
    return Ledger(database, Recorder())


def postgres_store(dsn: str, **options: Any) -> Ledger:
    database = PostgresDatabase(dsn, **options)
    migrate(database, "postgresql", START_MS)
    return Ledger(database, Recorder())


def digest(text: str) -> str:
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def new_run(name: str, **changes: Any) -> Run:
    """A first attempt of the work `name`, as admission would propose it."""
    hexes = digest(f"run {name}")[7:]
    run = Run(
        run_id=f"{hexes[:8]}-{hexes[8:12]}-8{hexes[13:16]}-8{hexes[17:20]}-{hexes[20:32]}",
        source_id="usgs-daily",
        dataset_id="ks-streamflow",
        pipeline_id="usgs-daily",
        idempotency_key=digest(f"key {name}"),
        work_key=digest(f"work {name}"),
        work_base=digest(f"base {name}"),
        revision=0,
        trigger_type="manual",
        window_spec="P1D",
        window_start_ms=START_MS,
        window_end_ms=START_MS + 86_400_000,
        partition=None,
        pipeline_version=digest("pipeline"),
        status="running",
        attempts=1,
        fence=0,
        start_time_ms=START_MS,
    )
    return replace(run, **changes)


def invocation(number: int, run: Run | None, **changes: Any) -> Invocation:
    made = Invocation(
        invocation_id=f"{number:08x}-0000-7000-8000-000000000000",
        run_id=run.run_id if run else None,
        source_id="usgs-daily",
        dataset_id="ks-streamflow",
        trigger_type="manual",
        idempotency_key=run.idempotency_key if run else digest("none"),
        outcome=None,
        actor="ada",
        requested_at_ms=START_MS + number,
        gates=(GateResult(gate="switch", allowed=True, reason="No switch is thrown."),),
    )
    return replace(made, **changes)


def manifest(text: str, dataset_id: str = "ks-streamflow") -> Manifest:
    asset = Asset(path="data.csv", sha256=digest(text)[7:], size=len(text), media_type="text/csv")
    item = Item(
        id="item",
        source_id="usgs-daily",
        window_start_ms=START_MS,
        window_end_ms=START_MS + 1,
        partition=None,
        assets=(asset,),
        bbox=("-102.05", "36.99", "-94.59", "40.0"),
    )
    return Manifest(
        dataset_id=dataset_id,
        title="Kansas streamflow",
        description="Ünïcode – 水",
        domain="hydrology",
        keywords=("water",),
        rights=Rights(license="CC0-1.0", care=Care(label="Public · Low-Risk")),
        items=(item,),
    )


def entry(kind: str, subject: str = "ks-streamflow", **changes: Any) -> GovernanceEntry:
    made = GovernanceEntry(kind=kind, subject=subject, actor="ada", recorded_at_ms=START_MS)
    return replace(made, **changes)


def switch(position: Any = "paused", scope: str = "all", **changes: Any) -> Switch:
    made = Switch(scope=scope, position=position, rationale="Testing.", actor="ada", set_at_ms=START_MS)
    return replace(made, **changes)


def settle_window(ledger: Ledger, source_id: str, window: tuple[int, int]) -> None:
    """It is there, or dismissed: as part of the transaction that says so."""
    ledger.database.write(
        lambda session: ledger._journal.watch.settled(session, source_id, window, session.now_ms())
    )


class Desk:
    """Asks the store as the engine does; every question can be bent."""

    def __init__(self, store: Ledger) -> None:
        self.store = store
        self.calls = 0

    def admit(
        self,
        run: Run,
        *,
        seen: Run | None = None,
        scope: str = "dataset:ks-streamflow",
        worker_id: str = "worker-1",
        lease_ms: int = MINUTE_MS,
        dead: Any = alive,
        **changes: Any,
    ) -> AdmitResult:
        self.calls += 1
        request = Admit(
            run=run,
            seen=seen,
            scope=scope,
            worker_id=worker_id,
            lease_ms=lease_ms,
            invocation=invocation(self.calls, run),
            policy_epoch=self.store.policy_epoch(),
        )
        return self.store.admit(replace(request, **changes), dead)

    def admitted(self, name: str, **options: Any) -> Run:
        answer = self.admit(new_run(name), **options)
        assert answer.answer == "admitted", answer
        assert answer.run is not None
        return answer.run

    def again(self, seen: Run, **options: Any) -> AdmitResult:
        """The next attempt of a run, as admission would propose it."""
        run = replace(
            seen,
            status="running",
            attempts=seen.attempts + 1,
            end_time_ms=None,
            error_code=None,
            error_message=None,
        )
        options.setdefault("judged", self.store.retry_state(seen.run_id))
        return self.admit(run, seen=seen, **options)

    def promote(self, run: Run, text: str | None = "bytes", **changes: Any) -> PromoteResult:
        head = self.store.head(run.dataset_id)
        shown = None if text is None else version_of(manifest(text, run.dataset_id))
        request = Promote(
            run_id=run.run_id,
            dataset_id=run.dataset_id,
            scope="dataset:ks-streamflow",
            fence=run.fence,
            policy_epoch=self.store.policy_epoch(),
            base_sequence=head[0].sequence if head else 0,
            fingerprint=digest(f"fingerprint {text}"),
            version_id=digest(f"version {text} {run.dataset_id}"),
            version=shown,
            invocation_id=f"{self.calls:08x}-0000-7000-8000-000000000000",
            reason="This work has not been done yet.",
        )
        return self.store.promote(replace(request, **changes))

    def fail(self, run: Run, **changes: Any) -> bool:
        request = Fail(
            run_id=run.run_id,
            scope="dataset:ks-streamflow",
            fence=run.fence,
            error_code="KFM601",
            error_message="The work failed.",
            invocation_id=f"{self.calls:08x}-0000-7000-8000-000000000000",
            outcome="failed",
        )
        return self.store.fail(replace(request, **changes))
