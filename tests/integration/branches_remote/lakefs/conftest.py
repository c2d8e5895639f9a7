"""A lakeFS stand-in, and branches on it whose waits are counted and not waited."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from kfm.branches_remote.lakefs_branches import LakefsBranches
from kfm.branches_remote.lakefs_client import Client
from kfm.calls.guard import guarded
from kfm.model.branches import Commit, NewCommit, TreeEntry
from kfm.objects.local import LocalObjects
from kfm.system import PosixFiles, SystemIds
from tests.lakefs_server import ACCESS_KEY, SECRET_KEY, Server, serving
from tests.stand_ins import FakeClock, FixedRng


class Site:
    """The branches, and what they are made of."""

    def __init__(self, server: Server, folder: Path) -> None:
        self.server = server
        self.clock = FakeClock()
        self.objects = LocalObjects(PosixFiles(), str(folder / "objects"), SystemIds())
        self.branches = self.open()

    def open(self, *, endpoint: str | None = None, secret_key: str = SECRET_KEY) -> LakefsBranches:
        guard = partial(guarded, clock=self.clock, rng=FixedRng(), timeout_ms=5000)
        client = Client(endpoint or self.server.endpoint, "example", ACCESS_KEY, secret_key, guard)
        return LakefsBranches(client, self.objects, SystemIds(), self.clock)

    def entry(self, text: str) -> TreeEntry:
        staging, _offset = self.objects.stage()
        staging.write(text.encode())
        sha256, size = staging.commit()
        return TreeEntry(sha256=sha256, size=size)

    def put(self, branch: str, **contents: str | None) -> Commit:
        changes = {path: None if text is None else self.entry(text) for path, text in contents.items()}
        made = self.branches.commit(NewCommit(branch, changes, message="put", author="ada"))
        assert isinstance(made, Commit)
        return made

    def shows(self, ref: str) -> dict[str, str]:
        """What others see, read past the adapter."""
        return {path: thing.data.decode() for path, thing in self.server.repository.find(ref).tree.items()}

    def asked(self, operation: str) -> int:
        return sum(1 for name, _path in self.server.requests if name == operation)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with serving() as server:
        yield Site(server, tmp_path)
        leftovers = [name for name in server.repository.branches if name.startswith("kfm-tmp-")]
        assert leftovers == []
