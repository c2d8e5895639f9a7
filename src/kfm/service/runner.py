"""The threads of the service: the scheduler, the runners of requests, retries, maintenance, the worker.

Each thread has an application of its own: a store is not shared. A ledger that is away is waited for.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

from kfm.audit.chain import seal_all
from kfm.db.connection import place_of
from kfm.decoders import prepare_decoders
from kfm.lineage.collectors import deliver
from kfm.model.errors import BackendUnavailable, KfmError
from kfm.model.records import Record, Run, Switch
from kfm.model.requests import UpdateRequest
from kfm.model.retry import backoff_ms
from kfm.model.settings import DatasetSettings, SourceSettings
from kfm.periodic import PeriodicTask, run_due
from kfm.runs import plan as plans
from kfm.runs.artifacts import leave_provenance
from kfm.runs.kernel import RunReport, RunRequest
from kfm.service.dispatcher import CLAIM_MS, Dispatcher
from kfm.service.incidents import deliver_incidents

if TYPE_CHECKING:
    from kfm.app import App
    from kfm.config.loader import Loaded
    from kfm.model.schedules import Schedule

KEEP_MS = 2_000  # also how soon a cancellation is noticed
IDLE_MS_MAX = 1_000
TROUBLE_MS = 1_000
TROUBLE_MS_MAX = 30_000
RETRY_MS = 2_000
DELIVER_MS = 5_000
SEAL_MS = 60_000
SEAL_MIN = 100
JOINED_S = 30.0  # how long runs that are under way are waited for, all together
logger = logging.getLogger(__name__)


class ServiceOptions(Record, frozen=True):
    """Which of its parts a service runs."""

    schedules: bool = True
    runs: bool = True
    worker: bool = True


class ClaimedRequest:
    """The request that a runner works on: shared by the runner and the thread that renews its claim."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._request: UpdateRequest | None = None
        self._cancel: str | None = None

    @contextmanager
    def holding(self, request: UpdateRequest) -> Iterator[None]:
        with self._lock:
            self._request, self._cancel = request, request.cancel
        try:
            yield
        finally:
            with self._lock:
                self._request = None

    @property
    def request(self) -> UpdateRequest | None:
        with self._lock:
            return self._request

    def seen(self, request: UpdateRequest) -> None:
        with self._lock:
            if self._request is not None and self._request.request_id == request.request_id:
                self._cancel = request.cancel

    def cancelled(self) -> str | None:
        with self._lock:
            return self._cancel


class ServedRuns:
    """The runs of a dispatcher, by one thread's application."""

    def __init__(self, app: App, held: ClaimedRequest) -> None:
        self._app = app
        self._held = held

    def run(self, request: UpdateRequest, run_request: RunRequest, plan: plans.RunPlan | None) -> RunReport:
        from kfm.runs.executor import RunExecutor

        app = self._app
        requests = app.kernel.store.requests()

        def keep(made: plans.RunPlan) -> None:
            requests.keep_preview(request.request_id, (made.header.digest, plans.write(made).decode()))

        kernel = replace(
            app.kernel,
            keep_plan=keep if request.kind == "webhook" else None,
            cancelled=self._held.cancelled,
            claim=(request.request_id, request.claimed_by or ""),
        )
        with self._held.holding(request):
            report = RunExecutor(
                kernel, app.subject(run_request), force=False, artifacts_dir=None, plan=plan
            ).run()
        with contextlib.suppress(KfmError, OSError):  # the copy beside the artifacts; the ledger has it all
            leave_provenance(app, report)
        return report

    def preview(self, run_request: RunRequest) -> RunReport:
        with self._app.another(read_only=True, what="kfm serve") as app:
            return app.preview(run_request)

    def ask_approval(self, request: UpdateRequest, plan: plans.RunPlan) -> bool:
        from kfm.service.approvals import request_update

        return request_update(self._app, request, plan)

    def approved_plan(self, request: UpdateRequest) -> plans.RunPlan:
        text = self._app.ledger.request_reader().preview(request.plan_digest or "")
        return plans.read((text or "").encode())

    def run_by_key(self, key: str) -> Run | None:
        return self._app.ledger.run_by_key(key)

    def run_by_id(self, run_id: str) -> Run | None:
        return self._app.ledger.run(run_id)

    def switches(self) -> Iterable[Switch]:
        return self._app.ledger.switches()

    def find(self, source_id: str) -> tuple[SourceSettings, DatasetSettings] | None:
        settings = self._app.settings
        source = next((one for one in settings.sources if one.id == source_id), None)
        return None if source is None else (source, settings.dataset(source.dataset))


