"""Node outputs on branches: committed with the run-state, and reconciled when a branch moves otherwise.

A branch's knowledge of its nodes (`node_heads`) agrees with its tree at `state_commit`. A change of
the branch by other means leaves that mark behind, and the next pipeline run compares the two first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from kfm.db import branch_commits
from kfm.db.session import Row, Session
from kfm.model.branches import Branch, Commit, Merged, NewCommit, TreeEntry
from kfm.model.errors import BranchProtected
from kfm.model.records import Output
from kfm.model.run_state import REVERTED, Graph, outputs_of
from kfm.model.trees import Forest

PAGE = 1000
CANDIDATES_MAX = 50  # how many earlier successes are looked at for what a revert brought back


def entries_of(dataset_id: str, outputs: tuple[Output, ...]) -> dict[str, TreeEntry]:
    """Where a node's outputs stand on a branch. Files that it wrote itself are not there."""
    return {
        f"{dataset_id}/{each.name}": TreeEntry(sha256=each.checksum.removeprefix("sha256:"), size=each.size)
        for each in outputs
        if each.kind == "object"
    }


def dataset_of(path: str) -> str:
    return path.partition("/")[0]


# --- a pass ends -----------------------------------------------------------------------------


def commit_outputs(
    session: Session, branch: str, *, run_id: str, pipeline_id: str, author: str
) -> str | None:
    """Put what nodes made since the last commit onto the branch; the commit, or None if there is nothing."""
    loose = session.all("node_heads.loose", branch=branch)
    if not loose:
        return None
    branch_commits.ensure_in(session, branch)
    before = branch_commits.held_in(session, branch)
    agrees = before.state_commit in (before.head, None)
    commit = branch_commits.commit_in(
        session,
        NewCommit(
            branch,
            _changes(session, before, loose),
            message=f"{pipeline_id}: {len(loose)} {'node' if len(loose) == 1 else 'nodes'}",
            author=author,
            meta={"run_id": run_id, "pipeline_id": pipeline_id},
        ),
    )
    assert isinstance(commit, Commit), "the branch is held in this transaction"
    for dataset_id, made_by, _outputs in loose:
        session.all("run_states.committed", commit_id=commit.commit_id, run_id=made_by, dataset_id=dataset_id)
        session.all("node_heads.committed", commit_id=commit.commit_id, branch=branch, dataset_id=dataset_id)
    if agrees:
        branch_commits.set_state_in(session, branch, commit.commit_id)
    return commit.commit_id


def _changes(session: Session, before: Branch, loose: list[Row]) -> dict[str, TreeEntry | None]:
    tree_id, forest = _tree(session, before.head)
    changes: dict[str, TreeEntry | None] = {}
    for dataset_id, _made_by, outputs in loose:
        wanted = entries_of(dataset_id, outputs_of(outputs))
        for path, _entry in forest.entries(tree_id, f"{dataset_id}/"):
            if path not in wanted:
                changes[path] = None
        changes.update(wanted)
    return changes


def head_of(session: Session, branch: str) -> str | None:
    found = branch_commits.branch_in(session, branch)
    return found.head if found is not None else None


def require_open(session: Session, branch: str) -> None:
    """A protected branch takes merges only."""
    found = branch_commits.branch_in(session, branch)
    if found is not None and found.protected:
        raise BranchProtected(
            f"`{branch}` is protected, so no pipeline run works on it.",
            remedy=f"Work on another one with --branch, then `kfm branch merge REF --into {branch}`.",
        )


# --- a pass begins ---------------------------------------------------------------------------


def reconcile(session: Session, branch: str, graph: Graph) -> list[str]:
    """Bring what the branch knows of its nodes into agreement with its tree; returns the reverted ones.

    A node whose outputs are not there any more knows what was brought back in their place, if that was
    the work of an earlier run; else it runs again, and so do those that read from it.
    """
    found = branch_commits.branch_in(session, branch)
    if found is None or found.state_commit in (found.head, None):
        return []
    reverted = _reverted(session, branch, found.head)
    for dataset_id, brought_back in reverted.items():
        _take_back(session, branch, dataset_id, brought_back)
    for node, why in _readers(graph, reverted).items():
        session.all("node_heads.rerun", branch=branch, dataset_id=node, rerun=why)
    branch_commits.set_state_in(session, branch, found.head)
    return list(reverted)


def foreseen(session: Session, branch: str, graph: Graph) -> tuple[dict[str, Row | None], dict[str, str]]:
    """What `reconcile` would find: reverted node → what was brought back; other node → why it runs again."""
    found = branch_commits.branch_in(session, branch)
    if found is None or found.state_commit in (found.head, None):
        return {}, {}
    reverted = _reverted(session, branch, found.head)
    return reverted, _readers(graph, reverted)


def _reverted(session: Session, branch: str, head: str) -> dict[str, Row | None]:
    """Node whose outputs are not on the branch any more → the earlier success that was brought back."""
    tree_id, forest = _tree(session, head)
    reverted: dict[str, Row | None] = {}
    for page in heads_of(session, branch):
        expected = {row[0]: entries_of(row[0], outputs_of(row[3])) for row in page if row[4] is not None}
        there = forest.lookup(tree_id, (path for paths in expected.values() for path in paths))
        for dataset_id, entries in expected.items():
            if any(there.get(path) != entry for path, entry in entries.items()):
                reverted[dataset_id] = _brought_back(session, branch, dataset_id, forest, tree_id)
    return reverted


