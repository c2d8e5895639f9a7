"""Workers that never rest, on one PostgreSQL: for tests in threads, for measurements in their own processes
(`python -m tests.fleet_load busy|failing DSN NUMBER`: until standard input ends; prints how many batches)."""

from __future__ import annotations

import contextlib
import select
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import psycopg
from msgspec.structs import replace

from kfm.model.units import ClaimedUnit, ResultBatch
from tests.conformance.db.ledgers import postgres_store
from tests.conformance.units.scene import Scene, done, taken, undone

CAUSES = tuple(f"CAUSE_{number}" for number in range(12))


class BusyWorker:
    """Takes in, claims and ends units, and asks for the policy epoch with each transaction."""

    def __init__(self, dsn: str, number: int, batch: int = 10) -> None:
        self.scene = Scene(postgres_store(dsn))
        self._number = number
        self._batch = batch
        self._steps = 0
        self._epoch = self.scene.store.policy_epoch()
        self._held: Sequence[ClaimedUnit] = ()
        self.refused = 0

    def step(self) -> int:
        """How many units have ended."""
        arrivals = [
            taken(f"w{self._number}-{self._steps}-{at}", dataset=f"d{self._number}")
            for at in range(self._batch)
        ]
        self._steps += 1
        finish = ResultBatch(successes=tuple(map(done, self._held)), policy_epoch=self._epoch)
        claim = Scene.claim_request(f"d{self._number}", self._batch, worker=f"w{self._number}")
        answer = self.scene.units.exchange(finish, replace(claim, policy_epoch=self._epoch), arrivals)
        if answer.results.epoch_moved:
            self.refused += 1
            self._epoch = self.scene.store.policy_epoch()
            return 0
        self._held = answer.claimed
        return len(answer.results.succeeded)


class FailingWorker:
    """Ends its units for mixed causes: every second worker meets them in the opposite order."""

    def __init__(self, dsn: str, number: int, batch: int = len(CAUSES)) -> None:
        self.scene = Scene(postgres_store(dsn))
        self._number = number
        self._batch = batch
        self._steps = 0

    def step(self) -> int:
        """How many units have failed."""
        self._steps += 1
        dataset = "hrrr"  # one for all: so the causes are the same, too
        names = [f"f{self._number}-{self._steps}-{at}" for at in range(self._batch)]
        self.scene.take(*(taken(name, dataset=dataset) for name in names))
        mine = sorted(self.scene.claim(dataset, self._batch, worker=f"f{self._number}"), key=_wal_id)
        causes = CAUSES if self._number % 2 else CAUSES[::-1]
        ends = [
            undone(one, "spent", error_code=causes[at % len(causes)], error_class=causes[at % len(causes)])
            for at, one in enumerate(mine)
        ]
        return len(self.scene.end(*ends).failed)


def _wal_id(one: ClaimedUnit) -> str:
    return one.wal_id


@contextlib.contextmanager
def crew(workers: Sequence[Any]) -> Iterator[Callable[[], int]]:
    """Each in a thread of its own until the end; yields what tells how many steps were made."""
    over, raised, steps = threading.Event(), [], [0] * len(workers)

    def work(at: int) -> None:
        try:
            while not over.is_set():
                workers[at].step()
                steps[at] += 1
        except BaseException as error:
            raised.append(error)
            over.set()

    threads = [threading.Thread(target=work, args=(at,)) for at in range(len(workers))]
    for thread in threads:
        thread.start()
    try:
        yield lambda: min(steps)
    finally:
        over.set()
        for thread in threads:
            thread.join()
        for one in workers:
            one.scene.store.close()
    if raised:
        raise raised[0]


def deadlocks(dsn: str) -> int:
    """Of this database, as far as closed connections have told."""
    with psycopg.connect(dsn, autocommit=True) as looker:
        row = looker.execute(
            "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
        ).fetchone()
    assert row is not None
    return int(row[0])


def rows_read(dsn: str, table: str) -> int:
    """Of a table, as far as closed connections have told."""
    with psycopg.connect(dsn, autocommit=True) as looker:
        row = looker.execute(
            "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_user_tables WHERE relname = %s", [table]
        ).fetchone()
    assert row is not None
    return int(row[0])


def _main(role: str, dsn: str, number: str) -> None:
    worker = {"busy": BusyWorker, "failing": FailingWorker}[role](dsn, int(number))
    worker.step()
    print("ready", flush=True)
    steps = 0
    while not select.select([sys.stdin], [], [], 0)[0]:
        worker.step()
        steps += 1
    worker.scene.store.close()
    print(steps, flush=True)


if __name__ == "__main__":
    _main(*sys.argv[1:])
