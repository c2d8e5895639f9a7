"""Pages of feeds: every number has its list, every cell its objects, and a unit what belongs to it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from kfm.model.feeds import HOUR_MS
from kfm.model.times import rfc3339
from tests.integration.web.announced import (
    DEAD,
    EXPECTED,
    FEED,
    FORMER,
    HOURS,
    PER_HOUR,
    PRODUCT,
    Announced,
    announced_project,
)
from tests.integration.web.api.world import TOKENS
from tests.integration.web.console.reading import Parsed, Reader


@pytest.fixture(scope="module")
def announced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Announced]:
    with announced_project(tmp_path_factory.mktemp("feeds") / "project") as made:
        yield made


def signed_in(announced: Announced, who: str) -> Reader:
    reader = Reader(announced.context)
    reader.ask("sign-in", "POST", data={"token": TOKENS[who]})
    return reader


@pytest.fixture
def reader(announced: Announced) -> Reader:
    return signed_in(announced, "ann")


def path_of(href: str) -> str:
    return href.removeprefix("/console/")


def rows(page: Parsed) -> int:
    """Rows of the list of a page."""
    return sum(1 for tag, attrs in page.tags if tag == "th" and attrs.get("scope") == "row")


def cells(page: Parsed) -> list[dict[str, str | None]]:
    return [attrs for tag, attrs in page.tags if tag == "td" and "data-from" in attrs]


def test_every_number_of_the_list_leads_to_as_many_rows(reader: Reader) -> None:
    """Backlog, failed, quarantined, causes and dead messages: what is counted is what is listed."""
    for path in ("feeds", f"feeds/{FEED}"):
        answer = reader.ask(path).text
        found = re.findall(r'<a href="/console/((?:units|messages)\?[^"]*)"[^>]*>([\d,]+)</a>', answer)
        assert len(found) >= 5
        for href, count in found:
            page = reader.page(href.replace("&amp;", "&"))
            assert rows(page) == int(count.replace(",", "")), href
    text = reader.page("feeds").text
    total = HOURS * PER_HOUR - PER_HOUR
    assert f"{total - FORMER} of {EXPECTED}" in text
    assert "failing" in text


def test_each_cell_says_its_state_and_leads_to_its_objects(reader: Reader, announced: Announced) -> None:
    """Sign, colour and words; attributes for what selects; a list of exactly these objects behind it."""
    answer = reader.ask(f"feeds/{FEED}").text
    page = Parsed(answer)
    found = cells(page)
    states = {str(one["data-from"]): one["data-state"] for one in found}
    hours = [rfc3339(announced.first_ms + hour * HOUR_MS) for hour in range(HOURS)]
    assert states[hours[0]] == "quarantined"
    assert [states[hour] for hour in hours[1:]] == ["published"] * (HOURS - 3) + ["overdue", "published"]
    assert {(one["data-dataset"], one["data-product"]) for one in found} == {(FEED, PRODUCT)}
    links = [
        (str(attrs["href"]), str(attrs["title"]))
        for tag, attrs in page.tags
        if tag == "a" and "arrived" in str(attrs.get("title"))
    ]
    assert len(links) == len(found)
    for href, title in links:
        listed = reader.page(path_of(href))
        counts = sum(map(int, re.findall(r"(\d+) (?:of \d+ arrived|failed|quarantined|waiting for)", title)))
        assert rows(listed) == counts, title
    assert f"of {PER_HOUR} arrived" in links[0][1]
    assert len(answer.encode()) < 100_000


def test_a_page_without_an_expectation_shows_what_came(announced: Announced, tmp_path: Path) -> None:
    """A dataset that no configuration expects has hours, backlog and causes all the same."""
    from kfm.config.loader import load
    from kfm.web.request_context import WebContext

    text = (announced.folder / "kfm.yml").read_text()
    other = announced.folder / "unexpected.yml"
    other.write_text(re.sub(r"  feeds:\n    - .*\n", "", text))
    reader = Reader(WebContext(load(str(other))))
    reader.ask("sign-in", "POST", data={"token": TOKENS["ann"]})
    assert "not expected" in reader.page("feeds").text
    found = {str(one["data-state"]) for one in cells(reader.page(f"feeds/{FEED}"))}
    assert found == {"failed", "published"}


def test_failures_say_whether_they_heal_and_what_can_be_done(reader: Reader) -> None:
    """A retry needs no person; what was given up comes back by the command that is printed, which is one."""
    from kfm.cli.command_line import kfm

    page = reader.page(f"feeds/{FEED}")
    assert "tried again by itself" in page.text
    assert "comes back by a repair, which a second person approves" in page.text
    commands = [one for one in page.commands() if one.startswith("kfm replay")]
    assert len(commands) == 2
    for command in commands:
        words = command.split()[1:]
        name, found, rest = kfm.resolve_command(None, words)  # type: ignore[arg-type]
        assert name == "replay"
        context = found.make_context("replay", [*rest[:1], "--help"], resilient_parsing=True)  # type: ignore[union-attr]
        _, run, more = found.resolve_command(context, rest)  # type: ignore[union-attr]
        run.make_context("run", more, parent=context, resilient_parsing=False)


def test_a_unit_shows_what_belongs_to_it_and_one_next_step(reader: Reader, announced: Announced) -> None:
    """Feed, quarantine entry, incident and queue are linked; its history is told; one command is next."""
    answer = reader.ask(f"units/{announced.failed}").text
    page = Parsed(answer)
    links = [path_of(one) for one in page.links()]
    for start in (f"feeds/{FEED}", "held/", "incidents/", "messages?queue=noaa"):
        (found, *_) = [one for one in links if one.startswith(start)] or [None]
        assert found, start
        reader.page(found)
    assert "OBJECT_MISSING" in page.text
    assert answer.count('id="next-title"') == 1
    assert f"kfm replay run --unit {announced.failed} --mode failed-only" in answer
    assert "nothing is to be done" in reader.page(f"units/{announced.retried}").text


def test_old_addresses_of_units_go_on_working(reader: Reader) -> None:
    """Lists are read on behind the last row; an address with a number of a page leads to the newest."""
    for path in ("units", "units?page=3", f"units?dataset={FEED}&status=failed&error=OBJECT_MISSING"):
        assert rows(reader.page(path)) > 0


@pytest.mark.parametrize(
    "path",
    [
        f"feeds/{FEED}?last=a+year",
        f"feeds/{FEED}?from=yesterday",
        f"feeds/{FEED}?from=2026-11-02&to=2026-11-01",
        f"feeds/{FEED}?rows=-1",
        f"feeds/{FEED}?rows=²",
        "feeds?page=0",
        "units?before=03a",
        "units?status=lost",
        "units?product=x",
        "units?standing=there",
        "messages?state=dead",
        "messages?before=1.x",
    ],
)
def test_nonsense_is_refused_with_a_reason(reader: Reader, path: str) -> None:
    """No filter is dropped without a word, and nothing ends in an error of ours."""
    assert reader.ask(path).status_code == 400, path


def test_what_is_not_there(reader: Reader) -> None:
    """A feed or a message that is not on record is not found; a span before everything is empty."""
    for path in (
        "feeds/nothing",
        "feeds/%3Cb%3E",
        "messages/ffff",
        "units/0000000000000-00000000000000000000",
    ):
        assert reader.ask(path).status_code == 404, path
    for span in (
        "from=0001-01-01",
        "from=9999-12-31",
        "from=2026-01-01&to=2027-01-01",
        "last=all",
    ):
        page = reader.page(f"feeds/{FEED}?{span}")
        for link in page.links():
            if "from=" in link and f"/feeds/{FEED}" in link:
                reader.page(path_of(link))
    assert (
        "No object of these hours is known" in reader.page(f"feeds/{FEED}?from=2020-01-01&to=2020-01-02").text
    )


def test_every_offer_of_a_feed_is_a_form(reader: Reader) -> None:
    """What its pages offer can be opened, and says what it is about."""
    for path in (f"feeds/{FEED}", f"messages/{DEAD}"):
        offers = [path_of(one) for one in reader.page(path).links() if "/do/" in one]
        assert offers
        for one in offers:
            assert any(command.startswith("kfm ") for command in reader.page(one).commands()), one


def test_a_dead_message_is_released_once(announced: Announced) -> None:
    """Its page offers the release to whom may operate, and it leaves the list; readers are told who could."""
    reader = signed_in(announced, "cy")
    assert "needs the role operate" in reader.page(f"messages/{DEAD[:12]}").text
    operator = signed_in(announced, "ann")
    page = operator.page(f"messages/{DEAD}")
    assert rows(operator.page("messages")) == 1
    form = operator.page(path_of(next(one for one in page.links() if "releaseDeadMessage" in one)))
    data = {
        str(attrs["name"]): str(attrs.get("value") or "")
        for tag, attrs in form.tags
        if tag == "input" and attrs.get("name") and attrs.get("name") != "q"
    }
    done = operator.ask("do/releaseDeadMessage", "POST", data={**data, "rationale": "the sender is told"})
    assert (done.status_code, "1 record released" in done.text) == (200, True), done.text
    again = operator.ask("do/releaseDeadMessage", "POST", data={**data, "rationale": "the sender is told"})
    assert "1 record released" in again.text
    assert rows(operator.page("messages")) == 0
    assert rows(operator.page("messages?state=any")) == 1
    assert len(announced.entries("dead-message-release")) == 1
