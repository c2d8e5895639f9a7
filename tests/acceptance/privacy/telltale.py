"""An upstream, a bucket and two collectors in one, that repeat every secret, in every spelling."""

from __future__ import annotations

import base64
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import quote, urlsplit


def told(text: str) -> str:
    """A text and its spellings, as a talkative server would put them into an error."""
    data = text.encode()
    spelt = (
        text,
        base64.b64encode(data).decode(),
        base64.urlsafe_b64encode(b"x" + data + b"y").decode(),
        base64.b64encode(b"xy" + data).decode().rstrip("="),
        data.hex(),
        data.hex().upper(),
        quote(text, safe=""),
        json.dumps(text),
    )
    return " ".join(spelt)


class Handler(BaseHTTPRequestHandler):
    secrets: tuple[str, ...] = ()

    def do_GET(self) -> None:
        place = urlsplit(self.path).path
        repeated = "; ".join((self.path, *map(str, self.headers.values()), *map(told, self.secrets)))
        first = self.secrets[0]
        headers = {"Content-Type": "text/csv", "X-Echo": quote(repeated)[:4000]}
        status, body = 403, repeated.encode()
        if place == "/good.csv":
            status, body = 200, b"a,b\n1,2\n"
            headers["ETag"] = f'"{base64.urlsafe_b64encode(first.encode()).decode()}-{first.encode().hex()}"'
        elif place == "/leaky.csv":
            status, body = 200, b"a,b\n1," + base64.b64encode(b"ab" + first.encode() + b"c") + b"\n"
        elif place == "/moved.csv":
            status, headers["Location"] = (
                302,
                f"ftp://elsewhere/{quote(first, safe='')}?k={first.encode().hex()}",
            )
        elif place == "/paged.json":
            status = 200
            body = json.dumps(
                {"items": [], "next": f"http://other.example/?q={quote(first, safe='')}"}
            ).encode()
        self.answer(status, headers, body)

    def answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response(status, " ".join(self.secrets[:3]))
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.do_GET()

    do_HEAD = do_GET  # noqa: N815 - the library's name
    do_PUT = do_POST  # noqa: N815

    def log_message(self, *_: Any) -> None:
        """Says nothing here."""


def serve(secrets: tuple[str, ...]) -> tuple[str, ThreadingHTTPServer]:
    """Its address, and the server to be shut down."""
    handler = type("Telling", (Handler,), {"secrets": secrets})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}", server
