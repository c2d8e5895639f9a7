"""Many trials side by side, and what they hit."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from tests.crash import scenarios
from tests.crash.child import PHASES
from tests.crash.scenarios import Scenario
from tests.crash.trial import INSIDE, Outcome, Plan, conduct
from tests.crash.upstream import serving
from tests.memory_disk import memory_disk

CHUNK_DELAY_SECONDS = 0.002


@contextmanager
def worlds(names: tuple[str, ...] = scenarios.NAMES, scratch: str | None = None) -> Iterator[Campaign]:
    """Templates and an upstream, for as long as they are needed."""
    # A kill does not lose what was written, synced or not: memory is as good as a disk, and faster.
    folder = tempfile.mkdtemp(prefix="kfm-crash-", dir=scratch or memory_disk())
    try:
        with serving() as upstream:
            upstream.chunk_delay_seconds = CHUNK_DELAY_SECONDS
            built = {name: scenarios.build(name, Path(folder), upstream) for name in names}
            yield Campaign(built, Path(folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Campaign:
    def __init__(self, built: dict[str, Scenario], folder: Path) -> None:
        self.scenarios = built
        self._folder = folder

    def one(self, plan: Plan) -> Outcome:
        folder = self._folder / f"{plan.kind}-{plan.number}"
        try:
            return conduct(plan, self.scenarios[plan.scenario], folder)
        except Exception as error:
            return Outcome(plan, problems=[f"{type(error).__name__}: {error}"])
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            shutil.rmtree(f"{folder}.cache", ignore_errors=True)

    def run(
        self, plans: list[Plan], workers: int, deadline: float, on_done: Callable[[Outcome], None]
    ) -> list[Outcome]:
        """All plans, as far as the time allows."""
        outcomes: list[Outcome] = []
        waiting = iter(plans)
        with ThreadPoolExecutor(workers) as pool:
            running: set[Future[Outcome]] = set()
            while True:
                while len(running) < workers and time.monotonic() < deadline:
                    plan = next(waiting, None)
                    if plan is None:
                        break
                    running.add(pool.submit(self.one, plan))
                if not running:
                    return outcomes
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    outcomes.append(future.result())
                    on_done(outcomes[-1])


def every_tick(scenario: Scenario) -> list[Plan]:
    """A kill at each tick of a scenario: no state that a death can leave is left out."""
    blank = Plan(0, "kill", "operation", scenario.name, "start", 0.0, 0.0, False)
    plans = []
    for phase in PHASES:
        for tick in range(scenario.ticks[phase]):
            share = (tick + 0.5) / scenario.ticks[phase]
            plans.append(replace(blank, number=len(plans), phase=phase, tick_share=share))
    return plans


def histogram(outcomes: list[Outcome]) -> str:
    """Which approach hit which phase, for kills and for stops."""
    columns = [(kind, approach) for kind in ("kill", "stop") for approach in ("operation", "clock")]
    hits = Counter((o.plan.kind, o.plan.approach, o.hit) for o in outcomes)
    lines = ["phase     " + "".join(f"{f'{kind} by {approach}':>20}" for kind, approach in columns)]
    for phase in (*PHASES, "missed"):
        lines.append(f"{phase:<10}" + "".join(f"{hits[(*column, phase)]:>20}" for column in columns))
    second = Counter(o.second_hit for o in outcomes if o.second_hit)
    told = ", ".join(f"{phase} {second[phase]}" for phase in (*PHASES, "missed") if second[phase])
    lines.append(f"second kills, in the successor: {told or 'none'}")
    waited = sum(o.waited for o in outcomes)
    lines.append(f"stopped inside a transaction, so that the successor waited: {waited}")
    return "\n".join(lines)


def shortfalls(outcomes: list[Outcome], *, each_phase_min: int) -> list[str]:
    """Where the trials prove less than they should."""
    found = []
    for kind in ("kill", "stop"):
        mine = [o for o in outcomes if o.plan.kind == kind]
        inside = sum(o.hit in INSIDE for o in mine)
        if mine and inside < 0.8 * len(mine):
            found.append(f"only {inside} of {len(mine)} {kind}s were inside the run")
        hits = Counter(o.hit for o in mine)
        if mine:
            found += [f"{phase}: {hits[phase]} {kind}s" for phase in INSIDE if hits[phase] < each_phase_min]
    return found
