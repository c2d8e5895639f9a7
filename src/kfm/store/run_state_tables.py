"""The relational home of run-state: implements `ports.RunStates` and `ports.Passes` on either database."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

from msgspec.structs import replace

from kfm.core.evidence import Testimony
from kfm.core.records import Node
from kfm.core.run_states import (
    BeginPass,
    Begun,
    EndedPass,
    EndPass,
    Fence,
    Head,
    Known,
    Pass,
    Skips,
)
from kfm.store import leases, node_branches, pass_tries, run_states
from kfm.store.session import Database, Session


class RunStateTables:
    def __init__(self, database: Database) -> None:
        self._database = database

    # --- records -----------------------------------------------------------------------

    def known(self, branch: str, run_id: str, dataset_ids: Collection[str]) -> Known:
        if not dataset_ids:
            return Known({}, {})
        first, last = min(dataset_ids), max(dataset_ids)
        return run_states.known(self._database.session, branch, run_id, first, last)

    def made(self, branch: str, dataset_id: str, inputs_hash: str, code_sha: str | None) -> Head | None:
        return run_states.made(self._database.session, branch, dataset_id, inputs_hash, code_sha)

    def record(
        self,
        fence: Fence,
        nodes: Sequence[Node] = (),
        skips: Skips | None = None,
        documents: Sequence[tuple[str, str]] = (),
        events: Sequence[Testimony] = (),
    ) -> bool:
        def change(session: Session) -> bool:
            if not run_states.holds(session, fence):
                return False
            for node in nodes:
                run_states.put(session, node)
            if skips is not None:
                run_states.put_skips(session, skips, session.now_ms())
            run_states.keep_documents(session, documents)
            pass_tries.count(session, nodes, skips)
            pass_tries.post(session, events, session.now_ms())
            return True

        return self._database.write(change)

    def one(self, run_id: str, dataset_id: str) -> Node | None:
        return run_states.one(self._database.session, run_id, dataset_id)

    def of_run(self, run_id: str) -> Iterator[Node]:
        return run_states.of_run(self._database.session, run_id)

    def history(self, dataset_id: str, *, branch: str | None = None, limit: int = 50) -> list[Node]:
        return run_states.history(self._database.session, dataset_id, branch, limit)

    def document(self, name: str) -> str | None:
        row = self._database.session.one("documents.get", hash=name)
        return str(row[0]) if row else None

    # --- moving from one store to another ----------------------------------------------

    def rows(self) -> Iterator[Node]:
        """All that there are, as they were put."""
        return run_states.every(self._database.session)

    def reverted(self) -> set[tuple[str, str]]:
        """Run and node of what `made` does not find any more."""
        return {(row[0], row[1]) for row in self._database.session.all("run_states.reverted")}

    def take_back(self, keys: Collection[tuple[str, str]]) -> None:
        marked = [{"run_id": run_id, "dataset_id": dataset_id} for run_id, dataset_id in keys]
        if marked:
            self._database.write(lambda session: session.many("run_states.take_back", marked))

    def move_in(self, nodes: Sequence[Node]) -> None:
        """Records from elsewhere. What branches know of them is known already."""

        def change(session: Session) -> None:
            for node in nodes:
                run_states.put_record(session, node)

        self._database.write(change)

    # --- passes ------------------------------------------------------------------------

    def begin(self, request: BeginPass, dead: leases.Dead) -> Begun:
        def change(session: Session) -> Begun:
            node_branches.require_open(session, request.branch)
            if request.from_branch is not None:
                node_branches.begun(session, request.branch, request.from_branch)
            begun = run_states.begin(session, request, dead)
            if begun.held_by is None:
                reverted = node_branches.reconcile(session, request.branch, request.graph)
                self._took_back(session, request.branch, reverted)
                begun = replace(begun, branch_head=node_branches.head_of(session, request.branch))
            return begun

        return self._database.write(change)

    def end(self, request: EndPass, skips: Skips | None = None) -> EndedPass:
        """The skipped ones, the commit on the branch and the end, together or not at all."""

        def put(session: Session, _commit: str | None) -> None:
            if skips is None:
                return
            if skips.whole and skips.whole[2] == node_branches.head_of(session, skips.branch):
                run_states.copy_heads(session, skips, session.now_ms())
            else:
                run_states.put_skips(session, skips, session.now_ms())

        return self._end(request, skips, put)

    def _end(
        self, request: EndPass, skips: Skips | None, put: Callable[[Session, str | None], None]
    ) -> EndedPass:
        def change(session: Session) -> EndedPass:
            if not run_states.holds(session, Fence(request.scope, request.fence)):
                return EndedPass(landed=False)
            self._claim(session)
            for head in skips.restored if skips is not None else ():
                run_states.restore(session, request.branch, head)
            commit = self._committed(session, request) if request.commits else None
            put(session, commit)
            if skips is not None:
                pass_tries.count(session, (), skips)
            return EndedPass(landed=run_states.end(session, request, commit), commit=commit)

        return self._database.write(change)

    def _committed(self, session: Session, request: EndPass) -> str | None:
        """What its nodes made, on the branch."""
        return node_branches.commit_outputs(
            session,
            request.branch,
            run_id=request.run_id,
            pipeline_id=request.pipeline_id,
            author=request.author,
        )

    def _claim(self, session: Session) -> None:
        """Hold what else a write needs; before a branch is held, so that nobody waits in a circle."""

    def _took_back(self, session: Session, branch: str, dataset_ids: list[str]) -> None:
        """The branch's commits were reverted; here the tables know it already."""

    def get(self, run_id: str) -> Pass | None:
        row = self._database.session.one("passes.get", run_id=run_id)
        return run_states.pass_from(row) if row else None

    def any_passes(self) -> bool:
        return self._database.session.one("passes.any") is not None

    def passes(
        self, *, pipeline_id: str | None = None, branch: str | None = None, limit: int = 50
    ) -> list[Pass]:
        """Newest first, without their graphs."""
        found = self._database.session.all(
            "passes.list", before=2**62, pipeline_id=pipeline_id or "", branch=branch or "", limit=limit
        )
        return [run_states.pass_from(row[1:]) for row in found]

    # --- checksums of files --------------------------------------------------------------

    def checksums(self, first: str, last: str) -> dict[str, tuple[int, int, int, str]]:
        """path → size, modification time in ns, inode, checksum; of all paths between the two."""
        found = self._database.session.all("file_checksums.within", first=first, last=last)
        return {row[0]: (row[1], row[2], row[3], row[4]) for row in found}

    def keep_checksums(self, seen: dict[str, tuple[int, int, int, str]]) -> None:
        rows = [
            {"path": path, "size": size, "modified_ns": modified_ns, "inode": inode, "checksum": checksum}
            for path, (size, modified_ns, inode, checksum) in seen.items()
        ]
        self._database.write(lambda session: session.many("file_checksums.put", rows))
