"""What runs on the workers of a Dask cluster: each node in a child process, as with `--processes`.

A child belongs to one pipeline run, so that it has the code of that run, whatever the worker has loaded
before; it can be killed, which a thread can not; and its end is not the worker's.
"""

from __future__ import annotations

import threading
from typing import Any, Literal

import msgspec

from kfm import __version__
from kfm.model.errors import Cancelled, KfmError, PipelineError, PipelineFailed
from kfm.pipelines.children import IDLE, Child, ChildSetup, error_document, fate, start_child
from kfm.pipelines.process_workers import TOO_MUCH_MEMORY
from kfm.pipelines.workers import POLL_S, TRIES_MAX

LINES_MAX = 10_000  # of what a node logs
Asked = Literal["cancel", "kill"]


class HostSetup(msgspec.Struct, frozen=True, kw_only=True):
    """What a Dask worker is sent with every job: the same bytes for all jobs of a pipeline run."""

    kfm: str  # the version
    session: str
    folder: str  # in which the pipeline run was started
    child: ChildSetup


_SETUPS = msgspec.json.Decoder(HostSetup)  # made while this is imported, which one thread does


class _Host:
    """The children of this process, by session; what is asked of the jobs that are at work."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.idle: dict[str, list[Child]] = {}
        self.asked: dict[str, Asked] = {}

    def take(self, setup: HostSetup) -> Child:
        """One that waits for a job, or a new one."""
        with self.lock:
            ended = [
                child for idle in self.idle.values() for child in idle if child.process.poll() is not None
            ]
            for session, idle in list(self.idle.items()):
                self.idle[session] = [child for child in idle if child not in ended]
            own = self.idle.get(setup.session)
            child = own.pop() if own else None
        for each in ended:
            each.ended()
        return child or start_child(setup.child, setup.folder)

    def give_back(self, setup: HostSetup, child: Child) -> None:
        with self.lock:
            self.idle.setdefault(setup.session, []).append(child)

    def end(self, session: str) -> None:
        with self.lock:
            children = self.idle.pop(session, [])
            for ticket in [each for each in self.asked if each.startswith(f"{session}/")]:
                del self.asked[ticket]
        for child in children:
            child.close_orders()
        for child in children:
            child.ended()


_HOST = _Host()


def run_node(setup_bytes: bytes, order_bytes: bytes) -> bytes:
    """A task of the cluster: run one node, and answer with references to what it made."""
    from distributed import get_worker

    setup = _SETUPS.decode(setup_bytes)
    order: dict[str, Any] = msgspec.json.decode(order_bytes)
    worker = get_worker()
    task, ticket = worker.get_current_task(), order["ticket"]

    def asked() -> Asked | None:
        state = worker.state.tasks.get(task)
        if state is None or state.state == "cancelled":  # the pipeline run has ended, by whatever cause
            return "kill"
        return _HOST.asked.get(ticket)

    lines: list[str] = []
    try:
        if setup.kfm != __version__:
            raise PipelineError(
                f"The Dask worker {worker.address} has kfm {__version__}, the pipeline run {setup.kfm}.",
                remedy="Install the same version on both.",
            )
        answer = _Conversation(setup, order, asked, lines).held()
    except KfmError as error:
        answer = {"unusable": error_document(error)}
    finally:
        _HOST.asked.pop(ticket, None)
    return msgspec.json.encode({**answer, "lines": lines})


def ask(tickets: list[str], what: Asked) -> None:
    """Ask jobs of this worker to end, or kill them; those of other workers are none of its business."""
    for ticket in tickets:
        _HOST.asked[ticket] = what


def end_session(session: str) -> None:
    """The pipeline run has ended: so do its children."""
    _HOST.end(session)


class _Conversation:
    """One job and the children that try it."""

    def __init__(self, setup: HostSetup, order: dict[str, Any], asked: Any, lines: list[str]) -> None:
        self._setup = setup
        self._order = order
        self._asked = asked
        self._lines = lines

    def held(self) -> dict[str, Any]:
        node = self._order["node"]
        tries = 0
        while True:
            child = _HOST.take(self._setup)
            answer = self._with(child)
            if answer is not None:
                if "done" in answer:
                    _HOST.give_back(self._setup, child)
                else:
                    child.ended()
                return answer
            code = child.ended()
            if self._asked() == "kill":
                return {"failed": error_document(Cancelled(f"{node} was stopped: its process was killed."))}
            if code == IDLE:  # it ended before it saw the job
                continue
            tries += 1
            if tries >= TRIES_MAX:
                text = f"{node}: the process that ran it {fate(code)}, twice."
                return {"failed": error_document(PipelineFailed(text, remedy=TOO_MUCH_MEMORY))}
            self._note(f"{node}: its process {fate(code)}; tried once more in another")

    def _with(self, child: Child) -> dict[str, Any] | None:
        """Its answer; None: it has ended without one."""
        child.send({"job": self._order})
        has_asked = False
        while True:
            for message in (messages := child.receive(POLL_S)) or ():
                if "log" in message:
                    self._note(message["log"])
                else:
                    return message
            if messages is None:
                return None
            asked = self._asked()
            if asked == "kill":
                child.kill()
            elif asked == "cancel" and not has_asked:
                has_asked = True
                child.send({"cancel": True})

    def _note(self, line: str) -> None:
        if len(self._lines) < LINES_MAX:
            self._lines.append(line)
