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

from tests.simulation.measure import measure

if TYPE_CHECKING:
    from tests.simulation.seeds import Verdict

REAL_SQLITE_EVERY = 20
LARGE_EVERY = 4  # the others are small: one round, few sources, the same weather, people and rules
ANNOUNCED_EVERY = 3  # worlds of announced objects; the others are of updates
SERVED_EVERY = 12  # worlds of services that keep schedules
ASKED_EVERY = 4  # worlds of requests: those who ask, those who work them off


def _is_announced(seed: int) -> bool:
    return seed % ANNOUNCED_EVERY == 1


def _is_served(seed: int) -> bool:
    return seed % SERVED_EVERY == 5


def _is_asked(seed: int) -> bool:
    return seed % ASKED_EVERY == 2


def _is_on_file(seed: int) -> bool:
    return seed % REAL_SQLITE_EVERY == (REAL_SQLITE_EVERY // 4 if _is_served(seed) else 0)


def _live(seed: int) -> Verdict:
    from tests.simulation.announced.seeds import live_announced
    from tests.simulation.asked.seeds import live_asked
    from tests.simulation.seeds import live
    from tests.simulation.served.seeds import live_served

    if _is_asked(seed):
        return live_asked(seed)
    if _is_served(seed):
        return live_served(seed, real_sqlite=_is_on_file(seed))
    if _is_announced(seed):
        return live_announced(seed, real_sqlite=seed % REAL_SQLITE_EVERY == 0)
    return live(
        seed,
        real_sqlite=seed % REAL_SQLITE_EVERY == 0,
        small=seed % LARGE_EVERY != 0,
        digest=False,
    )


def _one(seed: int) -> Verdict:
    verdict = _live(seed)
    if verdict.violation is not None:
        # An exception that can't be sent between processes would hide the seed.
        verdict.violation = AssertionError(f"{type(verdict.violation).__name__}: {verdict.violation}")
    return verdict


def _settle_down() -> None:
    """The threads of a world run in turn: handing over to one on another processor costs more than work."""
    if hasattr(os, "sched_setaffinity"):
        places = sorted(os.sched_getaffinity(0))
        number = multiprocessing.current_process()._identity[0]  # type: ignore[attr-defined]
        os.sched_setaffinity(0, {places[number % len(places)]})


def main() -> int:
    parser = argparse.ArgumentParser(prog="simulate", description=__doc__)
    parser.add_argument("--seeds", type=int, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--minutes", type=float, default=28.0, help="stop after this long")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--announced", action="store_true", help="only worlds of announced objects")
    parser.add_argument("--served", action="store_true", help="only worlds of services")
    parser.add_argument("--asked", action="store_true", help="only worlds of requests")
    parser.add_argument("--show", type=int, metavar="SEED", help="run one seed and raise what it breaks")
    parser.add_argument(
        "--coverage", action="store_true", help="tell how much of the kernel the seeds reach; 1 below 88 %%"
    )
    options = parser.parse_args()
    logging.getLogger("kfm").addHandler(logging.NullHandler())  # what worlds go through is not for stderr
    if options.coverage:
        return measure(options.seeds or 100, options.minutes * 60)
    if options.show is not None:
        return _show(options.show)
    count = options.seeds or 20_000
    seeds: Iterable[int] = range(options.first, options.first + count)
    if options.announced:
        seeds = islice(filter(_is_announced, itertools.count(options.first)), count)
    elif options.served:
        seeds = islice(filter(_is_served, itertools.count(options.first)), count)
    elif options.asked:
        seeds = islice(filter(_is_asked, itertools.count(options.first)), count)
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
    done = steps = on_sqlite = announced = served = asked = 0
    with multiprocessing.Pool(jobs, _settle_down) as pool:
        for verdict in pool.imap_unordered(_one, seeds, chunksize=20):
            done += 1
            steps += verdict.steps
            outcomes.update(verdict.outcomes)
            on_sqlite += _is_on_file(verdict.seed)
            asked += _is_asked(verdict.seed)
            announced += _is_announced(verdict.seed) and not _is_asked(verdict.seed)
            served += _is_served(verdict.seed)
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
    kinds = f"{asked} of requests, {announced} of announced objects, {served} of services"
    kinds += f", {on_sqlite} on SQLite files"
    print(f"{done} seeds ({kinds}), {steps} steps, {len(broken)} broken")
    print("outcomes: " + ", ".join(f"{name} {number}" for name, number in sorted(outcomes.items())))
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
