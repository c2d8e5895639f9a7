"""One pipeline run after another: which nodes run, which are skipped, and why."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kfm.model.errors import Busy, LostLease, NodesFailed, PipelineError, UnserialisableValue, UsageError
from kfm.model.run_state import outputs_of
from kfm.pipelines.declaration import Pipeline
from kfm.pipelines.options import PipelineReport
from tests.workshop import Workshop, chain, ran, reasons


@pytest.fixture
def shop() -> Workshop:
    return Workshop()


def soil(shop: Workshop, *, cell: int = 250) -> Pipeline:
    pipeline = Pipeline("soil")

    @pipeline.node("soil.samples", inputs=["data/*.csv"])
    def samples() -> str:
        return b"".join(shop.files.kept[path] for path in shop.files.match("data/*.csv")).decode()

    @pipeline.node("soil.map", params={"cell": cell})
    def soil_map(samples: str, cell: int, ctx: Any) -> dict[str, Any]:
        ctx.validate("there is something", bool(samples))
        return {"cell": cell, "length": len(samples)}

    @pipeline.node("soil.page")
    def page(soil_map: dict[str, Any], ctx: Any) -> None:
        ctx.publisher.write_file("page.html", f"<p>{soil_map['length']}")

    return pipeline


@pytest.mark.req("RS-3", "RS-4")
def test_the_same_inputs_twice_run_once(shop: Workshop) -> None:
    """A second pass over the same inputs does nothing, and says which run made what."""
    shop.files.write("data/a.csv", b"1")
    first = shop.run(soil(shop))
    assert (first.state, ran(first)) == ("success", ["soil.map", "soil.page", "soil.samples"])
    second = shop.run(soil(shop))
    assert (second.state, ran(second)) == ("success", [])
    assert set(reasons(second).values()) == {"unchanged"}
    kept = {node.dataset_id: node for node in shop.states.of_run(second.run_id)}
    assert {node.outcome for node in kept.values()} == {"skipped"}
    assert {node.skipped_because for node in kept.values()} == {first.run_id}
    assert kept["soil.page"].outputs, "what a skipped node made can be read from its record"


@pytest.mark.req("RS-3", "RS-6")
def test_a_changed_file_runs_what_reads_it_and_what_reads_that(shop: Workshop) -> None:
    """From the changed input on, and nothing beside it."""
    shop.files.write("data/a.csv", b"1")
    shop.run(soil(shop))
    shop.files.write("data/a.csv", b"22", at_ns=1)
    second = shop.run(soil(shop))
    assert ran(second) == ["soil.map", "soil.page", "soil.samples"]
    assert reasons(second)["soil.samples"] == "inputs changed"


@pytest.mark.req("RS-6")
def test_a_changed_parameter_runs_its_node_and_its_dependants_only(shop: Workshop) -> None:
    """Parameters are part of the hash."""
    shop.files.write("data/a.csv", b"1")
    shop.run(soil(shop))
    assert ran(shop.run(soil(shop, cell=100))) == ["soil.map", "soil.page"]


@pytest.mark.req("RS-4")
def test_going_back_to_earlier_inputs_runs_nothing(shop: Workshop) -> None:
    """An older run with the same inputs and code satisfies a node, too."""
    shop.files.write("data/a.csv", b"1")
    first = shop.run(soil(shop))
    shop.run(soil(shop, cell=100))
    back = shop.run(soil(shop))
    assert ran(back) == []
    assert back.nodes["soil.map"].made_by == first.run_id


@pytest.mark.req("RS-3")
def test_a_result_that_went_away_or_was_altered_is_made_again(shop: Workshop) -> None:
    """A success whose outputs were altered or removed does not count."""
    shop.files.write("data/a.csv", b"1")
    first = shop.run(soil(shop))
    (page,) = next(n for n in shop.states.of_run(first.run_id) if n.dataset_id == "soil.page").outputs
    shop.objects.delete(page.checksum.removeprefix("sha256:"))
    second = shop.run(soil(shop))
    assert (ran(second), reasons(second)["soil.page"]) == (["soil.page"], "page.html is gone")
    shop.objects.kept[page.checksum.removeprefix("sha256:")] = b"something longer than it was"
    third = shop.run(soil(shop))
    assert (ran(third), reasons(third)["soil.page"]) == (["soil.page"], "page.html is altered")


@pytest.mark.req("RS-3")
def test_files_that_a_node_writes_itself_are_watched(shop: Workshop) -> None:
    """Declared outputs are checksummed, and missed when they are changed or gone."""
    pipeline = Pipeline("files")

    @pipeline.node("made", outputs=["out.txt"])
    def made() -> None:
        shop.files.write("out.txt", b"made")

    assert ran(shop.run(pipeline)) == ["made"]
    assert ran(shop.run(pipeline)) == []
    shop.files.write("out.txt", b"MADE", at_ns=5)
    assert reasons(shop.run(pipeline))["made"] == "out.txt is altered"
    del shop.files.kept["out.txt"]
    assert reasons(shop.run(pipeline))["made"] == "out.txt is gone"


@pytest.mark.req("RS-9")
def test_a_run_goes_on_where_it_broke_off(shop: Workshop) -> None:
    """Resumed, a run repeats nothing that it has done, and tries again what failed."""
    trouble = [True]
    pipeline = Pipeline("broken")

    @pipeline.node("one")
    def one() -> int:
        return 1

    @pipeline.node("two")
    def two(one: int) -> int:
        if trouble:
            raise OSError("no")
        return one + 1

    @pipeline.node("three")
    def three(two: int) -> int:
        return two + 1

    first = shop.run(pipeline, run_id="r")
    assert (first.state, first.nodes["three"].outcome, first.nodes["three"].reason) == (
        "failed",
        None,
        "two failed",
    )
    assert isinstance(first.error, NodesFailed)
    trouble.clear()
    second = shop.run(pipeline, run_id="r")
    assert (second.state, second.attempt, ran(second)) == ("success", 2, ["three", "two"])
    assert second.nodes["one"].reason == "done already in this run"
    assert [node.attempt for node in shop.states.of_run("r")] == [1, 1, 2]


@pytest.mark.req("RS-4")
def test_what_was_done_in_part_is_done_again(shop: Workshop) -> None:
    """Partial never satisfies, neither in the run nor across runs; the pass says that it is partial."""
    pipeline = Pipeline("part")

    @pipeline.node("half")
    def half(ctx: Any) -> int:
        ctx.partial("one of two")
        return 1

    @pipeline.node("reader")
    def reader(half: int) -> int:
        return half

    first = shop.run(pipeline, run_id="r")
    assert (first.state, first.nodes["half"].outcome) == ("partial", "partial")
    assert ran(shop.run(pipeline, run_id="r")) == ["half"]
    assert ran(shop.run(pipeline)) == ["half"]


@pytest.mark.req("RS-4")
def test_a_pipeline_can_keep_to_its_own_run(shop: Workshop) -> None:
    """With skip_scope run, no other run's result counts."""
    pipeline = chain("a", "b")
    pipeline.skip_scope = "run"
    shop.run(pipeline)
    assert ran(shop.run(pipeline)) == ["a", "b"]


