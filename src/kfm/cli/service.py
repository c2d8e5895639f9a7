"""What `kfm serve` is made of, put together; and the way it stops."""

from __future__ import annotations

import signal
import socket
import sys
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, closing, contextmanager, nullcontext, suppress
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Any

from kfm.cli.scraping import Scrape
from kfm.cli.session import Session
from kfm.cli.stopping import Stop
from kfm.core.errors import Cancelled, ExtraMissing, UsageError
from kfm.core.schedules import Schedule
from kfm.core.wording import counted
from kfm.engine.dispatching import wish_of
from kfm.serving.intake import Intake
from kfm.wiring.app import App
from kfm.wiring.service import ServedPlace, Service, ServiceWish, previewed

if TYPE_CHECKING:
    from kfm.config import Loaded
    from kfm.core.requests import UpdateRequest
    from kfm.service_ports import Requests

CONNECTIONS_MAX = 1024
IDLE_SECONDS_MAX = 30
CLOSING_SECONDS_MAX = 10
# The writer of requests needs the interpreter again and again while it commits: with the usual 5 ms it would
# wait for the web each time, and whoever waits for his answer with it.
SWITCH_SECONDS = 0.0005


def serve(session: Session, wish: ServiceWish, *, host: str | None, port: int | None, prefix: str) -> int:
    """Until somebody stops it."""
    try:
        import uvicorn

        from kfm.serving.connections import Bounded
        from kfm.serving.listening import address_of, listener, shown_host
    except ImportError:
        raise ExtraMissing(
            "The service needs the extra `serve`.", remedy="pip install 'kfm[serve]'"
        ) from None
    from kfm.configuration.schedules import load_schedules

    sys.setswitchinterval(SWITCH_SECONDS)
    loaded = session.load()
    settings = loaded.settings.serve
    address = address_of(host or settings.host)
    schedules = load_schedules(loaded)
    _require_people(loaded, address)
    _first_look(session)
    say = _Teller(session)
    service = Service(loaded, schedules, wish, say)
    stop = Stop()
    with listener(address, settings.port if port is None else port) as listening, stop.installed():
        shown = f"{shown_host(address)}:{listening.getsockname()[1]}{prefix}"
        web = Web(session, loaded, schedules, service)
        config = uvicorn.Config(
            web.app((*settings.hosts, shown_host(address)), prefix),
            log_level="critical",
            http=Bounded,
            ws="none",
            lifespan="on",
            server_header=False,
            proxy_headers=False,
            limit_concurrency=CONNECTIONS_MAX,
            timeout_keep_alive=IDLE_SECONDS_MAX,
            timeout_graceful_shutdown=CLOSING_SECONDS_MAX,
        )
        service.start()
        say(f"serving http://{shown}/; stop with Ctrl-C")
        for line in _told(loaded, schedules, wish):
            say(line)
        _run(uvicorn.Server(config), listening, stop)
        service.stop()
        left = service.join()
    if left:
        say(f"not waited for longer: {', '.join(left)}; whoever comes next takes over what is held")
    say("stopped")
    return Cancelled.exit_code if stop.by == signal.SIGINT else 0


def _run(server: Any, listening: socket.socket, stop: Stop) -> None:
    """Until somebody wants it to stop. Our handlers are installed, and stay until all threads have ended."""
    server.capture_signals = nullcontext
    stop.tell(lambda: setattr(server, "should_exit", True))
    if not stop.event.is_set():
        server.run([listening])


def _require_people(loaded: Loaded, address: str) -> None:
    from kfm.serving.listening import is_private

    if is_private(address) or any(person.token_hashes for person in loaded.people()):
        return
    raise UsageError(
        f"Other machines could reach {address}, and nobody has a token to be known by.",
        remedy="Listen on 127.0.0.1, or give people tokens under `people`; see docs/how-to/give-roles.md.",
    )


def _first_look(session: Session) -> None:
    """A role that is missing, or a ledger that can't be used, is told now and not to the first who asks."""
    with session.app() as app:
        app.kernel.store.requests().next_due_ms()


