"""The server behind `kfm catalogue serve`: this machine only, nothing that writes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from kfm.cli.session import Session
from kfm.core.errors import ExtraMissing, UsageError
from kfm.ingest.grammar import Dataset
from kfm.ingest_ports import CatalogueReader
from kfm.serving.listening import address_of, is_private, listener, shown_host

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

        from kfm.serving.hosts import LOOPBACK
        from kfm.serving.stac import stac_app
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
    shown = shown_host(host)
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
    with listener(host, port) as listening:
        session.note(f"serving http://{shown}:{listening.getsockname()[1]}/; stop with Ctrl-C")
        sys.stderr.flush()
        with suppress(KeyboardInterrupt):
            uvicorn.Server(config).run([listening])
    session.note("stopped")


def _loopback(text: str) -> str:
    host = address_of(text)
    if not is_private(host):
        raise UsageError(
            f"Other machines could read the catalogue on {host}, and nobody would ask who they are.",
            remedy="Listen on 127.0.0.1. For others, `kfm catalogue export` writes files for any web server.",
        )
    return host
