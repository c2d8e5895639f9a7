"""A child process that runs nodes: `python -m kfm.pipelines.worker_child FD`."""

from __future__ import annotations

import ctypes
import logging
import os
import queue
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any

from kfm.model.errors import KfmError, PipelineError
from kfm.model.run_state import outputs_of, outputs_text
from kfm.pipelines import context, declaration
from kfm.pipelines.code_hash import CodeHashes
from kfm.pipelines.declaration import Pipeline
from kfm.pipelines.project import pipelines_of
from kfm.pipelines.workers import Frames, NodeJob, NodeResult, WorkerContext, frame, perform

PR_SET_PDEATHSIG = 1
ORPHANED = 70


def main() -> None:
    answers = int(sys.argv[1])
    os.set_inheritable(answers, False)  # what nodes start must not keep it open
    orders: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    cancelled = threading.Event()
    threading.Thread(target=_receive, args=(orders, cancelled), name="kfm-orders", daemon=True).start()
    first = orders.get()
    _die_with(first["parent"])
    lock = threading.Lock()

    def send(message: dict[str, Any]) -> None:
        with lock:
            view = memoryview(frame(message))
            while view:
                view = view[os.write(answers, view) :]

    context.logger.addHandler(_SendingHandler(send))
    context.logger.setLevel(logging.INFO)  # the parent knows who wants to see it
    try:
        pipeline = _pipeline(first)
        worker = _worker(first)
    except KfmError as error:
        send({"unusable": _error_document(error)})
        return
    hashes = CodeHashes()
    codes = {node: hashes.of_spec(spec) for node, spec in pipeline.nodes.items()}  # before any of them runs
    while True:
        order = orders.get()["job"]
        cancelled.clear()
        try:
            outcome = perform(_job(order, pipeline, codes), worker, cancelled.is_set)
        except KfmError as error:
            send({"unusable": _error_document(error)})
            return
        send({"done": _answer(outcome)})


class _SendingHandler(logging.Handler):
    """Sends what nodes log to the parent, which logs it."""

    def __init__(self, send: Callable[[dict[str, Any]], None]) -> None:
        super().__init__()
        self._send = send

    def emit(self, record: logging.LogRecord) -> None:
        self._send({"node": vars(record)["node"], "log": record.getMessage()})


def _receive(orders: queue.SimpleQueue[dict[str, Any]], cancelled: threading.Event) -> None:
    """Queue orders as they come; exit at their end, since no process is left to record a result."""
    frames, source = Frames(), sys.stdin.fileno()
    while data := os.read(source, 1 << 20):
        for message in frames.feed(data):
            if "cancel" in message:
                cancelled.set()
            else:
                orders.put(message)
    os._exit(0)


def _die_with(parent: int) -> None:
    """Exit with the parent, also if this process is too busy to notice that its orders have ended."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(ORPHANED)


def _pipeline(first: dict[str, Any]) -> Pipeline:
    declaration.IN_CHILD = True
    sys.path += [each for each in first["path"] if each not in sys.path]
    found = pipelines_of(first["home"])
    pipeline = next((each for each in found.values() if each.id == first["pipeline_id"]), None)
    if pipeline is None:
        raise PipelineError(
            f"{first['home']} makes no pipeline {first['pipeline_id']} when another process loads it.",
            remedy="Make it at the top level of the file, not in a function; or use threads.",
        )
    return pipeline


def _worker(first: dict[str, Any]) -> WorkerContext:
    from kfm.config.state_folder import StateFolder
    from kfm.objects.local import DiskProject

    folder = StateFolder(first["state"])
    return WorkerContext(folder.local_objects(), DiskProject(first["root"]), folder.clock)


def _job(order: dict[str, Any], pipeline: Pipeline, codes: dict[str, str]) -> NodeJob:
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


def _answer(outcome: NodeResult) -> dict[str, Any]:
    return {
        "outcome": outcome.outcome,
        "outputs": outputs_text(outcome.outputs),
        "summary": outcome.summary,
        "error": _error_document(outcome.error) if outcome.error else None,
        "duration_ms": outcome.duration_ms,
    }


def _error_document(error: KfmError) -> dict[str, Any]:
    cause = error.__cause__
    return {
        "kind": type(error).__name__,
        "detail": error.detail,
        "remedy": error.way_out,
        "trace": "".join(traceback.format_exception(cause)) if cause is not None else None,
        "place": _place(cause) if cause is not None else None,
    }


def _place(cause: BaseException) -> str:
    """The innermost line that is not kfm's own."""
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
    frames = traceback.extract_tb(cause.__traceback__)
    own = [each for each in frames if not each.filename.startswith(here)] or list(frames)
    return f"{own[-1].filename}:{own[-1].lineno} in {own[-1].name}" if own else "a place that is not known"


if __name__ == "__main__":
    main()
