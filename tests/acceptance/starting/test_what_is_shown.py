"""What people and programs see of requests: what they wait for, what they gather, how they are cancelled."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests import unit_pages
from tests.acceptance.runs.conftest import Inside
from tests.acceptance.starting import desk
from tests.acceptance.starting.conftest import Starting
from tests.crash.project import WINDOW

WHY = ("--rationale", "not this one")


@pytest.fixture
def waiting(tmp_path: Path) -> tuple[Inside, str]:
    """A webhook's request whose run has failed once, and has an attempt ahead."""
    project = desk.open_desk(tmp_path)
    desk.break_down(project)
    request = desk.ask(project, "one")
    desk.run_due(project)
    assert desk.runs(project) == [("rivers", "failed", 1)]
    return project, request


# --- waiting -----------------------------------------------------------------------------


@pytest.mark.req("TRG-1", "CLI-1")
def test_status_calls_nothing_failed_that_is_tried_again(waiting: tuple[Inside, str]) -> None:
    """It counts what waits and says what for; the next step says when it is tried again."""
    project, _ = waiting
    told = project.kfm("status")
    assert told.out.startswith("waiting for a retry: dataset rivers, run ")
    assert "  1 waiting for a retry: `kfm requests list`" in told.out.splitlines()
    assert ("fail" in told.out, "It is tried again at 20" in told.out) == (False, True), told.out
    document = project.kfm("status", "--json").document
    assert document["headline"]["state"] == "waiting"
    assert document["requests"]["waiting"] == {"waiting for a retry": 1}
    (one,) = document["needs_attention"]
    assert one["next_attempt"] == desk.shown(project, waiting[1])["not_before"]


@pytest.mark.req("TRG-1", "CLI-1")
def test_the_next_step_can_be_taken(waiting: tuple[Inside, str]) -> None:
    """The command that is offered for now passes for a person; without a terminal, too."""
    project, request = waiting
    desk.mend(project)
    (one,) = project.kfm("status", "--json").document["needs_attention"]
    assert one["command"].endswith(" --now --rationale TEXT")
    words = one["command"].removesuffix("TEXT").split()[1:]
    assert project.kfm(*words, "the mended feed is wanted today").code == 0
    assert desk.shown(project, request)["outcome"] == "success"


@pytest.mark.req("TRG-1", "CLI-1")
@pytest.mark.parametrize(
    ("state", "count"),
    [("waiting-for-a-retry", 1), ("waiting", 1), ("open", 1), ("waiting-for-a-switch", 0), ("failed", 0)],
)
def test_requests_are_found_by_what_they_wait_for(
    waiting: tuple[Inside, str], state: str, count: int
) -> None:
    """By the word that is shown, by the wider one, and by the stored one."""
    found = waiting[0].kfm("requests", "list", "--state", state, "--json").document["requests"]
    assert [one["blocked_by"] for one in found] == ["retry"] * count


# --- cancelling --------------------------------------------------------------------------


@pytest.mark.req("RET-2", "CLI-1")
@pytest.mark.parametrize("by", ["run", "request"])
def test_what_waits_is_cancelled(waiting: tuple[Inside, str], by: str) -> None:
    """By its run or by itself; then no attempt is ahead, and there is nothing left to cancel."""
    project, request = waiting
    wanted = desk.run_id(project)[:12] if by == "run" else request[:12]
    told = project.kfm("cancel", wanted, *WHY, "--ticket", "OPS-7", "--actor", "zoe")
    assert (told.code, told.out.strip()) == (0, f"cancelled  {request}")
    assert desk.shown(project, request)["state"] == "cancelled"
    assert project.kfm("retry", "--list", "--json").document["waiting"] == []
    ((details,),) = project.rows("SELECT details FROM governance WHERE kind = 'request-cancelled'")
    assert "zoe" in str(details)
    again = project.kfm("cancel", wanted, *WHY)
    assert again.code == 2
    assert ("Nothing is left to cancel." in again.err, request in again.err) == (True, by == "request")


