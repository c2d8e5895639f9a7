"""A cable that delays, loses or holds back frames: `python -m tests.hosts.cable HOST_PORT SWITCH_PORT …`.

What netem does where a kernel has it, in one direction as in both, and for one peer alone if asked. Frames
are passed on whole, with what the kernel has yet to do for them (checksums, segments), and never overtake.
"""

from __future__ import annotations

import argparse
import contextlib
import heapq
import random
import selectors
import socket
import time

from tests.hosts.network import Weather

SOL_PACKET = 263
PACKET_VNET_HDR = 15
PACKET_IGNORE_OUTGOING = 23
ETH_P_ALL = 3
FRAME_BYTES_MAX = 100_000
HEADER = 10  # of virtio-net, before each frame
BUFFER_BYTES = 8_000_000


def port(name: str) -> socket.socket:
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    opened.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
    opened.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
    opened.bind((name, 0))
    opened.setblocking(False)
    return opened


class Cable:
    def __init__(self, weather: Weather, rng: random.Random) -> None:
        self._weather = weather
        self._rng = rng
        self._peer = socket.inet_aton(weather.peer) if weather.peer else None
        self._last = {"in": 0.0, "out": 0.0}

    def due(self, way: str, frame: bytes, now: float) -> float | None:
        """When a frame that goes in or out of the host arrives; None: never."""
        weather = self._weather
        if self._peer is not None and not self._concerns(frame[HEADER:]):
            return now
        if weather.closed in (way, "both") or self._rng.random() < weather.loss:
            return None
        late_ms = weather.delay_ms + self._rng.uniform(-1, 1) * weather.jitter_ms
        self._last[way] = max(self._last[way], now + max(0.0, late_ms) / 1000)
        return self._last[way]

    def _concerns(self, frame: bytes) -> bool:
        if frame[12:14] == b"\x08\x00":  # IPv4: from, to
            return self._peer in (frame[26:30], frame[30:34])
        return frame[12:14] == b"\x08\x06" and self._peer in (frame[28:32], frame[38:42])  # who has it?


def carry(host: socket.socket, switch: socket.socket, cable: Cable) -> None:
    ways = {host: ("out", switch), switch: ("in", host)}
    selector = selectors.DefaultSelector()
    for one in ways:
        selector.register(one, selectors.EVENT_READ)
    waiting: list[tuple[float, int, socket.socket, bytes]] = []
    number = 0
    while True:
        wait = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        for key, _ in selector.select(wait):
            source = key.fileobj
            assert isinstance(source, socket.socket)
            way, target = ways[source]
            frame = source.recv(FRAME_BYTES_MAX)
            due = cable.due(way, frame, time.monotonic())
            if due is not None:
                number += 1
                heapq.heappush(waiting, (due, number, target, frame))
        while waiting and waiting[0][0] <= time.monotonic():
            _, _, target, frame = heapq.heappop(waiting)
            with contextlib.suppress(OSError):  # a full or unplugged port drops, as a switch does
                target.send(frame)


def main() -> None:
    parser = argparse.ArgumentParser(prog="cable", description=__doc__)
    parser.add_argument("host_port")
    parser.add_argument("switch_port")
    parser.add_argument("--delay-ms", type=int, default=0)
    parser.add_argument("--jitter-ms", type=int, default=0)
    parser.add_argument("--loss", type=float, default=0.0)
    parser.add_argument("--closed", choices=("", "in", "out", "both"), default="")
    parser.add_argument("--peer", default="")
    parser.add_argument("--seed", type=int, default=0)
    asked = vars(parser.parse_args())
    ends, seed = (asked.pop("host_port"), asked.pop("switch_port")), asked.pop("seed")
    carry(port(ends[0]), port(ends[1]), Cable(Weather(**asked), random.Random(seed)))


if __name__ == "__main__":
    main()
