"""Run-state whose records lie elsewhere: in a Delta table, or as objects on a branch.

The ledger still says who may write: a record is put on its shelf while the ledger's rows of the lock and
of the one writer are held, so neither a process that lost its lock nor two at once get through. Should
the ledger's own commit fail after that, the record stands, and putting it again changes nothing.
What a branch knows of its nodes stays with the branches; a head whose record is gone is not trusted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from kfm.core.branching import Branch, Commit, Entry, Moved
from kfm.core.errors import SchemaViolation
from kfm.core.evidence import Testimony
from kfm.core.records import Node
from kfm.core.run_states import (
    NOTHING_CHECKED,
    EndedPass,
    EndPass,
    Fence,
    Head,
    Known,
    Own,
    Skips,
    from_document,
    outputs_hash,
    outputs_text,
    to_document,
)
from kfm.run_state_ports import Key, Shelf
from kfm.store import branch_changes, leases, pass_tries, rows, run_states
from kfm.store.branches import EmbeddedBranchReader
from kfm.store.run_state_tables import RunStateTables
from kfm.store.session import Database, Session

MERGER = "run-state"  # the lock of whoever writes to the shelf


class BranchesInside(EmbeddedBranchReader):
    """Branches in the midst of somebody's transaction: what is committed here stands if that does."""

    def __init__(self, session: Session, *, gated: bool = False) -> None:
        self._inside = session
        self._gated = gated

    @property
    def _session(self) -> Session:
        return self._inside

    def create(self, name: str, at: str | None = None) -> Branch:
        if at is None:
            return branch_changes.ensure_in(self._inside, name)
        return branch_changes.create_in(self._inside, name, at)

    def commit(
        self,
        branch: str,
        changes: Mapping[str, Entry | None],
        *,
        message: str,
        author: str,
        expected: str | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> Commit | Moved:
        before = branch_changes.held_in(self._inside, branch)
        done = branch_changes.commit_in(
            self._inside,
            branch,
            changes,
            message=message,
            author=author,
            expected=expected,
            meta=meta,
            gated=self._gated,
        )
        if isinstance(done, Commit) and before.state_commit == before.head:
            branch_changes.set_state_in(self._inside, branch, done.commit_id)
        return done


class ShelvedRunStates(RunStateTables):
    """Implements `ports.RunStates` and `ports.Passes`; `within` gives the shelf as a transaction sees it."""

    def __init__(
        self, database: Database, shelf: Shelf, within: Callable[[Session], Shelf] | None = None
    ) -> None:
        super().__init__(database)
        self._shelf = shelf
        self._within: Callable[[Session], Shelf] = within or (lambda _session: shelf)

    # --- reading -----------------------------------------------------------------------------

    def known(self, branch: str, run_id: str, dataset_ids: Collection[str]) -> Known:
        if not dataset_ids:
            return Known({}, {})
        heads = super().known(branch, run_id, dataset_ids).heads
        keys = {(head.run_id, dataset_id) for dataset_id, head in heads.items()}
        there = self._shelf.present(keys, branch)
        own = self._shelf.get([(run_id, dataset_id) for dataset_id in dataset_ids], branch)
        return Known(
            {node.dataset_id: _own(node) for node in self._whole(own.values(), branch)},
            {dataset_id: head for dataset_id, head in heads.items() if (head.run_id, dataset_id) in there},
        )

    def made(self, branch: str, dataset_id: str, inputs_hash: str, code_sha: str | None) -> Head | None:
        node = self._shelf.made(branch, dataset_id, inputs_hash, code_sha)
        return None if node is None else head_of(node)

    def one(self, run_id: str, dataset_id: str) -> Node | None:
        branch = self._branch_of(run_id)
        found = self._shelf.get([(run_id, dataset_id)], branch)
        return next(self._whole(found.values(), branch), None)

    def of_run(self, run_id: str) -> Iterator[Node]:
        branch = self._branch_of(run_id)
        return self._whole(self._shelf.of_run(run_id, branch), branch)

    def history(self, dataset_id: str, *, branch: str | None = None, limit: int = 50) -> list[Node]:
        return list(self._whole(self._shelf.history(dataset_id, branch, limit), branch))

    def _branch_of(self, run_id: str) -> str | None:
        found = self.get(run_id)
        return found.branch if found else None

    def _whole(self, nodes: Iterable[Node], branch: str | None) -> Iterator[Node]:
        """A skipped record holds no more than who made its result; the rest is that one's."""
        kept = list(nodes)
        wanted = {
            (node.skipped_because, node.dataset_id) for node in kept if node.skipped_because is not None
        }
        makers = self._shelf.get([(made_by, each) for made_by, each in wanted if made_by], branch)
        for node in kept:
            maker = makers.get((node.skipped_because or "", node.dataset_id))
            yield node if maker is None else _with(node, maker)

    # --- writing -----------------------------------------------------------------------------

    def record(
        self,
        fence: Fence,
        nodes: Sequence[Node] = (),
        skips: Skips | None = None,
        documents: Sequence[tuple[str, str]] = (),
        events: Sequence[Testimony] = (),
    ) -> bool:
        now_ms = self._database.session.now_ms()
        kept = [checked(node) for node in (*nodes, *_skipped(skips, now_ms))]
        prepared = self._shelf.prepare(kept)

        def change(session: Session) -> bool:
            if not run_states.holds(session, fence):
                return False
            self._claim(session)
            for node in kept:
                if node.outcome == "success":
                    run_states.put_head(session, node)
            run_states.keep_documents(session, documents)
            pass_tries.count(session, nodes, skips)
            pass_tries.post(session, events, session.now_ms())
            self._within(session).put(prepared)  # last: what can fail by itself has not failed
            return True

        return self._database.write(change)

    def end(self, request: EndPass, skips: Skips | None = None) -> EndedPass:
        session = self._database.session
        kept = [checked(node) for node in _skipped(skips, session.now_ms())]
        loose: Mapping[Key, Node] = {}
        if request.commits and self._shelf.names_commits:
            found = session.all("node_heads.loose", branch=request.branch)
            loose = self._shelf.get([(row[1], row[0]) for row in found], request.branch)
        early = None if loose else self._shelf.prepare(kept)

        def put(session: Session, commit: str | None) -> None:
            prepared = early
            if loose:
                named = [replace(node, output_commit=commit) for node in loose.values()]
                prepared = self._shelf.prepare([*kept, *named])
            if kept or loose:
                self._within(session).put(prepared)

        return self._end(request, skips, put)

    def rows(self) -> Iterator[Node]:
        return self._shelf.rows()

    def reverted(self) -> set[Key]:
        return self._shelf.reverted()

    def take_back(self, keys: Collection[Key]) -> None:
        def change(session: Session) -> None:
            self._claim(session)
            self._within(session).take_back(keys)

        if keys:
            self._database.write(change)

    def move_in(self, nodes: Sequence[Node]) -> None:
        there = self._shelf.get([(node.run_id, node.dataset_id) for node in nodes])
        prepared = self._shelf.prepare(
            [checked(node) for node in nodes if there.get((node.run_id, node.dataset_id)) != node]
        )

        def change(session: Session) -> None:
            self._claim(session)
            self._within(session).put(prepared)

        self._database.write(change)

    def _claim(self, session: Session) -> None:
        leases.lock_for_update(session, MERGER)

    def _took_back(self, session: Session, branch: str, dataset_ids: list[str]) -> None:
        if dataset_ids:
            self._claim(session)
            self._within(session).revert(branch, dataset_ids)


def checked(node: Node) -> Node:
    """The schema, enforced on every write; free text as every store takes it."""
    clean: dict[str, Any] = {
        name: rows.storable(text)
        for name, text in (("error_message", node.error_message), ("reason", node.reason))
        if text is not None
    }
    from_document(to_document(node))
    try:
        clean["validation_summary"] = rows.value_of(rows.payload_of(node.validation_summary))
        node = replace(node, **clean)
        msgspec.json.encode(node)
    except (UnicodeEncodeError, msgspec.MsgspecError, TypeError) as error:
        raise SchemaViolation(f"run-state: {error}.") from None
    return node


def head_of(node: Node) -> Head:
    """What its branch knows of a node whose record this is."""
    outputs = outputs_text(node.outputs)
    return Head(node.run_id, node.inputs_hash, node.code_sha, outputs_hash(node.outputs), outputs)


def _skipped(skips: Skips | None, now_ms: int) -> Iterator[Node]:
    return iter(()) if skips is None else run_states.skipped(skips, now_ms)


def _with(node: Node, maker: Node) -> Node:
    checked_itself = node.validation_summary != NOTHING_CHECKED
    return replace(
        node,
        outputs=node.outputs or maker.outputs,
        validation_summary=node.validation_summary if checked_itself else maker.validation_summary,
        output_commit=node.output_commit or maker.output_commit,
    )


def _own(node: Node) -> Own:
    return Own(
        node.outcome,
        node.inputs_hash,
        node.code_sha,
        outputs_hash(node.outputs),
        outputs_text(node.outputs),
        node.attempt,
        node.skipped_because,
    )
