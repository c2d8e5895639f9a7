"""Downstream updates: arrivals that a source follows become requests, one for each period that they touch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kfm.model.windows import window_of

if TYPE_CHECKING:
    from kfm.app import App
    from kfm.model.records import Window
    from kfm.model.requests import UpdateRequest


class Followers:
    """Closes the windows of arrivals that are due; works the requests off, where no service does."""

    def __init__(
        self, app: App, drain: Callable[[], None], stopping: Callable[[], bool], *, dispatches: bool
    ) -> None:
        self._app = app
        self._bursts = app.writer.bursts()
        self._sources = {source.id: source for source in app.settings.sources}
        self._drain = drain
        self._stopping = stopping
        self._dispatches = dispatches

    def step(self) -> int:
        """How many requests the arrivals made."""
        made = self._bursts.close_due(
            round(self._app.settings.ingest.coalesce_seconds * 1000),
            self._period,
            self._dataset_of,
            self._app.actor,
        )
        if self._dispatches:
            self._app.dispatch_due("bursts", holding=self._holding, stopping=self._stopping)
        return made

    def _period(self, source_id: str, at_ms: int) -> Window:
        source = self._sources.get(source_id)
        if source is None:  # it was taken out of the configuration: the request says so
            return window_of("P1D", "UTC", at_ms)
        return window_of(source.window, source.time_zone, at_ms)

    def _dataset_of(self, source_id: str) -> str:
        source = self._sources.get(source_id)
        return source_id if source is None else source.dataset

    @contextmanager
    def _holding(self, _request: UpdateRequest) -> Iterator[None]:
        """A run may take longer than the lease of a unit lasts: claimed units are finished first."""
        self._drain()
        yield
