"""One kind of branches after the other: whatever is promised is promised by each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kfm.branches_remote.lakefs_branches import CANNOT, LakefsBranches
from kfm.branches_remote.lakefs_client import Client
from kfm.db.ledger import Ledger
from kfm.system import SystemClock, SystemIds
from tests.conformance.branches.scene import EntryObjects, Scene
from tests.conformance.db import ledgers
from tests.lakefs_server import ACCESS_KEY, SECRET_KEY, Server, serving


@pytest.fixture(params=["sqlite", "postgresql", "lakefs"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def open_store(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Ledger]]:
    """Opens the same ledger again and again, as other processes would."""
    opened: list[Ledger] = []
    path = str(tmp_path / "kfm.db")
    dsn = request.getfixturevalue("postgres_ledger")() if kind == "postgresql" else ""

    def make() -> Ledger:
        store = ledgers.postgres_store(dsn) if dsn else ledgers.sqlite_store(path, SystemClock())
        opened.append(store)
        return store

    yield make
    for store in opened:
        store.close()


@pytest.fixture
def lakefs(kind: str) -> Iterator[Server | None]:
    """A server with an empty repository. Its pages are short, so that there are always several."""
    if kind != "lakefs":
        yield None
        return
    with serving(page=7) as server:
        yield server


@pytest.fixture
def open_branches(open_store: Callable[[], Ledger], lakefs: Server | None) -> Callable[[], Any]:
    """The same branches again and again, as other processes would see them."""

    def make() -> Any:
        if lakefs is None:
            return open_store().branch_store()
        return lakefs_branches(lakefs)

    return make


def lakefs_branches(server: Server, store: Ledger | None = None) -> LakefsBranches:
    client = Client(server.endpoint, server.repository.name, ACCESS_KEY, SECRET_KEY)
    if store is None:
        return LakefsBranches(client, EntryObjects(), SystemIds(), SystemClock())  # type: ignore[arg-type]
    return LakefsBranches(
        client,
        EntryObjects(),  # type: ignore[arg-type]
        SystemIds(),
        SystemClock(),
        record=lambda entry: store.append_governance([entry]),
        epoch=store.policy_epoch,
    )


@pytest.fixture
def scene(open_store: Callable[[], Ledger], lakefs: Server | None) -> Scene:
    store = open_store()
    if lakefs is None:
        return Scene(store, store.branch_store())
    return Scene(store, lakefs_branches(lakefs, store), CANNOT, "Repository created", many=300)
