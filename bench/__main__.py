"""`python -m bench [NAME …]`: every module of this folder that has `benchmarks()`.

A missed goal is said, not failed: the machine may be busy. NAME is a benchmark or a module.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
import traceback

import bench
from bench.harness import Benchmark, run_all


def discover() -> tuple[dict[str, list[Benchmark]], set[str], bool]:
    """Benchmarks by module, the modules that run only if named, and whether every module could be loaded."""
    found: dict[str, list[Benchmark]] = {}
    on_request: set[str] = set()
    whole = True
    for module in sorted(pkgutil.iter_modules(bench.__path__), key=lambda each: each.name):
        if module.name in {"harness", "__main__"}:
            continue
        try:
            loaded = importlib.import_module(f"bench.{module.name}")
            if hasattr(loaded, "benchmarks"):
                found[module.name] = list(loaded.benchmarks())
                if getattr(loaded, "ON_REQUEST", False):
                    on_request.add(module.name)
        except Exception:  # noqa: BLE001 (one broken module must not hide the others)
            traceback.print_exc()
            whole = False
    return found, on_request, whole


def main(names: list[str]) -> int:
    found, on_request, whole = discover()
    everything = [benchmark for group in found.values() for benchmark in group]
    chosen = [
        benchmark
        for module, group in found.items()
        for benchmark in group
        if (not names and module not in on_request) or benchmark.name in names or module in names
    ]
    known = {benchmark.name for benchmark in everything} | found.keys()
    if unknown := [name for name in names if name not in known]:
        print(f"bench: unknown: {', '.join(unknown)}; known: {', '.join(sorted(known))}", file=sys.stderr)
        return 2
    results = run_all(chosen)
    missed = sum(not result.met for result in results)
    broken = len(chosen) - len(results)
    print(f"bench: {len(results)} measured, {missed} goals missed, {broken} broken", file=sys.stderr)
    return 0 if whole and not broken else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
