"""One seed's world: a little configuration, a provider that changes, processes that update, and the rules
that must hold at every step."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from kfm.admission.subject import Subject, describe
from kfm.calls.guard import guarded
from kfm.core.errors import KfmError
from kfm.core.records import GovernanceEntry, Switch, Window
from kfm.core.settings import (
    Care,
    Dataset,
    Freeze,
    Lease,
    Limits,
    Pagination,
    Rights,
    Settings,
    Source,
    Sovereignty,
)
from kfm.engine.kernel import Kernel
from kfm.engine.preview import preview
from kfm.engine.projecting import project
from kfm.engine.run import Updating
from kfm.objects.local import LocalObjects
from kfm.objects.scratch import ScratchObjects
from kfm.publish.projections.local import LocalTree
from kfm.publish.projections.s3 import BucketTree
from kfm.store.ledger import SqlStore
from kfm.triggers.manual import manual_trigger
from tests.power import FolderNode
from tests.simulation.adapters import (
    SimBucket,
    SimClock,
    SimDatabase,
    SimFiles,
    SimIds,
    SimLiveness,
    SimPolicies,
    SimRng,
    SimUpstream,
)
from tests.simulation.checks import Checks
from tests.simulation.scheduler import CALM, Chances, Process, Scheduler

HOUR_MS = 3_600_000
SCOPES = ("all", "domain:water", "dataset:flow", "dataset:counties")
REASONS = {"rationale": "simulated", "ticket": "SIM-1"}
START_MS = 1_789_990_000_000
CSV_CONTRACT = b"""apiVersion: v3.0.2
kind: DataContract
id: flow
name: flow
version: 1.0.0
status: active
schema:
  - name: flow
    physicalName: "*.csv"
    logicalType: object
    properties:
      - {name: site, logicalType: string, required: true}
      - {name: cfs, logicalType: number, required: true, logicalTypeOptions: {minimum: 0}}
"""
GEO_CONTRACT = b"""apiVersion: v3.0.2
kind: DataContract
id: counties
name: counties
version: 1.0.0
status: active
schema:
  - name: counties
    physicalName: "*.geojson"
    logicalType: object
    properties:
      - {name: name, logicalType: string, required: true}
