"""A proxy before an S3 server that keeps every request which passes: method, path and body."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import urlsplit


class Passed(NamedTuple):
    method: str
    path: str
    body: bytes


class RecordingS3:
    """The requests in the order of their arrival, and the address to send them to."""

    def __init__(self) -> None:
        self.passed: list[Passed] = []
        self.address = ""

    def tells(self, *words: str) -> list[Passed]:
        """Requests that name one of these words, in their path or in what they carry."""
        return [
            one for one in self.passed if any(word in one.path or word.encode() in one.body for word in words)
        ]


@contextmanager
def recording(endpoint: str, without: Collection[str] = ()) -> Iterator[RecordingS3]:
    """`without`: headers that do not reach the server, as if it did not know them."""
    record, there = RecordingS3(), urlsplit(endpoint)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: Any) -> None: ...

        def _pass(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            record.passed.append(Passed(self.command, self.path, body))
            known = {name: value for name, value in self.headers.items() if name.lower() not in without}
            to = http.client.HTTPConnection(there.hostname or "", there.port or 80, timeout=30)
            try:
                to.request(self.command, self.path, body, known)
                answer = to.getresponse()
                data = answer.read()
                self.send_response_only(answer.status)
                for name, value in answer.getheaders():
                    if name.lower() not in ("transfer-encoding", "content-length", "connection"):
                        self.send_header(name, value)
                size = answer.getheader("Content-Length") if self.command == "HEAD" else str(len(data))
                self.send_header("Content-Length", size or "0")
                self.end_headers()
                self.wfile.write(data)
            finally:
                to.close()

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _pass  # noqa: N815 - http.server's names

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    record.address = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield record
    finally:
        server.shutdown()
        server.server_close()
