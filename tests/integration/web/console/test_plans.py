"""Plans in the console: from cells or a filter to a frozen list, its approval and its receipts."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.integration.web.console.reading import Parsed, Reader
from tests.integration.web.console.test_actions import _parse
from tests.integration.web.plans_world import TOKENS, PlansWorld

REASON = "the bucket is back"
UNITS = "units:mrms@2026-01-01T00:00:00Z/2026-01-01T01:00:00Z"


@pytest.fixture
def world(tmp_path: Path) -> PlansWorld:
    return PlansWorld(tmp_path / "project")


def _signed_in(world: PlansWorld, who: str) -> Reader:
    reader = Reader(world.context)
    reader.ask("sign-in", "POST", data={"token": TOKENS[who]})
    return reader


def _form(page: Parsed, **more: str) -> dict[str, str]:
    hidden = {
        str(attrs["name"]): str(attrs.get("value") or "")
        for tag, attrs in page.tags
        if tag == "input" and attrs.get("type") == "hidden"
    }
    return {**hidden, "rationale": REASON, **more}


def _sent(reader: Reader, form: dict[str, str], path: str = "plans/new") -> str:
    """The address of the plan that was made."""
    answer = reader.ask(path, "POST", data=form)
    assert answer.status_code == 303, Parsed(answer.text).text
    return answer.headers["location"].removeprefix("/console/")


def _next(page: Parsed) -> str:
    """The link to what follows, if there is one."""
    found = [str(attrs["href"]) for tag, attrs in page.tags if tag == "a" and attrs.get("rel") == "next"]
    return found[0].removeprefix("/console/") if found else ""


@pytest.mark.req("WAL-13", "GOV-3")
def test_the_list_that_is_shown_is_frozen_and_every_entry_has_its_receipt(world: PlansWorld) -> None:
    """From a filter: count, size and digest; sent twice, it is one plan; a service carries it out."""
    units = world.given_up(1, 2, 3)
    ann = _signed_in(world, "ann")
    page = ann.page("plans/new?kind=replay&dataset=mrms")
    assert "3 units , 30 B" in page.text
    form = _form(page, rate="1000", name="storm")
    shown = list(re.findall(r"[0-9a-f]{13}-[0-9a-f]{20}", page.text))
    assert sorted(shown) == units
    where = _sent(ann, form)
    assert _sent(ann, form) == where
    assert world.kinds().count("replay") == 1
    assert "Replay storm" in ann.page(where).text
    with world.context.reader() as ledger:
        replay = ledger.replay_reader().replay(where.rpartition("/")[2])
    assert replay is not None
    assert [one.wal_id for one in replay.plan.units] == units
    assert replay.digest == form["digest"]
    for _ in range(100):
        if world.carried_on() == 0 and "3 of 3 units came back" in ann.page(where).text:
            break
    done = ann.page(where)
    assert "3 of 3 units came back." in done.text
    assert done.text.count("came back") == 1 + len(units)
    assert "3 done" in ann.page("plans").text


@pytest.mark.req("WAL-13")
def test_a_unit_that_changed_since_it_was_shown_is_refused_and_nothing_is_done(world: PlansWorld) -> None:
    """409 with what the list is now; the form has the new digest, and works."""
    world.given_up(1, 2)
    ann = _signed_in(world, "ann")
    form = _form(ann.page("plans/new?kind=replay&dataset=mrms"))
    world.given_up(3)
    answer = ann.ask("plans/new", "POST", data=form)
    page = Parsed(answer.text)
    assert answer.status_code == 409
    assert "The list has changed since it was shown: now it has 3 units" in page.text
    assert "Nothing was done." in page.text
    assert "replay-planned" not in world.kinds()
    assert "Replay" in ann.page(_sent(ann, _form(page))).text


def test_a_kept_plan_is_refused_once_a_unit_has_changed(world: PlansWorld) -> None:
    """It was frozen and not run; what has come back by another way is not touched again."""
    from kfm.model.records import Justification
    from kfm.model.replays import ReplaySpec, Selection
    from kfm.nodd.replay import ReplayPace, freeze, plan_of, run_plan

    world.given_up(1, 2)
    by = Justification(actor="ann", rationale=REASON)
    with world.opened() as app:
        both = plan_of(app, ReplaySpec(kfm="replay-spec/1", selection=Selection(datasets=("mrms",))))
        kept = freeze(app, both, by, "both")
        one = Selection(wal_ids=(both.units[0].wal_id,))
        run_plan(app, plan_of(app, ReplaySpec(kfm="replay-spec/1", selection=one)), ReplayPace(), by)
    ann = _signed_in(world, "ann")
    assert "Nothing has come back yet" in ann.page(f"plans/{kept.replay_id}").text
    page = ann.page(f"do/runReplay?replay_id={kept.replay_id}")
    answer = ann.ask("do/runReplay", "POST", data=_form(page))
    assert answer.status_code == 409
    assert "1 unit changed since" in Parsed(answer.text).text
    with world.context.reader() as ledger:
        assert ledger.replay_reader().tally(kept.replay_id) == {"": 2}


@pytest.mark.req("WAL-14", "GOV-3")
def test_what_had_ended_comes_back_with_a_second_persons_approval_only(world: PlansWorld) -> None:
    """Asked for, approved in place by another person, run; who asked can't approve."""
    world.given_up(1, fate="quarantine", code="GZIP_BOMB")
    ann, bob = _signed_in(world, "ann"), _signed_in(world, "bob")
    page = ann.page("plans/new?kind=replay&dataset=mrms&mode=backfill")
    assert "a second person (bob) has to approve exactly this list" in page.text
    where = _sent(ann, _form(page))
    assert "waiting for approval" in ann.page(where).text
    assert world.carried_on() == 0
    (approve,) = [link for link in bob.page("plans").links() if "do/approve" in link]
    asked = bob.page(approve.removeprefix("/console/"))
    answer = bob.ask("do/approve", "POST", data=_form(asked, typed="mrms"))
    assert answer.status_code == 200, Parsed(answer.text).text
    assert "is approved, and waits to be run" in ann.page(where).text
    run = ann.page(f"do/runReplay?replay_id={where.rpartition('/')[2]}")
    assert ann.ask("do/runReplay", "POST", data=_form(run)).status_code == 200
    assert world.carried_on() == 1
    assert "1 of 1 unit came back" in ann.page(where).text


