"""Workers that run nodes: the seam of all executors, and those in this process."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import lru_cache
from types import CoroutineType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec

from kfm.model.errors import Cancelled, ContractViolated, KfmError, PipelineFailed
from kfm.model.records import NodeOutcome, Output
from kfm.model.run_state import NOTHING_CHECKED
from kfm.pipelines.context import HiddenRun, NodeContext, NodePublisher
from kfm.pipelines.declaration import CONTEXT_NAMES, NodeSpec, arguments_of
from kfm.pipelines.node_values import handed_on, store_value

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

    from kfm.ports import Clock, Objects, ProjectFiles

FUNCTIONS_MAX = 4096  # whose arguments' types are kept
POLL_S = 0.1  # how often a wait looks whether the run was cancelled
TRIES_MAX = 2  # of a job whose process was killed


class NodeJob(msgspec.Struct, frozen=True, eq=False):
    """A node that must run, with its arguments."""

    spec: NodeSpec
    reason: str
    inputs_hash: str
    code_sha: str
    document: bytes
    attempt: int
    arguments: Mapping[str, tuple[Output, ...]]
    run_id: str
    branch: str
    run: Any = None
    sees_run: bool = True  # what it could read there is part of its hash


class NodeResult(NamedTuple):
    """Result of one job."""

    job: NodeJob
    outcome: NodeOutcome
    outputs: tuple[Output, ...]
    summary: dict[str, int]
    error: KfmError | None
    duration_ms: int


class Workers(Protocol):
    """Runs jobs, a bounded number at a time: here, in other processes, or on other machines.

    Whatever runs them, they are given references and leave their values in the object store. What must run
    is decided, and what counts is recorded, by the pipeline run alone.
    """

    def __enter__(self) -> Workers: ...
    def __exit__(self, *problem: object) -> None: ...
    @property
    def busy(self) -> bool: ...
    @property
    def full(self) -> bool: ...
    def start(self, job: NodeJob) -> None: ...
    def wait(self, cancelled: Cancellation) -> list[NodeResult]:
        """Wait for at least one result; returns all that are there."""


class Cancellation:
    """Whether a pipeline run is to end early: by Ctrl-C, or by a stop. Asked from any thread."""

    def __init__(self, check: Callable[[], None] = lambda: None) -> None:
        """`check` raises once the run was stopped."""
        self.check = check
        self._asked = threading.Event()

    def set(self) -> None:
        self._asked.set()

    def is_set(self) -> bool:
        return self._asked.is_set() or self.error is not None

    @property
    def error(self) -> KfmError | None:
        """What has stopped the run; after Ctrl-C alone nothing has."""
        try:
            self.check()
        except KfmError as error:
            return error
        return None


class WorkerContext(msgspec.Struct, frozen=True, eq=False):
    """Dependencies of a worker: the object store, the project's files, a clock."""

    objects: Objects
    files: ProjectFiles
    clock: Clock
    publisher_lock: threading.Lock = msgspec.field(default_factory=threading.Lock)


class InlineWorker:
    """Implements `Workers` in the calling thread, one job at a time."""

    def __init__(self, worker: WorkerContext) -> None:
        self._worker = worker
        self._job: NodeJob | None = None

    def __enter__(self) -> InlineWorker:
        return self

    def __exit__(self, *problem: object) -> None:
        self._job = None

    @property
    def busy(self) -> bool:
        return self._job is not None

    @property
    def full(self) -> bool:
        return self._job is not None

    def start(self, job: NodeJob) -> None:
        self._job = job

    def wait(self, cancelled: Cancellation) -> list[NodeResult]:
        assert self._job is not None
        job, self._job = self._job, None
        return [perform(job, self._worker, cancelled.is_set)]


class ThreadWorkers:
    """Implements `Workers` with threads."""

    def __init__(
        self, worker: WorkerContext, jobs: int, prepare: Callable[[], object] = lambda: None
    ) -> None:
        """`prepare` is called before the first thread starts."""
        self._worker = worker
        self._jobs = jobs
        self._prepare = prepare
        self._pool: ThreadPoolExecutor | None = None
        self._running: dict[Future[NodeResult], NodeJob] = {}
        self._cancelled = threading.Event()

    def __enter__(self) -> ThreadWorkers:
        from concurrent.futures import (
            ThreadPoolExecutor,  # late: a run that executes nothing does not need it
        )

        self._prepare()
        self._pool = ThreadPoolExecutor(self._jobs, thread_name_prefix="kfm-node")
        return self

    def __exit__(self, *problem: object) -> None:
        assert self._pool is not None
        self._cancelled.set()
        self._pool.shutdown(wait=True, cancel_futures=True)

    @property
    def busy(self) -> bool:
        return bool(self._running)

    @property
    def full(self) -> bool:
        return len(self._running) >= self._jobs

    def start(self, job: NodeJob) -> None:
        assert self._pool is not None
        _records_of(job.spec.function)  # in this thread: two that make a type's decoder at once crash
        own = contextvars.copy_context()
        self._running[self._pool.submit(own.run, perform, job, self._worker, self._cancelled.is_set)] = job

    def wait(self, cancelled: Cancellation) -> list[NodeResult]:
        while True:
            from concurrent.futures import FIRST_COMPLETED, wait

            done, _ = wait(self._running, timeout=POLL_S, return_when=FIRST_COMPLETED)
            if cancelled.is_set():
                self._cancelled.set()
            if done:
                for future in done:
                    del self._running[future]
                return [future.result() for future in done]


