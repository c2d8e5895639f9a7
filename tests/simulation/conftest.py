"""Worlds stay on one processor."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.simulation.processor import settled


@pytest.fixture(autouse=True)
def _settled() -> Iterator[None]:
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0")
    with settled(int(worker.removeprefix("gw"))):
        yield
