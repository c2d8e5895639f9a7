"""An upstream on 127.0.0.1 that is slow enough to be interrupted, and remembers who asked for what."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

CHUNK_BYTES = 16 * 1024
LAST_MODIFIED = "Thu, 01 Jan 2026 12:00:00 GMT"


class Upstream:
    """Bodies by path; every request's method and path, in order of arrival."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.bodies: dict[str, bytes] = {}
        self.status = 200  # any other: what everybody is told instead
        self.chunk_delay_seconds = 0.0
        self.asked: list[tuple[str, str]] = []
        self.headers: list[dict[str, str]] = []
        self.hold = threading.Event()  # cleared: bodies stop after their first chunk
        self.hold.set()
        self.began = threading.Event()  # the first chunk of some body has gone out


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    upstream: Upstream

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that was killed hangs up: that is what these tests do."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, format: str, *args: Any) -> None: ...

    def _answer(self) -> None:
        upstream = self.server.upstream
        upstream.asked.append((self.command, self.path))
        upstream.headers.append({name.lower(): value for name, value in self.headers.items()})
        if upstream.status != 200:
            self._head(upstream.status, 0)
            return
        body = upstream.bodies.get(self.path.partition("?")[0])
        if body is None or self.command not in ("GET", "HEAD"):
            self._head(404 if body is None else 405, 0)
            return
        etag = f'"{hashlib.sha256(body).hexdigest()[:16]}"'
        start = self._range_start(etag)
        extra = {"ETag": etag, "Last-Modified": LAST_MODIFIED, "Content-Type": "text/csv"}
        if start:
            extra["Content-Range"] = f"bytes {start}-{len(body) - 1}/{len(body)}"
        self._head(206 if start else 200, len(body) - start, extra)
        if self.command == "GET":
            self._send_slowly(upstream, body[start:])

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = do_PATCH = _answer  # noqa: N815 - http.server's names

    def _range_start(self, etag: str) -> int:
        wanted = self.headers.get("Range", "")
        if not wanted.startswith("bytes=") or self.headers.get("If-Range", etag) != etag:
            return 0
        return int(wanted.removeprefix("bytes=").partition("-")[0])

    def _head(self, status: int, length: int, extra: dict[str, str] | None = None) -> None:
        self.send_response_only(status)
        for name, value in {"Content-Length": str(length), **(extra or {})}.items():
            self.send_header(name, value)
        self.end_headers()

    def _send_slowly(self, upstream: Upstream, body: bytes) -> None:
        for at in range(0, len(body), CHUNK_BYTES):
            self.wfile.write(body[at : at + CHUNK_BYTES])
            upstream.began.set()
            upstream.hold.wait(60)
            if upstream.chunk_delay_seconds:
                time.sleep(upstream.chunk_delay_seconds)


@contextmanager
def serving() -> Iterator[Upstream]:
    with _Server(("127.0.0.1", 0), _Handler) as server:
        server.upstream = Upstream(server.server_address[1])
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield server.upstream
        finally:
            server.upstream.hold.set()
            server.shutdown()
            thread.join()
