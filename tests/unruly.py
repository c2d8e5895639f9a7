"""An HTTP server on 127.0.0.1 that misbehaves as told. Answers are scripted per path."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit


@dataclass
class Answer:
    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    cut_after: int | None = None  # bytes of the body after which the connection is dropped
    length: int | None = None  # a false Content-Length
    no_length: bool = False
    hang: threading.Event | None = None  # waits for it before answering


@dataclass
class Asked:
    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]


Script = Callable[[Asked], Answer]


class Unruly:
    def __init__(self) -> None:
        self.scripts: dict[str, Script] = {}
        self.asked: list[Asked] = []
        self.otherwise = Answer(404)
        self.url = ""

    def on(self, path: str, script: Script | Answer | list[Answer]) -> str:
        """Answer a path by a function, always alike, or one after the other (the last for ever)."""
        if isinstance(script, Answer):
            only = script
            self.scripts[path] = lambda asked: only
        elif isinstance(script, list):
            queue = list(script)
            self.scripts[path] = lambda asked: queue.pop(0) if len(queue) > 1 else queue[0]
        else:
            self.scripts[path] = script
        return self.url + path

    def file(self, path: str, body: bytes, etag: str | None = '"v1"', cuts: tuple[int, ...] = ()) -> str:
        """A well-behaved file with ranges; its first GETs are cut after so many bytes."""
        left = list(cuts)

        def script(asked: Asked) -> Answer:
            headers = {"ETag": etag} if etag else {}
            begin, status = 0, 200
            wanted = asked.headers.get("range", "")
            if asked.method == "GET" and wanted and asked.headers.get("if-range", etag) == etag:
                begin, status = int(wanted.removeprefix("bytes=").rstrip("-")), 206
                if begin >= len(body):
                    return Answer(416, headers={"Content-Range": f"bytes */{len(body)}"})
                headers["Content-Range"] = f"bytes {begin}-{len(body) - 1}/{len(body)}"
            cut = left.pop(0) if left and asked.method == "GET" else None
            return Answer(status, body[begin:], headers, cut_after=cut)

        return self.on(path, script)

    def gets(self, path: str) -> list[Asked]:
        return [asked for asked in self.asked if asked.path == path and asked.method == "GET"]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    unruly: Unruly

    def _handle(self) -> None:
        parts = urlsplit(self.path)
        headers = {name.lower(): value for name, value in self.headers.items()}
        asked = Asked(self.command, parts.path, parse_qs(parts.query, keep_blank_values=True), headers)
        self.unruly.asked.append(asked)
        script = self.unruly.scripts.get(parts.path)
        answer = script(asked) if script else self.unruly.otherwise
        if answer.hang:
            answer.hang.wait(10)
        if "Date" in answer.headers:
            self.send_response_only(answer.status)
        else:
            self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        if answer.no_length:
            self.send_header("Connection", "close")
            self.close_connection = True
        else:
            self.send_header(
                "Content-Length", str(len(answer.body) if answer.length is None else answer.length)
            )
        self.end_headers()
        if self.command == "HEAD":
            return
        body = answer.body if answer.cut_after is None else answer.body[: answer.cut_after]
        self.wfile.write(body)
        if answer.cut_after is not None or answer.length is not None:
            self.wfile.flush()
            self.close_connection = True
            with contextlib.suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)

    do_GET = do_HEAD = do_POST = do_PUT = _handle  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients hang up on it all the time."""


@contextlib.contextmanager
def unruly_server(host: str = "127.0.0.1") -> Iterator[Unruly]:
    unruly = Unruly()
    server = _Server((host, 0), type("Handler", (_Handler,), {"unruly": unruly}))
    unruly.url = f"http://{host}:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield unruly
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
