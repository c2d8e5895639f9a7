"""Under which names a server answers, and what it believes of the proxy before it."""

from __future__ import annotations

import subprocess
import sys

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from kfm.web.listener import LOOPBACK
from kfm.web.server import Named

HOSTS = (*LOOPBACK, "data.example.org")


@pytest.fixture
def client() -> TestClient:
    """A server that answers with the address under which it believes to be asked."""

    def told(request: Request) -> PlainTextResponse:
        return PlainTextResponse(str(request.url))

    app = Starlette(routes=[Route("/x", told)], middleware=[Middleware(Named, hosts=HOSTS)])
    return TestClient(app, base_url="http://data.example.org")


@pytest.mark.parametrize("host", ["data.example.org", "DATA.example.org:443", "127.0.0.1:8377", "[::1]:8377"])
def test_known_names_are_answered(client: TestClient, host: str) -> None:
    """Its own names, with any port and in any case, are answered."""
    assert client.get("/x", headers={"host": host}).status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "data.example.org.evil.example", "127.0.0.1:x", ""])
def test_other_names_are_not(client: TestClient, host: str) -> None:
    """A page that makes a name of its own lead here learns nothing."""
    assert client.get("/x", headers={"host": host}).status_code == 421


@pytest.mark.parametrize(
    ("said", "scheme"),
    [
        ([], "http"),
        (["https"], "https"),
        (["http"], "http"),
        (["javascript"], "http"),
        (["https"] * 2, "http"),
    ],
)
def test_a_proxy_tells_that_it_speaks_tls(client: TestClient, said: list[str], scheme: str) -> None:
    """Links follow the one thing that a proxy may say, `https`; anything else is passed over."""
    answer = client.get("/x", headers=[("x-forwarded-proto", each) for each in said])
    assert answer.text == f"{scheme}://data.example.org/x"


def test_commands_that_serve_nothing_need_no_web_framework() -> None:
    """Without the extra `serve` the catalogue is read, metrics are printed and addresses are checked."""
    code = (
        "import sys\n"
        "for name in ('starlette', 'uvicorn', 'httptools', 'jinja2'):\n"
        "    sys.modules[name] = None\n"
        "import kfm.cli.catalogue, kfm.cli.doctor, kfm.cli.metrics, kfm.web.listener\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
