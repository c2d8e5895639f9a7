"""The threads of the service: the scheduler, the runners of requests, recovery, maintenance, the worker.

Each thread has an application of its own: a store is not shared. A ledger that is away is waited for.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

from kfm.audit.chain import seal_all
from kfm.config.live import LiveConfig
from kfm.db.connection import place_of
from kfm.decoders import prepare_decoders
from kfm.lineage.collectors import deliver
from kfm.model.derived import derived_sources
from kfm.model.errors import LEDGER, BackendUnavailable, KfmError, StoreTooNew, outage_of
from kfm.model.quantities import counted
from kfm.model.records import Record, Run
from kfm.model.requests import RequestOutcome, RequestPart, UpdateRequest
from kfm.model.retry import backoff_ms, spread_ms
from kfm.model.retry_budgets import RetryLimits, limits_of
from kfm.model.settings import DatasetSettings, SourceSettings
from kfm.periodic import PeriodicTask, run_due
from kfm.runs import plan as plans
from kfm.runs.artifacts import leave_provenance
from kfm.runs.derived_changes import follow_changes
from kfm.runs.kernel import RunReport
from kfm.runs.version_conversion import VersionConversion
from kfm.service.dispatcher import CLAIM_MS, Dispatcher, run_request_of
from kfm.service.incidents import deliver_incidents
from kfm.service.overdue import mark_overdue
from kfm.storage.retention import RetentionDuty, cut
from kfm.system import SystemRng, os_trouble
from kfm.telemetry.ledger_metrics import keep_fold

if TYPE_CHECKING:
    from kfm.app import App
    from kfm.config.loader import Loaded

KEEP_MS = 2_000  # also how soon a cancellation is noticed
IDLE_MS_MAX = 1_000
TROUBLE_MS = 1_000
TROUBLE_MS_MAX = 30_000
RECOVER_MS = 2_000
WATCH_MS = 2_000
FOLLOW_MS = 1_000
REPLAY_MS = 1_000
DELIVER_MS = 5_000
OVERDUE_MS = 60_000
CUT_MS = 10 * 60 * 1000
SEAL_MS = 60_000
FOLD_MS = 60_000
VERSIONS_MS = 1_000
VERSIONS_AT_ONCE = 5  # that get their trees before other duties have their turn
RETENTION_MS = 3_600_000  # between two passes
RETENTION_BATCHES = 5  # at once, so that the other duties do not wait for long
SEAL_MIN = 100
PREVIEWS_MAX = 20  # that wait for an approval and are made anew at once
logger = logging.getLogger(__name__)


class ServiceOptions(Record, frozen=True):
    """Which of its parts a service runs."""

    schedules: bool = True
    runs: bool = True
    worker: bool = True
    changes: bool = True  # of datasets, that others are made of
    part: RequestPart = "all"  # of the requests, that its runners work off


class ClaimedRequest:
    """The request that a runner works on: shared by the runner and the thread that renews its claim."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._request: UpdateRequest | None = None

    @contextmanager
    def holding(self, request: UpdateRequest) -> Iterator[None]:
        with self._lock:
            self._request = request
        try:
            yield
        finally:
            with self._lock:
                self._request = None

    @property
    def request(self) -> UpdateRequest | None:
        with self._lock:
            return self._request


