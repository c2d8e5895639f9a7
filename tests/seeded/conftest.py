"""The seeded world for all of these tests: they only look at it, or take a copy of their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.seeded.site import Site, site_of
from tests.world.keeping import copied_world


@pytest.fixture(scope="session")
def seeded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copied_world(tmp_path_factory.mktemp("seeded") / "world")


@pytest.fixture(scope="module")
def site(seeded: Path) -> Iterator[Site]:
    """Its module is at the world's last moment meanwhile."""
    with site_of(seeded) as found:
        yield found
