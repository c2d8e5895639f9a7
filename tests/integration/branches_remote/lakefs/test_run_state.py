"""Run-state whose records stand on lakeFS: what merges and reverts there mean for the next pass."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kfm.branches_remote.lakefs_branches import LakefsBranches
from kfm.db.ledger import Ledger
from kfm.model.branches import Branch
from kfm.model.errors import BranchProtected, UsageError
from kfm.model.run_state import BeginPass, Fence, Head
from kfm.system import SystemClock
from tests.conformance.db import ledgers
from tests.conformance.run_state.backends import START_MS, Pipeline, Place, digest
from tests.lakefs_server import Server, serving

pytestmark = pytest.mark.req("RS-5")

GRAPH = (("tiles", ()), ("wind", ()), ("map", ("tiles", "wind")), ("page", ("map",)))


class Lake(Pipeline):
    """A pipeline with the graph tiles, wind → map → page, at work on one branch."""

    def go(self, run_id: str, **made: str) -> dict[str, Head]:
        """Begin; these nodes are made from these inputs; end. What was known at the beginning."""
        self.clock = START_MS + 60_000 * int(run_id.removeprefix("r"))
        begun = self.states.begin(
            BeginPass(
                run_id=run_id,
                pipeline_id=self.pipeline_id,
                branch=self.branch,
                graph=GRAPH,
                worker_id=run_id,
                lease_ms=60_000,
                scope=self.scope,
            ),
            lambda _worker: False,
        )
        self.run_id, self.fence = run_id, Fence(self.scope, begun.fence)
        known = self.states.known(self.branch, run_id, [node for node, _reads in GRAPH]).heads
        for node, text in made.items():
            assert self.record(self.node(node, text))
        assert self.end().landed
        return known


class Scene:
    def __init__(self, folder: Path, store: Ledger, server: Server) -> None:
        self.server = server
        self.states = Place("lakefs", folder, lambda: store, server).open()
        self.branches: LakefsBranches = self.states._remote._branches  # type: ignore[attr-defined]
        self.objects = self.states._remote._objects  # type: ignore[attr-defined]

    def on(self, branch: str) -> Lake:
        return Lake(self.states, branch=branch)

    def merge(self, source: str, into: str = "main") -> str:
        done = self.branches.merge(self.branches.propose(source, into), message="merge", author="ada")
        return done.commit.commit_id  # type: ignore[union-attr]

    def revert(self, ref: str, branch: str = "main") -> None:
        self.branches.revert(branch, ref, message="revert", author="ada")


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    store = ledgers.sqlite_store(str(tmp_path / "kfm.db"), SystemClock())
    with serving() as server:
        yield Scene(tmp_path, store, server)
    store.close()


def reruns(known: dict[str, Head]) -> dict[str, str]:
    return {node: head.rerun for node, head in known.items() if head.rerun is not None}


def test_a_record_is_committed_with_its_outputs(scene: Scene) -> None:
    """A record and its outputs are in one commit: a reader who has the one has the other."""
    scene.on("main").go("r1", tiles="1")
    (changed, _created) = scene.server.repository.log("main", True)
    assert sorted(changed.tree) == ["_run_state/tiles/r1.json", "tiles/tiles.json"]


def test_a_merge_brings_what_is_known(scene: Scene) -> None:
    """The target, and each branch made from it, knows what was made on the branch that was merged."""
    scene.branches.create("run/1", "main")
    scene.on("run/1").go("r1", tiles="1", wind="2", map="3", page="4")
    assert scene.on("main").go("r2") == {}
    scene.merge("run/1")
    scene.branches.create("run/2", "main")
    for branch, run in (("main", "r3"), ("run/2", "r4")):
        known = scene.on(branch).go(run)
        assert {node: head.run_id for node, head in known.items()} == dict.fromkeys(
            ("tiles", "wind", "map", "page"), "r1"
        )


@pytest.mark.req("RS-10")
def test_a_reverted_merge_is_forgotten(scene: Scene) -> None:
    """What an earlier merge brought is known again, and nothing runs that was not undone."""
    main = scene.on("main")
    main.go("r1", tiles="1", wind="2", map="3", page="4")
    scene.branches.create("run/2", "main")
    scene.on("run/2").go("r2", wind="two", map="three", page="four")
    merged = scene.merge("run/2")
    assert {head.run_id for head in main.go("r3").values()} == {"r1", "r2"}
    scene.revert(merged)
    known = main.go("r4")
    assert {node: head.run_id for node, head in known.items()} == dict.fromkeys(
        ("tiles", "wind", "map", "page"), "r1"
    )
    assert reruns(known) == {}


@pytest.mark.req("RS-10")
def test_a_revert_within_one_run_brings_its_earlier_result_back(scene: Scene) -> None:
    """A run that was resumed with other inputs, and reverted there, is known by what it made first."""
    main = scene.on("main")
    main.go("r1", tiles="1")
    main.go("r1", tiles="2")
    scene.revert(scene.branches.log("main")[0].commit_id)
    (head,) = main.go("r2").values()
    assert (head.run_id, head.inputs_hash) == ("r1", digest("inputs of 1"))
    assert head.outputs_hash == digest("1")


@pytest.mark.req("RS-10")
def test_a_node_that_reads_from_what_was_reverted_runs_again(scene: Scene) -> None:
    """Directly: wind was taken back, so it and map run; tiles and page, which read none of it, do not."""
    main = scene.on("main")
    main.go("r1", tiles="1", wind="2", map="3", page="4")
    taken = next(
        each
        for each in scene.branches.log("main")
        if "_run_state/wind/r1.json" in _added(scene, each.commit_id)
    )
    scene.revert(taken.commit_id)
    known = main.go("r2")
    assert reruns(known) == {
        "wind": "its outputs were reverted",
        "map": "wind, which it reads from, was reverted",
    }
    assert reruns(main.go("r3", wind="2", map="3")) == reruns(known)
    assert reruns(main.go("r4")) == {}


@pytest.mark.req("RS-10")
def test_a_branch_made_after_a_revert_knows_it_too(scene: Scene) -> None:
    """Though the ledger has never heard of that branch."""
    scene.on("main").go("r1", tiles="1", wind="2", map="3", page="4")
    taken = next(
        each
        for each in scene.branches.log("main")
        if "_run_state/wind/r1.json" in _added(scene, each.commit_id)
    )
    scene.revert(taken.commit_id)
    scene.branches.create("run/2", "main")
    known = scene.on("run/2").go("r2")
    assert sorted(known) == ["map", "page", "tiles"]  # wind: nothing is known of it
    assert reruns(known) == {"map": "wind, which it reads from, was reverted"}


def test_records_that_are_only_on_the_server_are_fetched(scene: Scene) -> None:
    """As on a machine that has the branch and not the objects."""
    main = scene.on("main")
    main.go("r1", tiles="1")
    for sha256 in list(scene.objects.all()):
        scene.objects.delete(sha256)
    scene.states._remote._cache.clear()  # type: ignore[attr-defined]
    assert main.go("r2")["tiles"].run_id == "r1"


def test_a_protected_branch_takes_no_pass(scene: Scene) -> None:
    """Nor does a governed run work there, whose promotion is the ledger's."""
    from kfm.model.records import Justification

    made = scene.branches.protect("main", True, why=Justification(actor="ada", rationale="so"))
    assert isinstance(made, Branch)
    with pytest.raises(BranchProtected):
        scene.on("main").go("r1", tiles="1")
    request = BeginPass(
        run_id="r2",
        pipeline_id="soil",
        branch="run/r2",
        graph=GRAPH,
        worker_id="w",
        lease_ms=60_000,
        scope="dataset:x",
        from_branch="main",
    )
    with pytest.raises(UsageError, match="governed run"):
        scene.states.begin(request, lambda _worker: False)


def _added(scene: Scene, commit_id: str) -> set[str]:
    made = scene.server.repository.commits[commit_id]
    before = scene.server.repository.commits[made.parents[0]].tree if made.parents else {}
    return set(made.tree) - set(before)
