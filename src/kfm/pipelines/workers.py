"""Workers that run nodes: in this thread, in threads, or in processes of their own."""

from __future__ import annotations

import contextvars
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from types import CoroutineType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec

from kfm.model import errors
from kfm.model.errors import Cancelled, ContractViolated, KfmError, PipelineError, PipelineFailed
from kfm.model.records import NodeOutcome, Output
from kfm.model.run_state import NOTHING_CHECKED, outputs_of, outputs_text
from kfm.pipelines.context import HiddenRun, NodeContext, NodePublisher, log_node
from kfm.pipelines.declaration import CONTEXT_NAMES, NodeSpec, Pipeline, arguments_of
from kfm.pipelines.node_values import handed_on, store_value

if TYPE_CHECKING:
    import subprocess
    from concurrent.futures import Future, ThreadPoolExecutor

    from kfm.pipelines.project import PipelineProject
    from kfm.ports import Clock, Objects, ProjectFiles

FUNCTIONS_MAX = 4096  # whose arguments' types are kept
POLL_S = 0.1  # how often a wait looks whether the run was cancelled
TRIES_MAX = 2  # of a job whose child was killed
EXIT_S = 5.0  # how long an idle child may take to exit
LENGTH_BYTES = 8
CHILD = "kfm.pipelines.worker_child"
NOT_IN_A_FILE = (
    "Other processes load a pipeline from its file. Put it at the top level of one, or use threads."
)


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
    """Runs jobs, a bounded number at a time."""

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


# --- messages between processes ----------------------------------------------------------


def frame(message: dict[str, Any]) -> bytes:
    body = msgspec.json.encode(message)
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


