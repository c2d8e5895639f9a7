"""Who asks for a run: what the rules remember of it, and as much of an application as its starters need."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from kfm.model.keys import make_trigger
from kfm.model.requests import UpdateRequest
from kfm.model.settings import Settings
from kfm.model.windows import resolve_window
from kfm.runs.executor import RunExecutor
from kfm.runs.kernel import Kernel, RunReport, RunRequest
from kfm.runs.plan import RunPlan
from kfm.runs.subjects import RunSubject, Start, describe
from kfm.service.dispatcher import Dispatcher, run_request_of
from kfm.service.runner import ServedRuns

if TYPE_CHECKING:
    from tests.simulation.checks_starts import StartChecks
    from tests.simulation.scheduler import Process


@dataclass(frozen=True)
class Asking:
    """A start, as an onlooker sees it."""

    by_person: bool  # who answers for it: never for an attempt that was promised
    promised: bool
    binds: str | None
    request_id: str | None
    rationale: str | None
    jumps: int  # of the process's clock, until then
    began_ms: int

    @classmethod
    def of(
        cls, start: Start, process: Process, rationale: str | None = None, binds: str | None = None
    ) -> Asking:
        request, scheduler = start.request, process.scheduler
        by_person = start.by_person if request is None else request.by_person and request.run_id is None
        return cls(
            by_person=by_person,
            promised=start.is_promised,
            binds=binds or start.binds,
            request_id=request.request_id if request is not None else None,
            rationale=request.rationale if request is not None else rationale,
            jumps=process.jumps,
            began_ms=scheduler.now_ms,  # type: ignore[attr-defined]
        )


def app_of(kernel: Kernel, settings: Settings) -> Any:
    """As much of the application as starting and approving need."""

    def subject(request: RunRequest) -> RunSubject:
        source = settings.source(request.source_id)
        trigger = make_trigger(
            source,
            kind=request.trigger_type,
            actor=request.actor,
            claimed_actor=request.claimed_actor,
            rationale=request.rationale,
            ticket=request.ticket,
            correction=request.correction,
            message_id=request.message_id,
            request_uuid=request.request_uuid,
            envelope=request.envelope,
        )
        window = resolve_window(request.window_spec or source.window, source.time_zone, kernel.clock.now_ms())
        version = source.output_version or "auto"
        return describe(source, settings.dataset(source.dataset), window, version, trigger, "sim")

    return SimpleNamespace(
        kernel=kernel,
        ledger=kernel.store,
        writer=kernel.store,
        settings=settings,
        ids=kernel.ids,
        liveness=kernel.liveness,
        loaded=SimpleNamespace(discretion=kernel.redact),
        subject=subject,
    )


class SimulatedRuns(ServedRuns):
    """The runs of a dispatcher, as a service makes them; each report is told."""

    def __init__(
        self, app: Any, process: Process, starts: StartChecks, tell: Callable[[RunReport], None]
    ) -> None:
        super().__init__(app)
        self._process = process
        self._starts = starts
        self._tell = tell

    def run(self, request: UpdateRequest, plan: RunPlan | None) -> RunReport:
        app, process = self._app, self._process
        start = Start(request=request, plan=plan)
        process.facts |= {"plan": plan, "full": False, "attempt": None, "asking": Asking.of(start, process)}
        process.facts["report"] = None
        report = RunExecutor(app.kernel, app.subject(run_request_of(request)), start).run()
        process.facts["report"] = (request.request_id, report)
        self._tell(report)
        return report

    def preview(self, request: UpdateRequest) -> RunReport:
        self._process.facts["report"] = None
        try:
            report = super().preview(request)
        finally:
            self._starts.looked(request.request_id)
        self._process.facts["report"] = (request.request_id, report)
        return report


def dispatcher(app: Any, runs: SimulatedRuns, **more: Any) -> Dispatcher:
    """As `service.runner.make_dispatcher`."""
    kernel = app.kernel
    return Dispatcher(
        kernel.store.requests(),
        runs,
        kernel.worker_id,
        now_ms=kernel.store.now_ms,
        unit_random=kernel.rng.unit,
        dead=app.liveness.is_dead,
        **more,
    )
