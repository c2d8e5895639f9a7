"""An external STAC API with transactions, as a replica of our catalogue.

Such an API has no conditional update: a late PUT overwrites a newer one. So whoever delivers does it for one
item at a time under a claim, sends what is newest then, and reads back what stands there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urljoin, urlsplit

from kfm import __version__
from kfm.core.errors import CollectorRefused, UpstreamUnavailable
from kfm.core.redact import redact_url

if TYPE_CHECKING:
    import httpx

TIMEOUT_MS = 20_000
ANSWER_BYTES_MAX = 64 * 1024 * 1024
PAGES_MAX = 1_000_000
PAGE = 500
_PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})
REVISION = "kfm:revision"


class StacApi:
    """Implements `ingest_ports.StacReplica`."""

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        timeout_ms: int = TIMEOUT_MS,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        import httpx

        self._url = url.rstrip("/")
        self._shown = redact_url(self._url)
        headers = {"User-Agent": f"kfm/{__version__}", "Accept": "application/json"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        self._client = httpx.Client(
            headers=headers, timeout=timeout_ms / 1000, trust_env=False, transport=transport
        )

    def ensure_collection(self, body: dict[str, Any]) -> None:
        path = f"/collections/{_segment(body['id'])}"
        if self._send("PUT", path, body, accept=(404,)) == 404:
            self._send("POST", "/collections", body, accept=(409,))  # 409: somebody else was faster

    def put_item(self, body: dict[str, Any]) -> None:
        """Replaced, else made, else replaced after all: somebody may make it in between."""
        items = f"/collections/{_segment(body['collection'])}/items"
        path = f"{items}/{_segment(body['id'])}"
        if self._send("PUT", path, body, accept=(404,)) != 404:
            return
        if self._send("POST", items, body, accept=(409,)) == 409:
            self._send("PUT", path, body)

    def delete_item(self, collection_id: str, item_id: str) -> None:
        path = f"/collections/{_segment(collection_id)}/items/{_segment(item_id)}"
        self._send("DELETE", path, accept=(404,))

    def revisions(self, collection_id: str, ids: Sequence[str]) -> dict[str, int | None]:
        found: dict[str, int | None] = {}
        for start in range(0, len(ids), PAGE):
            asked = list(ids[start : start + PAGE])
            body = {
                "collections": [collection_id],
                "ids": asked,
                "limit": len(asked),
                "fields": {"include": ["id", f"properties.{REVISION}"], "exclude": ["assets", "links"]},
            }
            answer = self._json("POST", "/search", body)
            for feature in answer.get("features", ()):
                found[str(feature.get("id"))] = _revision(feature)
        return found

    def items(self, collection_id: str) -> Iterator[tuple[str, int | None]]:
        """All of a collection, page by page."""
        url: str | None = f"{self._url}/collections/{_segment(collection_id)}/items?limit={PAGE}"
        for _ in range(PAGES_MAX):
            if url is None:
                return
            answer = self._json("GET", url)
            for feature in answer.get("features", ()):
                yield str(feature.get("id")), _revision(feature)
            url = self._next(answer, url)

    def close(self) -> None:
        self._client.close()

    # --- requests --------------------------------------------------------------------

    def _next(self, answer: dict[str, Any], url: str) -> str | None:
        """A next page on the same host; anywhere else nobody goes with our token."""
        for link in answer.get("links", ()):
            if link.get("rel") == "next" and isinstance(link.get("href"), str):
                following = str(urljoin(url, link["href"]))
                if urlsplit(following).netloc != urlsplit(self._url).netloc:
                    raise CollectorRefused(f"{self._shown}: its next page is on another host.")
                return following
        return None

    def _send(
        self, method: str, path: str, body: dict[str, Any] | None = None, accept: Sequence[int] = ()
    ) -> int:
        response = self._request(method, f"{self._url}{path}", body)
        if response.status_code < 300 or response.status_code in accept:
            return int(response.status_code)
        raise self._refused(method, response)

    def _json(self, method: str, url: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        response = self._request(method, url if url.startswith(self._url) else f"{self._url}{url}", body)
        if response.status_code == 404:
            return {}
        if response.status_code >= 300:
            raise self._refused(method, response)
        try:
            answer = response.json()
        except ValueError:
            raise CollectorRefused(f"{self._shown}: its answer is no JSON.") from None
        return answer if isinstance(answer, dict) else {}

    def _request(self, method: str, url: str, body: dict[str, Any] | None) -> httpx.Response:
        import httpx

        try:
            response = self._client.request(method, url, json=body)
        except httpx.HTTPError as error:
            raise UpstreamUnavailable(f"{self._shown}: {type(error).__name__}.") from error
        if len(response.content) > ANSWER_BYTES_MAX:
            raise CollectorRefused(f"{self._shown}: its answer is too large.")
        return response

    def _refused(self, method: str, response: httpx.Response) -> Exception:
        status = response.status_code
        said = " ".join(response.text[:300].split())
        text = f"{self._shown}: {method} was answered with {status}: {said}"
        if status in _PASSING:
            return UpstreamUnavailable(text)
        return CollectorRefused(text)


def _revision(feature: dict[str, Any]) -> int | None:
    revision = (feature.get("properties") or {}).get(REVISION)
    return revision if isinstance(revision, int) else None


def _segment(text: str) -> str:
    return quote(text, safe="~@=+,;:")
