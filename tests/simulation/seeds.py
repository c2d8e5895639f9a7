"""Living through seeds: one world, one seed, one verdict."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from kfm.store.memory import MemoryDatabase
from kfm.store.migrations import migrate
from kfm.store.sqlite import SqliteDatabase
from tests.simulation.checks import Violation
from tests.simulation.scheduler import Chances
from tests.simulation.world import World


class FixedClock:
    """Only for what happens before the world begins."""

    def now_ms(self) -> int:
        return 1_790_000_000_000

    def monotonic_ms(self) -> int:
        return 0

    def sleep_ms(self, delay_ms: int) -> None:
        raise AssertionError("nobody waits in the simulation")


@dataclass
class Verdict:
    seed: int
    trace: str
    steps: int
    outcomes: Counter[str] = field(default_factory=Counter)
    violation: BaseException | None = None


def live(seed: int, *, real_sqlite: bool = False, chances: Chances | None = None) -> Verdict:
    """Run one seed to its end. A broken promise is in the verdict, not raised."""
    folder = tempfile.mkdtemp(prefix="kfm-sim-", dir=_memory_disk()) if real_sqlite else None
    database: Any
    database = SqliteDatabase(f"{folder}/kfm.db", FixedClock()) if folder else MemoryDatabase(FixedClock())
    migrate(database, "sqlite", 0)
    world = World(seed, database, chances)
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
        outcomes=Counter(world.outcomes) + world.scheduler.counts,
        violation=violation,
    )


def _memory_disk() -> str | None:
    import os

    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
