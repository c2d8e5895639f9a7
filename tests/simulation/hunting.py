"""`make hunts`: the seeds in which broken protocols show, written down for the tests.

Any change of the kernel gives worlds other histories, so the seeds that show something move. A hunt begins
where it ended last time, which is in `hunted.json`, and goes on; a test whose hunt went far says so.
"""

from __future__ import annotations

import argparse
import json
import logging
import multiprocessing
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.simulation.announced.seeds import live_announced
from tests.simulation.asked.seeds import live_asked
from tests.simulation.broken import PATCHES, applied
from tests.simulation.broken_nodes import NODES
from tests.simulation.broken_requests import REQUESTS
from tests.simulation.broken_schedules import SCHEDULES
from tests.simulation.broken_starts import DECISIONS, RENEWALS, SETTLEMENTS
from tests.simulation.broken_units import UNITS
from tests.simulation.conditions import Patch
from tests.simulation.judging import Violation
from tests.simulation.nodes.seeds import live_nodes
from tests.simulation.processor import settle_down
from tests.simulation.seeds import Verdict, live
from tests.simulation.served.seeds import live_served

WRITTEN = Path(__file__).with_name("hunted.json")
GOES_ON = 20  # worlds after the seed that is written down: a test whose hunt takes longer says so


class Grounds(NamedTuple):
    """Where the patches of one kind of world are hunted for."""

    patches: tuple[Patch, ...]
    live: Callable[..., Verdict]
    seeds_max: int


GROUNDS = {
    "updates": Grounds(PATCHES, live, 1_500),
    "asked": Grounds((*REQUESTS, *DECISIONS, *RENEWALS, *SETTLEMENTS), live_asked, 400),
    "served": Grounds(SCHEDULES, live_served, 300),
    "nodes": Grounds(NODES, live_nodes, 200),
    "announced": Grounds(UNITS, live_announced, 1_000),
}


def named(patch: Patch) -> str:
    """The id of its test."""
    return patch.name.replace(" ", "-")


def hunt(kind: str, patch: Patch) -> None:
    """Lives through worlds until one shows that the patch is applied, by the rule that the patch names."""
    first, seeds_max = _written().get(kind, {}).get(patch.name, 0), GROUNDS[kind].seeds_max
    others: list[str] = []
    with applied(patch):
        found = next(_shown(kind, patch, range(first, first + seeds_max), others), None)
    assert found is not None, (
        f"{seeds_max} seeds from {first} passed although {patch.name}; instead {others[:5]}"
    )
    if found.seed >= first + GOES_ON:
        text = f"{kind}: {patch.name}: shows at seed {found.seed}, not at {first} any more (make hunts)"
        warnings.warn(text, stacklevel=2)


def _shown(kind: str, patch: Patch, seeds: range, others: list[str]) -> Iterator[Verdict]:
    """Another broken promise than the one that the patch names proves nothing; nor does a mere error."""
    for seed in seeds:
        verdict = GROUNDS[kind].live(seed, chances=patch.chances)
        violation = verdict.violation
        if violation is None:
            continue
        if patch.rule in str(violation) and isinstance(violation, Violation):
            yield verdict
        else:
            others.append(f"{seed}: {type(violation).__name__}: {violation}"[:200])


@cache
def _written() -> dict[str, dict[str, int]]:
    return json.loads(WRITTEN.read_bytes()) if WRITTEN.exists() else {}


# --- writing seeds down --------------------------------------------------------------------------


def _found(job: tuple[str, int]) -> tuple[str, str, int | None, list[str]]:
    kind, number = job
    patch, seeds_max = GROUNDS[kind].patches[number], GROUNDS[kind].seeds_max
    first = _written().get(kind, {}).get(patch.name, 0)
    others: list[str] = []
    with applied(patch):
        for seeds in (range(first, first + seeds_max), range(first)):
            if found := next(_shown(kind, patch, seeds, others), None):
                return kind, patch.name, found.seed, others
    return kind, patch.name, None, others


def main() -> int:
    parser = argparse.ArgumentParser(prog="hunts", description=__doc__)
    parser.add_argument("--only", choices=GROUNDS, help="only worlds of this kind")
    parser.add_argument("--jobs", type=int, default=multiprocessing.cpu_count())
    options = parser.parse_args()
    logging.getLogger("kfm").addHandler(logging.NullHandler())  # what worlds go through is not for stderr
    written = {kind: dict(seeds) for kind, seeds in _written().items()}
    jobs = [
        (kind, number)
        for kind, grounds in GROUNDS.items()
        if options.only in (None, kind)
        for number in range(len(grounds.patches))
    ]
    lost = 0
    with multiprocessing.Pool(options.jobs, settle_down) as pool:
        for kind, name, seed, others in pool.imap_unordered(_found, jobs):
            before = written.setdefault(kind, {}).get(name)
            if seed is None:
                lost += 1
                print(f"{kind}: {name}: no seed shows it; instead {others[:3]}", file=sys.stderr, flush=True)
            elif seed != before:
                print(f"{kind}: {name}: {before} → {seed}", flush=True)
                written[kind][name] = seed
    kept = {
        kind: {
            patch.name: written[kind][patch.name] for patch in grounds.patches if patch.name in written[kind]
        }
        for kind, grounds in GROUNDS.items()
    }
    WRITTEN.write_text(json.dumps(kept, indent=1) + "\n")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
