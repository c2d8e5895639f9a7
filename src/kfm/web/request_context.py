"""The context of a request over HTTP: the configuration, who is known, the schedules and the ledger."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING

from kfm.app import App
from kfm.config.live import LiveConfig
from kfm.datasets.verdict_memory import VerdictMemory
from kfm.model.errors import KfmError
from kfm.system import SystemClock
from kfm.web.role_refusals import RefusalCounter

if TYPE_CHECKING:
    from kfm.config.loader import Loaded
    from kfm.db.ledger_reader import LedgerReader
    from kfm.db.requests import Requests
    from kfm.model.roles import Identity, KnownPerson
    from kfm.model.schedules import Schedule
    from kfm.model.settings import Settings


class WebContext:
    """One configuration and its ledger, for any number of requests at once.

    The ledger is opened anew each time, in the thread that uses it: a store is not shared between threads,
    and a ledger may be made, moved or restarted while the service runs.
    """

    def __init__(
        self,
        loaded: Loaded,
        live: LiveConfig | None = None,
        wake: Callable[[], None] = lambda: None,
        is_stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        """`wake` ends the wait of the runners: there is a new request in the ledger. `is_stopping`: no work
        should be sent here any more."""
        self.loaded = loaded
        self.live = live or LiveConfig(loaded)
        self.wake = wake
        self.is_stopping = is_stopping
        self.refusals = RefusalCounter(self.now_ms)
        self.verdicts = VerdictMemory()

    @property
    def settings(self) -> Settings:
        return self.loaded.settings

    @property
    def people(self) -> Sequence[KnownPerson]:
        return self.live.people

    @property
    def schedules(self) -> Sequence[Schedule]:
        return self.live.schedules

    @property
    def folder(self) -> str:
        """The folder of the state, in which the artifacts of runs are."""
        return self.loaded.resolve(self.settings.state).rstrip("/")

    def now_ms(self) -> int:
        return SystemClock().now_ms()

    def enter_refusals(self, *, closing: bool = False) -> None:
        """Enter what is due in the audit log. A refusal holds also where that can't be written."""
        entries = self.refusals.due(closing=closing)
        if entries:
            with suppress(KfmError, OSError), self._opened(read_only=False) as app:
                app.writer.append_governance(entries)

    @contextmanager
    def reader(self) -> Iterator[LedgerReader]:
        with self._opened(read_only=True) as app:
            yield app.ledger

    @contextmanager
    def objects(self) -> Iterator[Callable[[str], bool]]:
        """Whether an object is there; the store is opened by the first question."""
        with self._opened(read_only=True) as app:
            yield lambda sha256: app.objects.has(sha256)

    @contextmanager
    def requests(self) -> Iterator[Requests]:
        with self._opened(read_only=False) as app:
            yield app.kernel.store.requests()

    @contextmanager
    def app(self, identity: Identity, *, read_only: bool = False) -> Iterator[App]:
        """The application in the name of `identity`, whose role was checked before."""
        with self._opened(read_only=read_only) as app:
            app.__dict__["identity"] = identity  # the sender of the request, not the owner of this process
            yield app

    def _opened(self, *, read_only: bool) -> closing[App]:
        return closing(App(self.loaded, read_only=read_only, progress=None))
