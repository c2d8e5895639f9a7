"""Those who try failed work again: the timer that runs `kfm retry --due`, and people with reasons."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kfm.db.ledger_reader import LedgerReader
from kfm.model.errors import KfmError, NotApproved
from kfm.model.records import Justification
from kfm.model.requests import RequestPart
from kfm.runs import retry
from kfm.runs.kernel import Kernel, RunReport
from kfm.runs.provider_breakers import BreakerDecision, decide_breaker
from kfm.runs.retry import EVER_MS
from kfm.runs.subjects import Start
from kfm.service import approvals
from kfm.service.runner import recover
from tests.simulation.asking import Asking, SimulatedRuns, app_of, dispatcher
from tests.simulation.judging import require
from tests.simulation.scheduler import Process

if TYPE_CHECKING:
    from tests.simulation.world import World

NAMES = ("ada", "ben", "cleo")
PAUSE_MAX_MS = 20 * 60_000
STEPS_MAX = 20  # of one pass


class People:
    def __init__(self, world: World) -> None:
        self._world = world
        self._rng = world.outages.rng

    def employ(self) -> None:
        """Of each kind one or two: they may meet at the same run."""
        if not self._world.outages.is_troubled:
            return
        for _ in range(self._rng.randrange(1, 3)):
            passes = self._rng.randrange(3, 10)
            self._world.start(lambda kernel, process, passes=passes: self.watch(kernel, process, passes), "w")
        if self._rng.random() < 0.7:
            self._world.start(self.look_after, "person")

    # --- by themselves -----------------------------------------------------------------

    def watch(self, kernel: Kernel, process: Process, passes: int) -> None:
        """As `kfm retry --due --watch` does, without waiting for nothing."""
        for _ in range(passes):
            try:
                self.make_due(kernel, process)
                ahead = kernel.store.waiting(EVER_MS, 1)
            except (KfmError, OSError) as error:
                self._world.outcomes.append(f"watch {getattr(error, 'code', 'OS')}")
                ahead = []
            left_ms = (ahead[0].state.not_before_ms or 0) - kernel.clock.now_ms() if ahead else 30_000
            kernel.clock.sleep_ms(min(max(left_ms, 1_000), PAUSE_MAX_MS))

    def make_due(self, kernel: Kernel, process: Process) -> None:
        self.work_off(kernel, process, "retries")

    def work_off(self, kernel: Kernel, process: Process, part: RequestPart) -> None:
        """Requests that are due, one after the other, as `kfm.service.runner.dispatch_due` does."""
        app = self._app(kernel)

        def tell(report: RunReport) -> None:
            self._world.outcomes.append(f"automatic {report.outcome}")
            self._world.checks.on_report(report, None, process.facts)

        recover(app)
        worker = dispatcher(app, SimulatedRuns(app, process, self._world.checks.starts, tell), part=part)
        for _ in range(STEPS_MAX):
            request = worker.step()
            if request is None:
                return
            self._world.checks.starts.given_back(process, request.request_id, kernel.worker_id)

    # --- with reasons ------------------------------------------------------------------

    def look_after(self, kernel: Kernel, process: Process) -> None:
        for _ in range(self._rng.randrange(2, 7)):
            kernel.clock.sleep_ms(self._rng.choice((500, 20_000, 200_000, 2_000_000)))
            act = self._rng.choice(
                (self._retry, self._retry, self._ask, self._ask, self._approve, self._reset)
            )
            try:
                act(kernel, process)
            except (KfmError, OSError) as error:
                self._world.outcomes.append(f"person {getattr(error, 'code', 'OS')}")

    def _retry(self, kernel: Kernel, process: Process) -> None:
        failed = kernel.store.runs(status="failed", limit=5)
        if not failed:
            return
        why: dict[str, Any] = {"rationale": "seen", "ticket": "SIM-3"} if self._rng.random() < 0.5 else {}
        by_person = self._rng.random() < 0.7
        run = self._rng.choice(failed)
        bound = LedgerReader(self._world.database).request_reader().bound_to(run.run_id)
        asking = Asking.of(Start(by_person=by_person), process, why.get("rationale"), bound)
        process.facts |= {"plan": None, "full": False, "attempt": None, "asking": asking}
        report = retry.retry_run(
            self._app(kernel),
            run,
            actor=self._rng.choice(NAMES),
            by_person=by_person,
            **why,
        )
        self._world.outcomes.append(f"retry {report.outcome}")
        self._world.checks.on_report(report, None, process.facts)

    def _ask(self, kernel: Kernel, process: Process) -> None:
        held = kernel.store.held(state="held", limit=5)
        if not held:
            return
        app, actor = self._app(kernel), self._rng.choice(NAMES)
        approvals.request_release(
            app, self._rng.choice(held), actor=actor, rationale="seen", ticket=None, claimed_actor=None
        )
        self._world.outcomes.append("release requested")
        if self._rng.random() < 0.7:
            self._approve(kernel, process)

    def _approve(self, kernel: Kernel, _process: Process) -> None:
        asked = kernel.store.approvals(state="requested", limit=5)
        if not asked:
            return
        approval = self._rng.choice(asked)
        # The requester tries it first, and must not get anywhere.
        for actor in (approval.requested_by, self._rng.choice(NAMES)):
            try:
                approvals.approve(self._app(kernel), approval, actor=actor, rationale="looked at")
                break
            except NotApproved:
                self._world.outcomes.append("not approved")
        else:
            return
        require(actor != approval.requested_by, "no person approves their own request", approval=approval)
        self._world.outcomes.append("released")

    def _reset(self, kernel: Kernel, _process: Process) -> None:
        broken = [one.provider for one in kernel.store.breakers() if one.state != "closed"]
        if broken and self._rng.random() < 0.4:
            by = Justification(actor="ada", rationale="seen")
            decide_breaker(self._app(kernel), self._rng.choice(broken), BreakerDecision(kind="reset"), by)
            self._world.outcomes.append("breaker reset")

    def _app(self, kernel: Kernel) -> Any:
        return app_of(kernel, self._world.settings)
