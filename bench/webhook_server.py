"""The server that the webhook benchmarks ask, in its own process: `python -m bench.webhook_server WAY DIR`.

WAY says what stands behind the same routes: `group` (as `kfm serve` has it), `inline` (one commit for each
request, else the same) or `nodb` (nothing is kept). Prints its port, and ends with its standard input.
"""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from starlette.applications import Starlette

from kfm.cli.serve import SWITCH_SECONDS
from kfm.db.connection import open_store
from kfm.db.requests import Requests
from kfm.model.requests import UpdateRequest
from kfm.model.settings import SourceSettings, Webhook
from kfm.system import SystemClock
from kfm.web.accept_queue import Accepted, AcceptQueue
from kfm.web.webhooks import Failures, Webhooks, hook_routes

SECRET = "whsec_c2VjcmV0LW9mLXRoZS1iZW5jaG1hcmtzLW9mLXdlYmhvb2tz"
SOURCE = SourceSettings(
    id="gauges", dataset="rivers", kind="files", folder=".", webhook=Webhook(secrets=("env:SECRET",))
)


async def _at_once(request: UpdateRequest) -> Accepted:
    return Accepted(request, None)


async def _no_preview(_request: UpdateRequest) -> dict[str, Any]:
    raise NotImplementedError


def main(way: str, folder: str) -> None:
    sys.setswitchinterval(SWITCH_SECONDS)
    clock = SystemClock()

    @contextmanager
    def opened() -> Iterator[Requests]:
        store = open_store(None, folder, clock)
        try:
            yield store.requests()
        finally:
            store.close()

    intake = AcceptQueue(opened, batch_max=1) if way == "inline" else AcceptQueue(opened)
    if way != "nodb":
        intake.start()
    sources = {SOURCE.id: (SOURCE, (SECRET,))}
    hooks = Webhooks(
        lambda: sources,
        now_ms=clock.now_ms,
        accept=_at_once if way == "nodb" else intake.accept,
        preview=_no_preview,
        failures=Failures(folder, clock.now_ms),
        decoy="a decoy that is of no source",
        body_max=262_144,
    )
    config = uvicorn.Config(
        Starlette(routes=hook_routes(hooks)),
        loop="uvloop",
        http="httptools",
        log_level="critical",
        lifespan="off",
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=1,
    )
    server = uvicorn.Server(config)
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def until_end() -> None:
        sys.stdin.read()
        server.should_exit = True

    threading.Thread(target=until_end, daemon=True).start()
    print(listener.getsockname()[1], flush=True)
    server.run([listener])
    if way != "nodb":
        intake.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
