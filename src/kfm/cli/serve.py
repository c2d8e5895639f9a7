"""`kfm serve`: scheduler, webhooks, workers, retries, API and console in one process."""

from __future__ import annotations

import re
import signal
import socket
import sys
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, closing, contextmanager, nullcontext
from functools import partial
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Any

import click

from kfm.app import App, open_app
from kfm.cli.metrics import Scrape
from kfm.cli.options import session_options
from kfm.cli.session import CommandSession
from kfm.cli.signals import Stop
from kfm.model.errors import Cancelled, ExtraMissing, UsageError
from kfm.model.schedules import Schedule
from kfm.model.wording import counted
from kfm.service.dispatcher import wish_of
from kfm.service.runner import Service, ServiceOptions
from kfm.web.accept_queue import AcceptQueue
from kfm.web.context import WebContext

if TYPE_CHECKING:
    from kfm.config.loader import Loaded
    from kfm.db.requests import Requests
    from kfm.model.requests import UpdateRequest
    from kfm.runs.kernel import RunReport


_PREFIX = re.compile(r"(/[A-Za-z0-9._~-]+)*", re.ASCII)


@click.command(name="serve")
@click.option("--host", metavar="ADDRESS", help="Listen here; else `serve.host`, else 127.0.0.1.")
@click.option(
    "--port", type=click.IntRange(0, 65535), metavar="PORT", help="0: any that is free; else `serve.port`."
)
@click.option("--prefix", default="", metavar="/PATH", help="Serve below this path, behind a proxy.")
@click.option("--no-schedules", is_flag=True, help="Leave the schedules to others.")
@click.option("--no-runs", is_flag=True, help="Accept requests, and leave running them to others.")
@click.option("--no-worker", is_flag=True, help="Leave the queues of announcements to others.")
@session_options
def command(
    session: CommandSession,
    host: str | None,
    port: int | None,
    prefix: str,
    no_schedules: bool,
    no_runs: bool,
    no_worker: bool,
) -> int:
    """Start updates for every reason there is, until stopped.

    One process keeps the schedules of cron.yml, takes signed webhooks, works off the queues of
    announcements, makes the retries that are due, and serves the API, the console, the catalogue and
    metrics. Start as many as you like against one ledger: no instant fires twice, no request is run twice.

    \b
    /                      the console: what runs, is due, blocked, failed
    /hooks/SOURCE          webhooks (POST), see `kfm webhook send --help`
    /api/v1/openapi.json   the API
    /stac                  the catalogue, as a STAC API
    /metrics               for Prometheus
    /livez, /readyz        is it alive, and can it work?

    It listens on this machine only. Other addresses need people with tokens in the configuration (`people`),
    and a proxy in front that speaks TLS. SIGTERM, and Ctrl-C, let it end what it has begun.

    Exit codes: 0 stopped by SIGTERM · 2 not configured for this · 4 the ledger or port can't be had ·
    130 stopped by Ctrl-C.
    """
    if not _PREFIX.fullmatch(prefix):
        raise UsageError(
            f"`{prefix[:80]}` is no path.", remedy="Write it as /kfm, without a slash at the end."
        )
    wish = ServiceOptions(schedules=not no_schedules, runs=not no_runs, worker=not no_worker)
    return serve(session, wish, host=host, port=port, prefix=prefix)


CONNECTIONS_MAX = 1024
IDLE_SECONDS_MAX = 30
CLOSING_SECONDS_MAX = 10
# The writer of requests needs the interpreter again and again while it commits: with the usual 5 ms it would
# wait for the web each time, and whoever waits for his answer with it.
SWITCH_SECONDS = 0.0005


