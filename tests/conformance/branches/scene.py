"""What the tests of branches say in few words."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256

from kfm.branch_ports import BranchStore
from kfm.core.branching import Commit, Entry, Merged, Preference, Why
from kfm.store.ledger import SqlStore

WHY = Why(actor="ada", rationale="because it has to be")


def entry(content: str) -> Entry:
    return Entry(sha256=sha256(content.encode()).hexdigest(), size=len(content))


@dataclass
class Scene:
    store: SqlStore
    branches: BranchStore

    def put(self, branch: str, message: str = "put", /, **contents: str | None) -> Commit:
        """A commit; `a__b` stands for the path `a/b`, None removes."""
        changes = {
            path.replace("__", "/"): None if text is None else entry(text) for path, text in contents.items()
        }
        made = self.branches.commit(branch, changes, message=message, author="ada")
        assert isinstance(made, Commit)
        return made

    def merge(self, source: str, into: str = "main", prefer: Preference | None = None) -> Merged:
        proposal = self.branches.propose(source, into)
        done = self.branches.merge(proposal, message=f"merge {source}", author="ada", prefer=prefer)
        assert isinstance(done, Merged)
        return done

    def revert(self, ref: str, branch: str = "main") -> Merged:
        done = self.branches.revert(branch, ref, message="revert", author="ada", why=WHY)
        assert isinstance(done, Merged)
        return done

    def begin(self, **contents: str) -> Commit:
        """`main` with these, and `side` from there."""
        self.branches.create("main")
        first = self.put("main", "first", **contents)
        self.branches.create("side", "main")
        return first

    def paths(self, ref: str) -> dict[str, Entry]:
        return dict(self.branches.entries(ref))

    def shows(self, ref: str, **contents: str) -> bool:
        return self.paths(ref) == {path.replace("__", "/"): entry(text) for path, text in contents.items()}
