"""The HTTP client's own promises; what it meets on the way is tested with the sources."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading

import pytest
from cryptography.hazmat.primitives import serialization

from kfm.calls.foreign_errors import is_untrusted
from kfm.model.errors import UpstreamUnavailable
from kfm.objects.http_client import HttpxClient
from tests.sns_topic import certificate, rsa_key
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


@pytest.fixture
def untrusted(tmp_path):
    """The port of a server with a certificate that no authority signed."""
    key = rsa_key().private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (tmp_path / "own.pem").write_bytes(certificate() + key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "own.pem")
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer():
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                with (
                    connection,
                    contextlib.suppress(OSError),
                    context.wrap_socket(connection, server_side=True),
                ):
                    pass

        thread = threading.Thread(target=answer)
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()


def test_a_certificate_that_is_refused_is_not_tried_again(untrusted):
    """Neither httpx nor urllib3 may wrap it so deeply that it counts as an error that passes."""
    client = HttpxClient()
    with (
        pytest.raises(UpstreamUnavailable) as caught,
        client.open("GET", f"https://127.0.0.1:{untrusted}/", {}, 2000),
    ):
        pass
    client.close()
    assert caught.value.facts["transient"] is False
    urllib3 = pytest.importorskip("urllib3")
    for retries in (False, 0, 1):
        with pytest.raises(urllib3.exceptions.HTTPError) as wrapped:
            urllib3.PoolManager().request("GET", f"https://127.0.0.1:{untrusted}/", retries=retries)
        assert is_untrusted(wrapped.value)
    with pytest.raises(urllib3.exceptions.HTTPError) as away:
        urllib3.PoolManager().request("GET", "https://127.0.0.1:1/certificate", retries=0)
    assert not is_untrusted(away.value)


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
    """An address that is none, or where no server is, becomes a plain error without credentials."""
    client = HttpxClient()
    with pytest.raises(UpstreamUnavailable) as caught, client.open("GET", url, {}, 1000):
        pass
    assert caught.value.facts["transient"] is transient
    assert "s3cr3t" not in str(caught.value)
    client.close()
