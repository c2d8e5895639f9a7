"""An external STAC API with transactions, as a replica of our catalogue.

Such an API has no conditional update: a late PUT overwrites a newer one. So each item is delivered under a
claim, one at a time: the newest revision is sent, and what the API shows is read back.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import quote, urljoin, urlsplit

from kfm.model.errors import CollectorRefused, UpstreamUnavailable
from kfm.model.redaction import redact_url
from kfm.ports import Clock, HttpSender
from kfm.sinks.http_document import Answer, whole_answer

TIMEOUT_MS = 20_000  # of one request, however slowly its answer comes
PAGES_MAX = 1_000_000
PAGE = 500
# The item is at fault, not the way to the API, nor our right to use it: sending it again changes nothing.
_REFUSALS = frozenset({400, 409, 413, 422})
REVISION = "kfm:revision"


class StacApi:
    """Implements `ports.StacReplica`."""

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        client: HttpSender,
        clock: Clock,
        timeout_ms: int = TIMEOUT_MS,
    ) -> None:
        self._client = client
        self._url = url.rstrip("/")
        self._shown = redact_url(self._url)
        self._token = token
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._headers = {"Accept": "application/json", "Content-Type": "application/json"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"

    def ensure_collection(self, body: dict[str, Any]) -> None:
        path = f"/collections/{_segment(body['id'])}"
        if self._send("PUT", path, body, accept=(404,)) == 404:
            self._send("POST", "/collections", body, accept=(409,))  # 409: another client was faster

    def collection(self, collection_id: str) -> dict[str, Any]:
        """As the API shows it; empty if there is none."""
        return self._json("GET", f"/collections/{_segment(collection_id)}")

    def put_item(self, body: dict[str, Any]) -> None:
        """Replace, else create, else replace: another client may create it in between."""
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
        if len(ids) == 1:  # a request by name shows the stored item, not what an index has
            feature = self._json("GET", f"/collections/{_segment(collection_id)}/items/{_segment(ids[0])}")
            return {ids[0]: _revision(feature)} if feature.get("id") == ids[0] else {}
        for start in range(0, len(ids), PAGE):
            asked = list(ids[start : start + PAGE])
            body = {
                "collections": [collection_id],
                "ids": asked,
                "limit": len(asked),
                "fields": {"include": ["id", f"properties.{REVISION}"], "exclude": ["assets", "links"]},
            }
            answer = self._json("POST", "/search", body)
            found |= {str(one.get("id")): _revision(one) for one in _objects(answer, "features")}
        return found

    def items(self, collection_id: str) -> Iterator[tuple[str, int | None]]:
        """All of a collection, page by page."""
        url: str | None = f"{self._url}/collections/{_segment(collection_id)}/items?limit={PAGE}"
        for _ in range(PAGES_MAX):
            if url is None:
                return
            answer = self._json("GET", url)
            for feature in _objects(answer, "features"):
                yield str(feature.get("id")), _revision(feature)
            url = self._next(answer, url)

    def close(self) -> None:
        self._client.close()

    # --- requests --------------------------------------------------------------------

    def _next(self, answer: dict[str, Any], url: str) -> str | None:
        """The next page, on the same host only: the token is sent nowhere else."""
        for link in _objects(answer, "links"):
            if link.get("rel") == "next" and isinstance(link.get("href"), str):
                following = str(urljoin(url, link["href"]))
                if urlsplit(following).netloc != urlsplit(self._url).netloc:
                    raise UpstreamUnavailable(f"{self._shown}: its next page is on another host.")
                # Behind a proxy, an API often believes that it is asked by plain HTTP.
                following = urlsplit(following)._replace(scheme=urlsplit(self._url).scheme).geturl()
                return None if following == url else following
        return None

    def _send(
        self, method: str, path: str, body: dict[str, Any] | None = None, accept: Sequence[int] = ()
    ) -> int:
        answer = self._request(method, f"{self._url}{path}", body)
        if answer.status < 300 or answer.status in accept:
            return answer.status
        raise self._refused(method, answer)

    def _json(self, method: str, url: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        answer = self._request(method, url if url.startswith(self._url) else f"{self._url}{url}", body)
        if answer.status == 404:
            return {}
        if answer.status >= 300:
            raise self._refused(method, answer)
        try:
            document = json.loads(answer.body)
        except (ValueError, RecursionError):
            raise UpstreamUnavailable(f"{self._shown}: its answer is no JSON.") from None
        if not isinstance(document, dict):
            raise UpstreamUnavailable(f"{self._shown}: its answer is no JSON object.")
        return document

    def _request(self, method: str, url: str, body: dict[str, Any] | None) -> Answer:
        return whole_answer(
            self._client,
            method,
            url,
            self._headers,
            None if body is None else json.dumps(body, ensure_ascii=False).encode(),
            token=self._token,
            clock=self._clock,
            timeout_ms=self._timeout_ms,
            shown=self._shown,
        )

    def _refused(self, method: str, answer: Answer) -> Exception:
        """The error of an answer, without the token, in case the API repeats it."""
        text_of_answer = " ".join(answer.body.decode(errors="replace").split())
        text_of_answer = (text_of_answer.replace(self._token, "…") if self._token else text_of_answer)[:300]
        text = f"{self._shown}: {method} was answered with {answer.status}: {text_of_answer}"
        return CollectorRefused(text) if answer.status in _REFUSALS else UpstreamUnavailable(text)


def _objects(answer: dict[str, Any], name: str) -> list[dict[str, Any]]:
    found = answer.get(name)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _revision(feature: dict[str, Any]) -> int | None:
    properties = feature.get("properties")
    revision = properties.get(REVISION) if isinstance(properties, dict) else None
    return revision if isinstance(revision, int) and not isinstance(revision, bool) else None


def _segment(text: str) -> str:
    return quote(text, safe="~@=+,;:")
