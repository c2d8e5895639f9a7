"""What `kfm doctor` says of the service before anybody starts it, and while one runs."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from kfm import app
from kfm.model.errors import BackendUnavailable

Kfm = Callable[..., Any]

CRON = 'version: 1\nschedules: [{id: often, source: daily, cron: "5 * * * *", time_zone: UTC}]\n'
TOKEN_HASH = "sha256:" + "5b" * 32


@pytest.fixture
def port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _service(
    kfm: Kfm, project: Path, settings: str, *, cron: bool = True
) -> tuple[int, list[tuple[str, str]]]:
    (project / "kfm.yml").write_text((project / "kfm.yml").read_text() + settings)
    if cron:
        (project / "cron.yml").write_text(CRON)
    called = kfm("doctor", "--json", "--offline")
    found = [check for check in called.document["checks"] if check["name"] == "service"]
    assert all(check["fix"] for check in found if check["state"] != "ok")
    return called.code, [(check["state"], check["message"]) for check in found]


@contextmanager
def _answering(port: int, body: bytes) -> Iterator[None]:
    """A server that listens there, and says the same to everything."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None: ...

    with HTTPServer(("127.0.0.1", port), Answer) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield
        server.shutdown()


def test_without_a_reason_to_serve_nothing_is_said(kfm: Kfm, project: Path) -> None:
    """A project that is not configured to be served has no line about a service."""
    assert _service(kfm, project, "", cron=False) == (0, [])


def test_a_place_that_is_free_is_told(kfm: Kfm, project: Path, port: int) -> None:
    """What would be served is counted, and its port can be had."""
    assert _service(kfm, project, f"serve: {{port: {port}}}\n") == (
        0,
        [("ok", "1 schedule, 0 webhooks"), ("ok", f"port {port} of 127.0.0.1 is free")],
    )


def test_a_service_that_runs_is_no_trouble(kfm: Kfm, project: Path, port: int) -> None:
    """A port that a service of ours holds is as it should be."""
    with _answering(port, b'{"status":"ok"}'):
        code, found = _service(kfm, project, f"serve: {{port: {port}}}\n")
    assert (code, found[1:]) == (0, [("ok", f"one answers on port {port} of 127.0.0.1")])


def test_a_stranger_on_the_port_is_told(kfm: Kfm, project: Path, port: int) -> None:
    """A port that another process holds is a warning that names it."""
    with _answering(port, b"hello"):
        code, found = _service(kfm, project, f"serve: {{port: {port}}}\n")
    assert (code, found[1][0]) == (0, "warn")
    assert found[1][1].startswith(f"port {port} of 127.0.0.1 can't be had (address already in use)")


def test_other_machines_need_tokens(kfm: Kfm, project: Path) -> None:
    """An address that others reach is a failure until a person has a token."""
    code, found = _service(kfm, project, 'serve: {host: "0.0.0.0", port: 0}\n')
    assert (code, [state for state, _ in found]) == (1, ["ok", "fail"])
    assert "no person has a token" in found[1][1]
    people = f'people: [{{subject: ann, roles: [operate], tokens: ["{TOKEN_HASH}"]}}]\n'
    assert _service(kfm, project, people)[0] == 0


def test_the_application_is_opened_once(kfm: Kfm, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All checks share one; where it can't be opened, each check that needs it says so."""
    opened = []

    def counted(loaded: Any, **options: Any) -> Any:
        opened.append(options)
        return open_app(loaded, **options)

    def broken(_loaded: Any, **_options: Any) -> Any:
        raise BackendUnavailable("The ledger is away.")

    open_app = app.open_app
    monkeypatch.setattr(app, "open_app", counted)
    assert kfm("doctor", "--json").code == 0
    assert opened == [{"read_only": True}]
    monkeypatch.setattr(app, "open_app", broken)
    called = kfm("doctor", "--json")
    assert called.code == 4
    failed = [check["name"] for check in called.document["checks"] if check["state"] == "fail"]
    assert failed == ["store", "policies", "targets", "sources"]
