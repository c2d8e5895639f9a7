"""An HTTP source against a server that misbehaves."""

from __future__ import annotations

import gzip
import hashlib
import json

import pytest

from kfm.model.errors import (
    AddressRefused,
    ChecksumMismatch,
    ConfigError,
    LimitExceeded,
    PathConflict,
    UpstreamUnavailable,
)
from kfm.model.settings import Limits, Pagination
from tests.integration.sources.conftest import DAY
from tests.stand_ins import FakeClock
from tests.unruly import Answer, Unruly

BODY = b"site,flow\n1,2\n" * 500
MODIFIED = "Thu, 01 Jan 2026 00:00:00 GMT"


def taken(source, found, offset=0):
    with source.open(found, offset) as download:
        return download.offset, b"".join(download.chunks())


@pytest.mark.req("RS-6")
def test_validators_identify_the_content(server: Unruly, http_source):
    """HEAD tells ETag, time and size; parameters and window are part of the address; no body is read."""
    url = server.on("/flow.csv", Answer(body=BODY, headers={"ETag": '"v1"', "Last-Modified": MODIFIED}))
    source = http_source(url, params={"start": "{window.start}", "day": "{window.start:date}"})
    [found] = source.discover(DAY)
    assert found.uri == f"{url}?start=2026-01-01T00:00:00Z&day=2026-01-01"
    assert (found.path, found.media_type, found.size) == ("flow.csv", "text/csv", len(BODY))
    assert (found.etag, found.modified_ms) == ('"v1"', DAY.start_ms)
    assert [asked.method for asked in server.asked] == ["HEAD"]
    assert taken(source, found) == (0, BODY)
    assert server.asked[-1].query == {"start": ["2026-01-01T00:00:00Z"], "day": ["2026-01-01"]}
    assert server.asked[-1].headers["accept-encoding"] == "identity"
    assert server.asked[-1].headers["user-agent"].startswith("kfm/")


@pytest.mark.req("RS-6")
@pytest.mark.parametrize("head", [Answer(405), Answer(403), Answer(404), Answer(501), Answer(body=BODY)])
def test_without_validators_the_bytes_decide(server: Unruly, http_source, head):
    """Where HEAD is refused or says nothing, the body's hash is the identity, and it comes only once."""
    url = server.on("/flow.csv", lambda asked: head if asked.method == "HEAD" else Answer(body=BODY))
    source = http_source(url)
    [found] = source.discover(DAY)
    assert found.checksum == f"sha256:{hashlib.sha256(BODY).hexdigest()}"
    assert taken(source, found, 100) == (100, BODY[100:])
    assert len(server.gets("/flow.csv")) == 1


@pytest.mark.req("RS-6", "UPD-3")
@pytest.mark.parametrize("date", [MODIFIED, "Wed, 31 Dec 2025 23:59:59 GMT"], ids=["same second", "earlier"])
def test_a_date_that_may_hold_for_two_contents_identifies_none(server: Unruly, http_source, date):
    """A file that was written in the second of the answer may be written again in it: its bytes decide, and
    the next look finds what changed. From the second after on, the date is enough."""
    times, body = {"Last-Modified": MODIFIED, "Date": date}, BODY
    url = server.on("/flow.csv", lambda asked: Answer(body=body, headers=times))
    [first] = http_source(url).discover(DAY)
    assert (first.checksum, first.modified_ms) == (f"sha256:{hashlib.sha256(BODY).hexdigest()}", None)
    body = BODY.swapcase()  # the same size, the same second
    [second] = http_source(url).discover(DAY)
    assert second.checksum != first.checksum
    times = {"Last-Modified": MODIFIED, "Date": "Thu, 01 Jan 2026 00:00:01 GMT"}
    [third] = http_source(url).discover(DAY)
    assert (third.checksum, third.modified_ms) == (None, DAY.start_ms)


def test_another_process_can_fetch_what_was_found(server: Unruly, http_source):
    """A source that did not discover an object itself can still open it."""
    url = server.on("/flow.csv", lambda asked: Answer(405 if asked.method == "HEAD" else 200, BODY))
    [found] = http_source(url).discover(DAY)
    assert taken(http_source(url), found) == (0, BODY)


