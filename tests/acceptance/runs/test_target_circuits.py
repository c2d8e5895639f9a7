"""A publishing target in trouble: its provider's circuit, and a promotion that stands all the same."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.acceptance.runs.conftest import Inside
from tests.acceptance.runs.test_retries import change
from tests.crash.project import table

PUBLISH = """\
  - kind: s3
    url: s3://shelf
    options: {{endpoint: "http://127.0.0.1:{port}", region: us-east-1, access_key_id: env:SHELF_KEY, \
secret_access_key: env:SHELF_KEY}}
"""
BEGUN = b"<InitiateMultipartUploadResult><UploadId>1</UploadId></InitiateMultipartUploadResult>"
ENDED = b"<CompleteMultipartUploadResult><ETag>1</ETag></CompleteMultipartUploadResult>"


class Shelf:
    """The few requests of S3 that a projection makes, and a switch that makes all of them fail."""

    def __init__(self) -> None:
        self.down = False
        self.asked = 0
        self.objects: dict[str, bytes] = {}
        self.port = 0


def _etag(data: bytes) -> str:
    return f'"{hashlib.sha256(data).hexdigest()}"'


@pytest.fixture
def shelf() -> Iterator[Shelf]:
    told = Shelf()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: Any) -> None: ...

        def _answer(self) -> None:
            told.asked += 1
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            key, _, query = self.path.partition("?")
            if told.down:
                return self._say(503)
            if self.command == "POST":  # begins or ends an upload in parts; ours have one
                return self._say(200, BEGUN if query.startswith("uploads") else ENDED)
            if self.command == "PUT":
                there = told.objects.get(key)
                if "If-None-Match" in self.headers and there is not None:
                    return self._say(412)
                if "If-Match" in self.headers and self.headers["If-Match"] != _etag(there or b""):
                    return self._say(412)
                told.objects[key] = body
                return self._say(200, etag=body)
            if key not in told.objects:
                return self._say(404)
            return self._say(200, told.objects[key], etag=told.objects[key])

        do_GET = do_HEAD = do_PUT = do_POST = _answer  # noqa: N815 - http.server's names

        def _say(self, status: int, body: bytes = b"", etag: bytes = b"") -> None:
            self.send_response_only(status)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("ETag", _etag(etag))
            self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    told.port = server.server_port
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield told
    server.shutdown()
    server.server_close()


@pytest.fixture
def shown(project: Inside, shelf: Shelf) -> Inside:
    """A project that publishes into a bucket, too."""
    project.env["SHELF_KEY"] = "a key to the shelf"
    project.configure(more="")
    text = (project.folder / "kfm.yml").read_text()
    project.write("kfm.yml", text + PUBLISH.format(port=shelf.port))
    return project


def breaker(project: Inside) -> list[Any]:
    return project.rows("SELECT provider, state, failures FROM breakers")


@pytest.mark.req("RET-7", "TRG-4")
def test_an_open_circuit_puts_a_projection_off_and_the_promotion_stands(
    shown: Inside, shelf: Shelf, valid: Callable[[str, Any], None]
) -> None:
    """What is promoted stays promoted; the target's circuit is open, seen in status; it catches up later."""
    shelf.down = True
    first = shown.run()
    assert (first.code, first.result["word"]) == (4, "published"), "it was tried, and failed"
    failed = [each for each in first.result["projections"] if each["error"]]
    assert [(each["target"], each["error"]["code"]) for each in failed] == [("s3", "KFM406")]
    for _ in range(2):
        assert shown.kfm("project", "--json").code == 4
    assert breaker(shown) == [("s3://shelf", "open", 3)]
    asked = shelf.asked

    shown.write("incoming/a.csv", table("a", 5))
    again = shown.run()
    assert (again.code, again.result["word"]) == (0, "published"), "nothing was tried, nothing failed"
    assert "put off: s3 is shown later, with `kfm project`" in again.err
    (late,) = [each for each in again.result["projections"] if each["error"]]
    assert late["error"]["code"] == "KFM408"
    assert shelf.asked == asked, "nothing went out"
    assert shown.rows("SELECT status, attempts FROM runs") == [("success", 1)] * 2
    assert shown.rows("SELECT MAX(sequence) FROM promotions") == [(2,)]

    status = shown.kfm("status", "--json").document
    valid("cli-status", status)
    assert [each["provider"] for each in status["breakers"]] == ["s3://shelf"]
    assert [(each["target"], each["promoted"], each["shown"]) for each in status["pending_projections"]] == [
        ("s3", 2, None)
    ]
    assert "make it with `kfm project`" in shown.kfm("status").out

    shelf.down = False
    change(shown, "UPDATE breakers SET opened_at_ms = opened_at_ms - 300000")
    caught_up = shown.kfm("project", "--json")
    assert caught_up.code == 0, caught_up
    assert breaker(shown) == [("s3://shelf", "closed", 0)]
    assert "/shelf/levels/current.json" in shelf.objects
    assert shown.kfm("status", "--json").document["pending_projections"] == []


@pytest.mark.req("RET-7")
def test_a_target_may_name_its_provider(shown: Inside, shelf: Shelf) -> None:
    """Two targets of one provider are one circuit; a target that calls no provider has none."""
    path = shown.folder / "kfm.yml"
    path.write_text(path.read_text().replace("url: s3://shelf", "url: s3://shelf\n    provider: shelves"))
    shelf.down = True
    shown.run()
    assert breaker(shown) == [("shelves", "closed", 1)]
    path.write_text(path.read_text().replace("path: published", "path: published, provider: me"))
    refused = shown.kfm("config", "check")
    assert refused.code == 2
    assert "`provider` does not apply to a target of kind `local`" in refused.out + refused.err
