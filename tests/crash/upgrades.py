"""A ledger of an earlier kfm is upgraded, killed on the way: `python -m tests.crash.upgrades`.

Without --ledger one is made by the migrations of then. Kills fall while statements are under way, spread over
the time that an upgrade without one takes. Prints one JSON document: what each attempt took and where it was
cut, and whether the rows and the schema are those of the upgrade that was never killed.
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
import time
from contextlib import closing

from kfm.db.queries import applied
from tests import upgrading

UPGRADE = "import sys; from tests import upgrading; upgrading.upgrade(sys.argv[1])"


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
    took_s = _attempt(whole, None, attempts)
    for number in range(kills):
        # Each goes on where the last one was, so what is left shrinks.
        _attempt(cut, took_s * (number + 1) / (kills + 1) / 2, attempts)
    _attempt(cut, None, attempts)
    made, other = upgrading.contents(whole), upgrading.contents(cut)
    differing = {name for name in made | other if made.get(name) != other.get(name)}
    return {
        "bytes": os.path.getsize(whole),
        "attempts": attempts,
        "tables": len(made) - 1,
        "equal": not differing,
        "differing": sorted(differing),
    }


def _attempt(path: str, kill_after_s: float | None, attempts: list[dict[str, object]]) -> float:
    """In a process of its own, killed after a while; what it took."""
    began_s = time.monotonic()
    child = subprocess.Popen([sys.executable, "-c", UPGRADE, path])
    try:
        child.wait(kill_after_s)
    except subprocess.TimeoutExpired:
        child.send_signal(signal.SIGKILL)
    ended = child.wait()
    took_s = time.monotonic() - began_s
    with closing(upgrading.opened(path)) as database:
        reached = max(applied(database.session))
    attempts.append({"killed": ended == -signal.SIGKILL, "seconds": round(took_s, 1), "migration": reached})
    sys.stderr.write(f"{attempts[-1]}\n")
    assert ended in (0, -signal.SIGKILL), ended
    return took_s


if __name__ == "__main__":
    sys.exit(main())
