"""One seed's world of pipelines: runs of nodes on branches, lone nodes, governed runs, and people."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from kfm.db.ledger import Ledger
from kfm.db.ledger_reader import LedgerReader
from kfm.db.run_state import PlanningView, RunStateTables
from kfm.lineage.emitter import LineageEmitter
from kfm.lineage.pipeline_emitter import PipelineEmitter
from kfm.model.errors import BudgetSpent, Busy, KfmError
from kfm.model.keys import make_trigger
from kfm.model.records import GovernanceEntry, Justification, Switch, Window
from kfm.model.redaction import Discretion
from kfm.model.run_state import node_scope, pipeline_scope
from kfm.model.settings import Care, DatasetSettings, Lease, Rights, Settings, SourceSettings
from kfm.objects.local import LocalObjects
from kfm.pipelines.declaration import Pipeline
from kfm.pipelines.execution import PipelineExecutor
from kfm.pipelines.options import PipelineKernel, PipelineOptions, PipelineReport
from kfm.pipelines.planner import PipelinePlanner
from kfm.pipelines.single_node import SingleNode, run_node
from kfm.pipelines.workers import WorkerContext
from kfm.runs.branch_merges import Merging, switch_gate
from kfm.runs.executor import RunExecutor
from kfm.runs.kernel import Kernel, RunReport
from kfm.runs.subjects import Start, describe
from tests.power import FolderNode, PowerCutFiles
from tests.recording import Recording
from tests.simulation.actors.documents import write
from tests.simulation.actors.scene import Scene
from tests.simulation.adapters import (
    SimClock,
    SimDatabase,
    SimFiles,
    SimHeartbeat,
    SimIds,
    SimLiveness,
    SimMeter,
    SimUpstream,
)
from tests.simulation.judging import require
from tests.simulation.light import LightKernels
from tests.simulation.nodes.checks import Checks
from tests.simulation.nodes.drawn import SECRET, DrawnPipeline, checksum_of, file_of
from tests.simulation.nodes.workers import InlineNodes, SimWorkers
from tests.simulation.scheduler import CALM, Chances, Process, Scheduler
from tests.workshop import MemoryFiles

ROUNDS = 2
WRITERS = 0.1  # reading documents takes longest
MINUTE_MS = 60_000
BRANCHES = ("main", "work")
DATASET = "rivers"
WHY = Justification(actor="ada", rationale="simulated")
PUBLIC = Rights(license="CC0-1.0", care=Care(label="Public", level="public"))


class NodesWorld:
    def __init__(self, seed: int, database: Any, chances: Chances | None = None) -> None:
        rng = self.dice = random.Random(f"nodes {seed}")
        self.database = database
        weather = chances or Chances(
            crash=rng.choice((0.0, 0.003, 0.01)),
            stall=rng.choice((0.0, 0.004, 0.01)),
            jump=rng.choice((0.0, 0.0, 0.002)),
            fail_before=rng.choice((0.0, 0.005, 0.02)),
            fail_after=rng.choice((0.0, 0.01, 0.03)),
            power_cut=rng.choice((0.0, 0.0, 0.001)),
            stall_ms=rng.choice((3_000, 15_000, 90_000)),
        )
        self.scheduler = Scheduler(seed, weather)
        self.scheduler.on_power_cut = self._cut_power
        self.lease_ms = rng.choice((3_000, 20_000))
        self.has_heartbeat = rng.random() < 0.6
        self.long_work = rng.choice((0.0, 0.1, 0.4))
        self.is_calm = False
        self.is_damaged = False  # a disk has lost an object
        self.root = FolderNode()
        self.disk = PowerCutFiles(random.Random(seed), self.root)  # as onlookers see it
        self.project = MemoryFiles()
        self.contents = 0
        self.upstream = 0
        self.own = DrawnPipeline(self, rng, "n")
        self.governed = DrawnPipeline(self, rng, "g")
        for pipeline in (self.own, self.governed):
            for node in pipeline.roots:
                self.write(file_of(node))
        self.shared: list[str] = []  # runs whose nodes come by themselves
        self.runs: dict[str, str] = {}  # run → its branch
        self.checks = Checks(self)
        self.settings = self._settings()
        self.passes = PipelineEmitter(namespace="kfm.sim", producer_version="0.0.0")
        self.emitter = LineageEmitter(
            namespace="kfm.sim",
            producer_version="0.0.0",
            outputs=lambda dataset_id: [("file", f"/published/{dataset_id}")],
            masked=lambda _dataset_id: False,
            mask=str,
            passes=lambda: self.passes,
        )
        self._here = threading.local()
        self._workers: dict[str, Process] = {}
        self._remote: set[str] = set()
        self.whole: set[str] = set()  # workers of runs over a whole pipeline; a process has one for each run
        self._numbers = 0
        self._kernels = LightKernels(
            self,
            seed,
            self.settings,
            upstream=self._upstream,
            pipeline=lambda _process: self.governed.declared(),  # type: ignore[arg-type,return-value]
            heartbeat=self.has_heartbeat,
        )

    def _settings(self) -> Settings:
        source = SourceSettings(
            id=DATASET,
            dataset=DATASET,
            kind="files",
            window="PT1S",
            output_version="1",
            pipeline="p.py:f",
            idempotent=True,
        )
        return Settings(
            environment="sim",
            datasets=(DatasetSettings(id=DATASET, domain="water", rights=PUBLIC),),
            sources=(source,),
            lease=Lease(seconds=self.lease_ms / 1000),
        )

    # --- files and objects ---------------------------------------------------------------

    def write(self, path: str) -> None:
        """Never what was there before: a function may read what is newer than its hash."""
        self.contents += 1
        self.project.write(path, str(self.contents).encode(), self.scheduler.now_ms * 1_000_000)

    def read(self, path: str) -> str:
        return self.project.kept[path].decode()

    def place_of(self, checksum: str) -> str:
        sha256 = checksum.removeprefix("sha256:")
        return f"/state/objects/sha256/{sha256[:2]}/{sha256[2:]}"

    def size_on_disk(self, checksum: str) -> int | None:
        try:
            return self.disk.size(self.place_of(checksum))
        except FileNotFoundError:
            return None

    def _damage(self) -> None:
        """A disk loses what a node made."""
        heads = self.checks.rows("SELECT outputs FROM node_heads ORDER BY branch, dataset_id")
        if heads:
            from kfm.model.run_state import outputs_of

            each = self.dice.choice(outputs_of(self.dice.choice(heads)[0]))
            if self.size_on_disk(each.checksum) is not None:
                self.disk.unlink(self.place_of(each.checksum))
                self.is_damaged = True
                self.checks.counts["damaged"] += 1

    def _cut_power(self) -> None:
        for process in self.scheduler.processes:
            process.die()
        survived = PowerCutFiles(self.scheduler.rng, self.root).cut()
        self.root.synced, self.root.pending = survived.root.synced, []
        self.checks.after_power_cut()

    # --- processes -----------------------------------------------------------------------

    @property
    def here(self) -> Process:
        """The process that the calling thread is."""
        process: Process = self._here.process
        return process

    def spawn(self, name: str, body: Callable[[Process], None], of: Process | None = None) -> Process:
        """A process, or a thread of one: these live and die together."""

        def run(process: Process) -> None:
            self._here.process = process
            body(process)

        made = self.scheduler.spawn(name, run)
        if of is not None:
            made.wall_offset_ms, made.kin, made.facts = of.wall_offset_ms, of.kin, of.facts
            of.kin.append(made)
        return made

    def process_of(self, worker_id: str) -> Process | None:
        return self._workers.get(worker_id)

    def is_dead(self, worker_id: str) -> bool:
        """True only if surely dead: no process knows of those on other machines."""
        process = self._workers.get(worker_id)
        return process is not None and process.dead and worker_id not in self._remote

    def worker_id(self, process: Process) -> str:
        self._numbers += 1
        worker_id = f"{process.name}-{self._numbers}"
        self._workers[worker_id] = process
        if self.dice.random() < 0.3:
            self._remote.add(worker_id)
        return worker_id

    def clock(self, process: Process) -> SimClock:
        return SimClock(self.scheduler, process)

    def _database(self, process: Process) -> SimDatabase:
        clock = self.clock(process)
        return SimDatabase(self.database, self.scheduler, process, clock, self.checks.on_commit)

    def store(self, process: Process) -> Ledger:
        return Ledger(self._database(process), self.emitter)  # type: ignore[arg-type]

    def worker(self, process: Process) -> WorkerContext:
        return WorkerContext(self._objects(process), self.project, self.clock(process))

    def _objects(self, process: Process) -> LocalObjects:
        self._numbers += 1
        files = SimFiles(self.scheduler.rng, self.root, self.scheduler, process, lambda *_: None)
        ids = SimIds(f"{process.name}/{self._numbers}", self.clock(process))
        return LocalObjects(files, "/state/objects", ids)

    def kernel(self, process: Process, **changes: Any) -> PipelineKernel:
        tables: Any = RunStateTables(self._database(process))  # type: ignore[arg-type]
        objects = self._objects(process)
        heartbeat = SimHeartbeat(self.scheduler, process, self.store) if self.has_heartbeat else None
        fields: dict[str, Any] = {
            "states": tables,
            "pipeline_runs": tables,
            "objects": objects,
            "object_size": objects.size_of,
            "files": self.project,
            "input_versions": None,
            "clock": self.clock(process),
            "liveness": SimLiveness(self.is_dead),
            "worker_id": self.worker_id(process),
            "workers": lambda jobs: SimWorkers(self, process, jobs),
            "actor": "sim",
            "lease_ms": self.lease_ms,
            "heartbeat": heartbeat,
            "ledger": self.store(process),
            "redact": Discretion(),
            "emitter": self.passes,
            "telemetry": Recording(),
            "meter": SimMeter(self.scheduler, has_counter=False),
        }
        return PipelineKernel(**{**fields, **changes})

    # --- runs of a whole pipeline ----------------------------------------------------------

    def run(self, process: Process, branch: str, run_id: str | None = None, **more: Any) -> PipelineReport:
        self._numbers += 1
        run_id = run_id or f"run-{self._numbers}"
        self.runs[run_id] = branch
        pipeline = self.own.declared()
        forced = bool(more.get("force") or more.get("fork_from"))
        process.facts |= {"names": self.own.names, "whole": not more.get("only"), "forced": forced}
        process.facts["governed"] = False
        options = PipelineOptions(
            run_id=run_id,
            pipeline_id=pipeline.id,
            branch=branch,
            scope=pipeline_scope(pipeline.id, branch),
            jobs=self.dice.choice((1, 3)),
            keep_going=self.dice.random() < 0.3,
            **more,
        )
        kernel = self.kernel(process)
        if process.facts["whole"]:
            self.whole.add(kernel.worker_id)
        return PipelineExecutor(PipelinePlanner(kernel, pipeline, options)).run()

    def _runner(self, process: Process) -> None:
        """Runs, resumes, forks; comes back where it finds others at work."""
        for _ in range(self.dice.choice((1, 2, 3))):
            branch, more = self._chosen()
            for _ in range(4):
                try:
                    self.run(process, branch, **more)
                    break
                except Busy:
                    self.checks.counts["busy"] += 1
                    self.scheduler.sleep(process, self.dice.randrange(200, self.lease_ms))
                except KfmError as error:
                    self.checks.counts[f"runner {error.code}"] += 1
                    break

    def _chosen(self) -> tuple[str, dict[str, Any]]:
        """The branch and the options of a run."""
        dice, throw = self.dice, self.dice.random()
        branch = dice.choice(BRANCHES)
        known = [run_id for run_id in self.runs if run_id not in self.shared]
        if throw < 0.35 and known:
            run_id = dice.choice(known[-4:])
            return self.runs[run_id], {"run_id": run_id}
        if throw < 0.45 and known:
            return branch, {"fork_of": dice.choice(known[-4:]), "fork_from": dice.choice(self.own.names)}
        if throw < 0.55:
            return branch, {"only": (dice.choice(self.own.names),)}
        if throw < 0.62:
            return branch, {"force": (dice.choice(self.own.names),)}
        return branch, {}

    # --- nodes that run alone ----------------------------------------------------------------

    def run_alone(self, process: Process, node: str, run_id: str, branch: str = "main") -> None:
        spec = self.own.spec(node)
        graph = tuple((name, self.own.reads[name]) for name in self.own.names)
        single = SingleNode(spec, str(spec.version), self.own.id, graph, reads_run=True)
        process.facts |= {"names": self.own.names, "whole": False, "forced": False, "governed": False}
        options = PipelineOptions(
            run_id=run_id,
            pipeline_id=self.own.id,
            branch=branch,
            scope=node_scope(node, branch),
            jobs=1,
        )
        run_node(self.kernel(process), single, options)

    def _tasks(self, process: Process) -> None:
        """The tasks of another scheduler, one after the other, each tried a few times."""
        run_id = self.dice.choice([*self.shared[-1:], ""]) or f"dag-{self._numbers}"
        if run_id not in self.shared:
            self.shared.append(run_id)
            self.runs[run_id] = "main"
        for node in self.own.names:
            for _ in range(4):
                try:
                    self.run_alone(process, node, run_id)
                    self.checks.counts["lone node"] += 1
                    break
                except KfmError as error:
                    self.checks.counts[f"task {error.code}"] += 1
                    self.scheduler.sleep(process, self.dice.randrange(200, self.lease_ms))

    # --- governed runs -------------------------------------------------------------------------

    def _upstream(self, process: Process, source: SourceSettings, window: Window, _circuits: Any) -> Any:
        del window
        content = {"gauge.csv": str(self.upstream).encode()}
        return SimUpstream(lambda: content, source.id, "text/csv", self.scheduler, process)

    def governed_kernel(self, process: Process) -> Kernel:
        made = self._kernels.make(process, self.store(process))
        objects = self._objects(process)

        def nodes(objects: Any, _dry_run: bool) -> PipelineKernel:
            return self.kernel(
                process,
                objects=objects,
                object_size=objects.size_of,
                worker_id=made.worker_id,
                heartbeat=None,
                ledger=None,
                workers=lambda _jobs: InlineNodes(self, process, self.worker(process)),
            )

        return replace(made, objects=objects, make_pipeline_kernel=nodes)

    def update(self, process: Process, **start: Any) -> RunReport:
        process.facts |= {"names": self.governed.names, "whole": True, "forced": False, "governed": True}
        source = self.settings.source(DATASET)
        trigger = make_trigger(source, kind="manual", actor="sim", rationale="simulated", ticket="SIM-1")
        window = Window(start_ms=1_000, end_ms=2_000, spec="PT1S")
        subject = describe(source, self.settings.dataset(DATASET), window, "1", trigger, "sim")
        kernel = self.governed_kernel(process)
        report = RunExecutor(kernel, subject, Start(by_person=True, **start)).run()
        self.checks.counts[f"update {report.outcome}"] += 1
        return report

    def _updater(self, process: Process) -> None:
        for _ in range(self.dice.choice((1, 2))):
            if self.dice.random() < 0.5:
                self.upstream += 1
            for _ in range(3):
                try:
                    if self.update(process, force=self.dice.random() < 0.2).outcome != "busy":
                        break
                except KfmError as error:
                    self.checks.counts[f"update {error.code}"] += 1
                self.scheduler.sleep(process, self.dice.randrange(200, self.lease_ms))

    # --- people ----------------------------------------------------------------------------------

    def _person(self, process: Process) -> None:
        """Changes code and files; branches, reverts, merges; stops everything, and lets it go on."""
        for _ in range(self.dice.choice((2, 4, 7))):
            self.scheduler.sleep(process, self.dice.choice((50, 1_000, 8_000)))
            try:
                self._act(process)
            except KfmError as error:
                self.checks.counts[f"person {error.code}"] += 1

    def _act(self, process: Process) -> None:
        dice, throw, store = self.dice, self.dice.random(), self.store(process)
        merging = Merging(store.branch_store())
        merging.before_merge(switch_gate(store))
        if throw < 0.4:
            self.own.change(dice)
        elif throw < 0.5:
            self.governed.change(dice)
        elif throw < 0.6:
            if merging.branches.branch("work") is None:
                merging.branches.create("work", "main")
        elif throw < 0.7:
            merging.merge("work", "main", author="ada", prefer=dice.choice((None, "source")), why=WHY)
            self.checks.counts["merged"] += 1
        elif throw < 0.8:
            branch = dice.choice(BRANCHES)
            ref = dice.choice(merging.branches.log(branch, limit=3)).commit_id
            merging.revert(branch, ref, author="ada", prefer=dice.choice((None, "source")), why=WHY)
            self.checks.counts["reverted"] += 1
        elif throw < 0.84:
            merging.branches.protect("main", dice.random() < 0.5, why=WHY)
        elif throw < 0.95:
            self.switch(store, dice.choice(("running", "stopped", "running")))
        elif throw < 0.97:
            self._name(merging.branches)
        else:
            store.reap(self.is_dead)

    def _name(self, branches: Any) -> None:
        """Names come and go; a branch at work stays."""
        if branches.tags():
            branches.delete_tag("seen", why=WHY)
        else:
            branches.tag("seen", "main", message="m", author="ada", why=WHY)
        if self.dice.random() < 0.3:
            branches.delete("work", why=WHY)
            self.checks.counts["branch deleted"] += 1

    def switch(self, store: Ledger, position: Any) -> None:
        now_ms = store.now_ms()
        switch = Switch(scope="all", position=position, rationale="r", actor="ada", set_at_ms=now_ms)
        entry = GovernanceEntry(kind="switch", subject="all", actor="ada", recorded_at_ms=now_ms)
        store.set_switch(switch, entry)

    def trouble(self, process: Process, ctx: Any) -> bool:
        """What functions do beside their work; False: only half of that was done."""
        if self.is_calm:
            return True
        dice = self.dice
        if dice.random() < self.long_work:
            self.scheduler.sleep(process, dice.randrange(100, 3 * self.lease_ms))
        throw = dice.random()
        if throw < 0.04:
            raise TimeoutError("no answer")
        if throw < 0.06:
            raise ValueError(f"password={SECRET}")
        if throw < 0.07:
            raise KeyboardInterrupt
        if throw < 0.10:
            ctx.validate("plausible", False, "too high")
        elif throw < 0.13:
            ctx.partial("the rest is not there yet")
            return False
        elif throw < 0.3:
            ctx.validate("plausible", True)
            ctx.check()
        return True

    # --- a whole life ----------------------------------------------------------------------------

    def live(self) -> None:
        dice = self.dice
        for number in range(ROUNDS):
            for place in range(dice.choice((1, 2, 3))):
                self.spawn(f"runner{number}{place}", self._runner)
            for place in range(dice.choice((0, 0, 1, 2))):
                self.spawn(f"tasks{number}{place}", self._tasks)
            for place in range(dice.choice((0, 1, 1, 2))):
                self.spawn(f"updater{number}{place}", self._updater)
            self.spawn(f"person{number}", self._person)
            if dice.random() < WRITERS:
                own = random.Random(dice.random())
                self.spawn(f"writer{number}", lambda process, own=own: write(self._scene(process, own)))
            self.scheduler.run()
            if dice.random() < 0.2:
                self._damage()
            self.scheduler.now_ms += dice.choice((0, 1_000, 5 * MINUTE_MS))
        self._finish()

    def _scene(self, process: Process, dice: random.Random) -> Scene:
        return Scene(self.scheduler, process, dice)

    def _finish(self) -> None:
        """Everything is repaired: one healthy process does what is left, and the result is whole."""
        self.scheduler.chances = CALM
        self.is_calm = True
        self.scheduler.now_ms += 30 * MINUTE_MS  # leases of those who died elsewhere have lapsed
        self.spawn("lift", self._lift)
        self.scheduler.run()
        self.spawn("final", self._do_the_rest)
        self.scheduler.run()
        self.checks.at_the_end()

    def _lift(self, process: Process) -> None:
        store = self.store(process)
        self.switch(store, "running")
        if store.branch_store().branch("main") is not None:
            store.branch_store().protect("main", False, why=WHY)
        store.reap(self.is_dead)

    def _do_the_rest(self, process: Process) -> None:
        for run_id in self.shared:
            for node in self.own.names:
                self.run_alone(process, node, run_id)
        for branch in BRANCHES:
            self._finish_branch(process, branch)
        store = self.store(process)
        swept = store.branch_store().sweep(store.now_ms())
        self.checks.counts["swept"] += swept.commits
        for branch in BRANCHES:
            self.checks.shows(branch, self.own.names)
        self._finish_dataset(process)

    def _finish_branch(self, process: Process, branch: str) -> None:
        planned = self._plan(process, self.own.declared(), branch)
        report = self.run(process, branch)
        require(report.state == "success", "at the end a run succeeds", error=report.error)
        for node, outcome in planned.items():
            ran = report.nodes[node].ran
            require(not (outcome == "skipped" and ran), "a run does what its plan says", node=node)
        made = {node: value for node, (_, value) in self.checks.values(branch, self.own.names).items()}
        wanted = self.own.expected()
        require(made == wanted, "what is skipped is what would be made", branch=branch)
        self.checks.shows(branch, self.own.names)
        again = self.run(process, branch)
        ran_again = [node for node, one in again.nodes.items() if one.ran]
        require(not ran_again and again.state == "success", "nothing is done twice", nodes=ran_again)

    def _plan(self, process: Process, pipeline: Pipeline, branch: str) -> dict[str, str | None]:
        kernel = self.kernel(process)
        graph = tuple(pipeline.graph().reads.items())
        view: Any = PlanningView(kernel.states, self.database.session, graph)
        from msgspec.structs import replace as changed

        options = PipelineOptions("plan", pipeline.id, branch, pipeline_scope(pipeline.id, branch))
        plan = PipelinePlanner(changed(kernel, states=view), pipeline, options).plan()
        return {node: one.outcome for node, one in plan.nodes.items()}

    def _finish_dataset(self, process: Process) -> None:
        self.upstream += 1
        report = self.update(process)
        if isinstance(report.error, BudgetSpent):
            report = self.update(process, force=True)
        require(report.outcome == "success", "at the end an update succeeds", reason=report.reason)
        head = LedgerReader(self.database).head(DATASET)
        assert head is not None
        (asset,) = [asset for item in head[1].items() for asset in item.assets]
        last = self.governed.expected([str(self.upstream)])[self.governed.names[-1]]
        require(f"sha256:{asset.sha256}" == checksum_of(last), "what is published is made of what is there")
        self.checks.coherent("main", self.governed.names)
        left = self.checks.rows("SELECT name FROM branches WHERE name LIKE 'run/%'")
        self.checks.counts["branches of failed runs"] += len(left)