def _told(loaded: Loaded, schedules: Sequence[Schedule], wish: ServiceWish) -> list[str]:
    from kfm.configuration.webhooks import webhook_warnings

    settings = loaded.settings
    hooked = [source for source in settings.sources if source.webhook is not None]
    enabled = sum(schedule.enabled for schedule in schedules)
    lines = [
        f"{counted(enabled if wish.schedules else 0, 'schedule')}, {counted(len(hooked), 'webhook')}, "
        f"{counted(len(settings.ingest.queues) if wish.worker else 0, 'queue')}, "
        f"{counted(settings.serve.runners if wish.runs else 0, 'run')} at a time"
    ]
    if not settings.people:
        lines.append("nobody has a token: reading is open to this machine, changes over HTTP are refused")
    return [*lines, *webhook_warnings(settings)]


class Web:
    """The web of one service."""

    def __init__(
        self, session: Session, loaded: Loaded, schedules: Sequence[Schedule], service: Service
    ) -> None:
        self._loaded = loaded
        self._place = ServedPlace(loaded, schedules, service.wake)
        self._scraping = threading.Lock()
        self._scrape = Scrape(session)
        self._intake = Intake(self._requests, committed=service.wake)

    def app(self, hosts: Sequence[str], prefix: str) -> Any:
        from kfm.serving.hosts import LOOPBACK
        from kfm.serving.service import service_app

        return service_app(
            hosts=(*LOOPBACK, *(host.lower() for host in hosts)),
            people=self._place.people,
            ready=self._ready,
            hooks=self._hooks(),
            api=self._api(),
            console=self._console(),
            metrics=self._metrics,
            stac=self._stac(),
            lifespan=self._lifespan,
            prefix=prefix,
        )

    @asynccontextmanager
    async def _lifespan(self, _app: Any) -> AsyncIterator[None]:
        from starlette.concurrency import run_in_threadpool

        self._intake.start()
        try:
            yield
        finally:
            await run_in_threadpool(self._intake.close)

    def _hooks(self) -> list[Any]:
        """The addresses of sources that others may ask for."""
        from kfm.configuration.webhooks import webhook_secrets
        from kfm.serving.failures import Failures
        from kfm.serving.hooks import Hooks, hook_routes

        loaded = self._loaded
        sources = {source.id: source for source in loaded.settings.sources if source.webhook is not None}
        secrets = {name: webhook_secrets(source, loaded.secret) for name, source in sources.items()}
        hooks = Hooks(
            sources,
            secrets,
            now_ms=self._place.now_ms,
            accept=self._intake.accept,
            preview=self._preview,
            failures=Failures(self._place.folder, self._place.now_ms),
            decoy=token_urlsafe(32),
            said=loaded.discretion.said,
            body_max=loaded.settings.serve.body_bytes_max,
        )
        return list(hook_routes(hooks))

    async def _preview(self, request: UpdateRequest) -> dict[str, Any]:
        from starlette.concurrency import run_in_threadpool

        from kfm.serving.previews import preview_document

        report = await run_in_threadpool(previewed, self._loaded, wish_of(request))
        dataset = self._loaded.settings.dataset(request.dataset_id)
        return preview_document(report, dataset)

    def _api(self) -> list[Any]:
        from kfm.serving.api import api_routes

        return list(api_routes(self._place))

    def _console(self) -> list[Any]:
        from kfm.serving.console.routes import console_routes

        return list(console_routes(self._place, hide=self._loaded.discretion))

    def _ready(self) -> None:
        with self._place.reader() as ledger:
            ledger.request_reader().next_due_ms()

    def _metrics(self) -> tuple[str, str]:
        from kfm.telemetry.exposition import CONTENT_TYPE, exposition

        with self._scraping:  # a reading goes on where the last one ended
            return exposition(self._scrape.tallies()), CONTENT_TYPE

    def _stac(self) -> Any:
        from kfm.ingest.registry import load_registry
        from kfm.serving.stac import stac_app

        @contextmanager
        def opened() -> Iterator[Any]:
            with self._place.reader() as ledger:
                yield ledger.catalogue()

        datasets = {dataset.name: dataset for dataset in load_registry().datasets}
        return stac_app(opened, datasets, hosts=None)

    @contextmanager
    def _requests(self) -> Iterator[Requests]:
        with closing(App(self._loaded, read_only=False, progress=None)) as app:
            yield app.kernel.store.requests()


class _Teller:
    """Lines on stderr, from many threads. That nobody reads them, or a full disk, ends none of these."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._lock = threading.Lock()

    def __call__(self, line: str) -> None:
        with self._lock, suppress(OSError, ValueError):
            self._session.note(line)
            sys.stderr.flush()
