"""What the tests of branches say in few words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from io import BytesIO
from typing import Any

import pytest

from kfm.db.ledger import Ledger
from kfm.model.branches import Branch, Commit, Merged, NewCommit, Preference, TreeEntry
from kfm.model.records import Justification

WHY = Justification(actor="ada", rationale="because it has to be")


_BYTES: dict[str, bytes] = {}


def entry(content: str) -> TreeEntry:
    data = content.encode()
    made = TreeEntry(sha256=sha256(data).hexdigest(), size=len(data))
    _BYTES[made.sha256] = data
    return made


class EntryObjects:
    """The bytes of all entries that `entry` made, for branches that keep them elsewhere."""

    def open(self, sha256: str) -> BytesIO:
        return BytesIO(_BYTES[sha256])


@dataclass
class Scene:
    store: Ledger
    branches: Any  # BranchStore; Branches where `cannot` has "garbage"
    cannot: Mapping[str, str] = field(default_factory=dict)  # promises that are not kept, and why
    beginning: str = ""  # the message of the first commit of all
    many: int = 3000

    def needs(self, promise: str) -> None:
        if promise in self.cannot:
            pytest.skip(self.cannot[promise])

    def start(self, name: str = "main") -> Branch:
        """The first branch: made, or there from the beginning."""
        if "first-branch" in self.cannot:
            (found,) = self.branches.branches()
            assert found.name == name
            return found
        return self.branches.create(name)

    def put(self, branch: str, message: str = "put", /, **contents: str | None) -> Commit:
        """A commit; `a__b` stands for the path `a/b`, None removes."""
        changes = {
            path.replace("__", "/"): None if text is None else entry(text) for path, text in contents.items()
        }
        made = self.branches.commit(NewCommit(branch, changes, message=message, author="ada"))
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
        self.start()
        first = self.put("main", "first", **contents)
        self.branches.create("side", "main")
        return first

    def paths(self, ref: str) -> dict[str, TreeEntry]:
        return dict(self.branches.entries(ref))

    def shows(self, ref: str, **contents: str) -> bool:
        return self.paths(ref) == {path.replace("__", "/"): entry(text) for path, text in contents.items()}
