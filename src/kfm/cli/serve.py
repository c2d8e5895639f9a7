"""`kfm serve`: scheduler, webhooks, workers, retries, API and console in one process."""

from __future__ import annotations

import re
import signal
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from kfm.app import open_app
from kfm.cli.options import session_options
from kfm.cli.process import keep_data_apart
from kfm.cli.session import CommandSession
from kfm.cli.signals import GracefulStop
from kfm.model.errors import Cancelled, ExtraMissing, UsageError
from kfm.model.quantities import counted
from kfm.service.runner import ServiceOptions, ServiceThreads
from kfm.system import SystemClock
from kfm.web.listener import (
    address_of,
    connections_within,
    is_private,
    listener,
    raise_descriptor_limit,
    shown_host,
)

if TYPE_CHECKING:
    from kfm.config.loader import Loaded
    from kfm.model.schedules import Schedule
    from kfm.model.settings import Serve

CONNECTIONS_MAX = 1024
IDLE_SECONDS_MAX = 30
CLOSING_SECONDS_MAX = 10
# The thread that writes requests needs the interpreter several times in a commit. With the usual 5 ms it
# would wait for the web each time, and every sender with it.
SWITCH_SECONDS = 0.0005
_PREFIX = re.compile(r"(/[A-Za-z0-9._~-]+)*", re.ASCII)


@click.command(name="serve")
@click.option("--host", metavar="ADDRESS", help="Listen here; else `serve.host`, else 127.0.0.1.")
@click.option(
    "--port", type=click.IntRange(0, 65535), metavar="PORT", help="0: any free port; else `serve.port`."
)
@click.option("--prefix", default="", metavar="/PATH", help="Serve below this path, behind a proxy.")
@click.option("--no-schedules", is_flag=True, help="Fire no schedules: another process does.")
@click.option("--no-runs", is_flag=True, help="Accept requests, but run none: another process does.")
@click.option("--no-worker", is_flag=True, help="Read no queues of announcements: another process does.")
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
    """Run the scheduler, webhooks, workers, API and console, until stopped.

    One process fires the schedules of cron.yml, accepts signed webhooks, works off the queues of
    announcements, runs requests and the retries that are due, and serves the API, the console, the catalogue
    and metrics. Several may share one ledger: no scheduled time fires twice, no request runs twice.

    \b
    /                      the console: what is running, due, blocked, failed
    /hooks/SOURCE          webhooks (POST), see `kfm webhook send --help`
    /api/v1/openapi.json   the API
    /stac                  the catalogue, as a STAC API
    /metrics               for Prometheus
    /livez, /readyz        health checks: the process is alive; the ledger can be used

    It listens on this machine only. Other addresses need people with tokens in the configuration (`people`),
    and a proxy in front that ends TLS. Health checks are answered under any host name, /metrics where tokens
    are asked for. After SIGTERM or Ctrl-C it completes the work that it has started; /readyz says 503 from
    then on.

    Exit codes: 0 stopped by SIGTERM · 2 not configured for this · 4 the ledger or the port can't be used ·
    130 stopped by Ctrl-C.
    """
    if not _PREFIX.fullmatch(prefix):
        raise UsageError(
            f"`{prefix[:80]}` is no path.", remedy="Write it as /kfm, without a slash at the end."
        )
    options = ServiceOptions(schedules=not no_schedules, runs=not no_runs, worker=not no_worker)
    return serve(session, options, host=host, port=port, prefix=prefix)


