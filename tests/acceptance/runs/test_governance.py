"""Who may stop `kfm run`, what a force can pass, and what is on record afterwards."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest

from tests.acceptance.runs.conftest import Inside, http_source
from tests.crash.project import Ended, finish
from tests.crash.scenarios import RUN
from tests.crash.upstream import Upstream

REASONS = ("--rationale", "the flood is now", "--ticket", "OPS-7")
BLOCKED = '{license: CC0-1.0, care: {label: "Not to be shared", level: blocked}}'
PUBLISH_FORBIDDEN = """\
@id("own.not-this-one")
@gate("care")
@message("The community has not released this.")
forbid (principal, action == Action::"publish", resource);
"""
FAILING = 'def publish(context):\n    raise ValueError("the sensor speaks in riddles")\n'
PASSING = """\
def publish(context):
    for one in context.inputs:
        context.publisher.write_file(one.path, one.fetched)
"""


def refused(ended: Ended, code: str) -> None:
    assert ended.code == 3, ended
    assert ended.result["error"]["code"] == code, ended
    assert ended.result["word"] == "blocked"


def untouched(project: Inside) -> None:
    """No run, no key, no lock, nothing published: only the call is on record."""
    assert project.rows("SELECT * FROM runs") == []
    assert project.rows("SELECT * FROM promotions") == []
    assert project.rows("SELECT * FROM locks WHERE worker_id IS NOT NULL") == []
    assert not project.published.exists()
    assert project.rows("SELECT DISTINCT outcome FROM invocations") == [("refused",)]


def frozen() -> str:
    now = datetime.now(UTC)
    start, end = now - timedelta(hours=1), now + timedelta(hours=1)
    return (
        f'freezes: [{{start: "{start:%Y-%m-%dT%H:%M:%SZ}", end: "{end:%Y-%m-%dT%H:%M:%SZ}", reason: Audit}}]'
    )


@pytest.mark.req("UPD-2", "UPD-9")
def test_an_unknown_licence_is_refused(project: Inside) -> None:
    """A policy's refusal leaves the call and a governance entry, and consumes nothing."""
    project.configure(rights="{license: Whatever-1.0, care: {label: Public}}")
    refused(project.run(), "KFM301")
    untouched(project)
    assert len(project.governance("gate-refused")) == 1
    project.configure()
    assert project.run().result["word"] == "published"
    assert project.rows("SELECT attempts, revision FROM runs") == [(1, 0)]


@pytest.mark.req("UPD-9")
def test_a_care_refusal_asks_for_a_review(project: Inside) -> None:
    """Data that its community has blocked is not even fetched, and a review is asked for."""
    project.configure(rights=BLOCKED)
    ended = project.run()
    refused(ended, "KFM301")
    assert "care" in [gate["gate"] for gate in ended.result["gates"] if not gate["allowed"]]
    untouched(project)
    assert len(project.governance("review")) == 1


