"""Real processes that share one breaker, on SQLite and on PostgreSQL; any of them may be killed."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from kfm.db.ledger import Ledger
from kfm.model import breaker as rules
from kfm.system import SystemClock
from tests.conformance.db.ledgers import postgres_store, sqlite_store

pytestmark = pytest.mark.req("RET-7")

ROOT = Path(__file__).resolve().parents[3]
PROVIDER = "api.example.org"
LEASE_MS = 60_000
WAIT_S = 30


class Caller:
    """One process."""

    def __init__(self, where: str) -> None:
        command = [sys.executable, "-m", "tests.integration.calls.caller", where, PROVIDER, str(LEASE_MS)]
        self.process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._answer() == {"ready": True}

    def order(self, word: str) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()
        return self._answer()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(WAIT_S)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the process ended without a word"
        return json.loads(line)  # type: ignore[no-any-return]


@pytest.fixture(params=["sqlite", "postgresql"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "kfm.db")
    return str(request.getfixturevalue("postgres_database"))


@pytest.fixture
def store(where: str) -> Iterator[Ledger]:
    made = postgres_store(where) if where.startswith("postgresql:") else sqlite_store(where, SystemClock())
    yield made
    made.close()


@pytest.fixture
def start(where: str, store: Ledger) -> Iterator[Callable[[], Caller]]:
    callers: list[Caller] = []

    def make() -> Caller:
        callers.append(Caller(where))
        return callers[-1]

    yield make
    for caller in callers:
        caller.kill()


def pass_time(store: Ledger, span_ms: int) -> None:
    """The row grows older by that much: processes live by the ledger's clock, which no test can turn."""

    def older(breaker: rules.Breaker, _now_ms: int) -> rules.Breaker:
        return replace(
            breaker,
            **{
                name: None if getattr(breaker, name) is None else getattr(breaker, name) - span_ms
                for name in ("opened_at_ms", "probe_until_ms", "tripped_at_ms")
            },
        )

    store.change_breaker(PROVIDER, older)


def known(caller: Caller, wanted: bool) -> dict[str, Any]:
    """Ask until the answer is the wanted one; what others did is known within a second."""
    deadline = time.monotonic() + WAIT_S
    while (answer := caller.order("before"))["refused"] is not wanted:
        assert time.monotonic() < deadline, answer
        time.sleep(0.05)
    return answer


def test_two_processes_share_one_breaker_and_either_may_be_killed(
    store: Ledger, start: Callable[[], Caller]
) -> None:
    """Failures of both add up; one probes; it is killed; the other takes over and the circuit closes."""
    one, two = start(), start()
    for caller in (one, two, one):
        assert caller.order("before") == {"refused": False, "fence": None}
        caller.order("failure")
    assert store.breaker(PROVIDER).state == "open"
    began = time.monotonic()
    assert known(two, True)["not_before_ms"] > store.now_ms() + rules.COOLDOWN_MS - 60_000
    assert time.monotonic() - began < 1 + 4, "known within a second, on a machine that is busy"
    assert one.order("before")["refused"], "the process that saw it happen knows at once"

    pass_time(store, rules.COOLDOWN_MS)
    assert known(one, False)["fence"] == 1
    assert two.order("before")["refused"]
    one.kill()

    assert start().order("before")["refused"], "a dead prober keeps its probe until the lease lapses"
    pass_time(store, LEASE_MS)
    assert known(two, False)["fence"] == 2
    two.order("success")
    assert (store.breaker(PROVIDER).state, store.breaker(PROVIDER).failures) == ("closed", 0)
    assert start().order("before") == {"refused": False, "fence": None}


def test_one_that_was_killed_before_the_probe_leaves_nothing_behind(
    store: Ledger, start: Callable[[], Caller]
) -> None:
    """Its failures count, it holds nothing, and the probe of another that fails opens the circuit again."""
    one = start()
    for _ in range(rules.FAILURES_MAX):
        one.order("before")
        one.order("failure")
    one.kill()
    two = start()
    assert two.order("before")["refused"]
    pass_time(store, rules.COOLDOWN_MS)
    assert known(two, False)["fence"] == 1
    two.order("failure")
    breaker = store.breaker(PROVIDER)
    assert (breaker.state, breaker.failures, breaker.probe_until_ms) == ("open", 4, None)
    assert rules.wait_ms(breaker, store.now_ms()) > rules.COOLDOWN_MS - 60_000
