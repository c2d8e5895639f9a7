"""A store of run-state and what a pass does with it, for the tests."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kfm.branches_remote.lakefs_branches import LakefsBranches
from kfm.branches_remote.lakefs_client import Client
from kfm.db.branches import EmbeddedBranches
from kfm.db.ledger import Ledger
from kfm.db.run_state import RunStateTables
from kfm.model.records import Node, Output
from kfm.model.run_state import BeginPass, EndedPass, EndPass, Fence, Skips
from kfm.objects.local import LocalObjects
from kfm.system import PosixFiles, SystemClock, SystemIds
from tests.lakefs_server import ACCESS_KEY, SECRET_KEY, Server

KINDS = ("sqlite", "postgresql", "delta", "delta-postgresql", "branch", "branch-postgresql", "lakefs")
START_MS = 1_767_225_600_000


def digest(text: str) -> str:
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


_BYTES: dict[str, bytes] = {}


def output(text: str, name: str = "tiles.json") -> Output:
    _BYTES[digest(text).removeprefix("sha256:")] = text.encode()
    return Output(name=name, checksum=digest(text), size=len(text.encode()))


class ObjectsAndOutputs(LocalObjects):
    """Has the bytes of all outputs that `output` made, too: lakeFS gets a copy of them."""

    def open(self, sha256: str) -> Any:
        return io.BytesIO(_BYTES[sha256]) if sha256 in _BYTES else super().open(sha256)


class Place:
    """The same environment, opened as often as there are processes."""

    def __init__(
        self, kind: str, folder: Path, open_store: Callable[[], Ledger], server: Server | None = None
    ) -> None:
        self.kind = kind
        self._server = server
        self.folder = folder
        self._open_store = open_store

    def open(self) -> RunStateTables:
        database = self._open_store().database
        if self.kind.startswith("delta"):
            from kfm.branches_remote.delta import DeltaRunState
            from kfm.db.run_state_external import ExternalRunStates

            return ExternalRunStates(database, DeltaRunState(str(self.folder / "run-state")))
        if self.kind.startswith("branch"):
            from kfm.branches_remote.run_state_objects import BranchRunState
            from kfm.db.run_state_external import BranchesInside, ExternalRunStates

            objects = LocalObjects(PosixFiles(), str(self.folder / "objects"), SystemIds())
            backend = BranchRunState(EmbeddedBranches(database), objects)
            return ExternalRunStates(database, backend, lambda session: backend.on(BranchesInside(session)))
        if self._server is not None:
            from kfm.branches_remote.run_state_objects import RemoteBranchRunState
            from kfm.db.run_state_external import RemoteRunStates

            files = ObjectsAndOutputs(PosixFiles(), str(self.folder / "objects"), SystemIds())
            client = Client(self._server.endpoint, "example", ACCESS_KEY, SECRET_KEY)
            branches = LakefsBranches(client, files, SystemIds(), SystemClock())
            return RemoteRunStates(database, RemoteBranchRunState(branches, files, branches.bring))
        return RunStateTables(database)

    def branches(self) -> EmbeddedBranches:
        return EmbeddedBranches(self._open_store().database)


class Pipeline:
    """One pipeline at work on a branch: takes the lock, records, lets go."""

    def __init__(self, states: RunStateTables, pipeline_id: str = "soil", branch: str = "main") -> None:
        self.states = states
        self.pipeline_id = pipeline_id
        self.branch = branch
        self.scope = f"pipeline:{pipeline_id}@{branch}"
        self.run_id = ""
        self.fence = Fence(self.scope, 0)
        self.clock = START_MS

    def begin(self, run_id: str, *, dead: Any = lambda _worker: False, nodes: tuple[str, ...] = ()) -> bool:
        begun = self.states.begin(
            BeginPass(
                run_id=run_id,
                pipeline_id=self.pipeline_id,
                branch=self.branch,
                graph=tuple((node, ()) for node in nodes),
                worker_id=f"worker of {run_id}",
                lease_ms=60_000,
                scope=self.scope,
            ),
            dead,
        )
        if begun.held_by is not None:
            return False
        self.run_id, self.fence = run_id, Fence(self.scope, begun.fence)
        return True

    def node(self, dataset_id: str, made: str = "a", **fields: Any) -> Node:
        self.clock += 1000
        given: dict[str, Any] = {
            "dataset_id": dataset_id,
            "run_id": self.run_id,
            "lakefs_branch": self.branch,
            "inputs_hash": digest(f"inputs of {made}"),
            "validation_summary": {"checks": 2, "passed": 2, "failed": 0},
            "outcome": "success",
            "recorded_at_ms": self.clock,
            "outputs": (output(made),),
            "code_sha": "version:1",
            "pipeline_id": self.pipeline_id,
            "duration_ms": 12,
            "reason": "first run",
        }
        return Node(**{**given, **fields})

    def record(self, *nodes: Node, **more: Any) -> bool:
        return self.states.record(self.fence, nodes, **more)

    def skips(self, *rows: tuple[str, str, str]) -> Skips:
        """Rows: node, what it was made from, the run that made it."""
        return Skips(
            self.run_id,
            self.branch,
            self.pipeline_id,
            [
                (node, digest(f"inputs of {made}"), "version:1", made_by, "unchanged")
                for node, made, made_by in rows
            ],
        )

    def end(self, *, skips: Skips | None = None, commits: bool = True) -> EndedPass:
        return self.states.end(
            EndPass(
                run_id=self.run_id,
                pipeline_id=self.pipeline_id,
                scope=self.scope,
                fence=self.fence.fence,
                branch=self.branch,
                state="success",
                counts={},
                author="ada",
                commits=commits,
            ),
            skips,
        )

    def pass_of(self, run_id: str, *nodes: str, made: str = "a") -> None:
        """A whole pass: begun, every node a success, ended."""
        assert self.begin(run_id)
        assert self.record(*(self.node(node, made) for node in nodes))
        assert self.end().landed
