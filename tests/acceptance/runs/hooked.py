"""Hooks to test with: a server that keeps what it is sent, a program, a file; a run that can't succeed."""

from __future__ import annotations

import base64
import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import apsw

from tests.acceptance.runs.conftest import Inside

WRONG = 'def publish(context):\n    raise ValueError("riddles")\n'
FINE = """\
def publish(context):
    for one in context.inputs:
        context.publisher.write_file(one.path, one.fetched)
"""
PIPELINE = 'pipeline: "pipeline.py:publish", output_version: "1"'
SECRET = "whsec_" + base64.b64encode(b"a secret of twenty-four.").decode()
KEEPER = """\
#!/bin/sh
cat >> told.jsonl
echo >> told.jsonl
echo noise on stdout
"""
Check = Callable[[str, Any], None]


class Hooked:
    """A server that keeps what it was sent and answers as it is told."""

    def __init__(self) -> None:
        self.got: list[tuple[dict[str, str], bytes]] = []
        self.status = 204
        self.hang = threading.Event()
        self.hang.set()
        hooked = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                hooked.got.append(({name.lower(): value for name, value in self.headers.items()}, body))
                hooked.hang.wait(20)
                self.send_response(hooked.status)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_words: Any) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/hook"

    def bodies(self) -> list[dict[str, Any]]:
        return [json.loads(body) for _, body in self.got]


@contextmanager
def serving_hooks() -> Iterator[Hooked]:
    made = Hooked()
    thread = threading.Thread(target=made.server.serve_forever, daemon=True)
    thread.start()
    yield made
    made.hang.set()
    made.server.shutdown()
    made.server.server_close()


def hooks(*lines: str) -> str:
    return "incidents:\n" + "".join(f"  - {line}\n" for line in lines)


FILE = "{kind: file, path: out/incidents.jsonl}"
COMMAND = "{kind: command, command: [./keeper.sh]}"


def webhook(hooked: Hooked, more: str = "") -> str:
    return f'{{kind: webhook, url: "{hooked.url}", secret: env:HOOK_SECRET{more}}}'


def make_wrong(project: Inside) -> Inside:
    """A pipeline that can't succeed."""
    project.write("pipeline.py", WRONG)
    project.write("keeper.sh", KEEPER)
    os.chmod(project.folder / "keeper.sh", 0o700)
    project.env["HOOK_SECRET"] = SECRET
    project.configure(extra=PIPELINE, more=hooks(FILE))
    return project


def lines(project: Inside, name: str = "out/incidents.jsonl") -> list[dict[str, Any]]:
    path = project.folder / name
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def changes(told: list[dict[str, Any]]) -> list[str]:
    return [one["data"]["change"] for one in told]


def change(project: Inside, sql: str) -> None:
    connection = apsw.Connection(str(project.state / "kfm.db"))
    connection.set_busy_timeout(5000)
    connection.execute(sql)
    connection.close()


def corrected(project: Inside) -> None:
    project.write("pipeline.py", FINE)
    project.write("incoming/c.csv", (project.folder / "incoming/a.csv").read_text())
