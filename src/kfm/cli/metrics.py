"""`kfm metrics`: what the ledger tells, for Prometheus; and the files to watch it with."""

from __future__ import annotations

from typing import Any

import click

from kfm.cli.options import log_option, session_options
from kfm.cli.output import table
from kfm.cli.session import Session

LISTEN = "127.0.0.1:9464"


@click.group(name="metrics", invoke_without_command=True)
@click.option(
    "--listen",
    metavar="[HOST:PORT]",
    is_flag=False,
    flag_value=LISTEN,
    help=f"Serve GET /metrics until stopped; {LISTEN} unless said otherwise.",
)
@session_options
@click.pass_context
def command(ctx: click.Context, session: Session, listen: str | None) -> None:
    """Print every metric of the ledger in Prometheus' text format.

    The counts come from the ledger, so they go on where the last process stopped. Datasets that must not be
    named in public are masked. With --listen a server answers GET /metrics, each time with what is new; on
    addresses that other machines reach only with a token in KFM_TOKEN, which scrapers send as a bearer token.
    """
    if ctx.invoked_subcommand is not None:
        return
    from kfm.cli.scraping import Scrape, serve

    if listen is not None:
        serve(session, listen)
        return
    from kfm.telemetry.exposition import documents, exposition

    tallies = Scrape(session).tallies()
    if session.output == "text":
        session.emit(None, exposition(tallies).splitlines())
        return
    rows = documents(tallies)
    session.emit({"metrics": rows}, (), rows=rows)


@command.command()
@session_options
def catalogue(session: Session) -> None:
    """List every metric there is: its name, kind, labels and meaning."""
    from kfm.telemetry.catalogue import metrics

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
