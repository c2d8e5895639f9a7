"""The HTTP server: listening address, Host allow-list (DNS rebinding), limits on connections."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Sequence
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from kfm.model.errors import BackendUnavailable, UsageError
from kfm.web.problems import problem

HEAD_BYTES_MAX = 65_536  # of a head, beyond what came with its first bytes
ARRIVAL_SECONDS_MAX = 45.0  # of a request, from its first byte, or the connection, to its last byte
LOOK_SECONDS = 5.0
_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


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
        if len(values) != 1:
            return False
        host, colon, port = values[0].rpartition(":")
        if not colon or port.endswith("]"):
            host = values[0]
        elif not port.isascii() or not port.isdigit():
            return False
        return host.lower() in self._hosts


def _is_behind_tls(scope: Scope) -> bool:
    """By a proxy's header. A client that forges it only breaks its own links and cookies."""
    return [value for name, value in scope["headers"] if name == b"x-forwarded-proto"] == [b"https"]


def address_of(text: str) -> str:
    """The IP address of a host name or address; UsageError for anything else."""
    host = "127.0.0.1" if text == "localhost" else text.removeprefix("[").removesuffix("]")
    try:
        ipaddress.ip_address(host)
    except ValueError:
        raise UsageError(
            f"`{text[:80]}` is no address to listen on.", remedy="Write an address such as 127.0.0.1."
        ) from None
    return host


def is_private(host: str) -> bool:
    """Can only this machine reach it?"""
    return ipaddress.ip_address(host).is_loopback


def shown_host(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def listener(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        made = socket.create_server((host, port), family=family, backlog=1024)
        # Inherited by each connection: otherwise a short answer waits 40 ms for its own acknowledgement.
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return made
    except OSError as error:
        raise BackendUnavailable(
            f"Port {port} of {host} can't be listened on: {(error.strerror or str(error)).lower()}.",
            remedy="Name another one with --port, or 0 for any that is free.",
        ) from None