def test_a_replay_is_stopped_and_gone_on_with(world: PlansWorld) -> None:
    """A slow one gives nothing at once; stopped, nothing more comes back; then all of it does."""
    world.given_up(1, 2)
    ann = _signed_in(world, "ann")
    where = _sent(ann, _form(ann.page("plans/new?kind=replay&dataset=mrms"), rate="0.001"))
    name = where.rpartition("/")[2]
    assert world.carried_on() == 0
    stop = _form(ann.page(f"do/stopReplay?replay_id={name}"))
    assert ann.ask("do/stopReplay", "POST", data=stop).status_code == 200
    assert "A person has stopped it" in ann.page(where).text
    run = _form(ann.page(f"do/runReplay?replay_id={name}"), rate="")
    assert ann.ask("do/runReplay", "POST", data=run).status_code == 200
    assert world.carried_on() == 2
    again = ann.ask("do/stopReplay", "POST", data=_form(ann.page(f"do/stopReplay?replay_id={name}")))
    assert again.status_code == 409


def test_boxes_in_the_table_lead_to_the_plan_of_exactly_these_windows(world: PlansWorld) -> None:
    """Without scripts: what a browser sends of two ticked boxes; each window gets a request and a receipt."""
    ann = _signed_in(world, "ann")
    page = ann.page("datasets/lakes")
    boxes = [str(attrs["value"]) for tag, attrs in page.tags if attrs.get("name") == "cell"]
    assert {world.cell(0), world.cell(1)} <= set(boxes)
    drawn = [attrs for tag, attrs in page.tags if tag == "g" and attrs.get("data-window")]
    assert {attrs["data-source"] for attrs in drawn} == {"lake"}
    assert all(attrs["data-state"] for attrs in drawn)
    query = "&".join(f"cell={quote(cell)}" for cell in (world.cell(0), world.cell(1)))
    planned = ann.page(f"plans/new?{query}")
    assert "2 selected cells." in planned.text
    assert "2 windows" in planned.text
    where = _sent(ann, _form(planned, name="two days"))
    shown = ann.page(where)
    assert "2 windows asked for: 0 done, 2 under way or waiting, 0 in vain." in shown.text
    assert [link for link in shown.links() if "/requests/" in link]
    with world.context.reader() as ledger:
        requests = ledger.request_reader().requests(source_id="lake")
    assert {one.window_start_ms for one in requests} == {world.first_ms, world.first_ms + 86_400_000}
    again = ann.page(f"plans/new?{query}")
    assert "its request waits" in again.text


def test_scheduled_times_that_were_selected_are_backfilled(world: PlansWorld) -> None:
    """Only those; the schedule's others stay as they were."""
    ann = _signed_in(world, "ann")
    page = ann.page("schedules/lake-daily")
    boxes = [str(attrs["value"]) for tag, attrs in page.tags if attrs.get("name") == "cell"]
    cells = [cell for box in boxes for cell in box.split(",")][:3]
    assert len(cells) == 3
    assert all(cell.startswith("instant:lake-daily@") for cell in cells)
    planned = ann.page(f"plans/new?cells={quote(','.join(cells[::2]))}")
    assert "2 windows" in planned.text
    shown = ann.page(_sent(ann, _form(planned)))
    assert "Backfill" in shown.text
    assert "2 windows asked for" in shown.text


@pytest.mark.parametrize(
    "path",
    [
        "plans/new?kind=nothing",
        "plans/new?cells=window:lake@yesterday",
        "plans/new?cells=window:lake",
        "plans/new?cells=window:lake@2026-01-01T00:00:00Z,instant:lake-daily@2026-01-01T00:00:00Z",
        "plans/new?kind=missing&dataset=lakes&from=soon",
        "plans/new?kind=replay&dataset=mrms&units_max=lots",
        "plans?before=x",
        f"plans/new?cells={','.join(f'window:lake@{number}' for number in range(251))}",
    ],
)
def test_nonsense_is_refused_by_name(world: PlansWorld, path: str) -> None:
    """400, or the page with what is wrong, and never a plan of something else."""
    world.given_up(1)
    answer = _signed_in(world, "ann").ask(path)
    page = Parsed(answer.text)
    assert answer.status_code in (200, 400)
    assert answer.status_code == 400 or [attrs for _, attrs in page.tags if attrs.get("role") == "alert"]
    assert not [attrs for tag, attrs in page.tags if tag == "button" and "primary" in str(attrs.get("class"))]


