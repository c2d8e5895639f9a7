"""Changes over HTTP: who may, what is recorded, and that a change which is sent twice is made once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kfm.model.roles import ROLES
from kfm.model.times import parse_rfc3339, rfc3339
from kfm.web.api.operation_table import OPERATIONS
from kfm.web.api.operations import Operation
from tests.integration.web.api.world import World

CHANGES = [operation for operation in OPERATIONS if operation.method == "POST"]
READS = [operation for operation in OPERATIONS if operation.method == "GET"]
DIGEST = "sha256:" + "0" * 64
HAS = {"ann": {"read", "operate"}, "bob": {"read", "approve"}, "cy": {"read"}}


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "project").past()


def named(operation: Operation, **names: str) -> str:
    return operation.shown_path.format(**{field: names.get(field, "unknown") for field in operation.fields})


def body_of(operation: Operation) -> dict[str, Any]:
    more: dict[str, dict[str, Any]] = {
        "Start": {"source": "river"},
        "SetSwitch": {"position": "paused"},
        "Silenced": {},
        "Backfill": {"start": "2026-01-01T00:00:00Z", "end": "2026-01-02T00:00:00Z"},
        "RollBack": {"digest": DIGEST, "to_version": 1},
        **{name: {"digest": DIGEST} for name in ("Withdraw", "Retire", "Lift")},
    }
    assert operation.body is not None
    return more.get(operation.body.__name__, {})


# --- who may ---------------------------------------------------------------------------


@pytest.mark.req("GOV-3")
def test_each_role_and_no_other(tmp_path: Path) -> None:
    """Each operation needs its role, and refusals are on record."""
    world = World(tmp_path / "p")
    refused, last = 0, OPERATIONS[0]
    for operation in OPERATIONS:
        assert operation.role in ROLES
        for who, roles in HAS.items():
            if operation.method == "POST":
                status = world.change(named(operation), who, **body_of(operation)).status_code
            else:
                status = world.ask("GET", named(operation), who).status_code
            assert (status == 403) == (operation.role not in roles), (operation.name, who, status)
            if status == 403:
                refused, last = refused + 1, operation
    entries = world.entries("role-refused")
    assert len(entries) == min(refused, 50)
    assert {one["actor"] for one in entries} <= {"ann", "bob", "cy"}
    assert entries[0]["subject"] == f"{last.method} {last.shown_path}"
    assert entries[0]["details"]["role"] == last.role


@pytest.mark.req("GOV-3", "GOV-2")
def test_a_reader_can_not_make_the_ledger_grow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refusals of one person at one operation are one entry a minute, with their count; none is lost."""
    now_ms = 1_794_823_468_000
    monkeypatch.setattr("kfm.web.request_context.WebContext.now_ms", lambda _self: now_ms)
    world = World(tmp_path / "p")

    def counts() -> list[tuple[str, int]]:
        return [(one["subject"], one["details"]["count"]) for one in world.entries("role-refused")]

    for _ in range(20):
        assert world.change("/switches/all", "cy", position="paused").status_code == 403
    assert counts() == [("POST /switches/{scope}", 1)]
    assert world.change("/requests", "cy", source="river").status_code == 403
    assert len(counts()) == 2
    now_ms += 60_000
    assert world.ask("GET", "/runs", "ann").status_code == 200  # the next request of any person
    assert counts()[0] == ("POST /switches/{scope}", 19)
    for _ in range(3):
        world.change("/switches/all", "cy", position="paused")
    world.context.enter_refusals(closing=True)
    assert (counts()[0], len(counts())) == (("POST /switches/{scope}", 3), 4)


@pytest.mark.req("GOV-3")
@pytest.mark.parametrize("token", [None, "x" * 40, "", "kfm-ann-0123456789abcdef0123456789abcdeF"])
def test_strangers_learn_and_leave_nothing(tmp_path: Path, token: str | None) -> None:
    """A caller without a valid token gets 401, and nothing is opened or written."""
    world = World(tmp_path / "p")
    for operation in OPERATIONS:
        body = {"json": body_of(operation)} if operation.method == "POST" else {}
        answer = world.ask(operation.method, named(operation), token, **body)
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"].startswith("Bearer")
    assert not (tmp_path / "p" / ".kfm").exists()


