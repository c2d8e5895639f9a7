"""A place for passes that is all in memory: tables, objects and files that a test can look into."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from fnmatch import fnmatch
from typing import Any

from kfm.db.branches import EmbeddedBranches
from kfm.db.queries import migrate
from kfm.db.run_state import RunStateTables
from kfm.db.sqlite import MemoryDatabase
from kfm.model.errors import UnhashableInput
from kfm.model.records import Justification
from kfm.pipelines.declaration import Pipeline
from kfm.pipelines.execution import PipelineExecutor
from kfm.pipelines.options import PipelineKernel, PipelineOptions, PipelineReport
from kfm.pipelines.planner import PipelinePlanner
from kfm.pipelines.workers import InlineWorker, ThreadWorkers, WorkerContext
from kfm.ports import Reader
from tests.stand_ins import CountedIds, FakeClock


class MemoryStaging:
    def __init__(self, kept: dict[str, bytes]) -> None:
        self._kept = kept
        self._data = b""

    def write(self, data: bytes) -> None:
        self._data += data

    def commit(self) -> tuple[str, int]:
        sha256 = hashlib.sha256(self._data).hexdigest()
        self._kept[sha256] = self._data
        return sha256, len(self._data)

    def keep_partial(self) -> None: ...
    def abort(self) -> None: ...


class MemoryReader:
    def __init__(self, data: bytes) -> None:
        self._data = data

    def read(self, size: int) -> bytes:
        data, self._data = self._data[:size], self._data[size:]
        return data

    def close(self) -> None: ...


class MemoryObjects:
    """Implements `ports.Objects`."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}

    def stage(self, resume_key: str | None = None) -> tuple[MemoryStaging, int]:
        del resume_key
        return MemoryStaging(self.kept), 0

    def has(self, sha256: str) -> bool:
        return sha256 in self.kept

    def size_of(self, sha256: str) -> int | None:
        return len(self.kept[sha256]) if sha256 in self.kept else None

    def open(self, sha256: str) -> Reader:
        return MemoryReader(self.kept[sha256])

    def local_path(self, sha256: str) -> str | None:
        del sha256
        return None

    def delete(self, sha256: str) -> None:
        self.kept.pop(sha256, None)

    def all(self) -> Iterator[str]:
        return iter(self.kept)


class MemoryFiles:
    """Implements `ports.ProjectFiles`; counts how often it was asked to read."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}
        self.times: dict[str, int] = {}
        self.reads: list[str] = []

    def write(self, path: str, data: bytes, at_ns: int = 0) -> None:
        self.kept[path] = data
        self.times[path] = at_ns

    def match(self, pattern: str) -> list[str]:
        return sorted(path for path in self.kept if path == pattern or fnmatch(path, pattern))

    def stat(self, path: str) -> tuple[int, int, int] | None:
        return (len(self.kept[path]), self.times[path], 1) if path in self.kept else None

    def checksum(self, path: str) -> str:
        self.reads.append(path)
        return "sha256:" + hashlib.sha256(self.kept[path]).hexdigest()


class Living:
    """Everybody who ever claimed to be alive is, but for those who are said to be dead."""

    def __init__(self) -> None:
        self.dead: set[str] = set()

    def claim(self, worker_id: str) -> None: ...
    def is_dead(self, worker_id: str) -> bool:
        return worker_id in self.dead


class Far:
    """What is far away has the ETag that a test gave it."""

    def __init__(self) -> None:
        self.tags: dict[str, str] = {}

    def of(self, uri: str) -> dict[str, Any]:
        if uri not in self.tags:
            raise UnhashableInput(f"{uri} has no validator.", field=uri)
        return {"uri": uri, "etag": self.tags[uri]}


class Workshop:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.ids = CountedIds()
        self.database = MemoryDatabase(self.clock)
        migrate(self.database, "sqlite", self.clock.now_ms())
        self.states = RunStateTables(self.database)
        self.branches = EmbeddedBranches(self.database)
        self.objects = MemoryObjects()
        self.files = MemoryFiles()
        self.far = Far()
        self.living = Living()

    def kernel(self, worker_id: str | None = None, **changes: Any) -> PipelineKernel:
        worker = WorkerContext(self.objects, self.files, self.clock)
        fields: dict[str, Any] = {
            "states": self.states,
            "pipeline_runs": self.states,
            "objects": self.objects,
            "object_size": self.objects.size_of,
            "files": self.files,
            "input_versions": self.far,
            "clock": self.clock,
            "liveness": self.living,
            "worker_id": worker_id or self.ids.new(),
            "workers": lambda jobs: InlineWorker(worker) if jobs == 1 else ThreadWorkers(worker, jobs),
            "actor": "tester",
        }
        return PipelineKernel(**{**fields, **changes})

    def executor(
        self, pipeline: Pipeline, *, kernel: PipelineKernel | None = None, **changes: Any
    ) -> PipelineExecutor:
        branch = changes.pop("branch", "main")
        fields: dict[str, Any] = {
            "run_id": changes.pop("run_id", None) or self.ids.new(),
            "pipeline_id": pipeline.id,
            "branch": branch,
            "scope": f"pipeline:{pipeline.id}@{branch}",
            "jobs": 1,
        }
        options = PipelineOptions(**{**fields, **changes})
        return PipelineExecutor(PipelinePlanner(kernel or self.kernel(), pipeline, options))

    def run(self, pipeline: Pipeline, **changes: Any) -> PipelineReport:
        self.clock.sleep_ms(10)
        return self.executor(pipeline, **changes).run()

    def revert(self, ref: str = "main", branch: str = "main") -> None:
        answer = self.branches.revert(
            branch, ref, message="undo", author="tester", why=Justification(actor="tester", rationale="test")
        )
        assert getattr(answer, "outcome", None) == "merged", answer


def ran(report: PipelineReport) -> list[str]:
    """The nodes that did something in this pass, by name."""
    return sorted(each.id for each in report.nodes.values() if each.ran)


def reasons(report: PipelineReport) -> dict[str, str]:
    return {each.id: each.reason for each in report.nodes.values()}


def chain(*names: str, make: Callable[..., Any] | None = None) -> Pipeline:
    """A pipeline in which each node reads from the one before it."""
    pipeline = Pipeline("chain")
    before: str | None = None
    for name in names:
        needs = {"value": before} if before else {}
        function = make or (_next if before else _first)
        pipeline.node(name, needs=needs, params={} if before else {"start": name})(function)
        before = name
    return pipeline


def _first(start: str) -> list[str]:
    return [start]


def _next(value: list[str]) -> list[str]:
    return [*value, "then"]
