"""What came from a reference goes out with the request and is found nowhere else."""

from __future__ import annotations

import json
import threading
from functools import partial
from urllib.parse import quote, quote_plus

import pytest

from kfm.calls.guard import guarded, retry_text
from kfm.model.errors import ConfigError, KfmError
from kfm.model.records import Found
from kfm.model.settings import Limits, Pagination, SourceSettings
from kfm.sources.http import HttpSource
from tests.integration.sources.conftest import DAY
from tests.stand_ins import FixedRng
from tests.unruly import Answer, Unruly

APPID = "Plain words/42+ä"
CLIENT = "harmless-looking-client"
SECRETS = {"env:APPID": APPID, "env:CLIENT": CLIENT, "env:PASS": "open sesame"}
FORMS = (
    *(form for secret in SECRETS.values() for form in (secret, quote(secret), quote(secret, safe=""))),
    quote_plus(APPID),
    quote(APPID, safe=":,/"),
    quote(APPID, safe="").lower(),
    repr(APPID)[1:-1],
)
BODY = b"site,flow\n1,2\n" * 500


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def source(http, clock, said):
    """Its parameter and header have names that no rule would take for a secret's."""

    def make(url: str, **settings) -> HttpSource:
        guard = partial(
            guarded,
            clock=clock,
            rng=FixedRng(),
            timeout_ms=100,
            on_retry=lambda retrying: said.append(retry_text(retrying)),
        )
        plain = SourceSettings(
            id="src",
            dataset="ds",
            kind="http",
            url=url.replace("http://", "http://reader:env:PASS@"),
            mode="replace",
            **{
                "params": {"appid": "env:APPID"},
                "headers": {"X-Client": "env:CLIENT", "appid": "x"},
                **settings,
            },
        )
        limits = Limits(call_timeout_ms=100)
        return HttpSource(plain, http, guard, lambda value: SECRETS.get(value, value), limits, clock)

    return make


def everything(error: KfmError, said: list[str]) -> str:
    return "\n".join(
        [error.message, error.way_out, repr(error.facts), *getattr(error, "__notes__", []), *said]
    )


def discovered(source, url, said) -> str:
    with pytest.raises(KfmError) as caught:
        source(url).discover(DAY)
    return everything(caught.value, said)


def fetched(source, url, said) -> str:
    found = Found(uri=url, path="flow.csv", media_type="text/csv", etag='"v1"')
    with pytest.raises(KfmError) as caught, source(url).open(found, 0) as download:
        b"".join(download.chunks())
    return everything(caught.value, said)


def silent(text: str) -> bool:
    return not [form for form in FORMS if form in text]


@pytest.mark.parametrize("ask", [discovered, fetched])
@pytest.mark.parametrize(
    "answer",
    [
        Answer(404),
        Answer(403),
        Answer(503),
        Answer(302, headers={"Location": "/flow.csv"}),
        Answer(302, headers={"Location": f"/flow.csv?id={quote(APPID, safe='')}"}),
        Answer(302, headers={"Location": "ftp://127.0.0.1/x"}),
        Answer(302, headers={"Location": f"http://127.0.0.1:1/{quote(APPID)}"}),
        Answer(body=BODY, cut_after=1000),
        Answer(body=BODY, length=len(BODY) + 5),
        Answer(body=BODY, headers={"Content-Encoding": "gzip"}),
    ],
    ids=["404", "403", "503", "circle", "echo", "ftp", "elsewhere", "cut", "short", "damaged"],
)
def test_answers_that_are_errors(server: Unruly, source, said, ask, answer):
    """Refusals, redirects and cut bodies are told without the values that were sent."""
    url = server.on("/flow.csv", answer)
    assert silent(ask(source, url, said))
    assert server.asked[0].query["appid"] == [APPID]
    assert server.asked[0].headers["x-client"] == CLIENT


@pytest.mark.parametrize("ask", [discovered, fetched])
def test_a_server_that_does_not_answer(source, said, ask):
    """A refused connection is told without the values that would have been sent."""
    text = ask(source, "http://127.0.0.1:1/flow.csv", said)
    assert "http://127.0.0.1:1/flow.csv" in text
    assert silent(text)


@pytest.mark.parametrize("ask", [discovered, fetched])
def test_silence(server: Unruly, source, said, ask):
    """A timeout is told without the values that were sent."""
    release = threading.Event()
    url = server.on("/flow.csv", lambda asked: Answer(hang=release))
    try:
        assert silent(ask(source, url, said))
    finally:
        release.set()


def test_servers_that_repeat_them(server: Unruly, source, said):
    """A next link that holds our values in other places is masked where it is shown, and still followed."""

    def script(asked):
        number = int(asked.query.get("n", ["1"])[0])
        onward = f"/items?n={number + 1}&for={quote(APPID, safe='')}&by={CLIENT}"
        body = {"n": number, "next": onward if number < 3 else None}
        return Answer(body=json.dumps(body).encode())

    made = source(server.on("/items", script), pagination=Pagination(style="json-next"))
    made._spool._bytes_max = 0
    found = made.discover(DAY)
    assert silent("\n".join(repr(one) for one in found))
    for number, one in enumerate(found, 1):
        with made.open(one, 0) as download:
            assert json.loads(b"".join(download.chunks()))["n"] == number
    assert server.asked[-1].query["for"] == [APPID]
    elsewhere = {"next": f"http://elsewhere.example/{quote(APPID)}"}
    url = server.on("/items", Answer(body=json.dumps(elsewhere).encode()))
    with pytest.raises(KfmError, match="another host") as caught:
        source(url, pagination=Pagination(style="json-next")).discover(DAY)
    assert silent(everything(caught.value, said))


def test_header_with_blanks_around_it(server: Unruly, source, said, monkeypatch):
    """A value that the protocol refuses is refused by its name before anybody can quote it."""
    monkeypatch.setitem(SECRETS, "env:CLIENT", f"{CLIENT} ")
    with pytest.raises(ConfigError, match="X-Client") as caught:
        source(server.file("/flow.csv", BODY)).discover(DAY)
    assert silent(everything(caught.value, said))
