"""The testing helper, as users meet it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import kfm
from kfm.calls.runtime import HERE
from kfm.testing.driven_time import DrivenTime, driven_time

SUITE = """
import asyncio
import kfm
import pytest

calls = []

@kfm.call(provider="usgs", timeout=60, idempotent=True)
def fetch(timeout):
    calls.append(timeout)
    if len(calls) < 3:
        raise ConnectionError
    return "done"

@kfm.call(provider="usgs", timeout=60, idempotent=True)
async def always_down():
    raise ConnectionError

def test_sync(kfm_time):
    kfm_time.jitter = 1.0
    assert fetch() == "done"
    assert kfm_time.delays == [0.5, 1.0]
    assert calls == [60.0, 59.5, 58.5]

def test_async_opens_the_circuit(kfm_time):
    with pytest.raises(ConnectionError):
        asyncio.run(always_down())
    assert len(kfm_time.delays) == 2
    with pytest.raises(kfm.CircuitOpen):
        fetch()
    kfm_time.advance(300)
    assert fetch() == "done"

def test_circuits_are_closed_again(kfm_time):
    assert fetch() == "done"
    assert kfm_time.tried == []
"""


def test_users_suite(tmp_path: Path) -> None:
    """With kfm installed the fixture is there; sleeps are gone, tests don't share circuits."""
    (tmp_path / "test_it.py").write_text(SUITE)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, "test_it.py"]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    started_s = time.monotonic()
    ran = subprocess.run(command, cwd=tmp_path, env=clean, capture_output=True, text=True, timeout=60)
    assert "3 passed" in ran.stdout, ran.stdout + ran.stderr
    assert time.monotonic() - started_s < 30


def test_no_effect_unless_used() -> None:
    """Outside of the fixture the clock is the real one, before and after."""
    _ = kfm.call
    before = (HERE.clock, HERE.rng, HERE.breakers, HERE.pause, HERE.observer)
    with driven_time() as driven:
        assert HERE.clock is driven
        _ = kfm.deadline
    assert before == (HERE.clock, HERE.rng, HERE.breakers, HERE.pause, HERE.observer)
    assert not isinstance(HERE.clock, DrivenTime)


def test_the_plugin_itself_loads_little() -> None:
    """pytest loads the plugin in every project that has kfm installed: it must cost nothing."""
    code = (
        "import sys, pytest; before = set(sys.modules); import kfm.testing.plugin\n"
        "print(sorted(name for name in set(sys.modules) - before if name.split('.')[0] != 'kfm'))\n"
        "print(sorted(name for name in sys.modules if name.startswith('kfm.')))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert ran.stdout.splitlines() == ["[]", "['kfm.testing', 'kfm.testing.plugin']"], ran.stderr
