"""A large ledger moves while it is written, killed at each stage: `python -m tests.crash.moves`.

Prints one JSON document: how long each attempt took, what was copied, and whether everything that was
acknowledged is there.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from contextlib import closing, suppress

from kfm.audit import chain
from kfm.db.connection import open_store
from kfm.model.errors import LedgerMoved
from kfm.system import SystemClock
from tests import moving, services

# Where kills fall, at which time that a copy comes there, and the rank: the last ones are left out first.
STAGES = (
    ("copying runs +", 5, 4),
    ("copying units +", 100, 1),
    ("catching up", 1, 5),
    ("making indexes", 1, 2),
    ("comparing +", 40, 3),
    ("checking", 1, 6),
    ("going live", 1, 7),
    ("leaving", 1, 8),
)
MANY = 100_000
PAUSE_S = 0.02


class Writer(threading.Thread):
    """Enters something every now and then until the ledger has moved; remembers what was acknowledged.
    A fence that a killed copy left refuses it, too: then it tries again."""

    def __init__(self, path: str) -> None:
        super().__init__(daemon=True)
        self.accepted: list[str] = []
        self.refused = 0
        self.ended = threading.Event()
        self._path = path

    def run(self) -> None:
        with closing(open_store(f"sqlite:{self._path}", "/", SystemClock())) as ledger:
            number = 0
            while not self.ended.wait(PAUSE_S):
                number += 1
                try:
                    moving.enter(ledger, f"written {number}")
                    self.accepted.append(f"written {number}")
                except LedgerMoved:
                    self.refused += 1


def main() -> int:
    parser = argparse.ArgumentParser(prog="moves", description=__doc__)
    parser.add_argument("--runs", type=int, default=2_000)
    parser.add_argument("--units", type=int, default=20_000)
    parser.add_argument("--kills", type=int, default=len(STAGES))
    asked = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="kfm-moves-") as folder,
        services.postgres() as server,
        services.postgres_database(server) as dsn,
    ):
        found = campaign(os.path.join(folder, "kfm.db"), dsn, asked.runs, asked.units, asked.kills)
    sys.stdout.write(json.dumps(found, indent=1) + "\n")
    return 0 if found["lost"] == 0 and found["sound"] else 1


def campaign(path: str, dsn: str, runs: int, units: int, kills: int) -> dict[str, object]:
    many = dict.fromkeys(("runs", "attempts", "invocations", "requests", "promotions", "versions"), runs)
    began_s = time.monotonic()
    moving.fill(path, 10, many | {"units": units, "unit_pages": units // 100, "outbox": units // 10})
    attempts: list[dict[str, object]] = []
    accepted: list[str] = []
    _note(attempts, "made", began_s)
    # A child is a fork, and forks have no threads: what is written between two attempts is written here.
    for stage, times, rank in STAGES:
        if rank > kills:
            continue
        _write(path, accepted)
        began_s = time.monotonic()
        killed = moving.killed_copy(path, dsn, stage, times if units > MANY else 1)
        _note(attempts, f"killed at {stage}" if killed else "came to its end", began_s)
    began_s = time.monotonic()
    working = Writer(path)
    working.start()
    report = moving.copy(path, dsn)
    working.ended.set()
    working.join()
    _note(attempts, "moved", began_s)
    with closing(open_store(dsn, "/", SystemClock())) as new:
        sound = chain.verify(new).sound
        entered = {one.entry.subject for one in chain.links(new)}
    acknowledged = {*accepted, *working.accepted}
    return {
        "attempts": attempts,
        "rows": report.rows,
        "tables": {
            one.table: [one.rows, one.digest] for one in report.tables if one.table in ("runs", "units")
        },
        "noted": report.noted,
        "repaired": report.repaired,
        "fenced_ms": report.fenced_ms,
        "acknowledged": len(acknowledged),
        "lost": len(acknowledged - entered),
        "refused": working.refused,
        "sound": sound,
    }


def _write(path: str, accepted: list[str]) -> None:
    """Some entries between two attempts, as far as the ledger takes them."""
    with closing(open_store(f"sqlite:{path}", "/", SystemClock())) as ledger, suppress(LedgerMoved):
        for _ in range(10):
            subject = f"between {len(accepted)}"
            moving.enter(ledger, subject)
            accepted.append(subject)


def _note(attempts: list[dict[str, object]], what: str, began_s: float) -> None:
    attempts.append({"what": what, "seconds": round(time.monotonic() - began_s, 1)})
    sys.stderr.write(f"{attempts[-1]}\n")


if __name__ == "__main__":
    sys.exit(main())
