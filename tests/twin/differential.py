"""Plays the same cases in Python and in Node.js, and says where they differ.

python -m tests.twin.differential --cases 500
"""

from __future__ import annotations

import argparse
import difflib
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.memory_disk import memory_disk
from tests.twin.comparing import differences, snapshot
from tests.twin.drawing import draw_case
from tests.twin.injected import play_case
from tests.twin.runtime import TWIN, find_node

BATCH = 50
# With --verbose a defect's stack follows the message: each language's own.
_STACK = re.compile(r"^(?:Traceback \(most recent|\w*Error: [\s\S]*?\n    at )[\s\S]*\Z", re.MULTILINE)
_TIMEOUT_S = 900


def compare(cases: list[dict[str, Any]], node: str, scratch: Path) -> dict[str, list[str]]:
    """Differences by case; those without any are left out."""
    mine = []
    for case in cases:
        results = play_case(case)
        mine.append((results, snapshot(case["folder"])))
        shutil.rmtree(case["folder"])
    theirs = _played_by_node(cases, node, scratch)
    found = {}
    for case, (results, left), others in zip(cases, mine, theirs, strict=True):
        said = [
            f"step {number} {line}"
            for number, (one, other) in enumerate(zip(results, others, strict=True))
            for line in _told_apart(one, other)
        ]
        said += differences(left, snapshot(case["folder"]))
        if said:
            found[case["folder"]] = said
    return found


def _played_by_node(cases: list[dict[str, Any]], node: str, scratch: Path) -> list[Any]:
    asked, answered = scratch / "cases.jsonl", scratch / "results.jsonl"
    asked.write_text("".join(json.dumps(case) + "\n" for case in cases), encoding="utf-8")
    command = [node, str(TWIN / "testing" / "driver.mjs"), str(asked), str(answered)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S)
    if done.returncode != 0:
        raise AssertionError(f"the driver ended with {done.returncode}: {done.stderr[-4000:]}")
    return [json.loads(line)["results"] for line in answered.read_text("utf-8").splitlines()]


def _told_apart(one: dict[str, Any] | None, other: dict[str, Any] | None) -> list[str]:
    if one is None or other is None:
        return [] if one == other else ["was played by one of them only"]
    said = [] if one["code"] == other["code"] else [f"exit code {one['code']} against {other['code']}"]
    for stream in ("stdout", "stderr"):
        a, b = (_STACK.sub("", each[stream]) for each in (one, other))
        if a != b:
            lines = list(
                difflib.unified_diff(a.splitlines(), b.splitlines(), "python", "node", n=0, lineterm="")
            )
            said.append(f"{stream}:\n     " + "\n     ".join(lines[:12]))
    return said


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.twin.differential", description=__doc__)
    parser.add_argument("--cases", type=int, default=500)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    options = parser.parse_args(arguments)
    node = find_node()
    if node is None:
        print("Node.js 24 is not here: `make node` brings it", file=sys.stderr)
        return 4
    differing = 0
    for begin in range(options.first, options.first + options.cases, BATCH):
        with tempfile.TemporaryDirectory(prefix="kfm-twin-", dir=memory_disk()) as folder:
            seeds = range(begin, min(begin + BATCH, options.first + options.cases))
            cases = [draw_case(seed, f"{folder}/work/{seed}") for seed in seeds]
            for place, said in compare(cases, node, Path(folder)).items():
                differing += 1
                print(f"seed {place.rpartition('/')[2]} differs:\n  " + "\n  ".join(said[:6]))
        print(
            f"{begin + len(seeds) - options.first} of {options.cases} cases, {differing} differ",
            file=sys.stderr,
        )
    return 1 if differing else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
