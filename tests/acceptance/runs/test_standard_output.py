"""Standard output is for results, whatever a pipeline's function prints, and however."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.acceptance.runs.conftest import Inside
from tests.crash.project import environment

NOISY = """\
import os
import subprocess
import sys

print("NOISE at import")


def publish(context):
    print("NOISE")
    sys.__stdout__.write("NOISE of the first stream\\n")
    sys.__stdout__.flush()
    os.write(1, b"NOISE of a descriptor\\n")
    subprocess.run([sys.executable, "-c", "print('NOISE of a child')"], check=True)
    for entry in context.inputs:
        context.publisher.write_file(entry.path, entry.fetched)
"""
NOISES = 5  # as often as NOISY prints


def called(project: Inside, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own, whose descriptors are real."""
    return subprocess.run(
        [sys.executable, "-m", "kfm", *arguments],
        cwd=project.folder,
        env=environment(**project.env),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def noisy(project: Inside) -> Inside:
    project.write("noisy.py", NOISY)
    project.configure(extra="pipeline: 'noisy.py:publish'")
    return project


@pytest.mark.req("CLI-1")
def test_what_a_function_prints_is_no_result(noisy: Inside) -> None:
    """`print`, a write to descriptor 1 and children of a pipeline's function go to standard error."""
    done = called(noisy, "run", "--json")
    assert json.loads(done.stdout)["results"][0]["word"] == "published"
    assert done.stderr.count("NOISE") == NOISES


@pytest.mark.req("CLI-1")
@pytest.mark.parametrize("command", [("run", "--dry-run"), ("diff",)])
def test_what_a_preview_prints_is_no_plan(noisy: Inside, command: tuple[str, ...]) -> None:
    """A preview runs the same function; each line of its output is JSON all the same."""
    done = called(noisy, *command, "--output", "jsonl")
    assert done.returncode == 0, done.stderr
    assert [json.loads(line) for line in done.stdout.splitlines()]
    assert done.stderr.count("NOISE") == NOISES


@pytest.mark.req("CLI-1")
def test_text_has_the_result_alone(noisy: Inside) -> None:
    """People's output has one line for the source; a retry prints no more than that either."""
    done = called(noisy, "run")
    assert len(done.stdout.splitlines()) == 1
    assert done.stdout.startswith("published")
    again = called(noisy, "schedule", "run-due", "--json")
    assert "NOISE" not in again.stdout


@pytest.mark.req("CLI-1")
def test_a_failure_is_the_result(noisy: Inside) -> None:
    """The error of a command is its result as well: a document, and nothing else."""
    noisy.write("noisy.py", NOISY.replace("    for entry", "    raise TimeoutError('gone')\n    for entry"))
    done = called(noisy, "run", "--json")
    assert json.loads(done.stdout)["results"][0]["word"] == "failed"