@pytest.mark.req("RS-9")
def test_a_fork_runs_from_its_node_on(shop: Workshop) -> None:
    """A fork takes over what the other run made, up to the node that it begins from."""
    first = shop.run(chain("a", "b", "c"))
    forked = shop.run(chain("a", "b", "c"), fork_of=first.run_id, fork_from="b")
    assert ran(forked) == ["b", "c"]
    assert forked.nodes["a"].made_by == first.run_id
    with pytest.raises(UsageError, match=r"did you mean `aaaa`\?$"):
        shop.run(chain("aaaa", "b"), fork_of=first.run_id, fork_from="aaab")


def length_of(shop: Workshop, report: PipelineReport) -> dict[str, Any]:
    """What the node `soil.map` of a pipeline run has for those that read from it."""
    (output,) = outputs_of(report.nodes["soil.map"].outputs)
    value: dict[str, Any] = json.loads(shop.objects.kept[output.checksum.removeprefix("sha256:")])
    return value


@pytest.mark.req("RS-4", "RS-9")
def test_a_skip_rests_on_what_its_maker_made_then(shop: Workshop) -> None:
    """A run that skipped a node never takes for its result what the maker made of other inputs since."""
    shop.files.write("data/a.csv", b"1")
    shop.run(soil(shop), run_id="maker")
    assert ran(shop.run(soil(shop), run_id="reader")) == []
    assert ran(shop.run(soil(shop, cell=100), run_id="maker")) == ["soil.map", "soil.page"]

    resumed = shop.run(soil(shop), run_id="reader")
    assert length_of(shop, resumed)["cell"] == 250
    assert ran(resumed) == ["soil.map", "soil.page"], "nothing has that result any more"
    kept = {node.dataset_id: node for node in shop.states.of_run("reader")}
    assert kept["soil.map"].outputs == outputs_of(resumed.nodes["soil.map"].outputs)


@pytest.mark.req("RS-4")
def test_a_fork_takes_over_only_what_is_still_on_record(shop: Workshop) -> None:
    """What the forked run had skipped, and its maker has made of other inputs since, is made again."""
    shop.files.write("data/a.csv", b"1")
    shop.run(soil(shop), run_id="maker")
    shop.run(soil(shop), run_id="reader")
    shop.run(soil(shop, cell=100), run_id="maker")

    forked = shop.run(soil(shop), fork_of="reader", fork_from="soil.page")
    assert length_of(shop, forked)["cell"] == 250
    assert ran(forked) == ["soil.map", "soil.page"]


