"""Whole processes on PostgreSQL under load: two versions side by side, and a failover."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.processes import fail_over, versions_together

pytestmark = pytest.mark.slow


@pytest.mark.req("FLT-2")
def test_the_old_goes_on_beside_what_expands_and_ends_at_what_contracts(
    tmp_path: Path, postgres_database: str
) -> None:
    """Beside a new version that has expanded the ledger, services and workers of the old one go on. What
    would stop them is planned, with who is at work, and done when asked for: then each ends by itself,
    no write of theirs lands any more, and nothing that was accepted or announced is lost or done twice."""
    versions_together(tmp_path, postgres_database)


@pytest.mark.req("FLT-3")
def test_processes_come_back_on_the_promoted_standby(tmp_path: Path, postgres_dsn: str) -> None:
    """A service and a worker whose address names both hosts go on by themselves when the primary is gone
    and its standby is promoted. Nothing that a sender was told is accepted is lost, nothing is done twice,
    and every unit and request comes to its end."""
    assert postgres_dsn  # it says whether servers can be had here
    fail_over(tmp_path)