"""


def csv_bytes(version: int, good: bool) -> bytes:
    rows = "".join(f"0688{i},{version * 10 + i if good else -1}\n" for i in range(8))
    return f"site,cfs\n{rows}".encode()


def geo_bytes(version: int, good: bool) -> bytes:
    x = -98.0 + version / 10 if good else 500.0
    feature = (
        f'{{"type":"Feature","properties":{{"name":"county {version}"}},'
        f'"geometry":{{"type":"Point","coordinates":[{x},38.5]}}}}'
    )
    return f'{{"type":"FeatureCollection","features":[{feature}]}}'.encode()


def settings_of(rng: random.Random) -> Settings:
    rights = Rights(license="CC0-1.0", care=Care(label="Public", level="public"))
    lock = rng.choice(("dataset", "domain"))
    datasets = (
        Dataset(id="flow", title="Flow", domain="water", rights=rights, lock=lock),
        Dataset(
            id="counties",
            domain="water",
            rights=Rights(
                license="CC-BY-4.0",
                care=Care(label="Review", level="review"),
                sovereignty=Sovereignty(
                    authority="A Nation", consent="granted", agreement="https://example.org/a"
                ),
                attribution="A Nation",
            ),
            lock=lock,
            bbox=(-102.1, 36.9, -94.5, 40.1),
        ),
    )
    sources = (
        Source(
            id="gauges",
            dataset="flow",
            kind="sim",
            contract="flow.odcs.yaml",
            path="{relpath}",
            output_version="1",
        ),
        Source(
            id="models",
            dataset="flow",
            kind="sim",
            pagination=Pagination(style="link-header"),
            pipeline="p.py:f",
        ),
        Source(id="counties", dataset="counties", kind="sim", contract="geo.odcs.yaml", mode="replace"),
    )
    return Settings(
        environment="sim",
        datasets=datasets,
        sources=sources,
        freezes=(Freeze(start="2020-01-01", end="2020-01-02", reason="long ago"),),
        limits=Limits(versions_kept=2),
        lease=Lease(seconds=3.0, heartbeat_seconds=1.0),
    )


@dataclass
class Provider:
    """What upstream holds now, by source and window."""

    rng: random.Random
    content: dict[tuple[str, int], dict[str, bytes]] = field(default_factory=dict)
    bad: set[bytes] = field(default_factory=set)
    changes: int = 0

    def change(self, source: str, window: int, *, good: bool) -> None:
        self.changes += 1
        make, suffix = (geo_bytes, "geojson") if source == "counties" else (csv_bytes, "csv")
        files = {
            f"{source}/w{window}/part{i}.{suffix}": make(self.changes * 10 + i, good)
            for i in range(self.rng.randrange(1, 3))
        }
        if not good and source != "models":
            self.bad.update(files.values())
        self.content[source, window] = files


def transform(context: Any) -> None:
    """The pipeline of `models`: also writes an event and a state."""
    for entry in context.inputs:
        context.publisher.write_file(entry.path, b"# model\n" + entry.read(), {"media_type": "text/csv"})
    context.publisher.update_state("inputs", len(context.inputs))
    context.publisher.emit_event("models.made", {"inputs": len(context.inputs)})
    context.publisher.publish_release({"note": "simulated"})
    context.log("transformed")


class World:
    def __init__(self, seed: int, database: Any, chances: Chances | None = None) -> None:
        rng = random.Random(seed)
        default = Chances(
            crash=rng.choice((0.0, 0.002, 0.006)),
            stall=rng.choice((0.0, 0.004, 0.01)),
            jump=rng.choice((0.0, 0.002)),
            fail_before=rng.choice((0.0, 0.005, 0.02)),
            fail_after=rng.choice((0.0, 0.01, 0.03)),
            power_cut=rng.choice((0.0, 0.0, 0.001)),
        )
        self.scheduler = Scheduler(seed, chances or default)
        self.rng = self.scheduler.rng
        self.settings = settings_of(rng)
        self.database = database
        self.root = FolderNode()
        self.bucket: dict[str, tuple[bytes, str]] = {}
        self.provider = Provider(self.rng)
        self.violated: set[str] = set()
        self.workers: dict[str, Process] = {}
        self.remote: set[str] = set()  # workers of another machine: their death is not seen here
        self.checks = Checks(self)
        self.scheduler.on_power_cut = self.cut_power
        self.outcomes: list[str] = []
        self.names = 0
        for source in self.settings.sources:
            for window in (0, 1):
                self.provider.change(source.id, window, good=self.rng.random() < 0.8)

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
        ids = SimIds(process.name)
        files = SimFiles(self.rng, self.root, scheduler, process, self.checks.on_file)
        store = SqlStore(SimDatabase(self.database, scheduler, process, clock, self.checks.on_commit))
        objects = LocalObjects(files, "/state/objects", ids)
        worker_id = ids.new()
        self.workers[worker_id] = process
        if self.rng.random() < 0.3:
            self.remote.add(worker_id)
        bucket: Any = SimBucket(self.bucket, scheduler, process)
        return Kernel(
            settings=self.settings,
            ledger=store,
            writer=store,
            clock=clock,
            ids=ids,
            files=files,
            objects=objects,
            scratch=ScratchObjects,
            upstream=lambda source, window: SimUpstream(
                lambda: self.provider.content.get((source.id, window_index(window)), {}),
                source.id,
                "application/geo+json" if source.id == "counties" else "text/csv",
                scheduler,
                process,
            ),
            guard=partial(guarded, clock=clock, rng=SimRng(self.rng)),
            policies=SimPolicies(
                lambda action, dataset: "care" if dataset in self.violated and action == "publish" else None
            ),
            projections=(
                LocalTree("local", files, objects, ids, "/published"),
                BucketTree("s3", bucket, objects),
            ),
            liveness=SimLiveness(self.is_dead),
            worker_id=worker_id,
            progress=Nobody(),
            read_project=lambda path: GEO_CONTRACT if path.startswith("geo") else CSV_CONTRACT,
            load_pipeline=lambda _reference: transform,
            runs_folder="/state/runs",
        )

    def is_dead(self, worker_id: str) -> bool:
        process = self.workers.get(worker_id)
        return process is not None and process.dead and worker_id not in self.remote

    def cut_power(self) -> None:
        """Every process dies, and of the disk only what was synced is sure to be there."""
        files = SimFiles(
            self.rng, self.root, self.scheduler, self.scheduler.processes[0], self.checks.on_file
        )
        for process in self.scheduler.processes:
            process.dead = True
        survived = files.cut()
        self.root.synced, self.root.pending = survived.root.synced, []
        self.checks.after_power_cut()

    # --- what processes do -----------------------------------------------------------

    def window(self, index: int) -> Window:
        start = START_MS + index * HOUR_MS
        return Window(start_ms=start, end_ms=start + HOUR_MS, spec=f"w{index}")

    def subject(self, source_id: str, window: int, **asked: Any) -> Subject:
        source = self.settings.source(source_id)
        span = self.window(window)
        trigger = manual_trigger(source, actor=asked.pop("actor", "sim"), **asked)
        return describe(
            source,
            self.settings.dataset(source.dataset),
            span,
            source.output_version or "auto",
            trigger,
            "sim",
        )

    def update(self, kernel: Kernel, source: str, window: int, *, force: bool = False, **asked: Any) -> Any:
        if force:
            asked |= REASONS
        subject = self.subject(source, window, **asked)
        report = Updating(kernel, subject, force=force, artifacts_dir=None, plan=None).run()
        self.outcomes.append(report.outcome)
        self.checks.on_report(report)
        return report

    def insist(self, kernel: Kernel, source: str, window: int) -> None:
        """Wait for whoever is busy, as a person would: this is how stalled runs get successors."""
        for _ in range(4):
            if self.update(kernel, source, window).outcome != "busy":
                return
            kernel.clock.sleep_ms(self.rng.randrange(200, 3_000))

    def one_action(self, kernel: Kernel) -> None:
        rng = self.rng
        source, window = rng.choice(self.settings.sources).id, rng.randrange(2)
        throw = rng.random()
        try:
            if throw < 0.55:
                if rng.random() < 0.4:
                    self.provider.change(source, window, good=rng.random() < 0.85)
                self.insist(kernel, source, window)
            elif throw < 0.60:
                self.update(kernel, source, window, force=True)
            elif throw < 0.64:
                self.update(kernel, source, window, correction=f"C{rng.randrange(3)}", **REASONS)
            elif throw < 0.70:
                self.provider.change(source, window, good=rng.random() < 0.75)
            elif throw < 0.83:
                self.throw_switch(kernel)
            elif throw < 0.85:
                self.violated = set() if self.violated else {rng.choice(("flow", "counties"))}
            elif throw < 0.94:
                project(kernel, everything=rng.random() < 0.3)
            else:
                preview(kernel, self.subject(source, window), force=False, artifacts_dir=None)
        except (KfmError, OSError) as error:
            self.outcomes.append(f"error {getattr(error, 'code', 'OS')}")

    def throw_switch(self, kernel: Kernel) -> None:
        """Thrown, and mostly lifted again after a while."""
        scope = self.rng.choice(SCOPES)
        self.set_switch(kernel, scope, self.rng.choice(("paused", "stopped")))
        if self.rng.random() < 0.9:
            kernel.clock.sleep_ms(self.rng.randrange(50, 3_000))
            self.set_switch(kernel, scope, "running")

    def set_switch(self, kernel: Kernel, scope: str, position: Any) -> None:
        now_ms = kernel.store.now_ms()
        switch = Switch(scope=scope, position=position, rationale="simulated", actor="sim", set_at_ms=now_ms)
        entry = GovernanceEntry(kind="switch", subject=scope, actor="sim", recorded_at_ms=now_ms)
        kernel.store.set_switch(switch, entry)

    # --- a whole life ----------------------------------------------------------------

    def live(self) -> None:
        for _ in range(self.rng.randrange(2, 4)):
            for _ in range(self.rng.randrange(2, 5)):
                actions = self.rng.randrange(1, 4)

                def body(kernel: Kernel, _process: Process, actions: int = actions) -> None:
                    for _ in range(actions):
                        self.one_action(kernel)

                self.start(body)
            self.scheduler.run()
        self.finish()

    def finish(self) -> None:
        """Everything is repaired; one healthy process does what is left, and the result must be whole."""
        self.scheduler.chances = CALM
        self.scheduler.now_ms += 120_000  # whoever died elsewhere has lapsed
        self.violated.clear()
        for source in self.settings.sources:
            for window in (0, 1):
                held = self.provider.content[source.id, window]
                if self.rng.random() < 0.5 or self.provider.bad.intersection(held.values()):
                    self.provider.change(source.id, window, good=True)

        def body(kernel: Kernel, _process: Process) -> None:
            for scope in SCOPES:
                self.set_switch(kernel, scope, "running")
            for source in self.settings.sources:
                for window in (0, 1):
                    report = self.update(kernel, source.id, window, rationale="end", ticket="SIM-2")
                    assert report.outcome in ("success", "noop"), (report.outcome, report.reason)
                    again = self.update(kernel, source.id, window)
                    assert again.outcome == "noop", (again.outcome, again.reason)
            project(kernel)

        self.outcomes += [f"interrupted {run.error_code}" for run in self.checks.runs() if run.attempts > 1]
        self.start(body, "final")
        self.scheduler.run()
        self.checks.at_the_end()


class Nobody:
    def phase(self, name: str, total: int | None = None) -> None: ...
    def advance(self, amount: int, note: str = "") -> None: ...
    def done(self) -> None: ...


def window_index(window: Window) -> int:
    return (window.start_ms - START_MS) // HOUR_MS