def test_without_people_this_machine_may_look(tmp_path: Path) -> None:
    """Without people in the configuration, this machine may read, and changes are refused with a remedy."""
    world = World(tmp_path / "p", people=False).past()
    assert len(world.get("/runs", None)["runs"]) == 2
    assert world.get("/whoami", None) == {
        "subject": None,
        "known_by": "nothing",
        "roles": ["read"],
        "people": 0,
    }
    for operation in CHANGES:
        answer = world.change(named(operation), None, **body_of(operation))
        assert answer.status_code == 403
        assert "people" in answer.json()["remedy"]


def test_without_people_no_other_machine_may(tmp_path: Path) -> None:
    """Without people in the configuration, a request from another machine gets 401."""
    import asyncio

    import httpx

    world = World(tmp_path / "p", people=False)

    async def asked() -> httpx.Response:
        transport = httpx.ASGITransport(world.app, client=("192.0.2.7", 1234))
        async with httpx.AsyncClient(transport=transport) as client:
            return await client.get("http://127.0.0.1/api/v1/runs")

    assert asyncio.run(asked()).status_code == 401


# --- what is done ----------------------------------------------------------------------


def test_an_update_is_asked_for(world: World) -> None:
    """A request for an update is durable once it is accepted, with who, why and an entry; and it is run."""
    answer = world.change("/requests", source="river", window="2026-02-01/P1D", ticket="T-1", actor="zoe")
    assert answer.status_code == 202
    request = answer.json()["request"]
    assert answer.headers["location"] == f"/api/v1/requests/{request['request_id']}"
    assert (request["kind"], request["state"], request["actor"]) == ("manual", "open", "ann")
    assert (request["claimed_actor"], request["rationale"]) == ("zoe", "because")
    assert request["window_start"] == "2026-02-01T00:00:00.000Z"
    assert world.get(f"/requests/{request['request_id']}")["request"] == {**request, "objects": []}
    assert world.get("/requests?state=open&kind=manual&source=river")["requests"] == [request]
    (entry,) = world.entries("update-requested")
    assert (entry["actor"], entry["rationale"], entry["ticket"]) == ("ann", "because", "T-1")
    assert entry["details"]["request_id"] == request["request_id"]
    assert entry["details"]["claimed_actor"] == "zoe"


def test_what_can_not_be_updated(world: World) -> None:
    """What is asked for is checked before it is accepted."""
    for body in ({"source": "unknown"}, {"source": "river", "window": "9999-01-01/P1D"}, {"window": "P1D"}):
        assert world.change("/requests", **body).status_code == 422, body
    assert world.change("/requests", source="river", window="yesterday").json()["code"] == "KFM204"
    assert world.get("/requests?state=open")["requests"] == []


def test_a_request_is_cancelled(world: World) -> None:
    """What waits is cancelled once, with a reason and an entry; what has ended can't be."""
    request_id = world.change("/requests", source="river").json()["request"]["request_id"]
    answer = world.change(f"/requests/{request_id}/cancel", rationale="not needed")
    assert answer.json()["request"]["state"] == "cancelled"
    assert answer.json()["request"]["reason"] == "Cancelled by ann: not needed"
    assert world.change(f"/requests/{request_id}/cancel").status_code == 409
    assert world.change("/requests/unknown/cancel").status_code == 404
    assert [one["actor"] for one in world.entries("request-cancelled")] == ["ann"]


