"""`python -m tests.hosts --minutes 10`: hosts fail while work goes on; then everything is counted."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.hosts.campaign import SHORT, Campaign, plan
from tests.hosts.machines import scratch
from tests.hosts.network import require


def main() -> int:
    parser = argparse.ArgumentParser(prog="hosts", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--short", action="store_true", help="three faults and one switch")
    parser.add_argument("--tamper", action="store_true", help="then change rows, and count once more")
    parser.add_argument("--keep", type=Path, help="folder for what the hosts leave behind")
    options = parser.parse_args()
    require()
    signal.signal(signal.SIGTERM, _leave)
    seconds = 0.0 if options.short else options.minutes * 60
    with ExitStack() as stack:
        folder = options.keep or Path(
            stack.enter_context(
                tempfile.TemporaryDirectory(prefix="kfm-hosts-", dir=scratch(), ignore_cleanup_errors=True)
            )
        )
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o755)  # PostgreSQL is another account's
        campaign = Campaign(options.seed, folder, stack, quiet=options.short)
        faults = SHORT if options.short else plan(options.seed, seconds)
        told = campaign.run(faults, seconds, throws=int(options.short))
        if options.tamper:
            campaign.tamper()
    document = asdict(told)
    if not options.short:
        sys.stderr.write("\n".join(document.pop("timeline")) + "\n")
    json.dump(document, sys.stdout, indent=None if options.short else 1)
    return int(bool(told.problems))


def _leave(*_: Any) -> None:
    raise SystemExit("stopped")  # by way of everything that has to be undone


if __name__ == "__main__":
    sys.exit(main())
