"""Living through one seed of requests."""

from __future__ import annotations

from collections import Counter

from tests.simulation import shortcuts
from tests.simulation.asked.world import AskedWorld
from tests.simulation.judging import Violation
from tests.simulation.scheduler import Chances
from tests.simulation.seeds import FixedClock, Verdict


def live_asked(seed: int, *, chances: Chances | None = None) -> Verdict:
    """Run one seed to its end. A broken promise is in the verdict, not raised."""
    database = shortcuts.new_ledger(FixedClock())
    world = AskedWorld(seed, database, chances)
    violation: BaseException | None = None
    try:
        world.live()
    except (Exception, Violation) as error:
        violation = error
    finally:
        for process in world.scheduler.processes:
            process.dead = True
            if not process.done:
                process.resume()
        database.close()
    return Verdict(
        seed=seed,
        trace=world.scheduler.trace,
        steps=world.scheduler.steps,
        outcomes=world.scheduler.counts
        + world.checks.counts
        + world.checks.starts.counts
        + Counter({"told": len(world.told)}),
        violation=violation,
    )
