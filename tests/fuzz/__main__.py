"""`make fuzz SECONDS=60`: every reader gets hostile bytes for its share of the time."""

from __future__ import annotations

import argparse
import random
import sys
import time
import traceback

from tests.fuzz.mutate import mutated
from tests.fuzz.targets import TARGETS, attempt


def main() -> int:
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=sorted(TARGETS))
    options = parser.parse_args()
    names = [options.only] if options.only else sorted(TARGETS)
    defects = 0
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


if __name__ == "__main__":
    sys.exit(main())
