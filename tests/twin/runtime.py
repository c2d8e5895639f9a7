"""Where Node.js is, if it is new enough; and how its absence is told."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TWIN = ROOT / "node"
NODE_MIN = 24
SQLITE_MIN = (3, 51, 3)


@cache
def find_node() -> str | None:
    """`make node` brings one; the machine's own serves where it is new enough."""
    where = subprocess.run(
        [str(ROOT / "requirements" / "environment.sh"), "where", "node"], capture_output=True, text=True, check=False
    ).stdout.strip()
    for candidate in (os.environ.get("KFM_NODE"), f"{where}/bin/node", shutil.which("node")):
        if candidate and Path(candidate).exists() and _is_new_enough(candidate):
            return candidate
    return None


def _is_new_enough(path: str) -> bool:
    told = subprocess.run(
        [path, "-p", "`${process.versions.node} ${process.versions.sqlite ?? 0}`"],
        capture_output=True,
        text=True,
        check=False,
    ).stdout.split()
    if len(told) != 2:
        return False
    major, sqlite = int(told[0].split(".")[0]), tuple(int(part) for part in told[1].split("."))
    return major >= NODE_MIN and sqlite >= SQLITE_MIN


def node_or_skip() -> str:
    """The path of Node.js; a loud skip, or a failure where it is required, if there is none."""
    found = find_node()
    if found is not None and (TWIN / "node_modules").is_dir():
        return found
    why = "Node.js 24 with its packages is not here: `make node` brings both"
    if "node" in os.environ.get("KFM_REQUIRE_SERVICES", "").split(","):
        pytest.fail(why)
    pytest.skip(why)
