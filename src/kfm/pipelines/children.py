"""Child processes that run nodes: what they are sent, what they answer, how they are started and ended."""

from __future__ import annotations

import os
import select
import signal
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from kfm.model import errors
from kfm.model.errors import KfmError, PipelineError, PipelineFailed
from kfm.model.run_state import NOTHING_CHECKED, outputs_of, outputs_text
from kfm.pipelines.workers import NodeJob, NodeResult

if TYPE_CHECKING:
    import subprocess

    from kfm.pipelines.declaration import Pipeline
    from kfm.pipelines.project import PipelineProject

EXIT_S = 5.0  # how long an idle child may take to exit
LENGTH_BYTES = 8
CHUNK_BYTES = 1 << 20
IDLE = 71  # the status of a child that ended because it had nothing to do
CHILD = "kfm.pipelines.worker_child"
NOT_IN_A_FILE = (
    "Other processes load a pipeline from its file. Put it at the top level of one, or use threads."
)


class ChildSetup(msgspec.Struct, frozen=True, kw_only=True):
    """What a process needs to run nodes of a pipeline: where its file is, and where the values are.

    Of secrets it has references only, which are resolved where they are used."""

    home: str
    pipeline_id: str
    root: str
    state: str
    folder: str  # from which references to files are seen
    path: tuple[str, ...]
    objects: str | None = None  # the bucket; None: the state folder
    objects_options: Mapping[str, str] = {}
    call_timeout_ms: int | None = None
    idle_s: float | None = None  # how long it waits for a job before it ends; None: for ever


def setup_of(project: PipelineProject, pipeline: Pipeline, *, idle_s: float | None = None) -> ChildSetup:
    settings = project.loaded.settings if project.loaded else None
    return ChildSetup(
        home=home_of(pipeline),
        pipeline_id=pipeline.id,
        root=project.root,
        state=project.state,
        folder=project.loaded.folder if project.loaded else project.root,
        path=tuple(each for each in sys.path if each),
        objects=settings.objects if settings else None,
        objects_options=settings.objects_options if settings else {},
        call_timeout_ms=settings.limits.call_timeout_ms if settings else None,
        idle_s=idle_s,
    )


def home_of(pipeline: Pipeline) -> str:
    """The file that makes it; PipelineError if no other process could load it from there."""
    home = pipeline.home
    if home is None or not os.path.isfile(home):
        where = f"It was made in {home}." if home else "It was made at a prompt."
        raise PipelineError(f"{pipeline.id} is in no file. {where}", remedy=NOT_IN_A_FILE)
    return os.path.abspath(home)


# --- messages ------------------------------------------------------------------------------


def frame(message: Mapping[str, Any]) -> bytes:
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


def order_of(job: NodeJob) -> dict[str, Any]:
    """The job, its arguments as references."""
    if job.run is not None:
        raise PipelineError("The nodes of a governed run share its publisher, and so its process.")
    return {
        "node": job.spec.id,
        "code_sha": job.code_sha,
        "attempt": job.attempt,
        "arguments": {name: outputs_text(outputs) for name, outputs in job.arguments.items()},
        "run_id": job.run_id,
        "branch": job.branch,
    }


def job_of(order: Mapping[str, Any], pipeline: Pipeline, codes: Mapping[str, str]) -> NodeJob:
    """The other way round; PipelineError if the code is not what it was when the job was made."""
    spec = pipeline.nodes.get(order["node"])
    code_sha = codes.get(order["node"])
    if spec is None or code_sha != order["code_sha"]:
        raise PipelineError(
            f"{order['node']} is not what it was when the pipeline run began: its file was changed "
            "meanwhile, or makes another pipeline each time that it is loaded."
        )
    return NodeJob(
        spec=spec,
        reason="",
        inputs_hash="",
        code_sha=code_sha or "",
        document=b"",
        attempt=order["attempt"],
        arguments={name: outputs_of(text) for name, text in order["arguments"].items()},
        run_id=order["run_id"],
        branch=order["branch"],
    )


def answer_of(result: NodeResult) -> dict[str, Any]:
    """The result, its values as references."""
    return {
        "outcome": result.outcome,
        "outputs": outputs_text(result.outputs),
        "summary": result.summary,
        "error": error_document(result.error) if result.error else None,
        "duration_ms": result.duration_ms,
    }


def result_of(job: NodeJob, answer: Mapping[str, Any]) -> NodeResult:
    error = error_of(answer["error"]) if answer["error"] else None
    outputs = outputs_of(answer["outputs"])
    return NodeResult(job, answer["outcome"], outputs, answer["summary"], error, answer["duration_ms"])


def failed(job: NodeJob, error: KfmError) -> NodeResult:
    """The result of a job that has none of its own."""
    return NodeResult(job, "failed", (), dict(NOTHING_CHECKED), error, 0)


def error_document(error: KfmError) -> dict[str, Any]:
    cause = error.__cause__
    return {
        "kind": type(error).__name__,
        "detail": error.detail,
        "remedy": error.way_out,
        "trace": "".join(traceback.format_exception(cause)) if cause is not None else None,
        "place": _place(cause) if cause is not None else None,
    }


def error_of(document: Mapping[str, Any]) -> KfmError:
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


def _place(cause: BaseException) -> str:
    """The innermost line that is not kfm's own."""
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
    frames = traceback.extract_tb(cause.__traceback__)
    own = [each for each in frames if not each.filename.startswith(here)] or list(frames)
    return f"{own[-1].filename}:{own[-1].lineno} in {own[-1].name}" if own else "a place that is not known"


# --- processes -----------------------------------------------------------------------------


@dataclass(eq=False)
class Child:
    """One child, as the process that started it sees it."""

    process: subprocess.Popen[bytes]
    answers: int  # our end of the pipe
    frames: Frames = field(default_factory=Frames)

    def send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # it is dead, which the end of its answers will show
            self.process.stdin.write(frame(message))
            self.process.stdin.flush()

    def receive(self, timeout_s: float | None = None) -> list[dict[str, Any]] | None:
        """What it has said; None: it has ended. With a timeout, perhaps nothing."""
        if timeout_s is not None and not select.select([self.answers], [], [], timeout_s)[0]:
            return []
        data = os.read(self.answers, CHUNK_BYTES)
        return list(self.frames.feed(data)) if data else None

    def kill(self) -> None:
        """Kill it with all that it has started."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def close_orders(self) -> None:
        """A child ends with its orders."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()

    def ended(self) -> int:
        """Its status, once it has exited; for long it is not waited for."""
        import subprocess

        self.close_orders()
        try:
            code = self.process.wait(EXIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        os.close(self.answers)
        return code


def start_child(setup: ChildSetup, folder: str | None = None) -> Child:
    """A child that has loaded nothing yet; in `folder`, if there is one of that name."""
    import subprocess

    ours, theirs = os.pipe()
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", CHILD, str(theirs)],
            stdin=subprocess.PIPE,
            stdout=_visible(),
            pass_fds=(theirs,),
            start_new_session=True,  # Ctrl-C is for this process, which cancels them
            cwd=folder if folder is not None and os.path.isdir(folder) else None,
        )
    except BaseException:
        os.close(ours)
        raise
    finally:
        os.close(theirs)
    child = Child(process, ours)
    child.send({"setup": msgspec.to_builtins(setup), "parent": os.getpid()})
    return child


def fate(code: int) -> str:
    if code >= 0:
        return f"ended by itself with status {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


def _visible() -> int | None:
    """The stdout that nodes print to in this process, also if it was redirected."""
    try:
        return sys.stdout.fileno()
    except (AttributeError, OSError, ValueError):
        return None
