"""Where Node.js is, if it is new enough."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TWIN = ROOT / "node"
NODE_MIN = 24
SQLITE_MIN = (3, 51, 3)


@cache
def find_node() -> str | None:
    """`make node` brings one; the machine's own serves where it is new enough."""
    where = subprocess.run(
        [str(ROOT / "requirements" / "environment.sh"), "where", "node"],
        capture_output=True,
        text=True,
        check=False,
    ).stdout.strip()
    for candidate in (os.environ.get("KFM_NODE"), f"{where}/bin/node", shutil.which("node")):
        if candidate and Path(candidate).exists() and (real := _real(candidate)):
            return real
    return None


def _real(path: str) -> str | None:
    """The program itself, if it is new enough: what a wheel puts into `bin` starts it as a child."""
    asked = "`${process.versions.node}\n${process.versions.sqlite ?? 0}\n${process.execPath}`"
    told = subprocess.run(
        [path, "-p", asked], capture_output=True, text=True, check=False
    ).stdout.splitlines()
    if len(told) != 3:
        return None
    major, sqlite = int(told[0].split(".")[0]), tuple(int(part) for part in told[1].split("."))
    return told[2] if major >= NODE_MIN and sqlite >= SQLITE_MIN else None
