"""`kfm metrics`: metrics of the ledger for Prometheus, printed or served."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import click

from kfm.cli.options import CommandGroup, log_option, session_options
from kfm.cli.output import table
from kfm.cli.reading_server import serve_readers
from kfm.cli.session import CommandSession
from kfm.config.loader import token
from kfm.model.errors import UsageError
from kfm.model.roles import KnownPerson
from kfm.telemetry.exposition import documents, exposition
from kfm.web.listener import LOOPBACK, address_of, is_private, listener, shown_host
from kfm.web.metrics import Scrape

LISTEN = "127.0.0.1:9464"


@click.group(name="metrics", cls=CommandGroup, invoke_without_command=True)
@click.option(
    "--listen",
    metavar="[HOST:PORT]",
    is_flag=False,
    flag_value=LISTEN,
    help=f"Serve GET /metrics until stopped; {LISTEN} unless said otherwise.",
)
@session_options
@click.pass_context
def command(ctx: click.Context, session: CommandSession, listen: str | None) -> None:
    """Print every metric of the ledger in Prometheus' text format.

    The counts come from the ledger, so they go on where the last process stopped. Datasets that must not be
    named in public are masked. With --listen a server answers GET /metrics, each time with what is new. Where
    people are declared, scrapers send the token of one who may read; otherwise, on addresses that other
    machines reach, the one in KFM_TOKEN. The server needs the extra `serve`.
    """
    if ctx.invoked_subcommand is not None:
        return

    if listen is not None:
        serve(session, listen)
        return
    tallies = Scrape(partial(session.app, read_only=True)).tallies()
    if session.output == "text":
        session.emit(None, exposition(tallies).splitlines())
        return
    rows = documents(tallies)
    session.emit({"metrics": rows}, (), rows=rows)


@command.command()
@session_options
def catalogue(session: CommandSession) -> None:
    """List every metric there is: its name, kind, labels and meaning."""
    from kfm.telemetry.metric_catalogue import metrics

    rows: list[dict[str, Any]] = [
        {
            "name": metric.name,
            "exposed": metric.exposed,
            "kind": metric.kind,
            "unit": metric.unit,
            "labels": list(metric.labels),
            "from": list(metric.origins),
            "help": metric.help,
        }
        for metric in metrics().values()
    ]
    header = ("NAME", "KIND", "UNIT", "LABELS", "FROM", "MEANING")
    lines = table(
        header,
        [
            (
                row["exposed"],
                row["kind"],
                row["unit"],
                ",".join(row["labels"]),
                ",".join(row["from"]),
                row["help"],
            )
            for row in rows
        ],
    )
    session.emit({"metrics": rows}, lines, rows=rows)


@command.command()
@log_option
def dashboard() -> None:
    """Print the Grafana dashboard, ready to be imported."""
    click.echo(_shipped("dashboard.json"), nl=False)


@command.command()
@log_option
def rules() -> None:
    """Print the alert rules for Prometheus."""
    click.echo(_shipped("alerts.yml"), nl=False)


def _shipped(name: str) -> str:
    from importlib.resources import files

    return files("kfm").joinpath("contracts", "monitoring", name).read_text(encoding="utf-8")


# --- server ------------------------------------------------------------------------


def serve(session: CommandSession, listen: str) -> None:
    """Until Ctrl-C or SIGTERM."""
    host, port = parse_address(listen)
    secret, loaded = token(), session.load()
    people = loaded.people()
    require_private(host, secret, people)
    scrape = Scrape(partial(session.app, read_only=True))
    scrape.tallies()  # a wrong configuration is an error now, not for the first scraper
    hosts: Sequence[str] | None = (*LOOPBACK, shown_host(host), *loaded.settings.serve.hosts)
    if secret is not None or people:
        hosts = None  # any name will do: a page of another origin has no token

    def app() -> Any:
        from kfm.web.readers import metrics_app

        return metrics_app(scrape, lambda: people, secret, hosts)

    with listener(host, port, remedy="Name another address with --listen HOST:PORT.") as listening:
        serve_readers(session, listening, "/metrics", app)


def parse_address(text: str) -> tuple[str, int]:
    """`127.0.0.1:9464`, `[::1]:9464`, `localhost:9464` or only a port."""
    host, _, port = text.rpartition(":")
    try:
        address = address_of(host or "127.0.0.1")
    except UsageError:
        address = ""
    if not address or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise UsageError(
            f"`{text[:80]}` is no address to listen on.", remedy="Write HOST:PORT, such as 127.0.0.1:9464."
        )
    return address, int(port)


def require_private(host: str, secret: str | None, people: Sequence[KnownPerson]) -> None:
    """Other machines may read with a token: a person's, or without people the one in KFM_TOKEN."""
    has_token = any(person.token_hashes for person in people) if people else secret is not None
    if not has_token and not is_private(host):
        raise UsageError(
            f"Other machines could read the metrics on {host}, and no token is set.",
            remedy="Listen on 127.0.0.1, or set KFM_TOKEN and give it to the scraper as a bearer token.",
        )
