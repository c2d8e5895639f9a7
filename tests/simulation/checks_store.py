"""Rules about what is kept: objects, old versions, artifacts of runs, and what a dry-run leaves behind."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from kfm.db.ledger_reader import LedgerReader
from kfm.model.contracts import require_valid
from kfm.model.records import Promotion
from kfm.publish.manifest import blobs, diff
from kfm.publish.publisher import MASKED
from kfm.runs.gc import CLOCK_MARGIN_MS, Collection
from kfm.runs.plan import RunPlan
from tests.power import FileNode, PowerCutFiles
from tests.simulation.judging import read, require
from tests.simulation.pipelines import SECRET

if TYPE_CHECKING:
    from tests.simulation.world import World

OBJECTS = "/state/objects/sha256"
SCHEMAS = {
    "run.jsonl": "run-event",
    "event_log.jsonl": "event-log",
    "publisher_trace.jsonl": "publisher-trace",
    "idempotency.json": "idempotency",
}


class StoreChecks:
    def __init__(self, world: World, ledger: LedgerReader) -> None:
        self._world = world
        self._ledger = ledger

    def _files(self) -> PowerCutFiles:
        return PowerCutFiles(self._world.rng, self._world.root)

    # --- collecting ------------------------------------------------------------------

    def kept(self) -> dict[str, list[Promotion]]:
        keep = self._world.settings.limits.versions_kept
        return {
            head.dataset_id: self._ledger.promotions(head.dataset_id, limit=keep)
            for head in self._ledger.heads()
        }

    def needed(self) -> set[str]:
        found: set[str] = set()
        for promotions in self.kept().values():
            for promotion in promotions:
                version = self._ledger.version(promotion.version_id)
                assert version is not None
                found |= blobs(version.items())
        return found

    def may_go(self, collection: Collection) -> None:
        """What a plan names must not be needed."""
        names = {one.sha256 for one in collection.objects} & self.needed()
        require(not names, "what is kept is not garbage", names=names)

    def after_collection(self, *, complete: bool = False) -> None:
        """Every kept version is whole, wherever it stands; at the end nothing else is left."""
        files = self._files()
        for sha256 in self.needed():
            place = f"{OBJECTS}/{sha256[:2]}/{sha256[2:]}"
            require(files.exists(place), "no kept version loses an object", sha256=sha256)
        for dataset, promotions in self.kept().items():
            oldest = min(promotion.sequence for promotion in promotions)
            names = self._names(files, f"/published/{dataset}/versions")
            if complete:
                old = [name for name in names if name[0] != "." and int(name.split("-")[0]) < oldest]
                require(not old, "old versions go", names=old)
            for name in names:
                if name[0] != "." and int(name.split("-")[0]) >= oldest:
                    self._world.checks.whole(files, dataset, name)
        if complete:
            self._nothing_else(files)

    def _nothing_else(self, files: PowerCutFiles) -> None:
        present = {
            fan + rest
            for fan in self._names(files, OBJECTS)
            for rest in self._names(files, f"{OBJECTS}/{fan}")
        }
        fresh = {sha256 for sha256 in present - self.needed() if self._is_fresh(files, sha256)}
        require(present - fresh <= self.needed(), "what no version needs goes", left=present - self.needed())

    def _is_fresh(self, files: PowerCutFiles, sha256: str) -> bool:
        age_ms = self._world.scheduler.now_ms - files.modified_ms(f"{OBJECTS}/{sha256[:2]}/{sha256[2:]}")
        return age_ms <= 2 * CLOCK_MARGIN_MS

    def _names(self, files: PowerCutFiles, folder: str) -> list[str]:
        try:
            return files.listdir(folder)
        except FileNotFoundError:
            return []

    # --- plans and dry-runs ----------------------------------------------------------

    def on_dry_effect(self, allowed: str, kind: str, path: str) -> None:
        own = path == allowed or path.startswith(f"{allowed}/") or allowed.startswith(f"{path}/")
        require(own, "a dry-run writes nothing but its artifacts", kind=kind, path=path)

    def after_preview(self, report: Any) -> None:
        if report.dataset_id == "orphan":
            require(report.outcome == "refused", "no plan without rights", outcome=report.outcome)
        if report.outcome == "planned":
            require(
                all(gate.allowed or gate.overridden for gate in report.gates), "a plan has passed every gate"
            )

    def as_planned(self, plan: RunPlan, head: Promotion) -> None:
        """What was promoted is what was read and agreed to."""
        header = plan.header
        require(
            (head.version_id, head.sequence) == (header.version_id, header.base_sequence + 1),
            "what is applied is what was planned",
            plan=header,
            head=head,
        )
        version = self._ledger.version(head.version_id)
        base = self._ledger.version(header.base_version_id) if header.base_version_id else None
        assert version is not None
        changes = {change.name: change for change in diff(base, version)}
        said = {change.name: change for change in plan.changes}
        require(changes == said, "the changes are the ones that were planned")

    # --- artifacts -------------------------------------------------------------------

    def artifacts(self, report: Any, attempt: int) -> None:
        """What a run that came to its end has left: whole, valid, and saying what became of it."""
        folder = f"/state/runs/{report.run.run_id}/attempt-{attempt}"
        files = self._files()
        lines: dict[str, list[Any]] = {}
        for name, schema in SCHEMAS.items():
            data = read(files, f"{folder}/{name}")
            require(SECRET.encode() not in data, "no secret is in an artifact", path=f"{folder}/{name}")
            lines[name] = [json.loads(line) for line in data.splitlines()]
            for line in lines[name]:
                require_valid(schema, line)
        events = lines["run.jsonl"]
        require(events[0]["event"] == "run.start", "a run's log begins with its start")
        last = events[-1]
        require(last["event"] == "run.end", "a run's log ends with its end", events=events)
        require(last["facts"]["outcome"] == report.outcome, "the log says what became of it", last=last)
        record = lines["idempotency.json"][0]
        require(record["outcome"] == report.outcome, "the record says what became of it")
        require(record["work_key"] == report.run.work_key, "the record names its work")
        traced = lines["publisher_trace.jsonl"]
        require([line["seq"] for line in traced] == list(range(1, len(traced) + 1)), "no step is left out")
        ends = [line["operation"] for line in traced if line["operation"] in ("promote", "project")]
        promoted = ["promote"] if report.outcome == "success" else []
        wanted = [*promoted, *("project" for _ in report.projections)]
        require(ends == wanted, "the trace goes on to the promotion and each target", ends=ends)
        rights = self._world.settings.dataset(report.dataset_id).rights
        if rights is None or rights.care.level != "public":
            shown = {line["path"] for line in traced if line.get("path") is not None}
            require(shown <= {MASKED}, "paths of what is not public are not written down", shown=shown)

    def objects_hold(self) -> None:
        """Every object is what its name says."""
        for sha256 in self.needed():
            data = read(self._files(), f"{OBJECTS}/{sha256[:2]}/{sha256[2:]}")
            require(hashlib.sha256(data).hexdigest() == sha256, "an object is what its name says")

    def nothing_torn(self) -> None:
        """At rest no file is half written under a name that readers use."""
        for path, node in _below(self._world.root, ""):
            if path.startswith("/published/") and "/.versions/0" in path:
                require(not node.pending, "what is shown is on the disk", path=path)


def _below(folder: Any, prefix: str) -> list[tuple[str, FileNode]]:
    found = []
    for name, node in folder.names.items():
        if isinstance(node, FileNode):
            found.append((f"{prefix}/{name}", node))
        elif hasattr(node, "names"):
            found += _below(node, f"{prefix}/{name}")
    return found
