"""A ledger of an earlier kfm is upgraded, killed on the way: `python -m tests.crash.upgrades`.

Without --ledger one is made by the migrations of then. It is upgraded once without a kill, and every
statement is timed; a copy is killed in the middle of those that took longest, and comes to its end then.
Prints one JSON document: the longest statements, what each attempt took, and whether the rows and the schema
are the same.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import closing
from typing import NamedTuple

from kfm.db.queries import applied
from tests import upgrading

AMIDST = 0.5  # of the time that a statement took


class Statement(NamedTuple):
    """Of the migration that this is the title of, the one after so many, and how long it took."""

    title: str
    done: int
    seconds: float


def main() -> int:
    parser = argparse.ArgumentParser(prog="upgrades", description=__doc__)
    parser.add_argument("--ledger", help="a ledger of an earlier kfm, in SQLite; it is copied, not changed")
    parser.add_argument("--rows", type=int, default=50_000, help="of each table of the one that is made")
    parser.add_argument("--kills", type=int, default=3)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kfm-upgrades-") as folder:
        whole, cut = (os.path.join(folder, name) for name in ("whole.db", "cut.db"))
        if asked.ledger is None:
            upgrading.make(whole, asked.rows)
        else:
            shutil.copyfile(asked.ledger, whole)
        shutil.copyfile(whole, cut)
        found = campaign(whole, cut, asked.kills)
    sys.stdout.write(json.dumps(found, indent=1) + "\n")
    return 0 if found["equal"] else 1


def campaign(whole: str, cut: str, kills: int) -> dict[str, object]:
    attempts: list[dict[str, object]] = []
    size = os.path.getsize(whole)
    timed = [Statement(*one) for one in json.loads(_attempt(whole, None, attempts))]
    longest = sorted(timed, key=lambda one: one.seconds)[-kills:]
    for one in sorted(longest, key=timed.index):  # in their order: what is before the last kill is done
        _attempt(cut, one, attempts)
    _attempt(cut, None, attempts)
    made, other = upgrading.contents(whole), upgrading.contents(cut)
    differing = {name for name in made | other if made.get(name) != other.get(name)}
    return {
        "bytes": [size, os.path.getsize(whole)],
        "longest": longest[::-1],
        "attempts": attempts,
        "tables": len(made) - 1,
        "equal": not differing,
        "differing": sorted(differing),
    }


def _attempt(path: str, kill_in: Statement | None, attempts: list[dict[str, object]]) -> str:
    """In a process of its own; what it says of its statements."""
    began_s = time.monotonic()
    command = [sys.executable, "-m", __spec__.name, path, json.dumps(kill_in)]
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    took_s = time.monotonic() - began_s
    with closing(upgrading.opened(path)) as database:
        reached = max(applied(database.session))
    killed = kill_in is not None and f"{kill_in.title.rpartition(': ')[2]}, statement {kill_in.done + 1}"
    attempts.append({"killed_in": killed, "seconds": round(took_s, 1), "migration": reached})
    sys.stderr.write(f"{attempts[-1]}\n")
    assert ended.returncode == (0 if kill_in is None else -signal.SIGKILL), ended
    return ended.stdout


def attempt(path: str, kill_in: Statement | None) -> None:
    """Upgrade; killed while the statement is under way, wherever the attempt began."""
    timed: list[Statement] = []
    began_s = 0.0

    def act(_migration: int, done: int) -> None:
        nonlocal began_s
        title = watched.phases[-1][0]
        if done:
            timed.append(Statement(title, done - 1, round(time.monotonic() - began_s, 3)))
        if kill_in is not None and (title.rpartition(": ")[2], done) == (
            kill_in.title.rpartition(": ")[2],
            kill_in.done,
        ):
            threading.Timer(kill_in.seconds * AMIDST, os.kill, (os.getpid(), signal.SIGKILL)).start()
        began_s = time.monotonic()

    watched = upgrading.Watched(act)
    upgrading.upgrade(path, watched)
    sys.stdout.write(json.dumps(timed))


if __name__ == "__main__":
    if len(sys.argv) == 3 and not sys.argv[1].startswith("-"):
        where = json.loads(sys.argv[2])
        attempt(sys.argv[1], Statement(*where) if where else None)
    else:
        sys.exit(main())
