"""Downstream runs: one for each burst of arrivals that a source follows, admitted as any other run."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from kfm.model.errors import KfmError
from kfm.model.quantities import counted
from kfm.model.records import Window
from kfm.model.requests import Burst
from kfm.model.retry import backoff_ms
from kfm.model.settings import SourceSettings
from kfm.model.times import rfc3339
from kfm.model.windows import window_of
from kfm.runs.kernel import RunReport, RunRequest

if TYPE_CHECKING:
    from kfm.db.requests import Bursts

CLAIM_MS = 10 * 60_000
BUSY_MS = 15_000  # another run of the dataset is under way
TROUBLE_MS_MAX = 15 * 60_000
BATCH = 10
logger = logging.getLogger(__name__)


class FanOut:
    """Closes windows that are due, and starts a run for each burst."""

    def __init__(
        self,
        bursts: Bursts,
        find: Callable[[str], SourceSettings | None],
        run: Callable[[RunRequest], RunReport],
        now_ms: Callable[[], int],
        *,
        window_ms: int,
        actor: str,
        before_run: Callable[[], object] = lambda: None,
    ) -> None:
        self._bursts = bursts
        self._find = find
        self._run = run
        self._now_ms = now_ms
        self._window_ms = window_ms
        self._actor = actor
        self._before_run = before_run  # a run may take long: claimed units are finished first

    def step(self) -> int:
        """How many bursts led to a run."""
        self._bursts.close_due(self._window_ms, self._period)
        return sum(self._start_run(burst) for burst in self._bursts.claim(BATCH, CLAIM_MS))

    def _period(self, source_id: str, at_ms: int) -> Window:
        source = self._find(source_id)
        if source is None:  # it was taken out of the configuration: the burst ends as refused
            return window_of("P1D", "UTC", at_ms)
        return window_of(source.window, source.time_zone, at_ms)

    def _start_run(self, burst: Burst) -> int:
        """The run's key makes it happen once, also if this process dies before the burst is settled."""
        if self._find(burst.source_id) is None:
            self._bursts.settle(burst, "refused")
            return 0
        request = RunRequest(
            source_id=burst.source_id,
            window_spec=f"{rfc3339(burst.start_ms)}/{rfc3339(burst.end_ms)}",
            trigger_type="upstream-event",
            message_id=burst.burst_id,
            actor=self._actor,
        )
        self._before_run()
        try:
            report = self._run(request)
        except KfmError as error:
            logger.warning(
                "%s: %s", burst.source_id, error, extra={"source": burst.source_id, "code": error.code}
            )
            later_ms = backoff_ms(BUSY_MS, TROUBLE_MS_MAX, burst.tries)
            self._bursts.settle(burst, "open", None, self._now_ms() + later_ms)
            return 0
        if report.outcome == "busy":
            self._bursts.settle(burst, "open", None, self._now_ms() + BUSY_MS)
            return 0
        run_id = report.run.run_id if report.run is not None else None
        self._bursts.settle(burst, "refused" if report.outcome == "refused" else "done", run_id)
        reason = f": {report.reason}" if report.outcome == "refused" else ""
        logger.info(
            "%s: %s after %s%s",
            burst.source_id,
            report.word,
            counted(burst.members, "arrival"),
            reason,
            extra={"source": burst.source_id, "run_id": run_id},
        )
        return 1
