"""A misbehaving server, and sources that talk to it without ever waiting."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from kfm.calls.guard import guarded
from kfm.model.records import Window
from kfm.model.settings import Limits, SourceSettings
from kfm.objects.http_client import HttpxClient
from kfm.sources.http import HttpSource
from tests.stand_ins import START_MS, FakeClock, FixedRng
from tests.unruly import Unruly, unruly_server

DAY = Window(start_ms=START_MS, end_ms=START_MS + 86_400_000, spec="P1D")
SECRETS = {"env:TOKEN": "s3cr3t-token", "env:PASS": "s3cr3t-pass"}


@pytest.fixture(scope="module")
def _server() -> Iterator[Unruly]:
    with unruly_server() as unruly:
        yield unruly


@pytest.fixture
def server(_server: Unruly) -> Unruly:
    _server.scripts.clear()
    _server.asked.clear()
    return _server


@pytest.fixture
def http() -> Iterator[HttpxClient]:
    client = HttpxClient()
    yield client
    client.close()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def guard(clock: FakeClock) -> Any:
    return partial(guarded, clock=clock, rng=FixedRng(), timeout_ms=2000)


@pytest.fixture
def http_source(http: HttpxClient, guard: Any, clock: FakeClock) -> Any:
    """Makes an HTTP source from its settings."""

    def make(url: str, limits: Limits = Limits(call_timeout_ms=2000), **settings: Any) -> HttpSource:  # noqa: B008
        source = SourceSettings(
            id="src", dataset="ds", kind="http", url=url, **{"mode": "replace", **settings}
        )
        return HttpSource(source, http, guard, lambda value: SECRETS.get(value, value), limits, clock)

    return make
