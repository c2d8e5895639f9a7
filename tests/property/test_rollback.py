"""Random graphs, random changes, random reverts: what runs is exactly what a brute-force oracle says."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kfm.model.input_hash import dependencies_bytes, dependency_text, inputs_bytes
from kfm.model.records import Asset, Output
from kfm.model.run_state import is_sole_object, outputs_hash, outputs_of, outputs_text
from kfm.pipelines.declaration import Pipeline
from kfm.pipelines.options import PipelineReport
from tests.workshop import Workshop, ran

Graph = dict[str, tuple[str, ...]]


@st.composite
def graphs(draw: Any) -> Graph:
    size = draw(st.integers(1, 9))
    names = [f"n{number}" for number in range(size)]
    return {
        name: tuple(sorted(draw(st.sets(st.sampled_from(names[:place]), max_size=3)))) if place else ()
        for place, name in enumerate(names)
    }


def pipeline_of(graph: Graph, seeds: dict[str, int]) -> Pipeline:
    pipeline = Pipeline("random")
    for name, reads in graph.items():
        pipeline.node(
            name,
            needs={f"v{place}": each for place, each in enumerate(reads)},
            params={"seed": seeds[name]},
            version="1",
        )(_made(len(reads), name))
    return pipeline


def _made(count: int, name: str) -> Any:
    arguments = ", ".join(["seed", *(f"v{place}" for place in range(count))])
    names: dict[str, Any] = {}
    exec(f"def made({arguments}):\n    return [{name!r}, {arguments}]\n", names)
    return names["made"]


def value_of(graph: Graph, seeds: dict[str, int], name: str) -> Any:
    """What a node would make of these seeds, worked out from scratch."""
    return (name, seeds[name], tuple(value_of(graph, seeds, each) for each in graph[name]))


def shows_what_was_made(shop: Workshop, report: PipelineReport) -> None:
    """The branch holds the outputs of each node as the pass left them, and nothing else."""
    there = {path: entry.sha256 for path, entry in shop.branches.entries("main")}
    assert there == {
        f"{node.id}/{output.name}": output.checksum.removeprefix("sha256:")
        for node in report.nodes.values()
        for output in outputs_of(node.outputs)
    }


@pytest.mark.req("RS-10", "RS-9")
@settings(max_examples=150, deadline=None)
@given(graphs(), st.data())
def test_after_a_revert_exactly_the_affected_nodes_run(graph: Graph, data: st.DataObject) -> None:
    """Nodes whose outputs were reverted and nodes that read from them run; all others are skipped."""
    shop = Workshop()
    seeds = dict.fromkeys(graph, 0)
    on_branch: dict[str, Any] = {}
    history: list[dict[str, Any]] = []
    seen: dict[str, set[Any]] = {}
    for _ in range(data.draw(st.integers(1, 4), label="changes")):
        for name in data.draw(st.sets(st.sampled_from(list(graph))), label="changed"):
            seeds[name] = data.draw(st.integers(0, 2), label="seed")
        history.append(dict(on_branch))
        wanted = {name: value_of(graph, seeds, name) for name in graph}
        report = shop.run(pipeline_of(graph, seeds))
        made_before = {name: seen.setdefault(name, set()) for name in graph}
        assert set(ran(report)) == {name for name in graph if wanted[name] not in made_before[name]}
        for name in graph:
            seen[name].add(wanted[name])
        shows_what_was_made(shop, report)
        if report.commit is None:
            history.pop()
        on_branch = wanted
    shop.revert("main")
    before, reverted = on_branch, {n for n in graph if on_branch[n] != history[-1].get(n)}
    report = shop.run(pipeline_of(graph, seeds))
    readers = {name for name in graph if any(each in reverted for each in graph[name])}
    assert set(ran(report)) == reverted | readers
    shows_what_was_made(shop, report)
    again = shop.run(pipeline_of(graph, seeds))
    assert ran(again) == []
    assert before == {name: value_of(graph, seeds, name) for name in graph}


@pytest.mark.req("RS-10")
@settings(max_examples=100, deadline=None)
@given(graphs(), st.data())
def test_those_who_read_from_what_was_reverted_run_too(graph: Graph, data: st.DataObject) -> None:
    """An earlier commit taken back: its nodes and their direct readers run, whatever came after."""
    shop, seeds = Workshop(), dict.fromkeys(graph, 0)
    part = data.draw(st.sets(st.sampled_from(list(graph)), min_size=1), label="first")
    first = shop.run(pipeline_of(graph, seeds), only=part)
    assert first.commit is not None
    shop.run(pipeline_of(graph, seeds))
    shop.revert(first.commit)
    reverted = set(ran(first))
    readers = {name for name in graph if any(each in reverted for each in graph[name])}
    assert set(ran(shop.run(pipeline_of(graph, seeds)))) == reverted | readers
    assert ran(shop.run(pipeline_of(graph, seeds))) == []


@pytest.mark.req("RS-10")
@settings(max_examples=60, deadline=None)
@given(graphs(), st.data())
def test_what_a_revert_brought_back_is_known_again(graph: Graph, data: st.DataObject) -> None:
    """If inputs go back with the data, nothing runs at all."""
    shop = Workshop()
    seeds = dict.fromkeys(graph, 0)
    shop.run(pipeline_of(graph, seeds))
    changed = data.draw(st.sets(st.sampled_from(list(graph)), min_size=1))
    later = {name: int(name in changed) for name in graph}
    assert shop.run(pipeline_of(graph, later)).state == "success"
    shop.revert("main")
    assert ran(shop.run(pipeline_of(graph, seeds))) == []


@pytest.mark.req("RS-9")
@settings(max_examples=60, deadline=None)
@given(graphs(), st.data())
def test_a_pass_that_broke_off_repeats_nothing_that_was_finished(graph: Graph, data: st.DataObject) -> None:
    """Whichever node fails first: the run that goes on does the rest, and the outcome is the same."""
    shop, seeds = Workshop(), dict.fromkeys(graph, 0)
    unlucky = data.draw(st.sampled_from(list(graph)))
    pipeline = pipeline_of(graph, seeds)
    mended = pipeline.nodes[unlucky].function

    def broken(**_: Any) -> None:
        raise RuntimeError("unlucky")

    pipeline.nodes[unlucky].function = broken
    first = shop.run(pipeline, run_id="r")
    assert first.state == "failed"
    done = {name for name in ran(first) if name != unlucky}
    pipeline.nodes[unlucky].function = mended
    second = shop.run(pipeline, run_id="r")
    assert second.state == "success"
    assert not done & set(ran(second))
    assert done | set(ran(second)) == set(graph)


names = st.text(st.characters(codec="utf-8", exclude_characters="/"), min_size=1, max_size=8)


@pytest.mark.req("RS-6")
@given(
    st.dictionaries(names, st.binary(min_size=2, max_size=2).map(lambda b: "sha256:" + b.hex() * 16)),
    st.dictionaries(
        names,
        st.integers(-5, 5) | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
        max_size=3,
    ),
)
def test_the_short_way_to_a_hash_and_the_long_way_agree(hashes: dict[str, str], params: Any) -> None:
    """What a node's hash is made of does not depend on how it was worked out."""
    said = [dependency_text(name, hashes[name]) for name in sorted(hashes)]
    if all(said):
        rows = [{"id": name, "checksum": checksum} for name, checksum in hashes.items()]
        assert dependencies_bytes(said, params) == inputs_bytes(rows, params)


digests = st.binary(min_size=1, max_size=1).map(lambda b: "sha256:" + b.hex() * 32)
outputs = st.builds(
    Output,
    name=st.text(max_size=8) | st.just('","checksum":"sha256:' + "0" * 64 + '","size":3}]'),
    checksum=digests,
    size=st.integers(0, 3),
    kind=st.sampled_from(("object", "file")),
    asset=st.none() | st.just(Asset(path="a", sha256="0" * 64, size=1, media_type="text/csv")),
)


@pytest.mark.req("RS-6")
@given(st.lists(outputs, max_size=3), st.none() | st.integers(0, 3))
def test_what_the_text_of_outputs_shows_is_what_reading_them_shows(
    made: list[Output], size: int | None
) -> None:
    """A node whose one object is there is seen as such without reading its outputs; no other one is."""
    alone = len(made) == 1 and made[0].kind == "object" and made[0].asset is None and made[0].size == size
    assert is_sole_object(outputs_text(made), outputs_hash(made), size) == alone
