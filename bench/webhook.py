"""Signed webhooks that are durable when they are answered, beside the same server without a ledger, and with
one commit for each. Real servers in processes of their own; SQLite with WAL and FULL on a real disk."""

from __future__ import annotations

import itertools
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from bench.admission import _folder as scratch
from bench.harness import Benchmark

CONNECTIONS = 128
REQUESTS = 6_000  # made beforehand for a round
SECONDS = 1.5  # of a round, at most


@dataclass
class Servers:
    ports: dict[str, int]
    rounds: Any = field(default_factory=itertools.count)

    def load(self, way: str) -> Any:
        from bench.webhook_load import send, signed

        requests = signed(f"{way}-{next(self.rounds)}", REQUESTS)
        load = send(self.ports[way], requests, connections=CONNECTIONS, seconds_max=SECONDS)
        assert not load.others, load.others[:1]
        return load

    def per_second(self, way: str) -> float:
        return float(self.load(way).per_second)

    def p99(self, way: str) -> float:
        return float(self.load(way).p99)


def _servers(stack: ExitStack, *ways: str) -> Servers:
    return Servers({way: _server(stack, way) for way in ways})


def _server(stack: ExitStack, way: str) -> int:
    command = [sys.executable, "-m", "bench.webhook_server", way, scratch(stack)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def end() -> None:
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    stack.callback(end)
    assert process.stdout is not None
    return int(process.stdout.readline())


def benchmarks() -> list[Benchmark]:
    return [
        Benchmark(
            name="webhook_vs_nodb",
            kind="throughput",
            goal=0.45,
            unit="requests/s",
            setup=lambda stack: _servers(stack, "group", "nodb"),
            ours=lambda servers: servers.per_second("group"),
            reference=lambda servers: servers.per_second("nodb"),
            rounds=9,
        ),
        Benchmark(
            name="webhook_vs_inline",
            kind="throughput",
            goal=3.0,
            unit="requests/s",
            setup=lambda stack: _servers(stack, "group", "inline"),
            ours=lambda servers: servers.per_second("group"),
            reference=lambda servers: servers.per_second("inline"),
            rounds=9,
        ),
        Benchmark(
            name="webhook_p99_vs_inline",
            kind="cost",
            goal=0.4,
            setup=lambda stack: _servers(stack, "group", "inline"),
            ours=lambda servers: servers.p99("group"),
            reference=lambda servers: servers.p99("inline"),
            rounds=9,
        ),
    ]