@pytest.mark.req("RET-2", "CLI-1")
def test_every_request_of_a_run_is_cancelled(waiting: tuple[Inside, str]) -> None:
    """Those that were tied to it, too; a running one is told as stopping."""
    project, first = waiting
    second = desk.ask(project, "two")
    desk.run_due(project)
    assert desk.shown(project, second)["run_id"] == desk.run_id(project)
    desk.change(
        project,
        "UPDATE requests SET state = 'running', claimed_by = 'w', claim_until_ms = 9e12 WHERE request_id = ?",
        second,
    )
    told = project.kfm("cancel", desk.run_id(project), *WHY, "--json").document["requests"]
    assert {one["request_id"]: one["state"] for one in told} == {first: "cancelled", second: "running"}
    assert [bool(one["cancelling"]) for one in told] == [True, True]


@pytest.mark.req("CLI-1")
def test_a_cancellation_says_why(waiting: tuple[Inside, str]) -> None:
    """Without a rationale nothing is cancelled; what is not known is said so."""
    project, request = waiting
    assert project.kfm("cancel", request).code == 3
    assert desk.shown(project, request)["state"] == "open"
    assert "no run and no request" in project.kfm("cancel", "0000-none", *WHY).err


@pytest.mark.req("RET-2", "TRG-6")
@pytest.mark.parametrize("kind", ["upstream-event", "manual"])
def test_the_api_cancels_requests_of_every_kind(tmp_path: Path, kind: str) -> None:
    """Arrivals, and what a person started and is tried again."""
    project = desk.open_announced(tmp_path)
    desk.break_down(project)
    if kind == "manual":
        project.kfm("run", "--source", "river", "--window", WINDOW)
    else:
        desk.announce(project)
        desk.work(project)
    request = desk.only_request(project, kind)
    assert request["state"] == "open"
    document = api(project, "POST", f"/requests/{request['request_id']}/cancel", rationale="no")
    assert document["request"]["state"] == "cancelled"
    assert project.kfm("retry", "--list", "--json").document["waiting"] == []
    listed = api(project, "GET", f"/requests?kind={kind}")["requests"]
    assert [one["request_id"] for one in listed] == [request["request_id"]]


ANN = "a token of ann that is long enough"


def api(project: Inside, method: str, path: str, **body: Any) -> dict[str, Any]:
    """A call of the API by a declared person."""
    from hashlib import sha256

    from starlette.testclient import TestClient

    from kfm.config.loader import load
    from kfm.web.request_context import WebContext
    from kfm.web.web_app import WebApplication

    settings = (project.folder / "kfm.yml").read_text()
    if "people:" not in settings:
        token = f"sha256:{sha256(ANN.encode()).hexdigest()}"
        people = f'people:\n  - {{subject: ann, roles: [operate], tokens: ["{token}"]}}\n'
        project.write("kfm.yml", settings + people)
    with project._surroundings():
        web = WebApplication(WebContext(load(None, {}))).asgi(())
        with TestClient(web, base_url="http://127.0.0.1") as client:
            answer = client.request(
                method, f"/api/v1{path}", json=body or None, headers={"Authorization": f"Bearer {ANN}"}
            )
    assert answer.status_code < 300, answer.text
    return dict(answer.json())


# --- what a person started ---------------------------------------------------------------


@pytest.mark.req("RS-12")
@pytest.mark.parametrize("command", ["explain", "show"])
def test_the_request_of_a_persons_run_is_not_told_twice(tmp_path: Path, command: str) -> None:
    """The invocation says who asked; the request would say the same."""
    project = desk.open_desk(tmp_path)
    assert project.kfm("run", "--source", "river", "--window", WINDOW).code == 0
    request = desk.only_request(project, "manual")
    told = project.kfm(command, desk.run_id(project)).out
    assert (request["request_id"] in told, "requests (" in told) == (False, False)


@pytest.mark.req("RS-12", "TRG-1")
def test_a_request_for_a_promised_attempt_is_told_as_one(waiting: tuple[Inside, str]) -> None:
    """Nothing asked for it but the promise: that of a run that an earlier version left."""
    project, request = waiting
    desk.change(project, "DELETE FROM requests WHERE request_id = ?", request)
    desk.run_due(project)
    made = desk.only_request(project, "webhook")
    assert made["details"] == {"adopted": True}
    run = desk.run_id(project)
    assert f"Request {made['request_id']} was made at " in project.kfm("explain", run).out
    assert "its promised attempt" in project.kfm("explain", run).out
    assert "its promised attempt" in project.kfm("show", run).out


# --- announced objects -------------------------------------------------------------------


