"""Connections that say nothing, too much, or never come to an end, are not kept for ever."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import uvicorn

from kfm.web.server import HEAD_BYTES_MAX, Bounded

SECONDS_MAX = 20.0
HEAD = b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\n"


class Hurried(Bounded):
    """As in a service, in less time."""

    arrival_seconds_max = 0.3
    look_seconds = 0.05


async def slow(_scope: Any, receive: Any, send: Any) -> None:
    """Reads all, thinks for longer than anybody may take to ask, and answers."""
    while (await receive()).get("more_body", False):
        pass
    await asyncio.sleep(0.6)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    config = uvicorn.Config(
        slow, http=Hurried, ws="none", lifespan="off", log_level="critical", timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
        thread.start()
        yield listening.getsockname()[1]
        server.should_exit = True
        thread.join(SECONDS_MAX)


def told(connection: socket.socket) -> bytes:
    """Everything until the other side closes."""
    found = b""
    try:
        while part := connection.recv(65_536):
            found += part
    except ConnectionResetError:
        pass
    return found


@pytest.mark.parametrize(
    "said",
    [b"", b"POST", HEAD, HEAD + b"Content-Length: 9\r\n\r\nab"],
    ids=["nothing", "a word", "half a head", "half a body"],
)
def test_who_does_not_come_to_an_end_is_let_go(port: int, said: bytes) -> None:
    """A connection is for a caller who asks: some that never do can't keep all others out."""
    with socket.create_connection(("127.0.0.1", port), SECONDS_MAX) as connection:
        connection.sendall(said)
        assert told(connection) == b""


def test_a_head_without_an_end_fills_no_memory(port: int) -> None:
    """A head that grows and grows is refused, and what comes of it is not kept."""
    line = b"X-Filling: " + b"a" * 60_000 + b"\r\n"
    with socket.create_connection(("127.0.0.1", port), SECONDS_MAX) as connection:
        sent = 0
        with pytest.raises(OSError, match=r".*"):  # closed by the other side long before
            connection.sendall(HEAD)
            while sent < 1000 * HEAD_BYTES_MAX:
                connection.sendall(line)
                sent += len(line)
        assert sent < 1000 * HEAD_BYTES_MAX


def test_who_waits_for_us_is_not_let_go(port: int) -> None:
    """How long an answer takes is not the caller's fault; the next request on the connection is fine, too."""
    with socket.create_connection(("127.0.0.1", port), SECONDS_MAX) as connection:
        for ending in (b"", b"Connection: close\r\n"):
            connection.sendall(HEAD + ending + b"Content-Length: 2\r\n\r\nab")
            if not ending:
                assert connection.recv(65_536).startswith(b"HTTP/1.1 200")
        assert told(connection).startswith((b"HTTP/1.1 200", b"ok"))
