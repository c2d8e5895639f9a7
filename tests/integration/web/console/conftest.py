"""One filled project for all of these tests: pages only read it."""

from __future__ import annotations

import pytest

from tests.browser.filled import Filled
from tests.integration.web.console.reading import Reader


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Filled:
    return Filled(tmp_path_factory.mktemp("console") / "project", people=False)


@pytest.fixture(scope="session")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Filled:
    """The same, with people in its configuration."""
    return Filled(tmp_path_factory.mktemp("guarded") / "project", people=True)


@pytest.fixture
def reader(filled: Filled) -> Reader:
    return Reader(filled.context)