class ServedRuns:
    """The runs of a dispatcher, by one thread's application."""

    def __init__(self, app: App) -> None:
        self._app = app

    def run(self, request: UpdateRequest, plan: plans.RunPlan | None) -> RunReport:
        from kfm.runs.executor import RunExecutor
        from kfm.runs.subjects import Start

        app = self._app
        subject = app.subject(run_request_of(request))
        report = RunExecutor(app.kernel, subject, Start(request=request, plan=plan)).run()
        with contextlib.suppress(KfmError, OSError):  # the copy beside the artifacts; the ledger has it all
            leave_provenance(app, report)
        return report

    def preview(self, request: UpdateRequest) -> RunReport:
        from kfm.runs.preview import preview
        from kfm.runs.subjects import Start

        app = self._app  # which counts in the circuits what a preview's calls meet
        return preview(app.kernel, app.subject(run_request_of(request)), Start(request=request, assume=True))

    def asks_approval(self, request: UpdateRequest) -> bool:
        from kfm.runs.gates import asks_approval

        return asks_approval(self._app.kernel, self._app.subject(run_request_of(request)), request)

    def asked_before(self, request: UpdateRequest) -> RequestOutcome | None:
        from kfm.service.approvals import asked_before

        return asked_before(self._app, request, self._app.subject(run_request_of(request)))

    def ask_approval(self, request: UpdateRequest, plan: plans.RunPlan) -> bool:
        from kfm.service.approvals import request_update

        return request_update(self._app, request, plan)

    def plan(self, request: UpdateRequest) -> plans.RunPlan:
        text = self._app.ledger.request_reader().preview(request.plan_digest or "")
        return plans.read((text or "").encode())

    def hopeless(self, request: UpdateRequest, run: Run) -> str | None:
        subject = self._app.subject(run_request_of(request))
        latest = self._app.ledger.latest_run(run.work_base)
        if subject.work_base != run.work_base:
            return "code-changed"
        if subject.dataset.id != run.dataset_id:
            return "dataset-changed"
        return "superseded" if latest is not None and latest.run_id != run.run_id else None

    def give_up(self, run: Run, reason: str, answer: tuple[UpdateRequest, RequestOutcome]) -> None:
        from kfm.runs.retry import give_up

        give_up(self._app.kernel, run, reason, answer)

    def run_by_id(self, run_id: str) -> Run | None:
        return self._app.ledger.run(run_id)

    def find(self, source_id: str) -> tuple[SourceSettings, DatasetSettings] | None:
        settings = self._app.settings
        source = settings.source_named(source_id)
        return None if source is None else (source, settings.dataset(source.dataset))

    def limits(self, source: SourceSettings) -> RetryLimits:
        return limits_of(self._app.settings, source.id)

    def redact(self, text: str) -> str:
        return self._app.loaded.discretion(text)


def recover(app: App) -> None:
    """End what dead processes left, decide about it, and see that each promised attempt has its request."""
    from kfm.runs.outcome import sweep
    from kfm.runs.retry import adopt, judge_reaped

    kernel = app.kernel
    kernel.liveness.claim(kernel.worker_id)
    sweep(kernel.store, kernel.liveness)
    judge_reaped(kernel)
    adopt(kernel)
    requests = kernel.store.requests()
    requests.make_due()
    requests.preview_anew(PREVIEWS_MAX)


def make_dispatcher(app: App, part: RequestPart = "all", **more: Any) -> Dispatcher:
    """A dispatcher with an application of its own."""
    kernel = app.kernel
    app.liveness.claim(kernel.worker_id)
    return Dispatcher(
        kernel.store.requests(),
        ServedRuns(app),
        kernel.worker_id,
        now_ms=kernel.store.now_ms,
        unit_random=kernel.rng.unit,
        dead=app.liveness.is_dead,
        part=part,
        **more,
    )


def dispatch_due(
    app: App, part: RequestPart, *, stopping: Callable[[], bool] = lambda: False, **more: Any
) -> int:
    """Work off what is due, one request after the other; how many."""
    recover(app)
    dispatcher, count = make_dispatcher(app, part, **more), 0
    while not stopping() and dispatcher.step() is not None:
        count += 1
    return count