def serve(
    session: CommandSession, wish: ServiceOptions, *, host: str | None, port: int | None, prefix: str
) -> int:
    """Until somebody stops it."""
    try:
        import uvicorn

        from kfm.web.server import Bounded, address_of, listener, shown_host
    except ImportError:
        raise ExtraMissing(
            "The service needs the extra `serve`.", remedy="pip install 'kfm-kernel[serve]'"
        ) from None
    from kfm.config.schedules import load_schedules
    from kfm.config.webhooks import webhook_warnings
    from kfm.decoders import prepare_decoders
    from kfm.web.api.operation_table import request_bodies
    from kfm.web.console.sign_in import SignedIn

    sys.setswitchinterval(SWITCH_SECONDS)
    loaded = session.load()
    settings = loaded.settings.serve
    address = address_of(host or settings.host)
    schedules = load_schedules(loaded)
    _require_people(loaded, address)
    _first_look(session)
    session.inform()
    service = Service(loaded, schedules, wish, partial(open_app, loaded))
    stop = Stop()
    with listener(address, settings.port if port is None else port) as listening, stop.installed():
        shown = f"{shown_host(address)}:{listening.getsockname()[1]}{prefix}"
        prepare_decoders((*request_bodies(), SignedIn))
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
        session.note(f"serving http://{shown}/; stop with Ctrl-C")
        for line in _told(loaded, schedules, wish):
            session.note(line)
        for line in webhook_warnings(loaded.settings):
            session.note(line, "warning")
        _run(uvicorn.Server(config), listening, stop)
        service.stop()
        left = service.join()
    if left:
        left_text = f"not waited for longer: {', '.join(left)}; whoever comes next takes over what is held"
        session.note(left_text, "warning")
    session.note("stopped")
    return Cancelled.exit_code if stop.by == signal.SIGINT else 0


def _run(server: Any, listening: socket.socket, stop: Stop) -> None:
    """Until somebody wants it to stop. Our handlers are installed, and stay until all threads have ended."""
    server.capture_signals = nullcontext
    stop.tell(lambda: setattr(server, "should_exit", True))
    if not stop.event.is_set():
        server.run([listening])


def _require_people(loaded: Loaded, address: str) -> None:
    from kfm.web.server import is_private

    if is_private(address) or any(person.token_hashes for person in loaded.people()):
        return
    raise UsageError(
        f"Other machines could reach {address}, and nobody has a token to be known by.",
        remedy="Listen on 127.0.0.1, or give people tokens under `people`; see docs/how-to/give-roles.md.",
    )


def _first_look(session: CommandSession) -> None:
    """A role that is missing, or a ledger that can't be used, is told now and not to the first who asks."""
    with session.app() as app:
        app.kernel.store.requests().next_due_ms()


def _told(loaded: Loaded, schedules: Sequence[Schedule], wish: ServiceOptions) -> list[str]:
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
    return lines


class Web:
    """The web of one service."""

    def __init__(
        self, session: CommandSession, loaded: Loaded, schedules: Sequence[Schedule], service: Service
    ) -> None:
        self._loaded = loaded
        self._place = WebContext(loaded, schedules, service.wake)
        self._scraping = threading.Lock()
        self._scrape = Scrape(session)
        self._intake = AcceptQueue(self._requests, committed=service.wake)

    def app(self, hosts: Sequence[str], prefix: str) -> Any:
        from kfm.web.app import service_app
        from kfm.web.server import LOOPBACK

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
        from kfm.config.webhooks import webhook_secrets
        from kfm.web.webhooks import Failures, Webhooks, hook_routes

        loaded = self._loaded
        sources = {source.id: source for source in loaded.settings.sources if source.webhook is not None}
        secrets = {name: webhook_secrets(source, loaded.secret) for name, source in sources.items()}
        hooks = Webhooks(
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

        from kfm.web.previews import preview_document

        def previewed() -> RunReport:
            with open_app(self._loaded, read_only=True, what="kfm serve") as app:
                return app.preview(wish_of(request))

        report = await run_in_threadpool(previewed)
        dataset = self._loaded.settings.dataset(request.dataset_id)
        return preview_document(report, dataset)

    def _api(self) -> list[Any]:
        from kfm.web.api.routes import api_routes

        return list(api_routes(self._place))

    def _console(self) -> list[Any]:
        from kfm.web.console.pages import console_routes

        return list(console_routes(self._place, hide=self._loaded.discretion))

    def _ready(self) -> None:
        with self._place.reader() as ledger:
            ledger.request_reader().next_due_ms()

    def _metrics(self) -> tuple[str, str]:
        from kfm.telemetry.exposition import CONTENT_TYPE, exposition

        with self._scraping:  # a reading goes on where the last one ended
            return exposition(self._scrape.tallies()), CONTENT_TYPE

    def _stac(self) -> Any:
        from kfm.nodd.dataset_registry import load_registry
        from kfm.web.stac import stac_app

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