@pytest.fixture
def arrived(tmp_path: Path) -> Inside:
    """Two announced objects that led to one published run."""
    project = desk.open_announced(tmp_path)
    for second in (1, 2):
        desk.announce(project, second)
    assert desk.work(project).code == 0
    return project


@pytest.mark.req("RS-12", "TRG-6")
@pytest.mark.parametrize("command", [("nodd", "show"), ("explain",), ("show",)])
def test_a_unit_names_what_it_led_to(arrived: Inside, command: tuple[str, ...]) -> None:
    """The request, and the run that it became."""
    request = desk.only_request(arrived, "upstream-event")
    ((wal_id,), _) = arrived.rows("SELECT wal_id FROM units ORDER BY wal_id")
    told = arrived.kfm(*command, str(wal_id))
    assert told.code == 0, told
    assert (request["request_id"] in told.out, desk.run_id(arrived) in told.out) == (True, True), told.out
    assert "published" in told.out


@pytest.mark.req("RS-12", "TRG-6")
def test_programs_read_the_objects_of_a_request(arrived: Inside) -> None:
    """Each with its unit, its content and its address, by the command and by the API."""
    request = desk.only_request(arrived, "upstream-event")
    assert (request["members"], [one["content_version"] for one in request["objects"]]) == (2, [1, 1])
    assert {one["object"] for one in request["objects"]} == {*unit_pages.objects(arrived.rows).values()}
    assert api(arrived, "GET", f"/requests/{request['request_id']}")["request"] == request
    shown = arrived.kfm("show", desk.run_id(arrived), "--json").document
    assert shown["objects"] == request["objects"]
    listed = arrived.kfm("requests", "list", "--json").document["requests"]
    assert [one["members"] for one in listed] == [2]


@pytest.mark.req("RS-12", "TRG-6")
def test_a_unit_that_is_not_in_the_ledger_is_named_by_its_id(arrived: Inside) -> None:
    """Its request keeps it."""
    request = desk.only_request(arrived, "upstream-event")
    unit = request["objects"][0]["unit"]
    desk.change(arrived, "DELETE FROM units WHERE wal_id = ?", unit)
    assert f"unit {unit}" in arrived.kfm("requests", "show", request["request_id"]).out


@pytest.mark.req("RS-12", "TRG-6")
def test_of_many_objects_the_first_are_named(arrived: Inside) -> None:
    """A text names twenty, and says how many more there are."""
    request = desk.only_request(arrived, "upstream-event")
    for number in range(3, 31):
        desk.change(
            arrived,
            "INSERT INTO request_members VALUES (?, ?, 'nexrad-l2', NULL, NULL, 1)",
            request["request_id"],
            f"zz-{number:02d}/1",
        )
    desk.change(
        arrived,
        "UPDATE requests SET details = ? WHERE request_id = ?",
        json.dumps({"datasets": ["nexrad-l2"], "members": 30}),
        request["request_id"],
    )
    told = arrived.kfm("requests", "show", request["request_id"]).out
    assert ("unit zz-20 and 10 more" in told, "zz-21" in told) == (True, False), told
    assert "and 10 more" in arrived.kfm("explain", desk.run_id(arrived)).out
    assert len(desk.shown(arrived, request["request_id"])["objects"]) == 30


@pytest.mark.req("RS-8", "TRG-6")
def test_a_bundle_of_evidence_has_the_requests_and_their_objects(arrived: Inside) -> None:
    """As rows that the bundle's own check accepts."""
    made = arrived.kfm("export", desk.run_id(arrived), "--to", "evidence")
    assert made.code == 0, made
    folder = arrived.folder / "evidence"
    (request,) = (json.loads(line) for line in (folder / "ledger/requests.jsonl").read_text().splitlines())
    assert (request["kind"], request["run_id"]) == ("upstream-event", desk.run_id(arrived))
    objects = (folder / "ledger/objects.jsonl").read_text().splitlines()
    assert len(objects) == 2
    assert "ledger/objects.jsonl" in (folder / "ro-crate-metadata.json").read_text()
    assert arrived.kfm("export", "--verify", "evidence").code == 0


# --- quarantined requests ----------------------------------------------------------------


