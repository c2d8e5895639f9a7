"""Requests to an external STAC API, and whatever it may answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from kfm.model.errors import CollectorRefused, UpstreamUnavailable
from kfm.objects.http_client import HttpxClient
from kfm.sinks.http_document import ANSWER_BYTES_MAX
from kfm.sinks.stac_api import StacApi
from tests.stand_ins import FakeClock

URL = "https://stac.example/api"
TOKEN = "s3cret-token"
BODY = {"id": "one", "collection": "hrrr"}


class Far:
    """Answers in the order that a test gives, and keeps what it was asked."""

    def __init__(self, *answers: httpx.Response | Exception) -> None:
        self.answers = list(answers)
        self.asked: list[httpx.Request] = []
        self.clock = FakeClock()
        self.api = StacApi(
            URL, TOKEN, client=HttpxClient(transport=httpx.MockTransport(self.answer)), clock=self.clock
        )

    def answer(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    @property
    def methods(self) -> list[str]:
        return [request.method for request in self.asked]


def said(status: int, document: Any = None) -> httpx.Response:
    return httpx.Response(status, json=document)


@pytest.mark.parametrize(
    ("statuses", "methods"),
    [
        ((200,), ["PUT"]),
        ((404, 201), ["PUT", "POST"]),
        ((404, 409, 200), ["PUT", "POST", "PUT"]),
    ],
)
def test_an_item_is_replaced_else_made_else_replaced(statuses: tuple[int, ...], methods: list[str]) -> None:
    """Another client may create it between the first request and the second."""
    far = Far(*(said(status) for status in statuses))
    far.api.put_item(BODY)
    assert far.methods == methods
    assert all(json.loads(request.content) == BODY for request in far.asked)
    paths = {"PUT": "/api/collections/hrrr/items/one", "POST": "/api/collections/hrrr/items"}
    assert [request.url.path for request in far.asked] == [paths[method] for method in methods]


def test_a_collection_is_replaced_or_made() -> None:
    """Also if another client was faster."""
    for statuses in ((200,), (404, 201), (404, 409)):
        Far(*(said(status) for status in statuses)).api.ensure_collection({"id": "hrrr"})


def test_what_is_gone_may_be_deleted_again() -> None:
    """A delete that finds nothing has done its work."""
    far = Far(said(404), said(200))
    far.api.delete_item("hrrr", "a/b?c")
    far.api.delete_item("hrrr", "one")
    assert far.asked[0].url.raw_path == b"/api/collections/hrrr/items/a%2Fb%3Fc"


@pytest.mark.parametrize("status", [400, 409, 413, 422])
def test_an_item_at_fault_is_refused(status: int) -> None:
    """Sending it again would change nothing."""
    with pytest.raises(CollectorRefused):
        Far(said(404), said(status), said(status)).api.put_item(BODY)


@pytest.mark.parametrize("status", [301, 401, 403, 405, 408, 429, 500, 502, 503])
def test_other_answers_are_the_replica_in_trouble(status: int) -> None:
    """No item pays for a token that has expired, nor for an outage."""
    with pytest.raises(UpstreamUnavailable):
        Far(said(status)).api.put_item(BODY)


@pytest.mark.parametrize(
    "error", [httpx.ConnectError("no"), httpx.ReadTimeout("slow"), httpx.RemoteProtocolError("what")]
)
def test_no_answer_is_trouble(error: Exception) -> None:
    """Refused connections, silence, and what is no HTTP."""
    with pytest.raises(UpstreamUnavailable):
        Far(error).api.put_item(BODY)


def test_the_token_is_sent_and_never_told() -> None:
    """Not even if the API repeats what it was sent, nor where the limit of a message cuts."""
    for padding in (0, 290):
        far = Far(httpx.Response(500, text="x" * padding + f"you sent Bearer {TOKEN}"))
        with pytest.raises(UpstreamUnavailable) as caught:
            far.api.put_item(BODY)
        assert far.asked[0].headers["Authorization"] == f"Bearer {TOKEN}"
        assert TOKEN[:5] not in str(caught.value)
    assert TOKEN not in repr(vars(far.api)["_shown"])


NONSENSE = [b"", b"<html>", b"[]", b'"text"', b"[" * 100_000, b"\xff\xfe", b"null", b"1e999"]


@pytest.mark.parametrize("body", NONSENSE, ids=range(len(NONSENSE)))
def test_an_answer_that_makes_no_sense_is_trouble(body: bytes) -> None:
    """No traceback, and nothing is believed."""
    for ids in (["one"], ["one", "two"]):
        with pytest.raises(UpstreamUnavailable):
            Far(httpx.Response(200, content=body)).api.revisions("hrrr", ids)


ODD: list[dict[str, Any]] = [
    {},
    {"features": None},
    {"features": {"id": "one"}},
    {"features": [None, 3, "x", []]},
    {"features": [], "links": "next"},
    {"links": [None, {"rel": "next"}, {"rel": "next", "href": 7}]},
]


@pytest.mark.parametrize("document", ODD, ids=range(len(ODD)))
def test_an_odd_answer_has_no_items(document: dict[str, Any]) -> None:
    """What is not where it should be is not there."""
    assert Far(said(200, document)).api.revisions("hrrr", ["one", "two"]) == {}
    assert list(Far(said(200, document)).api.items("hrrr")) == []


@pytest.mark.parametrize(
    ("properties", "revision"),
    [({"kfm:revision": 3}, 3), ({"kfm:revision": True}, None), ({"kfm:revision": "3"}, None), ({}, None)],
)
def test_a_revision_is_a_number(properties: Any, revision: int | None) -> None:
    """An item without a revision belongs to another client."""
    features = [{"id": "one", "properties": properties}, {"id": "two", "properties": "none"}]
    found = Far(said(200, {"features": features})).api.revisions("hrrr", ["one", "two"])
    assert found == {"one": revision, "two": None}
    assert Far(said(200, features[0])).api.revisions("hrrr", ["one"]) == {"one": revision}
    assert Far(said(404)).api.revisions("hrrr", ["one"]) == {}


def test_all_items_come_page_by_page() -> None:
    """Following links on the same host, and no page twice."""
    following = {"rel": "next", "href": "/api/collections/hrrr/items?token=2"}
    far = Far(
        said(200, {"features": [{"id": "one"}], "links": [following]}),
        said(200, {"features": [{"id": "two"}], "links": [following]}),
    )
    assert list(far.api.items("hrrr")) == [("one", None), ("two", None)]


def test_the_token_does_not_go_by_plain_http() -> None:
    """A next page keeps to the scheme of the address that was configured."""
    following = {"rel": "next", "href": "http://stac.example/api/collections/hrrr/items?token=2"}
    far = Far(said(200, {"links": [following]}), said(200, {"features": [{"id": "two"}]}))
    assert list(far.api.items("hrrr")) == [("two", None)]
    assert far.asked[1].url.scheme == "https"


@pytest.mark.parametrize("href", ["https://evil.example/api", "//evil.example/x", "http://stac.example:1/"])
def test_the_token_goes_nowhere_else(href: str) -> None:
    """A next page on another host is not asked for."""
    far = Far(said(200, {"features": [], "links": [{"rel": "next", "href": href}]}))
    with pytest.raises(UpstreamUnavailable, match="another host"):
        list(far.api.items("hrrr"))
    assert len(far.asked) == 1


def body_of(chunks: Callable[[], Iterator[bytes]]) -> httpx.Response:
    return httpx.Response(200, content=chunks())


def test_an_endless_answer_is_not_read_to_its_end() -> None:
    """Neither a large one nor a slow one."""
    far = Far()

    def large() -> Iterator[bytes]:
        while True:
            yield b" " * (ANSWER_BYTES_MAX // 4)

    def slow() -> Iterator[bytes]:
        while True:
            far.clock.sleep_ms(5_000)
            yield b" "

    far.answers = [body_of(large), body_of(slow)]
    with pytest.raises(UpstreamUnavailable, match="too large"):
        far.api.revisions("hrrr", ["one"])
    with pytest.raises(UpstreamUnavailable, match="too slowly"):
        far.api.revisions("hrrr", ["one"])
