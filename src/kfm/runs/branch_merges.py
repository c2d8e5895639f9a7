"""Merges into protected branches: gates first, then one transaction."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from kfm.model.branches import Merged, Moved, Preference, Proposal
from kfm.model.errors import BranchMoved, BranchProtected, RationaleRequired, RefNotFound, SwitchThrown
from kfm.model.records import Justification, justified
from kfm.ports import Branches, BranchReader

if TYPE_CHECKING:
    from kfm.app import App
    from kfm.db.ledger import Ledger


ROUNDS_MAX = 10  # how often others may be faster

BeforeMerge = Callable[[Proposal], None]  # raises whatever refuses
Gate = TypeVar("Gate", bound=BeforeMerge)


class Merging:
    """Branches, and the gates before a protected one changes."""

    def __init__(self, branches: Branches) -> None:
        self.branches = branches
        self._gates: list[BeforeMerge] = []

    def before_merge(self, gate: Gate) -> Gate:
        """Ask this before a protected branch changes: it refuses by raising. Also a decorator."""
        self._gates.append(gate)
        return gate

    def merge(
        self,
        source: str,
        into: str,
        *,
        message: str | None = None,
        author: str,
        prefer: Preference | None = None,
        why: Justification | None = None,
    ) -> Merged:
        """All of `source` in `into`, or conflicts and nothing. If either moves, the gates look again."""
        moved: Moved | None = None
        for _ in range(ROUNDS_MAX):
            gated = self._is_protected(into)
            proposal = self.branches.propose(source, into)
            if gated:
                self._ask(proposal, why)
            answer = self.branches.merge(
                proposal,
                message=message or f"Merge {source} into {into}",
                author=author,
                gated=gated,
                prefer=prefer,
                why=why if gated or (why and why.rationale) else None,
            )
            if isinstance(answer, Merged):
                return answer
            moved = answer
        assert moved is not None
        raise BranchMoved(f"`{moved.branch}` moved {ROUNDS_MAX} times while it was being merged.")

    def revert(
        self,
        branch: str,
        ref: str,
        *,
        message: str | None = None,
        author: str,
        prefer: Preference | None = None,
        why: Justification,
    ) -> Merged:
        """Take back one commit of a branch; on a protected one through the same gates."""
        undone = self.branches.resolve(ref)
        first = undone.message.splitlines()[0] if undone.message else undone.commit_id[:12]
        for _ in range(ROUNDS_MAX):
            gated = self._is_protected(branch)
            head = self.branches.resolve(branch).commit_id
            if gated:
                proposal = self.branches.propose(undone.commit_id, branch)
                self._ask(proposal, why)
            answer = self.branches.revert(
                branch,
                undone.commit_id,
                message=message or f'Revert "{first}"',
                author=author,
                expected=head,
                gated=gated,
                prefer=prefer,
                why=why,
            )
            if isinstance(answer, Merged):
                return answer
        raise BranchMoved(f"`{branch}` moved {ROUNDS_MAX} times meanwhile.")

    def _is_protected(self, name: str) -> bool:
        branch = self.branches.branch(name)
        if branch is None:
            raise RefNotFound(f"There is no branch `{name[:80]}`.")
        return branch.protected

    def _ask(self, proposal: Proposal, why: Justification | None) -> None:
        if why is None or not (why.rationale or "").strip():
            raise RationaleRequired(f"`{proposal.target}` is protected.")
        if not self._gates:
            raise BranchProtected(f"No gate stands before `{proposal.target}`, so nothing passes.")
        for gate in self._gates:
            gate(proposal)


def branches(app: App) -> Branches:
    """Where the configuration says that they are."""
    if app.settings.lakefs is None:
        assert app.store is not None, "a command that only reads was about to change branches"
        return app.store.branch_store()
    return _on_lakefs(app)


def reader(app: App) -> BranchReader:
    return app.ledger.branch_reader() if app.settings.lakefs is None else _on_lakefs(app)


def _on_lakefs(app: App) -> Branches:
    from kfm.pipelines.run_state_store import lakefs_branches, parts_of

    return lakefs_branches(parts_of(app, app.store))


def merging(app: App) -> Merging:
    """Merges and reverts, with the gates that every environment has."""
    store = app.store
    assert store is not None, "a command that only reads was about to merge"
    made = Merging(branches(app))
    made.before_merge(switch_gate(store))
    return made


def switch_gate(store: Ledger) -> Callable[[Proposal], None]:
    """Nothing is merged into a protected branch while everything is paused or stopped."""

    def gate(proposal: Proposal) -> None:
        for switch in store.switches():
            if switch.scope == "all" and switch.position != "running":
                raise SwitchThrown(f"Everything is {switch.position}: `{proposal.target}` was not touched.")

    return gate


def why(
    app: App, rationale: str | None, ticket: str | None = None, claimed: str | None = None
) -> Justification:
    redact = app.loaded.discretion.said
    return justified(redact, app.actor, rationale or None, ticket or None, claimed or None)
