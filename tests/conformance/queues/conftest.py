"""One queue after the other: whatever is promised is promised by each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.queues.senders import EMULATORS, KINDS, Place, credentials


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    fixture = EMULATORS.get(request.param)
    if fixture is not None:
        credentials(monkeypatch)
    made = Place(request.param, tmp_path, request.getfixturevalue(fixture) if fixture else None)
    yield made
    made.close()


@pytest.fixture(params=EMULATORS)
def emulator(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of each emulator of AWS."""
    credentials(monkeypatch)
    return str(request.getfixturevalue(EMULATORS[request.param]))
