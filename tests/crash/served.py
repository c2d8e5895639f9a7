"""`kfm serve` as it is, in a hurry: what it waits for is shorter, so that minutes hold what days would.

Nothing else is different. A claim lapses after seconds, so that a process that is stopped loses it.
"""

from __future__ import annotations

from kfm.cli import main
from kfm.engine import dispatching
from kfm.wiring import service

CLAIM_MS = 3_000


def hurry() -> None:
    dispatching.CLAIM_MS = service.CLAIM_MS = CLAIM_MS  # type: ignore[attr-defined]
    service.KEEP_MS = 500
    service.TROUBLE_MS, service.TROUBLE_MS_MAX = 100, 1_000
    service.RETRY_MS = 500
    dispatching.BUSY_MS, dispatching.BUSY_MS_MAX = 200, 2_000
    dispatching.TROUBLE_MS, dispatching.TROUBLE_MS_MAX = 200, 2_000


if __name__ == "__main__":
    hurry()
    main()
