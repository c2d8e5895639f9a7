"""JSON documents at addresses: read with their ETag, and put only in the place of what was read."""

from __future__ import annotations

import json
from typing import Any

from kfm import __version__
from kfm.model.errors import CollectorRefused, UpstreamUnavailable
from kfm.model.redaction import redact_url
from kfm.ports import Clock

TIMEOUT_MS = 20_000
ANSWER_BYTES_MAX = 64 * 1024 * 1024
MEDIA_TYPE = "application/ld+json"
_REFUSALS = frozenset({400, 409, 413, 415, 422})


class HttpDocuments:
    """Reads and puts with one client. Proxies and credentials of the environment are not looked at."""

    def __init__(self, token: str | None, *, clock: Clock, timeout_ms: int = TIMEOUT_MS) -> None:
        import httpx

        headers = {"User-Agent": f"kfm/{__version__}", "Accept": f"{MEDIA_TYPE}, application/json"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._client = httpx.Client(headers=headers, timeout=timeout_ms / 1000, trust_env=False)

    def get(self, url: str) -> tuple[dict[str, Any], str | None]:
        """The document and its ETag; an empty one if there is none."""
        status, body, etag = self._send("GET", url)
        if status in (404, 410):
            return {}, None
        if status >= 300:
            raise self._refused("GET", url, status)
        try:
            found = json.loads(body)
        except (ValueError, RecursionError):
            raise UpstreamUnavailable(f"{redact_url(url)}: its answer is no JSON.") from None
        if not isinstance(found, dict):
            raise UpstreamUnavailable(f"{redact_url(url)}: its answer is no JSON object.")
        return found, etag

    def put(self, url: str, body: bytes, *, etag: str | None, is_new: bool) -> bool:
        """False if something else is there by now."""
        headers = {"Content-Type": MEDIA_TYPE}
        if etag is not None and not etag.startswith("W/"):
            headers["If-Match"] = etag
        elif is_new:
            headers["If-None-Match"] = "*"
        status, _, _ = self._send("PUT", url, body, headers)
        if status == 412:
            return False
        if status >= 300:
            raise self._refused("PUT", url, status)
        return True

    def close(self) -> None:
        self._client.close()

    def _send(
        self, method: str, url: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> tuple[int, bytes, str | None]:
        import httpx

        until_ms = self._clock.monotonic_ms() + self._timeout_ms
        try:
            with self._client.stream(method, url, content=body, headers=headers) as response:
                read = bytearray()
                for chunk in response.iter_bytes():
                    read += chunk
                    if len(read) > ANSWER_BYTES_MAX or self._clock.monotonic_ms() > until_ms:
                        raise UpstreamUnavailable(f"{redact_url(url)}: its answer is too long, or too slow.")
                return response.status_code, bytes(read), response.headers.get("ETag")
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise UpstreamUnavailable(f"{redact_url(url)}: {type(error).__name__}.") from error

    def _refused(self, method: str, url: str, status: int) -> Exception:
        text = f"{redact_url(url)}: {method} was answered with {status}."
        return CollectorRefused(text) if status in _REFUSALS else UpstreamUnavailable(text, status=status)
