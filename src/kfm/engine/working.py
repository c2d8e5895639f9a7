"""Nodes at work, in threads of this process."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Mapping
from types import CoroutineType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec

from kfm.core.errors import Cancelled, ContractViolated, KfmError, PipelineFailed
from kfm.core.records import NodeOutcome, Output
from kfm.core.run_states import NOTHING_CHECKED
from kfm.runs.declare import CONTEXT_NAMES, NodeSpec
from kfm.runs.node_context import NodeContext, NodePublisher, OutOfSight
from kfm.runs.values import handed_on, store_value

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

    from kfm.ports import Clock, Objects, ProjectFiles

GLANCE_S = 0.1  # how often a wait looks whether somebody wants to stop


class Job(msgspec.Struct, frozen=True, eq=False):
    """A node that must run, with all that it is given."""

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


class Outcome(NamedTuple):
    """How it ended."""

    job: Job
    outcome: NodeOutcome
    outputs: tuple[Output, ...]
    summary: dict[str, int]
    error: KfmError | None
    duration_ms: int


class Workers(Protocol):
    """Does jobs, a bounded number at a time."""

    def __enter__(self) -> Workers: ...
    def __exit__(self, *problem: object) -> None: ...
    @property
    def busy(self) -> bool: ...
    @property
    def full(self) -> bool: ...
    def start(self, job: Job) -> None: ...
    def wait(self, cancelled: threading.Event) -> list[Outcome]:
        """At least one outcome; all that are there."""


class Bench(msgspec.Struct, frozen=True, eq=False):
    """What a job is done with."""

    objects: Objects
    files: ProjectFiles
    clock: Clock
    log: Callable[[str, str], None] = lambda _node, _line: None
    turn: threading.Lock = msgspec.field(default_factory=threading.Lock)


class Alone:
    """Implements `Workers` in the thread that asks, one job at a time."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._job: Job | None = None

    def __enter__(self) -> Alone:
        return self

    def __exit__(self, *problem: object) -> None:
        self._job = None

    @property
    def busy(self) -> bool:
        return self._job is not None

    @property
    def full(self) -> bool:
        return self._job is not None

    def start(self, job: Job) -> None:
        self._job = job

    def wait(self, cancelled: threading.Event) -> list[Outcome]:
        assert self._job is not None
        job, self._job = self._job, None
        return [perform(job, self._bench, cancelled.is_set)]


class Threads:
    """Implements `Workers` with threads."""

    def __init__(self, bench: Bench, jobs: int) -> None:
        self._bench = bench
        self._jobs = jobs
        self._pool: ThreadPoolExecutor | None = None
        self._running: dict[Future[Outcome], Job] = {}
        self._cancelled = threading.Event()

    def __enter__(self) -> Threads:
        from concurrent.futures import ThreadPoolExecutor  # late: where nothing runs, nobody needs it

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

    def start(self, job: Job) -> None:
        assert self._pool is not None
        own = contextvars.copy_context()
        self._running[self._pool.submit(own.run, perform, job, self._bench, self._cancelled.is_set)] = job

    def wait(self, cancelled: threading.Event) -> list[Outcome]:
        while True:
            from concurrent.futures import FIRST_COMPLETED, wait

            done, _ = wait(self._running, timeout=GLANCE_S, return_when=FIRST_COMPLETED)
            if cancelled.is_set():
                self._cancelled.set()
            if done:
                for future in done:
                    del self._running[future]
                return [future.result() for future in done]


