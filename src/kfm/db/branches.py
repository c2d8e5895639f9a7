"""Branches as tables of the ledger. Each method that changes something is one transaction.

For a commit or a merge together with other rows, call the functions of `branch_commits` in that transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Any, TypeVar

from kfm.db import branch_commits, governance, leases, node_branches, rows
from kfm.db.session import Database, Row, Session
from kfm.model import branches
from kfm.model.branches import (
    Branch,
    Commit,
    Merged,
    Moved,
    NewCommit,
    PathChange,
    Preference,
    Proposal,
    Swept,
    Tag,
    TreeEntry,
)
from kfm.model.errors import Busy, RefExists, RefNotFound, SchemaViolation
from kfm.model.records import Justification, governance_entry

LOG_MAX = 100_000
SWEEPS_MAX = 3

T = TypeVar("T")


class EmbeddedBranchReader:
    """Implements `ports.BranchReader` on either database, and finds the garbage of its branches."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    def _session(self) -> Session:
        return self._database.session

    def branches(self) -> list[Branch]:
        return [branch_commits.branch_from(row) for row in self._session.all("branches.list")]

    def branch(self, name: str) -> Branch | None:
        return branch_commits.branch_in(self._session, name)

    def tags(self) -> list[Tag]:
        return [branch_commits.tag_from(row) for row in self._session.all("tags.list")]

    def resolve(self, ref: str) -> Commit:
        return branch_commits.resolve(self._session, ref)

    def log(self, ref: str, *, limit: int = 50, first_parent: bool = True) -> list[Commit]:
        find = branch_commits.finder(self._session)
        walk = branches.first_parents if first_parent else branches.ancestry
        return list(islice(walk(find, self.resolve(ref)), min(limit, LOG_MAX)))

    def entries(self, ref: str, prefix: str = "") -> Iterator[tuple[str, TreeEntry]]:
        return branch_commits.forest_of(self._session).entries(self.resolve(ref).tree_id, prefix)

    def lookup(self, ref: str, paths: Iterable[str]) -> dict[str, TreeEntry]:
        return branch_commits.forest_of(self._session).lookup(self.resolve(ref).tree_id, paths)

    def diff(self, old: str, new: str, prefix: str = "") -> Iterator[PathChange]:
        before, after = self.resolve(old), self.resolve(new)
        return branch_commits.forest_of(self._session).diff(before.tree_id, after.tree_id, prefix)

    def propose(self, source: str, into: str) -> Proposal:
        target = self.branch(into)
        if target is None:
            raise RefNotFound(f"There is no branch `{into[:80]}`.")
        find = branch_commits.finder(self._session)
        head, other = find(target.head), self.resolve(source)
        bases = branches.merge_bases(find, head, other)
        return Proposal(
            source=source,
            source_head=other.commit_id,
            target=into,
            target_head=head.commit_id,
            bases=tuple(base.commit_id for base in bases),
            policy_epoch=_epoch(self._session.one("policy.epoch")),
        )

    def garbage(self, before_ms: int) -> Swept:
        """What no ref reaches and is older. Reads only."""
        return branch_commits.garbage(self._session, before_ms)

    def objects_kept(self, before_ms: int) -> Iterator[str]:
        """Every object (SHA-256) of the commits that a sweep would leave; some more than once."""
        return branch_commits.objects_kept(self._session, before_ms)


