"""The HTTP client's own promises; what it meets on the way is tested with the sources."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading

import httpx
import pytest
from cryptography.hazmat.primitives import serialization

from kfm.calls.foreign_errors import is_untrusted
from kfm.model.errors import AddressRefused, UpstreamUnavailable
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


# --- where a connection may go -----------------------------------------------------------


@pytest.fixture
def elsewhere():
    """A server on another address of this machine."""
    with unruly_server("127.0.0.2") as unruly:
        unruly.on("/latest/meta-data/iam", Answer(body=b"s3cr3t-role"))
        yield unruly


@pytest.mark.req("UPD-16")
@pytest.mark.parametrize("form", ["127.0.0.2", "127.2", "0x7f000002", "[::ffff:127.0.0.2]"])
def test_a_redirect_into_a_private_network_is_refused(server, elsewhere, form):
    """What answers at another private address is not asked, however that address is written."""
    target = elsewhere.url.replace("127.0.0.2", form) + "/latest/meta-data/iam"
    url = server.on("/moved", Answer(302, headers={"Location": target}))
    client = HttpxClient()
    with pytest.raises(AddressRefused, match=r"redirects to .*not public") as caught:
        client.open("GET", url, {}, 1000).__enter__()
    client.close()
    assert caught.value.facts["transient"] is False
    assert "allow" in caught.value.way_out
    assert elsewhere.asked == []


def test_a_private_host_that_is_allowed_is_reached(server, elsewhere):
    """By its address or its range; the answer says where it came from, and no credentials went there."""
    url = server.on("/moved", Answer(302, headers={"Location": f"{elsewhere.url}/latest/meta-data/iam"}))
    client = HttpxClient()
    for allow in (("127.0.0.2",), ("127.0.0.0/30",)):
        with client.open("GET", url, {"X-Api-Key": "k"}, 1000, allow=allow) as answer:
            assert answer.address == f"{elsewhere.url}/latest/meta-data/iam"
            assert b"".join(answer.chunks()) == b"s3cr3t-role"
    assert all("x-api-key" not in asked.headers for asked in elsewhere.asked)
    with pytest.raises(AddressRefused):  # a connection that another request may use is not lent
        client.open("GET", url, {}, 1000).__enter__()
    client.close()


class Rebinding:
    """A name server that answers with one address first, and with others after."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = 0

    def __call__(self, host, port):
        self.asked += 1
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@pytest.mark.req("UPD-16")
def test_a_name_that_leads_inside_is_refused(server):
    """A public name whose name server sends us to this machine is not believed."""
    server.asked.clear()
    url = server.on("/x", Answer(body=b"ok")).replace("127.0.0.1", "data.example.org")
    for resolve in (Rebinding(["127.0.0.1"]), Rebinding(["169.254.169.254", "10.0.0.1"])):
        client = HttpxClient(resolve=resolve)
        with pytest.raises(AddressRefused, match=r"data\.example\.org"):
            client.open("GET", url, {}, 1000).__enter__()
        client.close()
    assert server.asked == []


@pytest.mark.req("UPD-16")
def test_the_address_that_was_checked_is_the_one_that_is_connected_to(server, monkeypatch):
    """The name is resolved once: what a name server says after the check changes nothing."""
    url = server.on("/x", Answer(body=b"ok")).replace("127.0.0.1", "data.example.org")
    resolve = Rebinding(["127.0.0.1"], ["192.168.0.1"])
    client = HttpxClient(resolve=resolve)
    with client.open("GET", url, {}, 1000, allow=("127.0.0.1",)) as answer:
        assert b"".join(answer.chunks()) == b"ok"
    client.close()
    assert resolve.asked == 1
    assert server.asked[-1].headers["host"].startswith("data.example.org:")


def test_of_several_addresses_the_permitted_ones_are_tried(server):
    """A name with a private address among its public ones is reached at those that may be reached."""
    url = server.on("/x", Answer(body=b"ok")).replace("127.0.0.1", "data.example.org")
    client = HttpxClient(resolve=lambda _host, _port: ["10.0.0.1", "127.0.0.9", "127.0.0.1"])
    with client.open("GET", url, {}, 1000, allow=("127.0.0.0/8",)) as answer:
        assert b"".join(answer.chunks()) == b"ok"
    client.close()


def test_certificates_are_those_of_the_name(tmp_path):
    """A connection to a checked address still asks for the name's certificate, and verifies it."""
    key = rsa_key().private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (tmp_path / "own.pem").write_bytes(certificate() + key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "own.pem")
    named = []
    context.sni_callback = lambda _socket, name, _context: named.append(name)
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer():
            connection, _ = listening.accept()
            with connection, contextlib.suppress(OSError):
                context.wrap_socket(connection, server_side=True).close()

        thread = threading.Thread(target=answer)
        thread.start()
        port = listening.getsockname()[1]
        client = HttpxClient(resolve=lambda _host, _port: ["127.0.0.1"])
        with pytest.raises(UpstreamUnavailable):
            client.open(
                "GET", f"https://data.example.org:{port}/", {}, 2000, allow=("127.0.0.1",)
            ).__enter__()
        thread.join()
        client.close()
    assert named == ["data.example.org"]


def test_what_is_sent_goes_to_one_address(server, monkeypatch):
    """One request with its body: no redirect, no proxy; a private host is fine, being configured."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    url = server.on("/hook", Answer(307, headers={"Location": "/other"}))
    client = HttpxClient()
    server.asked.clear()
    with client.send("POST", url, {"X-Key": "k"}, b"{}", 1000) as answer:
        assert answer.status == 307
    client.close()
    assert [(asked.method, asked.path) for asked in server.asked] == [("POST", "/hook")]


def test_errors_of_sending_hold_no_secrets():
    """Whatever the other side does wrong."""

    def broken(_request):
        return httpx.Response(200, content=b"no gzip", headers={"Content-Encoding": "gzip"})

    client = HttpxClient(transport=httpx.MockTransport(broken))
    with (
        pytest.raises(UpstreamUnavailable, match="the hook"),
        client.send(
            "POST", "https://x.example/k3y", {}, b"", 1000, shown="the hook", secrets=("k3y",)
        ) as answer,
    ):
        b"".join(answer.decoded())
