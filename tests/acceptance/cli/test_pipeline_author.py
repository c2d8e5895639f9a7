"""Who a pass is recorded under."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kfm.config.loader import actor

FLOW = (
    'import kfm\npipeline = kfm.Pipeline("one")\n\n\n@pipeline.node("one.node")\ndef node():\n    return 1\n'
)


@pytest.mark.req("GOV-3")
def test_a_pass_is_the_accounts_whatever_the_environment_claims(tmp_path: Path) -> None:
    """The author of what a pass leaves on a branch is the account that ran it, not LOGNAME."""
    (tmp_path / "flow.py").write_text(FLOW)
    environ = {name: value for name, value in os.environ.items() if not name.startswith("KFM_")}
    claimed = dict.fromkeys(("LOGNAME", "USER", "LNAME", "USERNAME"), "mallory")
    subprocess.run(
        [sys.executable, "-m", "kfm", "pipeline", "run", "flow.py", "--directory", "."],
        cwd=tmp_path,
        env=environ | claimed,
        check=True,
        capture_output=True,
    )
    from kfm.pipelines.project import open_project

    with open_project(str(tmp_path)) as place:
        (newest, *_) = place.store.branch_reader().log("main")
    assert newest.author == actor()