@pytest.mark.req("RET-3")
def test_trouble_that_passes(server: Unruly, http_source, clock: FakeClock):
    """A server that is busy for a moment is asked again."""
    ok = Answer(body=BODY, headers={"ETag": '"v1"'})
    url = server.on("/flow.csv", [Answer(503), Answer(500), ok])
    assert http_source(url).discover(DAY)[0].etag == '"v1"'
    assert len(clock.slept) == 2


@pytest.mark.req("RET-5")
def test_retry_after(server: Unruly, http_source, clock: FakeClock):
    """A short Retry-After is waited out, a long one is handed up with the time."""
    ok = Answer(body=BODY, headers={"ETag": '"v1"'})
    url = server.on("/flow.csv", [Answer(429, headers={"Retry-After": "9"}), ok])
    http_source(url).discover(DAY)
    assert clock.slept == [9000]
    url = server.on("/flow.csv", Answer(503, headers={"Retry-After": "3600"}))
    with pytest.raises(UpstreamUnavailable) as caught:
        http_source(url).discover(DAY)
    assert caught.value.facts["not_before_ms"] == clock.now_ms() + 3_600_000
    assert clock.slept == [9000]


def test_refusals_are_final(server: Unruly, http_source, clock: FakeClock):
    """A server that says no is not asked again."""
    url = server.on("/flow.csv", Answer(403))
    with pytest.raises(UpstreamUnavailable, match="403"):
        http_source(url).discover(DAY)
    assert clock.slept == []


def test_no_content_is_nothing(server: Unruly, http_source):
    """A server that has nothing for the window is not an error."""
    url = server.on("/flow", lambda asked: Answer(405 if asked.method == "HEAD" else 204))
    assert http_source(url).discover(DAY) == []


@pytest.mark.req("UPD-16")
def test_resume_asks_for_the_rest(server: Unruly, http_source):
    """A strong ETag lets us ask for the missing part alone."""
    source = http_source(server.file("/flow.csv", BODY))
    [found] = source.discover(DAY)
    assert taken(source, found, 4000) == (4000, BODY[4000:])
    asked = server.asked[-1].headers
    assert (asked["range"], asked["if-range"]) == ("bytes=4000-", '"v1"')


@pytest.mark.parametrize("etag", ['W/"v1"', None])
def test_no_resume_without_proof(server: Unruly, http_source, etag):
    """A weak ETag or none proves nothing: the body begins anew."""
    headers = {"ETag": etag} if etag else {"Last-Modified": MODIFIED}
    source = http_source(server.on("/flow.csv", Answer(body=BODY, headers=headers)))
    [found] = source.discover(DAY)
    assert taken(source, found, 4000) == (0, BODY)
    assert "range" not in server.asked[-1].headers


def test_server_that_ignores_or_refuses_ranges(server: Unruly, http_source):
    """Whole bodies, odd ranges and 416 all end in the whole body from the start."""
    for reply in (
        Answer(416),
        Answer(206, BODY[7:], {"ETag": '"v1"', "Content-Range": f"bytes 7-{len(BODY) - 1}/{len(BODY)}"}),
        Answer(206, BODY[100:], {"ETag": '"v1"', "Content-Range": "bytes 100-199/900000"}),
        Answer(200, BODY, {"ETag": '"v1"'}),
    ):
        whole = Answer(200, BODY, {"ETag": '"v1"'})
        url = server.on("/flow.csv", lambda asked, r=reply, w=whole: r if "range" in asked.headers else w)
        source = http_source(url)
        [found] = source.discover(DAY)
        assert taken(source, found, 100) == (0, BODY)


def test_content_that_changed_is_noticed(server: Unruly, http_source):
    """Bytes of another version than was found are never taken for it."""
    for tag in ("ETag", "Last-Modified"):
        values = ('"v1"', '"v2"') if tag == "ETag" else (MODIFIED, "Fri, 02 Jan 2026 00:00:00 GMT")
        url = server.on("/flow.csv", [Answer(body=BODY, headers={tag: value}) for value in values])
        source = http_source(url)
        [found] = source.discover(DAY)
        with pytest.raises(ChecksumMismatch) as caught:
            taken(source, found)
        assert caught.value.facts == {"transient": False, "retryable": True}


