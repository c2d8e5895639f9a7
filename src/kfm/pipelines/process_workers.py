"""Workers in processes of their own, on this machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kfm.model.errors import Cancelled, PipelineFailed
from kfm.pipelines.children import (
    Child,
    ChildSetup,
    error_of,
    failed,
    fate,
    order_of,
    result_of,
    setup_of,
    start_child,
)
from kfm.pipelines.context import log_node
from kfm.pipelines.workers import POLL_S, TRIES_MAX, Cancellation, NodeJob, NodeResult

if TYPE_CHECKING:
    from kfm.pipelines.declaration import Pipeline
    from kfm.pipelines.project import PipelineProject

TOO_MUCH_MEMORY = (
    "A process that is killed from outside is often one that took too much memory: "
    "`--jobs 1`, or smaller nodes."
)


class ProcessWorkers:
    """Implements `Workers` with child processes."""

    def __init__(self, project: PipelineProject, pipeline: Pipeline, jobs: int) -> None:
        import selectors  # late: work in threads needs none

        self._setup: ChildSetup = setup_of(project, pipeline)
        self._jobs = jobs
        self._seats: list[_Seat] = []
        self._tries: dict[str, int] = {}
        self._selector = selectors.DefaultSelector()

    def __enter__(self) -> ProcessWorkers:
        return self

    def __exit__(self, *problem: object) -> None:
        for seat in self._seats:
            if seat.job is not None:
                seat.child.process.kill()
            seat.child.close_orders()
        for seat in self._seats:
            seat.child.ended()
        self._seats.clear()
        self._selector.close()

    @property
    def busy(self) -> bool:
        return any(seat.job is not None for seat in self._seats)

    @property
    def full(self) -> bool:
        return sum(seat.job is not None for seat in self._seats) >= self._jobs

    def start(self, job: NodeJob) -> None:
        order = order_of(job)
        idle = next((seat for seat in self._seats if seat.job is None), None)
        seat = idle or self._spawn()
        seat.job, seat.cancelled = job, False
        seat.child.send({"job": order})

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
        for seat in self._seats:
            if seat.job is not None and killing:
                seat.cancelled = seat.killed = True
                seat.child.kill()
            elif seat.job is not None and not seat.cancelled:
                seat.cancelled = True
                seat.child.send({"cancel": True})

    # --- children ----------------------------------------------------------------------

    def _spawn(self) -> _Seat:
        import selectors

        seat = _Seat(start_child(self._setup))
        self._seats.append(seat)
        self._selector.register(seat.child.answers, selectors.EVENT_READ, seat)
        return seat

    def _receive(self, seat: _Seat) -> list[NodeResult]:
        messages = seat.child.receive()
        if messages is None:
            return self._reap(seat)
        done = []
        for message in messages:
            if "log" in message:
                log_node(message["node"], message["log"])
            elif "unusable" in message:
                raise error_of(message["unusable"])
            else:
                assert seat.job is not None
                done.append(result_of(seat.job, message["done"]))
                self._tries.pop(seat.job.spec.id, None)
                seat.job = None
        return done

    def _reap(self, seat: _Seat) -> list[NodeResult]:
        """The child has ended: its job goes to another, once."""
        self._selector.unregister(seat.child.answers)
        self._seats.remove(seat)
        code = seat.child.ended()
        job = seat.job
        if job is None:
            return []
        if seat.killed:
            return [failed(job, Cancelled(f"{job.spec.id} was stopped: its process was killed."))]
        tries = self._tries[job.spec.id] = self._tries.get(job.spec.id, 0) + 1
        if tries < TRIES_MAX and not seat.cancelled:
            node = job.spec.id
            log_node(node, f"{node}: its process {fate(code)}; tried once more in another")
            self.start(job)
            return []
        times = "twice" if tries >= TRIES_MAX else "while it was asked to stop"
        text = f"{job.spec.id}: the process that ran it {fate(code)}, {times}."
        return [failed(job, PipelineFailed(text, remedy=TOO_MUCH_MEMORY))]


@dataclass
class _Seat:
    """A child, and the job that it is at."""

    child: Child
    job: NodeJob | None = None
    cancelled: bool = False
    killed: bool = False
