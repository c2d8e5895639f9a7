"""What processes do: update, plan and apply, throw switches, project, collect."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kfm.model.errors import KfmError, PlanDrifted, PlanError
from kfm.model.keys import make_trigger
from kfm.model.records import Justification, Switch, TriggerType, governance_entry
from kfm.model.times import rfc3339
from kfm.model.windows import resolve_window
from kfm.publish.targets.folder_builder import read_file
from kfm.runs import gc
from kfm.runs import plan as plans
from kfm.runs.executor import RunExecutor
from kfm.runs.kernel import Kernel
from kfm.runs.preview import preview
from kfm.runs.subjects import RunSubject, Start, describe
from kfm.runs.target_updates import project
from tests.simulation.asking import Asking
from tests.simulation.judging import require
from tests.simulation.provider import WINDOWS
from tests.simulation.scheduler import Process

if TYPE_CHECKING:
    from tests.simulation.world import World

SCOPES = ("all", "domain:water", "dataset:flow", "dataset:counties")
REASONS = {"rationale": "simulated", "ticket": "SIM-1"}
KINDS: tuple[TriggerType, ...] = ("manual", "manual", "cron")


class Actions:
    def __init__(self, world: World) -> None:
        self._world = world
        self._plans = 0

    # --- updates ---------------------------------------------------------------------

    def subject(self, source_id: str, window: int, **asked: Any) -> RunSubject:
        """The same work, however its window was written down."""
        world = self._world
        source = world.settings.source(source_id)
        span = world.provider.windows[source_id][window]
        if world.rng.random() < 0.3:
            written = f"{rfc3339(span.start_ms)}/{rfc3339(span.end_ms)}"
            span = resolve_window(written, source.time_zone, world.scheduler.now_ms)
        kind = world.rng.choice(KINDS)
        trigger = make_trigger(source, kind=kind, actor=asked.pop("actor", "sim"), **asked)
        dataset = world.settings.dataset(source.dataset)
        return describe(source, dataset, span, source.output_version or "auto", trigger, "sim")

    def update(
        self,
        kernel: Kernel,
        process: Process,
        source: str,
        window: int,
        *,
        force: bool = False,
        plan: plans.RunPlan | None = None,
        by_person: bool | None = None,
        **asked: Any,
    ) -> Any:
        """At a terminal, or from cron: a person passes the time, a machine waits."""
        if force:
            asked |= REASONS
        if by_person is None:
            by_person = force or self._world.rng.random() < 0.5
        subject = self.subject(source, window, **asked)
        provider = self._world.provider
        before = provider.state(source, window)
        start = Start(by_person=by_person, force=force, plan=plan)
        asking = Asking.of(start, process, asked.get("rationale"))
        process.facts |= {"plan": plan, "full": False, "attempt": None, "asking": asking}
        report = RunExecutor(kernel, subject, start).run()
        watched: Any = kernel.telemetry
        require(all(span.ended for span in watched.spans), "what is watched ends with the call")
        process.facts["plan"] = None
        self._world.outcomes.append(report.outcome)
        steady = before if before == provider.state(source, window) else None
        self._world.checks.on_report(report, steady, process.facts)
        return report

    def insist(self, kernel: Kernel, process: Process, source: str, window: int) -> None:
        """Wait while the dataset is busy, as a person would: this is how stalled runs get successors."""
        for _ in range(4):
            if self.update(kernel, process, source, window).outcome != "busy":
                return
            kernel.clock.sleep_ms(self._world.rng.randrange(200, 3_000))

    def one(self, kernel: Kernel, process: Process) -> None:
        world, rng = self._world, self._world.rng
        source, window = rng.choice(world.settings.sources).id, rng.randrange(len(WINDOWS))
        throw = rng.random()
        if world.slow:
            kernel.clock.sleep_ms(rng.randrange(1, 30 * 60_000))
        try:
            if throw < 0.50:
                if rng.random() < 0.4:
                    world.provider.change(source, window, good=rng.random() < 0.85)
                self.insist(kernel, process, source, window)
            elif throw < 0.56:
                self.update(kernel, process, source, window, force=True)
            elif throw < 0.60:
                correction = f"C{rng.randrange(3)}"
                self.update(kernel, process, source, window, correction=correction, **REASONS)
            elif throw < 0.65:
                world.provider.change(source, window, good=rng.random() < 0.75)
            elif throw < 0.77:
                self.throw_switch(kernel)
            elif throw < 0.79:
                dataset, action = rng.choice(("flow", "counties")), rng.choice(("run", "publish", "publish"))
                world.violated = {} if world.violated else {dataset: (action, "care")}
            elif throw < 0.86:
                project(kernel, everything=rng.random() < 0.3)
            elif throw < 0.92:
                self.collect(kernel)
            else:
                self.plan_and_apply(kernel, process, source, window)
        except (KfmError, OSError) as error:
            world.outcomes.append(f"error {getattr(error, 'code', 'OS')}")

    # --- plans -----------------------------------------------------------------------

    def plan_and_apply(self, kernel: Kernel, process: Process, source: str, window: int) -> None:
        world, rng = self._world, self._world.rng
        self._plans += 1
        folder = f"/plans/{self._plans}" if rng.random() < 0.8 else None
        force = rng.random() < 0.15
        asked: dict[str, Any] = dict(REASONS) if force else {}
        process.facts["dry"] = folder or "/nowhere"
        try:
            dry = replace(kernel, writer=None)
            start = Start(by_person=True, force=force, artifacts_dir=folder)
            report = preview(dry, self.subject(source, window, **asked), start)
        finally:
            process.facts["dry"] = None
        world.outcomes.append(f"preview {report.outcome}")
        world.checks.store.after_preview(report)
        if report.outcome != "planned" or folder is None or force:
            return
        plan = self._kept_plan(kernel, folder, report.plan)
        if rng.random() < 0.3:
            world.provider.change(source, window, good=True)
        elif rng.random() < 0.3:
            self.update(kernel, process, rng.choice(world.plain_sources), window)
        report = self.update(kernel, process, source, window, plan=plan)
        if isinstance(report.error, PlanDrifted):
            world.outcomes.append("drifted")

    def _kept_plan(self, kernel: Kernel, folder: str, made: plans.RunPlan) -> plans.RunPlan:
        data = read_file(kernel.files, f"{folder}/plan.jsonl")
        assert data is not None
        plan = plans.read(data)
        require(plan == made, "a plan reads back as it was written")
        at = self._world.rng.randrange(len(data))
        changed = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        for other in (changed, data[:at], b""):
            try:
                found = plans.read(other)
            except PlanError:
                continue
            same = found.changes == plan.changes and found.header.digest == plan.header.digest
            require(same, "a plan that was changed is refused", at=at, data=data)
        text = plans.render_text(plan)
        require(plan.header.digest in text, "people read which plan it is")
        rows = [change.name for change in plan.changes[:5]]
        require(all(name in text for name in rows), "people read what would change", rows=rows)
        return plan

    # --- the rest --------------------------------------------------------------------

    def collect(self, kernel: Kernel) -> None:
        objects: Any = kernel.objects
        grace_ms = self._world.rng.choice((0, 0, 60_000, 3_600_000))
        if self._world.rng.random() < 0.2:
            self._world.checks.store.may_go(gc.plan(kernel, objects, grace_ms))
            return
        # No gap is waited for: new runs are held back whenever one is in progress.
        _, removed = gc.carry_out(
            kernel, objects, actor="sim", rationale="simulated", grace_ms=grace_ms, gap_ms=0
        )
        self._world.outcomes.append("collected" if removed.objects else "nothing to collect")
        self._world.checks.store.after_collection()
        kernel.store.seal("sim", limit=20)

    def throw_switch(self, kernel: Kernel) -> None:
        """Thrown, and mostly lifted again after a while."""
        rng = self._world.rng
        scope = rng.choice(SCOPES)
        self.set_switch(kernel, scope, rng.choice(("paused", "stopped")))
        if rng.random() < 0.9:
            kernel.clock.sleep_ms(rng.randrange(50, 3_000))
            self.set_switch(kernel, scope, "running")

    def set_switch(self, kernel: Kernel, scope: str, position: Any) -> None:
        now_ms = kernel.store.now_ms()
        switch = Switch(scope=scope, position=position, rationale="simulated", actor="sim", set_at_ms=now_ms)
        by = Justification(actor="sim", rationale="simulated")
        entry = governance_entry("switch", scope, now_ms, by, position=position)
        kernel.store.set_switch(switch, entry)
