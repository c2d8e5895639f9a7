"""People and machines around requests: they ask, cancel, approve, release, throw switches, announce."""

from __future__ import annotations

from dataclasses import replace as changed
from typing import TYPE_CHECKING, Any

from kfm.model.errors import Busy, KfmError, NotApproved
from kfm.model.input_hash import sha256_text
from kfm.model.keys import make_trigger, request_id
from kfm.model.records import Justification, Switch, Window, governance_entry
from kfm.model.requests import UpdateRequest
from kfm.model.times import rfc3339
from kfm.runs import retry
from kfm.runs.executor import RunExecutor
from kfm.runs.kernel import Kernel
from kfm.runs.plan import RunPlan
from kfm.runs.preview import preview
from kfm.runs.provider_breakers import BreakerDecision, decide_breaker
from kfm.runs.subjects import RunSubject, Start, describe
from kfm.service import approvals
from tests.simulation.asked.messages import WINDOW_MS, WINDOWS
from tests.simulation.asking import Asking, app_of
from tests.simulation.judging import require

if TYPE_CHECKING:
    from tests.simulation.asked.world import AskedWorld
    from tests.simulation.scheduler import Process

SCOPES = ("all", "dataset:rivers", "dataset:wells")


class People:
    def __init__(self, world: AskedWorld) -> None:
        self._world = world
        self._dice = world.dice

    def live(self, process: Process) -> None:
        """One person, or one machine with a timer, and what comes to its mind."""
        world, dice = self._world, self._dice
        kernel = world.kernel(process)
        acts = (
            *(self._run, self._run, self._run_again, self._retry, self._ask, self._ask, self._cancel),
            *(self._cancel, self._approve, self._approve, self._reject, self._release, self._switch),
            *(self._plan, self._announce, self._announce, self._reset),
        )
        for _ in range(dice.choice((1, 4, 8))):
            world.scheduler.sleep(process, dice.choice((10, 2_000, 20_000, 200_000)))
            try:
                dice.choice(acts)(kernel, process)
            except KfmError as error:
                world.scheduler.counts[f"person {error.code}"] += 1

    # --- asking ------------------------------------------------------------------------------

    def _drawn(self) -> tuple[str, Window]:
        start_ms = self._dice.choice(WINDOWS) * WINDOW_MS
        spec = f"{rfc3339(start_ms)}/PT1S"
        return self._dice.choice(self._world.sources), Window(
            start_ms=start_ms, end_ms=start_ms + WINDOW_MS, spec=spec
        )

    def _subject(self, source_id: str, window: Window, **asked: Any) -> RunSubject:
        settings = self._world.settings
        source = settings.source(source_id)
        trigger = make_trigger(source, kind="manual", actor="ada", **asked)
        return describe(source, settings.dataset(source.dataset), window, "1", trigger, "sim")

    def _start(
        self, kernel: Kernel, process: Process, place: tuple[str, Window], start: Start, **asked: Any
    ) -> Any:
        process.facts |= {"asking": Asking.of(start, process, asked.get("rationale")), "report": None}
        report = RunExecutor(kernel, self._subject(*place, **asked), start).run()
        self._world.scheduler.counts[f"run {report.outcome}"] += 1
        return report

    def _run(self, kernel: Kernel, process: Process) -> None:
        """As `kfm run`: at a terminal, or from cron."""
        by_person = self._dice.random() < 0.5
        asked = {"rationale": "seen"} if by_person and self._dice.random() < 0.6 else {}
        self._start(kernel, process, self._drawn(), Start(by_person=by_person), **asked)

    def _run_again(self, kernel: Kernel, process: Process) -> None:
        if self._dice.random() < 0.3:
            reasons = {"rationale": "again", "ticket": "SIM-1"}
            self._start(kernel, process, self._drawn(), Start(by_person=True, force=True), **reasons)

    def _plan(self, kernel: Kernel, process: Process) -> None:
        """As `kfm diff --plan` and, after a while, `kfm run --plan`."""
        place = self._drawn()
        dry = changed(kernel, writer=None, providers=None)
        report = preview(dry, self._subject(*place), Start(by_person=True))
        if report.outcome != "planned":
            return
        plan: RunPlan = report.plan
        self._world.scheduler.sleep(process, self._dice.choice((10, 5_000)))
        if self._dice.random() < 0.2:
            self._world.upstream.change(place[0], place[1].start_ms)
        by_person = self._dice.random() < 0.6
        self._start(kernel, process, place, Start(by_person=by_person, plan=plan))
        self._world.scheduler.counts["planned"] += 1

    def _retry(self, kernel: Kernel, process: Process) -> None:
        """As `kfm retry RUN`."""
        failed = kernel.store.runs(status="failed", limit=5)
        if not failed:
            return
        run = self._dice.choice(failed)
        asked = {"rationale": "seen", "ticket": "SIM-3"} if self._dice.random() < 0.6 else {}
        by_person = self._dice.random() < 0.7
        bound = self._world.checks.bound_to(run.run_id)
        asking = Asking.of(Start(by_person=by_person), process, asked.get("rationale"), bound)
        process.facts |= {"asking": asking, "report": None}
        app = app_of(kernel, self._world.settings)
        report = retry.retry_run(app, run, actor="ben", by_person=by_person, **asked)
        self._world.scheduler.counts[f"retry {report.outcome}"] += 1

    def _ask(self, kernel: Kernel, _process: Process) -> None:
        """As the console does, with a person's token or a program's."""
        source_id, window = self._drawn()
        key = sha256_text(f"console {kernel.ids.new()}".encode())
        by_person = self._dice.random() < 0.5
        one = UpdateRequest(
            request_id=request_id(key),
            key=key,
            kind="manual",
            source_id=source_id,
            dataset_id=source_id,
            window_start_ms=window.start_ms,
            window_end_ms=window.end_ms,
            actor="cleo",
            accepted_at_ms=kernel.store.now_ms(),
            rationale="seen" if by_person else None,
            by_person=by_person,
        )
        kernel.store.requests().accept([one])
        self._world.told.add(one.request_id)

    # --- stopping ----------------------------------------------------------------------------

    def _cancel(self, kernel: Kernel, _process: Process) -> None:
        known = sorted(self._world.checks.unsettled()) or sorted(self._world.told)
        if known and kernel.store.requests().cancel(self._dice.choice(known), "not any more"):
            self._world.scheduler.counts["cancelled"] += 1

    def _switch(self, kernel: Kernel, process: Process) -> None:
        scope = self._dice.choice(SCOPES)
        for position in (self._dice.choice(("paused", "stopped")), "running"):
            self.set_switch(kernel, scope, position)
            self._world.scheduler.sleep(process, self._dice.choice((500, 20_000, 200_000)))

    def set_switch(self, kernel: Kernel, scope: str, position: Any) -> None:
        now_ms = kernel.store.now_ms()
        switch = Switch(scope=scope, position=position, rationale="simulated", actor="sim", set_at_ms=now_ms)
        by = Justification(actor="sim", rationale="simulated")
        entry = governance_entry("switch", scope, now_ms, by, position=position)
        kernel.store.set_switch(switch, entry)

    # --- two persons -------------------------------------------------------------------------

    def _approve(self, kernel: Kernel, _process: Process) -> None:
        self.decide(kernel, approve=True)

    def _reject(self, kernel: Kernel, _process: Process) -> None:
        self.decide(kernel, approve=False)

    def decide(self, kernel: Kernel, *, approve: bool) -> bool:
        """On one that waits, if there is one."""
        waiting = kernel.store.approvals(state="requested", limit=5)
        if not waiting:
            return False
        one, app = self._dice.choice(waiting), app_of(kernel, self._world.settings)
        act = approvals.approve if approve else approvals.reject
        try:
            act(app, one, actor="dora", rationale="looked at")
        except (NotApproved, Busy):
            return True
        require(one.requested_by != "dora", "another person decides")
        self._world.scheduler.counts[f"{'approved' if approve else 'rejected'} {one.kind}"] += 1
        return True

    def _release(self, kernel: Kernel, _process: Process) -> None:
        held = kernel.store.held(state="held", limit=5)
        if held:
            app = app_of(kernel, self._world.settings)
            approvals.request_release(
                app, self._dice.choice(held), actor="ada", rationale="seen", ticket=None, claimed_actor=None
            )

    def _reset(self, kernel: Kernel, _process: Process) -> None:
        broken = [one.provider for one in kernel.store.breakers() if one.state != "closed"]
        if broken and self._dice.random() < 0.5:
            app = app_of(kernel, self._world.settings)
            decision = BreakerDecision(kind="reset" if self._dice.random() < 0.5 else "probe")
            by = Justification(actor="ada", rationale="seen")
            decide_breaker(app, self._dice.choice(broken), decision, by)

    # --- announcements -----------------------------------------------------------------------

    def _announce(self, kernel: Kernel, _process: Process) -> None:
        """New content arrives, and the source that follows it has to run."""
        source_id, window = self._drawn()
        self._world.upstream.change(source_id, window.start_ms)
        lines = [
            (source_id, "objects", kernel.ids.new(), window.start_ms, window.end_ms, kernel.store.now_ms())
        ]
        kernel.store._database.write(lambda session: session.send_all("burst_members.add", lines))
        self._world.scheduler.counts["announced"] += 1
