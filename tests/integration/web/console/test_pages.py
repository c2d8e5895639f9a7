"""What every page of the console promises, whatever the ledger holds."""

from __future__ import annotations

import json
import re
from hashlib import sha256
from importlib import resources

import pytest

from kfm.web.console.pages import HEADERS
from kfm.web.console.static_files import CHART_SCRIPTS, SCRIPTS, static_files
from tests.browser.filled import HOSTILE, SECRET, Filled
from tests.integration.web.console.reading import Reader

KNOWN_TAGS = set(
    "html head meta title link body a header div p b span nav ul ol li main section h1 h2 h3 table caption "
    "h4 del ins figure figcaption "
    "thead tbody tr th td time code pre details summary dl dt dd form label select option input button "
    "footer svg desc g rect path text line circle strong abbr br script noscript dialog kbd small "
    "defs marker textarea".split()
)


OURS, WITH_CHART = (
    [static_files()[name].integrity for name in scripts] for scripts in (SCRIPTS, CHART_SCRIPTS)
)


@pytest.mark.req("REL-4")
def test_every_page_answers_and_is_well_formed(reader: Reader, filled: Filled) -> None:
    """Each page of each thing is there, every tag is closed, and there is one first heading."""
    for path in filled.paths:
        status = 404 if path.startswith("no-") else 400 if "odd" in path else 200
        page = reader.page(path, status)
        assert (page.odd, page.open) == ([], []), path
        assert [tag for tag, _ in page.tags].count("h1") == 1, path
        assert {tag for tag, _ in page.tags} <= KNOWN_TAGS, path


@pytest.mark.req("TRG-9")
def test_nothing_from_the_records_becomes_markup(reader: Reader, filled: Filled) -> None:
    """No text of a record makes an element, an attribute or an address, and none moves the text around it."""
    seen = 0
    for path in filled.paths:
        answer = reader.ask(path)
        page = reader.page(path, answer.status_code)
        scripts = [attributes for tag, attributes in page.tags if tag == "script"]
        assert [each["integrity"] for each in scripts] == (
            WITH_CHART if path.endswith("tab=trend") else OURS
        ), path
        for tag, attributes in page.tags:
            assert tag not in ("iframe", "object", "embed", "base", "img"), path
            assert not any(name.startswith("on") or name == "style" for name in attributes), (
                path,
                attributes,
            )
        for href in page.links():
            assert re.match(r"/console/|#", href), (path, href)
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069]", answer.text), path
        seen += page.text.count("<script>document.title='owned'</script>")
        assert "49" not in re.findall(r"onerror=alert\(1\)>(\d+)", page.text), path
    assert seen > 20  # it is all there, as text


def test_what_is_not_printed_is_made_visible(reader: Reader) -> None:
    """Text that would turn round, or a control sequence, shows as the number of its character."""
    text = reader.page("audit").text
    assert "⟨001B⟩[31mred⟨202E⟩gnp.exe⟨2066⟩" in text


def test_headers_allow_nothing_but_our_own_files(reader: Reader, filled: Filled) -> None:
    """Every answer, also a refusal, forbids foreign and inline scripts, frames and keeping."""
    for path in (*filled.paths, "sign-in"):
        answer = reader.ask(path)
        for name, value in HEADERS.items():
            assert answer.headers[name] == value, (path, name)
    policy = HEADERS["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
    assert "connect-src 'self';" in policy
    assert "unsafe" not in policy


def test_the_style_is_ours_and_may_be_kept(reader: Reader) -> None:
    """The one sheet has a name that changes with it, and asks for nothing elsewhere."""
    page = reader.page("")
    (style,) = [attrs["href"] for tag, attrs in page.tags if tag == "link" and attrs["rel"] == "stylesheet"]
    answer = reader.ask(f"http://127.0.0.1{style}")
    assert answer.headers["content-type"].startswith("text/css")
    assert "immutable" in answer.headers["cache-control"]
    assert not re.search(r"url\(|@import|http", answer.text)


def test_scripts_are_what_was_vendored_and_small() -> None:
    """Foreign scripts are to the byte what `vendored.json` says; all of a page are below 100 kB, and all that
    there are below 50 kB as they are sent."""
    folder = resources.files("kfm.web.console").joinpath("static", "vendor")
    vendored = json.loads(folder.joinpath("vendored.json").read_bytes())
    every = (*SCRIPTS, *CHART_SCRIPTS)
    assert {f"vendor/{name}" for name in vendored} == {name for name in every if "/" in name}
    for name, origin in vendored.items():
        assert sha256(folder.joinpath(name).read_bytes()).hexdigest() == origin["sha256"], name
    files = static_files()
    for scripts in (SCRIPTS, CHART_SCRIPTS):
        assert sum(len(files[name].data) for name in scripts) <= 100_000
    assert (
        sum(len(files[name].packed) for name in set(every)) <= 50_000
    )  # all that there are, as they are sent


def test_pages_are_only_read(reader: Reader, filled: Filled) -> None:
    """Nothing but reading is answered, but of forms; and reading leaves the ledger as it was."""
    with filled.context.reader() as ledger:
        before = ledger.chain_head(), ledger.policy_epoch(), len(ledger.runs(limit=1000))
    for path in filled.paths:
        for method in ("POST", "PUT", "PATCH", "DELETE")[path.startswith("do/") :]:
            assert reader.ask(path, method).status_code == 405, (method, path)
        reader.ask(path)
    with filled.context.reader() as ledger:
        assert (ledger.chain_head(), ledger.policy_epoch(), len(ledger.runs(limit=1000))) == before


def test_known_secrets_are_not_shown(filled: Filled) -> None:
    """What the process knows to be a secret is masked, wherever it was written."""
    reader = Reader(filled.context, hide=lambda text: text.replace("document", SECRET[:2] + "***"))
    for path in filled.paths:
        assert "document.title" not in reader.ask(path).text, path


def test_a_trouble_inside_tells_nothing(filled: Filled, caplog: pytest.LogCaptureFixture) -> None:
    """An unexpected error is a page that says so; its details are logged only."""

    def fail(_text: str) -> str:
        raise RuntimeError(f"inside: {HOSTILE}")

    answer = Reader(filled.context, hide=fail).ask("runs")
    assert answer.status_code == 500
    assert "inside" not in answer.text
    assert "RuntimeError" in caplog.text


def test_links_follow_where_the_console_is_mounted(filled: Filled) -> None:
    """Behind a prefix every address on a page has it, and so has the style."""
    import asyncio

    import httpx
    from starlette.applications import Starlette
    from starlette.routing import Mount

    from kfm.web.console.pages import console_app
    from tests.integration.web.console.reading import Parsed

    app = Starlette(routes=[Mount("/deep", app=console_app(filled.context))])

    async def asked() -> str:
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url="http://127.0.0.1"
        ) as client:
            return (await client.get("/deep/console/runs")).text

    page = Parsed(asyncio.run(asked()))
    assert all(link.startswith(("/deep/console/", "#")) for link in page.links())
    styles = [attrs["href"] for tag, attrs in page.tags if tag == "link" and attrs["rel"] == "stylesheet"]
    assert str(styles[0]).startswith("/deep/console/static/")
