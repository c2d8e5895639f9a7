"""Living through seeds: one world, one seed, one verdict."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from kfm.db.queries import migrate
from kfm.db.sqlite import SqliteDatabase
from tests.memory_disk import memory_disk
from tests.simulation import shortcuts
from tests.simulation.checks import Violation
from tests.simulation.outbox import State
from tests.simulation.scheduler import Chances
from tests.simulation.world import World

DELIVERYS = {("outbox", column) for column in ("tries", "not_before_ms", "delivered_at_ms")}


class FixedClock:
    """Only for what happens before the world begins."""

    def now_ms(self) -> int:
        return 1_790_000_000_000

    def monotonic_ms(self) -> int:
        return 0

    def sleep_ms(self, delay_ms: int) -> None:
        raise AssertionError("no process waits in the simulation")


@dataclass
class Verdict:
    seed: int
    trace: str
    steps: int
    outcomes: Counter[str] = field(default_factory=Counter)
    violation: BaseException | None = None
    ledger: str = ""  # a digest of all that the kernel has written down
    delivered: int = 0


def live(
    seed: int,
    *,
    real_sqlite: bool = False,
    chances: Chances | None = None,
    collector: State | None = None,
    small: bool = False,
    digest: bool = True,
) -> Verdict:
    """Run one seed to its end. A broken promise is in the verdict, not raised."""
    folder = tempfile.mkdtemp(prefix="kfm-sim-", dir=memory_disk()) if real_sqlite else None
    database: Any
    if folder:
        database = SqliteDatabase(f"{folder}/kfm.db", FixedClock())
        migrate(database, "sqlite", 0)
    else:
        database = shortcuts.new_ledger(FixedClock())
    world = World(seed, database, chances, collector, small)
    violation: BaseException | None = None
    ledger = ""
    try:
        with shortcuts.taken():
            world.live()
        ledger = _ledger(database) if digest else ""
    except (Exception, Violation) as error:
        violation = error
    finally:
        world.mail.lane.end()
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
        outcomes=Counter(world.outcomes)
        + world.scheduler.counts
        + world.mail.lane.counts
        + world.checks.starts.counts,
        violation=violation,
        ledger=ledger,
        delivered=len(world.mail.arrived),
    )


def _ledger(database: Any) -> str:
    """Every row but what delivery notes on its messages."""
    execute, digest = database._connection.execute, hashlib.sha256()
    tables = [
        name for (name,) in execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")
    ]
    for table in tables:
        columns = [row[1] for row in execute(f"PRAGMA table_info({table})")]
        shown = ", ".join(column for column in columns if (table, column) not in DELIVERYS)
        for row in execute(f"SELECT {shown} FROM {table} ORDER BY {shown}"):
            digest.update(f"{table} {row!r}\n".encode())
    return digest.hexdigest()
