"""A short form of what `make crash` does to passes: 200 nodes, killed and started again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.passes import killed, undisturbed

KILLS = 2


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return undisturbed(tmp_path_factory.mktemp("calm") / "project")


@pytest.mark.slow
@pytest.mark.req("RS-9")
@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
@pytest.mark.parametrize("workers", ["threads", "processes"])
def test_a_killed_pass_repeats_nothing_that_was_on_record(
    workers: str, backend: str, tmp_path: Path, expected: dict[str, str], request: pytest.FixtureRequest
) -> None:
    """Killed at any moment and started again: what was finished is not repeated, at most what was at work
    is, no child outlives its parent, and in the end every byte is as if no process had been killed."""
    dsn = request.getfixturevalue("postgres_database") if backend == "postgresql" else None
    told = killed(20260107, tmp_path / "project", workers, dsn, KILLS, expected)
    assert not told.problems, "\n".join(told.problems)
    assert told.kills >= 1, told
