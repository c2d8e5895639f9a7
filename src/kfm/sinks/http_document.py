"""JSON documents at addresses: read with their ETag, and put only in the place of what was read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from kfm.model.errors import CollectorRefused, UpstreamUnavailable
from kfm.model.redaction import redact_url
from kfm.ports import Clock, HttpSender

TIMEOUT_MS = 20_000
ANSWER_BYTES_MAX = 64 * 1024 * 1024
MEDIA_TYPE = "application/ld+json"
_REFUSALS = frozenset({400, 409, 413, 415, 422})


class Answer(NamedTuple):
    status: int
    body: bytes
    headers: Mapping[str, str]


def whole_answer(
    client: HttpSender,
    method: str,
    url: str,
    headers: Mapping[str, str],
    body: bytes | None,
    *,
    token: str | None,
    clock: Clock,
    timeout_ms: int,
    shown: str | None = None,
) -> Answer:
    """All of an answer, within bounds of size and of time, however slowly it comes."""
    shown = redact_url(url) if shown is None else shown
    until_ms = clock.monotonic_ms() + timeout_ms
    secrets = (token,) if token else ()
    with client.send(method, url, headers, body, timeout_ms, shown=shown, secrets=secrets) as response:
        read = bytearray()
        for chunk in response.decoded():
            read += chunk
            if len(read) > ANSWER_BYTES_MAX:
                raise UpstreamUnavailable(f"{shown}: its answer is too large.")
            if clock.monotonic_ms() > until_ms:
                raise UpstreamUnavailable(f"{shown}: its answer comes too slowly.")
        return Answer(response.status, bytes(read), response.headers)


class HttpDocuments:
    """Reads and puts with one client."""

    def __init__(
        self, token: str | None, *, client: HttpSender, clock: Clock, timeout_ms: int = TIMEOUT_MS
    ) -> None:
        self._token = token
        self._client = client
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._headers = {"Accept": f"{MEDIA_TYPE}, application/json"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"

    def get(self, url: str) -> tuple[dict[str, Any], str | None]:
        """The document and its ETag; an empty one if there is none."""
        status, body, headers = self._send("GET", url)
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
        return found, headers.get("etag")

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
    ) -> Answer:
        return whole_answer(
            self._client,
            method,
            url,
            self._headers | (headers or {}),
            body,
            token=self._token,
            clock=self._clock,
            timeout_ms=self._timeout_ms,
        )

    def _refused(self, method: str, url: str, status: int) -> Exception:
        text = f"{redact_url(url)}: {method} was answered with {status}."
        return CollectorRefused(text) if status in _REFUSALS else UpstreamUnavailable(text, status=status)
