"""A child process that runs nodes: `python -m kfm.pipelines.worker_child FD`."""

from __future__ import annotations

import ctypes
import logging
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from kfm.model.errors import KfmError, PipelineError
from kfm.pipelines import context, declaration
from kfm.pipelines.children import (
    CHUNK_BYTES,
    IDLE,
    ChildSetup,
    Frames,
    answer_of,
    error_document,
    frame,
    job_of,
)
from kfm.pipelines.code_hash import CodeHashes
from kfm.pipelines.project import pipelines_of
from kfm.pipelines.workers import WorkerContext, perform

if TYPE_CHECKING:
    from kfm.config.loader import Loaded
    from kfm.pipelines.declaration import Pipeline

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
    setup = msgspec.convert(first["setup"], ChildSetup)
    lock = threading.Lock()

    def send(message: dict[str, Any]) -> None:
        with lock:
            view = memoryview(frame(message))
            while view:
                view = view[os.write(answers, view) :]

    context.logger.addHandler(_SendingHandler(send))
    context.logger.setLevel(logging.INFO)  # the parent knows who wants to see it
    try:
        pipeline = _pipeline(setup)
        worker = _worker(setup)
    except KfmError as error:
        send({"unusable": error_document(error)})
        return
    hashes = CodeHashes()
    codes = {node: hashes.of_spec(spec) for node, spec in pipeline.nodes.items()}  # before any of them runs
    while True:
        order = _next_order(orders, setup.idle_s)
        cancelled.clear()
        try:
            result = perform(job_of(order, pipeline, codes), worker, cancelled.is_set)
        except KfmError as error:
            send({"unusable": error_document(error)})
            return
        send({"done": answer_of(result)})


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
    while data := os.read(source, CHUNK_BYTES):
        for message in frames.feed(data):
            if "cancel" in message:
                cancelled.set()
            else:
                orders.put(message)
    os._exit(0)


def _next_order(orders: queue.SimpleQueue[dict[str, Any]], idle_s: float | None) -> dict[str, Any]:
    try:
        order: dict[str, Any] = orders.get(timeout=idle_s)["job"]
    except queue.Empty:
        os._exit(IDLE)
    return order


def _die_with(parent: int) -> None:
    """Exit with the parent, also if this process is too busy to notice that its orders have ended."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(ORPHANED)


def _pipeline(setup: ChildSetup) -> Pipeline:
    declaration.IN_CHILD = True
    sys.path += [each for each in setup.path if each not in sys.path]
    found = pipelines_of(setup.home)
    pipeline = next((each for each in found.values() if each.id == setup.pipeline_id), None)
    if pipeline is None:
        raise PipelineError(
            f"{setup.home} makes no pipeline {setup.pipeline_id} when another process loads it.",
            remedy="Make it at the top level of the file, not in a function; or use threads.",
        )
    return pipeline


def _worker(setup: ChildSetup) -> WorkerContext:
    from kfm.config.state_folder import StateFolder
    from kfm.objects.local import DiskProject

    folder = StateFolder(setup.state)
    values = folder.values(_loaded(setup) if setup.objects is not None else None)
    return WorkerContext(values, DiskProject(setup.root), folder.clock)


def _loaded(setup: ChildSetup) -> Loaded:
    """Of the configuration what names the bucket."""
    from kfm.config.loader import Loaded
    from kfm.model.settings import Limits, Settings

    limits = Limits() if setup.call_timeout_ms is None else Limits(call_timeout_ms=setup.call_timeout_ms)
    settings = Settings(objects=setup.objects, objects_options=dict(setup.objects_options), limits=limits)
    return Loaded(settings, f"{setup.folder}/kfm.yml", "kfm.yml", {}, {}, is_file=False)


if __name__ == "__main__":
    main()
