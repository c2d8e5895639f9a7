"""Fetching certificates: from a real server, over TLS."""

from __future__ import annotations

import datetime
import http.server
import ipaddress
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from kfm.model.errors import UpstreamUnavailable
from kfm.nodd.messages.sns_signatures import Verifier
from kfm.nodd.queues.certificates import BYTES_MAX, HttpsCertificates
from kfm.objects.http_client import HttpxClient
from tests.services import free_port
from tests.sns_topic import ADDRESS, TOPICS, body, certificate, notification, rsa_key, signed
from tests.stand_ins import FakeClock

pytestmark = pytest.mark.req("WAL-20")


class Keeper(http.server.BaseHTTPRequestHandler):
    """Serves a certificate under one name, and trouble under others."""

    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(self.path)
        name = self.path.strip("/").removesuffix(".pem")
        data = certificate() if name == "good" else b"x" * (100 * BYTES_MAX) if name == "endless" else b""
        status = int(name) if name.isdigit() else 200
        self.send_response(status)
        if 300 <= status < 400:
            self.send_header("Location", "/good.pem")
        if name != "endless":
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        try:
            self.wfile.write(data)
        except OSError:
            self.asked.append("left")

    def log_message(self, *_: object) -> None: ...


def _tls(folder: Path) -> tuple[ssl.SSLContext, str]:
    """(what the server speaks, the file that makes others believe it)"""
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(rsa_key().public_key())
        .serial_number(2)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(address, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(rsa_key(), hashes.SHA256())
    )
    (folder / "tls.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    key = rsa_key().private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "tls.key").write_bytes(key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "tls.pem", folder / "tls.key")
    return context, str(folder / "tls.pem")


@pytest.fixture
def keeper(tmp_path: Path) -> Iterator[tuple[str, str, list[str]]]:
    """(its address, what makes it believed, what it was asked)"""
    context, trusted = _tls(tmp_path)
    asked: list[str] = []
    handler = type("Served", (Keeper,), {"asked": asked})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"https://127.0.0.1:{server.server_port}", trusted, asked
    server.shutdown()
    thread.join()
    server.server_close()


def trouble(certificates: HttpsCertificates, url: str) -> bool:
    """Is it said to pass?"""
    with pytest.raises(UpstreamUnavailable) as caught:
        certificates.fetch(url)
    transient = caught.value.facts["transient"]
    assert isinstance(transient, bool)
    return transient


def test_a_certificate_is_fetched(keeper: tuple[str, str, list[str]]) -> None:
    """With one request, over TLS that is verified."""
    address, trusted, asked = keeper
    assert HttpsCertificates(HttpxClient(ca_file=trusted)).fetch(f"{address}/good.pem") == certificate()
    assert asked == ["/good.pem"]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_not_followed(keeper: tuple[str, str, list[str]], status: int) -> None:
    """Not even to the same host: an address that was checked is not left."""
    address, trusted, asked = keeper
    assert trouble(HttpsCertificates(HttpxClient(ca_file=trusted)), f"{address}/{status}.pem") is False
    assert asked == [f"/{status}.pem"]


@pytest.mark.parametrize(
    ("status", "passes"),
    [(204, False), (403, False), (404, False), (408, True), (429, True), (500, True), (503, True)],
)
def test_answers_are_told_apart(keeper: tuple[str, str, list[str]], status: int, passes: bool) -> None:
    """A host in trouble is asked again; one that has no such certificate is believed."""
    address, trusted, _ = keeper
    assert trouble(HttpsCertificates(HttpxClient(ca_file=trusted)), f"{address}/{status}.pem") is passes


def test_endless_answers_are_left(keeper: tuple[str, str, list[str]]) -> None:
    """After as many bytes as a certificate may have."""
    address, trusted, _ = keeper
    assert trouble(HttpsCertificates(HttpxClient(ca_file=trusted)), f"{address}/endless.pem") is False


def test_a_host_that_can_not_prove_its_name_is_not_believed(keeper: tuple[str, str, list[str]]) -> None:
    """No request is sent to a host with an untrusted certificate; the message is not at fault."""
    address, _, asked = keeper
    assert trouble(HttpsCertificates(), f"{address}/good.pem") is True
    assert asked == []


def test_a_refused_connection_passes() -> None:
    """A refused connection may be accepted next time."""
    assert trouble(HttpsCertificates(), f"https://127.0.0.1:{free_port()}/good.pem") is True


@pytest.mark.parametrize("url", ["http://127.0.0.1/a.pem", "file:///etc/hostname", "https://", "a.pem", ""])
def test_only_https_is_spoken(url: str) -> None:
    """Whatever the caller thinks of an address."""
    assert trouble(HttpsCertificates(), url) is False


def test_the_environment_has_no_say(
    keeper: tuple[str, str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Proxies and trusted certificates in it are not looked at."""
    address, trusted, asked = keeper
    monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("ALL_PROXY", f"http://127.0.0.1:{free_port()}")
    assert HttpsCertificates(HttpxClient(ca_file=trusted)).fetch(f"{address}/good.pem") == certificate()
    monkeypatch.setenv("SSL_CERT_FILE", trusted)
    assert trouble(HttpsCertificates(), f"{address}/good.pem") is True
    assert asked == ["/good.pem"]


def test_signatures_are_checked_with_what_was_fetched() -> None:
    """Fetcher and verifier together: the exact address, once, and then the signature."""
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(str(request.url))
        return httpx.Response(200, content=iter([certificate()]))

    fetcher = HttpsCertificates(HttpxClient(transport=httpx.MockTransport(answer)))
    verifier = Verifier(fetcher, FakeClock(), TOPICS)
    assert verifier.check(body(signed(notification()))) is None
    refusal = verifier.check(body(signed(notification()) | {"Message": "forged"}))
    assert refusal is not None
    assert refusal.code == "SIGNATURE_INVALID"
    assert asked == [ADDRESS]
