"""A client that costs little: raw sockets, requests made beforehand, one at a time on each connection."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import cast

from bench.webhook_server import SECRET, SOURCE
from kfm.model.times import rfc3339
from kfm.model.webhook_signatures import sign_kfm


@dataclass
class Load:
    """What came of it. Latencies are in seconds."""

    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)
    others: list[bytes] = field(default_factory=list)  # answers that were no 202

    @property
    def per_second(self) -> float:
        return len(self.latencies) / self.seconds

    @property
    def p99(self) -> float:
        ordered = sorted(self.latencies)
        return ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]


def signed(tag: str, count: int) -> list[bytes]:
    """Whole requests, each with an id of its own."""
    sent_at = rfc3339(int(time.time()) * 1000)
    made = []
    for number in range(count):
        body = json.dumps(
            {
                "source_id": SOURCE.id,
                "trigger": "webhook",
                "event_type": "upstream.changed",
                "sent_at": sent_at,
                "request_uuid": f"{tag}-{number}",
                "metadata": {"rationale": "the gauges have reported", "ticket": "OPS-1"},
            }
        ).encode()
        head = (
            f"POST /hooks/{SOURCE.id} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            f"X-KFM-Signature: {sign_kfm(SECRET.encode(), body)}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        made.append(head.encode() + body)
    return made


class _Connection(asyncio.Protocol):
    """Sends the next request when the answer to the last one is whole."""

    def __init__(self, requests: Iterator[bytes], load: Load, until_s: float) -> None:
        self._requests = requests
        self._load = load
        self._until_s = until_s
        self._began_s = 0.0
        self._got = b""
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def begin(self) -> None:
        request = next(self._requests, None)
        self._began_s = time.perf_counter()
        if request is None or self._began_s > self._until_s:
            self._end()
            return
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._got += data
        head, blank, body = self._got.partition(b"\r\n\r\n")
        if not blank:
            return
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        if len(body) < length:
            return
        if head.startswith(b"HTTP/1.1 202"):
            self._load.latencies.append(time.perf_counter() - self._began_s)
        else:
            self._load.others.append(self._got)
        self._got = b""
        self.begin()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()

    def _end(self) -> None:
        if not self.done.done():
            self.done.set_result(None)
        self._transport.close()


async def _sent(port: int, requests: list[bytes], connections: int, seconds_max: float) -> Load:
    load = Load()
    source, loop = iter(requests), asyncio.get_running_loop()
    until_s = time.perf_counter() + seconds_max
    made = [
        (await loop.create_connection(lambda: _Connection(source, load, until_s), "127.0.0.1", port))[1]
        for _ in range(connections)
    ]
    began_s = time.perf_counter()
    for each in made:
        each.begin()
    await asyncio.gather(*(each.done for each in made))
    load.seconds = time.perf_counter() - began_s
    return load


def send(port: int, requests: list[bytes], *, connections: int, seconds_max: float) -> Load:
    """Until all are sent, or the time is over."""
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_sent(port, requests, connections, seconds_max))
