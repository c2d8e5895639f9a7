"""Workers that run nodes as threads of a simulated process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfm.pipelines.workers import Cancellation, InlineWorker, NodeJob, NodeResult, WorkerContext, perform
from tests.simulation.judging import Violation
from tests.simulation.scheduler import Process

if TYPE_CHECKING:
    from tests.simulation.nodes.world import NodesWorld

POLL_MS = 40


class InlineNodes(InlineWorker):
    """One after the other, in the process's own thread."""

    def __init__(self, world: NodesWorld, process: Process, worker: WorkerContext) -> None:
        super().__init__(worker)
        self._world = world
        self._process = process

    def start(self, job: NodeJob) -> None:
        self._world.checks.on_start(self._process, job, forced=self._process.facts["forced"])
        super().start(job)


class SimWorkers:
    """Implements `Workers`: each job in a thread that the scheduler lets go on."""

    def __init__(self, world: NodesWorld, process: Process, jobs: int) -> None:
        self._world = world
        self._process = process
        self._jobs = jobs
        self._running: dict[Process, list[NodeResult]] = {}
        self._cancelled = False
        self._started = 0

    def __enter__(self) -> SimWorkers:
        return self

    def __exit__(self, *problem: object) -> None:
        self._cancelled = True
        while self._running:
            self._ended()

    @property
    def busy(self) -> bool:
        return bool(self._running)

    @property
    def full(self) -> bool:
        return len(self._running) >= self._jobs

    def start(self, job: NodeJob) -> None:
        world, process, result = self._world, self._process, list[NodeResult]()
        world.checks.on_start(process, job, forced=process.facts["forced"])

        def work(thread: Process) -> None:
            result.append(perform(job, world.worker(thread), lambda: self._cancelled))

        self._started += 1
        self._running[world.spawn(f"{process.name}.{self._started}", work, of=process)] = result

    def wait(self, cancelled: Cancellation) -> list[NodeResult]:
        while not (results := self._ended()):
            self._cancelled |= cancelled.is_set()
        return results

    def _ended(self) -> list[NodeResult]:
        self._world.scheduler.sleep(self._process, POLL_MS)
        results: list[NodeResult] = []
        for thread in [one for one in self._running if one.done]:
            self._process.kin.remove(thread)
            results += self._running.pop(thread)
            if thread.failure is not None:
                failure, thread.failure = thread.failure, None
                raise Violation(f"a node broke its worker: {failure!r}") from failure
        return results
