"""Passes over nodes that have nothing to do, beside tools that are known to be good at it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import orjson
from msgspec.structs import replace

from bench.admission import _folder as scratch
from bench.harness import Benchmark
from kfm.model.records import Output
from kfm.pipelines.declaration import Pipeline
from kfm.pipelines.execution import PipelineExecutor
from kfm.pipelines.options import PipelineKernel
from kfm.pipelines.planner import PipelinePlanner
from kfm.pipelines.project import PipelineProject, make_options, open_project
from kfm.pipelines.workers import NodeJob, NodeResult

NODES = 10_000
LEAVES = 100
BATCH = 1000

FLOW = f"""\
import kfm

pipeline = kfm.Pipeline("bench")


def leaf(ctx):
    return ctx.node


def join(a, b):
    return [a[:20], b[:20]]


for number in range({NODES}):
    if number < {LEAVES}:
        pipeline.node(f"n{{number:06}}", inputs=[f"in/{{number}}.txt"])(leaf)
    else:
        needs = {{"a": f"n{{number - {LEAVES}:06}}", "b": f"n{{number // 2:06}}"}}
        pipeline.node(f"n{{number:06}}", needs=needs)(join)
"""

DODO = f"""\
def make(target):
    open(target, "w").close()


def task_all():
    for number in range({NODES}):
        if number < {LEAVES}:
            before = [f"in/{{number}}.txt"]
        else:
            before = [f"out/{{number - {LEAVES}}}", f"out/{{number // 2}}"]
        yield {{
            "name": str(number),
            "file_dep": before,
            "targets": [f"out/{{number}}"],
            "actions": [(make, [f"out/{{number}}"])],
            "uptodate": [True],
        }}


DOIT_CONFIG = {{"verbosity": 0, "reporter": "zero"}}
"""


def _ninja() -> str:
    lines = ["rule touch", "  command = touch $out"]
    for number in range(NODES):
        before = f"in/{number}.txt" if number < LEAVES else f"out/{number - LEAVES} out/{number // 2}"
        lines.append(f"build out/{number}: touch {before}")
    return "\n".join(lines) + "\n"


# --- a project in which everything is done ---------------------------------------------------------


class Pretence:
    """Workers that claim to have done their jobs, many at a time: it is what comes afterwards that counts."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._jobs: list[NodeJob] = []

    def __enter__(self) -> Pretence:
        return self

    def __exit__(self, *problem: object) -> None:
        self._jobs = []

    @property
    def busy(self) -> bool:
        return bool(self._jobs)

    @property
    def full(self) -> bool:
        return len(self._jobs) >= BATCH

    def start(self, job: NodeJob) -> None:
        self._jobs.append(job)

    def wait(self, cancelled: threading.Event) -> list[NodeResult]:
        del cancelled
        jobs, self._jobs = self._jobs, []
        summary = {"checks": 0, "passed": 0, "failed": 0}
        return [NodeResult(job, "success", (self._made(job.spec.id),), summary, None, 0) for job in jobs]

    def _made(self, name: str) -> Output:
        data = orjson.dumps(name)
        digest = sha256(data).hexdigest()
        path = self._folder / digest[:2] / digest[2:]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return Output(name="value.json", checksum=f"sha256:{digest}", size=len(data))


def _kernel(place: PipelineProject) -> PipelineKernel:
    return place.kernel(lambda _report: None)


def _fill(place: PipelineProject, pipeline: Pipeline) -> None:
    pretence = Pretence(Path(place.state) / "objects" / "sha256")
    kernel = replace(_kernel(place), workers=lambda _jobs: pretence, emitter=None)
    report = PipelineExecutor(PipelinePlanner(kernel, pipeline, make_options(pipeline, place))).run()
    assert report.state == "success", report.error


def _project(stack: ExitStack) -> Path:
    folder = Path(scratch(stack))
    (folder / "in").mkdir()
    (folder / "out").mkdir()
    for number in range(LEAVES):
        path = folder / "in" / f"{number}.txt"
        path.write_text(str(number))
        os.utime(path, (1_700_000_000, 1_700_000_000))
    (folder / "flow.py").write_text(FLOW)
    (folder / "dodo.py").write_text(DODO)
    (folder / "build.ninja").write_text(_ninja())
    names: dict[str, Any] = {}
    before = os.getcwd()
    os.chdir(folder)
    try:
        exec(compile(FLOW, str(folder / "flow.py"), "exec"), names)
        with open_project(str(folder)) as place:
            _fill(place, names["pipeline"])
    finally:
        os.chdir(before)
    return folder


# --- whole processes ---------------------------------------------------------------------------------


def _run(folder: Path, *command: str) -> None:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("KFM_")}
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (command, done.stdout[-500:], done.stderr[-500:])


def _ours(folder: Path) -> None:
    _run(folder, sys.executable, "-m", "kfm", "pipeline", "run", "flow.py", "--directory", ".")


BY_HAND = """\
import os, sys, types
from hashlib import sha256
import apsw

class Pipeline:
    def __init__(self, id): self.nodes = {}
    def node(self, id, inputs=(), needs={}):
        def declare(function):
            self.nodes[id] = (function, inputs, needs)
            return function
        return declare

sys.modules["kfm"] = types.SimpleNamespace(Pipeline=Pipeline)
names = {}
exec(compile(open("flow.py").read(), "flow.py", "exec"), names)
nodes = names["pipeline"].nodes
database = apsw.Connection(".kfm/kfm.db")
database.pragma("synchronous", "FULL")
query = "SELECT dataset_id, inputs_hash, outputs_hash FROM node_heads WHERE branch = 'main'"
heads = {row[0]: row for row in database.execute(query)}
for name, (_, inputs, needs) in nodes.items():
    if inputs:
        os.stat(inputs[0])
    else:
        upstream = sorted(set(needs.values()))
        rows = ",".join([f'{{"checksum":"{heads[each][2]}","id":"{each}"}}' for each in upstream])
        document = f'{{"inputs":[{rows}],"kfm":"inputs/1","params":{{}}}}'
        assert heads[name][1] == "sha256:" + sha256(document.encode()).hexdigest(), name
    digest = heads[name][2]
    os.stat(f".kfm/objects/sha256/{digest[7:9]}/{digest[9:]}")
"""


