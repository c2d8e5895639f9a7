"""The server behind `kfm catalogue serve`: this machine only, nothing that writes."""

from __future__ import annotations

import ipaddress
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from kfm.cli.session import Session
from kfm.core.errors import BackendUnavailable, ExtraMissing, UsageError
from kfm.ingest.grammar import Dataset
from kfm.ingest_ports import CatalogueReader

CONNECTIONS_MAX = 64
IDLE_SECONDS_MAX = 15
CLOSING_SECONDS_MAX = 5


def serve(
    session: Session,
    host: str,
    port: int,
    datasets: Mapping[str, Dataset],
    reader_of: Callable[[Any], CatalogueReader],
) -> None:
    """Until somebody stops it: Ctrl-C or SIGTERM."""
    host = _loopback(host)
    try:
        import uvicorn

        from kfm.serving.stac import LOOPBACK, stac_app
    except ImportError:
        raise ExtraMissing(
            "The catalogue is served with the extra `serve`.", remedy="pip install 'kfm[serve]'"
        ) from None
    from kfm.wiring import open_app

    loaded = session.load()

    @contextmanager
    def opened() -> Iterator[CatalogueReader]:
        # Opened anew each time: a ledger may be made, moved or restarted while we serve.
        with open_app(loaded, read_only=True, what="kfm catalogue serve") as app:
            yield reader_of(app)

    with opened() as reader:  # a store that can't be read is told now, not to the first client
        reader.collections()
    shown = f"[{host}]" if ":" in host else host
    config = uvicorn.Config(
        stac_app(opened, datasets, hosts=(*LOOPBACK, shown)),
        log_level="critical",
        lifespan="off",
        server_header=False,
        proxy_headers=False,
        limit_concurrency=CONNECTIONS_MAX,
        timeout_keep_alive=IDLE_SECONDS_MAX,
        timeout_graceful_shutdown=CLOSING_SECONDS_MAX,
    )
    with _listener(host, port) as listener:
        session.note(f"serving http://{shown}:{listener.getsockname()[1]}/; stop with Ctrl-C")
        sys.stderr.flush()
        with suppress(KeyboardInterrupt):
            uvicorn.Server(config).run([listener])
    session.note("stopped")


def _loopback(text: str) -> str:
    host = "127.0.0.1" if text == "localhost" else text.removeprefix("[").removesuffix("]")
    try:
        private = ipaddress.ip_address(host).is_loopback
    except ValueError:
        raise UsageError(
            f"`{text[:80]}` is no address to listen on.", remedy="Write an address such as 127.0.0.1."
        ) from None
    if not private:
        raise UsageError(
            f"Other machines could read the catalogue on {host}, and nobody would ask who they are.",
            remedy="Listen on 127.0.0.1. For others, `kfm catalogue export` writes files for any web server.",
        )
    return host


def _listener(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family)
        # Handed down to each connection: otherwise a short answer waits 40 ms for its own acknowledgement.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listener
    except OSError as error:
        raise BackendUnavailable(
            f"Port {port} of {host} can't be listened on: {(error.strerror or str(error)).lower()}.",
            remedy="Name another one with --port, or 0 for any that is free.",
        ) from None
