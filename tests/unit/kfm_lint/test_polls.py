"""Waiting for whatever comes is no retry; asking for something again is, however it is spelt."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kfm_lint.checker import check
from kfm_lint.source import python_files

pytestmark = pytest.mark.req("RET-10")

LOOP = """\
import time
import requests

def ask(queue, session, url):
    while True:
        try:
            return {call}
        except {error}:
            time.sleep(5)
"""


@pytest.mark.parametrize("error", ["Exception", "requests.Timeout", "TimeoutError"])
@pytest.mark.parametrize(
    "call",
    [
        "requests.get('https://a.example/x', timeout=5)",
        "requests.get(url, timeout=5)",
        "session.get('https://a.example/x', timeout=5)",
    ],
)
def test_an_address_in_the_call_makes_no_difference(call: str, error: str) -> None:
    """A request that is repeated for ever with a fixed wait is found, also if its address stands in it."""
    findings = check(LOOP.format(call=call, error=error).encode(), every=True).findings
    assert {"KFM101", "KFM103"} <= {one.code for one in findings}


@pytest.mark.parametrize("call", ["queue.get(timeout=1)", "queue.get(True, 1)"])
def test_a_queue_is_waited_for(call: str) -> None:
    """The next thing from a queue is something else each time."""
    assert check(LOOP.format(call=call, error="TimeoutError").encode(), every=True).findings == []


def test_a_pipe_among_the_files_is_not_read(tmp_path: Path) -> None:
    """No process may ever write to it: a check of a folder ends all the same."""
    os.mkfifo(tmp_path / "pipe.py")
    (tmp_path / "a.py").write_text("x = 1\n")
    os.symlink("nowhere.py", tmp_path / "broken.py")
    assert [os.path.basename(path) for path in python_files([str(tmp_path)])] == ["a.py", "broken.py"]
