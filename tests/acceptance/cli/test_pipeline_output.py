"""What a pass lets out: data on stdout and nothing else; no secret in its records."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.acceptance.cli.conftest import Called

Kfm = Callable[..., Called]
NOISY = """\
import os, subprocess
import kfm
subprocess.run(["echo", "while it is loaded"])
noise = kfm.Pipeline("noise")

@noise.node("noise.made")
def made():
    print("printed")
    os.write(1, b"written\\n")
    subprocess.run(["echo", "by a program"])
    return 1
"""
SECRET = """\
import kfm
calls = kfm.Pipeline("calls")

@calls.node("calls.made", params={"api_key": "KEY", "page": 1})
def made(api_key, page):
    return page
"""


@pytest.mark.parametrize("options", [(), ("--processes",)])
def test_only_data_is_on_stdout(project: Path, options: tuple[str, ...]) -> None:
    """Programs that nodes start inherit stdout; what they print there would break the document."""
    (project / "kfm.yml").unlink()
    (project / "flow.py").write_text(NOISY)
    ended = subprocess.run(
        [sys.executable, "-m", "kfm", "pipeline", "run", "flow.py", "--json", *options],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (ended.returncode, json.loads(ended.stdout)["counts"]["ran"]) == (0, 1)
    for noise in ("while it is loaded", "printed", "written", "by a program"):
        assert noise in ended.stderr


@pytest.mark.req("RS-13", "RS-12")
def test_a_parameter_with_the_name_of_a_secret_is_not_kept(kfm: Kfm, project: Path) -> None:
    """It counts in the hash, so that a new key runs the node again; its value is nowhere on record."""
    (project / "kfm.yml").unlink()
    flow = project / "flow.py"
    flow.write_text(SECRET.replace("KEY", "correct-horse-battery"))
    assert kfm("pipeline", "run", "flow.py").code == 0
    flow.write_text(SECRET.replace("KEY", "staple-horse-battery"))
    assert kfm("pipeline", "run", "flow.py", "--json").document["counts"]["ran"] == 1
    told = kfm("explain", "last/calls.made").out
    assert "it is, or looks like, a secret" in told
    flow.write_text(SECRET.replace("KEY", "staple-horse-battery").replace('"page": 1', '"page": 2'))
    assert kfm("pipeline", "run", "flow.py").code == 0
    told += kfm("explain", "last/calls.made").out
    assert "parameter page changed from 1 to 2" in told
    assert "horse-battery" not in told
    for kept in (project / ".kfm").rglob("*"):
        assert not kept.is_file() or b"horse-battery" not in kept.read_bytes(), kept
