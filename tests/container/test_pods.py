"""Pods of deploy/kubernetes on this machine's own file system; `python -m tests.container` does more of it,
on the image that deploy/Containerfile makes."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from tests.container.campaign import ROOT, Told, run
from tests.container.machine_image import machine_image


@pytest.mark.slow
@pytest.mark.req("FLT-4")
@pytest.mark.usefixtures("runc", "postgres_dsn", "s3_endpoint")
def test_services_of_the_manifests_start_answer_and_drain() -> None:
    """Two services run as the manifests say: as their user, without capabilities, on a read-only file system.
    Their probes are answered by address, everything else by name alone. After SIGTERM in the middle of a run
    one is alive and not ready, takes a webhook that the other runs, ends its run, and is gone within its
    grace period. Nothing is tried twice."""
    told = Told()
    with tempfile.TemporaryDirectory(prefix="kfm-pods-") as name:
        scratch = Path(name)
        with machine_image(ROOT / "deploy" / "Containerfile", ROOT / "src", scratch / "made") as image:
            run(image, scratch, told, is_short=True)
    assert told.problems == []
