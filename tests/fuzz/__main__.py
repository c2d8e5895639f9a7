"""`make fuzz SECONDS=60`: every reader gets hostile bytes for its share of the time.

First come forged webhooks, as many as --webhooks says: a million takes about a minute.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
import traceback
from pathlib import Path

from tests.fuzz import webhooks
from tests.fuzz.mutate import mutated
from tests.fuzz.targets import TARGETS, attempt


def main() -> int:
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=sorted([*TARGETS, "webhooks"]))
    parser.add_argument("--webhooks", type=int, default=1_000_000, metavar="N")
    options = parser.parse_args()
    names = [options.only] if options.only else sorted(TARGETS)
    defects = 0
    if options.only in (None, "webhooks"):
        defects += _webhooks(options.webhooks, str(options.seed))
        names = [name for name in names if name in TARGETS]
    for name in names:
        rng = random.Random(f"{options.seed}/{name}")
        began, tried = time.monotonic(), 0
        while time.monotonic() - began < options.seconds / len(names):
            data = mutated(TARGETS[name][1], rng)
            tried += 1
            try:
                attempt(name, data)
            except Exception:
                defects += 1
                print(f"{name}: {data!r}", file=sys.stderr)
                traceback.print_exc()
                break
        print(f"{name}: {tried} inputs")
    print(f"{defects} defects")
    return 1 if defects else 0


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
