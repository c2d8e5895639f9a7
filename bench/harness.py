"""Benchmarks that compare, in one run and on one machine.

A number alone says more about the machine than about the code. Each benchmark
therefore measures ours and a reference in turns, round by round, so that a noisy
moment hits both, and judges the ratio of the medians.
"""

from __future__ import annotations

import gc
import json
import statistics
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Literal

ROUNDS_MIN = 3
SECONDS_MAX = 60.0  # one benchmark stops after this, with the rounds that it has

Kind = Literal["cost", "speedup", "throughput"]


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """Two ways to do the same thing, and the goal for their ratio.

    `ours` and `reference` do the work `inner` times a round and are given what
    `setup` returned. A callable that returns a number is taken at its word (its own
    measurement, in `unit`); otherwise the time it took, per inner loop, counts.

    cost        ratio = ours / reference, goal met when ≤ goal (lower is better)
    speedup     ratio = reference / ours, goal met when ≥ goal (n × faster)
    throughput  ratio = ours / reference, goal met when ≥ goal (units a second)
    """

    name: str
    goal: float
    kind: Kind
    ours: Callable[[Any], float | None]
    reference: Callable[[Any], float | None]
    setup: Callable[[ExitStack], Any] = lambda _: None
    unit: str = "s"
    rounds: int = 11
    inner: int = 1
    seconds_max: float = SECONDS_MAX


@dataclass(frozen=True)
class Result:
    name: str
    ours: float
    reference: float
    unit: str
    ratio: float
    goal: float
    rounds: int
    met: bool


def _measure(work: Callable[[Any], float | None], fixture: Any, benchmark: Benchmark) -> float:
    started_s = time.perf_counter()
    said: float | None = None
    for _ in range(benchmark.inner):
        said = work(fixture)
    took_s = (time.perf_counter() - started_s) / benchmark.inner
    if said is not None:
        return float(said)
    return 1 / took_s if benchmark.kind == "throughput" else took_s


def ratio_of(kind: Kind, ours: float, reference: float) -> float:
    return reference / ours if kind == "speedup" else ours / reference


def is_met(kind: Kind, ratio: float, goal: float) -> bool:
    return ratio <= goal if kind == "cost" else ratio >= goal


def run(benchmark: Benchmark) -> Result:
    """Measure both sides in turns, after one unmeasured round that warms caches up."""
    sides: dict[str, list[float]] = {"ours": [], "reference": []}
    with ExitStack() as stack:
        fixture = benchmark.setup(stack)
        benchmark.reference(fixture)
        benchmark.ours(fixture)
        deadline_s = time.perf_counter() + benchmark.seconds_max
        for index in range(max(benchmark.rounds, ROUNDS_MIN)):
            if index >= ROUNDS_MIN and time.perf_counter() > deadline_s:
                break
            pair = [("ours", benchmark.ours), ("reference", benchmark.reference)]
            for side, work in pair if index % 2 else reversed(pair):  # neither is always first
                gc.collect()
                sides[side].append(_measure(work, fixture, benchmark))
    ours, reference = statistics.median(sides["ours"]), statistics.median(sides["reference"])
    ratio = ratio_of(benchmark.kind, ours, reference)
    return Result(
        name=benchmark.name,
        ours=ours,
        reference=reference,
        unit=benchmark.unit,
        ratio=ratio,
        goal=benchmark.goal,
        rounds=len(sides["ours"]),
        met=is_met(benchmark.kind, ratio, benchmark.goal),
    )


def as_line(result: Result) -> str:
    """One line of JSON; four significant digits are more than a median deserves."""

    def short(value: float) -> float:
        return float(f"{value:.4g}")

    return json.dumps(
        {
            "name": result.name,
            "ours": short(result.ours),
            "reference": short(result.reference),
            "unit": result.unit,
            "ratio": short(result.ratio),
            "goal": result.goal,
            "rounds": result.rounds,
            "met": result.met,
        }
    )


def run_all(benchmarks: list[Benchmark]) -> list[Result]:
    """Run each, print its line at once, and say on stderr which goals were missed.

    One that breaks is told and left out; the others still run.
    """
    results = []
    for benchmark in benchmarks:
        try:
            result = run(benchmark)
        except Exception:  # noqa: BLE001 (whatever it was, it is shown)
            traceback.print_exc()
            print(f"bench: {benchmark.name} broke", file=sys.stderr)
            continue
        print(as_line(result), flush=True)
        results.append(result)
        if not result.met:
            sign = "≤" if benchmark.kind == "cost" else "≥"
            message = (
                f"bench: {result.name} missed its goal: {result.ratio:.3g}, wanted {sign} {result.goal:g}"
            )
            print(message, file=sys.stderr)
    return results
