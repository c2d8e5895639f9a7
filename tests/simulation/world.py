"""One seed's world: a little configuration, a provider that changes, processes that update, and the rules
that must hold at every step."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from kfm.calls.breakers import BreakerAccess, SharedBreakers
from kfm.calls.guard import guarded
from kfm.db.ledger import Ledger
from kfm.lineage.emitter import LineageEmitter
from kfm.model.errors import BudgetSpent
from kfm.model.gates import freeze_span_ms
from kfm.model.records import Window
from kfm.model.redaction import is_masked, mask
from kfm.model.settings import Settings, SourceSettings
from kfm.objects.local import LocalObjects
from kfm.objects.scratch import ScratchObjects
from kfm.ports import Projection
from kfm.publish.targets.target_kinds import TargetParts, build
from kfm.runs import gc
from kfm.runs.kernel import Kernel
from kfm.runs.target_updates import project
from kfm.sources.source_kinds import SyncSource
from tests.power import FolderNode
from tests.recording import Recording
from tests.simulation.actions import SCOPES, Actions
from tests.simulation.adapters import (
    SimBucket,
    SimClock,
    SimDatabase,
    SimFiles,
    SimHeartbeat,
    SimIds,
    SimLiveness,
    SimMeter,
    SimPolicies,
    SimRng,
    SimUpstream,
)
from tests.simulation.cast import cast
from tests.simulation.checks import Checks
from tests.simulation.drawn import settings_of, with_few_sources
from tests.simulation.judging import require
from tests.simulation.outages import GuardedUpstream, Outages
from tests.simulation.outbox import Mail, State
from tests.simulation.people import People
from tests.simulation.pipelines import pipeline
from tests.simulation.provider import WINDOWS, Provider
from tests.simulation.scheduler import CALM, Chances, Process, Scheduler

MINUTE_MS = 60_000
ROUNDS_MAX = 200  # of the end, in which requests that are left get theirs


class World:
    has_rules = True  # that refuse: rights, CARE, contracts

    def __init__(
        self,
        seed: int,
        database: Any,
        chances: Chances | None = None,
        collector: State | None = None,
        small: bool = False,
    ) -> None:
        rng = random.Random(seed)
        self.seed = seed
        self.slow = rng.random() < 0.25  # hours pass, work takes minutes
        default = Chances(
            crash=rng.choice((0.0, 0.002, 0.006)),
            stall=rng.choice((0.0, 0.004, 0.01)),
            jump=rng.choice((0.0, 0.002)),
            fail_before=rng.choice((0.0, 0.005, 0.02)),
            fail_after=rng.choice((0.0, 0.01, 0.03)),
            power_cut=rng.choice((0.0, 0.0, 0.001)),
        )
        weather = chances or default
        self.scheduler = Scheduler(seed, replace(weather, stall_ms=30 * MINUTE_MS) if self.slow else weather)
        self.rng = self.scheduler.rng
        self.has_heartbeat = rng.random() < 0.4
        self.can_link = rng.random() < 0.8
        self.outages = Outages(seed, self.scheduler.now_ms, slow=self.slow, trouble=weather.trouble)
        self.jitter = random.Random(f"jitter {seed}")
        settings = settings_of(rng, self.scheduler.now_ms, slow=self.slow)
        self.small = small  # fewer sources, one round: everybody meets at the same work
        self.settings = self.outages.named(with_few_sources(settings, seed) if small else settings)
        here = {source.id for source in self.settings.sources}
        self.plain_sources = [name for name in ("gauges", "models", "counties") if name in here]
        self.database = database
        self.root = FolderNode()
        self.bucket: dict[str, tuple[bytes, str]] = {}
        self.provider = Provider(self.rng, self.settings, self.scheduler.now_ms)
        self.violated: dict[str, tuple[str, str]] = {}  # dataset → action, gate
        self.workers: dict[str, Process] = {}
        self.remote: set[str] = set()  # workers of another machine: their death is not seen here
        self.emitter = emitter_of(self.settings)
        self.mail = Mail(self, collector)
        self.scheduler.beside = self.mail.lane.turn
        self.checks = Checks(self)
        self.actions = Actions(self)
        self.people = People(self)
        self.scheduler.on_power_cut = self.cut_power
        self.outcomes: list[str] = []
        self.names = 0
        for source in self.settings.sources:
            for window in WINDOWS:
                self.provider.change(source.id, window, good=self.rng.random() < 0.8)

    @property
    def is_troubled(self) -> bool:
        return self.outages.is_troubled

    # --- making a process ------------------------------------------------------------

    def start(self, body: Callable[[Kernel, Process], None], name: str | None = None) -> None:
        self.names += 1
        name = f"{name or 'p'}{self.names}"

        def run(process: Process) -> None:
            body(self.kernel(process), process)

        self.scheduler.spawn(name, run)

    def kernel(self, process: Process) -> Kernel:
        scheduler = self.scheduler
        clock = SimClock(scheduler, process)
        ids = SimIds(process.name, clock)
        files = self.files(process)
        store = self.store(process)
        objects = LocalObjects(files, "/state/objects", ids)
        worker_id = ids.new()
        self.workers[worker_id] = process
        if self.rng.random() < 0.3:
            self.remote.add(worker_id)
        breakers = SharedBreakers(BreakerAccess(store, store, lambda: self.store(process)), clock)
        process.facts["circuits"] = breakers
        process.facts["dry circuits"] = SharedBreakers(BreakerAccess(store, None, lambda: store), clock)
        return Kernel(
            settings=self.settings,
            ledger=store,
            writer=store,
            clock=clock,
            ids=ids,
            files=files,
            objects=objects,
            scratch=ScratchObjects,
            upstream=lambda source, window: self._upstream(source, window, process),
            guard=partial(guarded, clock=clock, rng=SimRng(self.rng)),
            policies=SimPolicies(self._violation),
            projections=self._projections(process, files, objects, ids),
            liveness=SimLiveness(self.is_dead),
            worker_id=worker_id,
            progress=NoProgress(),
            read_project=self.provider.contract,
            load_pipeline=lambda _reference: pipeline(self, process),
            runs_folder="/state/runs",
            heartbeat=SimHeartbeat(scheduler, process, self.store) if self.has_heartbeat else None,
            meter=SimMeter(scheduler, has_counter=self.can_link),
            telemetry=Recording(),
            rng=SimRng(self.jitter),
            providers=breakers,
        )

    def files(self, process: Process) -> SimFiles:
        return SimFiles(
            self.rng, self.root, self.scheduler, process, self.checks.on_file, can_link=self.can_link
        )

    def store(self, process: Process) -> Ledger:
        clock = SimClock(self.scheduler, process)
        database = SimDatabase(
            self.database,
            self.scheduler,
            process,
            clock,
            self.checks.on_commit,
            self.checks.circuits.on_look,
        )
        return Ledger(database, self.emitter)

    def _projections(self, process: Process, files: SimFiles, objects: Any, ids: SimIds) -> list[Projection]:
        """Every process is a job of its own for the CI target: its output can only be appended to."""
        job = f"/jobs/{process.name}"
        targets = [
            replace_path(target, job) if target.kind == "github-actions" else target
            for target in self.settings.publish
        ]

        def append(path: str, data: bytes) -> None:
            self.scheduler.point(process, "append")
            self.checks.job.on_append(path, data)

        around = TargetParts(
            root="/",
            files=files,
            objects=objects,
            ids=ids,
            bucket=lambda url, _options: (
                SimBucket(self.bucket, self.scheduler, process),  # type: ignore[return-value]
                url.removeprefix("s3://shelf").strip("/"),
            ),
            append=append,
            github_output=f"{job}/output",
            github_summary=f"{job}/summary",
        )
        return build(targets, around)

    def _upstream(self, source: SourceSettings, window: Window, process: Process) -> Any:
        if source.members:
            members = {
                member: self._upstream(self.settings.source(member), window, process)
                for member in source.members
            }
            return SyncSource(source.id, members, self.settings.limits)
        if self.outages.is_troubled:
            circuits = process.facts["dry circuits" if process.facts.get("dry") else "circuits"]
            return GuardedUpstream(self, source, window, process, circuits)
        content = self.provider.look(source.id, window)
        media_type = self.provider.kits[source.id].media_type
        return SimUpstream(content, source.id, media_type, self.scheduler, process)

    def _violation(self, action: str, dataset: str) -> str | None:
        at, gate = self.violated.get(dataset, ("", ""))
        return gate if at == action else None

    def process_of(self, worker_id: str | None) -> Process | None:
        return self.workers.get(worker_id or "")

    def is_dead(self, worker_id: str) -> bool:
        process = self.workers.get(worker_id)
        return process is not None and process.dead and worker_id not in self.remote

    def cut_power(self) -> None:
        """Every process dies, and of the disk only what was synced is sure to be there."""
        files = self.files(self.scheduler.processes[0])
        for process in self.scheduler.processes:
            process.die()
        self.mail.lane.die()
        survived = files.cut()
        self.root.synced, self.root.pending = survived.root.synced, []
        self.checks.after_power_cut()

    # --- a whole life ----------------------------------------------------------------

    def live(self) -> None:
        cast(self)
        for _ in range(1 if self.small else self.rng.randrange(2, 4)):
            for _ in range(self.rng.randrange(2, 5)):
                count = self.rng.randrange(1, 4)

                def body(kernel: Kernel, process: Process, count: int = count) -> None:
                    for _ in range(count):
                        self.actions.one(kernel, process)

                self.start(body)
            self.people.employ()
            self.mail.employ()
            self.scheduler.run()
            if self.slow:
                self.scheduler.now_ms += self.rng.choice((0, 10, 90, 400)) * MINUTE_MS
        self.finish()

    def finish(self) -> None:
        """Everything is repaired; one healthy process does what is left, and the result must be whole."""
        self.scheduler.chances = CALM
        self.outages.is_over = True
        ends_ms = max(freeze_span_ms(freeze)[1] for freeze in self.settings.freezes)
        # Leases of those who died elsewhere have lapsed, and so have collections and freezes.
        self.scheduler.now_ms = max(self.scheduler.now_ms + 30 * MINUTE_MS, ends_ms)
        self.violated.clear()
        self._drain()
        sources = [source.id for source in self.settings.sources if source.id != "orphan"]
        for source in sources:
            for window in WINDOWS:
                if self.rng.random() < 0.5 or not all(
                    good for _, good in self.provider.state(source, window)
                ):
                    self.provider.change(source, window, good=True)

        def body(kernel: Kernel, process: Process) -> None:
            for source in sources:
                for window in WINDOWS:
                    report = self.actions.update(
                        kernel, process, source, window, by_person=True, rationale="end", ticket="SIM-2"
                    )
                    if isinstance(report.error, BudgetSpent):  # granted as often as anything is
                        report = self.actions.update(kernel, process, source, window, force=True)
                    if report.outcome == "refused" and window not in self._lasting(source):
                        continue  # a newer one is shown
                    assert report.outcome in ("success", "noop"), (report.outcome, report.reason)
            for source in sources:
                window = self.rng.choice(self._lasting(source))
                again = self.actions.update(kernel, process, source, window)
                assert again.outcome == "noop", (again.outcome, again.reason)
            project(kernel)
            if self.rng.random() < 0.35:
                objects: Any = kernel.objects
                for _ in range(2):  # what a dead collector had in its hands is put back first, then judged
                    self.scheduler.now_ms += 20 * MINUTE_MS
                    gc.carry_out(kernel, objects, actor="sim", rationale="end", grace_ms=0)
                self.checks.store.after_collection(complete=True)
            self.checks.chain.seal(kernel)
            self.checks.chain.export(kernel)

        self.scheduler.now_ms += 30 * MINUTE_MS
        self.outcomes += [f"interrupted {run.error_code}" for run in self.checks.runs() if run.attempts > 1]
        self.start(body, "final")
        self.scheduler.run()
        self.checks.at_the_end()
        self.mail.at_the_end()

    def _lasting(self, source: str) -> tuple[int, ...]:
        """The windows that stay published; of a source that replaces, the newest."""
        if self.settings.source(source).mode == "merge":
            return WINDOWS
        return (max(WINDOWS, key=lambda one: self.provider.windows[source][one].start_ms),)

    def _drain(self) -> None:
        """Nothing is asked for any more: dispatchers alone bring every request to its end."""

        def lift(kernel: Kernel, _process: Process) -> None:
            for scope in SCOPES:
                self.actions.set_switch(kernel, scope, "running")

        self.start(lift, "lift")
        self.scheduler.run()
        for _ in range(ROUNDS_MAX):
            self.start(lambda kernel, process: self.people.work_off(kernel, process, "all"), "drain")
            self.scheduler.run()
            due_ms = self.checks.starts.next_due_ms()
            if due_ms is None:
                return
            self.scheduler.now_ms = max(self.scheduler.now_ms + MINUTE_MS, due_ms)
        require(False, "every request has an end")


def emitter_of(settings: Settings) -> LineageEmitter:
    """The real one: every event of every world is the one that users get."""
    masked = {dataset.id: is_masked(dataset) for dataset in settings.datasets}
    return LineageEmitter(
        namespace="kfm.sim",
        producer_version="0.0.0",
        outputs=lambda dataset_id: [("file", f"/published/{dataset_id}")],
        masked=masked.__getitem__,
        mask=lambda name: mask(name, "simulated"),
    )


class NoProgress:
    def phase(self, name: str, total: int | None = None) -> None: ...
    def advance(self, amount: int, note: str = "") -> None: ...
    def done(self) -> None: ...


def replace_path(target: Any, path: str) -> Any:
    from msgspec.structs import replace as changed

    return changed(target, path=path)
