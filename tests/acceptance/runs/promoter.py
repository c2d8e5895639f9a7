"""Promotes new data of one source again and again, through the wiring, until the dataset has come far enough.

    python promoter.py PROJECT SOURCE SEQUENCE

May be killed at any time and started again.
"""

from __future__ import annotations

import os
import sys
import time
import uuid
from pathlib import Path

ROUNDS_MAX = 100_000


def main() -> int:
    folder, source_id, wanted = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    from kfm.app import open_app
    from kfm.config.loader import load
    from kfm.runs.kernel import RunRequest

    request = RunRequest(source_id=source_id, window_spec="2026-01-01/P1D", actor="promoter", by_person=True)
    incoming = folder / f"incoming-{source_id}"
    with open_app(load(str(folder / "kfm.yml"), {})) as app:
        for _ in range(ROUNDS_MAX):
            head = app.ledger.head("levels")
            if head is not None and head[0].sequence >= wanted:
                return 0
            fresh = folder / f".{source_id}-{os.getpid()}"
            fresh.write_text(f"station,level_m\n{uuid.uuid4().hex},1.5\n")
            fresh.replace(incoming / "levels.csv")
            report = app.run(request)
            if report.outcome not in ("success", "noop", "busy"):
                print(report, file=sys.stderr)
                return 1
            if report.outcome == "busy":
                time.sleep(0.002)  # the other one is at it
            wrong = [one for one in report.projections if one.error]
            if wrong:
                print(wrong, file=sys.stderr)
                return 1
    return 1


if __name__ == "__main__":
    sys.exit(main())
