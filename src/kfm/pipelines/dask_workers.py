"""Workers on a Dask cluster: nodes run there, everything that counts is decided and recorded here.

Dask is given one task for each node that must run, when it must run: no graph, no values, no functions. What
it answers are references to objects in the store that both sides share.
"""

from __future__ import annotations

import logging
import os
import queue
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from kfm import __version__
from kfm.model.errors import (
    BackendUnavailable,
    Cancelled,
    ExtraMissing,
    KfmError,
    PipelineError,
    PipelineFailed,
)
from kfm.pipelines import dask_host
from kfm.pipelines.children import error_of, failed, order_of, result_of, setup_of
from kfm.pipelines.context import log_node
from kfm.pipelines.workers import POLL_S, TRIES_MAX, Cancellation, NodeJob, NodeResult

if TYPE_CHECKING:
    from kfm.pipelines.declaration import NodeSpec, Pipeline
    from kfm.pipelines.executor_address import ExecutorAddress
    from kfm.pipelines.project import PipelineProject

logger = logging.getLogger(__name__)

CONNECT_S = 10.0
FETCH_S = 5.0  # how long one look at an answer takes; its worker may have died since
CLOSE_S = 5.0
LOOK_MS = 2_000  # between two looks at how many threads the cluster has
IDLE_S = 60.0  # after which a child on a worker ends, if no pipeline run asks for it
AHEAD = 4  # jobs for each thread of the cluster, so that none waits for the records of the last
JOBS_MAX = 4096
SHARED = "Add `?files=shared` if the workers see the same files under the same paths"


def require(address: ExecutorAddress, project: PipelineProject, pipeline: Pipeline) -> None:
    """Refuse what can't run on a cluster, before anything is begun."""
    from importlib.util import find_spec

    if find_spec("distributed") is None:
        raise ExtraMissing("A Dask cluster needs distributed: install kfm-kernel[dask].")
    if str(address.scheduler).startswith("tls:"):
        _require_certificates()
    if address.shares_files:
        return
    if project.loaded is None or project.loaded.settings.objects is None:
        raise PipelineError(
            "The values of this project are in a folder, which the workers of a cluster can't read.",
            remedy=f"Name a bucket in `objects:`. {SHARED}.",
        )
    for spec in pipeline.nodes.values():
        named = [*spec.outputs, *_files_in(spec.inputs)]
        if named:
            raise _needs_files(spec, named[0])


def _require_certificates() -> None:
    """Dask itself would wait for twenty seconds, and end with a TypeError."""
    import distributed

    security: Any = distributed.Security
    remedy = (
        "Name them in Dask's configuration, for instance by the variables "
        "DASK_DISTRIBUTED__COMM__TLS__CA_FILE, …TLS__CLIENT__CERT and …TLS__CLIENT__KEY."
    )
    try:
        context = security().get_connection_args("client")["ssl_context"]
    except OSError as error:
        raise PipelineError(f"The certificates for Dask can't be read: {error}.", remedy=remedy) from error
    if context is None:
        raise PipelineError("There are no certificates for a Dask scheduler behind TLS.", remedy=remedy)


def _files_in(declared: Any) -> list[str]:
    """Files among declared inputs; what a function returns is seen when its node is started."""
    if callable(declared) or isinstance(declared, Mapping):
        return []
    entries = [declared] if isinstance(declared, str) or hasattr(declared, "__fspath__") else declared
    texts = [each if isinstance(each, str) else getattr(each, "__fspath__", str)() for each in entries]
    return [each for each in texts if each and "://" not in each and not each.startswith("branch:")]


def _needs_files(spec: NodeSpec, name: str) -> PipelineError:
    return PipelineError(
        f"{spec.id} reads or writes files of this machine, such as {name}, which a cluster does not see.",
        remedy=f"{SHARED}; or hand values on: return them, or write them with ctx.publisher.write_file.",
    )


