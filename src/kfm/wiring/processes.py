"""Nodes at work in processes of their own: for code that keeps the interpreter to itself, or may die.

A child loads the pipeline's file, is told which node to run and where its inputs lie, writes what the
node makes into the object store and answers with references. It dies with its parent. What it runs when
it is killed is tried once more by another, and has failed if that one is killed, too.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kfm.core import errors
from kfm.core.errors import KfmError, PipelineError, PipelineFailed
from kfm.core.run_states import outputs_of, outputs_text
from kfm.engine.working import GLANCE_S, Job, Outcome
from kfm.runs.declare import Pipeline
from kfm.wiring.framing import Frames, framed

if TYPE_CHECKING:
    from kfm.wiring.passes import Place

TRIES_MAX = 2  # in a child that was killed, and once more
LEAVE_S = 5.0  # how long a child that has nothing to do may take to go
CHILD = "kfm.wiring.child"
NOT_IN_A_FILE = (
    "Other processes load a pipeline from its file. Put it at the top level of one, or use threads."
)


@dataclass
class _Child:
    process: subprocess.Popen[bytes]
    answers: int  # our end of the pipe
    frames: Frames = field(default_factory=Frames)
    job: Job | None = None
    cancelled: bool = False

    def tell(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # it is dead, which its answers' end will tell
            self.process.stdin.write(framed(message))
            self.process.stdin.flush()


class Processes:
    """Implements `Workers` with child processes."""

    def __init__(self, place: Place, pipeline: Pipeline, jobs: int, log: Callable[[str, str], None]) -> None:
        self._place = place
        self._pipeline = pipeline
        self._jobs = jobs
        self._log = log
        self._home = home_of(pipeline)
        self._children: list[_Child] = []
        self._tries: dict[str, int] = {}
        self._selector = selectors.DefaultSelector()

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *problem: object) -> None:
        for child in self._children:
            if child.job is not None:
                child.process.kill()
            _no_more(child)
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

    def start(self, job: Job) -> None:
        if job.run is not None:
            raise PipelineError("The nodes of a governed run share its publisher, and so its process.")
        idle = next((child for child in self._children if child.job is None), None)
        child = idle or self._born()
        child.job, child.cancelled = job, False
        child.tell({"job": _references(job)})

    def wait(self, cancelled: threading.Event) -> list[Outcome]:
        while True:
            done: list[Outcome] = []
            for key, _ in self._selector.select(GLANCE_S):
                done += self._heard(key.data)
            if done:
                return done
            if cancelled.is_set():
                for child in self._children:
                    if child.job is not None and not child.cancelled:
                        child.cancelled = True
                        child.tell({"cancel": True})

    # --- children ----------------------------------------------------------------------

    def _born(self) -> _Child:
        ours, theirs = os.pipe()
        try:
            process = subprocess.Popen(
                [sys.executable, "-m", CHILD, str(theirs)],
                stdin=subprocess.PIPE,
                stdout=_visible(),
                pass_fds=(theirs,),
                start_new_session=True,  # Ctrl-C is for us; we tell them
            )
        finally:
            os.close(theirs)
        child = _Child(process, ours)
        child.tell(
            {
                "home": self._home,
                "pipeline_id": self._pipeline.id,
                "root": self._place.root,
                "state": self._place.state,
                "parent": os.getpid(),
                "path": [each for each in sys.path if each],
            }
        )
        self._children.append(child)
        self._selector.register(ours, selectors.EVENT_READ, child)
        return child

    def _heard(self, child: _Child) -> list[Outcome]:
        data = os.read(child.answers, 1 << 20)
        if not data:
            return self._buried(child)
        done = []
        for message in child.frames.fed(data):
            if "log" in message:
                self._log(message["node"], message["log"])
            elif "unusable" in message:
                raise _error(message["unusable"])
            else:
                assert child.job is not None
                done.append(_outcome(child.job, message["done"]))
                self._tries.pop(child.job.spec.id, None)
                child.job = None
        return done

    def _buried(self, child: _Child) -> list[Outcome]:
        """It is gone. Its job is another's, once."""
        self._selector.unregister(child.answers)
        self._children.remove(child)
        code = _ended(child)
        job = child.job
        if job is None:
            return []
        tries = self._tries[job.spec.id] = self._tries.get(job.spec.id, 0) + 1
        if tries < TRIES_MAX and not child.cancelled:
            self._log(job.spec.id, f"its process {_fate(code)}; tried once more in another")
            self.start(job)
            return []
        times = "twice" if tries >= TRIES_MAX else "while it was asked to stop"
        error = PipelineFailed(
            f"{job.spec.id}: the process that ran it {_fate(code)}, {times}.",
            remedy="A process that is killed from outside is often one that took too much memory: "
            "`--jobs 1`, or smaller nodes.",
        )
        return [Outcome(job, "failed", (), {"checks": 0, "passed": 0, "failed": 0}, error, 0)]


def home_of(pipeline: Pipeline) -> str:
    """The file that makes it; PipelineError if no other process could load it from there."""
    home = pipeline.home
    if home is None or not os.path.isfile(home):
        where = f"It was made in {home}." if home else "It was made at a prompt."
        raise PipelineError(f"{pipeline.id} is in no file. {where}", remedy=NOT_IN_A_FILE)
    return os.path.abspath(home)


def _visible() -> int | None:
    """Where nodes print to here, they print to there, also if that was redirected."""
    try:
        return sys.stdout.fileno()
    except (AttributeError, OSError, ValueError):
        return None


def _ended(child: _Child) -> int:
    try:
        code = child.process.wait(LEAVE_S)
    except subprocess.TimeoutExpired:
        child.process.kill()
        code = child.process.wait()
    os.close(child.answers)
    _no_more(child)
    return code


def _no_more(child: _Child) -> None:
    """The end of its orders is the end of its work."""
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


# --- what is said ----------------------------------------------------------------------------


def _references(job: Job) -> dict[str, Any]:
    return {
        "node": job.spec.id,
        "code_sha": job.code_sha,
        "attempt": job.attempt,
        "arguments": {name: outputs_text(outputs) for name, outputs in job.arguments.items()},
        "run_id": job.run_id,
        "branch": job.branch,
    }


def _outcome(job: Job, done: dict[str, Any]) -> Outcome:
    error = _error(done["error"]) if done["error"] else None
    outputs = outputs_of(done["outputs"])
    return Outcome(job, done["outcome"], outputs, done["summary"], error, done["duration_ms"])


def _error(told: dict[str, Any]) -> KfmError:
    kind = getattr(errors, told["kind"], PipelineFailed)
    error: KfmError = kind(told["detail"], remedy=told["remedy"])
    if told["trace"]:
        error.__cause__ = ElsewhereError(told["trace"], told["place"])
    return error


class ElsewhereError(Exception):
    """What was raised in another process, as text."""

    def __init__(self, trace: str, place: str) -> None:
        super().__init__(trace.rstrip().rpartition("\n")[2])
        self.trace = trace
        self.place = place