class EmbeddedBranches(EmbeddedBranchReader):
    """Implements `ports.Branches` on either database, and collects the garbage of its branches."""

    def create(self, name: str, at: str | None = None, *, why: Justification | None = None) -> Branch:
        def change(session: Session) -> Branch:
            branch_commits.take_part(session)
            start = branch_commits.resolve(session, at).commit_id if at is not None else None
            made = branch_commits.create_in(session, name, start)
            node_branches.branched(session, at, made)
            _append_entry(session, "branch-create", made.name, why, head=made.head)
            return made

        return self._database.write(change)

    def delete(self, name: str, *, why: Justification, expected: str | None = None) -> Branch | Moved:
        def change(session: Session) -> Branch | Moved:
            if lock := leases.at_work_on(session, name):
                assert lock.holder is not None
                raise Busy(
                    f"Run {lock.holder.run_id} works on {name}, so the branch is not deleted.",
                    remedy="Wait for it, or stop it; a run that was killed counts until its lease lapses.",
                )
            gone = branch_commits.delete_in(session, name, expected=expected)
            if isinstance(gone, Branch):
                node_branches.forgotten(session, gone.name)
                _append_entry(session, "branch-delete", gone.name, why, head=gone.head)
            return gone

        return self._database.write(change)

    def commit(self, new: NewCommit) -> Commit | Moved:
        return self._database.write(lambda session: branch_commits.commit_in(session, new))

    def merge(
        self,
        proposal: Proposal,
        *,
        message: str,
        author: str,
        gated: bool = False,
        prefer: Preference | None = None,
        why: Justification | None = None,
    ) -> Merged | Moved:
        def change(session: Session) -> Merged | Moved:
            branch_commits.take_part(session)
            seen = branch_commits.resolve(session, proposal.source).commit_id
            if seen != proposal.source_head:
                return Moved(branch=proposal.source, expected=proposal.source_head, actual=seen)
            if gated and (epoch := governance.held_epoch(session)) != proposal.policy_epoch:
                return Moved(
                    branch=proposal.target, expected=f"epoch {proposal.policy_epoch}", actual=f"epoch {epoch}"
                )
            before = branch_commits.held_in(session, proposal.target)
            merged = branch_commits.merge_in(
                session,
                proposal.source_head,
                proposal.target,
                message=message,
                author=author,
                expected=proposal.target_head,
                gated=gated,
                prefer=prefer,
            )
            if isinstance(merged, Merged) and merged.commit is not None and merged.outcome == "merged":
                node_branches.merged(session, proposal.source, proposal.target, before, merged.commit)
            _append_merge_entry(session, "branch-merge", merged, why, source=proposal.source)
            return merged

        return self._database.write(change)

    def revert(
        self,
        branch: str,
        ref: str,
        *,
        message: str,
        author: str,
        expected: str | None = None,
        gated: bool = False,
        prefer: Preference | None = None,
        why: Justification | None = None,
    ) -> Merged | Moved:
        def change(session: Session) -> Merged | Moved:
            branch_commits.take_part(session)
            undone = branch_commits.resolve(session, ref).commit_id
            reverted = branch_commits.revert_in(
                session,
                branch,
                undone,
                message=message,
                author=author,
                expected=expected,
                gated=gated,
                prefer=prefer,
            )
            _append_merge_entry(session, "branch-revert", reverted, why, reverts=undone)
            return reverted

        return self._database.write(change)

    def tag(self, name: str, ref: str, *, message: str, author: str, why: Justification | None = None) -> Tag:
        branches.check_name(name)

        def change(session: Session) -> Tag:
            branch_commits.take_part(session)
            tag = Tag(
                name=name,
                commit_id=branch_commits.resolve(session, ref).commit_id,
                message=rows.storable(message),
                author=rows.storable(author),
                at_ms=session.now_ms(),
            )
            if session.one("commits.hold", commit_id=tag.commit_id) is None:
                raise RefNotFound(f"`{ref}` is not in the database.")
            if session.one("branches.get", name=name) is not None:
                raise RefExists(f"`{name}` is a branch.")
            inserted = session.one(
                "tags.insert",
                name=tag.name,
                commit_id=tag.commit_id,
                message=tag.message,
                author=tag.author,
                at_ms=tag.at_ms,
            )
            if inserted is None:
                raise RefExists(f"`{name}` is a tag, and tags do not move.")
            _append_entry(session, "tag-create", name, why, commit=tag.commit_id)
            return tag

        return self._database.write(change)

    def delete_tag(self, name: str, *, why: Justification) -> Tag:
        def change(session: Session) -> Tag:
            row = session.one("tags.get", name=rows.storable(name))
            if row is None or session.one("tags.delete", name=name) is None:
                raise RefNotFound(f"There is no tag `{name[:80]}`.")
            _append_entry(session, "tag-delete", name, why, commit=row[1])
            return branch_commits.tag_from(row)

        return self._database.write(change)

    def protect(self, name: str, on: bool, *, why: Justification) -> Branch:
        def change(session: Session) -> Branch:
            held = branch_commits.held_in(session, name)
            if held.protected != on:
                session.one("branches.protect", name=held.name, protected=int(on))
                _append_entry(
                    session, "branch-protect" if on else "branch-unprotect", held.name, why, head=held.head
                )
            found = branch_commits.branch_in(session, held.name)
            assert found is not None
            return found

        return self._database.write(change)

    def sweep(self, before_ms: int) -> Swept:
        """Most of the marking is done before the transaction, which only looks at what has changed since."""
        nothing = Swept(commits=0, trees=0)
        for _ in range(SWEEPS_MAX):
            marks = branch_commits.Marks()
            marks.mark(self._session, before_ms)
            if branch_commits.unreached(self._session, marks, before_ms) == nothing:
                return nothing
            try:
                return self._database.write(
                    partial(branch_commits.sweep_in, marks=marks, before_ms=before_ms)
                )
            # kfm: allow KFM102, KFM106 lost race: a new ref names what was removed, its foreign key held it
            except SchemaViolation:
                continue
        return nothing


def _epoch(row: Row | None) -> int:
    assert row is not None, "the migration makes it"
    return int(row[0])


def _append_merge_entry(
    session: Session, kind: str, merged: Merged | Moved, why: Justification | None, **more: Any
) -> None:
    if isinstance(merged, Merged) and merged.outcome == "merged":
        assert merged.commit is not None
        details = {"commit": merged.commit.commit_id, "paths": merged.changed, **more}
        _append_entry(session, kind, merged.target, why, **details)


def _append_entry(session: Session, kind: str, name: str, why: Justification | None, **details: Any) -> None:
    """Last of all in its transaction."""
    if why is None:
        return
    subject = f"branch:{name}" if not kind.startswith("tag") else f"tag:{name}"
    governance.append(session, [governance_entry(kind, subject, session.now_ms(), why, **details)])
