"""A primary is killed under services and workers, and its synchronous standby is promoted."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from tests import services
from tests.crash.processes import processes
from tests.integration.db.test_failover import Pair, kill_server, wait_for_standby


@pytest.mark.slow
@pytest.mark.req("FLT-3")
def test_processes_come_back_on_the_promoted_standby(tmp_path: Path, postgres_dsn: str) -> None:
    """A service and two workers whose address names both hosts go on by themselves when the primary is gone
    and its standby is promoted. Nothing that a sender was told is accepted is lost, nothing is done twice,
    and every unit and request comes to its end."""
    with services.postgres() as primary, services.standby_of(primary) as (standby, promote):
        pair = Pair(primary, standby, promote)
        with psycopg.connect(primary, autocommit=True) as admin:
            admin.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            admin.execute("SELECT pg_reload_conf()")
            wait_for_standby(admin, "sync")
            (data,) = admin.execute("SHOW data_directory").fetchone() or ("",)
        with processes(tmp_path / "project", pair.both) as fleet:
            started = [fleet.service(), fleet.worker(), fleet.worker()]
            fleet.load()
            fleet.go_on()
            kill_server(data)
            promote()
            fleet.go_on()
            assert [one.wait(0) for one in started] == [None] * 3  # none was started again
            fleet.finish()
            assert [one.wait(0) for one in started] == [0] * 3
            assert fleet.problems() == []
