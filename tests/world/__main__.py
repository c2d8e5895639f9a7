"""Serves a world to look at: `python -m tests.world`; see --help."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.world.building import inside
from tests.world.bulk import add_bulk
from tests.world.clock import served_from
from tests.world.keeping import claim_running, copied_world
from tests.world.story import NOW_MS, ROLES, TOKENS, at


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.world", description=__doc__.partition(":")[0] + "."
    )
    parser.add_argument(
        "--folder", type=Path, help="make the copy here, and leave it; else in a scratch folder"
    )
    parser.add_argument("--port", type=int, default=0, help="0: any free one")
    parser.add_argument("--at", metavar="TIME", help="the world's now, in UTC; else the end of its story")
    parser.add_argument("--frozen", action="store_true", help="time stands still; else it goes on from there")
    parser.add_argument(
        "--live", action="store_true", help="schedules fire and work is done; else only looked at"
    )
    parser.add_argument("--units", type=int, default=0, help="so many more units, for measurements")
    parser.add_argument("--runs", type=int, default=0, help="so many more runs, for measurements")
    parser.add_argument("--make-only", action="store_true", help="make it and print its folder")
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="kfm-world-") as scratch:
        folder = copied_world(chosen.folder or Path(scratch) / "world", lambda line: print(line, flush=True))
        add_bulk(folder, runs=chosen.runs, units=chosen.units)
        if chosen.make_only:
            print(folder)
            return 0
        at_ms = at(chosen.at.removesuffix("Z")) if chosen.at else NOW_MS
        return _serve(folder, at_ms, chosen)


def _serve(folder: Path, at_ms: int, chosen: argparse.Namespace) -> int:
    """`kfm serve` itself, in this process; it prints its address."""
    from kfm.cli import main as kfm

    for who, token in TOKENS.items():
        print(f"{who} ({ROLES[who][0]}): {token}", flush=True)
    still = () if chosen.live else ("--no-schedules", "--no-runs", "--no-worker")
    with served_from(at_ms, frozen=chosen.frozen), inside(folder, "ann"):
        living = claim_running(folder)
        try:
            kfm(["serve", "--host", "127.0.0.1", "--port", str(chosen.port), *still])
        except SystemExit as ended:
            return int(str(ended.code or 0))
        finally:
            living.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
