"""`make schedules`: every zone, ten years, every change of the clocks."""

from __future__ import annotations

import sys
import time
from datetime import timedelta

from tests.schedules.proof import changes, check_change, check_days, check_offsets, histories


def main() -> int:
    began = time.monotonic()
    found = histories()
    zones = sum(map(len, found.values()))
    compared = held = 0
    every = changes(found.items())
    for change in every:
        compared += check_change(change)
    print(f"{len(every)} changes of the clocks: {compared:,} instants as the oracle has them")
    for history, names in found.items():
        held += check_days(names[0], history)
        for zone in names:
            check_offsets(history, zone, timedelta(hours=36))
    print(f"{zones} zones with {len(found)} histories: {held:,} instants keep the invariants")
    print(f"{time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
