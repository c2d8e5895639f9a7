"""`kfm serve`: one process that starts updates for every reason there is."""

from __future__ import annotations

import re

import click

from kfm.cli.options import session_options
from kfm.cli.session import Session
from kfm.core.errors import UsageError

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
    session: Session,
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
    from kfm.cli.service import serve
    from kfm.wiring.service import ServiceWish

    wish = ServiceWish(
        schedules=not no_schedules, runs=not no_runs, worker=not no_worker, verbose=session.verbose
    )
    return serve(session, wish, host=host, port=port, prefix=prefix)