def by(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr("kfm.config.loader.actor", lambda: name)


@pytest.fixture
def given_up(project: Starting) -> tuple[Starting, str]:
    """A webhook's request whose preview is given up."""
    project.set_up(webhook="approval: required")
    project.mode("wrong")
    request = project.hook("wrong")
    project.work_off()
    return project, request


@pytest.mark.req("TRG-7", "GOV-3")
def test_a_request_in_quarantine_is_shown_as_one(given_up: tuple[Starting, str]) -> None:
    """In the list and by itself, by its own id, for people, for programs and by the API."""
    project, request = given_up
    assert f"request {request[:8]}" in project.kfm("quarantine", "list").out
    told = project.kfm("quarantine", "show", request)
    assert (told.code, f"request       {request}" in told.out) == (0, True), told
    held = project.kfm("quarantine", "show", request, "--json").document["held"]
    assert (held["grain"], held["subject"]) == ("request", request)
    assert held["next_step"]["command"].startswith("kfm quarantine resume ")
    assert "  1 quarantined, the oldest since" in project.kfm("status").out
    assert api(project, "GET", f"/quarantine/{held['held_id']}")["held"] == held


@pytest.mark.req("TRG-7", "GOV-3")
def test_a_request_is_resumed_by_two(given_up: tuple[Starting, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Released, it is open again with all its attempts; given up once more, it is another entry."""
    project, request = given_up
    entries = []
    for _ in range(2):
        (held,) = project.kfm("quarantine", "list", "--json").document["held"]
        entries.append(held["held_id"])
        by(monkeypatch, "ann")
        asked = project.kfm("quarantine", "resume", request, "--rationale", "mended", "--json")
        assert asked.code == 3, asked
        name = asked.document["request"]["request_id"]
        by(monkeypatch, "bob")
        assert project.kfm("approvals", "approve", name, "--rationale", "yes").code == 0
        assert project.request(request).state == "open"
        project.work_off()
    assert len({*entries}) == 2
    assert project.request(request).ended == ("done", "failed")
    assert project.executions == ["preview"] * 3


@pytest.mark.req("TRG-7", "TRG-4")
def test_a_resumed_request_comes_to_its_approval(
    given_up: tuple[Starting, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once the cause is gone, its preview waits for a second person."""
    project, request = given_up
    project.mode()
    by(monkeypatch, "ann")
    asked = project.kfm("quarantine", "resume", request, "--rationale", "mended", "--json").document
    by(monkeypatch, "bob")
    assert project.kfm("approvals", "approve", asked["request"]["request_id"], "--rationale", "yes").code == 0
    project.work_off()
    assert project.request(request).state == "awaiting-approval"
    assert project.kfm("quarantine", "list", "--json").document["held"] == []


# --- the console -------------------------------------------------------------------------


def page(project: Inside, path: str) -> str:
    """The text of a page of the console."""
    from kfm.config.loader import load
    from kfm.web.request_context import WebContext
    from tests.integration.web.console.reading import Parsed, Reader

    with project._surroundings():
        answer = Reader(WebContext(load(None, {}))).ask(path)
    assert answer.status_code == 200, answer.text
    return str(Parsed(answer.text).text)


@pytest.mark.req("RS-12", "TRG-6")
def test_pages_name_what_arrived(arrived: Inside) -> None:
    """Among the requests, on the page of the request, and on that of its run."""
    request = desk.only_request(arrived, "upstream-event")
    assert "arrivals" in page(arrived, "requests?kind=upstream-event")
    uri = request["objects"][0]["object"]
    for path in (f"requests/{request['request_id']}", f"runs/{desk.run_id(arrived)}"):
        assert uri in page(arrived, path), path
    assert f"It led to request {request['request_id']}" in page(
        arrived, f"units/{request['objects'][0]['unit']}"
    )


@pytest.mark.req("RS-12", "TRG-7")
def test_pages_show_a_quarantined_request(given_up: tuple[Starting, str]) -> None:
    """In the list and by itself, with the command that brings it back."""
    project, request = given_up
    assert f"request {request[:8]}" in page(project, "held")
    ((held_id,),) = project.rows("SELECT held_id FROM held")
    shown = page(project, f"held/{held_id}")
    assert (request in shown, "kfm quarantine resume" in shown) == (True, True)


@pytest.mark.req("RS-12", "TRG-1")
def test_pages_say_what_is_waited_for(waiting: tuple[Inside, str]) -> None:
    """Between two attempts a request has not failed."""
    project, request = waiting
    for path in ("requests", f"requests/{request}"):
        assert "waiting for a retry" in page(project, path), path
