"""What must hold of pipeline runs after every commit, and at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from kfm.db import branch_commits
from kfm.db.node_branches import entries_of
from kfm.model.records import Output
from kfm.model.run_state import outputs_of
from kfm.model.times import holds
from kfm.pipelines.workers import NodeJob
from tests.simulation.judging import read, require
from tests.simulation.nodes.drawn import SECRET
from tests.simulation.scheduler import Process

if TYPE_CHECKING:
    from tests.simulation.nodes.world import NodesWorld

ENDED = ("success", "partial", "failed", "cancelled")
Locks = dict[str, tuple[str, str, int]]  # scope → worker, run, until when; of those that are held
Ends = dict[tuple[str, int], tuple[Any, ...]]


class Checks:
    def __init__(self, world: NodesWorld) -> None:
        self._world = world
        self.counts: Counter[str] = Counter()
        self._locks: Locks = {}
        self._ends: Ends = {}
        self._number = 0  # of the last lineage event looked at
        self._open: set[str] = set()
        self._over: set[str] = set()

    def rows(self, sql: str, *values: Any) -> list[Any]:
        return list(self._world.database._connection.execute(sql, values))

    # --- at every commit -------------------------------------------------------------------

    def on_commit(self, process: Process) -> None:
        told, changed = process.facts.pop("told"), process.facts.pop("changed")
        before, self._locks = self._locks, self._held()
        for name, parameters, found in told:
            if name == "run_states.put":
                self._recorded(process, parameters, before)
            elif name in ("passes.begin", "passes.join"):
                process.facts["begun at"] = self._head(parameters["branch"])
            elif name == "passes.end" and found:
                self._ended(process, parameters, before)
        if "locks" in changed:
            self._taken(process, before)
        if changed & {"passes", "pass_attempts"}:
            self._attempts()
        if "outbox" in changed:
            self._events()

    def _held(self) -> Locks:
        sql = "SELECT scope, worker_id, run_id, lease_until_ms FROM locks WHERE worker_id IS NOT NULL"
        return {scope: (worker, run_id, until_ms) for scope, worker, run_id, until_ms in self.rows(sql)}

    def _taken(self, process: Process, before: Locks) -> None:
        now_ms = self._world.clock(process).now_ms()
        for scope, (worker, run_id, until_ms) in before.items():
            holder = self._world.process_of(worker)
            own = holder is not None and process in holder.kin
            if self._locks.get(scope, ("",))[0] != worker and not own:
                gone = not holds(until_ms, now_ms) or self._world.is_dead(worker)
                require(gone, "a lease is taken only from what is gone", scope=scope, of=run_id)
                self.counts["taken over"] += 1
        for scope, (_worker, run_id, _until_ms) in self._locks.items():
            if scope.startswith("pipeline:"):
                self._alone(process, scope, run_id, now_ms)
                under_way = "SELECT 1 FROM pass_attempts WHERE run_id = ? AND state = 'running'"
                require(self.rows(under_way, run_id), "what was given up holds no lock", run_id=run_id)

    def _alone(self, process: Process, scope: str, run_id: str, now_ms: int) -> None:
        holder = self._world.process_of(self._locks[scope][0])
        if holder is None or self._locks[scope][0] not in self._world.whole:
            return  # of its own nodes none is at work
        pipeline, _, branch = scope.removeprefix("pipeline:").partition("@")
        others = [
            (other, holder)
            for other, holder in self._locks.items()
            if other.startswith(f"node:{pipeline}") and other.endswith(f"@{branch}")
        ]
        for other, (worker, _run_id, until_ms) in others:
            live = until_ms - now_ms > 0 and not self._world.is_dead(worker)
            mine = self._locks[scope][2] - now_ms > 0 and not self._world.is_dead(self._locks[scope][0])
            own = process in (self._world.process_of(worker), holder)
            # Who takes the second of the two sees the first; that its clock has jumped since is no fault.
            require(
                not (live and mine and own),
                "a node and its whole pipeline are not run at once",
                whole=(scope, run_id),
                node=other,
            )

    def _recorded(self, process: Process, node: dict[str, Any], before: Locks) -> None:
        """A record is written by the process that has the lock, after what it speaks of."""
        holders = [worker for worker, run_id, _ in before.values() if run_id == node["run_id"]]
        mine = any(self._world.process_of(worker) is process for worker in holders)
        require(mine, "only the holder of the lock records a node", node=node["dataset_id"], locks=before)
        self.counts[f"node {node['outcome']}"] += 1
        if node["outputs"] and node["outcome"] == "success":
            self.kept(outputs_of(node["outputs"]))

    def kept(self, outputs: Iterable[Output]) -> None:
        for each in outputs:
            size = self._world.size_on_disk(each.checksum)
            require(size == each.size, "what is recorded lies in the store", output=each, size=size)

    def _ended(self, process: Process, request: dict[str, Any], before: Locks) -> None:
        run_id, state = request["run_id"], request["state"]
        self.counts[f"run {state}"] += 1
        holders = [worker for worker, held_for, _ in before.values() if held_for == run_id]
        mine = any(self._world.process_of(worker) is process for worker in holders)
        require(mine, "only the holder of the lock ends a run", run_id=run_id)
        if state not in ("success", "partial") or process.facts.get("governed"):
            return
        stopped = self.rows("SELECT 1 FROM switches WHERE scope = 'all' AND position = 'stopped'")
        require(not stopped, "nothing is committed while everything is stopped", run_id=run_id)
        (branch,) = self.rows("SELECT branch FROM passes WHERE run_id = ?", run_id)[0]
        moved = self._moved_by_others(branch, process.facts["begun at"], request["commit_id"])
        if state == "success" and process.facts["whole"] and not moved:
            self.coherent(branch, process.facts["names"])

    def _moved_by_others(self, branch: str, begun_at: str | None, commit: str | None) -> bool:
        if commit is None:
            return self._head(branch) != begun_at
        ((parents,),) = self.rows("SELECT parents FROM commits WHERE commit_id = ?", commit)
        return (begun_at or branch_commits.root_commit().commit_id) not in parents

    def _head(self, branch: str) -> str | None:
        found = self.rows("SELECT head FROM branches WHERE name = ?", branch)
        return found[0][0] if found else None

    def heads(self, branch: str, names: list[str]) -> dict[str, tuple[str, str | None]]:
        """Node → its outputs, and why it is to run again."""
        sql = "SELECT dataset_id, outputs, rerun FROM node_heads WHERE branch = ?"
        return {node: (outputs, rerun) for node, outputs, rerun in self.rows(sql, branch) if node in names}

    def values(self, branch: str, names: list[str]) -> dict[str, Any]:
        found = {}
        for node, (outputs, _rerun) in self.heads(branch, names).items():
            made = outputs_of(outputs)
            self.kept(made)
            (stored,) = [each for each in made if each.name == "value.json"]
            data = read(self._world.disk, self._world.place_of(stored.checksum))
            found[node] = (stored.checksum, msgspec.json.decode(data))
        return found

    def coherent(self, branch: str, names: list[str]) -> None:
        """Every node of a branch was made of what the branch shows of those that it reads from."""
        values = self.values(branch, names)
        for node, (_, value) in values.items():
            for other, checksum in value["reads"].items():
                require(
                    other in values and values[other][0] == checksum,
                    "a run leaves nodes that were made of each other",
                    node=node,
                    reads=other,
                )

    def _attempts(self) -> None:
        twice = self.rows(
            "SELECT run_id, node FROM pass_attempts WHERE state = 'running' GROUP BY run_id, node"
            " HAVING COUNT(*) > 1"
        )
        require(not twice, "an attempt ends before the next begins", attempts=twice)
        sql = "SELECT run_id, attempt, state, ended_at_ms, commit_id FROM passes"
        ends = {(run_id, attempt): tuple(rest) for run_id, attempt, *rest in self.rows(sql)}
        lone = self._world.shared
        for key, end in ends.items():
            former = self._ends.get(key)
            if former is not None and former[0] in ENDED and key[0] not in lone:
                require(former == end, "an end is the end", run=key, before=former, after=end)
        self._ends = ends

    def _events(self) -> None:
        sql = "SELECT number, body FROM outbox WHERE number > ? AND topic = 'openlineage' ORDER BY number"
        for number, body in self.rows(sql, self._number):
            self._number = number
            event = msgspec.json.decode(body)
            kind, lineage_id = event["eventType"], event["run"]["runId"]
            if kind == "START":
                new = lineage_id not in self._open and lineage_id not in self._over
                require(new, "everything starts once", event=event["job"])
                self._open.add(lineage_id)
            else:
                require(lineage_id in self._open, "what ends was under way", event=event["job"], kind=kind)
                self._open.remove(lineage_id)
                self._over.add(lineage_id)
            require(SECRET not in body, "no secret is in an event")

    # --- as a node begins --------------------------------------------------------------------

    def on_start(self, process: Process, job: NodeJob, *, forced: bool) -> None:
        """Work that is done is not done again: not by a run that is resumed, nor by one that takes over. And
        what was skipped is there for those that read from it."""
        self.counts["executed"] += 1
        if self._world.is_calm or job.run_id not in self._world.shared:
            for outputs in job.arguments.values():  # a task may come before one that failed is tried again
                self.kept(outputs)
        mine = any(
            self._world.process_of(worker) is process and run_id == job.run_id
            for worker, run_id, _ in self._held().values()
        )
        if forced or not mine or self._head(job.branch) != process.facts["begun at"]:
            return  # asked for, or others have brought it since the run looked
        if job.reason.endswith(" is gone"):
            return  # as it was then; a run on another branch may have made the same bytes since
        found = self.rows(
            "SELECT outputs FROM node_heads WHERE branch = ? AND dataset_id = ? AND inputs_hash = ?"
            " AND code_sha = ? AND rerun IS NULL",
            job.branch,
            job.spec.id,
            job.inputs_hash,
            job.code_sha,
        )
        there = [
            all(self._world.size_on_disk(each.checksum) == each.size for each in outputs_of(outputs))
            for (outputs,) in found
        ]
        require(not any(there), "what is done is not done again", node=job.spec.id, reason=job.reason)

    # --- at the end ----------------------------------------------------------------------------

    def shows(self, branch: str, names: list[str]) -> None:
        """The branch's tree has what its nodes made, and nothing else of theirs."""
        session = self._world.database.session
        commit = branch_commits.resolve(session, branch)
        tree = dict(branch_commits.forest_of(session).entries(commit.tree_id))
        own = {path: entry for path, entry in tree.items() if path.partition("/")[0] in names}
        wanted: dict[str, Any] = {}
        for node, (outputs, _) in self.heads(branch, names).items():
            wanted |= entries_of(node, outputs_of(outputs))
        require(own == wanted, "a branch shows what its nodes made", branch=branch, paths=sorted(own))

    def after_power_cut(self) -> None:
        self._locks = self._held()
        for (outputs,) in self.rows("SELECT outputs FROM node_heads"):
            if not self._world.is_damaged:
                self.kept(outputs_of(outputs))

    def at_the_end(self) -> None:
        left = self.rows("SELECT run_id, attempt, node FROM pass_attempts WHERE state = 'running'")
        require(not left, "every attempt has an end", left=left)
        under_way = self.rows("SELECT run_id FROM passes WHERE state = 'running'")
        require(not under_way, "every run has an end", runs=under_way)
        require(not self._open, "all that started has ended", events=sorted(self._open))
        require(not self._held(), "no lock is left", locks=self._held())
