"""A source whose pipeline is a graph of nodes: what must run runs, and it is published as one."""

from __future__ import annotations

import pytest

from tests.acceptance.runs.conftest import Inside
from tests.crash.project import table

FLOW = """\
import kfm

pipeline = kfm.Pipeline("levels")


@pipeline.node("levels.tables")
def tables(ctx):
    ran("tables")
    return {entry.path: entry.read().decode() for entry in ctx.run.inputs}


@pipeline.node("levels.copies")
def copies(tables, ctx):
    ran("copies")
    for path, text in tables.items():
        ctx.publisher.write_file(path, text.encode(), {"media_type": "text/csv"})


@pipeline.node("levels.count")
def count(tables, ctx):
    ran("count")
    ctx.validate("there are tables", bool(tables))
    return sum(text.count("\\n") for text in tables.values())


def ran(name):
    with open("ran.txt", "a") as file:
        file.write(name + "\\n")
"""


@pytest.fixture
def noded(project: Inside) -> Inside:
    project.write("flow.py", FLOW)
    project.configure(extra='pipeline: "flow.py:pipeline", output_version: "1"')
    return project


def ran(project: Inside) -> list[str]:
    path = project.folder / "ran.txt"
    names = path.read_text().split() if path.exists() else []
    path.unlink(missing_ok=True)
    return sorted(names)


@pytest.mark.req("RS-3", "UPD-6")
def test_a_graph_of_nodes_is_published_as_one(noded: Inside) -> None:
    """What nodes write with their publisher is the dataset's next version."""
    ended = noded.run()
    assert ended.code == 0, ended
    assert ran(noded) == ["copies", "count", "tables"]
    assert (noded.published / "levels" / "current" / "data").exists() or list(noded.published.rglob("a.csv"))


@pytest.mark.req("RS-4")
def test_a_forced_run_repeats_no_node_whose_inputs_are_the_same(noded: Inside) -> None:
    """Across runs a node is skipped, and what it made is published again, byte for byte."""
    assert noded.run().code == 0
    before = {path.name: path.read_bytes() for path in noded.published.rglob("*.csv")}
    ran(noded)
    again = noded.run("--force", "--rationale", "again", "--ticket", "T-1")
    assert again.code == 0, again
    assert ran(noded) == []
    assert {path.name: path.read_bytes() for path in noded.published.rglob("*.csv")} == before


@pytest.mark.req("RS-3")
def test_changed_bytes_run_what_reads_them(noded: Inside) -> None:
    """New bytes upstream: every node that reads them, directly or not, runs again."""
    assert noded.run().code == 0
    ran(noded)
    noded.write("incoming/b.csv", table("b", 5))
    assert noded.run().code == 0
    assert ran(noded) == ["copies", "count", "tables"]


@pytest.mark.req("RS-5", "UPD-9")
def test_a_node_that_fails_leaves_main_untouched(noded: Inside) -> None:
    """A failed check fails the run; nothing of its nodes is on main, and nothing is published."""
    noded.write("flow.py", FLOW.replace("bool(tables)", "False"))
    ended = noded.run()
    assert ended.code != 0
    assert not noded.published.exists()
    log = noded.kfm("branch", "log", "main", "-o", "json")
    assert "run " not in log.out
    noded.write("flow.py", FLOW)
    ran(noded)
    mended = noded.run()
    assert mended.code == 0, mended
    assert "tables" not in ran(noded), "what had succeeded is not repeated"


@pytest.mark.req("UPD-7")
def test_a_dry_run_shows_what_nodes_would_publish(noded: Inside) -> None:
    """Nothing is written, no record is kept."""
    ended = noded.kfm("run", "--dry-run", "-o", "json")
    assert ended.code == 0, ended
    assert ran(noded) == ["copies", "count", "tables"]
    assert not noded.published.exists()
    assert noded.run().code == 0
    assert ran(noded) == ["copies", "count", "tables"]


@pytest.mark.req("RS-3", "RS-6")
def test_only_nodes_that_read_from_no_other_see_the_run(noded: Inside) -> None:
    """What others saw there would be no part of their hash: they would be skipped when it changes."""
    noded.write("flow.py", FLOW.replace("sum(text", "len(ctx.run.inputs) + sum(text"))
    ended = noded.run()
    assert ended.code == 1, ended
    assert "levels.count asks for ctx.run.inputs" in ended.err


def test_a_node_publishes_what_it_may_write_elsewhere(noded: Inside) -> None:
    """Text, and files of other nodes, as in a pass without a governed run."""
    flow = FLOW.replace("text.encode()", "text") + (
        """
@pipeline.node("levels.again")
def again(copies, ctx):
    for path, file in copies.items():
        ctx.publisher.write_file("again/" + path, file)
"""
    )
    noded.write("flow.py", flow)
    ended = noded.run()
    assert ended.code == 0, ended
