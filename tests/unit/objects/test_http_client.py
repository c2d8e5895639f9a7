"""The HTTP client's own promises; what it meets on the way is tested with the sources."""

from __future__ import annotations

import pytest

from kfm.model.errors import UpstreamUnavailable
from kfm.objects.http_client import HttpxClient
from tests.unruly import Answer, unruly_server


@pytest.fixture(scope="module")
def server():
    with unruly_server() as unruly:
        yield unruly


@pytest.mark.req("UPD-7")
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_only_reading_goes_out(server, method):
    """There is no way to send anything but GET and HEAD."""
    url = server.on("/x", Answer())
    with pytest.raises(ValueError, match="only GET and HEAD"), HttpxClient().open(method, url, {}, 1000):
        pass
    assert server.asked == []


def test_environment_is_not_asked(server, monkeypatch):
    """Proxies of the environment do not divert requests."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    client = HttpxClient()
    with client.open("GET", server.on("/x", Answer(body=b"ok")), {}, 1000) as response:
        assert b"".join(response.chunks()) == b"ok"
    client.close()


def test_cookies_are_not_kept(server):
    """What one answer sets is not sent with the next request."""
    client = HttpxClient()
    url = server.on("/cookie", Answer(headers={"Set-Cookie": "a=b"}))
    for _ in range(2):
        with client.open("GET", url, {}, 1000) as response:
            assert response.headers["set-cookie"] == "a=b"
    assert "cookie" not in server.asked[-1].headers
    client.close()


@pytest.mark.parametrize(
    ("url", "transient"),
    [("http://127.0.0.1:1/x", True), ("http://u:s3cr3t@[bad/x", False), ("gopher://h/x", False), ("", False)],
)
def test_addresses_that_do_not_answer(url, transient):
    """An address that is none, or where nobody is, becomes a plain error without credentials."""
    client = HttpxClient()
    with pytest.raises(UpstreamUnavailable) as caught, client.open("GET", url, {}, 1000):
        pass
    assert caught.value.facts["transient"] is transient
    assert "s3cr3t" not in str(caught.value)
    client.close()
