"""The HTTP server: Host allow-list (DNS rebinding), limits on connections, one configuration."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from ipaddress import ip_network
from typing import Any, Literal

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from kfm.model.addresses import parse_address
from kfm.web.listener import is_named
from kfm.web.problems import problem

HEAD_BYTES_MAX = 65_536  # of a head, beyond what came with its first bytes
HEAD_SECONDS_MAX = 10.0  # of a head, from the connection or its first byte to its end
ARRIVAL_SECONDS_MAX = 45.0  # of a request, from its first byte to its last
LOOK_SECONDS = 1.0
HEALTH = frozenset(("/livez", "/readyz"))
BACKLOG_MAX = 256  # connections that are taken at once, before any of them is counted
_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class OpenConnections:
    """The connections of one server, bounded in all and for each peer.

    Files, the ledger and runs need descriptors, too. At a bound the connection that has kept us waiting for
    the longest is closed: peers that connect and say nothing throw out each other, and a request that comes
    at once is answered. A connection whose request is being worked on is never closed.
    """

    def __init__(self, connections_max: int, peer_max: int) -> None:
        self._connections_max = connections_max
        self._peer_max = peer_max
        self._by_peer: dict[str, set[Bounded]] = {}
        self._count = 0

    def add(self, one: Bounded) -> None:
        own = self._by_peer.setdefault(one.peer, set())
        own.add(one)
        self._count += 1
        if len(own) > self._peer_max:
            self._close_one(own, one)
        elif self._count > self._connections_max:
            self._close_one(set().union(*self._by_peer.values()), one)

    def discard(self, one: Bounded) -> None:
        own = self._by_peer.get(one.peer, set())
        if one in own:
            own.discard(one)
            self._count -= 1
        if not own:
            self._by_peer.pop(one.peer, None)

    def _close_one(self, among: set[Bounded], newest: Bounded) -> None:
        waiting = [one for one in among if one is not newest and one.waits_since is not None]
        closed = min(waiting, key=lambda one: one.waits_since or 0.0, default=newest)
        self.discard(closed)  # at once: its end is only told in the next round of the loop
        closed.transport.abort()


class Bounded(HttpToolsProtocol):
    """uvicorn's protocol with limits on connections, on the size of a head and on the time of an arrival.

    The figures are attributes of the class, so that tests have a hurried one.
    """

    head_seconds_max = HEAD_SECONDS_MAX
    arrival_seconds_max = ARRIVAL_SECONDS_MAX
    look_seconds = LOOK_SECONDS
    open_connections = OpenConnections(sys.maxsize, sys.maxsize)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.peer = peer_of(self.client[0] if self.client else "")
        self._head_bytes = 0
        self._in_head = False
        self._has_head = False
        self._arriving_since: float | None = self.loop.time()
        self._idle_since: float | None = None
        self._next_look = self.loop.call_later(self.look_seconds, self._look)
        self.open_connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._next_look.cancel()
        self.open_connections.discard(self)
        super().connection_lost(exc)

    @property
    def waits_since(self) -> float | None:
        """Since when we wait for the client; None while the client waits for us."""
        return self._arriving_since if self._arriving_since is not None else self._idle_since

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
        self._has_head = False
        self._head_bytes = 0
        self._arriving_since = self.loop.time()
        self._idle_since = None
        super().on_message_begin()

    def on_headers_complete(self) -> Any:
        self._in_head = False
        self._has_head = True
        return super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._arriving_since = None
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.timeout_keep_alive_task is not None:  # nothing else was asked meanwhile
            self._idle_since = self.loop.time()

    def _look(self) -> None:
        """Closes the connection of a slow client. While reading is paused, the client is not at fault."""
        since = self._arriving_since
        seconds_max = self.arrival_seconds_max if self._has_head else self.head_seconds_max
        late = since is not None and self.loop.time() - since > seconds_max
        if late and not self.flow.read_paused:
            self.transport.close()
            return
        self._next_look = self.loop.call_later(self.look_seconds, self._look)


def peer_of(address: str) -> str:
    """The peer that a connection counts for: of IPv6 the network that one subscriber has."""
    found = parse_address(address)
    if found is None or found.version == 4:
        return str(found)
    return str(ip_network((int(found) >> 64 << 64, 64)))


class Named:
    """Middleware that checks the Host header against an allow-list (DNS rebinding).

    What `is_open` says of a path is answered under any name: a health check names an address, which may be
    another each time. Such answers are of no use to a page of another origin.
    """

    def __init__(
        self, app: ASGIApp, hosts: Sequence[str], is_open: Callable[[str], bool] = HEALTH.__contains__
    ) -> None:
        self._app = app
        self._hosts = frozenset(hosts)
        self._is_open = is_open

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not self._is_open(scope["path"]) and not self._is_allowed(scope):
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
    app: Any,
    *,
    lifespan: Literal["on", "off"],
    connections_max: int,
    idle_seconds: int,
    closing_seconds: int,
    protocol: type[Bounded] = Bounded,
) -> uvicorn.Config:
    """Every server of ours: bounded connections and requests, no websockets, no trust in proxies' headers."""
    bounds = OpenConnections(connections_max, max(1, connections_max // 2))
    return uvicorn.Config(
        app,
        log_level="critical",
        http=type(protocol.__name__, (protocol,), {"open_connections": bounds}),
        backlog=min(BACKLOG_MAX, max(16, connections_max // 2)),
        ws="none",
        lifespan=lifespan,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=idle_seconds,
        timeout_graceful_shutdown=closing_seconds,
    )
