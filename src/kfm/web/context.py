"""What the pages and the API are given: the ledger to read, an application to act, and what is configured."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import cached_property
from typing import TYPE_CHECKING

from kfm.app import App
from kfm.model.roles import Identity, KnownPerson
from kfm.model.schedules import Schedule
from kfm.model.settings import Settings
from kfm.system import SystemClock

if TYPE_CHECKING:
    from kfm.config.loader import Loaded
    from kfm.db.ledger_reader import LedgerReader


class WebContext:
    """One configuration and its ledger, for as many requests at once as come."""

    def __init__(
        self, loaded: Loaded, schedules: Sequence[Schedule], wake: Callable[[], None] = lambda: None
    ) -> None:
        self._loaded = loaded
        self.schedules = tuple(schedules)
        self.wake = wake  # the runners: something new is in the ledger

    @property
    def settings(self) -> Settings:
        return self._loaded.settings

    @cached_property
    def people(self) -> Sequence[KnownPerson]:
        return self._loaded.people()

    @property
    def folder(self) -> str:
        """Of the state: artifacts of runs are in it."""
        return self._loaded.resolve(self.settings.state).rstrip("/")

    def now_ms(self) -> int:
        return SystemClock().now_ms()

    @contextmanager
    def reader(self) -> Iterator[LedgerReader]:
        """The ledger, opened in the thread that uses it."""
        # Opened anew each time: a ledger may be made, moved or restarted while we serve.
        with closing(App(self._loaded, read_only=True, progress=None)) as app:
            yield app.ledger

    @contextmanager
    def app(self, identity: Identity, *, read_only: bool = False) -> Iterator[App]:
        """The application with this caller's identity. Access was decided before."""
        with closing(App(self._loaded, read_only=read_only, progress=None)) as app:
            app.__dict__["identity"] = identity  # the caller over HTTP, not the account of this process
            yield app
