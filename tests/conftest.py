"""Fixtures for services, and one loud line for each that could not be had."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from itertools import groupby, islice
from typing import Any

import hypothesis
import pytest

from tests import services
from tests.memory_disk import memory_disk

if (place := memory_disk()) is not None:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", place)  # of `tmp_path`

MISSING = "service unavailable"

# The same examples each time, however slow the machine; campaigns of their own look for new ones.
hypothesis.settings.register_profile("kfm", derandomize=True, deadline=None, print_blob=True)
hypothesis.settings.load_profile("kfm")


def _serve(name: str) -> Iterator[str]:
    """Skip, or fail where KFM_REQUIRE_SERVICES names the service."""
    try:
        running = services.STARTERS[name]()
        address = running.__enter__()
    except services.ServiceUnavailable as reason:
        if name in services.required(os.environ.get("KFM_REQUIRE_SERVICES", "")):
            pytest.fail(f"{name} is required by KFM_REQUIRE_SERVICES: {reason}", pytrace=False)
        pytest.skip(f"{MISSING}: {name}: {reason}")
    try:
        yield address
    finally:
        running.__exit__(None, None, None)


@pytest.fixture(scope="session")
def postgres_dsn() -> Iterator[str]:
    """The DSN of a real PostgreSQL server's `postgres` database."""
    yield from _serve("postgres")


@pytest.fixture
def postgres_database(postgres_dsn: str) -> Iterator[str]:
    """The DSN of a database that only this test uses."""
    with services.postgres_database(postgres_dsn) as dsn:
        yield dsn


@pytest.fixture(scope="session")
def pooled_dsn(postgres_dsn: str) -> Iterator[str]:
    """The DSN of the server's `postgres` through pgbouncer, two connections in transaction mode."""
    for path in _serve("pgbouncer"):
        with services.pooler(path, postgres_dsn) as dsn:
            yield dsn


@pytest.fixture(scope="session")
def chromium_path() -> Iterator[str]:
    """The path of a real browser."""
    yield from _serve("chromium")


@pytest.fixture(scope="session")
def airflow_environment() -> Iterator[str]:
    """The folder of an environment with Airflow and kfm in it."""
    yield from _serve("airflow")


@pytest.fixture(scope="session")
def node_path() -> Iterator[str]:
    """The path of Node.js, new enough for the twin."""
    yield from _serve("node")


@pytest.fixture(scope="session")
def langgraph_environment() -> Iterator[str]:
    """The folder of an environment with LangGraph and kfm in it."""
    yield from _serve("langgraph")


@pytest.fixture(scope="session")
def pgstac_address() -> Iterator[str]:
    """The address of a STAC API that takes items. Each test has collections of its own."""
    yield from _serve("pgstac")


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """The address of an S3 emulator; credentials are `tests.services.S3_*`."""
    yield from _serve("s3")


@pytest.fixture(scope="session")
def ministack_endpoint() -> Iterator[str]:
    """The address of another emulator of AWS; it takes the same credentials."""
    yield from _serve("ministack")


@pytest.fixture
def s3_bucket(s3_endpoint: str) -> Iterator[str]:
    """The name of an empty bucket that only this test uses."""
    with services.s3_bucket(s3_endpoint) as name:
        yield name


@pytest.fixture(scope="session")
def promtool() -> Iterator[str]:
    """The path of Prometheus' rule checker."""
    yield from _serve("promtool")


@pytest.fixture(scope="session")
def systemd_analyze() -> Iterator[str]:
    """The path of systemd's checker of units."""
    yield from _serve("systemd")


@pytest.fixture(scope="session")
def runc() -> Iterator[str]:
    """The path of a runtime of containers; what is mounted and made for them is each test's own."""
    yield from _serve("runc")


@pytest.fixture(scope="session")
def network_namespaces() -> Iterator[str]:
    """The path of `ip`, where network namespaces can be made."""
    yield from _serve("netns")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Each worker has its share of the slow tests first: what is left in the end is short. Those of one file
    stay together: what they share is made once."""
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    slow = [one for one in items if one.get_closest_marker("slow")]
    quick = iter([one for one in items if not one.get_closest_marker("slow")])
    files = [list(together) for _, together in groupby(slow, key=lambda one: one.path)]
    spread: list[pytest.Item] = []
    for number in range(workers):
        first = [one for together in files[number::workers] for one in together]
        spread += [*first, *islice(quick, max(0, len(items) // workers - len(first)))]
    items[:] = [*spread, *quick]


def pytest_terminal_summary(terminalreporter: Any) -> None:
    skipped: Counter[str] = Counter()
    for report in terminalreporter.stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        _, found, rest = reason.partition(f"{MISSING}: ")
        if found:
            skipped[rest] += 1
    for service, count in sorted(skipped.items()):
        terminalreporter.write_line(f"!!! NOT TESTED, {count} tests skipped: {service}", red=True, bold=True)