def serve(
    session: CommandSession, options: ServiceOptions, *, host: str | None, port: int | None, prefix: str
) -> int:
    """Run the service until a signal stops it."""
    try:
        import uvicorn

        from kfm.web.server import server_config
    except ImportError:
        raise ExtraMissing(
            "The service needs the extra `serve`.", remedy="pip install 'kfm-kernel[serve]'"
        ) from None
    from kfm.config.live import LiveConfig
    from kfm.config.section_checks import webhook_warnings
    from kfm.config.state_folder import StateFolder
    from kfm.decoders import prepare_decoders
    from kfm.web.api.operation_table import request_bodies
    from kfm.web.request_context import WebContext
    from kfm.web.web_app import WebApplication

    sys.setswitchinterval(SWITCH_SECONDS)
    keep_data_apart()
    descriptors = raise_descriptor_limit()
    connections_max = connections_within(descriptors, CONNECTIONS_MAX)
    loaded = session.load()
    settings = loaded.settings.serve
    address = address_of(host or settings.host)
    live = LiveConfig(loaded)
    live.check()
    _require_people(loaded, address)
    session.inform()
    _check_ledger(session)
    service = ServiceThreads(loaded, options, partial(open_app, loaded), live)
    stop = GracefulStop()
    with (
        StateFolder.of(loaded).kept_connections(),
        listener(address, settings.port if port is None else port) as listening,
        stop.installed(),
    ):
        shown = f"{shown_host(address)}:{listening.getsockname()[1]}{prefix}"
        prepare_decoders(request_bodies())
        web = WebApplication(WebContext(loaded, live, service.wake, stop.event.is_set))
        config = server_config(
            web.asgi((*settings.hosts, shown_host(address)), prefix),
            lifespan="on",
            connections_max=connections_max,
            idle_seconds=IDLE_SECONDS_MAX,
            closing_seconds=CLOSING_SECONDS_MAX,
        )
        service.start()
        session.note(f"serving http://{shown}/; stop with Ctrl-C")
        for line in _summary(loaded, live.schedules, options):
            session.note(line)
        for line in webhook_warnings(loaded.settings):
            session.note(line, "warning")
        if connections_max < CONNECTIONS_MAX:
            session.note(
                f"{descriptors} files may be open here: at most {connections_max} connections", "warning"
            )
        running = _run(uvicorn.Server(config), listening, stop, partial(_drain, service, settings, stop))
    if running:
        names = ", ".join(running)
        session.note(f"still running: {names}; another process takes over when their leases end", "warning")
    session.note("stopped")
    return Cancelled.exit_code if stop.by == signal.SIGINT else 0


def _run(
    server: Any, listening: socket.socket, stop: GracefulStop, drain: Callable[[], list[str]]
) -> list[str]:
    """Serve until a signal comes and all threads have ended, or are not waited for any more: the names of
    those. Our signal handlers stay installed until then."""
    running: list[str] = []

    def end() -> None:
        stop.event.wait()
        running.extend(drain())
        server.should_exit = True

    ending = threading.Thread(target=end, name="kfm-drain", daemon=True)
    ending.start()
    server.capture_signals = nullcontext
    if not stop.event.is_set():
        server.run([listening])
        stop.event.set()
    ending.join()
    return running


def _drain(service: ServiceThreads, settings: Serve, stop: GracefulStop) -> list[str]:
    """Begin nothing, and wait for what is under way. Meanwhile the web goes on answering, as not ready, so
    that a load balancer notices before connections are refused."""
    service.stop()
    clock = SystemClock()
    until_ms = clock.monotonic_ms() + (settings.drain_seconds * 1000 if stop.by == signal.SIGTERM else 0)
    running = service.join()
    clock.sleep_ms(max(0, round(until_ms - clock.monotonic_ms())))
    return running


def _require_people(loaded: Loaded, address: str) -> None:
    if is_private(address) or any(person.token_hashes for person in loaded.people()):
        return
    raise UsageError(
        f"Other machines could reach {address}, and no person has a token.",
        remedy="Listen on 127.0.0.1, or give people tokens under `people`; see docs/how-to/give-roles.md.",
    )


def _check_ledger(session: CommandSession) -> None:
    """A missing role or an unusable ledger fails the start, not the first request."""
    with session.app() as app:
        app.kernel.store.requests().next_due_ms()


def _summary(loaded: Loaded, schedules: Sequence[Schedule], options: ServiceOptions) -> list[str]:
    settings = loaded.settings
    hooked = [source for source in settings.sources if source.webhook is not None]
    enabled = sum(schedule.enabled for schedule in schedules)
    lines = [
        f"{counted(enabled if options.schedules else 0, 'schedule')}, {counted(len(hooked), 'webhook')}, "
        f"{counted(len(settings.ingest.queues) if options.worker else 0, 'queue')}, "
        f"{counted(settings.serve.runners if options.runs else 0, 'run')} at a time"
    ]
    if not settings.people:
        lines.append("no people are configured: this machine may read, changes over HTTP are refused")
    return lines
