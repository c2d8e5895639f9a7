"""A short form of the fleets of `make crash`: two real processes retry, and are killed while they do."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.fleet import fleet

ROUNDS = 5


@pytest.mark.slow
@pytest.mark.req("RET-3", "RET-7", "TRG-1", "WAL-14")
@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
def test_two_processes_share_one_breaker_and_one_budget(
    backend: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Whichever of them is killed, and whenever: no run is tried more often than it was granted, or before
    its time; no kill gives anything back; and a provider whose circuit is open sees one probe."""
    dsn = request.getfixturevalue("postgres_database") if backend == "postgresql" else None
    told = fleet(20260101, tmp_path / "project", dsn, ROUNDS)
    assert not told.problems, "\n".join(told.problems)
    assert told.kills >= 1, told
    assert told.probes >= 1, told
    assert told.early >= 1, told
    assert told.attempts >= 5, told
