"""Downstream updates: arrivals that a source follows become requests, one for each period that they touch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kfm.runs.derived_changes import close_bursts

if TYPE_CHECKING:
    from kfm.app import App
    from kfm.model.requests import UpdateRequest


class Followers:
    """Closes the windows of arrivals that are due; works the requests off, where no service does."""

    def __init__(
        self, app: App, drain: Callable[[], None], stopping: Callable[[], bool], *, dispatches: bool
    ) -> None:
        self._app = app
        self._drain = drain
        self._stopping = stopping
        self._dispatches = dispatches

    def step(self) -> int:
        """How many requests the arrivals made."""
        made = close_bursts(self._app)
        if self._dispatches:
            self._app.dispatch_due("bursts", holding=self._holding, stopping=self._stopping)
        return made

    @contextmanager
    def _holding(self, _request: UpdateRequest) -> Iterator[None]:
        """A run may take longer than the lease of a unit lasts: claimed units are finished first."""
        self._drain()
        yield
