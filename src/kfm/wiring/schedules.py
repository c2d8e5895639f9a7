"""Schedules as an application sees them: kept, paused, made up for, and told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kfm.core.schedules import Schedule
    from kfm.engine.scheduling import Scheduler
    from kfm.wiring.app import App


def make_scheduler(app: App, schedules: Sequence[Schedule], say: Callable[[str], None]) -> Scheduler:
    from kfm.engine.scheduling import Scheduler

    store = app.kernel.store
    return Scheduler(
        store.schedule_states(),
        store.requests(),
        schedules,
        {source.id: source for source in app.settings.sources},
        now_ms=store.now_ms,
        late_ms=late_ms(app),
        actor=app.actor,
        say=say,
    )


def late_ms(app: App) -> int:
    return round(app.settings.serve.late_seconds * 1000)