@pytest.mark.parametrize(
    "reply",
    [
        Answer(body=BODY, cut_after=1000),
        Answer(body=BODY, length=len(BODY) + 5),
        Answer(body=BODY, cut_after=0),
    ],
)
def test_truncated_body(server: Unruly, http_source, reply):
    """A body that ends early is an error that may pass, never a short file."""
    reply.headers["ETag"] = '"v1"'
    source = http_source(server.on("/flow.csv", reply))
    [found] = source.discover(DAY)
    with pytest.raises(UpstreamUnavailable) as caught:
        taken(source, found)
    assert caught.value.facts["transient"] is True


def test_silence_ends_in_time(server: Unruly, http_source):
    """A server that accepts and says nothing does not hold us."""
    import threading

    release = threading.Event()
    url = server.on("/flow.csv", lambda asked: Answer(hang=release))
    source = http_source(url, limits=Limits(call_timeout_ms=50))
    from kfm.model.records import Found

    found = Found(uri=url, path="flow.csv", media_type="text/csv", etag='"v1"')
    with pytest.raises(UpstreamUnavailable) as caught:
        taken(source, found)
    release.set()
    assert caught.value.facts["cause"] == "timeout"


@pytest.mark.parametrize("head_tells", [True, False])
def test_unasked_compression_is_undone(server: Unruly, http_source, head_tells):
    """A server that compresses although asked not to: what is kept is what the body stands for."""
    packed = gzip.compress(BODY)

    def script(asked):
        headers = {"ETag": '"v1"'}
        if asked.method == "HEAD" and not head_tells:
            return Answer(headers=headers, length=None, no_length=True)
        return Answer(200, packed, {**headers, "Content-Encoding": "gzip"})

    source = http_source(server.on("/flow.csv", script))
    [found] = source.discover(DAY)
    assert found.size is None
    assert taken(source, found, 100) == (0, BODY)


def test_compressed_body_that_is_cut(server: Unruly, http_source):
    """A compressed body that ends early is noticed even where no length was announced."""
    packed = gzip.compress(BODY)[:-20]
    reply = Answer(200, packed, {"ETag": '"v1"', "Content-Encoding": "gzip"}, no_length=True)
    source = http_source(server.on("/flow.csv", reply))
    [found] = source.discover(DAY)
    with pytest.raises(UpstreamUnavailable, match="early"):
        taken(source, found)


def test_too_large_a_body(server: Unruly, http_source):
    """A body without validators is read only up to the limit, also when it was compressed to nothing."""
    bomb = gzip.compress(bytes(50_000_000))

    def script(asked):
        return (
            Answer(405) if asked.method == "HEAD" else Answer(body=bomb, headers={"Content-Encoding": "gzip"})
        )

    with pytest.raises(LimitExceeded):
        http_source(server.on("/x", script), limits=Limits(object_bytes_max=1_000_000)).discover(DAY)


# --- secrets -------------------------------------------------------------------------


def test_secrets_go_out_and_nowhere_else(server: Unruly, http_source):
    """Credentials reach the server; addresses and errors do not hold them."""
    url = server.file("/flow.csv", BODY).replace("http://", "http://reader:env:PASS@")
    source = http_source(url, params={"api_key": "env:TOKEN", "q": "x"}, headers={"X-Extra": "env:TOKEN"})
    [found] = source.discover(DAY)
    taken(source, found)
    for asked in server.asked:
        assert asked.query == {"q": ["x"], "api_key": ["s3cr3t-token"]}
        assert asked.headers["x-extra"] == "s3cr3t-token"
        assert asked.headers["authorization"] == "Basic cmVhZGVyOnMzY3IzdC1wYXNz"
    assert found.uri == server.url + "/flow.csv?q=x"
    server.on("/flow.csv", Answer(500))
    with pytest.raises(UpstreamUnavailable) as caught:
        source.discover(DAY)
    assert "s3cr3t" not in str(caught.value)


def test_header_that_can_not_be_sent(server: Unruly, http_source):
    """A secret with a line break is refused by the header's name, not quoted."""
    source = http_source(server.file("/x", BODY), headers={"X-Key": "s3cr3t\nline"})
    with pytest.raises(ConfigError) as caught:
        source.discover(DAY)
    assert "X-Key" in str(caught.value)
    assert "s3cr3t" not in str(caught.value)


# --- redirects -----------------------------------------------------------------------


