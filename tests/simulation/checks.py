"""The rules that no history may break, looked at from outside the kernel."""

from __future__ import annotations

import hashlib
import json
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from kfm.db.ledger_reader import LedgerReader
from kfm.model.errors import PlanDrifted
from kfm.model.gates import freeze_span_ms
from kfm.model.records import Lock, Run
from kfm.model.targets import takes
from kfm.runs.gc import LEASE_MS
from tests.power import PowerCutFiles
from tests.published import items_of
from tests.simulation.checks_chain import ChainChecks
from tests.simulation.checks_circuits import CircuitChecks
from tests.simulation.checks_evidence import EvidenceChecks
from tests.simulation.checks_incidents import IncidentChecks
from tests.simulation.checks_job import JobChecks
from tests.simulation.checks_retries import RetryChecks
from tests.simulation.checks_starts import StartChecks
from tests.simulation.checks_store import StoreChecks
from tests.simulation.judging import Violation, read, require
from tests.simulation.provider import MODEL_MARK, WINDOWS

if TYPE_CHECKING:
    from tests.simulation.scheduler import Process
    from tests.simulation.world import World

__all__ = ["Checks", "Violation", "require"]

GATES = {"contract", "switch", "freeze", "rights", "care", "sovereignty", "licence"}


class Checks:
    def __init__(self, world: World) -> None:
        self._world = world
        self._ledger = LedgerReader(world.database)
        self._fences: dict[str, int] = {}
        self._waiting: set[int] = set()  # fences under which a collection has waited for its turn
        self._locks: dict[str, Any] = {}
        self._sequences: dict[str, int] = {}
        self._shown: dict[str, int] = {}
        self._shown_name: dict[str, str | None] = {}
        self._bucket_shown: dict[str, int] = {}
        self._pointers: dict[str, Any] = {}  # as last seen in the bucket
        self._admitted: set[str] = set()
        self._prefix = next(
            f"{prefix}/" if prefix else ""
            for target in world.settings.publish
            if target.kind == "s3"
            for prefix in [(target.url or "").removeprefix("s3://shelf").strip("/")]
        )
        self.store = StoreChecks(world, self._ledger)
        self.job = JobChecks(world, self._ledger)
        self.evidence = EvidenceChecks(world, self._ledger)
        self.chain = ChainChecks(world, self._ledger)
        self.circuits = CircuitChecks(world, self._ledger)
        self.retries = RetryChecks(world, self._ledger)
        self.starts = StartChecks(world, self._ledger, world.settings)
        self.incidents = IncidentChecks(world)

    # --- at every effect -------------------------------------------------------------

    def on_commit(self, process: Process) -> None:
        """Rules about a table are looked at when it may have changed, the others each time."""
        now_ms = self._world.scheduler.now_ms + process.wall_offset_ms
        changed: set[str] = process.facts["changed"]
        if "locks" in changed:
            self._locked(process, now_ms)
        if "promotions" in changed:
            self._promoted(process)
        if changed & {"attempts", "outbox", "runs"}:
            self.evidence.on_commit()
        if changed & {"governance", "chain_heads"}:
            self.chain.on_commit()
        self.circuits.on_commit(process, now_ms)
        self.retries.on_commit(process, now_ms)
        self.starts.on_commit(process, now_ms)
        if changed & {"held", "breakers", "incidents", "incident_subjects"}:
            self.incidents.on_commit(process)
        self.look()
        if "projections" in changed:
            self._projected()

    def _locked(self, process: Process, now_ms: int) -> None:
        for lock in self._ledger.locks():
            before = self._locks.get(lock.scope)
            if before is not None and before.holder is not None and lock.fence != before.fence:
                waited = before.scope == "gc" and before.fence in self._waiting
                goes_on = waited and lock.holder and lock.holder.worker_id == before.holder.worker_id
                live = self._is_live(before, now_ms)
                require(goes_on or not live, "a live lease is not taken", scope=lock.scope)
            taken = before is None or (before.holder, before.acquired_at_ms) != (
                lock.holder,
                lock.acquired_at_ms,
            )
            if lock.holder is not None and taken:
                known = before.fence if before is not None else 0
                require(lock.fence > known, "every holder has a fence of its own", scope=lock.scope)
                if _waits(lock):
                    self._waiting.add(lock.fence)
                elif lock.scope == "gc":
                    self._no_run_at_work(now_ms)
                if lock.scope.startswith(("dataset:", "domain:")):
                    held_back = self._is_live(self._locks.get("gc"), now_ms)
                    require(not held_back, "no run begins while a collection waits", scope=lock.scope)
            self._locks[lock.scope] = lock
            require(lock.fence >= self._fences.get(lock.scope, 0), "fences only grow", scope=lock.scope)
            self._fences[lock.scope] = lock.fence
            if lock.holder is not None:
                worker = self._world.workers.get(lock.holder.worker_id)
                if worker is not None:
                    self._admitted.add(worker.name)
                if worker is process and (before is None or before.fence != lock.fence):
                    begun = self._ledger.run(lock.holder.run_id)
                    attempt = begun.attempts if begun is not None else None
                    process.facts |= {"entered": (now_ms, process.jumps), "attempt": attempt}

    def _promoted(self, process: Process) -> None:
        for head in self._ledger.heads():
            known = self._sequences.get(head.dataset_id, 0)
            require(head.sequence - known in (0, 1), "promotions come one by one", dataset=head.dataset_id)
            if head.sequence != known:
                self._sequences[head.dataset_id] = head.sequence
                self._on_promotion(head, process)

    def _projected(self) -> None:
        for (dataset, target), sequence in self._ledger.projected().items():
            shown = {"local": self._shown, "s3": self._bucket_shown}.get(target, self._sequences)
            require(
                shown.get(dataset, 0) >= sequence,
                "what is recorded as shown is shown",
                dataset=dataset,
                target=target,
                sequence=sequence,
            )

    def _is_live(self, lock: Lock | None, now_ms: int) -> bool:
        if lock is None or lock.holder is None:
            return False
        return lock.lease_until_ms > now_ms and not self._world.is_dead(lock.holder.worker_id)

    def _no_run_at_work(self, now_ms: int) -> None:
        for lock in self._ledger.locks():
            live = lock.scope != "gc" and self._is_live(lock, now_ms)
            require(not live, "nothing is collected under a running run", scope=lock.scope)

    def on_file(self, process: Process, kind: str, path: str) -> None:
        """Before an effect on the disk."""
        if process.facts.get("dry"):
            self.store.on_dry_effect(process.facts["dry"], kind, path)
        if path.startswith("/state/objects"):
            require(process.name in self._admitted, "the key is stored before the first effect", path=path)
        if path.startswith("/published/"):
            dataset = path.split("/")[2]
            require(dataset in self._sequences, "nothing is shown that was not promoted", path=path)
        self.look()

    def _on_promotion(self, head: Any, process: Process) -> None:
        run = self._ledger.run(head.run_id)
        assert run is not None
        require(run.status == "success", "a promotion is its run's success", run=run.run_id)
        require(head.dataset_id != "orphan", "nothing is published without rights", run=run.run_id)
        if process.facts.get("plan") is not None:
            self.store.as_planned(process.facts["plan"], head)
        require(run.fence == head.fence, "the promotion carries the run's fence", run=run.run_id)
        require(
            head.fence == self._fences.get(self._scope(head.dataset_id)), "only the newest fence promotes"
        )
        require(
            head.policy_epoch == self._ledger.policy_epoch(), "the policy epoch is compared", run=run.run_id
        )
        domain = self._world.settings.dataset(head.dataset_id).domain
        for switch in self._ledger.switches():
            covers = switch.scope in ("all", f"domain:{domain}", f"dataset:{head.dataset_id}")
            require(not (covers and switch.position == "stopped"), "a stopped dataset is not promoted")
        invocation = next(i for i in self._ledger.invocations(run_id=run.run_id) if i.outcome == "success")
        passed = {gate.gate for gate in invocation.gates if gate.allowed or gate.overridden}
        refused = {gate.gate for gate in invocation.gates if not gate.allowed and not gate.overridden}
        require(
            passed >= GATES and not refused, "no promotion without every gate", passed=passed, refused=refused
        )
        self._not_frozen(
            head, process, overridden="freeze" in {g.gate for g in invocation.gates if g.overridden}
        )
        version = self._ledger.version(head.version_id)
        assert version is not None
        files = PowerCutFiles(self._world.rng, self._world.root)
        for item in version.items():
            broken = self._world.provider.breaks_contract(item)
            require(not broken, "data that breaks its contract is not promoted", item=item.id)
            for asset in item.assets:
                place = f"/state/objects/sha256/{asset.sha256[:2]}/{asset.sha256[2:]}"
                require(files.exists(place), "what is promoted is in the object store", path=asset.path)

    def _not_frozen(self, head: Any, process: Process, *, overridden: bool) -> None:
        """A freeze that covers a run from its start to its promotion stops it, unless it was forced."""
        entered_ms, jumps = process.facts.get("entered", (0, -1))
        now_ms = self._world.scheduler.now_ms + process.wall_offset_ms
        if jumps != process.jumps or overridden:
            return
        domain = self._world.settings.dataset(head.dataset_id).domain
        for freeze in self._world.settings.freezes:
            start_ms, end_ms = freeze_span_ms(freeze)
            covers = any(fnmatchcase(head.dataset_id, one) for one in freeze.datasets)
            covers = covers and any(fnmatchcase(domain, one) for one in freeze.domains)
            frozen = covers and start_ms <= entered_ms <= now_ms < end_ms
            require(not frozen, "nothing is promoted in a freeze", dataset=head.dataset_id, freeze=freeze)

    def _scope(self, dataset_id: str) -> str:
        dataset = self._world.settings.dataset(dataset_id)
        return f"domain:{dataset.domain}" if dataset.lock == "domain" else f"dataset:{dataset_id}"

    # --- what a reader sees ----------------------------------------------------------

    def look(self) -> None:
        files = PowerCutFiles(self._world.rng, self._world.root)
        for dataset in self._sequences:
            try:
                name = files.readlink(f"/published/{dataset}/current").rpartition("/")[2]
            except OSError:
                name = None
            if name != self._shown_name.get(dataset):
                self._shown_name[dataset] = name
                require(name is not None, "a reader always finds a version", dataset=dataset)
                assert name is not None
                self._forward(self._shown, dataset, int(name.split("-")[0]), "local")
                self.whole(files, dataset, name)
            pointer = self._world.bucket.get(f"{self._prefix}{dataset}/current.json")
            if pointer is not None and pointer is not self._pointers.get(dataset):
                self._pointers[dataset] = pointer
                sequence = json.loads(pointer[0])["sequence"]
                self._forward(self._bucket_shown, dataset, sequence, "bucket")

    def _forward(self, shown: dict[str, int], dataset: str, sequence: int, where: str) -> None:
        require(sequence >= shown.get(dataset, 0), "never an older version after a newer one", where=where)
        require(sequence <= self._sequences.get(dataset, 0), "only what was promoted is shown", where=where)
        shown[dataset] = sequence

    def whole(self, files: PowerCutFiles, dataset: str, name: str) -> None:
        """A version stands there complete, and is the one that was promoted."""
        sequence = int(name.split("-")[0])
        promotion = next(p for p in self._ledger.promotions(dataset, limit=10_000) if p.sequence == sequence)
        self.whole_folder(files, f"/published/{dataset}/.versions/{name}", promotion.version_id)

    def whole_folder(self, files: PowerCutFiles, folder: str, version_id: str) -> None:
        manifest = read(files, f"{folder}/manifest.json")
        digest = "sha256:" + hashlib.sha256(manifest).hexdigest()
        require(digest == version_id, "the manifest shown is the one promoted", folder=folder)
        for item in items_of(lambda name: read(files, f"{folder}/{name}")):
            for one in item.files:
                same = hashlib.sha256(read(files, f"{folder}/data/{one.path}")).hexdigest() == one.sha256
                require(same, "a version is shown whole", folder=folder, path=one.path)

    def after_power_cut(self) -> None:
        """The pointer may be lost with the power, but not go back behind what had been reported as shown."""
        projected = self._ledger.projected()
        files = PowerCutFiles(self._world.rng, self._world.root)
        for dataset in self._sequences:
            try:
                name = files.readlink(f"/published/{dataset}/current").rpartition("/")[2]
            except OSError:
                name = None
            shown = int(name.split("-")[0]) if name else 0
            require(
                shown >= projected.get((dataset, "local"), 0),
                "a reported projection survives",
                dataset=dataset,
            )
            self._shown[dataset] = shown
            self._shown_name[dataset] = name
            if name is not None:
                self._forward(self._shown, dataset, shown, "local")
                self.whole(files, dataset, name)
            head = self._ledger.head(dataset)
            for item in head[1].items() if head else ():
                for asset in item.assets:
                    place = f"/state/objects/sha256/{asset.sha256[:2]}/{asset.sha256[2:]}"
                    intact = files.exists(place) and _sha256(files, place) == asset.sha256
                    require(intact, "what is promoted survives a power cut", path=asset.path)

    # --- reports and the end ---------------------------------------------------------

    def on_report(
        self, report: Any, steady: tuple[tuple[int, bool], ...] | None, facts: dict[str, Any]
    ) -> None:
        """`steady`: what upstream held all the while; None if it moved meanwhile."""
        if report.outcome == "success":
            run = self._ledger.run(report.run.run_id)
            require(run is not None and run.status == "success", "a reported success is on record")
        if report.dataset_id == "orphan":
            require(report.outcome in ("refused", "busy"), "no run without rights", outcome=report.outcome)
        refused = [g for g in report.gates if g.gate == "contract" and not g.allowed]
        if refused and steady is not None:
            good = all(is_good for _, is_good in steady)
            require(not good, "data that keeps its contract is not refused", reason=refused[0].reason)
        if isinstance(report.error, PlanDrifted):
            applied = report.run is not None and report.run.status == "success"
            require(not applied, "a plan that drifted is not applied", run=report.run)
        if facts["attempt"] is not None and report.run is not None and not facts["full"]:
            self.store.artifacts(report, facts["attempt"])

    def runs(self) -> list[Run]:
        return self._ledger.runs(limit=10_000)

    def at_the_end(self) -> None:
        ledger, world = self._ledger, self._world
        runs = self.runs()
        require(len({run.work_key for run in runs}) == len(runs), "one run per work key")
        require(not [run for run in runs if run.status == "running"], "no run is lost")
        require(not [lock for lock in ledger.locks() if lock.holder], "no lock stays held")
        promoted = [p.run_id for d in world.settings.datasets for p in ledger.promotions(d.id, limit=10_000)]
        require(len(set(promoted)) == len(promoted), "no run is promoted twice")
        for run in runs:
            if run.status == "success":
                require(
                    run.version_id is not None and run.fingerprint is not None, "a success names its version"
                )
        for source in world.settings.sources:
            if source.id != "orphan":
                self._final_content(source.id, source.dataset)
        require(ledger.head("orphan") is None, "nothing is published without rights")
        self.evidence.at_the_end()
        self.chain.at_the_end()
        self.retries.at_the_end()
        self.starts.at_rest()
        self.store.objects_hold()
        self.store.nothing_torn()
        for (dataset, target), sequence in ledger.projected().items():
            require(sequence == self._sequences[dataset], "every target shows the head", target=target)
        require(self._shown == self._sequences, "the local tree shows the head", shown=self._shown)
        bucket = next(target for target in world.settings.publish if target.kind == "s3")
        taken = {
            name: at for name, at in self._sequences.items() if takes(bucket, world.settings.dataset(name))
        }
        require(
            self._bucket_shown == taken, "the bucket shows the heads that it takes", shown=self._bucket_shown
        )

    def _final_content(self, source: str, dataset: str) -> None:
        head = self._ledger.head(dataset)
        assert head is not None
        published = {
            asset.path: asset.sha256
            for item in head[1].items()
            for asset in item.assets
            if item.source_id == source
        }
        mode = self._world.settings.source(source).mode
        for window in WINDOWS:
            start_ms = self._world.provider.windows[source][window].start_ms
            shown = any(i.source_id == source and i.window_start_ms == start_ms for i in head[1].items())
            if mode == "replace" and not shown:
                continue  # only the window that was promoted last is kept
            for path, data in self._world.provider.held(source, window).items():
                made = MODEL_MARK + data if source == "models" else data
                require(
                    published.get(path) == hashlib.sha256(made).hexdigest(),
                    "what upstream holds at the end is published",
                    path=path,
                )


def _waits(lock: Lock) -> bool:
    """When it is taken: a collection that waits for runs in progress has a shorter lease than one that
    collects. Renewed for long enough, it has any."""
    return lock.scope == "gc" and lock.lease_until_ms - lock.acquired_at_ms < LEASE_MS


def _sha256(files: PowerCutFiles, path: str) -> str:
    return hashlib.sha256(read(files, path)).hexdigest()
