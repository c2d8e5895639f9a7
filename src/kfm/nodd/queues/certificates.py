"""Fetches signing certificates over https: one request, few bytes, no redirects."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from kfm import __version__
from kfm.model.errors import UpstreamUnavailable
from kfm.model.redaction import redact

if TYPE_CHECKING:
    import ssl

    import httpx

BYTES_MAX = 16 * 1024
TIMEOUT_MS = 5_000  # of each step; the whole may take twice as long
_PASSING = frozenset({408, 425, 429})


class HttpsCertificates:
    """One GET for each certificate. Proxies and certificates of the environment are not looked at.

    Which addresses may be asked is the caller's to decide. That they are not left is decided here: a
    redirect is an answer like any other, and not a certificate.
    """

    def __init__(
        self,
        *,
        ca_file: str | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        """`ca_file` replaces the trusted authorities; `transport` gets the requests instead of the network.
        Both are for tests."""
        self._ca_file = ca_file
        self._transport = transport

    def fetch(self, url: str) -> bytes:
        import httpx

        host = urlsplit(url).hostname or ""
        if not url.startswith("https://") or not host:
            raise UpstreamUnavailable("A certificate is fetched over https only.", transient=False)
        try:
            with self._client() as client, client.stream("GET", url) as response:
                return _bytes_of(response, host)
        except httpx.InvalidURL:
            raise UpstreamUnavailable("The certificate's address is no address.", transient=False) from None
        except httpx.HTTPError as error:
            # Also where its TLS certificate can't be verified: that is not the message's fault.
            reason = redact(str(error))[:200] or type(error).__name__
            raise UpstreamUnavailable(
                f"{host}: {reason}.",
                remedy="Let this machine reach the host over https; the messages wait in their queue.",
                transient=True,
                cause="network",
            ) from None

    def _client(self) -> httpx.Client:
        """A fresh one: certificates are fetched once a year."""
        import httpx

        return httpx.Client(
            trust_env=False,
            follow_redirects=False,
            verify=self._trusted(),
            timeout=httpx.Timeout(TIMEOUT_MS / 1000),
            transport=self._transport,
            headers={"accept-encoding": "identity", "user-agent": f"kfm/{__version__}"},
        )

    def _trusted(self) -> ssl.SSLContext | bool:
        if self._ca_file is None:
            return True
        import ssl

        return ssl.create_default_context(cafile=self._ca_file)


def _bytes_of(response: httpx.Response, host: str) -> bytes:
    status = response.status_code
    if status != 200:
        passing = status >= 500 or status in _PASSING
        raise UpstreamUnavailable(f"{host} answered {status}.", status=status, transient=passing)
    found = bytearray()
    for chunk in response.iter_raw():
        found += chunk
        if len(found) > BYTES_MAX:
            raise UpstreamUnavailable(f"{host} sent no certificate: it is too long.", transient=False)
    return bytes(found)
