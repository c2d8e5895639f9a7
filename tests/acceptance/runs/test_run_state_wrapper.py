"""`kfm.run_state` around callables: decided, skipped, run and recorded as nodes of pipelines are."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import kfm
from kfm.model.errors import Busy, PipelineError, UnhashableInput, UnserialisableValue, UsageError
from kfm.pipelines.project import open_project
from kfm.pipelines.run_state import RunStateWrapper


class Effects:
    """Seen from outside: an object's content is no part of a function's code."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def __call__(self, what: Any) -> None:
        self.seen.append(what)


@pytest.fixture
def ran() -> Effects:
    return Effects()


@pytest.fixture
def wrapped(tmp_path: Path) -> Any:
    def make(dataset_id: str, **options: Any) -> RunStateWrapper:
        return kfm.run_state(dataset_id, directory=str(tmp_path), **options)

    return make


@pytest.mark.req("RS-3", "RS-4")
def test_a_second_call_answers_from_the_store(wrapped: Any, ran: Effects, tmp_path: Path) -> None:
    """The same arguments and inputs: the callable is not called, and its stored value is returned."""
    (tmp_path / "a.csv").write_text("1")

    @wrapped("soil.map", inputs=["a.csv"], params={"cell_m": 250})
    def soil_map(county: str, cell_m: int, ctx: Any) -> dict[str, Any]:
        """Documented."""
        ran(county)
        ctx.validate("a county", bool(county))
        return {"county": county, "cell_m": cell_m}

    first = soil_map("Ellis")
    assert soil_map("Ellis") == first == {"county": "Ellis", "cell_m": 250}
    assert ran.seen == ["Ellis"]
    assert soil_map("Riley")["county"] == "Riley"
    assert soil_map("Ellis", cell_m=100)["cell_m"] == 100
    assert soil_map("Ellis") == first
    assert ran.seen == ["Ellis", "Riley", "Ellis"]
    (tmp_path / "a.csv").write_text("22")
    assert soil_map("Ellis") == first
    assert ran.seen == ["Ellis", "Riley", "Ellis", "Ellis"]
    assert soil_map.__doc__ == "Documented."


@pytest.mark.req("RS-6")
def test_what_can_not_be_hashed_is_refused_by_name(wrapped: Any, ran: Effects) -> None:
    """An argument that tells nothing of its content: the callable is not called; `params` is the way out."""

    @wrapped("model")
    def model(client: object, question: str) -> str:
        ran(question)
        return question.upper()

    with pytest.raises(UnhashableInput, match=r"client is a builtins\.object") as caught:
        model(object(), "why")
    assert "params=lambda" in caught.value.way_out
    assert ran.seen == []

    @wrapped("model", params=lambda client, question: {"question": question})
    def told(client: object, question: str) -> str:
        ran(question)
        return question.upper()

    assert [told(object(), "why"), told(object(), "why")] == ["WHY", "WHY"]
    assert ran.seen == ["why"]


def test_arguments_count_by_what_they_hold(wrapped: Any, ran: Effects) -> None:
    """Bytes by their hash, lists and mappings by their members, paths by their names."""

    @wrapped("sizes")
    def sizes(*parts: Any, **more: Any) -> int:
        ran(len(parts))
        return len(parts) + len(more)

    for _ in range(2):
        assert sizes(b"one", [1, {"a": None}], Path("x"), last=1.5) == 4
    assert ran.seen == [3]
    sizes(b"two", [1, {"a": None}], Path("x"), last=1.5)
    sizes(b"one", [1, {"a": 0}], Path("x"), last=1.5)
    assert len(ran.seen) == 3


