"""A process whose run waits until it is killed: `python -m tests.world.waiting FOLDER`."""

from __future__ import annotations

import sys
from pathlib import Path
from unittest.mock import patch

from kfm.app import open_app
from kfm.config.loader import load
from kfm.config.schedules import load_schedules
from kfm.service import dispatcher
from kfm.service.runner import dispatch_due
from kfm.service.scheduler import make_scheduler
from tests.world.building import inside
from tests.world.clock import SEED, WorldTime, installed
from tests.world.story import DAY_MS, STARTED_MS


def main(folder: Path) -> None:
    with (
        patch.object(dispatcher, "CLAIM_MS", DAY_MS),  # a service would renew it
        inside(folder, "ann"),
        installed(WorldTime(STARTED_MS), SEED + 2),
        open_app(load(None, {})) as app,
    ):
        make_scheduler(app, load_schedules(app.loaded)).step()
        dispatch_due(app, "all")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
