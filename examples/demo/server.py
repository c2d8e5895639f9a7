"""An upstream that behaves as badly as real ones do: busy, slow, cutting connections half-way.

The demo runs it inside itself. By hand, with what the provider has at the demo's end:

    .venv/bin/python examples/demo/server.py
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import socket
import sys
import threading
import time
from collections.abc import Iterator
from datetime import date
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal, NamedTuple
from urllib.parse import parse_qs, urlsplit

import kansas

PORT = 8765  # the one in kfm.yml; another is taken where it is in use
HANG_SECONDS_MAX = 30
PATIENCE_SECONDS = 0.05
_RANGE = re.compile(r"bytes=(\d+)-\Z", re.ASCII)


class Resource(NamedTuple):
    body: bytes
    media_type: str
    modified: int | None  # seconds since the epoch; None: no validators, as many APIs have it

    @property
    def etag(self) -> str:
        return f'"{hashlib.sha256(self.body).hexdigest()[:16]}"'


class Fault(NamedTuple):
    """One misbehaviour, used up by one request."""

    kind: Literal["busy", "slow", "cut", "hang"]
    seconds: float = 0  # busy: what Retry-After asks for; slow: before the first byte
    after: int = 0  # cut, hang: so many bytes of the body are sent


class Heard(NamedTuple):
    """One request, and what became of it."""

    method: str
    target: str
    status: int
    note: str
    odd: bool = False  # something went wrong, or was mended


class Provider:
    """What the upstream has on offer. Tests and the demo change it while the server runs."""

    def __init__(self) -> None:
        self.silent_from: dict[str, int] = {}  # site → hour at which its telemetry fell silent
        self.broken_on: dict[date, str] = {}  # day → site whose logger writes nonsense
        self.faults: dict[str, list[Fault]] = {}  # path → what its next requests meet
        self.heard: list[Heard] = []
        self.hanging = threading.Event()  # a body is half sent and goes no further
        self.closing = threading.Event()

    def misbehave(self, path: str, *faults: Fault) -> None:
        self.faults.setdefault(path, []).extend(faults)

    def fault(self, path: str, method: str) -> Fault | None:
        waiting = self.faults.get(path, [])
        if waiting and (method == "GET" or waiting[0].kind == "busy"):
            return waiting.pop(0)
        return None

    def resource(self, path: str, query: dict[str, list[str]]) -> Resource | None:
        if path == "/streamflow.csv":
            return self._streamflow(date.fromisoformat(query["date"][0]))
        if path == "/rainfall.asc":
            day = date.fromisoformat(query["date"][0])
            return Resource(kansas.rainfall(day), "text/plain", _after(day, 6))
        if path == "/counties.geojson":
            return Resource(kansas.counties(), "application/geo+json", _after(date(2026, 1, 2), 9))
        if path == "/api/gauges":
            page = kansas.gauges_page(int(query.get("page", ["1"])[0]))
            return Resource(json.dumps(page).encode(), "application/json", None)
        return None

    def _streamflow(self, day: date) -> Resource:
        first_day = day == date(2026, 3, 14)
        silent = self.silent_from if first_day else {}
        body = kansas.streamflow(day, silent_from=silent, broken=self.broken_on.get(day))
        return Resource(body, "text/csv", _after(day, 6 if silent else 14))


def _after(day: date, hours: int) -> int:
    """So many hours into the next day, UTC: published records carry it, so it is no real clock."""
    return (day.toordinal() - date(1970, 1, 1).toordinal() + 1) * 86_400 + hours * 3600


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    provider: Provider

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        fault = self.provider.fault(parts.path, self.command)
        if fault and fault.kind == "busy":
            self._busy(fault)
            return
        try:
            resource = self.provider.resource(parts.path, parse_qs(parts.query))
        except (KeyError, ValueError):
            resource = None
        if resource is None:
            self._begin(404, {}, 0, "")
            return
        if fault and fault.kind == "slow":
            time.sleep(fault.seconds)
        self._answer(resource, fault)

    do_HEAD = do_GET  # noqa: N815 - the names that http.server looks for

    def _busy(self, fault: Fault) -> None:
        seconds = f"{fault.seconds:g}"
        self._begin(503, {"Retry-After": seconds}, 0, f"busy, come back in {seconds} s", odd=True)

    def _answer(self, resource: Resource, fault: Fault | None) -> None:
        headers = {"Content-Type": resource.media_type}
        if resource.modified is not None:
            headers |= {"ETag": resource.etag, "Last-Modified": formatdate(resource.modified, usegmt=True)}
            headers["Accept-Ranges"] = "bytes"
            if self.headers.get("If-None-Match") == resource.etag:
                self._begin(304, headers, 0, "not modified")
                return
        begin, status = self._asked_from(resource), 200
        if begin:
            status = 206
            headers["Content-Range"] = f"bytes {begin}-{len(resource.body) - 1}/{len(resource.body)}"
        body = resource.body[begin:]
        odd = fault is not None or status == 206
        self._begin(status, headers, len(body), self._note(fault, begin, len(body)), odd=odd)
        if self.command == "HEAD":
            return
        if fault is None or fault.kind == "slow":
            self.wfile.write(body)
            return
        self.wfile.write(body[: fault.after])
        self.wfile.flush()
        if fault.kind == "hang":
            self._hang()
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def _asked_from(self, resource: Resource) -> int:
        wanted = _RANGE.fullmatch(self.headers.get("Range", ""))
        same = resource.modified is not None and self.headers.get("If-Range") in (None, resource.etag)
        return int(wanted[1]) if wanted and same and int(wanted[1]) < len(resource.body) else 0

    def _note(self, fault: Fault | None, begin: int, length: int) -> str:
        if self.command == "HEAD":
            return ""
        if fault and fault.kind == "cut":
            return f"connection cut after {fault.after:,} of {length:,} bytes"
        if fault and fault.kind == "hang":
            return f"fell silent after {fault.after:,} of {length:,} bytes"
        if fault:
            return f"first byte after {fault.seconds:g} s"
        return f"resumed at byte {begin:,}" if begin else f"{length:,} bytes"

    def _begin(
        self, status: int, headers: dict[str, str], length: int, note: str, *, odd: bool = False
    ) -> None:
        self.provider.heard.append(Heard(self.command, self.path, status, note, odd))
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if status != 304:
            self.send_header("Content-Length", str(length))
        self.end_headers()

    def _hang(self) -> None:
        self.provider.hanging.set()
        for _ in range(int(HANG_SECONDS_MAX / PATIENCE_SECONDS)):
            if self.provider.closing.wait(PATIENCE_SECONDS):
                return
            with contextlib.suppress(BlockingIOError):
                if not self.connection.recv(1, socket.MSG_DONTWAIT):
                    return  # the client is gone

    def log_message(self, format: str, *args: object) -> None:
        """Quiet: `heard` has it."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients that are killed leave broken connections behind; that is what this is for."""


@contextlib.contextmanager
def serving(provider: Provider, port: int = PORT) -> Iterator[str]:
    """The server's address. It listens on this machine only and ends with the block."""
    handler = type("Handler", (_Handler,), {"provider": provider})
    try:
        server = _Server(("127.0.0.1", port), handler)
    except OSError:  # in use
        server = _Server(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        provider.closing.set()
        server.shutdown()
        server.server_close()
        thread.join()


def main() -> None:
    provider = Provider()
    port = int(sys.argv[1]) if len(sys.argv) > 1 else PORT
    with serving(provider, port) as address:
        print(f"serving invented data at {address} (Ctrl-C stops it)", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            told = 0
            while True:
                time.sleep(0.2)
                for heard in provider.heard[told:]:
                    print(f"{heard.method:4} {heard.target:36} {heard.status}  {heard.note}", flush=True)
                    told += 1


if __name__ == "__main__":
    main()