def test_redirects_within_a_host(server: Unruly, http_source):
    """A redirect on the same host is followed with our credentials."""
    server.file("/new.csv", BODY)
    url = server.on("/old.csv", Answer(302, headers={"Location": "/new.csv"}))
    source = http_source(url, headers={"Authorization": "env:TOKEN"})
    [found] = source.discover(DAY)
    assert taken(source, found) == (0, BODY)
    assert server.asked[-1].headers["authorization"] == "s3cr3t-token"


def test_redirects_to_strangers_carry_nothing(server: Unruly, http_source):
    """Another host gets the request, but none of our credentials."""
    server.file("/new.csv", BODY)
    elsewhere = server.url.replace("127.0.0.1", "localhost")
    url = server.on("/old.csv", Answer(307, headers={"Location": f"{elsewhere}/new.csv"}))
    headers = {"Authorization": "env:TOKEN", "X-Api-Key": "env:TOKEN", "Cookie": "a=b"}
    source = http_source(url, headers=headers, allow=("localhost",))
    [found] = source.discover(DAY)
    assert taken(source, found, 5) == (5, BODY[5:])
    assert not {"authorization", "x-api-key", "cookie"} & set(server.asked[-1].headers)


@pytest.mark.req("TRG-8")
def test_the_address_that_answered_is_recorded(server: Unruly, http_source):
    """Where an address redirects, what was found says who answered, without the secrets of its query."""
    server.file("/new.csv", BODY)
    url = server.on("/old.csv", Answer(302, headers={"Location": "/new.csv?X-Amz-Signature=abc&day=1"}))
    [found] = http_source(url).discover(DAY)
    assert found.uri == url
    assert found.origin == f"{server.url}/new.csv?X-Amz-Signature=***&day=1"
    with http_source(url).open(found, 0) as download:
        assert download.found.origin == found.origin
    [plain] = http_source(f"{server.url}/new.csv", params={"key": "env:TOKEN"}).discover(DAY)
    assert not plain.origin
    server.on("/body", Answer(body=BODY))
    [read] = http_source(server.on("/bare", Answer(302, headers={"Location": "/body"}))).discover(DAY)
    assert read.origin == f"{server.url}/body"


@pytest.mark.req("UPD-16")
def test_a_redirect_to_another_private_host_is_refused(server: Unruly, http_source):
    """What is inside a network is not published because upstream says so."""
    elsewhere = server.url.replace("127.0.0.1", "127.0.0.2")
    url = server.on("/old.csv", Answer(302, headers={"Location": f"{elsewhere}/iam"}))
    with pytest.raises(AddressRefused, match=r"redirects to 127\.0\.0\.2"):
        http_source(url).discover(DAY)


@pytest.mark.parametrize("location", ["/loop", "ftp://127.0.0.1/x", "file:///etc/passwd", "http://[bad"])
def test_bad_redirects(server: Unruly, http_source, location):
    """Circles and other schemes are refused."""
    url = server.on("/loop", Answer(302, headers={"Location": location}))
    with pytest.raises(UpstreamUnavailable, match="redirects"):
        http_source(url).discover(DAY)


# --- pages ---------------------------------------------------------------------------


def pages_of(server: Unruly, count: int, style: str):
    def script(asked):
        number = int(asked.query.get("page", ["1"])[0])
        items = [{"id": number}] if number <= count else []
        onward = f"/items?page={number + 1}" if number < count else None
        headers = {"Link": f'</items?page=1>; rel="first", <{onward}>; rel="next"'} if onward else {}
        body = {"items": items, "links": {"next": onward}}
        return Answer(body=json.dumps(body).encode(), headers=headers if style == "link-header" else {})

    return server.on("/items", script)


@pytest.mark.parametrize(
    "pagination",
    [
        Pagination(style="link-header"),
        Pagination(style="json-next", next_pointer="/links/next"),
        Pagination(style="page-number", items_pointer="/items"),
    ],
)
def test_pages(server: Unruly, http_source, pagination):
    """Every style walks all pages once, each page is one object, and none is read twice."""
    source = http_source(pages_of(server, 3, pagination.style), pagination=pagination)
    found = source.discover(DAY)
    assert [one.path for one in found] == ["items-0001", "items-0002", "items-0003"]
    asked = len(server.asked)
    bodies = [json.loads(taken(source, one)[1]) for one in found]
    assert [body["items"][0]["id"] for body in bodies] == [1, 2, 3]
    assert len(server.asked) == asked
    assert len({one.uri for one in found}) == 3


