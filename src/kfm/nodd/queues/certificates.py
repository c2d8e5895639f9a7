"""Fetches signing certificates over https: one request, few bytes, no redirects."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from kfm.model.errors import UpstreamUnavailable
from kfm.objects.http_client import HttpxClient

if TYPE_CHECKING:
    from kfm.ports import Response

BYTES_MAX = 16 * 1024
TIMEOUT_MS = 5_000  # of each step; the whole may take twice as long
_PASSING = frozenset({408, 425, 429})


class HttpsCertificates:
    """One GET for each certificate.

    Which addresses may be asked is the caller's to decide. That they are not left is decided here: a
    redirect is an answer like any other, and not a certificate.
    """

    def __init__(self, client: HttpxClient | None = None) -> None:
        self._client = client or HttpxClient()

    def fetch(self, url: str) -> bytes:
        host = urlsplit(url).hostname or ""
        if not url.startswith("https://") or not host:
            raise UpstreamUnavailable("A certificate is fetched over https only.", transient=False)
        try:
            # Closed each time: certificates are fetched once a year.
            with (
                closing(self._client),
                self._client.send("GET", url, {}, None, TIMEOUT_MS, shown=host) as answer,
            ):
                _require_ok(answer, host)
                return _bytes_of(answer.chunks(), host)
        except UpstreamUnavailable as error:
            if error.facts.get("cause") not in ("network", "timeout"):
                raise
            # Also where its TLS certificate can't be verified: that is not the message's fault.
            raise UpstreamUnavailable(
                error.detail[:200],
                remedy="Let this machine reach the host over https; the messages wait in their queue.",
                transient=True,
                cause="network",
            ) from None


def _require_ok(answer: Response, host: str) -> None:
    status = answer.status
    if status != 200:
        passing = status >= 500 or status in _PASSING
        raise UpstreamUnavailable(f"{host} answered {status}.", status=status, transient=passing)


def _bytes_of(chunks: Iterable[bytes], host: str) -> bytes:
    found = bytearray()
    for chunk in chunks:
        found += chunk
        if len(found) > BYTES_MAX:
            raise UpstreamUnavailable(f"{host} sent no certificate: it is too long.", transient=False)
    return bytes(found)