@pytest.mark.req("RS-3")
def test_a_block_is_told_whether_it_must_run(wrapped: Any, ran: Effects) -> None:
    """Around a block: it runs if it must and says what it made; else it is given what is stored."""
    for expected in (True, False):
        with wrapped("block", params={"cell_m": 250}) as node:
            assert node.must_run is expected
            if node.must_run:
                node.ctx.validate("all is well", True)
                ran("block")
                node.result = {"made": 1}
        assert node.result == {"made": 1}
    assert ran.seen == ["block"]
    assert node.settled.outcome == "skipped"


def test_a_block_that_fails_is_on_record_and_runs_again(wrapped: Any, tmp_path: Path) -> None:
    """The block's own error comes out, and nothing it made counts."""
    for _ in range(2):
        with pytest.raises(ZeroDivisionError), wrapped("block", run_id="r") as node:
            assert node.must_run
            node.result = 1 / 0
    with open_project(str(tmp_path)) as place:
        (record,) = place.tables.of_run("r")
        assert (record.outcome, record.attempt) == ("failed", 2)
        kept = place.tables.get("r")
        assert kept is not None
        assert (kept.state, kept.counts) == ("failed", {"failed": 1})


def test_a_callable_s_own_error_comes_out(wrapped: Any, tmp_path: Path) -> None:
    """The caller gets what the callable raised; it is on record; the next call tries again."""
    trouble = Effects()
    trouble(1)

    @wrapped("fetch", run_id="r")
    def fetch() -> int:
        if trouble.seen:
            raise LookupError("not yet")
        return 1

    with pytest.raises(LookupError, match="not yet"):
        fetch()
    trouble.seen.clear()
    assert fetch() == 1
    with open_project(str(tmp_path)) as place:
        (record,) = place.tables.of_run("r")
        assert (record.outcome, record.attempt, record.reason) == ("success", 2, "failed before")

    @wrapped("odd")
    def odd() -> object:
        return object()

    with pytest.raises(UnserialisableValue, match=r"builtins\.object"):
        odd()


def test_coroutines_stay_in_their_loop(wrapped: Any, ran: Effects) -> None:
    """A coroutine function is awaited in the caller's own loop, and can be cancelled."""

    @wrapped("later")
    async def later(number: int) -> int:
        ran(asyncio.get_running_loop())
        await asyncio.sleep(0)
        return number + 1

    async def twice() -> None:
        assert await later(1) == await later(1) == 2
        assert ran.seen == [asyncio.get_running_loop()]

    asyncio.run(twice())
    begun = threading.Event()

    @wrapped("endless", run_id="r", wait_s=0)
    async def endless() -> None:
        begun.set()
        await asyncio.sleep(3600)

    async def stopped() -> None:
        task = asyncio.ensure_future(endless())
        await asyncio.to_thread(begun.wait, 30)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(stopped())


def declared() -> kfm.Pipeline:
    pipeline = kfm.Pipeline("soil")

    @pipeline.node("soil.samples", inputs=["a.csv"])
    def samples() -> list[int]:
        return [1, 2]

    @pipeline.node("soil.mean", params={"digits": 1})
    def mean(samples: list[int], digits: int) -> float:
        return round(sum(samples) / len(samples), digits)

    return pipeline


def alone(wrapped: Any, pipeline: kfm.Pipeline, node: str, run_id: str) -> Any:
    """As an adapter does it."""
    spec, wired = pipeline.nodes[node], pipeline.graph()
    state = wrapped(
        node,
        inputs=spec.inputs,
        params=spec.params,
        needs=wired.bindings[node],
        run_id=run_id,
        pipeline=pipeline.id,
        graph=[(each, wired.reads[each]) for each in wired.order],
    )
    return state.settle(spec.function)


