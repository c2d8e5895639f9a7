"""Admission as a request sees it: one run at a time for a dataset, each work once, and a look upstream.

A stand-in for admission and promotion, which have worlds of their own: what is on trial here is which
requests come to admission, how often, and what becomes of the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from kfm.db.requests import begun, hold
from kfm.db.rows import run_parameters
from kfm.db.session import Database, Session
from kfm.model.errors import BackendUnavailable, Cancelled, LockHeld, LostLease
from kfm.model.keys import work_base
from kfm.model.records import Run, Switch, Work
from kfm.model.requests import UpdateRequest
from kfm.model.settings import DatasetSettings, SourceSettings
from kfm.model.windows import resolve_window
from kfm.runs.kernel import RunReport, RunRequest
from kfm.runs.plan import RunPlan
from kfm.service.dispatcher import DispatchedRuns
from kfm.service.runner import ClaimedRequest

if TYPE_CHECKING:
    from tests.simulation.asked.world import AskedWorld
    from tests.simulation.scheduler import Process

LEASE_MS = 30_000
STEPS = 4  # of a run, between which it can be stopped


@dataclass
class Lock:
    worker_id: str
    until_ms: int
    fence: int


class SimulatedAdmission:
    """What all processes share: locks, runs, and upstream's state."""

    def __init__(self, world: AskedWorld) -> None:
        self._world = world
        self._locks: dict[str, Lock] = {}
        self._fence = 0
        self.runs: dict[str, Run] = {}
        self.upstream = 0

    def of_work(self, base: str) -> list[Run]:
        return [run for run in self.runs.values() if run.work_base == base]

    def latest(self, base: str) -> Run | None:
        return max(self.of_work(base), key=lambda run: run.revision, default=None)

    def by_key(self, key: str) -> Run | None:
        return next((run for run in self.runs.values() if run.idempotency_key == key), None)

    def take(self, dataset_id: str, worker_id: str, now_ms: int) -> int | None:
        held = self._locks.get(dataset_id)
        if held and held.until_ms > now_ms and not self._world.is_dead(held.worker_id):
            return None
        self._fence += 1
        self._locks[dataset_id] = Lock(worker_id, now_ms + LEASE_MS, self._fence)
        return self._fence

    def is_ours(self, dataset_id: str, fence: int) -> bool:
        held = self._locks.get(dataset_id)
        return held is not None and held.fence == fence

    def leave(self, dataset_id: str, fence: int) -> None:
        if self.is_ours(dataset_id, fence):
            del self._locks[dataset_id]


