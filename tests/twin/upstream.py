"""A small HTTP upstream whose answers depend on the path alone."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

CSV = b"id,v\n1,2\n"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, *, body: bool) -> None:
        parts = urlsplit(self.path)
        port = self.server.server_address[1]
        status, headers, data = _content(
            parts.path, parse_qs(parts.query), self.headers.get("Authorization"), port
        )
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if body:
            self.wfile.write(data)

    def log_message(self, *_: object) -> None: ...


def _content(
    path: str, query: dict[str, list[str]], authorization: str | None, port: int
) -> tuple[int, dict[str, str], bytes]:
    plain = {"Content-Type": "text/csv; charset=utf-8"}
    if path == "/etag.csv":
        return 200, {**plain, "ETag": '"e1"', "Last-Modified": "Mon, 02 Mar 2026 10:00:00 GMT"}, CSV
    if path == "/plain":
        return 200, plain, CSV
    if path == "/zipped.csv":
        return 200, {**plain, "Content-Encoding": "gzip"}, gzip.compress(CSV, mtime=0)
    if path == "/moved":
        return 302, {"Location": "/etag.csv"}, b""
    if path == "/inward":
        return 302, {"Location": "http://127.0.0.2:9/latest/meta-data"}, b""
    if path == "/named":
        return 302, {"Location": f"http://localhost:{port}/plain?X-Amz-Signature=0123456789abcdef"}, b""
    if path == "/secret.csv":
        return (
            (200, {**plain, "ETag": '"s"'}, CSV) if authorization == "Bearer abcdefghijkl" else (401, {}, b"")
        )
    if path == "/pages":
        page = int(query.get("page", ["1"])[0])
        return 200, {"Content-Type": "application/json"}, b"[]" if page > 2 else b'[{"n": %d}]' % page
    if path == "/linked":
        second = "cursor" in query
        link = {} if second else {"Link": '</linked?cursor=2>; rel="next"'}
        return 200, {"Content-Type": "application/json", **link}, b'{"page": %d}' % (2 if second else 1)
    if path == "/busy":
        return 503, {"Retry-After": "3"}, b""
    if path == "/gone":
        return 204, {}, b""
    return 404, {}, b""


@contextmanager
def upstream() -> Iterator[str]:
    """Its address, for as long as it is needed."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
