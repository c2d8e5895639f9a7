"""Connections that say nothing, too much, or never come to an end, are not kept for ever."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
import uvicorn

from kfm.web.listener import connections_within
from kfm.web.server import HEAD_BYTES_MAX, Bounded, peer_of, server_config

SECONDS_MAX = 20.0
HEAD = b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\n"


class Hurried(Bounded):
    """As in a service, in less time."""

    head_seconds_max = 0.2
    arrival_seconds_max = 0.3
    look_seconds = 0.05


class Patient(Bounded):
    """One that would wait for as long as a test takes."""

    head_seconds_max = arrival_seconds_max = 1000.0


class Impatient(Bounded):
    """One that waits for bodies, and not for heads."""

    head_seconds_max = 0.1
    arrival_seconds_max = 1000.0
    look_seconds = 0.02


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


# --- floods ------------------------------------------------------------------------------

CONNECTIONS_MAX = 32  # half of them for one peer
ASKED = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


async def ok(_scope: Any, receive: Any, send: Any) -> None:
    while (await receive()).get("more_body", False):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@contextmanager
def bounded_server(app: Any, protocol: type[Bounded]) -> Iterator[tuple[int, uvicorn.Server]]:
    config = server_config(
        app,
        lifespan="off",
        connections_max=CONNECTIONS_MAX,
        idle_seconds=1000,
        closing_seconds=1,
        protocol=protocol,
    )
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0), backlog=256) as listening:
        thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
        thread.start()
        yield listening.getsockname()[1], server
        server.should_exit = True
        thread.join(SECONDS_MAX)


def connected(port: int, host: str = "127.0.0.1") -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), SECONDS_MAX, source_address=(host, 0))


def answered(connection: socket.socket, said: bytes = ASKED) -> bytes:
    connection.sendall(said)
    return connection.recv(65_536)


@pytest.mark.req("UPD-12")
@pytest.mark.parametrize("said", [b"", b"GET", HEAD + b"Content-Length: 9\r\n\r\nab"])
def test_idle_connections_keep_no_one_out(said: bytes) -> None:
    """However many a peer opens and leaves, it holds its share; a request is answered all the same."""
    with bounded_server(ok, Patient) as (port, server), ExitStack() as stack:
        for number in range(100):
            idle = stack.enter_context(connected(port))
            idle.sendall(said)
            if number % 25 == 24:
                with connected(port) as asking:
                    assert answered(asking).startswith(b"HTTP/1.1 200")
                assert len(server.server_state.connections) <= CONNECTIONS_MAX // 2
        with connected(port, "127.0.0.3") as another:
            assert answered(another).startswith(b"HTTP/1.1 200")


def test_peers_together_are_bounded() -> None:
    """Many peers with few connections each do not take more than there are for all."""
    with bounded_server(ok, Patient) as (port, server), ExitStack() as stack:
        for number in range(60):
            stack.enter_context(connected(port, f"127.0.1.{number + 1}"))
        with connected(port) as asking:
            assert answered(asking).startswith(b"HTTP/1.1 200")
            assert len(server.server_state.connections) <= CONNECTIONS_MAX


def test_a_request_that_is_worked_on_is_not_given_up() -> None:
    """Of a peer that has its share, the silent connections are closed, not the one that waits for us."""
    begun, go_on = threading.Event(), threading.Event()

    async def working(scope: Any, receive: Any, send: Any) -> None:
        begun.set()
        await asyncio.get_running_loop().run_in_executor(None, go_on.wait, SECONDS_MAX)
        await ok(scope, receive, send)

    with bounded_server(working, Patient) as (port, _server), connected(port) as asking, ExitStack() as stack:
        asking.sendall(ASKED)
        assert begun.wait(SECONDS_MAX)
        silent = [stack.enter_context(connected(port)) for _ in range(CONNECTIONS_MAX)]
        assert told(silent[0]) == b""
        go_on.set()
        assert asking.recv(65_536).startswith(b"HTTP/1.1 200")


def test_a_head_has_seconds_and_a_body_has_more() -> None:
    """What has sent no whole head is closed early; a body that is on its way is waited for."""
    with bounded_server(slow, Impatient) as (port, _server), ExitStack() as stack:
        silent, half, slowly = (stack.enter_context(connected(port)) for _ in range(3))
        slowly.sendall(HEAD + b"Content-Length: 2\r\n\r\na")
        half.sendall(HEAD)
        assert told(silent) == told(half) == b""  # which takes as long as a head may take
        assert answered(slowly, b"b").startswith(b"HTTP/1.1 200")


def test_a_reserve_of_descriptors_is_kept() -> None:
    """Connections have half of what this process may open, and never more than their own bound."""
    assert connections_within(1024, 1024) == 512
    assert connections_within(65_536, 1024) == 1024
    assert connections_within(1, 1024) == 1


def test_peers_are_told_apart() -> None:
    """By address; in IPv6 by the network that one subscriber has."""
    assert peer_of("10.0.0.1") != peer_of("10.0.0.2")
    assert peer_of("::ffff:10.0.0.1") == peer_of("10.0.0.1")
    assert peer_of("2001:db9::1") == peer_of("2001:db9::2:3")
    assert peer_of("2001:db9::1") != peer_of("2001:db9:0:1::1")
