"""Starting other processes, and ending them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
SECONDS_MAX = 60


class Player:
    """One process with a role in a test."""

    def __init__(self, role: str, *arguments: str) -> None:
        command = [sys.executable, "-m", "tests.integration.db.players", role, *arguments]
        self.process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def line(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        text = self.process.stdout.readline()
        assert text, "the process ended without a word"
        return json.loads(text)  # type: ignore[no-any-return]

    def ready(self) -> Player:
        assert self.line() == {"ready": True}
        return self

    def lines(self) -> list[dict[str, Any]]:
        """Everything it says until it ends."""
        assert self.process.stdout is not None
        return [json.loads(line) for line in self.process.stdout]

    def finish(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(SECONDS_MAX)

    def close(self) -> None:
        self.kill()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None and not pipe.closed:
                pipe.close()


@pytest.fixture
def play() -> Iterator[Callable[..., Player]]:
    """Start a process; it is gone after the test."""
    players: list[Player] = []

    def start(role: str, *arguments: object) -> Player:
        players.append(Player(role, *map(str, arguments)))
        return players[-1]

    yield start
    for player in players:
        player.close()