@pytest.mark.req("RS-4", "RS-9")
def test_a_skip_is_not_done_if_its_maker_failed_since(shop: Workshop) -> None:
    """A maker that ran again, and failed, leaves nothing to those that had skipped the node."""
    trouble = [False]
    pipeline = Pipeline("soil")

    @pipeline.node("soil.map")
    def soil_map() -> dict[str, Any]:
        if trouble[0]:
            raise OSError("no disk")
        return {"cell": 250}

    shop.run(pipeline, run_id="maker")
    assert ran(shop.run(pipeline, run_id="reader")) == []
    trouble[0] = True
    assert shop.run(pipeline, run_id="maker", force=("soil.map",)).state == "failed"
    trouble[0] = False

    resumed = shop.run(pipeline, run_id="reader")
    assert length_of(shop, resumed) == {"cell": 250}
    assert (ran(resumed), resumed.nodes["soil.map"].reason) == ([], "unchanged")


def test_keep_going_runs_all_that_can_run(shop: Workshop) -> None:
    """Fail-fast stops at the first failure; with keep_going only its dependants wait."""
    pipeline = Pipeline("wide")

    @pipeline.node("bad")
    def bad() -> None:
        raise ValueError("no")

    @pipeline.node("child")
    def child(bad: Any) -> None: ...

    @pipeline.node("good")
    def good() -> int:
        return 1

    fast = shop.run(pipeline)
    assert (fast.nodes["good"].outcome, fast.nodes["good"].reason) == (
        None,
        "the pipeline run stopped before",
    )
    slow = shop.run(pipeline, keep_going=True)
    assert (slow.nodes["good"].outcome, slow.nodes["child"].reason) == ("success", "bad failed")
    assert slow.counts == {"success": 1, "skipped": 0, "failed": 1, "partial": 0, "blocked": 1, "done": 0}


@pytest.mark.req("RS-7")
def test_a_check_that_fails_fails_its_node(shop: Workshop) -> None:
    """Checks are counted in the record; a failed one is a failed node, and its record says which."""
    pipeline = Pipeline("checked")

    @pipeline.node("checked")
    def checked(ctx: Any) -> int:
        ctx.validate("first", True)
        ctx.validate("second", False, "3 rows too many")
        return 1

    report = shop.run(pipeline)
    node = shop.states.one(report.run_id, "checked")
    assert node is not None
    assert (node.outcome, node.validation_summary) == ("failed", {"checks": 2, "passed": 1, "failed": 1})
    assert "second: 3 rows too many" in (node.error_message or "")


@pytest.mark.req("RS-3")
def test_threads_run_nodes_side_by_side_and_in_order(shop: Workshop) -> None:
    """Bounded concurrency never starts a node before what it reads from is recorded."""
    pipeline = Pipeline("layers")
    for layer in range(4):
        for place in range(5):
            needs = {f"v{i}": f"n{layer - 1}{i}" for i in range(5)} if layer else {}
            pipeline.node(f"n{layer}{place}", needs=needs, params={} if layer else {"place": place})(
                _sum if layer else _place
            )
    report = shop.run(pipeline, jobs=4)
    assert (report.state, len(ran(report))) == ("success", 20)
    assert ran(shop.run(pipeline, jobs=4)) == []


def _place(place: int) -> int:
    return place


def _sum(v0: int, v1: int, v2: int, v3: int, v4: int) -> int:
    return v0 + v1 + v2 + v3 + v4


def test_a_pipeline_of_coroutines_runs(shop: Workshop) -> None:
    """async def nodes are awaited."""
    pipeline = Pipeline("later")

    @pipeline.node("later")
    async def later() -> int:
        return 7

    assert shop.run(pipeline).state == "success"


@pytest.mark.req("RS-6")
def test_an_input_that_cannot_be_told_fails_closed_and_names_itself(shop: Workshop) -> None:
    """Nothing runs on inputs that can't be identified."""
    pipeline = Pipeline("far")

    @pipeline.node("far", inputs=["https://example.org/x"])
    def far() -> int:
        raise AssertionError("it must not run")

    report = shop.run(pipeline)
    assert report.state == "failed"
    assert "https://example.org/x" in str(report.error)
    shop.far.tags["https://example.org/x"] = '"1"'

    missing = Pipeline("missing")
    missing.node("missing", inputs=["no/such.csv"])(lambda: 1)
    assert "no/such.csv" in str(shop.run(missing).error)