class Frames:
    """Reassembles messages from the chunks of a pipe."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> Iterator[dict[str, Any]]:
        self._data += data
        while len(self._data) >= LENGTH_BYTES:
            end = LENGTH_BYTES + int.from_bytes(self._data[:LENGTH_BYTES], "big")
            if len(self._data) < end:
                return
            body = bytes(self._data[LENGTH_BYTES:end])
            del self._data[:end]
            message: dict[str, Any] = msgspec.json.decode(body)
            yield message


def _references(job: NodeJob) -> dict[str, Any]:
    return {
        "node": job.spec.id,
        "code_sha": job.code_sha,
        "attempt": job.attempt,
        "arguments": {name: outputs_text(outputs) for name, outputs in job.arguments.items()},
        "run_id": job.run_id,
        "branch": job.branch,
    }


def _outcome(job: NodeJob, done: dict[str, Any]) -> NodeResult:
    error = _error(done["error"]) if done["error"] else None
    outputs = outputs_of(done["outputs"])
    return NodeResult(job, done["outcome"], outputs, done["summary"], error, done["duration_ms"])


def _error(document: dict[str, Any]) -> KfmError:
    kind = getattr(errors, document["kind"], PipelineFailed)
    error: KfmError = kind(document["detail"], remedy=document["remedy"])
    if document["trace"]:
        error.__cause__ = ElsewhereError(document["trace"], document["place"])
    return error


class ElsewhereError(Exception):
    """An error that was raised in another process, as text."""

    def __init__(self, trace: str, place: str) -> None:
        super().__init__(trace.rstrip().rpartition("\n")[2])
        self.trace = trace
        self.place = place


# --- processes ---------------------------------------------------------------------------


class ProcessWorkers:
    """Implements `Workers` with child processes."""

    def __init__(self, project: PipelineProject, pipeline: Pipeline, jobs: int) -> None:
        import selectors  # late, as subprocess: work in threads needs neither

        self._project = project
        self._pipeline = pipeline
        self._jobs = jobs
        self._home = home_of(pipeline)
        self._children: list[_Child] = []
        self._tries: dict[str, int] = {}
        self._selector = selectors.DefaultSelector()

    def __enter__(self) -> ProcessWorkers:
        return self

    def __exit__(self, *problem: object) -> None:
        for child in self._children:
            if child.job is not None:
                child.process.kill()
            _close_orders(child)
        for child in self._children:
            _ended(child)
        self._children.clear()
        self._selector.close()

    @property
    def busy(self) -> bool:
        return any(child.job is not None for child in self._children)

    @property
    def full(self) -> bool:
        return sum(child.job is not None for child in self._children) >= self._jobs

    def start(self, job: NodeJob) -> None:
        if job.run is not None:
            raise PipelineError("The nodes of a governed run share its publisher, and so its process.")
        idle = next((child for child in self._children if child.job is None), None)
        child = idle or self._spawn()
        child.job, child.cancelled = job, False
        child.send({"job": _references(job)})

    def wait(self, cancelled: Cancellation) -> list[NodeResult]:
        while True:
            done: list[NodeResult] = []
            for key, _ in self._selector.select(POLL_S):
                done += self._receive(key.data)
            if done:
                return done
            if cancelled.is_set():
                self._cancel(killing=cancelled.error is not None)

    def _cancel(self, *, killing: bool) -> None:
        """Ctrl-C lets nodes at work end; a stop does not."""
        for child in self._children:
            if child.job is not None and killing:
                child.cancelled = child.killed = True
                _kill(child)
            elif child.job is not None and not child.cancelled:
                child.cancelled = True
                child.send({"cancel": True})

    # --- children ----------------------------------------------------------------------

    def _spawn(self) -> _Child:
        import selectors
        import subprocess

        ours, theirs = os.pipe()
        try:
            process = subprocess.Popen(
                [sys.executable, "-m", CHILD, str(theirs)],
                stdin=subprocess.PIPE,
                stdout=_visible(),
                pass_fds=(theirs,),
                start_new_session=True,  # Ctrl-C is for this process, which cancels them
            )
        finally:
            os.close(theirs)
        child = _Child(process, ours)
        child.send(
            {
                "home": self._home,
                "pipeline_id": self._pipeline.id,
                "root": self._project.root,
                "state": self._project.state,
                "parent": os.getpid(),
                "path": [each for each in sys.path if each],
            }
        )
        self._children.append(child)
        self._selector.register(ours, selectors.EVENT_READ, child)
        return child

    def _receive(self, child: _Child) -> list[NodeResult]:
        data = os.read(child.answers, 1 << 20)
        if not data:
            return self._reap(child)
        done = []
        for message in child.frames.feed(data):
            if "log" in message:
                log_node(message["node"], message["log"])
            elif "unusable" in message:
                raise _error(message["unusable"])
            else:
                assert child.job is not None
                done.append(_outcome(child.job, message["done"]))
                self._tries.pop(child.job.spec.id, None)
                child.job = None
        return done

    def _reap(self, child: _Child) -> list[NodeResult]:
        """The child has ended: its job goes to another, once."""
        self._selector.unregister(child.answers)
        self._children.remove(child)
        code = _ended(child)
        job = child.job
        if job is None:
            return []
        if child.killed:
            stop = Cancelled(f"{job.spec.id} was stopped: its process was killed.")
            return [NodeResult(job, "failed", (), dict(NOTHING_CHECKED), stop, 0)]
        tries = self._tries[job.spec.id] = self._tries.get(job.spec.id, 0) + 1
        if tries < TRIES_MAX and not child.cancelled:
            node = job.spec.id
            log_node(node, f"{node}: its process {_fate(code)}; tried once more in another")
            self.start(job)
            return []
        times = "twice" if tries >= TRIES_MAX else "while it was asked to stop"
        error = PipelineFailed(
            f"{job.spec.id}: the process that ran it {_fate(code)}, {times}.",
            remedy="A process that is killed from outside is often one that took too much memory: "
            "`--jobs 1`, or smaller nodes.",
        )
        return [NodeResult(job, "failed", (), dict(NOTHING_CHECKED), error, 0)]


@dataclass
class _Child:
    process: subprocess.Popen[bytes]
    answers: int  # our end of the pipe
    frames: Frames = field(default_factory=Frames)
    job: NodeJob | None = None
    cancelled: bool = False
    killed: bool = False

    def send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # it is dead, which the end of its answers will show
            self.process.stdin.write(frame(message))
            self.process.stdin.flush()


def home_of(pipeline: Pipeline) -> str:
    """The file that makes it; PipelineError if no other process could load it from there."""
    home = pipeline.home
    if home is None or not os.path.isfile(home):
        where = f"It was made in {home}." if home else "It was made at a prompt."
        raise PipelineError(f"{pipeline.id} is in no file. {where}", remedy=NOT_IN_A_FILE)
    return os.path.abspath(home)


def _visible() -> int | None:
    """The stdout that nodes print to in this process, also if it was redirected."""
    try:
        return sys.stdout.fileno()
    except (AttributeError, OSError, ValueError):
        return None


def _kill(child: _Child) -> None:
    """Kill it with all that it has started."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.process.pid, signal.SIGKILL)


def _ended(child: _Child) -> int:
    import subprocess

    try:
        code = child.process.wait(EXIT_S)
    except subprocess.TimeoutExpired:
        child.process.kill()
        code = child.process.wait()
    os.close(child.answers)
    _close_orders(child)
    return code


def _close_orders(child: _Child) -> None:
    """Close its orders: a child ends with them."""
    assert child.process.stdin is not None
    with suppress(BrokenPipeError):
        child.process.stdin.close()


def _fate(code: int) -> str:
    if code >= 0:
        return f"ended by itself with status {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"
