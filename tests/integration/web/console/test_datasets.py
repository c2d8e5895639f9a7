"""The pages of datasets say what the commands and the API say, and what to do about it."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from kfm.config.loader import load
from kfm.datasets import changes
from kfm.model.completeness import WINDOW_STATES
from kfm.model.records import Justification
from kfm.service.dataset_changes import make_change
from kfm.web.api.routes import api_app
from kfm.web.request_context import WebContext
from tests.browser.filled import DAY_MS, LAKE_DAYS, Filled, day_of
from tests.integration.web.api.test_reads import FEEDS
from tests.integration.web.api.world import World
from tests.integration.web.console.reading import Reader

pytestmark = pytest.mark.req("DAT-1")


def asked(filled: Filled, path: str) -> Any:
    """The same over the API."""
    import asyncio

    import httpx

    async def answered() -> Any:
        transport = httpx.ASGITransport(api_app(filled.context))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return (await client.get(f"/api/v1{path}")).json()

    return asyncio.run(answered())


def rows(reader: Reader, path: str, heading: str) -> list[list[str]]:
    """The cells of the table under a heading."""
    text = reader.ask(path).text
    section = text[text.index(f'id="{heading}"') :]
    body = section[section.index("<tbody>") : section.index("</tbody>")]
    strip = re.compile(r"<[^>]+>")
    return [
        [" ".join(strip.sub(" ", cell).split()) for cell in re.split(r"</t[dh]>", row)[:-1]]
        for row in body.split("</tr>")[:-1]
    ]


def parsed(words: list[str]) -> None:
    """Raises where the command line would not take these words."""
    import click

    from kfm.cli.command_line import kfm

    context, chosen = click.Context(kfm, info_name="kfm"), kfm
    while isinstance(chosen, click.Group):
        name, found, words = chosen.resolve_command(context, words)
        assert found is not None
        context, chosen = click.Context(found, parent=context, info_name=name), found  # type: ignore[assignment]
    chosen.make_context("kfm", list(words), parent=context.parent)


def states(filled: Filled) -> dict[str, str]:
    found = asked(filled, "/datasets/lakes/coverage?limit=1000")
    return {one["window_start"][:10]: one["state"] for one in found["windows"]}


def test_one_verdict_in_page_api_and_command(
    reader: Reader, filled: Filled, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every window has the same state in all of them, the dataset the same health, and counts equal lists."""
    import msgspec

    from kfm.cli import main

    with pytest.raises(SystemExit):
        main(["coverage", "lakes", "--json", "-c", str(filled.folder / "kfm.yml")])
    printed = msgspec.json.decode(capsys.readouterr().out)
    known = states(filled)
    assert {one["window_start"][:10]: one["state"] for one in printed["windows"]} == known
    assert len(known) == LAKE_DAYS
    listed = {cells[0][:10]: cells[1].split()[-1] for cells in rows(reader, "datasets/lakes", "windows")}
    assert listed == known
    page = reader.page("datasets/lakes").text
    assert f"Dataset lakes ~ {printed['health']['state']}" in page
    for state in WINDOW_STATES:
        count = list(known.values()).count(state)
        assert (f"{count} {state}" in page) == bool(count), state
        if count:
            assert len(rows(reader, f"datasets/lakes?state={state}", "windows")) == count
    overview = rows(reader, "", "datasets")
    assert [cells[1].split()[-1] for cells in overview if cells[0] == "lakes"] == ["incomplete"]
    lines = rows(reader, "datasets", "main")
    assert [cells[1].split()[-1] for cells in lines if cells[0] == "lakes"] == ["incomplete"]


def test_each_open_window_has_a_command_that_is_accepted(reader: Reader, filled: Filled) -> None:
    """What is missing, dismissed or withdrawn is named with what a person does about it; each command is one
    that the parser takes, and the one for a window means that window."""
    found = {cells[0][:10]: cells[6] for cells in rows(reader, "datasets/lakes", "windows")}
    known = states(filled)
    start = {state: day for day, state in known.items()}
    assert found[start["missing"]].startswith(f"kfm run --source lake --window {start['missing']}T00:00:00Z/")
    assert "--lift" in found[start["withdrawn"]]
    assert "--undo" in found[start["dismissed"]]
    assert found[start["published"]] == "–"
    acted = rows(reader, "datasets/lakes", "open")
    assert {cells[0][:10] for cells in acted} == {day for day, state in known.items() if state == "missing"}
    text = reader.ask("datasets/lakes").text
    commands = set(re.findall(r'<code class="command">([^<]+)</code>', text))
    assert len(commands) > 8
    for command in commands:
        words = shlex.split(command)
        assert words.pop(0) == "kfm"
        parsed(words)


def test_a_day_that_is_chosen_is_shown(reader: Reader, filled: Filled) -> None:
    """The span begins where it is asked to, and earlier and later lead on."""
    first = day_of(filled.first_ms + DAY_MS)
    page = reader.page(f"datasets/lakes?from={first}&days=7")
    assert f"Every window from {first} to {day_of(filled.first_ms + 7 * DAY_MS)}" in page.text
    assert any("from=" in link for link in page.links())
    assert reader.ask("datasets/lakes?from=yesterday").status_code == 400
    assert reader.ask("datasets/lakes?state=odd").status_code == 400
    assert reader.ask("datasets/unknown").status_code == 404
    assert "/console/datasets/lakes" in reader.page("").links()


@pytest.mark.req("DAT-5")
def test_a_dataset_that_ended_says_so(tmp_path: Path) -> None:
    """Its page names the end, the reason and the command that lifts it, and asks for nothing; also when it
    has left the configuration."""
    world = World(tmp_path / "project", people=False).past()
    app = world.opened()
    by = Justification(actor="ann", rationale="the gauge was removed")
    ended = make_change(app, lambda kernel: changes.plan_withdrawal(kernel, "rivers", retires=True), by, None)
    app.close()
    assert ended.change is not None
    path = world.folder / "kfm.yml"
    declared = path.read_text()
    without = declared.replace("- id: rivers", "- id: other").replace("dataset: rivers", "dataset: other")
    for text in (declared, without):
        path.write_text(text)
        reader = Reader(WebContext(load(str(path))))
        page = reader.page("datasets/rivers").text
        assert "Dataset rivers † retired" in page
        assert "the gauge was removed" in page
        assert "kfm withdraw rivers --lift --yes --rationale TEXT" in page
        assert "kfm run --missing" not in page
        assert "/console/datasets/rivers" in reader.page("").links()


def test_a_feed_has_its_page(tmp_path: Path) -> None:
    """Each hour of each product is a window: its page is led to, and its commands are ones that are taken."""
    world = World(tmp_path / "project", people=False)
    path = world.folder / "kfm.yml"
    path.write_text(path.read_text() + FEEDS)
    world.loaded = load(str(path))
    world.opened().close()
    reader = Reader(WebContext(world.loaded))
    assert "/console/datasets/goes-abi" in reader.page("").links()
    assert "goes-abi" in reader.page("datasets").text
    page = reader.page("datasets/goes-abi")
    assert "goes-abi ABI-L2-MCMIPC GOES-19" in page.text
    assert "kfm run --missing" not in page.text
    commands = set(re.findall(r'<code class="command">([^<]+)</code>', reader.ask("datasets/goes-abi").text))
    assert any(one.startswith("kfm dismiss goes-abi ") for one in commands)
    for command in commands:
        parsed(shlex.split(command)[1:])