class ServiceThreads:
    """The threads of one service: started once, stopped once."""

    def __init__(
        self,
        loaded: Loaded,
        schedules: Sequence[Schedule],
        options: ServiceOptions,
        open_app: Callable[..., AbstractContextManager[App]],
    ) -> None:
        self._loaded = loaded
        self._open_app = open_app
        self._schedules = tuple(schedules)
        self._options = options
        self._troubles: dict[str, tuple[str, int]] = {}  # by part: last error, failures in a row
        self._places: dict[str, tuple[int, int] | None] = {}  # of which part, and which ledger it has open
        self._stop = threading.Event()
        self._woken = threading.Condition()
        self._wakes = 0
        self._held: list[ClaimedRequest] = []
        self._threads: list[threading.Thread] = []

    # --- from outside ------------------------------------------------------------------

    def start(self) -> None:
        prepare_decoders()
        if self._options.runs:
            for number in range(self._loaded.settings.serve.runners):
                self._held.append(ClaimedRequest())
                self._thread(f"runner-{number + 1}", self._runner(self._held[-1]))
            self._thread("claims", self._keeper)
            self._thread("retries", self._retrier)
            self._thread("evidence", self._maintenance)
        if self._options.schedules and self._schedules:
            self._thread("schedules", self._scheduler)
        if self._options.worker and self._loaded.settings.ingest.queues:
            self._thread("worker", self._worker)
        for thread in self._threads:
            thread.start()

    def wake(self) -> None:
        """Something new is in the ledger."""
        with self._woken:
            self._wakes += 1
            self._woken.notify_all()

    def stop(self) -> None:
        self._stop.set()
        self.wake()

    def join(self) -> list[str]:
        """Wait for what is under way; the names of those that would not end."""
        ends = monotonic() + JOINED_S
        for thread in self._threads:
            thread.join(max(0.0, ends - monotonic()))
        return [thread.name.removeprefix("kfm-") for thread in self._threads if thread.is_alive()]

    # --- threads -----------------------------------------------------------------------

    def _thread(self, name: str, work: Callable[[App], None]) -> None:
        def again() -> None:
            """With a new application whenever the last one had trouble: it may have been the ledger's."""
            while not self._stop.is_set():
                try:
                    with self._open_app(what="kfm serve") as app:
                        self._places[name] = self._place()
                        work(app)
                except Exception as error:  # noqa: BLE001 - no trouble of one part ends the others
                    self._stop.wait(self._trouble(error) / 1000)

        self._threads.append(threading.Thread(target=again, name=f"kfm-{name}", daemon=True))

    def _trouble(self, error: Exception) -> int:
        """An error of the part that calls: logged once, however long it lasts; returns how long to wait."""
        name = _own_name()
        text = error.message if isinstance(error, KfmError) else f"{type(error).__name__}: {error}"
        last, failures = self._troubles.get(name, (None, 0))
        self._troubles[name] = (text, failures + 1)
        if last != text:
            logger.warning("%s: %s", name, text, extra={"part": name})
        return backoff_ms(TROUBLE_MS, TROUBLE_MS_MAX, failures + 1)

    def _place(self) -> tuple[int, int] | None:
        return place_of(self._loaded.store, self._loaded.resolve(self._loaded.settings.state).rstrip("/"))

    def _well(self) -> None:
        """The part that calls has done something, and not in a ledger that was replaced."""
        name = _own_name()
        if self._places.get(name) != self._place():
            raise BackendUnavailable("The ledger was removed or replaced; it is opened anew.")
        if self._troubles.pop(name, None) is not None:
            logger.info("%s: goes on", name, extra={"part": name})

    def _wait(self, wakes: int, delay_ms: int) -> int:
        """Wait until there is something new, or so long; returns what the next wait counts from."""
        with self._woken:
            if self._wakes == wakes and not self._stop.is_set():
                self._woken.wait(delay_ms / 1000)
            return self._wakes

    def _runner(self, held: ClaimedRequest) -> Callable[[App], None]:
        def work(app: App) -> None:
            kernel = app.kernel
            app.liveness.claim(kernel.worker_id)
            dispatcher = Dispatcher(
                kernel.store.requests(),
                ServedRuns(app, held),
                kernel.worker_id,
                now_ms=kernel.store.now_ms,
                dead=app.liveness.is_dead,
            )
            wakes = self._wakes
            while not self._stop.is_set():
                worked = dispatcher.step() is not None
                self._well()
                if not worked:
                    wakes = self._wait(wakes, IDLE_MS_MAX)

        return work

    def _keeper(self, app: App) -> None:
        """Renews the claims of the runners, and reads which requests are to stop."""
        requests = app.kernel.store.requests()
        while not self._stop.wait(KEEP_MS / 1000):
            for held in self._held:
                request = held.request
                renewed = requests.renew(request, CLAIM_MS) if request is not None else None
                if renewed is not None:
                    held.seen(renewed)
            self._well()

    def _scheduler(self, app: App) -> None:
        from kfm.service.scheduler import make_scheduler

        scheduler = make_scheduler(app, self._schedules)
        while not self._stop.is_set():
            if scheduler.step():
                self.wake()
            self._well()
            due_ms = scheduler.next_due_ms()
            rest_ms = IDLE_MS_MAX if due_ms is None else due_ms - app.kernel.store.now_ms()
            self._wait(self._wakes, max(10, min(IDLE_MS_MAX, rest_ms)))

    def _retrier(self, app: App) -> None:
        """Makes the automatic attempts whose time has come."""
        from kfm.runs.retry import run_due_retries

        while not self._stop.wait(RETRY_MS / 1000):
            run_due_retries(app, actor=app.actor, on_report=lambda _report: None)
            self._well()

    def _maintenance(self, app: App) -> None:
        tasks = [
            PeriodicTask("lineage", DELIVER_MS, partial(deliver, app)),
            PeriodicTask("incidents", DELIVER_MS, partial(deliver_incidents, app)),
            PeriodicTask("seals", SEAL_MS, lambda: seal_all(app.kernel.store, app.actor, SEAL_MIN)),
        ]
        while not self._stop.wait(1.0):
            if failures := run_due(tasks, app.clock.monotonic_ms()):
                raise failures[0].error
            self._well()

    def _worker(self, app: App) -> None:
        """Takes in what queues announce: the same as `kfm worker`."""
        from kfm.nodd.worker_loop import WorkerOptions, run_worker

        self._well()
        run_worker(app, WorkerOptions(mode="until-stopped"), _Stop(self._stop))


def _own_name() -> str:
    return threading.current_thread().name.removeprefix("kfm-")


class _Stop(threading.Event):
    """The service's stop signal, as a worker sees it; that the worker ends does not end the service."""

    def __init__(self, service: threading.Event) -> None:
        super().__init__()
        self._service = service

    def is_set(self) -> bool:
        return super().is_set() or self._service.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        return super().is_set() or self._service.wait(timeout)