# --- one job -----------------------------------------------------------------------------


def perform(job: NodeJob, worker: WorkerContext, cancelled: Callable[[], bool]) -> NodeResult:
    """Run one job; any error is the node's failure."""
    spec, began_ms = job.spec, worker.clock.monotonic_ms()
    publisher = NodePublisher(worker.objects, job.run.publisher if job.run else None, worker.publisher_lock)
    context = NodeContext(
        node=spec.id,
        run_id=job.run_id,
        branch=job.branch,
        attempt=job.attempt,
        params=spec.params,
        publisher=publisher,
        cancelled=cancelled,
        run=_run_of(job),
    )
    outcome: NodeOutcome = "failed"
    outputs: tuple[Output, ...] = ()
    error: KfmError | None = None
    try:
        value = _call(job, context, worker)
        if context.failed_checks:
            raise ContractViolated(f"{spec.id}: {'; '.join(context.failed_checks[:5])}.")
        written = publisher.outputs()
        files = _files(spec, worker.files)
        kept = [] if value is None and (written or files) else [store_value(worker.objects, spec.id, value)]
        outputs = (*kept, *written, *files)
        outcome = "partial" if context.partial_reason else "success"
    except KfmError as problem:
        error = problem
    except KeyboardInterrupt as interrupt:
        error = Cancelled(f"{spec.id} was interrupted.")
        error.__cause__ = interrupt
    except (Exception, SystemExit) as problem:  # noqa: BLE001 - a node may raise anything; recorded once, here
        from kfm.model.redaction import shapeless  # late: only failures need it

        error = PipelineFailed(f"{spec.id}: {type(problem).__name__}: {shapeless(str(problem))}")
        error.__cause__ = problem
    return NodeResult(
        job,
        outcome,
        outputs,
        context.summary or dict(NOTHING_CHECKED),
        error,
        worker.clock.monotonic_ms() - began_ms,
    )


def _call(job: NodeJob, context: NodeContext, worker: WorkerContext) -> Any:
    spec = job.spec
    arguments = {name: handed_on(outputs, worker.objects) for name, outputs in job.arguments.items()}
    arguments |= {name: value for name, value in spec.params.items() if _takes(spec, name)}
    for name in CONTEXT_NAMES:
        if _takes(spec, name):
            arguments[name] = context
    arguments = _typed(spec, arguments)
    answer = spec.function(**arguments)
    if isinstance(answer, CoroutineType):
        import asyncio  # slow to import, and most pipeline runs have nothing to run

        return asyncio.run(answer)
    return answer


def _takes(spec: NodeSpec, name: str) -> bool:
    names, _ = arguments_of(spec.function)
    return name in names


def _typed(spec: NodeSpec, arguments: dict[str, Any]) -> dict[str, Any]:
    """Arguments converted to the record types of the function's annotations."""
    for name, kind in _records_of(spec.function).items():
        if name in arguments:
            try:
                arguments[name] = msgspec.convert(arguments[name], kind)
            except msgspec.ValidationError as error:
                raise PipelineFailed(f"{spec.id}: {name} is no {kind.__name__}: {error}.") from None
    return arguments


@lru_cache(maxsize=FUNCTIONS_MAX)
def _records_of(function: Callable[..., Any]) -> dict[str, Any]:
    """The arguments that are records, with their types; each type's decoder is made on the way."""
    import typing

    try:
        hints = typing.get_type_hints(function)
    except Exception:  # noqa: BLE001 - a hint that can't be resolved is no reason not to run
        return {}
    found = {
        name: hint
        for name, hint in hints.items()
        if (isinstance(hint, type) and issubclass(hint, msgspec.Struct))
        or hasattr(hint, "__dataclass_fields__")
    }
    for kind in found.values():
        with suppress(TypeError):  # a type that can't be decoded is an error where a value is converted to it
            msgspec.json.Decoder(kind)
    return found


def _run_of(job: NodeJob) -> Any:
    if job.run is None:
        return None
    return job.run.context if job.sees_run else HiddenRun(job.spec.id)


def _files(spec: NodeSpec, files: ProjectFiles) -> list[Output]:
    """The files that the function wrote by itself, as it declared."""
    found = []
    for pattern in spec.outputs:
        matched = files.match(pattern)
        if not matched:
            raise PipelineFailed(f"{spec.id} did not write {pattern}, which it declares as an output.")
        for path in matched:
            stat = files.stat(path)
            try:
                checksum = files.checksum(path)
            except IsADirectoryError:
                raise PipelineFailed(
                    f"{spec.id}: its output {path} is a folder.",
                    remedy=f"Declare the files in it: {path}/* or, with all that is below, {path}/**.",
                ) from None
            found.append(Output(name=path, checksum=checksum, size=stat[0] if stat else 0, kind="file"))
    return found
