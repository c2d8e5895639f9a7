"""The server of commands that only let others read: `kfm metrics --listen`, `kfm catalogue serve`."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from kfm.cli.session import CommandSession
from kfm.model.errors import ExtraMissing

CONNECTIONS_MAX = 64
IDLE_SECONDS_MAX = 15
CLOSING_SECONDS_MAX = 5


def serve_readers(
    session: CommandSession, listening: socket.socket, path: str, make: Callable[[], Any]
) -> None:
    """Until Ctrl-C or SIGTERM. `make` makes the application, which needs the extra `serve`."""
    try:
        import uvicorn

        from kfm.web.server import server_config

        app = make()
    except ImportError:
        raise ExtraMissing(
            "Serving needs the extra `serve`.", remedy="pip install 'kfm-kernel[serve]'"
        ) from None
    from kfm.decoders import prepare_decoders
    from kfm.web.listener import shown_host

    prepare_decoders()
    config = server_config(
        app,
        lifespan="off",
        connections_max=CONNECTIONS_MAX,
        idle_seconds=IDLE_SECONDS_MAX,
        closing_seconds=CLOSING_SECONDS_MAX,
    )
    host, port = listening.getsockname()[:2]
    session.note(f"serving http://{shown_host(host)}:{port}{path}; stop with Ctrl-C")
    sys.stderr.flush()
    with suppress(KeyboardInterrupt):
        uvicorn.Server(config).run([listening])
    session.note("stopped")