@pytest.mark.parametrize("reason", ["", "TEXT", "…"])
def test_a_plan_without_a_reason_is_not_made(world: PlansWorld, reason: str) -> None:
    """Nor by who may only read, nor from another site; what was typed stays."""
    world.given_up(1)
    ann, cy = _signed_in(world, "ann"), _signed_in(world, "cy")
    form = _form(ann.page("plans/new?kind=replay&dataset=mrms"), name="storm")
    answer = ann.ask("plans/new", "POST", data={**form, "rationale": reason})
    assert answer.status_code == 422
    assert 'value="storm"' in answer.text
    assert cy.ask("plans/new", "POST", data=form).status_code == 403
    assert ann.ask("plans/new", "POST", data=form, headers={"Origin": "null"}).status_code == 403
    assert "needs the role operate: ann" in cy.page("plans/new?kind=replay&dataset=mrms").text
    assert "replay-planned" not in world.kinds()


def test_readers_do_not_learn_of_masked_windows(world: PlansWorld) -> None:
    """A plan of a masked dataset is not in their list, and its page says what role it needs."""
    ann, cy = _signed_in(world, "ann"), _signed_in(world, "cy")
    cell = world.cell(0).replace("lake@", "mound@")
    where = _sent(ann, _form(ann.page(f"plans/new?cells={quote(cell)}")))
    assert "mound" in ann.page("plans").text
    shown = cy.page("plans").text
    assert "mound" not in shown
    assert "burials" not in shown
    assert "needs the role operate" in cy.page(where, 403).text
    refused = cy.page(f"plans/new?cells={quote(cell)}")
    assert not [attrs for tag, attrs in refused.tags if attrs.get("name") == "digest"]


def test_home_leads_from_a_cause_to_its_plan(world: PlansWorld) -> None:
    """Late windows and objects that were given up: the count of the cause is that of the list."""
    world.given_up(1, 2, 3)
    ann = _signed_in(world, "ann")
    links = [link for link in ann.page("").links() if "/plans/new?" in link]
    assert [link for link in links if "kind=missing&dataset=lakes" in link]
    (replay,) = [link for link in links if "kind=replay" in link]
    assert "3 units" in ann.page(replay.removeprefix("/console/")).text
    shown = ann.page("").text
    assert "Replay 3…" in shown
    late = ann.page("plans/new?kind=missing&dataset=lakes").text
    (count,) = set(re.findall(r"Backfill (\d+)…", shown)) & set(re.findall(r"(\d+) windows", late))
    assert int(count) > 1


def test_commands_of_a_plan_are_taken_by_the_parser(world: PlansWorld) -> None:
    """For every kind: what is printed can be pasted."""
    world.given_up(1)
    ann = _signed_in(world, "ann")
    for query in (
        "kind=replay&dataset=mrms&error=HTTP_503",
        f"cells={quote(UNITS)}",
        f"cells={quote(world.cell(0))}",
        "kind=missing&dataset=lakes",
        f"kind=backfill&schedule=lake-daily&from={world.day(0)}&to={world.day(3)}",
    ):
        page = ann.page(f"plans/new?{query}")
        command = next(text for text in page.commands() if text.startswith("kfm "))
        _parse(command)
        assert "--rationale" in shlex.split(command)
        assert "1 unit" in page.text or "window" in page.text


def test_lists_go_on_to_their_last_row(world: PlansWorld) -> None:
    """More plans and more entries than a page: each once, to the end."""
    from kfm.model.records import Justification
    from kfm.model.replays import ReplaySpec, Selection
    from kfm.nodd.replay import freeze, plan_of

    units = world.given_up(*range(60))
    by = Justification(actor="ann", rationale=REASON)
    with world.opened() as app:
        for name in units:
            spec = ReplaySpec(kfm="replay-spec/1", selection=Selection(wal_ids=(name,)))
            freeze(app, plan_of(app, spec), by, None)
        whole = freeze(
            app,
            plan_of(app, ReplaySpec(kfm="replay-spec/1", selection=Selection(datasets=("mrms",)))),
            by,
            "whole",
        )
    ann = _signed_in(world, "ann")
    found, where = [], "plans"
    while where:
        page = ann.page(where)
        found += [link for link in page.links() if re.search(r"/plans/[0-9a-f]{32}$", link)]
        where = _next(page)
    assert len(found) == len(set(found)) == 61
    seen, where = [], f"plans/{whole.replay_id}"
    while where:
        page = ann.page(where)
        seen += [link.rpartition("/")[2] for link in page.links() if "/units/" in link]
        where = _next(page)
    assert seen == units
