"""How much of the production modules a simulation reaches.

Statements, not branches. Measuring begins before any of them is imported, so this module imports none.
"""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

PACKAGES = ("model", "publish", "runs")
PERCENT_MIN = 88.0
# Pipelines of nodes on branches, run-state, provenance, wording: no world has these, they have tests of
# their own. Shown, not counted.
BESIDE = {
    "model": ("branches", "documents", "quantities", "run_state", "schedules", "trees"),
    "runs": ("artifacts", "branch_merges", "provider_breakers", "transform"),
}
# Of other packages only what announced objects and requests go through in their worlds.
ALSO = {
    "calls": ("breakers", "guard", "guarded_clients"),
    "db": (
        "catalogue",
        "replays",
        "requests",
        "schedules",
        "unit_history",
        "unit_intake",
        "unit_results",
        "unit_rows",
        "units",
    ),
    "nodd": ("downstream", "intake", "poller", "worker"),
    "service": ("dispatcher",),
}


def measure(seeds: int, seconds_max: float) -> int:
    """Live through seeds and print what they reached; 1 if that is too little, or a promise was broken."""
    import coverage

    sources = [f"kfm.{name}" for name in (*PACKAGES, *ALSO)]
    cover = coverage.Coverage(data_file=None, config_file=False, source_pkgs=sources, concurrency="thread")
    cover.start()
    broken, done = _live(seeds, seconds_max)
    cover.stop()
    found, reached = Counter[str](), Counter[str]()
    for path in _modules():
        _, statements, _, missing, _ = cover.analysis2(str(path))
        package = path.relative_to(_root()).parts[0]
        found[package] += len(statements)
        reached[package] += len(statements) - len(missing)
    print(f"{done} seeds")
    for package in (*PACKAGES, *ALSO):
        print(f"kfm.{package:<10} {_percent(reached[package], found[package])}  {found[package]} statements")
    print(f"{'together':<14} {_percent(reached.total(), found.total())}  {found.total()} statements")
    print("not counted: " + ", ".join(f"{package}.{name}" for package in BESIDE for name in BESIDE[package]))
    for told in broken:
        print(told)
    return 1 if broken or 100 * reached.total() < PERCENT_MIN * found.total() else 0


def _live(seeds: int, seconds_max: float) -> tuple[list[str], int]:
    from tests.simulation.announced.seeds import live_announced
    from tests.simulation.asked.seeds import live_asked
    from tests.simulation.seeds import live
    from tests.simulation.served.seeds import live_served

    ends = time.monotonic() + seconds_max
    broken: list[str] = []
    for seed in range(seeds):
        verdicts = (
            live(seed),
            live_announced(seed),
            live_announced(seeds + seed),
            live_asked(seed),
            live_served(seed),
        )
        broken += [f"seed {each.seed}: {each.violation}" for each in verdicts if each.violation is not None]
        if time.monotonic() > ends:
            return broken, seed + 1
    return broken, seeds


def _root() -> Path:
    import kfm

    return Path(kfm.__path__[0])


def _modules() -> list[Path]:
    return sorted(
        path
        for package in PACKAGES
        for path in (_root() / package).rglob("*.py")
        if path.stem not in BESIDE.get(package, ())
    ) + sorted(_root() / package / f"{name}.py" for package, names in ALSO.items() for name in names)


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / max(1, whole):5.1f} %"
