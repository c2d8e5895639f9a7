"""The rules that no history may break, looked at from outside the kernel."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from kfm.core.records import Run
from kfm.store.reading import Ledger
from tests.power import PowerCutFiles

if TYPE_CHECKING:
    from tests.simulation.scheduler import Process
    from tests.simulation.world import World

GATES = {"contract", "switch", "freeze", "rights", "care", "sovereignty", "licence"}


class Violation(BaseException):
    """The kernel broke a promise. Not an Exception: the kernel must not take it for a failure of the work."""


def require(held: bool, promise: str, **facts: Any) -> None:
    if not held:
        raise Violation(f"{promise} {facts}")


class Checks:
    def __init__(self, world: World) -> None:
        self._world = world
        self._ledger = Ledger(world.database)
        self._fences: dict[str, int] = {}
        self._locks: dict[str, Any] = {}
        self._sequences: dict[str, int] = {}
        self._shown: dict[str, int] = {}
        self._shown_name: dict[str, str | None] = {}
        self._bucket_shown: dict[str, int] = {}
        self._admitted: set[str] = set()

    # --- at every effect -------------------------------------------------------------

    def on_commit(self, process: Process) -> None:
        now_ms = self._world.scheduler.now_ms + process.wall_offset_ms
        for lock in self._ledger.locks():
            before = self._locks.get(lock.scope)
            if before is not None and before.holder is not None and lock.fence != before.fence:
                live = before.lease_until_ms > now_ms and not self._world.is_dead(before.holder.worker_id)
                require(not live, "a live lease is not taken", scope=lock.scope)
            self._locks[lock.scope] = lock
            require(lock.fence >= self._fences.get(lock.scope, 0), "fences only grow", scope=lock.scope)
            self._fences[lock.scope] = lock.fence
            if lock.holder is not None:
                worker = self._world.workers.get(lock.holder.worker_id)
                if worker is not None:
                    self._admitted.add(worker.name)
        for head in self._ledger.heads():
            known = self._sequences.get(head.dataset_id, 0)
            require(head.sequence - known in (0, 1), "promotions come one by one", dataset=head.dataset_id)
            if head.sequence != known:
                self._sequences[head.dataset_id] = head.sequence
                self._on_promotion(head, process)
        self.look()

    def on_file(self, process: Process, kind: str, path: str) -> None:
        """Before an effect on the disk."""
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
        manifest = self._ledger.manifest(head.version_id)
        assert manifest is not None
        bad = {hashlib.sha256(data).hexdigest() for data in self._world.provider.bad}
        files = PowerCutFiles(self._world.rng, self._world.root)
        for item in manifest.items:
            for asset in item.assets:
                require(
                    asset.sha256 not in bad, "data that breaks its contract is not promoted", path=asset.path
                )
                place = f"/state/objects/sha256/{asset.sha256[:2]}/{asset.sha256[2:]}"
                require(files.exists(place), "what is promoted is in the object store", path=asset.path)

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
                self._whole(files, dataset, name)
            pointer = self._world.bucket.get(f"{dataset}/current.json")
            if pointer is not None:
                sequence = json.loads(pointer[0])["sequence"]
                self._forward(self._bucket_shown, dataset, sequence, "bucket")

    def _forward(self, shown: dict[str, int], dataset: str, sequence: int, where: str) -> None:
        require(sequence >= shown.get(dataset, 0), "never an older version after a newer one", where=where)
        require(sequence <= self._sequences.get(dataset, 0), "only what was promoted is shown", where=where)
        shown[dataset] = sequence

    def _whole(self, files: PowerCutFiles, dataset: str, name: str) -> None:
        sequence = int(name.split("-")[0])
        self._forward(self._shown, dataset, sequence, "local")
        folder = f"/published/{dataset}/versions/{name}"
        manifest = _read(files, f"{folder}/manifest.json")
        promotion = next(p for p in self._ledger.promotions(dataset) if p.sequence == sequence)
        digest = "sha256:" + hashlib.sha256(manifest).hexdigest()
        require(digest == promotion.version_id, "the manifest shown is the one promoted", dataset=dataset)
        for item in json.loads(manifest)["items"]:
            for asset in item["assets"]:
                data = _read(files, f"{folder}/data/{asset['path']}")
                same = hashlib.sha256(data).hexdigest() == asset["sha256"]
                require(same, "a version is shown whole", dataset=dataset, path=asset["path"])

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
                self._whole(files, dataset, name)
            head = self._ledger.head(dataset)
            for item in head[1].items if head else ():
                for asset in item.assets:
                    place = f"/state/objects/sha256/{asset.sha256[:2]}/{asset.sha256[2:]}"
                    intact = files.exists(place) and _sha256(files, place) == asset.sha256
                    require(intact, "what is promoted survives a power cut", path=asset.path)

    # --- reports and the end ---------------------------------------------------------

    def on_report(self, report: Any) -> None:
        if report.outcome == "success":
            run = self._ledger.run(report.run.run_id)
            require(run is not None and run.status == "success", "a reported success is on record")

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
            self._final_content(source.id, source.dataset)
        for (dataset, target), sequence in ledger.projected().items():
            require(sequence == self._sequences[dataset], "every target shows the head", target=target)
        require(self._shown == self._sequences, "the local tree shows the head", shown=self._shown)
        require(self._bucket_shown == self._sequences, "the bucket shows the head", shown=self._bucket_shown)

    def _final_content(self, source: str, dataset: str) -> None:
        head = self._ledger.head(dataset)
        assert head is not None
        published = {
            asset.path: asset.sha256
            for item in head[1].items
            for asset in item.assets
            if item.source_id == source
        }
        mode = self._world.settings.source(source).mode
        for window in (0, 1):
            start_ms = self._world.window(window).start_ms
            shown = any(i.source_id == source and i.window_start_ms == start_ms for i in head[1].items)
            if mode == "replace" and not shown:
                continue  # only the window that was promoted last is kept
            for path, data in self._world.provider.content[source, window].items():
                made = b"# model\n" + data if source == "models" else data
                require(
                    published.get(path) == hashlib.sha256(made).hexdigest(),
                    "what upstream holds at the end is published",
                    path=path,
                )


def _sha256(files: PowerCutFiles, path: str) -> str:
    return hashlib.sha256(_read(files, path)).hexdigest()


def _read(files: PowerCutFiles, path: str) -> bytes:
    reader = files.open(path)
    return b"".join(iter(lambda: reader.read(1 << 20), b""))
