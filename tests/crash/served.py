"""`kfm serve` or `kfm worker` as it is, in a hurry: what it waits for is shorter, so that minutes hold what
days would.

Nothing else is different. A claim lapses after seconds, so that a process that is stopped loses it; so do
messages that were read from a folder.
"""

from __future__ import annotations

from kfm.cli import main
from kfm.nodd.queues.folder_queue import FolderQueue
from kfm.service import dispatcher, runner

CLAIM_MS = 3_000
VISIBILITY_MS = 3_000


def hurry() -> None:
    dispatcher.CLAIM_MS = runner.CLAIM_MS = CLAIM_MS  # type: ignore[attr-defined]
    runner.KEEP_MS = 500
    runner.TROUBLE_MS, runner.TROUBLE_MS_MAX = 100, 1_000
    runner.RETRY_MS = 500
    dispatcher.BUSY_MS, dispatcher.BUSY_MS_MAX = 200, 2_000
    dispatcher.TROUBLE_MS, dispatcher.TROUBLE_MS_MAX = 200, 2_000
    FolderQueue.__init__.__kwdefaults__["visibility_ms"] = VISIBILITY_MS


if __name__ == "__main__":
    hurry()
    main()
