"""A short form of `python -m tests.crash.clusters`: workers and the pipeline run itself are killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.clusters import campaign


@pytest.mark.slow
@pytest.mark.req("FLT-4")
def test_killed_workers_and_a_killed_pipeline_run_leave_what_threads_make(
    tmp_path: Path, postgres_database: str, s3_endpoint: str, s3_bucket: str
) -> None:
    """Every byte is as threads make it, one record a node, and only what was at work at a kill ran again; the
    killed pipeline run goes on from another folder."""
    told = campaign(
        tmp_path, postgres_database, s3_endpoint, s3_bucket, nodes=60, kills=2, seed=20260118, suspend=False
    )
    assert not told.problems, "\n".join(told.problems)
    assert (told.kills, told.coordinators_killed) == (2, 1)
