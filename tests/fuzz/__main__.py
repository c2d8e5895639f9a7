"""`make fuzz SECONDS=60`: every reader gets hostile bytes for so many seconds, in a process with bounds.

First come forged webhooks, as many as --webhooks says: a million takes about a minute. Then the readers, one
after the other, with inputs led by coverage (tests/fuzz/guided.py); without atheris, with blind ones.
Without --seconds all of them together take half an hour.
"""

from __future__ import annotations

import argparse
import random
import re
import subprocess
import sys
import tempfile
import time
import traceback
from importlib.util import find_spec
from pathlib import Path

from tests.fuzz import webhooks
from tests.fuzz.mutate import mutated
from tests.fuzz.targets import TARGETS, attempt

ALL_SECONDS = 30 * 60
STARTING_SECONDS = 60  # an instrumented start, and an end


def main() -> int:
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=0, help="for each reader")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=sorted([*TARGETS, "webhooks"]))
    parser.add_argument("--webhooks", type=int, default=1_000_000, metavar="N")
    parser.add_argument("--found", default="build/fuzz", help="folder for inputs that break a reader")
    options = parser.parse_args()
    names = [options.only] if options.only else sorted(TARGETS)
    seconds = options.seconds or ALL_SECONDS / len(TARGETS)
    defects = 0
    if options.only in (None, "webhooks"):
        defects += _webhooks(options.webhooks, str(options.seed))
        names = [name for name in names if name in TARGETS]
    guided = find_spec("atheris") is not None
    if not guided:
        print("atheris is not installed: the inputs are blind", file=sys.stderr)
    for name in names:
        if guided:
            line, sound = _guided(name, round(seconds), options.seed, Path(options.found))
        else:
            line, sound = _blind(name, seconds, options.seed)
        defects += not sound
        print(f"{name}: {line}", flush=True)
    print(f"{defects} defects")
    return 1 if defects else 0


def _guided(name: str, seconds: int, seed: int, found: Path) -> tuple[str, bool]:
    """What libFuzzer says of one reader: inputs, branches, memory."""
    found.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "tests.fuzz.guided", name, "--seconds", str(seconds)]
    try:
        ended = subprocess.run(
            [*command, "--seed", str(seed), "--found", str(found)],
            capture_output=True,
            timeout=seconds + STARTING_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"no end after {seconds + STARTING_SECONDS} s", False
    told = ended.stderr.decode(errors="replace")
    if ended.returncode:
        lines = (ended.stdout.decode(errors="replace") + told).splitlines()
        print(
            "\n".join(line for line in lines if not line.startswith("INFO: Instr"))[-6000:], file=sys.stderr
        )
    inputs = _last(r"stat::number_of_executed_units:\s*(\d+)", told)
    memory = _last(r"stat::peak_rss_mb:\s*(\d+)", told)
    branches = _last(r"cov: (\d+)", told)
    line = f"{inputs} inputs, {branches} branches, {memory} MB at most"
    return line if not ended.returncode else f"{line}, ended with {ended.returncode}", not ended.returncode


def _last(pattern: str, text: str) -> str:
    return (re.findall(pattern, text) or ["?"])[-1]


def _blind(name: str, seconds: float, seed: int) -> tuple[str, bool]:
    rng = random.Random(f"{seed}/{name}")
    began, tried = time.monotonic(), 0
    while time.monotonic() - began < seconds:
        data = mutated(rng.choice(TARGETS[name].seeds), rng)
        tried += 1
        try:
            attempt(name, data)
        except Exception:
            print(f"{name}: {data!r}", file=sys.stderr)
            traceback.print_exc()
            return f"{tried} inputs", False
    return f"{tried} inputs", True


def _webhooks(count: int, seed: str) -> int:
    with tempfile.TemporaryDirectory(prefix="kfm-fuzz-") as folder:
        began = time.monotonic()
        try:
            for line in webhooks.campaign(count, seed, Path(folder)):
                print(f"{line} in {time.monotonic() - began:.0f} s", flush=True)
        except Exception:
            traceback.print_exc()
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
