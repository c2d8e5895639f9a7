"""A process that was stopped with old data in its hands, while a successor published newer data."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash import scenarios
from tests.crash.project import PERSON, finish, table
from tests.crash.scenarios import LEASE_SECONDS, STOP, Scenario, child_command
from tests.crash.upstream import serving

NEWER = table("newest", 70)


@pytest.fixture(scope="module")
def scenario(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scenario]:
    with serving() as upstream:
        yield scenarios.build("files-update", tmp_path_factory.mktemp("stale"), upstream)


@pytest.mark.slow
@pytest.mark.req("UPD-8", "TRG-4")
@pytest.mark.parametrize("phase", ["fetch", "validate", "promote", "project"])
def test_old_data_never_comes_back(scenario: Scenario, tmp_path: Path, phase: str) -> None:
    """Whatever a stopped process still holds, once a successor has published newer data that stays."""
    project = scenario.copy_to(tmp_path / "project")
    # At its first operation: the old data is known, the decisive transaction has not begun.
    stopped = project.start(command=child_command(tmp_path / "note", phase, 1, STOP))
    _, status = os.waitpid(stopped.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    time.sleep(LEASE_SECONDS + 0.1)
    project.write("incoming/table-1.csv", NEWER)
    successor = project.run(*PERSON)
    assert (successor.code, successor.result["word"]) == (0, "published"), successor
    shown = project.current()
    (path,) = (project.published / "levels/current/data").rglob("table-1.csv")
    assert path.read_bytes() == NEWER

    stopped.send_signal(signal.SIGCONT)
    ended = finish(stopped)
    # 5: its lease has passed on · 1: the file that it wanted to fetch has changed · 0: its own
    # promotion was committed long before, and stands below the newer one.
    codes = {"fetch": (1, 5), "project": (0,)}
    assert ended.code in codes.get(phase, (5,)), ended
    assert project.current() == shown
    before = 2 if phase == "project" else 1
    assert project.rows("SELECT max(sequence) FROM promotions") == [(before + 1,)]
    assert project.rows("SELECT DISTINCT status FROM runs") == [("success",)]
    assert project.rows("SELECT * FROM locks WHERE worker_id IS NOT NULL") == []
    assert project.run().result["word"] == "unchanged"
    assert project.current() == shown