class DaskWorkers:
    """Implements `Workers` with the workers of a Dask cluster."""

    def __init__(
        self, project: PipelineProject, pipeline: Pipeline, address: ExecutorAddress, jobs: int | None
    ) -> None:
        """`jobs`: at a time; None: as many as the cluster has threads for."""
        assert address.scheduler is not None
        self._scheduler = address.scheduler
        self._shares_files = address.shares_files
        self._objects: Any = project.objects
        self._clock = project.clock
        self._session = project.ids.new()
        setup = dask_host.HostSetup(
            kfm=__version__,
            session=self._session,
            folder=os.getcwd(),
            child=setup_of(project, pipeline, idle_s=IDLE_S),
        )
        self._setup = msgspec.json.encode(setup)
        self._jobs = jobs
        self._threads = 0
        self._looked_ms: int | None = None
        self._client: Any = None
        self._running: dict[Any, _Task] = {}
        self._ready: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._number = 0
        self._asked: set[str] = set()

    def __enter__(self) -> DaskWorkers:
        import distributed

        client: Any = distributed.Client
        try:
            self._client = client(self._scheduler, timeout=CONNECT_S, name="kfm", set_as_default=False)
        except (OSError, ValueError) as error:
            raise BackendUnavailable(
                f"No Dask scheduler answers at {self._scheduler}: {error}.",
                remedy="Start it, or correct the address; `--resume RUN` goes on.",
            ) from error
        self._look()
        return self

    def __exit__(self, *problem: object) -> None:
        client, self._client = self._client, None
        with suppress(*_lost()):
            if client.status == "running":
                client.cancel([task.future for task in self._running.values()], force=True)
                client.run(dask_host.end_session, self._session, on_error="ignore")
        with suppress(*_lost()):
            client.close(timeout=CLOSE_S)
        self._running.clear()

    @property
    def busy(self) -> bool:
        return bool(self._running)

    @property
    def full(self) -> bool:
        return len(self._running) >= (self._jobs or min(JOBS_MAX, AHEAD * max(1, self._threads)))

    def start(self, job: NodeJob) -> None:
        order = order_of(job)
        if not self._shares_files:
            self._share(job)
        self._submit(job, order, 1)

    def wait(self, cancelled: Cancellation) -> list[NodeResult]:
        while True:
            done = [result for key in self._ended() if (result := self._result(key)) is not None]
            if done:
                return done
            if cancelled.is_set():
                stopped = cancelled.error is not None
                self._ask("kill" if stopped else "cancel")
                if stopped:
                    return self._abandoned()
            self._look()

    # --- tasks -------------------------------------------------------------------------

    def _share(self, job: NodeJob) -> None:
        """What the job reads is where the workers can read it."""
        if b'"file:' in job.document:
            rows = msgspec.json.decode(job.document).get("inputs", ())
            names = [row["uri"] for row in rows if str(row.get("uri", "")).startswith("file:")]
            if names:
                raise _needs_files(job.spec, names[0].removeprefix("file:"))
        for outputs in job.arguments.values():
            for output in outputs:
                self._objects.share(output.checksum.removeprefix("sha256:"))

    def _submit(self, job: NodeJob, order: dict[str, Any], tries: int) -> None:
        self._number += 1
        ticket = f"{self._session}/{self._number}"
        body = msgspec.json.encode({**order, "ticket": ticket})
        try:
            # A key of its own: Dask knows nothing of earlier results, and hands out none.
            future = self._client.submit(
                dask_host.run_node, self._setup, body, key=("kfm-node", ticket), pure=False, retries=0
            )
        except _lost() as error:
            raise self._gone() from error
        self._running[future.key] = _Task(future, job, order, ticket, tries)
        self._announce(future)

    def _announce(self, future: Any) -> None:
        future.add_done_callback(lambda done: self._ready.put(done.key))

    def _ended(self) -> list[Any]:
        """Keys of tasks that have ended; waits a moment for the first."""
        keys = []
        with suppress(queue.Empty):
            keys.append(self._ready.get(timeout=POLL_S))
            while True:
                keys.append(self._ready.get_nowait())
        return keys

    def _result(self, key: Any) -> NodeResult | None:
        """None: there is none yet, or no more."""
        from distributed import KilledWorker
        from distributed import TimeoutError as TimedOut

        task = self._running.get(key)
        if task is None:
            return None
        future, answer = task.future, None
        if future.status == "cancelled":
            raise self._gone()
        if future.status != "error":
            try:
                answer = msgspec.json.decode(future.result(timeout=FETCH_S))
            except TimedOut:  # its worker died with the answer; Dask makes it again
                self._announce(future)
                return None
            except Exception as error:
                if future.status != "error":  # else the next try to make it has failed meanwhile
                    raise self._gone() from error
        del self._running[key]
        if answer is None:
            failure = future.exception()
            if isinstance(failure, KilledWorker):
                return self._killed(task)
            raise _unusable(failure)
        future.release()
        return _answered(task.job, answer)

    def _killed(self, task: _Task) -> NodeResult | None:
        """Dask has seen several workers die under it, and gives it up: that may have been chance."""
        node = task.job.spec.id
        if task.tries < TRIES_MAX and task.ticket not in self._asked:
            log_node(node, f"{node}: several workers of the cluster died under it; tried once more")
            self._submit(task.job, task.order, task.tries + 1)
            return None
        text = f"{node}: all workers of the cluster that ran it died."
        return failed(task.job, PipelineFailed(text, remedy="See the logs of the Dask workers."))

    def _ask(self, what: dask_host.Asked) -> None:
        """Ctrl-C lets nodes at work end; a stop does not."""
        tickets = [task.ticket for task in self._running.values() if task.ticket not in self._asked]
        if tickets:
            self._asked.update(tickets)
            with suppress(*_lost()):
                self._client.run(dask_host.ask, tickets, what, on_error="ignore")

    def _abandoned(self) -> list[NodeResult]:
        """After a stop none is waited for: what a worker still makes has no one to record it."""
        tasks = list(self._running.values())
        self._running.clear()
        with suppress(*_lost()):
            self._client.cancel([task.future for task in tasks], force=True)
        return [failed(task.job, Cancelled(f"{task.job.spec.id} was stopped.")) for task in tasks]

    def _look(self) -> None:
        """How many threads the cluster has: workers come and go."""
        now_ms = self._clock.monotonic_ms()
        first = self._looked_ms is None
        if self._looked_ms is not None and now_ms - self._looked_ms < LOOK_MS:
            return
        self._looked_ms = now_ms
        before = self._threads
        with suppress(*_lost()):
            self._threads = sum(self._client.nthreads().values())
        if self._threads == 0 and (before or first):
            logger.warning(
                "the Dask cluster at %s has no workers; nodes wait until one comes", self._scheduler
            )

    def _gone(self) -> BackendUnavailable:
        return BackendUnavailable(
            f"The Dask scheduler at {self._scheduler} has gone, with the nodes that were at work.",
            remedy="What has ended is on record: `--resume RUN` goes on, with any executor.",
        )


class _Task(msgspec.Struct, eq=False):
    """A job on the cluster."""

    future: Any
    job: NodeJob
    order: dict[str, Any]
    ticket: str
    tries: int


def _answered(job: NodeJob, answer: Mapping[str, Any]) -> NodeResult:
    for line in answer["lines"]:
        log_node(job.spec.id, line)
    if "unusable" in answer:
        raise error_of(answer["unusable"])
    if "failed" in answer:
        return failed(job, error_of(answer["failed"]))
    return result_of(job, answer["done"])


def _unusable(error: BaseException) -> KfmError:
    """The cluster could not begin with a node."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ImportError):
        cause = cause.__cause__
    told = cause or error
    return PipelineError(
        f"The Dask cluster can't run nodes: {type(told).__name__}: {str(told).strip().splitlines()[0][:300]}",
        remedy=f"Its scheduler and its workers need kfm-kernel {__version__}, and what the pipeline imports.",
    )


def _lost() -> tuple[type[BaseException], ...]:
    """What Dask raises once its scheduler has gone."""
    from asyncio import CancelledError as Undone
    from concurrent.futures import CancelledError

    from distributed.client import ClosedClientError

    return (OSError, RuntimeError, CancelledError, Undone, ClosedClientError)