def test_a_value_that_cannot_be_kept_names_its_field(shop: Workshop) -> None:
    """What is not plain is refused, with the very place."""
    pipeline = Pipeline("odd")

    @pipeline.node("odd")
    def odd() -> Any:
        return {"rows": [1, {"when": object()}]}

    report = shop.run(pipeline)
    error = report.nodes["odd"].error
    assert isinstance(error, UnserialisableValue)
    assert "the value.rows[1].when" in error.message


def test_circles_and_doubles_are_told_by_name() -> None:
    """A graph that can't be is refused before anything runs, and the message shows where."""
    circle = Pipeline("circle")
    circle.node("a", needs={"x": "c"})(lambda x: x)
    circle.node("b", needs={"x": "a"})(lambda x: x)
    circle.node("c", needs={"x": "b"})(lambda x: x)
    with pytest.raises(PipelineError, match="a → c → b → a"):
        circle.graph()
    twice = Pipeline("twice")
    twice.node("a")(lambda: 1)
    with pytest.raises(PipelineError, match="Two nodes are called a"):
        twice.node("a")(lambda: 2)
    lost = Pipeline("lost")
    lost.node("sample")(_sample)
    lost.node("other")(lambda samples: samples)
    with pytest.raises(PipelineError, match="did you mean `_sample`"):
        lost.graph()


def _sample() -> int:
    return 1


@pytest.mark.req("RS-2")
def test_a_second_process_waits_its_turn_and_a_stale_one_writes_nothing(shop: Workshop) -> None:
    """One pipeline run at a time on a branch; a process that lost the lock records nothing."""
    inner: list[Any] = []
    pipeline = Pipeline("busy")

    @pipeline.node("outer")
    def outer() -> int:
        with pytest.raises(Busy):
            shop.run(chain_of("busy"))
        inner.append(1)
        return 1

    assert shop.run(pipeline).state == "success"
    assert inner == [1]

    stolen = Pipeline("stolen")

    @stolen.node("slow")
    def slow() -> int:
        shop.living.dead.add("w1")
        shop.run(chain_of("stolen"), run_id="thief", kernel=shop.kernel("w2"))
        return 1

    with pytest.raises(LostLease):
        shop.run(stolen, run_id="victim", kernel=shop.kernel("w1"))
    assert shop.states.one("victim", "slow") is None


def chain_of(name: str) -> Pipeline:
    pipeline = Pipeline(name)
    pipeline.node("x")(lambda: 2)
    return pipeline


def test_a_file_is_read_once_while_it_stays_the_same(shop: Workshop) -> None:
    """Checksums are remembered by size, time and inode, and taken again on request."""
    shop.files.write("data/a.csv", b"1")
    shop.run(soil(shop))
    shop.run(soil(shop))
    assert shop.files.reads == ["data/a.csv"]
    shop.run(soil(shop), verify=True)
    assert shop.files.reads == ["data/a.csv"] * 2


def test_a_node_is_run_again_when_a_function_that_it_calls_was_changed(shop: Workshop) -> None:
    """The code of a node is its own text and that of what it uses from its file; other nodes don't matter."""
    text = (
        "def helper():\n    return {0}\n\ndef used():\n    return helper()\n\ndef beside():\n    return {1}\n"
    )

    def made(helper: int, beside: int) -> Pipeline:
        import linecache

        source = text.format(helper, beside)
        linecache.cache["flow.py"] = (len(source), None, source.splitlines(True), "flow.py")
        names: dict[str, Any] = {}
        exec(compile(source, "flow.py", "exec"), names)
        pipeline = Pipeline("code")
        pipeline.node("used")(names["used"])
        pipeline.node("beside")(names["beside"])
        return pipeline

    assert ran(shop.run(made(1, 1))) == ["beside", "used"]
    assert ran(shop.run(made(1, 1))) == []
    assert ran(shop.run(made(2, 1))) == ["used"]
    changed = shop.run(made(2, 2))
    assert (ran(changed), reasons(changed)["beside"]) == (["beside"], "code changed")


@pytest.mark.req("RS-5")
def test_what_a_node_made_is_spared_by_collection(shop: Workshop) -> None:
    """Objects that only an uncommitted record names are kept, too."""
    trouble = [True]
    pipeline = Pipeline("kept")

    @pipeline.node("first")
    def first() -> int:
        return 4711

    @pipeline.node("second")
    def second(first: int) -> int:
        if trouble:
            raise OSError("no")
        return first

    report = shop.run(pipeline)
    assert report.commit is None
    node = shop.states.one(report.run_id, "first")
    assert node is not None
    kept = set(shop.branches.objects_kept(shop.clock.now_ms() + 1))
    assert {each.checksum.removeprefix("sha256:") for each in node.outputs} <= kept