def _by_hand(folder: Path) -> None:
    """Declared, read, hashed and looked at; no lock, no record, no command line."""
    _run(folder, sys.executable, "-c", BY_HAND)


def _by_ninja(folder: Path) -> None:
    _run(folder, str(Path(sys.executable).parent / "ninja"))


def _by_doit(folder: Path) -> None:
    _run(folder, sys.executable, "-m", "doit")


# --- inside one process --------------------------------------------------------------------------------


@dataclass
class Inside:
    place: PipelineProject
    pipelines: dict[int, Pipeline]

    def loop(self) -> float:
        """Seconds to read what is known and to decide about every node, the graph being there."""
        pipeline = self.pipelines[NODES]
        planner = PipelinePlanner(_kernel(self.place), pipeline, make_options(pipeline, self.place))
        began_s = time.perf_counter()
        pending = planner.pending()
        took_s = time.perf_counter() - began_s
        assert not pending
        return took_s

    def floor(self, *, looks: bool = False) -> float:
        """Seconds for one query over the same rows, and a small document and its hash for each. `looks`: and
        for a look at the object of each, without which it is not known that there is nothing to do."""
        session, folder = self.place.store.database.session, f"{self.place.state}/objects/sha256/"
        began_s = time.perf_counter()
        rows = session.all("node_heads.of_branch", branch="main", first="p10000.", last="p10000.~")
        for row in rows:
            document = {
                "inputs": [{"checksum": row[3], "id": row[6]}, {"checksum": row[3], "id": row[0]}],
                "kfm": "inputs/1",
                "params": {},
            }
            sha256(orjson.dumps(document, option=orjson.OPT_SORT_KEYS)).hexdigest()
        if looks:
            for row in rows:
                os.stat(f"{folder}{row[3][7:9]}/{row[3][9:]}")
        took_s = time.perf_counter() - began_s
        assert len(rows) == NODES
        return took_s

    def whole(self, size: int) -> float:
        pipeline = self.pipelines[size]
        began_s = time.perf_counter()
        options = make_options(pipeline, self.place)
        report = PipelineExecutor(PipelinePlanner(_kernel(self.place), pipeline, options)).run()
        took_s = time.perf_counter() - began_s
        assert report.counts["skipped"] == size
        return took_s

    def slope(self, small: int, large: int) -> float:
        """Seconds for each node more."""
        return (self.whole(large) - self.whole(small)) / (large - small)


def _graph(size: int) -> Pipeline:
    pipeline = Pipeline(f"bench-{size}")

    def leaf(number: int) -> int:
        return number

    def join(a: int, b: int) -> int:
        return a + b

    for number in range(size):
        name = f"p{size}.n{number:06}"
        if number < LEAVES:
            pipeline.node(name, params={"number": number})(leaf)
        else:
            needs = {"a": f"p{size}.n{number - LEAVES:06}", "b": f"p{size}.n{number // 2:06}"}
            pipeline.node(name, needs=needs)(join)
    return pipeline


def _inside(stack: ExitStack, *sizes: int) -> Inside:
    place = stack.enter_context(open_project(scratch(stack)))
    pipelines = {size: _graph(size) for size in sizes}
    for pipeline in pipelines.values():
        _fill(place, pipeline)
    return Inside(place, pipelines)


def benchmarks() -> list[Benchmark]:
    return [
        Benchmark(
            name="noop_vs_ninja",
            kind="cost",
            goal=4.0,
            setup=lambda stack: _ready(stack, _by_ninja),
            ours=_ours,
            reference=_by_ninja,
            rounds=15,
        ),
        Benchmark(  # beside the goals: the least that Python does for the same file, without kfm
            name="noop_floor_vs_ninja",
            kind="cost",
            goal=4.0,
            setup=lambda stack: _ready(stack, _by_ninja),
            ours=_by_hand,
            reference=_by_ninja,
            rounds=15,
        ),
        Benchmark(
            name="noop_vs_doit",
            kind="speedup",
            goal=3.0,
            setup=lambda stack: _ready(stack, _by_doit),
            ours=_ours,
            reference=_by_doit,
            rounds=7,
        ),
        Benchmark(
            name="noop_loop",
            kind="cost",
            goal=2.5,
            setup=lambda stack: _inside(stack, NODES),
            ours=lambda inside: inside.loop(),
            reference=lambda inside: inside.floor(),
            rounds=21,
        ),
        Benchmark(  # beside the goals: with the look at each object on both sides
            name="noop_loop_vs_looks",
            kind="cost",
            goal=2.0,
            setup=lambda stack: _inside(stack, NODES),
            ours=lambda inside: inside.loop(),
            reference=lambda inside: inside.floor(looks=True),
            rounds=21,
        ),
        Benchmark(
            name="noop_growth",
            kind="cost",
            goal=1.2,
            setup=lambda stack: _inside(stack, 1000, 10_000, 100_000),
            ours=lambda inside: inside.slope(10_000, 100_000),
            reference=lambda inside: inside.slope(1000, 10_000),
            rounds=7,
        ),
    ]


def _ready(stack: ExitStack, tool: Any) -> Path:
    folder = _project(stack)
    tool(folder)  # makes everything
    return folder
