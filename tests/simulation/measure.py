"""How much of the production modules a simulation reaches.

Statements, not branches. Measuring begins before any of them is imported, so this module imports none.
"""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

PACKAGES = ("model", "publish", "runs")  # every module of these
PERCENT_MIN = 79.0
WORST = 25  # modules that are shown
# Of other packages only what worlds go through; the rest is around processes, files and screens.
ALSO = {
    "calls": ("breakers", "guard", "guarded_clients"),
    "db": (
        "branch_commits",
        "branches",
        "catalogue",
        "node_branches",
        "pipeline_runs",
        "replays",
        "requests",
        "run_state",
        "schedules",
        "unit_history",
        "unit_intake",
        "unit_results",
        "unit_rows",
        "units",
    ),
    "nodd": ("downstream", "intake", "poller", "worker"),
    "pipelines": (
        "context",
        "declaration",
        "execution",
        "graph",
        "inputs",
        "node_values",
        "options",
        "pipeline_observer",
        "planner",
        "single_node",
    ),
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
    found, reached, modules = Counter[str](), Counter[str](), dict[str, float]()
    for path in _modules():
        _, statements, _, missing, _ = cover.analysis2(str(path))
        package = path.relative_to(_root()).parts[0]
        found[package] += len(statements)
        reached[package] += len(statements) - len(missing)
        modules[str(path.relative_to(_root()))] = 100 * (1 - len(missing) / max(1, len(statements)))
    print(f"{done} seeds")
    for package in (*PACKAGES, *ALSO):
        print(f"kfm.{package:<10} {_percent(reached[package], found[package])}  {found[package]} statements")
    print(f"{'together':<14} {_percent(reached.total(), found.total())}  {found.total()} statements")
    for path, percent in sorted(modules.items(), key=lambda one: one[1])[:WORST]:
        print(f"  {percent:5.1f} % {path}")
    for told in broken:
        print(told)
    return 1 if broken or 100 * reached.total() < PERCENT_MIN * found.total() else 0


def _live(seeds: int, seconds_max: float) -> tuple[list[str], int]:
    from tests.simulation.announced.seeds import live_announced
    from tests.simulation.asked.seeds import live_asked
    from tests.simulation.nodes.seeds import live_nodes
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
            live_nodes(seed),
        )
        broken += [f"seed {each.seed}: {each.violation}" for each in verdicts if each.violation is not None]
        if time.monotonic() > ends:
            return broken, seed + 1
    return broken, seeds


def _root() -> Path:
    import kfm

    return Path(kfm.__path__[0])


def _modules() -> list[Path]:
    return sorted(path for package in PACKAGES for path in (_root() / package).rglob("*.py")) + sorted(
        _root() / package / f"{name}.py" for package, names in ALSO.items() for name in names
    )


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / max(1, whole):5.1f} %"
