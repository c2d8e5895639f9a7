"""Schedules as an application sees them: kept by a service, and asked for what comes next."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from kfm.core.errors import KfmError, WindowError

if TYPE_CHECKING:
    from kfm.config import Loaded
    from kfm.core.records import Run
    from kfm.core.schedules import Schedule
    from kfm.core.settings import Source
    from kfm.engine.scheduling import Scheduler
    from kfm.ports import Clock, LedgerReader
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
        late_ms=app.settings.serve.late_ms,
        actor=app.actor,
        say=say,
        is_touched=store.is_touched,
    )


class Timetable:
    """When schedules begin their next runs. Their file is read when somebody first asks."""

    def __init__(
        self, loaded: Loaded, ledger: LedgerReader, clock: Clock, tell: Callable[[str], None]
    ) -> None:
        self._loaded = loaded
        self._ledger = ledger
        self._clock = clock
        self._tell = tell

    @cached_property
    def _schedules(self) -> tuple[Schedule, ...]:
        from kfm.configuration.schedules import load_schedules

        try:
            return load_schedules(self._loaded)
        except KfmError as error:  # a run's end must not depend on it
            self._tell(f"schedules: {error.message}")
            return ()

    def next_run_ms(self, run: Run) -> int | None:
        """When the next run of a schedule that asks for such windows of its source begins; None: none does.

        A schedule that is paused begins none.
        """
        from kfm.core.schedules import due_ms, next_instant

        source = next((one for one in self._loaded.settings.sources if one.id == run.source_id), None)
        if source is None:
            return None
        fitting = [
            one
            for one in self._schedules
            if one.enabled and one.source == source.id and _asks_for(one, source, run)
        ]
        if not fitting:
            return None
        states, now_ms, found = self._ledger.schedule_reader().states(), self._clock.now_ms(), []
        for schedule in fitting:
            state = states.get(schedule.id)
            if state is not None and state.paused_at_ms is not None:
                continue
            instant_ms = next_instant(schedule, now_ms)
            if instant_ms is not None:
                found.append(due_ms(schedule, instant_ms))
        return min(found, default=None)


def _asks_for(schedule: Schedule, source: Source, run: Run) -> bool:
    """Is the run's window one of those that the schedule asks for, at whichever instant?"""
    from kfm.core.windows import window_of

    try:
        window = window_of(schedule.window or source.window, source.time_zone, run.window_start_ms)
    except WindowError:
        return False
    return (window.start_ms, window.end_ms) == (run.window_start_ms, run.window_end_ms)