class AdmittedRuns(DispatchedRuns):
    """What one process's dispatcher asks for."""

    def __init__(
        self,
        world: AskedWorld,
        process: Process,
        worker_id: str,
        held: ClaimedRequest,
        database: Database,
        now_ms: Callable[[], int],
    ) -> None:
        self._database = database
        self._world, self._process, self._held = world, process, held
        self._worker_id, self._now_ms = worker_id, now_ms

    def run(self, request: UpdateRequest, run_request: RunRequest, plan: RunPlan | None) -> RunReport:
        del plan
        with self._held.holding(request):
            return self._run(request, work_of(run_request))

    def _run(self, request: UpdateRequest, work: Work) -> RunReport:
        admission = self._world.admission
        entered = self._database.write(lambda session: self._enter(session, request, work))
        if isinstance(entered, RunReport):
            return entered
        run, fence = entered, entered.fence
        seen = str(admission.upstream)
        for _ in range(STEPS):
            self._point("work")
            reason = self._held.cancelled()
            if reason is not None and admission.is_ours(request.dataset_id, fence):
                admission.runs[run.run_id] = replace(run, status="failed", error_code="CANCELLED")
                admission.leave(request.dataset_id, fence)
                return _report(request, "failed", run=run, error=Cancelled(reason))
        if not admission.is_ours(request.dataset_id, fence):
            return _report(request, "busy", run=run, error=LostLease("another has it"))
        done = admission.runs[run.run_id] = replace(run, status="success", fingerprint=seen)
        self._world.database.write(lambda session: session.one("runs.insert", **run_parameters(done)))
        admission.leave(request.dataset_id, fence)
        if self._world.scheduler.unlucky(self._world.scheduler.chances.fail_after):
            raise BackendUnavailable("simulated: the promotion's answer was lost")
        self._point("promoted")
        return _report(request, "success", run=done)

    def _enter(self, session: Session, request: UpdateRequest, work: Work) -> Run | RunReport:
        """One transaction, as admission is: the claim is held, and the run is on record with the request."""
        admission, base, claim = self._world.admission, work_base(work), (request.request_id, self._worker_id)
        fence = admission.take(request.dataset_id, self._worker_id, self._now_ms())
        if fence is None:
            return _report(request, "busy", error=LockHeld("another process"))
        run = admission.latest(base)
        if run is not None and run.status == "success":
            if run.fingerprint == str(admission.upstream):
                admission.leave(request.dataset_id, fence)
                return _report(request, "noop", run=run)
            run = None
        if not hold(session, claim):
            admission.leave(request.dataset_id, fence)
            return _report(request, "busy", error=LostLease("another has the request"))
        if run is None:
            key = request.key if request.kind == "webhook" else f"{base}/{len(admission.of_work(base))}"
            run = _new(request, work, base, key, len(admission.of_work(base)), self._now_ms())
        run = admission.runs[run.run_id] = replace(
            run, status="running", attempts=run.attempts + 1, fence=fence
        )
        begun(session, claim, run.run_id)
        return run

    def _point(self, label: str) -> None:
        self._world.scheduler.point(self._process, label)

    def preview(self, run_request: RunRequest) -> RunReport:
        raise NotImplementedError("no request needs an approval here")

    def ask_approval(self, request: UpdateRequest, plan: RunPlan) -> bool:
        raise NotImplementedError("no request needs an approval here")

    def approved_plan(self, request: UpdateRequest) -> RunPlan:
        raise NotImplementedError("no request needs an approval here")

    def run_by_key(self, key: str) -> Run | None:
        self._point("look")
        return self._world.admission.by_key(key)

    def run_by_id(self, run_id: str) -> Run | None:
        self._point("look")
        return self._world.admission.runs.get(run_id)

    def switches(self) -> Iterable[Switch]:
        return self._world.switches()

    def find(self, source_id: str) -> tuple[SourceSettings, DatasetSettings] | None:
        return self._world.find(source_id)


def work_of(run_request: RunRequest) -> Work:
    window = resolve_window(str(run_request.window_spec), "UTC", 0)
    return Work(source_id=run_request.source_id, window=window, partition=None, output_version="1")


def _new(request: UpdateRequest, work: Work, base: str, key: str, revision: int, now_ms: int) -> Run:
    return Run(
        run_id=f"{base[7:23]}-{revision}",
        source_id=work.source_id,
        dataset_id=request.dataset_id,
        pipeline_id="p",
        idempotency_key=key,
        work_key=f"{base}/{revision}",
        work_base=base,
        revision=revision,
        trigger_type=request.kind,
        window_spec=work.window.spec,
        window_start_ms=work.window.start_ms,
        window_end_ms=work.window.end_ms,
        partition=None,
        pipeline_version="1",
        status="running",
        attempts=0,
        fence=0,
        start_time_ms=now_ms,
    )


def _report(request: UpdateRequest, outcome: Any, **more: Any) -> RunReport:
    return RunReport(
        outcome=outcome,
        word=outcome,
        source_id=request.source_id,
        dataset_id=request.dataset_id,
        window_start_ms=request.window_start_ms,
        window_end_ms=request.window_end_ms,
        invocation_id=None,
        reason=f"it was {outcome}",
        **more,
    )