class ServiceThreads:
    """The threads of one service: started once, stopped once."""

    def __init__(
        self,
        loaded: Loaded,
        options: ServiceOptions,
        open_app: Callable[..., AbstractContextManager[App]],
        live: LiveConfig | None = None,
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_end` is called when it stops by itself."""
        self._loaded = loaded
        self._open_app = open_app
        self._live = live or LiveConfig(loaded)
        self._options = options
        self._part = options.part
        self._on_end = on_end
        self.outdated: StoreTooNew | None = None  # why it has stopped by itself
        self._rng = SystemRng()
        self._troubles: dict[str, tuple[str, int]] = {}  # by part: last error, failures in a row
        self._places: dict[str, tuple[int, int] | None] = {}  # of which part, and which ledger it has open
        self._secrets: dict[str, int] = {}  # of which part, and which version of the secrets it has
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
            self._thread("recovery", self._recovery)
            self._thread("evidence", self._maintenance)
            self._thread("replays", self._replayer)
            if self._options.changes and derived_sources(self._loaded.settings):
                self._thread("changes", self._follower)
        self._thread("upgrades", self._watch)
        if self._options.schedules:
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
        """Wait for what is under way, for `serve.grace_seconds` in all; the names of those that would not
        end."""
        ends = monotonic() + self._loaded.settings.serve.grace_seconds
        for thread in self._threads:
            thread.join(max(0.0, ends - monotonic()))
        return [thread.name.removeprefix("kfm-") for thread in self._threads if thread.is_alive()]

    # --- threads -----------------------------------------------------------------------

    def _thread(self, name: str, work: Callable[[App], None]) -> None:
        def again() -> None:
            """With a new application whenever the last one had trouble: it may have been the ledger's."""
            while not self._stop.is_set():
                try:
                    self._secrets[name] = self._live.secrets_version
                    with self._open_app(what="kfm serve") as app:
                        self._places[name] = self._place()
                        work(app)
                except StoreTooNew as error:
                    self._end(error)
                except _SecretsChanged:
                    logger.info("%s: opened anew, since secrets changed", name, extra={"part": name})
                except Exception as error:  # noqa: BLE001 - no trouble of one part ends the others
                    self._stop.wait(self._trouble(error) / 1000)

        self._threads.append(threading.Thread(target=again, name=f"kfm-{name}", daemon=True))

    def _end(self, error: StoreTooNew) -> None:
        """The ledger belongs to a newer kfm: no part of this one has anything more to do."""
        if self.outdated is None:
            self.outdated = error
            logger.error("%s", error, extra={"code": error.code, "part": _own_name()})
        self.stop()
        self._on_end()

    def _trouble(self, error: Exception) -> int:
        """An error of the part that calls: logged once, however long it lasts; returns how long to wait."""
        name = _own_name()
        if isinstance(error, OSError):
            trouble = os_trouble(error)
            error = BackendUnavailable(trouble.text, remedy=trouble.remedy)
        text = error.message if isinstance(error, KfmError) else f"{type(error).__name__}: {error}"
        last, failures = self._troubles.get(name, (None, 0))
        self._troubles[name] = (text, failures + 1)
        if last != text:
            logger.warning("%s: %s", name, text, extra={"part": name, **outage_of(error)})
        return spread_ms(backoff_ms(TROUBLE_MS, TROUBLE_MS_MAX, failures + 1), self._rng.unit())

    def _place(self) -> tuple[int, int] | None:
        return place_of(self._loaded.store, self._loaded.resolve(self._loaded.settings.state).rstrip("/"))

    def _well(self) -> None:
        """The part that calls has done something, and not in a ledger that was replaced."""
        name = _own_name()
        if self._places.get(name) != self._place():
            raise BackendUnavailable("The ledger was removed or replaced; it is opened anew.", backend=LEDGER)
        if self._troubles.pop(name, None) is not None and not self._troubles:  # one line for all parts
            logger.info("%s: goes on", name, extra={"part": name})
        if self._has_old_secrets(name):
            raise _SecretsChanged

    def _has_old_secrets(self, name: str) -> bool:
        return self._secrets.get(name) != self._live.secrets_version

    def _wait(self, wakes: int, delay_ms: int) -> int:
        """Wait until there is something new, or so long; returns what the next wait counts from."""
        with self._woken:
            if self._wakes == wakes and not self._stop.is_set():
                self._woken.wait(delay_ms / 1000)
            return self._wakes

    def _runner(self, held: ClaimedRequest) -> Callable[[App], None]:
        former: list[str] = []  # worker ids of this thread, before its application was opened anew

        def work(app: App) -> None:
            requests = app.kernel.store.requests()
            while former:
                requests.give_back(former[-1])
                former.pop()
            former.append(app.kernel.worker_id)
            dispatcher = make_dispatcher(app, self._part, holding=held.holding)
            wakes = self._wakes
            while not self._stop.is_set():
                worked = dispatcher.step() is not None
                self._well()
                if not worked:
                    wakes = self._wait(wakes, IDLE_MS_MAX)

        return work

    def _keeper(self, app: App) -> None:
        """Renews the claims of the runners, previews included."""
        requests = app.kernel.store.requests()
        while not self._stop.wait(KEEP_MS / 1000):
            for held in self._held:
                request = held.request
                if request is not None:
                    requests.renew(request, CLAIM_MS)
            self._well()

    def _watch(self, app: App) -> None:
        """Notices that a newer kfm has upgraded the ledger, also where there is nothing else to do."""
        while not self._stop.wait(WATCH_MS / 1000):
            app.kernel.store.database.write(lambda _session: None)
            self._well()

    def _recovery(self, app: App) -> None:
        while not self._stop.is_set():
            recover(app)
            self._well()
            self._stop.wait(RECOVER_MS / 1000)

    def _follower(self, app: App) -> None:
        """Asks for derived windows whose inputs have changed."""
        while not self._stop.is_set():
            if follow_changes(app):
                self.wake()
            self._well()
            self._stop.wait(FOLLOW_MS / 1000)

    def _replayer(self, app: App) -> None:
        """Carries out the replays that were asked for over HTTP."""
        from kfm.nodd.replay import carry_on

        while not self._stop.is_set():
            carry_on(app, self._stop.is_set)
            self._well()
            self._stop.wait(REPLAY_MS / 1000)

    def _scheduler(self, app: App) -> None:
        from kfm.service.scheduler import make_scheduler

        schedules = self._live.schedules
        scheduler = make_scheduler(app, schedules)
        while not self._stop.is_set():
            if schedules is not self._live.schedules:
                schedules = self._live.schedules
                scheduler = make_scheduler(app, schedules)
                logger.info("schedules: %s read anew", counted(len(schedules), "schedule"))
            if scheduler.step():
                self.wake()
            self._well()
            due_ms = scheduler.next_due_ms()
            rest_ms = IDLE_MS_MAX if due_ms is None else due_ms - app.kernel.store.now_ms()
            self._wait(self._wakes, max(10, min(IDLE_MS_MAX, rest_ms)))

    def _maintenance(self, app: App) -> None:
        # With feeds not at once: what is in the queues is taken in before.
        looked_ms = app.clock.monotonic_ms() if app.settings.ingest.feeds else None
        tasks = [
            PeriodicTask("lineage", DELIVER_MS, partial(deliver, app)),
            PeriodicTask("incidents", DELIVER_MS, partial(deliver_incidents, app)),
            PeriodicTask("overdue", OVERDUE_MS, partial(mark_overdue, app), looked_ms),
            PeriodicTask("metrics", FOLD_MS, lambda: keep_fold(app.kernel.store)),
            PeriodicTask(
                "versions", VERSIONS_MS, partial(VersionConversion(app.kernel).step, VERSIONS_AT_ONCE)
            ),
            PeriodicTask("partitions", CUT_MS, lambda: cut(app.kernel.store)),
            PeriodicTask("seals", SEAL_MS, lambda: seal_all(app.kernel.store, app.actor, SEAL_MIN)),
        ]
        retention = RetentionDuty(app.retention_pass)
        try:
            while not self._stop.wait(1.0):
                if failures := run_due(tasks, app.clock.monotonic_ms()):
                    raise failures[0].error
                if app.settings.retention.enabled:
                    retention.step(app.clock.monotonic_ms(), RETENTION_MS, RETENTION_BATCHES)
                self._well()
        finally:
            retention.close()

    def _worker(self, app: App) -> None:
        """Takes in what queues announce: the same as `kfm worker`."""
        from kfm.nodd.worker_loop import WorkerOptions, run_worker

        self._well()
        name = _own_name()
        options = WorkerOptions(mode="until-stopped", dispatches=False)  # the runners do
        run_worker(app, options, _Stop(self._stop, lambda: self._has_old_secrets(name)))
        if not self._stop.is_set():
            self._well()


def _own_name() -> str:
    return threading.current_thread().name.removeprefix("kfm-")


class _SecretsChanged(Exception):
    """What a part holds was made with secrets that are others by now."""


class _Stop(threading.Event):
    """The service's stop signal, as a worker sees it; that the worker ends does not end the service."""

    def __init__(self, service: threading.Event, is_outdated: Callable[[], bool]) -> None:
        super().__init__()
        self._service = service
        self._is_outdated = is_outdated

    def is_set(self) -> bool:
        return super().is_set() or self._service.is_set() or self._is_outdated()

    def wait(self, timeout: float | None = None) -> bool:
        return super().is_set() or self._service.wait(timeout) or self._is_outdated()
