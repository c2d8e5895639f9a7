"""The HTTP server: Host allow-list (DNS rebinding), limits on connections, one configuration."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Literal

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from kfm.web.listener import is_named
from kfm.web.problems import problem

HEAD_BYTES_MAX = 65_536  # of a head, beyond what came with its first bytes
ARRIVAL_SECONDS_MAX = 45.0  # of a request, from its first byte, or the connection, to its last byte
LOOK_SECONDS = 5.0
_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class Bounded(HttpToolsProtocol):
    """uvicorn's protocol with limits on the size of a head and on the time in which a request arrives."""

    arrival_seconds_max = ARRIVAL_SECONDS_MAX
    look_seconds = LOOK_SECONDS

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._head_bytes = 0
        self._in_head = False
        self._arriving_since: float | None = self.loop.time()
        self._next_look = self.loop.call_later(self.look_seconds, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        self._next_look.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        was_in_head = self._in_head
        super().data_received(data)
        if was_in_head and self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES_MAX and not self.transport.is_closing():
                self.transport.write(_TOO_LARGE)
                self.transport.close()

    def on_message_begin(self) -> None:
        self._in_head = True
        self._head_bytes = 0
        self._arriving_since = self.loop.time()
        super().on_message_begin()

    def on_headers_complete(self) -> Any:
        self._in_head = False
        return super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._arriving_since = None
        super().on_message_complete()

    def _look(self) -> None:
        """Closes the connection of a slow client. While reading is paused, the client is not at fault."""
        since = self._arriving_since
        late = since is not None and self.loop.time() - since > self.arrival_seconds_max
        if late and not self.flow.read_paused:
            self.transport.close()
            return
        self._next_look = self.loop.call_later(self.look_seconds, self._look)


class Named:
    """Middleware that checks the Host header against an allow-list (DNS rebinding)."""

    def __init__(self, app: ASGIApp, hosts: Sequence[str]) -> None:
        self._app = app
        self._hosts = frozenset(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not self._is_allowed(scope):
            await problem(421, "The Host header is not one of `serve.hosts`.")(scope, receive, send)
            return
        if scope["type"] == "http" and _is_behind_tls(scope):
            scope = {**scope, "scheme": "https"}  # for links and cookies outside the proxy
        await self._app(scope, receive, send)

    def _is_allowed(self, scope: Scope) -> bool:
        values = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        return is_named(values, self._hosts)


def _is_behind_tls(scope: Scope) -> bool:
    """By a proxy's header. A client that forges it only breaks its own links and cookies."""
    return [value for name, value in scope["headers"] if name == b"x-forwarded-proto"] == [b"https"]


def server_config(
    app: Any, *, lifespan: Literal["on", "off"], connections_max: int, idle_seconds: int, closing_seconds: int
) -> uvicorn.Config:
    """Every server of ours: bounded requests, no websockets, no trust in headers of a proxy."""
    return uvicorn.Config(
        app,
        log_level="critical",
        http=Bounded,
        ws="none",
        lifespan=lifespan,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=connections_max,
        timeout_keep_alive=idle_seconds,
        timeout_graceful_shutdown=closing_seconds,
    )
