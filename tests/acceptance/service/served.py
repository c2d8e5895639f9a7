"""A real `kfm serve` for a test: its own process, a free port, stopped in any case."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from kfm.model.times import rfc3339
from kfm.model.webhook_signatures import sign_kfm
from kfm.system import SystemClock

SECRET = "a secret of the river, long enough"
SECONDS_MAX = 40.0
_ADDRESS = re.compile(r"serving (http://\S+?)/;")


class Served:
    """One process, and what it said."""

    def __init__(self, process: subprocess.Popen[bytes], said: Path) -> None:
        self.process = process
        self._said = said
        self.url = ""

    @property
    def said(self) -> str:
        return self._said.read_text(errors="replace")

    def wait_until_up(self) -> None:
        ends = time.monotonic() + SECONDS_MAX
        while not (found := _ADDRESS.search(self.said)):
            assert self.process.poll() is None, self.said
            assert time.monotonic() < ends, self.said
            time.sleep(0.02)
        self.url = found[1]

    def get(self, path: str, **more: Any) -> httpx.Response:
        return httpx.get(self.url + path, timeout=20, **more)

    def hook(self, body: bytes, source: str = "river", secret: str = SECRET) -> httpx.Response:
        headers = {
            "Content-Type": "application/json",
            "X-KFM-Signature": sign_kfm(secret.encode(), body),
        }
        return httpx.post(f"{self.url}/hooks/{source}", content=body, headers=headers, timeout=20)

    def settled(self, request_id: str, headers: dict[str, str] | None = None) -> dict[str, Any]:
        """The request, once it has its end."""
        ends = time.monotonic() + SECONDS_MAX
        while True:
            answered = self.get(f"/api/v1/requests/{request_id}", headers=headers)
            assert answered.status_code == 200, answered.text
            request = answered.json()["request"]
            if request["state"] in ("done", "cancelled"):
                return dict(request)
            assert time.monotonic() < ends, self.said
            time.sleep(0.05)

    def stop(self, number: int = signal.SIGTERM) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(SECONDS_MAX)


@contextmanager
def serving(
    folder: Path,
    *arguments: str,
    environment: Sequence[tuple[str, str]] = (),
    descriptors: tuple[int, int] | None = None,
) -> Iterator[Served]:
    """`descriptors` are the soft and the hard limit of open files that it is started with."""
    bound = f"ulimit -Sn {descriptors[0]} && ulimit -Hn {descriptors[1]} && " if descriptors else ""
    said = folder / f"serve-{time.monotonic_ns()}.log"
    with said.open("wb") as errors:
        process = subprocess.Popen(
            [
                "sh",
                "-c",
                f'{bound}exec "$0" "$@"',
                sys.executable,
                "-m",
                "kfm",
                "serve",
                "--port",
                "0",
                *arguments,
            ],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            env={**os.environ, "RIVER_SECRET": SECRET, **dict(environment)},
        )
    served = Served(process, said)
    try:
        served.wait_until_up()
        yield served
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(SECONDS_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def body(uuid: str, **more: Any) -> bytes:
    import msgspec

    return msgspec.json.encode(
        {
            "source_id": "river",
            "trigger": "webhook",
            "event_type": "source.updated",
            "sent_at": rfc3339(SystemClock().now_ms()),
            "request_uuid": uuid,
            **more,
        }
    )