def perform(job: Job, bench: Bench, cancelled: Callable[[], bool]) -> Outcome:
    """Do one job. Whatever goes wrong is the node's failure, and told as such."""
    spec, began_ms = job.spec, bench.clock.monotonic_ms()
    publisher = NodePublisher(bench.objects, job.run.publisher if job.run else None, bench.turn)
    context = NodeContext(
        node=spec.id,
        run_id=job.run_id,
        branch=job.branch,
        attempt=job.attempt,
        params=spec.params,
        publisher=publisher,
        log=lambda line: bench.log(spec.id, line),
        cancelled=cancelled,
        run=_run_of(job),
    )
    outcome: NodeOutcome = "failed"
    outputs: tuple[Output, ...] = ()
    error: KfmError | None = None
    try:
        value = _called(job, context, bench)
        if context.failed_checks:
            raise ContractViolated(f"{spec.id}: {'; '.join(context.failed_checks[:5])}.")
        written = publisher.outputs()
        files = _files(spec, bench.files)
        kept = [] if value is None and (written or files) else [store_value(bench.objects, spec.id, value)]
        outputs = (*kept, *written, *files)
        outcome = "partial" if context.partial_reason else "success"
    except KfmError as problem:
        error = problem
    except KeyboardInterrupt as interrupt:
        error = Cancelled(f"{spec.id} was interrupted.")
        error.__cause__ = interrupt
    except (Exception, SystemExit) as problem:  # noqa: BLE001 - a node may raise anything; told once, here
        from kfm.core.redact import shapeless  # late: only failures need it

        error = PipelineFailed(f"{spec.id}: {type(problem).__name__}: {shapeless(str(problem))}")
        error.__cause__ = problem
    return Outcome(
        job,
        outcome,
        outputs,
        context.summary or dict(NOTHING_CHECKED),
        error,
        bench.clock.monotonic_ms() - began_ms,
    )


def _called(job: Job, context: NodeContext, bench: Bench) -> Any:
    spec = job.spec
    arguments = {name: handed_on(outputs, bench.objects) for name, outputs in job.arguments.items()}
    arguments |= {name: value for name, value in spec.params.items() if _takes(spec, name)}
    for name in CONTEXT_NAMES:
        if _takes(spec, name):
            arguments[name] = context
    arguments = _typed(spec, arguments)
    answer = spec.function(**arguments)
    if isinstance(answer, CoroutineType):
        import asyncio  # slow to import, and most passes have nothing to run

        return asyncio.run(answer)
    return answer


def _takes(spec: NodeSpec, name: str) -> bool:
    from kfm.runs.declare import arguments_of

    names, _ = arguments_of(spec.function)
    return name in names


def _typed(spec: NodeSpec, arguments: dict[str, Any]) -> dict[str, Any]:
    """Values as the records that a function says it takes."""
    import typing

    try:
        hints = typing.get_type_hints(spec.function)
    except Exception:  # noqa: BLE001 - a hint that can't be resolved is no reason not to run
        return arguments
    for name, hint in hints.items():
        if name in arguments and (
            (isinstance(hint, type) and issubclass(hint, msgspec.Struct))
            or hasattr(hint, "__dataclass_fields__")
        ):
            try:
                arguments[name] = msgspec.convert(arguments[name], hint)
            except msgspec.ValidationError as error:
                raise PipelineFailed(f"{spec.id}: {name} is no {hint.__name__}: {error}.") from None
    return arguments


def _run_of(job: Job) -> Any:
    if job.run is None:
        return None
    return job.run.context if job.sees_run else OutOfSight(job.spec.id)


def _files(spec: NodeSpec, files: ProjectFiles) -> list[Output]:
    """The files that the function wrote by itself, as it declared."""
    found = []
    for pattern in spec.outputs:
        matched = files.match(pattern)
        if not matched:
            raise PipelineFailed(f"{spec.id} did not write {pattern}, which it declares as an output.")
        for path in matched:
            told = files.stat(path)
            try:
                checksum = files.checksum(path)
            except IsADirectoryError:
                raise PipelineFailed(
                    f"{spec.id}: its output {path} is a folder.",
                    remedy=f"Declare the files in it: {path}/* or, with all that is below, {path}/**.",
                ) from None
            found.append(Output(name=path, checksum=checksum, size=told[0] if told else 0, kind="file"))
    return found
