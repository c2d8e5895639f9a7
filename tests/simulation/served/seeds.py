"""Living through one seed of services."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from typing import Any

from kfm.db.queries import migrate
from kfm.db.sqlite import SqliteDatabase
from tests.memory_disk import memory_disk
from tests.simulation import shortcuts
from tests.simulation.judging import Violation
from tests.simulation.scheduler import Chances
from tests.simulation.seeds import FixedClock, Verdict
from tests.simulation.served.world import ServedWorld


def live_served(seed: int, *, real_sqlite: bool = False, chances: Chances | None = None) -> Verdict:
    """Run one seed to its end. A broken promise is in the verdict, not raised."""
    folder = tempfile.mkdtemp(prefix="kfm-sim-", dir=memory_disk()) if real_sqlite else None
    database: Any
    if folder:
        database = SqliteDatabase(f"{folder}/kfm.db", FixedClock())
        migrate(database, "sqlite", 0)
    else:
        database = shortcuts.new_ledger(FixedClock())
    world = ServedWorld(seed, database, chances)
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
        if folder:
            shutil.rmtree(folder, ignore_errors=True)
    return Verdict(
        seed=seed,
        trace=world.scheduler.trace,
        steps=world.scheduler.steps,
        outcomes=Counter(world.outcomes) + world.scheduler.counts + world.checks.counts,
        violation=violation,
    )