def _readers(graph: Graph, reverted: Collection[str]) -> dict[str, str]:
    """Node that reads from a reverted one → why it runs again."""
    found = {}
    for node, reads in graph:
        producer = next((each for each in reads if each in reverted), None)
        if producer is not None and node not in reverted:
            found[node] = reader_of(producer)
    return found


def reader_of(producer: str) -> str:
    """Why a node runs again that was not reverted itself."""
    return f"{producer}, which it reads from, was reverted"


def _brought_back(session: Session, branch: str, dataset_id: str, forest: Forest, tree_id: str) -> Row | None:
    there = dict(forest.entries(tree_id, f"{dataset_id}/"))
    candidates = session.all(
        "run_states.successes", dataset_id=dataset_id, branch=branch, limit=CANDIDATES_MAX
    )
    return next(
        (
            row
            for row in candidates
            if row[5] is not None and entries_of(dataset_id, outputs_of(row[4])) == there
        ),
        None,
    )


def _take_back(session: Session, branch: str, dataset_id: str, brought_back: Row | None) -> None:
    """Forget what was reverted, and know again what was brought back."""
    session.all(
        "run_states.revert",
        dataset_id=dataset_id,
        branch=branch,
        spared=brought_back[0] if brought_back else "",
    )
    if brought_back is None:
        session.all("node_heads.rerun", branch=branch, dataset_id=dataset_id, rerun=REVERTED)
        return
    run_id, inputs_hash, code_sha, outputs_hash, outputs, output_commit = brought_back
    session.all(
        "node_heads.put",
        branch=branch,
        dataset_id=dataset_id,
        run_id=run_id,
        inputs_hash=inputs_hash,
        code_sha=code_sha,
        outputs_hash=outputs_hash,
        outputs=outputs,
        output_commit=output_commit,
    )


def begun(session: Session, branch: str, source: str) -> None:
    """Make the branch of a pipeline run, where there is none yet, from the other branch as it is now."""
    if branch_commits.branch_in(session, branch) is None:
        origin = branch_commits.ensure_in(session, source)
        branched(session, source, branch_commits.create_in(session, branch, origin.head))


# --- branches come, merge and go ----------------------------------------------------------------


def branched(session: Session, source: str | None, made: Branch) -> None:
    """A branch that begins where another one is knows what that one knows; unless a pipeline run is at work
    under this name already: then it knows what that one makes."""
    if source is None or source == made.name or any(heads_of(session, made.name)):
        return
    origin = branch_commits.branch_in(session, source)
    if origin is not None and origin.head == made.head:
        session.all("node_heads.copy", branch=source, into=made.name, dataset_id="")
        session.all(
            "branches.set_state",
            name=made.name,
            state_commit=origin.state_commit or origin.head,
            seen_head=made.head,
        )


def merged(session: Session, source: str, into: str, before: Branch, after: Commit) -> None:
    """The target knows of the nodes whose outputs the merge brought what the source knows of them."""
    origin = branch_commits.branch_in(session, source)
    if origin is None:
        return  # a commit or a tag: nothing is known of it but its tree
    tree_before, forest = _tree(session, before.head)
    brought = {dataset_of(change.path): None for change in forest.diff(tree_before, after.tree_id)}
    for dataset_id in brought:
        session.all("node_heads.copy", branch=source, into=into, dataset_id=dataset_id)
    # Other inputs may have made the same outputs: then the trees agree, and what is known does not.
    session.all("node_heads.copy_equal", branch=source, into=into)
    if before.state_commit in (before.head, None):
        # What the source knows may have been reverted there: then the next pipeline run compares here, too.
        agrees = origin.state_commit in (origin.head, None)
        branch_commits.set_state_in(session, into, after.commit_id, None if agrees else before.head)


def promoted(session: Session, branch: str, into: str, *, run_id: str, author: str) -> None:
    """What a governed run made on its own branch becomes part of the other, and its own branch is deleted."""
    own = branch_commits.branch_in(session, branch)
    if own is None:
        return
    branch_commits.ensure_in(session, into)
    before = branch_commits.held_in(session, into)
    answer = branch_commits.merge_in(
        session,
        own.head,
        into,
        message=f"run {run_id}",
        author=author,
        meta={"run_id": run_id},
        gated=True,  # by the gates of the promotion
        prefer="source",
    )
    assert isinstance(answer, Merged), "the branch is held in this transaction"
    if answer.commit is not None and answer.outcome == "merged":
        merged(session, branch, into, before, answer.commit)
    session.all("run_states.moved", run_id=run_id, branch=branch, into=into)
    forgotten(session, branch)
    branch_commits.delete_in(session, branch)


def forgotten(session: Session, branch: str) -> None:
    session.all("node_heads.forget", branch=branch)


def _tree(session: Session, commit_id: str) -> tuple[str, Forest]:
    return branch_commits.finder(session)(commit_id).tree_id, branch_commits.forest_of(session)


def heads_of(session: Session, branch: str) -> Iterator[list[Row]]:
    """All that a branch knows of its nodes, page by page."""
    after = ""
    while page := session.all("node_heads.whole", branch=branch, after=after, limit=PAGE):
        yield page
        after = page[-1][0]