@pytest.mark.req("RS-3", "RS-4")
def test_a_pass_and_lone_nodes_leave_alone_what_the_other_did(wrapped: Any, tmp_path: Path) -> None:
    """One decision and one store: whether nodes come in one pass or one by one makes no difference."""
    (tmp_path / "a.csv").write_text("1")
    pipeline = declared()
    for node in ("soil.samples", "soil.mean"):
        assert alone(wrapped, pipeline, node, "r1").ran
    report = pipeline.run(directory=str(tmp_path))
    assert {each.reason for each in report.nodes.values()} == {"unchanged"}
    settled = alone(wrapped, pipeline, "soil.samples", "r2")
    assert (settled.ran, settled.outcome, settled.made_by) == (False, "skipped", "r1")
    assert alone(wrapped, pipeline, "soil.mean", "r2").value == 1.5
    with open_project(str(tmp_path)) as place:
        kept = place.tables.get("r2")
        assert kept is not None
        assert (kept.pipeline_id, kept.state, kept.counts) == ("soil", "success", {"skipped": 2})
        assert [node for node, _ in kept.graph] == ["soil.samples", "soil.mean"]


def test_a_lone_node_reads_what_its_own_run_made(wrapped: Any, tmp_path: Path) -> None:
    """What it needs was made in the same run; where the caller names no run, the branch's newest counts."""
    (tmp_path / "a.csv").write_text("1")
    pipeline = declared()
    alone(wrapped, pipeline, "soil.samples", "r1")
    with pytest.raises(PipelineError, match=r"soil.samples, of which there is no result in run r2"):
        alone(wrapped, pipeline, "soil.mean", "r2")

    @wrapped("soil.count", needs={"samples": "soil.samples"})
    def count(samples: list[int]) -> int:
        return len(samples)

    assert count() == 2


PROGRAM = """\
import os, sys, time
import kfm

@kfm.run_state("slow", run_id=sys.argv[1], wait_s=60)
def slow():
    file = os.open("ran.txt", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, b"ran\\n")
    while not os.path.exists("go"):
        time.sleep(0.01)
    return 7

print(slow())
"""


@pytest.mark.req("RS-3")
def test_of_many_processes_one_runs_a_node(tmp_path: Path) -> None:
    """Those that come while it is at work wait for it, and take what it made."""
    (tmp_path / "program.py").write_text(PROGRAM)
    started = [
        subprocess.Popen(
            [sys.executable, "program.py", f"r{number}"], cwd=tmp_path, stdout=subprocess.PIPE, text=True
        )
        for number in range(3)
    ]
    try:
        while not (tmp_path / "ran.txt").exists():
            assert all(process.poll() is None for process in started)
        (tmp_path / "go").touch()
        assert [process.communicate(timeout=60)[0].strip() for process in started] == ["7", "7", "7"]
    finally:
        for process in started:
            process.kill()
            process.wait()
    assert (tmp_path / "ran.txt").read_text() == "ran\n"


def test_a_node_at_work_is_busy_and_its_run_is_running(wrapped: Any, tmp_path: Path) -> None:
    """With no time to wait: Busy, also for a pass over its pipeline; its run ends when the last node does."""
    (tmp_path / "a.csv").write_text("1")
    with wrapped("soil.samples", run_id="r", pipeline="soil") as node:
        node.result = [1]
        with pytest.raises(Busy), wrapped("soil.samples", run_id="other", wait_s=0):
            pass
        with pytest.raises(Busy):
            declared().run(directory=str(tmp_path))
        wrapped("soil.other", run_id="r", pipeline="soil").settle(lambda: 1)
        with open_project(str(tmp_path)) as place:
            kept = place.tables.get("r")
            assert kept is not None
            assert (kept.state, kept.ended_at_ms, kept.counts) == ("running", None, {"success": 1})
    with open_project(str(tmp_path)) as place:
        kept = place.tables.get("r")
        assert kept is not None
        assert (kept.state, kept.counts) == ("success", {"success": 2})
        assert [name for name, _ in kept.graph] == ["soil.samples", "soil.other"]


def test_a_block_takes_no_function_of_arguments(wrapped: Any) -> None:
    """There are no arguments to be a function of; said before anything is begun."""
    with pytest.raises(UsageError, match="mapping"), wrapped("block", params=dict):
        pass