@pytest.mark.req("UPD-9", "GOV-1")
def test_a_care_violation_in_flight_halts_and_pauses(
    project: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found before promotion: nothing is promoted, the dataset is paused, review and postmortem begin."""
    project.write("own.cedar", PUBLISH_FORBIDDEN)
    project.configure(more="policies: [own.cedar]")
    refused(project.run(), "KFM302")
    assert not project.published.exists()
    assert project.rows("SELECT * FROM promotions") == []
    for kind in ("review", "postmortem"):
        assert len(project.governance(kind)) == 1, kind
    assert project.rows("SELECT scope, position FROM switches") == [("dataset:levels", "paused")]
    project.configure()
    unreviewed = project.run()
    refused(unreviewed, "KFM301")
    assert "kfm quarantine resume" in unreviewed.result["error"]["remedy"]
    lifted = project.kfm("switch", "set", "running", "--dataset", "levels", "--rationale", "reviewed")
    assert lifted.code == 0, lifted
    refused(project.run(), "KFM301")
    ((run,),) = project.rows("SELECT run_id FROM runs")
    asked = project.kfm("quarantine", "release", run, "--rationale", "the rule was wrong", "--json")
    request = asked.document["request"]["request_id"]
    assert project.kfm("approve", request, "--rationale", "me, too").code == 3
    refused(project.run(), "KFM301")
    monkeypatch.setattr("kfm.config.loader.actor", lambda: "bob")
    assert project.kfm("approve", request, "--rationale", "seen the review").code == 0
    assert project.run().result["word"] == "published"


@pytest.mark.req("RET-9", "GOV-3")
def test_a_halt_that_no_approval_lifts_can_not_be_released(project: Inside) -> None:
    """While the rule still forbids the work, no person is asked to approve it."""
    project.write("own.cedar", PUBLISH_FORBIDDEN)
    project.configure(more="policies: [own.cedar]")
    refused(project.run(), "KFM302")
    ((run,),) = project.rows("SELECT run_id FROM runs")
    asked = project.kfm("quarantine", "release", run, "--rationale", "please", "--json")
    assert (asked.code, asked.document["code"]) == (3, "KFM311"), asked
    assert project.rows("SELECT * FROM approvals") == []


@pytest.mark.req("GOV-1", "CLI-1")
@pytest.mark.parametrize("position", ["paused", "stopped"])
@pytest.mark.parametrize("scope", [("--all",), ("--domain", "hydrology"), ("--dataset", "levels")])
def test_a_switch_keeps_work_from_starting(project: Inside, position: str, scope: tuple[str, ...]) -> None:
    """A thrown switch is named with the command that lifts it; lifting it needs a reason."""
    assert project.kfm("switch", "set", position, *scope, "--rationale", "storm").code == 0
    ended = project.run()
    refused(ended, "KFM307")
    assert "kfm switch set running" in ended.result["error"]["remedy"]
    untouched(project)
    unreasoned = project.kfm("switch", "set", "running", *scope, "--json")
    assert unreasoned.code == 3, unreasoned
    assert unreasoned.document["code"] == "KFM304"
    assert project.kfm("switch", "set", "running", *scope, "--rationale", "over").code == 0
    assert project.run().result["word"] == "published"
    assert [entry["rationale"] for entry in project.governance("switch")] == ["storm", "over"]


@pytest.mark.req("GOV-1")
@pytest.mark.parametrize(("position", "code"), [("stopped", 3), ("paused", 0)])
def test_a_switch_thrown_in_flight(project: Inside, upstream: Upstream, position: str, code: int) -> None:
    """Stopped cancels the run in flight and publishes nothing; paused lets it go on."""
    project.configure(source=http_source(upstream))
    upstream.hold.clear()
    running = project.start(*RUN)
    try:
        assert upstream.began.wait(20)
        assert project.kfm("switch", "set", position, "--all", "--rationale", "storm").code == 0
    finally:
        upstream.hold.set()
    ended = finish(running)
    assert ended.code == code, ended
    assert project.published.exists() == (position == "paused")
    if position == "stopped":
        assert ended.result["error"]["code"] == "KFM307"
        assert project.rows("SELECT status, error_code FROM runs") == [("failed", "CANCELLED")]
        assert project.rows("SELECT * FROM locks WHERE worker_id IS NOT NULL") == []
        project.kfm("switch", "set", "running", "--all", "--rationale", "over")
        assert project.run().result["word"] == "published"


@pytest.mark.req("GOV-1")
def test_a_stop_reaches_a_pipeline_that_takes_its_time(project: Inside) -> None:
    """A switch thrown while the pipeline computes is seen before promotion."""
    project.write(
        "pipeline.py",
        "import os, time\n\n\ndef publish(context):\n    open('began', 'w').close()\n"
        "    while not os.path.exists('go'):\n        time.sleep(0.01)\n"
        "    for one in context.inputs:\n        context.publisher.write_file(one.path, one.fetched)\n",
    )
    project.configure(extra='pipeline: "pipeline.py:publish"')
    running = project.start(*RUN)
    deadline = time.monotonic() + 20
    while not (project.folder / "began").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert project.kfm("switch", "set", "stopped", "--dataset", "levels", "--rationale", "storm").code == 0
    project.write("go", "")
    ended = finish(running)
    assert (ended.code, ended.result["error"]["code"]) == (3, "KFM307"), ended
    assert not project.published.exists()


@pytest.mark.req("UPD-9", "UPD-10")
def test_a_freeze_is_passed_by_force_with_reasons(project: Inside) -> None:
    """A freeze refuses; a force with rationale and ticket passes it, on record, under a key of its own."""
    project.configure(more=frozen())
    ended = project.run()
    refused(ended, "KFM301")
    assert "Audit" in ended.result["reason"]
    untouched(project)
    for missing in ((), REASONS[:2], REASONS[2:]):
        unreasoned = project.run("--force", *missing)
        assert unreasoned.code == 3, unreasoned
        assert unreasoned.document["code"] == "KFM304"
    forced = project.run("--force", *REASONS)
    assert forced.code == 0, forced
    assert [gate["gate"] for gate in forced.result["gates"] if gate["overridden"]].count("freeze") >= 1
    (entry,) = project.governance("force")
    assert (entry["rationale"], entry["ticket"]) == ("the flood is now", "OPS-7")
    assert "freeze" in entry["details"]


@pytest.mark.req("UPD-10", "TRG-2")
def test_force_opens_the_next_revision(project: Inside) -> None:
    """A force on finished work is a new revision with a key of its own each time."""
    project.run()
    for expected in (2, 3):
        forced = project.run("--force", *REASONS)
        assert forced.code == 0, forced
        assert len(project.rows("SELECT run_id FROM runs")) == expected
    assert project.rows("SELECT revision, force FROM runs ORDER BY revision") == [(0, 0), (1, 1), (2, 2)]
    assert project.rows("SELECT count(DISTINCT idempotency_key) FROM runs") == [(3,)]


@pytest.mark.req("UPD-10")
@pytest.mark.parametrize("gate", ["care", "licence", "switch", "contract"])
def test_force_does_not_pass(project: Inside, gate: str) -> None:
    """No rationale opens a CARE or licence gate, a kill switch or a broken contract."""
    code = {"care": "KFM301", "licence": "KFM301", "switch": "KFM307", "contract": "KFM303"}
    if gate == "care":
        project.configure(rights=BLOCKED, more=frozen())
    if gate == "licence":
        project.configure(rights="{license: Whatever-1.0, care: {label: Public}}")
    if gate == "switch":
        project.kfm("switch", "set", "paused", "--all", "--rationale", "storm")
    if gate == "contract":
        project.write("incoming/b.csv", "station,level_m\nb-1,1000\n")
    refused(project.run("--force", *REASONS), code[gate])
    assert not project.published.exists()
    assert project.rows("SELECT * FROM promotions") == []


@pytest.mark.req("UPD-5", "UPD-10")
def test_past_its_budget_a_retry_needs_reasons(project: Inside) -> None:
    """Six attempts are free; the next needs rationale and ticket, and is the same run."""
    project.write("pipeline.py", FAILING)
    project.configure(extra='pipeline: "pipeline.py:publish", output_version: "1"')
    for _ in range(6):
        assert project.run().code == 1
    spent = project.run()
    refused(spent, "KFM305")
    assert project.run("--rationale", "once more").code == 3
    assert project.rows("SELECT status, attempts, revision FROM runs") == [("failed", 6, 0)]
    project.write("pipeline.py", PASSING)
    ended = project.run(*REASONS)
    assert ended.code == 0, ended
    assert project.rows("SELECT status, attempts, revision FROM runs") == [("success", 7, 0)]
    (entry,) = project.governance("governed-retry")
    assert (entry["rationale"], entry["ticket"]) == ("the flood is now", "OPS-7")


@pytest.mark.req("UPD-10")
def test_force_passes_a_spent_budget(project: Inside) -> None:
    """A force opens the next revision of work whose budget is spent."""
    project.write("pipeline.py", FAILING)
    project.configure(extra='pipeline: "pipeline.py:publish", output_version: "1"')
    for _ in range(6):
        project.run()
    refused(project.run(), "KFM305")
    project.write("pipeline.py", PASSING)
    assert project.run("--force", *REASONS).result["word"] == "published"
    assert project.rows("SELECT revision, status FROM runs ORDER BY 1") == [(0, "failed"), (1, "success")]


@pytest.mark.req("UPD-9", "UPD-10")
@pytest.mark.parametrize("forced", [(), ("--force", *REASONS)])
def test_without_rights_nothing_is_published(project: Inside, forced: tuple[str, ...]) -> None:
    """A dataset that declares no rights is refused, by force too."""
    _remove_rights(project)
    ended = project.run(*forced)
    assert ended.code == 3, ended
    untouched(project)


@pytest.mark.req("UPD-9")
def test_missing_rights_are_named(project: Inside) -> None:
    """The refusal says that rights are missing, and where they are declared."""
    _remove_rights(project)
    refused(project.run(), "KFM308")


def _remove_rights(project: Inside) -> None:
    text = (project.folder / "kfm.yml").read_text()
    begin = text.index(", rights:")
    project.write("kfm.yml", text[:begin] + text[text.index("}}", begin) + 2 :])
