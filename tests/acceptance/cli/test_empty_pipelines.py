"""A pipeline that declares nothing is a mistake, and told as one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import kfm
from kfm.model.errors import PipelineError, UsageError

EMPTY = 'import kfm\n\npipeline = kfm.Pipeline("weather")\n'
BARE = f"{EMPTY}\n\n@pipeline.node\ndef fetch():\n    return 1\n"


def _kfm(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kfm", *arguments], cwd=folder, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("command", ["run", "plan", "check"])
@pytest.mark.parametrize(("text", "told"), [(EMPTY, "no nodes"), (BARE, '@pipeline.node("fetch")')])
def test_a_pipeline_without_nodes_is_refused(tmp_path: Path, command: str, text: str, told: str) -> None:
    """Neither run, plan nor check of a pipeline without nodes succeeds; the message has the way out."""
    (tmp_path / "flow.py").write_text(text)
    folder = [] if command == "check" else ["--directory", "."]
    done = _kfm(tmp_path, "pipeline", command, "flow.py", *folder)
    assert done.returncode == PipelineError.exit_code
    assert PipelineError.code in done.stderr
    assert told in done.stderr


def fetch() -> int:
    return 1


def test_a_decorator_without_parentheses_is_refused_at_once() -> None:
    """`@pipeline.node` without a name is an error where it is written, not a node that is never declared."""
    bare: Any = kfm.Pipeline("weather").node
    with pytest.raises(PipelineError, match="fetch"):
        bare(fetch)


def test_run_state_without_parentheses_is_refused_at_once() -> None:
    """`@kfm.run_state` without a name is an error where it is written."""
    bare: Any = kfm.run_state
    with pytest.raises(UsageError, match="fetch"):
        bare(fetch)