def test_a_failed_run_is_tried_again(world: World) -> None:
    """A retry is a request for exactly the run's work; there is none of what has succeeded."""
    (world.folder / "broken.py").write_text("def publish(context):\n    pass\n")
    answer = world.change(f"/runs/{world.failed_id}/retry", ticket="T-2")
    assert answer.status_code == 422  # the code has changed: that is other work
    from tests.integration.web.api.world import BROKEN

    (world.folder / "broken.py").write_text(BROKEN)
    answer = world.change(f"/runs/{world.failed_id}/retry", ticket="T-2")
    assert answer.status_code == 202, answer.text
    run, request = world.get(f"/runs/{world.failed_id}")["run"], answer.json()["request"]
    for field in ("source_id", "window_start", "window_end", "correction"):
        assert request[field] == run[field]
    assert request["details"] == {"retry_of": world.failed_id}
    assert world.change(f"/runs/{world.run_id}/retry").status_code == 409
    assert world.change("/runs/unknown/retry").status_code == 404


def test_a_budget_that_is_spent_needs_a_ticket(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Past its budget a run is tried again at the same inputs only for a reason and a ticket."""
    from kfm.service.runner import make_dispatcher

    monkeypatch.setattr("kfm.model.admission.is_spent", lambda *_: True)
    monkeypatch.setattr("kfm.model.admission.has_attempts", lambda *_: False)
    ends = []
    for ticket in (None, "T-3"):
        answer = world.change(f"/runs/{world.failed_id}/retry", ticket=ticket)
        assert answer.status_code == 202
        app = world.opened()
        make_dispatcher(app).step()
        app.close()
        ended = world.get(f"/requests/{answer.json()['request']['request_id']}")["request"]
        ends.append((ended["outcome"], world.get(f"/runs/{world.failed_id}")["run"]["attempts"]))
    assert ends == [("refused", 1), ("failed", 2)]


def test_a_circuit_is_reset(world: World) -> None:
    """A provider is called again because a person says so, and that is on record."""
    answer = world.change("/breakers/host:example.org/reset", rationale="it is well")
    assert (answer.json()["was"], answer.json()["breaker"]["state"]) == ("open", "closed")
    assert world.change("/breakers/unknown/reset").status_code == 404
    (entry,) = world.entries("breaker-reset")
    assert (entry["actor"], entry["rationale"]) == ("ann", "it is well")


@pytest.mark.req("RET-7")
def test_a_circuit_is_probed_or_held_open(world: World) -> None:
    """A person has a provider tried now, or not at all for a while: both are on record, with the reason."""
    path = "/breakers/host:example.org"
    answer = world.change(f"{path}/probe", rationale="their page says it is back").json()
    assert (answer["was"], answer["breaker"]["state"]) == ("open", "half-open")
    assert parse_rfc3339(answer["breaker"]["next_try"]) <= world.opened().ledger.now_ms()
    until_ms = world.opened().ledger.now_ms() + 3_600_000
    held = world.change(f"{path}/hold", until=rfc3339(until_ms), rationale="works until noon").json()
    assert held["breaker"]["next_try"] == rfc3339(until_ms)
    late = rfc3339(until_ms + 2 * 86_400_000)
    assert world.change(f"{path}/hold", until=late, rationale="for long").status_code == 422
    assert world.change(f"{path}/hold", rationale="no end").status_code == 422
    assert world.change(f"{path}/reset", rationale="it is well").json()["breaker"]["state"] == "closed"
    assert world.change(f"{path}/probe", rationale="once more").status_code == 422
    assert [len(world.entries(f"breaker-{each}")) for each in ("probe", "hold", "reset")] == [1, 1, 1]


@pytest.mark.req("DAT-10")
def test_an_incident_is_assigned(world: World) -> None:
    """It has a person who looks after it, also where another did before; an unknown person is refused."""
    (incident,) = (one for one in world.get("/incidents")["incidents"] if one["about"] == "dataset")
    path = f"/incidents/{incident['incident_id']}"
    world.change(f"{path}/acknowledge", rationale="I look into it")
    given = world.change(f"{path}/assign", person="bob", rationale="he knows the source")
    assert given.json()["incident"]["acknowledged_by"] == "bob", given.text
    assert world.change(f"{path}/assign", person="stranger").status_code == 422
    (entry,) = world.entries("incident-assigned")
    assert (entry["actor"], entry["details"]["person"]) == ("ann", "bob")


@pytest.mark.req("DAT-10")
def test_all_of_a_cause_is_retried(world: World) -> None:
    """Each failed run that an incident affects gets one request, however often it is asked for; what can't
    be retried is named with the reason."""
    (incident,) = (one for one in world.get("/incidents")["incidents"] if one["about"] == "dataset")
    path = f"/incidents/{incident['incident_id']}"
    subjects = world.get(path)["subjects"]
    first = world.change(f"{path}/retry", rationale="their server is back")
    assert first.status_code == 202, first.text
    made = first.json()["requests"]
    assert sorted(subjects) == sorted(
        [*(one["run_id"] for one in made), *(one["subject"] for one in first.json()["passed_over"])]
    )
    assert world.change(f"{path}/retry", rationale="once more").json()["requests"] == made
    for one in made:
        assert world.get(f"/requests/{one['request_id']}")["request"]["rationale"] == "their server is back"


def test_a_dataset_is_projected_again(world: World) -> None:
    """Every target of a dataset is written once more, because a person says so, and that is on record."""
    answer = world.change("/datasets/rivers/projection", rationale="the folder was emptied")
    assert (answer.status_code, answer.json()["exit_code"]) == (200, 0), answer.text
    assert answer.json()["projections"] == []  # it has no target
    assert world.change("/datasets/unknown/projection").status_code == 404
    assert len(world.entries("projected-again")) == 1


@pytest.mark.req("DAT-2")
def test_windows_are_dismissed_and_expected_again(world: World) -> None:
    """A window that will never have data is settled by a person, and can be expected again."""
    (window, *_) = (
        one
        for one in world.get("/datasets/rivers/coverage")["windows"]
        if one["state"] not in ("published", "unchanged", "dismissed", "running", "expected")
    )
    about = {"window": f"{window['window_start']}/{window['window_end']}", "source": window["source_id"]}
    done = world.change("/datasets/rivers/dismissal", rationale="the gauge was out", **about)
    assert [one["state"] for one in done.json()["windows"]] == ["dismissed"], done.text
    back = world.change("/datasets/rivers/dismissal", rationale="found after all", undo=True, **about)
    assert [one["state"] for one in back.json()["windows"]] == ["failed"], back.text
    assert world.change("/datasets/unknown/dismissal", window="P1D").status_code == 404
    assert world.change("/datasets/rivers/dismissal", window="1999-01-01/P1D").status_code == 422
    assert len(world.entries("window-dismissed")) == len(world.entries("window-expected-again")) == 1


@pytest.mark.req("DAT-10")
def test_incidents_are_acknowledged_and_silenced(world: World) -> None:
    """A person has seen one, or wants to hear no more for a while: both are on record, and are shown."""
    (incident,) = (one for one in world.get("/incidents")["incidents"] if one["about"] == "dataset")
    path = f"/incidents/{incident['incident_id']}"
    seen = world.change(f"{path}/acknowledge", rationale="I look into it")
    assert (seen.status_code, seen.json()["incident"]["acknowledged_by"]) == (200, "ann")
    assert world.change(f"{path}/acknowledge").status_code == 422
    for place in (path, f"/datasets/{incident['name']}"):
        until = rfc3339(world.opened().ledger.now_ms() + 3_600_000)
        quiet = world.change(f"{place}/silence", until=until, rationale="known")
        assert (quiet.status_code, quiet.json()["silence"]["until"]) == (200, until), quiet.text
        assert world.get(path)["incident"]["silenced_until"] == until
        assert world.change(f"{place}/silence", rationale="over").json()["silence"] is None
        assert world.get(path)["incident"]["silenced_until"] is None
    assert world.change("/datasets/unknown/silence", until=until).status_code == 404
    assert world.change("/incidents/unknown/acknowledge").status_code == 404
    assert len(world.entries("incident-acknowledged")) == 1
    assert len(world.entries("incident-silenced")) == 2


@pytest.mark.req("GOV-3")
def test_a_release_needs_two(world: World) -> None:
    """What is held is released by two people: who asks, and another who may approve."""
    held = world.get("/quarantine")["held"][0]
    asked = world.change(f"/quarantine/{held['held_id']}/release", rationale="mended")
    assert asked.status_code == 202
    request_id = asked.json()["request"]["request_id"]
    assert [one["request_id"] for one in world.get("/approvals")["requests"]] == [request_id]
    assert world.change(f"/approvals/{request_id}/approve", "ann").status_code == 403
    agreed = world.change(f"/approvals/{request_id}/approve", "bob", rationale="seen")
    assert agreed.status_code == 200, agreed.text
    assert agreed.json()["held"]["state"] == "released"
    assert agreed.json()["request"]["approved_by"] == "bob"
    again = world.change(f"/approvals/{request_id}/approve", "bob")
    assert (again.status_code, again.json()["code"]) == (409, "KFM311")
    for kind, who in (("release-requested", "ann"), ("approval", "bob"), ("release", "ann")):
        assert [one["actor"] for one in world.entries(kind)] == [who]
    assert world.change("/approvals/unknown/approve", "bob").status_code == 404
    assert world.change("/quarantine/unknown/release").status_code == 404


@pytest.mark.req("GOV-3")
def test_a_rejection_is_final(world: World) -> None:
    """An approver's no over HTTP: recorded with his reason, listed as rejected, and never approved."""
    held = world.get("/quarantine")["held"][0]
    asked = world.change(f"/quarantine/{held['held_id']}/release", rationale="mended").json()["request"]
    path = f"/approvals/{asked['request_id']}"
    assert world.change(f"{path}/reject", "ann").status_code == 403
    no = world.change(f"{path}/reject", "bob", rationale="not mended")
    assert (no.status_code, no.json()["request"]["state"]) == (200, "rejected"), no.text
    late = world.change(f"{path}/approve", "bob", rationale="after all")
    assert (late.status_code, late.json()["code"]) == (409, "KFM311")
    assert world.get("/approvals")["requests"] == []
    listed = world.get("/approvals?state=rejected")["requests"]
    assert [one["rejection_rationale"] for one in listed] == ["not mended"]
    assert [one["actor"] for one in world.entries("rejection")] == ["bob"]
    assert world.change("/approvals/unknown/reject", "bob").status_code == 404


@pytest.mark.req("GOV-3")
def test_no_person_approves_their_own_request(tmp_path: Path) -> None:
    """A person who may both operate and approve still needs another for what they asked for."""
    world = World(tmp_path / "p").past()
    config = (world.folder / "kfm.yml").read_text().replace("roles: [operate]", "roles: [operate, approve]")
    (world.folder / "kfm.yml").write_text(config)
    both = object.__new__(World)
    both.__dict__ = world.__dict__ | _reloaded(world.folder)
    held = both.get("/quarantine")["held"][0]
    request_id = both.change(f"/quarantine/{held['held_id']}/release").json()["request"]["request_id"]
    answer = both.change(f"/approvals/{request_id}/approve", "ann")
    assert (answer.status_code, answer.json()["code"]) == (409, "KFM311")


@pytest.mark.req("GOV-3")
def test_a_claimed_requester_does_not_approve(world: World) -> None:
    """A webhook or a person that names bob as the actor is not approved by bob."""
    from kfm.service.runner import make_dispatcher
    from tests.browser.filled import DAY_MS
    from tests.browser.filled import asked as webhook

    held = world.get("/quarantine")["held"][0]
    world.change(f"/quarantine/{held['held_id']}/release", actor="bob")
    app = world.opened()
    now_ms = app.kernel.store.now_ms()
    day = {"window_start_ms": 0, "window_end_ms": DAY_MS}
    hooked = webhook("one", now_ms, needs_approval=True, claimed_actor="bob", **day)
    app.kernel.store.requests().accept([hooked])
    (world.folder / "incoming" / "b.csv").write_text("day,flow\n3,4\n")
    make_dispatcher(app).step()
    app.close()
    asked = {one["kind"]: one["request_id"] for one in world.get("/approvals")["requests"]}
    assert set(asked) == {"release", "update"}
    for request_id in asked.values():
        for verb in ("approve", "reject"):
            answer = world.change(f"/approvals/{request_id}/{verb}", "bob")
            assert (answer.status_code, answer.json()["code"]) == (409, "KFM311"), verb


def _reloaded(folder: Path) -> dict[str, Any]:
    from kfm.config.loader import load
    from kfm.web.api.routes import api_app
    from kfm.web.request_context import WebContext

    loaded = load(str(folder / "kfm.yml"))
    context = WebContext(loaded)
    return {"loaded": loaded, "context": context, "app": api_app(context)}


def test_switches(world: World) -> None:
    """A kill switch is set for what there is, and says who and why."""
    for scope in ("all", "dataset:rivers", "domain:hydrology", "replays:all", "replays:rivers"):
        answer = world.change(f"/switches/{scope}", position="paused", rationale=f"for {scope}")
        assert answer.json()["switch"]["actor"] == "ann", scope
    for scope in ("dataset:unknown", "domain:unknown", "unknown", "dataset:", "replays:"):
        assert world.change(f"/switches/{scope}", position="paused").status_code == 404, scope
    assert world.change("/switches/all", position="off").status_code == 422
    assert len(world.entries("switch")) == 5


def test_schedules_are_paused_and_backfilled(world: World) -> None:
    """A schedule is paused, resumed and backfilled, each with an entry; a dry run creates nothing."""
    path = "/schedules/river-daily"
    assert world.change(f"{path}/pause", rationale="the gauge is out").json()["changed"] is True
    assert world.change(f"{path}/pause").json()["changed"] is False
    (schedule,) = world.get("/schedules")["schedules"]
    assert (schedule["paused"]["by"], schedule["paused"]["rationale"]) == ("ann", "the gauge is out")
    assert world.change(f"{path}/resume").json()["paused"] is None
    span = {"start": "2026-03-01T00:00:00Z", "end": "2026-03-04T00:00:00Z"}
    seen = world.change(f"{path}/backfill", dry_run=True, **span)
    assert (seen.status_code, seen.json()["made"], len(seen.json()["instants"])) == (202, 0, 3)
    assert world.get("/requests?kind=cron")["requests"] == []
    made = world.change(f"{path}/backfill", **span)
    assert made.json()["made"] == 3
    assert len(world.get("/requests?schedule=river-daily")["requests"]) == 3
    covered = world.get(f"{path}/instants?start=2026-03-01T00:00:00Z&end=2026-03-05T00:00:00Z")
    assert [one["fate"] for one in covered["instants"]][:3] == ["backfilled"] * 3
    assert len(covered["instants"]) == 4
    for kind in ("schedule-paused", "schedule-resumed", "backfill"):
        assert [one["actor"] for one in world.entries(kind)] == ["ann"], kind
    assert world.change("/schedules/unknown/pause").status_code == 404


@pytest.mark.parametrize("operation", CHANGES, ids=lambda operation: str(operation.name))
def test_every_change_says_why(tmp_path: Path, operation: Operation) -> None:
    """No change is made without a reason."""
    world = World(tmp_path / "p")
    who = "bob" if operation.role == "approve" else "ann"
    for said in ({}, {"rationale": ""}, {"rationale": " \n"}, {"rationale": None}):
        answer = world.ask("POST", named(operation), who, json={**body_of(operation), **said})
        assert (answer.status_code, answer.json()["code"]) == (422, "KFM304"), said
    assert world.get("/audit")["entries"] == []


# --- once ------------------------------------------------------------------------------


def test_the_same_key_is_one_request(world: World) -> None:
    """An update that is asked for twice under one key is one request, and one entry, also much later."""
    first = world.change("/requests", key="k-1", source="river")
    again = world.change("/requests", key="k-1", source="river")
    assert (first.status_code, again.status_code) == (202, 202)
    assert first.json() == again.json()
    assert first.headers["location"] == again.headers["location"]
    assert world.change("/requests", key="k-1", source="broken").status_code == 422
    assert world.change(f"/runs/{world.failed_id}/retry", key="k-1", ticket="T").status_code == 422
    assert world.change("/requests", key="k-2", source="river").json() != first.json()
    assert len(world.get("/requests?state=open")["requests"]) == 2
    assert len(world.entries("update-requested")) == 2


def test_the_same_key_is_one_change(world: World) -> None:
    """A change that is sent twice under one key is made once, and answered alike, also after a restart."""
    first = world.change("/switches/all", key="k", position="paused")
    world.__dict__ |= _reloaded(world.folder)
    world.change("/switches/all", position="running")
    again = world.change("/switches/all", key="k", position="paused")
    assert (again.status_code, again.json()) == (200, first.json())
    assert world.get("/switches")["switches"][0]["position"] == "running"
    assert len(world.entries("switch")) == 2
    other = world.change("/switches/all", key="k", position="stopped")
    assert (other.status_code, other.json()["code"]) == (422, "KFM200")
    elsewhere = world.change("/switches/dataset:rivers", key="k", position="paused")
    assert elsewhere.status_code == 422


def test_keys_are_everybodys_own(world: World) -> None:
    """One person's key says nothing about another's."""
    held = world.get("/quarantine")["held"][0]
    request_id = world.change(f"/quarantine/{held['held_id']}/release", key="k").json()["request"][
        "request_id"
    ]
    assert world.change(f"/approvals/{request_id}/approve", "bob", key="k").status_code == 200
    assert world.change(f"/approvals/{request_id}/approve", "bob", key="k").status_code == 200
    assert len(world.entries("approval")) == 1


def test_a_refused_change_gives_its_key_back(world: World) -> None:
    """What was not done under a key may be asked for again with it, once it can be done."""
    assert world.change("/breakers/host:other.org/reset", key="k").status_code == 404
    from kfm.model.breaker import on_failure

    app = world.opened()
    app.kernel.store.change_breaker("host:other.org", on_failure)
    app.close()
    assert world.change("/breakers/host:other.org/reset", key="k").status_code == 200
    assert world.change("/breakers/host:other.org/reset", key="k").status_code == 200
    assert len(world.entries("breaker-reset")) == 1


def test_a_change_in_hand_is_not_made_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a process ended in the middle of a change, no request makes it a second time under its key."""

    def dies(*_: Any, **__: Any) -> None:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr("kfm.app.App.set_switch", dies)
        assert world.change("/switches/all", key="k", position="paused").status_code == 500
    answer = world.change("/switches/all", key="k", position="paused")
    assert (answer.status_code, world.entries("switch")) == (409, [])
    assert world.change("/switches/all", key="another", position="paused").status_code == 200


@pytest.mark.parametrize("key", ["", "two words", "x" * 201, "\x7f"])
def test_odd_keys(world: World, key: str) -> None:
    """A key that is none is refused before anything is done."""
    assert world.change("/switches/all", key=key, position="paused").status_code == 422
    assert world.entries("switch") == []


def test_a_request_becomes_a_run(world: World) -> None:
    """What was asked for over HTTP is carried out through the admission that every call passes."""
    from kfm.service.runner import make_dispatcher

    wanted = world.change("/requests", source="river", window="2026-02-02/P1D").json()["request"]
    app = world.opened()
    make_dispatcher(app).step()
    app.close()
    done = world.get(f"/requests/{wanted['request_id']}")["request"]
    assert (done["state"], done["outcome"]) == ("done", "success")
    assert world.get(f"/runs/{done['run_id']}")["invocations"][0]["actor"] == "ann"
