"""Pages of the world that is looked at: one next step everywhere, and no link that leads nowhere."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import httpx
import pytest

from kfm.cli import main
from kfm.config.loader import load
from kfm.model.records import Run
from kfm.web.api.routes import api_app
from kfm.web.request_context import WebContext
from tests.integration.web.api.world import BASE
from tests.integration.web.console.reading import Reader
from tests.world.keeping import copied_world, looking_at
from tests.world.story import TOKENS


class Looked:
    """The console and the commands over one world, at its last moment."""

    def __init__(self, folder: Path) -> None:
        self.context = WebContext(load(str(folder / "kfm.yml")))
        self.reader = Reader(self.context)
        self.reader.ask("sign-in", "POST", data={"token": TOKENS["bob"]})

    def kfm(self, *words: str) -> str:
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
            main([*words])
        return out.getvalue()

    def api(self, path: str) -> Any:
        async def asked() -> Any:
            transport = httpx.ASGITransport(api_app(self.context))
            bearer = {"Authorization": f"Bearer {TOKENS['bob']}"}
            async with httpx.AsyncClient(transport=transport, base_url=BASE, headers=bearer) as client:
                return (await client.get(f"{BASE}{path}")).json()

        return asyncio.run(asked())

    def failed(self) -> list[Run]:
        with self.context.reader() as ledger:
            return ledger.runs(status="failed", limit=1000)


@pytest.fixture(scope="module")
def looked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Looked]:
    folder = copied_world(tmp_path_factory.mktemp("world") / "world")
    with looking_at(folder):
        yield Looked(folder)


def test_a_failed_run_has_one_next_step_wherever_it_is_told(looked: Looked) -> None:
    """Home, its page, its entry in quarantine, `kfm status`, `kfm explain` and the API name the same command,
    for every failed run; and its page offers no other change than that step."""
    status = json.loads(looked.kfm("status", "--json"))
    named = {one["run_id"]: one["command"] for one in status["needs_attention"]}
    needs = {one["run_id"]: one["command"] for one in status["needs"] if one["run_id"]}
    home = looked.reader.page("").commands()
    failed = looked.failed()
    assert len(failed) == 11
    for run in failed:
        step = looked.api(f"/runs/{run.run_id}")["next_step"]["command"]
        page = looked.reader.page(f"runs/{run.run_id}")
        (held,) = [link for link in page.links() if link.startswith("/console/held/")]
        entry = looked.reader.page(held.removeprefix("/console/"))
        told = {
            "status": named[run.run_id],
            "explain": next(iter(re.findall(r"`(kfm [^`]+)`\.", looked.kfm("explain", run.run_id)))),
            "page": page.text.partition("Next step ")[2][: len(step)],
            "show": json.loads(looked.kfm("show", run.run_id, "--json"))["next_step"]["command"],
            "entry": next(iter(entry.commands()[1:]), ""),
            "home": needs.get(run.run_id, step),
        }
        assert told == dict.fromkeys(told, step), run.run_id
        assert needs.get(run.run_id, step) in home or run.run_id not in needs
        offered = {link.partition("/do/")[2].partition("?")[0] for link in page.links() if "/do/" in link}
        changes = {"approve", "reject"} if "approvals approve" in step else {"releaseHeld"}
        assert offered == changes, run.run_id
    assert needs.keys() <= named.keys()


def test_a_run_leads_to_all_that_belongs_to_it(looked: Looked) -> None:
    """Its dataset, schedule, request, incident, entry in quarantine and circuit: pages that are there."""
    run = next(one for one in looked.failed() if one.source_id == "air-quality")
    links = looked.reader.page(f"runs/{run.run_id}").links()
    for start in (
        "datasets/ks-air-quality",
        "schedules/air-quality",
        "requests/",
        "incidents/",
        "held/",
        "board",
    ):
        (link, *_) = [each for each in links if each.startswith(f"/console/{start}")]
        looked.reader.page(link.removeprefix("/console/").partition("#")[0])


def test_no_schedule_is_well_while_its_dataset_is_not(looked: Looked) -> None:
    """A schedule whose dataset is paused or frozen, or whose last windows failed, is not green; the next one
    says what it will come to."""
    page = looked.reader.page("schedules")
    rows = page.text.partition("Last scheduled times Actions")[2]
    health = dict(re.findall(r"(\S+) (?:[\d,*]+ ){5}ks-\S+ \S ([a-z]+)", rows))
    assert health["wells"] == health["air-quality"] == health["drought"] == "failing"
    assert health["soil-moisture"] == health["gauges"] == "paused"
    assert health["roads"] == "frozen"
    assert health["reservoirs"] == health["streamflow"] == "on"
    assert "will wait: Frozen from 2026-11-15" in page.text
    assert "will be held: the schedule is paused" in page.text
    assert "/console/datasets/ks-wells" in page.links()


def test_every_link_of_the_audit_log_leads_somewhere(looked: Looked) -> None:
    """Of an approval's request, too; and every actor, kind and subject of a page of entries."""
    links = set(looked.reader.page("audit").links()) | set(looked.reader.page("audit?kind=seal").links())
    for link in sorted(each for each in links if each.startswith("/console/")):
        assert looked.reader.ask(link.removeprefix("/console/").partition("#")[0]).status_code == 200, link


def test_ids_on_a_page_are_told_apart(looked: Looked) -> None:
    """Units that cover the same time have short ids of their own, and a command takes them."""
    page = looked.reader.page("held")
    units = re.findall(r"unit ([0-9a-f]{13}\S+)", page.text)
    wholes = {link for link in page.links() if link.startswith("/console/units/")}
    assert len(set(units)) == len(wholes) > 10
    assert "unit" in looked.kfm("explain", units[0])


def test_the_board_has_what_holds_work_back(looked: Looked) -> None:
    """Circuits, switches and freezes, reached from Home, each with what may be decided about it."""
    assert "/console/board" in looked.reader.page("").links()
    page = looked.reader.page("board")
    assert "airnow – circuit open 19" in page.text
    thrown = page.text.index("ks-soil-moisture dataset ‖ paused")
    assert thrown < page.text.index("everything ✓ on")
    assert "– frozen 2026-11-15 00:00:00" in page.text


def test_a_plan_that_home_offers_is_of_what_its_cause_counts(looked: Looked) -> None:
    """Retry 5 leads to a list of five; where nothing would come back, no plan is offered. A cause has two
    ways on at most."""
    home = looked.reader.ask("").text
    offered = re.findall(r'<a class="act" href="/console/(plans/new[^"]*)"[^>]*>\w+ (\d+)…', home)
    assert len(offered) >= 5
    for path, count in offered:
        listed = re.search(r"2\. The list ([\d,]+) (window|unit)s?", looked.reader.page(unescape(path)).text)
        assert listed is not None, path
        assert listed[1] == count, path
    ways = [each.count('class="act') - 1 for each in re.findall(r'<div class="acts">.*?</div>', home)]
    assert max(ways) == 2
