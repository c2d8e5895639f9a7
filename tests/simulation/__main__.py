"""`make simulate SEEDS=20000`: many worlds, and the seed of any that breaks a promise."""

from __future__ import annotations

import argparse
import itertools
import logging
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING

from tests.simulation.measure import PERCENT_MIN, measure
from tests.simulation.processor import settle_down

if TYPE_CHECKING:
    from tests.simulation.seeds import Verdict

REAL_SQLITE_EVERY = 20
LARGE_EVERY = 4  # the others are small: one round, few sources, the same weather, people and rules
# Kind of world → every how many seeds, and the remainder. The first that fits holds; else updates.
KINDS = {
    "asked": (4, 2),  # requests: those who ask, those who work them off
    "served": (12, 5),  # services that keep schedules
    "nodes": (8, 3),  # pipelines of nodes on branches
    "announced": (3, 1),  # announced objects
}


def kind_of(seed: int) -> str:
    return next((kind for kind, (every, rest) in KINDS.items() if seed % every == rest), "updates")


def is_on_file(seed: int) -> bool:
    """A SQLite file with its write lock; others have it in memory."""
    if kind_of(seed) in ("served", "nodes"):
        return seed // KINDS[kind_of(seed)][0] % (REAL_SQLITE_EVERY // 4) == 0
    return kind_of(seed) != "asked" and seed % REAL_SQLITE_EVERY == 0


def _live(seed: int) -> Verdict:
    from tests.simulation.announced.seeds import live_announced
    from tests.simulation.asked.seeds import live_asked
    from tests.simulation.nodes.seeds import live_nodes
    from tests.simulation.seeds import live
    from tests.simulation.served.seeds import live_served

    kind, on_file = kind_of(seed), is_on_file(seed)
    if kind == "asked":
        return live_asked(seed)
    if kind == "served":
        return live_served(seed, real_sqlite=on_file)
    if kind == "nodes":
        return live_nodes(seed, real_sqlite=on_file)
    if kind == "announced":
        return live_announced(seed, real_sqlite=on_file)
    return live(seed, real_sqlite=on_file, small=seed % LARGE_EVERY != 0, digest=False)


def _one(seed: int) -> Verdict:
    verdict = _live(seed)
    if verdict.violation is not None:
        # An exception that can't be sent between processes would hide the seed.
        verdict.violation = AssertionError(f"{type(verdict.violation).__name__}: {verdict.violation}")
    return verdict


def main() -> int:
    parser = argparse.ArgumentParser(prog="simulate", description=__doc__)
    parser.add_argument("--seeds", type=int, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--minutes", type=float, default=28.0, help="stop after this long")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", choices=[*KINDS, "updates"], help="only worlds of this kind")
    parser.add_argument("--show", type=int, metavar="SEED", help="run one seed and raise what it breaks")
    parser.add_argument(
        "--coverage",
        action="store_true",
        help=f"tell how much of the kernel the seeds reach; 1 below {PERCENT_MIN:.0f} %%",
    )
    options = parser.parse_args()
    logging.getLogger("kfm").addHandler(logging.NullHandler())  # what worlds go through is not for stderr
    if options.coverage:
        return measure(options.seeds or 100, options.minutes * 60)
    if options.show is not None:
        return _show(options.show)
    count = options.seeds or 20_000
    seeds: Iterable[int] = range(options.first, options.first + count)
    if options.only:
        every = itertools.count(options.first)
        seeds = islice((seed for seed in every if kind_of(seed) == options.only), count)
    return _campaign(seeds, options.minutes, options.jobs)


def _show(seed: int) -> int:
    verdict = _live(seed)
    print(f"seed {verdict.seed}: {verdict.steps} steps, {dict(verdict.outcomes)}, trace {verdict.trace[:16]}")
    if verdict.violation is not None:
        raise verdict.violation
    return 0


def _campaign(seeds: Iterable[int], minutes: float, jobs: int) -> int:
    began = time.monotonic()
    outcomes: Counter[str] = Counter()
    broken: list[Verdict] = []
    kinds: Counter[str] = Counter()
    done = steps = 0
    with multiprocessing.Pool(jobs, settle_down) as pool:
        for verdict in pool.imap_unordered(_one, seeds, chunksize=20):
            done += 1
            steps += verdict.steps
            outcomes.update(verdict.outcomes)
            kinds[kind_of(verdict.seed)] += 1
            kinds["on SQLite files"] += is_on_file(verdict.seed)
            if verdict.violation is not None:
                broken.append(verdict)
                print(f"seed {verdict.seed}: {verdict.violation}", file=sys.stderr, flush=True)
            if done % 1000 == 0:
                print(
                    f"{done} seeds, {len(broken)} broken, {time.monotonic() - began:.0f} s", file=sys.stderr
                )
            if time.monotonic() - began > minutes * 60:
                print(f"stopped after {minutes} minutes", file=sys.stderr)
                pool.terminate()
                break
    counted = ", ".join(f"{number} {kind}" for kind, number in kinds.items())
    print(f"{done} seeds ({counted}), {steps} steps, {len(broken)} broken")
    print("outcomes: " + ", ".join(f"{name} {number}" for name, number in sorted(outcomes.items())))
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
