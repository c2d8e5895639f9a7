"""The state folder: what is opened from it, and when a worker's sign of life ends."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from kfm.config.state_folder import StateFolder
from kfm.model.errors import BackendUnavailable


@pytest.fixture
def folder(tmp_path: Path) -> StateFolder:
    return StateFolder(str(tmp_path / "state"))


def signs_of_life(folder: StateFolder) -> int:
    return len(list((Path(folder.path) / "workers").iterdir()))


def test_a_reader_makes_nothing(folder: StateFolder) -> None:
    """Reading where there is no ledger yet leaves no folder behind."""
    with closing(folder.open_reader()) as ledger:
        assert all(lock.holder is None for lock in ledger.locks())
    assert not Path(folder.path).exists()


def test_objects_lie_in_the_folder(folder: StateFolder) -> None:
    """The application, pipelines and their child processes find each other's objects."""
    folder.open_ledger().close()
    staging, _ = folder.local_objects().stage()
    staging.write(b"soil")
    sha256, _ = staging.commit()
    assert StateFolder(folder.path).local_objects().size_of(sha256) == 4
    assert (
        folder.local_objects()
        .local_path(
            sha256,
        )
        .startswith(folder.path)
    )  # type: ignore[union-attr]


def test_a_worker_without_a_lock_ends_its_sign_of_life(folder: StateFolder) -> None:
    """After its work nothing is left to be looked at by others."""
    with closing(folder.open_ledger()) as ledger:
        folder.liveness.claim("worker-1")
        folder.release(ledger, "worker-1")
    assert signs_of_life(folder) == 0


def test_a_worker_that_holds_a_lock_stays_alive_for_others(folder: StateFolder) -> None:
    """Its lock is not taken over before its process has ended, although it is closed."""
    with closing(folder.open_ledger()) as ledger:
        folder.liveness.claim("worker-1")
        ledger.begin_collection("worker-1", 60_000, folder.liveness.is_dead)
        folder.release(ledger, "worker-1")
    assert signs_of_life(folder) == 1
    assert not StateFolder(folder.path).liveness.is_dead("worker-1")
    folder.liveness.close()


def test_an_unreadable_ledger_keeps_the_sign_of_life(folder: StateFolder) -> None:
    """Where it can't be known whether a lock is held, the worker counts as alive."""

    class Broken:
        def locks(self) -> Any:
            raise BackendUnavailable("gone")

    broken: Any = Broken()
    folder.liveness.claim("worker-1")
    folder.release(broken, "worker-1")
    assert signs_of_life(folder) == 1
    folder.liveness.close()