def test_offset_pages(server: Unruly, http_source):
    """Offsets begin at zero and step by the page's size, until a page is empty."""

    def script(asked):
        assert asked.query["limit"] == ["2"]
        items = ["a", "b", "c"][int(asked.query["offset"][0]) :][:2]
        return Answer(body=json.dumps(items).encode(), headers={"Content-Type": "application/json"})

    pagination = Pagination(style="offset", parameter="offset", page_size=2, size_parameter="limit")
    source = http_source(server.on("/items", script), pagination=pagination)
    found = source.discover(DAY)
    assert [json.loads(taken(source, one)[1]) for one in found] == [["a", "b"], ["c"]]
    assert [one.path for one in found] == ["items-0001.json", "items-0002.json"]


def test_masked_cursors_stay_apart(server: Unruly, http_source):
    """A cursor that looks like a secret is masked in the address, and the page can still be fetched."""

    def script(asked):
        token = asked.query.get("token", ["0"])[0]
        onward = {"next": f"/items?token={int(token) + 1}"} if token != "2" else {}
        return Answer(body=json.dumps({"n": token, **onward}).encode())

    source = http_source(server.on("/items", script), pagination=Pagination(style="json-next"))
    source._spool._bytes_max = 0
    found = source.discover(DAY)
    assert "token=***#page=2" in found[1].uri
    assert [json.loads(taken(source, one)[1])["n"] for one in found] == ["0", "1", "2"]


@pytest.mark.parametrize("style", ["link-header", "json-next", "page-number"])
def test_endless_pages(server: Unruly, http_source, style):
    """A server that always has one more page is stopped by the limit."""
    pagination = Pagination(style=style, next_pointer="/links/next", items_pointer="/items", pages_max=5)
    with pytest.raises(LimitExceeded, match="pages"):
        http_source(pages_of(server, 10**9, style), pagination=pagination).discover(DAY)
    assert len(server.asked) <= 6


def test_pages_that_go_round(server: Unruly, http_source):
    """A next link that leads back, and a server that ignores the page number, are found out."""
    url = server.on("/items", Answer(body=b'{"next": "/items", "items": [1]}'))
    with pytest.raises(LimitExceeded, match="circle"):
        http_source(url, pagination=Pagination(style="json-next")).discover(DAY)
    with pytest.raises(LimitExceeded, match="circle"):
        http_source(url, pagination=Pagination(style="page-number", items_pointer="/items")).discover(DAY)
    assert len(server.asked) < 8


@pytest.mark.parametrize("link", ["http://elsewhere.example/items", "file:///etc/passwd", "http://[", 7])
def test_pages_stay_on_their_host(server: Unruly, http_source, link):
    """A next link to a stranger is refused: our credentials would go with it."""
    url = server.on("/items", Answer(body=json.dumps({"next": link}).encode()))
    with pytest.raises(UpstreamUnavailable):
        http_source(url, pagination=Pagination(style="json-next")).discover(DAY)


@pytest.mark.parametrize("body", [b"<html>", b"[" * 100_000, b'{"items": 5}', b""])
def test_pages_that_are_no_pages(server: Unruly, http_source, body):
    """Whatever comes instead of a page is refused plainly."""
    url = server.on("/items", Answer(body=body))
    with pytest.raises(UpstreamUnavailable):
        http_source(url, pagination=Pagination(style="page-number", items_pointer="/items")).discover(DAY)


def test_busy_page_is_asked_again_alone(server: Unruly, http_source):
    """Trouble on one page does not begin the walk anew."""
    busy = [Answer(503)]
    url = pages_of(server, 3, "link-header")
    script = server.scripts["/items"]
    server.on(
        "/items", lambda asked: busy.pop() if busy and asked.query.get("page") == ["2"] else script(asked)
    )
    assert len(http_source(url, pagination=Pagination(style="link-header")).discover(DAY)) == 3
    assert len(server.asked) == 4


def test_pages_need_different_paths(server: Unruly, http_source):
    """A path template without the page's name is refused with the remedy."""
    url = pages_of(server, 2, "link-header")
    with pytest.raises(PathConflict) as caught:
        http_source(
            url, pagination=Pagination(style="link-header"), path="{window.start:date}.json"
        ).discover(DAY)
    assert "{name}" in caught.value.way_out
