"""`kfm metrics`: metrics of the ledger for Prometheus, printed or served."""

from __future__ import annotations

import hmac
import socket
import sys
from collections.abc import Collection
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import click

from kfm.cli.errors import as_error, error_lines
from kfm.cli.options import log_option, session_options
from kfm.cli.output import message, table
from kfm.cli.session import CommandSession
from kfm.config.loader import token
from kfm.model.errors import UsageError
from kfm.model.roles import KnownPerson, decide, identify
from kfm.telemetry.exposition import CONTENT_TYPE, documents, exposition
from kfm.web.listener import LOOPBACK, address_of, bearer_token, is_named, is_private, listener, shown_host
from kfm.web.metrics import Scrape

LISTEN = "127.0.0.1:9464"
CLIENT_SECONDS_MAX = 5


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
def command(ctx: click.Context, session: CommandSession, listen: str | None) -> None:
    """Print every metric of the ledger in Prometheus' text format.

    The counts come from the ledger, so they go on where the last process stopped. Datasets that must not be
    named in public are masked. With --listen a server answers GET /metrics, each time with what is new; on
    addresses that other machines reach only with a token in KFM_TOKEN, which scrapers send as a bearer token.
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
    secret = token()
    require_private(host, secret)
    scrape = Scrape(partial(session.app, read_only=True))
    scrape.tallies()  # a wrong configuration is an error now, not for the first scraper
    loaded = session.load()
    # With a token any name will do: a page of another origin does not have it.
    hosts = None if secret is not None else (*LOOPBACK, shown_host(host), *loaded.settings.serve.hosts)
    with listener(host, port, remedy="Name another address with --listen HOST:PORT.") as listening:
        server = _Server(listening, scrape, secret, loaded.people(), hosts)
        address = f"{shown_host(host)}:{listening.getsockname()[1]}"
        session.note(f"serving http://{address}/metrics; stop with Ctrl-C")
        sys.stderr.flush()
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            session.note("stopped")


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


def require_private(host: str, secret: str | None) -> None:
    if secret is None and not is_private(host):
        raise UsageError(
            f"Other machines could read the metrics on {host}, and no token is set.",
            remedy="Listen on 127.0.0.1, or set KFM_TOKEN and give it to the scraper as a bearer token.",
        )


class _Server(HTTPServer):
    def __init__(
        self,
        listening: socket.socket,
        scrape: Scrape,
        secret: str | None,
        people: tuple[KnownPerson, ...],
        hosts: Collection[str] | None,
    ) -> None:
        self.scrape = scrape
        self.secret = secret
        self.people = people
        self.hosts = hosts
        super().__init__(listening.getsockname()[:2], _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listening

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up or dawdles is not our trouble."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version = "kfm"
    sys_version = ""
    timeout = CLIENT_SECONDS_MAX  # a client that says nothing must not keep the others waiting

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        hosts = self.server.hosts
        if hosts is not None and not is_named(self.headers.get_all("host", []), hosts):
            self._answer(HTTPStatus.MISDIRECTED_REQUEST, "the Host header is not one of `serve.hosts`\n")
        elif path == "/livez":
            self._answer(HTTPStatus.OK, "ok\n")
        elif path != "/metrics":
            self._answer(HTTPStatus.NOT_FOUND, "see /metrics\n")
        elif not self._allowed():
            self._answer(
                HTTPStatus.UNAUTHORIZED, "a bearer token is needed\n", ("WWW-Authenticate", "Bearer")
            )
        else:
            self._scraped()

    def do_HEAD(self) -> None:
        self.do_GET()

    def _scraped(self) -> None:
        try:
            text = self.server.scrape.text()
        except Exception as problem:  # noqa: BLE001 - the next scrape may find it mended
            error = as_error(problem)
            message(error_lines(error)[0], "error")
            sys.stderr.flush()
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, f"error {error.code}\n")
        else:
            self._answer(HTTPStatus.OK, text, kind=CONTENT_TYPE)

    def _allowed(self) -> bool:
        if self.server.secret is None:
            return True
        said = bearer_token(self.headers.get_all("authorization", []))
        if said is None:
            return False
        if self.server.people:
            return decide(identify(self.server.people, "", said), "read", remote=True).allowed
        return hmac.compare_digest(
            said.encode("utf-8", "replace"), self.server.secret.encode("utf-8", "replace")
        )

    def _answer(
        self,
        status: HTTPStatus,
        text: str,
        *headers: tuple[str, str],
        kind: str = "text/plain; charset=utf-8",
    ) -> None:
        body = text.encode()
        self.send_response(status)
        for name, value in (
            ("Content-Type", kind),
            ("Content-Length", str(len(body))),
            ("Cache-Control", "no-store"),
            ("X-Content-Type-Options", "nosniff"),
            *headers,
        ):
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Scrapes are not worth a line each."""
