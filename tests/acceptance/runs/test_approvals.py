"""Approvals for every trigger: a preview waits for a second person, who sees what it would change."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from kfm.model.quantities import moment
from tests.acceptance.runs.conftest import Inside
from tests.acceptance.runs.test_retries import change
from tests.acceptance.runs.test_roles import ANN, BOB, PEOPLE, RESTRICTED, Office, make_office, refused
from tests.crash.project import RIGHTS, Ended, table

pytestmark = pytest.mark.req("DAT-9")

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
HOURLY = """\
version: 1
schedules:
  - {{id: hourly, source: notes, cron: "0 * * * *", missed: {{run: all, cap: {cap}}}{more}}}
"""
DAILY = """\
version: 1
schedules:
  - {id: daily, source: notes, cron: "0 0 * * *", missed: {run: all, cap: 2}}
"""
REVIEW = "{license: CC0-1.0, care: {label: Review, level: review}}"
NC = "{license: CC-BY-NC-4.0, care: {label: Public, level: public}}"
SERVICE = "ann-os"


def let_pass(office: Office, back_ms: int, schedule: str = "%") -> None:
    """Nothing has been accounted for in this time."""
    of = f"WHERE schedule_id LIKE '{schedule}'"
    change(office, f"DELETE FROM instants {of} AND became <> 'redefined'")
    change(office, f"UPDATE instants SET last_ms = last_ms - {back_ms} {of}")
    change(office, f"UPDATE schedules SET cursor_ms = cursor_ms - {back_ms} {of}")


def fire(office: Office, back_ms: int = 2 * HOUR_MS) -> Ended:
    """The scheduled times of the last hours have come, and what is due is worked off."""
    if not office.state.exists() or not office.rows("SELECT * FROM schedules"):
        assert office.as_(SERVICE, "schedule", "run-due").code == 0
    let_pass(office, back_ms)
    return office.as_(SERVICE, "schedule", "run-due", "--json")


def configure(office: Office, *, people: str = PEOPLE, rights: str = RESTRICTED, extra: str = "") -> None:
    """The target takes the dataset by its name, also where it is restricted; what is blocked goes nowhere."""
    office.configure(more=people, rights=rights, extra=extra)
    if "blocked" in rights:
        return
    config = office.folder / "kfm.yml"
    config.write_text(config.read_text().replace("path: published}", "path: published, datasets: [levels]}"))


@pytest.fixture
def scheduled(project: Inside, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Office]:
    office = make_office(project, monkeypatch)

    def make(rights: str = RESTRICTED, *, cap: int = 1, schedule: str = "", extra: str = "") -> Office:
        configure(office, rights=rights, extra=extra)
        office.write("cron.yml", HOURLY.format(cap=cap, more=schedule))
        return office

    return make


def waiting(office: Office) -> list[dict[str, Any]]:
    return list(office.as_(BOB, "approvals", "list", "--json").document["requests"])


def states(office: Office) -> list[tuple[str, str | None]]:
    return office.rows("SELECT state, outcome FROM requests ORDER BY accepted_at_ms, instant_ms")


def agree(office: Office, approval: str, who: str = BOB) -> Ended:
    return office.as_(who, "approvals", "approve", approval, "--rationale", "seen", "--json")


@pytest.mark.parametrize("rights", [RESTRICTED, REVIEW, NC], ids=["restricted", "review", "non-commercial"])
def test_a_schedule_asks_and_waits(
    scheduled: Callable[..., Office], rights: str, valid: Callable[[str, Any], None]
) -> None:
    """Data that needs a person is not refused at a scheduled time: its preview waits, with its targets, and
    is published as it was approved."""
    office = scheduled(rights)
    fire(office)
    assert states(office) == [("awaiting-approval", None)]
    assert not office.published.exists()
    (asked,) = waiting(office)
    assert (asked["kind"], asked["dataset_id"], asked["excluded_by"]) == ("update", "levels", None)
    shown = office.as_(BOB, "approvals", "show", asked["request_id"], "--json")
    valid("cli-approvals-show", shown.document)
    assert shown.document["request"]["targets"] == ["local published"]
    assert any("a.csv" in line for line in shown.document["preview"])
    text = office.as_(BOB, "approvals", "show", asked["request_id"]).out
    assert "levels from notes" in text
    assert "a.csv" in text
    assert "local published" in text
    refused(agree(office, asked["request_id"], ANN), "KFM312")
    assert agree(office, asked["request_id"]).code == 0
    refused(agree(office, asked["request_id"][:13]), "KFM311")  # it is told what became of it
    assert office.as_(SERVICE, "schedule", "run-due", "--json").code == 0
    assert states(office) == [("done", "success")]
    assert office.current()
    (use,) = office.governance("approved-attempt")
    assert json.loads(use["details"])["request_id"] == asked["request_id"]
    assert office.as_(SERVICE, "project").code == 0


@pytest.mark.req("DAT-2")
def test_a_rejected_window_past_its_time_is_overdue(scheduled: Callable[..., Office]) -> None:
    """While it waits its approval is told of; rejected, it has no data, and that is told."""
    office = scheduled(extra="expect: {within: PT1M}")
    fire(office)
    change(office, f"UPDATE expectations SET since_ms = since_ms - {2 * DAY_MS}")
    overdue = "SELECT COUNT(*) FROM incident_subjects WHERE source_id = 'notes' AND subject LIKE 'notes %'"
    assert office.as_(SERVICE, "schedule", "run-due").code == 0
    (before,) = office.rows(overdue)
    (asked,) = waiting(office)
    ended = office.as_(BOB, "approvals", "reject", asked["request_id"], "--rationale", "not this one")
    assert ended.code == 0, ended
    assert office.as_(SERVICE, "schedule", "run-due").code == 0
    assert office.rows(overdue) == [(before[0] + 1,)]


def test_what_a_schedule_gives_satisfies_the_policies(scheduled: Callable[..., Office]) -> None:
    """A rationale and a ticket in cron.yml are those of each run: nothing waits."""
    office = scheduled(REVIEW, schedule=", rationale: agreed in May, ticket: T-7")
    fire(office)
    assert states(office) == [("done", "success")]
    assert office.rows("SELECT rationale, ticket FROM requests") == [("agreed in May", "T-7")]
    assert waiting(office) == []


def test_the_same_is_asked_for_once(scheduled: Callable[..., Office]) -> None:
    """Two scheduled times of one window open one approval; the second says which."""
    office = scheduled()
    fire(office)
    fire_again(office)
    assert states(office) == [("awaiting-approval", None), ("cancelled", "superseded")]
    (asked,) = waiting(office)
    (reason,) = office.rows("SELECT reason FROM requests WHERE state = 'cancelled'")[0]
    assert asked["request_id"] in reason
    assert office.rows("SELECT kind, state, affected FROM incidents") == [("approval-waiting", "open", 1)]
    assert agree(office, asked["request_id"]).code == 0
    assert office.rows("SELECT kind, state FROM incidents") == [("approval-waiting", "resolved")]


def test_a_newer_preview_supersedes_an_undecided_one(scheduled: Callable[..., Office]) -> None:
    """Other inputs, another preview: the old one can't be approved any more, and both say so."""
    office = scheduled()
    fire(office)
    (old,) = waiting(office)
    office.write("incoming/a.csv", table("a", 5))
    change(office, "DELETE FROM instants")
    change(office, "UPDATE requests SET instant_ms = 0")
    fire_again(office)
    (new,) = waiting(office)
    assert new["request_id"] != old["request_id"]
    assert new["digest"] != old["digest"]
    refused(agree(office, old["request_id"]), "KFM311")
    assert ("cancelled", "superseded") in states(office)
    (entry,) = office.governance("approval-superseded")
    assert json.loads(entry["details"])["superseded_by"] == new["request_id"]
    shown = office.as_(BOB, "approvals", "show", old["request_id"], "--json").document["request"]
    assert (shown["state"], shown["superseded_by"]) == ("superseded", new["request_id"])


def fire_again(office: Office) -> None:
    """The next scheduled time, which a person asks for by a backfill of the same window."""
    office.write(
        "cron.yml",
        office.folder.joinpath("cron.yml").read_text().replace("id: hourly", "id: again"),
    )
    assert office.as_(SERVICE, "schedule", "run-due").code == 0
    let_pass(office, 2 * HOUR_MS, "again")
    office.as_(SERVICE, "schedule", "run-due", "--json")


def test_a_rejected_request_is_not_asked_again(scheduled: Callable[..., Office]) -> None:
    """Rejected, it ends as rejected; the next scheduled time asks for nothing until something changes."""
    office = scheduled()
    fire(office)
    (asked,) = waiting(office)
    no = office.as_(BOB, "approvals", "reject", asked["request_id"], "--rationale", "too early", "--json")
    assert no.code == 0, no
    assert states(office) == [("cancelled", "rejected")]
    fire_again(office)
    assert waiting(office) == []
    assert ("done", "refused") in states(office)
    (reason,) = office.rows("SELECT reason FROM requests WHERE outcome = 'refused'")[0]
    assert "bob rejected the same" in reason
    assert "too early" in reason
    office.write("incoming/a.csv", table("a", 6))
    office.write("cron.yml", office.folder.joinpath("cron.yml").read_text().replace("again", "third"))
    assert office.as_(SERVICE, "schedule", "run-due").code == 0
    let_pass(office, 2 * HOUR_MS, "third")
    office.as_(SERVICE, "schedule", "run-due", "--json")
    assert len(waiting(office)) == 1


def test_what_waits_for_a_person_keeps_no_other_window_waiting(scheduled: Callable[..., Office]) -> None:
    """The next day's scheduled time asks for the next day, although the first still waits."""
    office = scheduled()
    office.write("cron.yml", DAILY)
    fire(office, 2 * DAY_MS)
    assert [state for state, _ in states(office)] == ["awaiting-approval"] * 2
    assert len(waiting(office)) == 2


def test_what_would_change_nothing_asks_no_person(scheduled: Callable[..., Office]) -> None:
    """A day without a file, and one that is published as it is, need no approval: by schedule and by hand."""
    office = scheduled(extra="expect: {within: PT1M}")
    for name in ("a", "b"):
        (office.folder / f"incoming/{name}.csv").rename(office.folder / f"{name}.csv")
    fire(office)
    assert states(office) == [("done", "absent")]
    assert waiting(office) == []
    assert "approval" not in office.as_(BOB, "status").out.splitlines()[0]
    day = ("--window", "2026-01-01/P1D")
    ran = office.as_(ANN, "run", "--source", "notes", *day, "--json")
    assert (ran.code, ran.result["word"], ran.result["error"]) == (0, "unchanged", None)
    assert "no data for this window" in ran.result["reason"]
    assert waiting(office) == []
    found = office.as_(BOB, "coverage", "levels", "--json").document["windows"]
    assert {one["state"] for one in found} == {"missing"}


def test_rows_and_counts_of_what_waits_are_of_now(scheduled: Callable[..., Office]) -> None:
    """Each row names its window; once one of two is decided, status, incident and list have one."""
    office = scheduled()
    office.write("cron.yml", DAILY)
    fire(office, 2 * DAY_MS)
    first, second = waiting(office)
    assert first["about"] != second["about"]
    start = office.rows("SELECT window_start_ms FROM requests ORDER BY window_start_ms")[0][0]
    assert moment(start)[:16] in office.as_(BOB, "approvals", "list").out
    assert "2 requests waiting for an approval" in office.as_(BOB, "status").out
    assert agree(office, first["request_id"]).code == 0
    assert "1 request waiting for an approval" in office.as_(BOB, "status").out
    (incident,) = office.as_(BOB, "incident", "list", "--json").document["incidents"]
    assert incident["affected"] == 1
    shown = office.as_(BOB, "incident", "show", incident["incident_id"], "--json").document
    assert (shown["incident"]["affected"], len(shown["subjects"])) == (1, 1)


# --- a person asks ---------------------------------------------------------------------


def test_a_person_who_runs_it_asks_for_it(scheduled: Callable[..., Office]) -> None:
    """`kfm run` of a source with `approval: required` opens the request, says so, and once it is approved
    publishes exactly what was shown."""
    office = scheduled(RIGHTS, extra="approval: required")
    run = ("run", "--source", "notes", "--window", "2026-01-01/P1D", "--json")
    first = office.as_(ANN, *run)
    assert (first.code, first.result["word"], first.result["error"]["code"]) == (3, "waiting", "KFM311")
    (asked,) = waiting(office)
    assert asked["request_id"] in first.result["error"]["remedy"]
    again = office.as_(ANN, *run)
    assert again.code == 3, again
    assert asked["request_id"] in again.result["error"]["remedy"]
    assert len(waiting(office)) == 1
    assert agree(office, asked["request_id"]).code == 0
    done = office.as_(ANN, *run)
    assert (done.code, done.result["word"]) == (0, "published"), done
    assert office.current()


def test_what_a_machine_runs_is_refused(
    scheduled: Callable[..., Office], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`approval: required` holds for a machine's `kfm run`, too: refused, with the command that asks."""
    from kfm.cli.session import CommandSession

    monkeypatch.setattr(CommandSession, "by_person", False)
    office = scheduled(RIGHTS, extra="approval: required")
    ended = office.as_(SERVICE, "run", "--source", "notes", "--window", "2026-01-01/P1D", "--json")
    assert (ended.code, ended.result["error"]["code"]) == (3, "KFM301"), ended
    assert "kfm approvals request --source notes" in ended.result["error"]["remedy"]
    assert waiting(office) == []


def test_drift_after_the_approval_publishes_nothing(scheduled: Callable[..., Office]) -> None:
    """What was approved is what is published, or nothing is."""
    office = scheduled(RIGHTS, extra="approval: required")
    run = ("run", "--source", "notes", "--window", "2026-01-01/P1D", "--json")
    office.as_(ANN, *run)
    (asked,) = waiting(office)
    assert agree(office, asked["request_id"]).code == 0
    office.write("incoming/a.csv", table("a", 9))
    ended = office.as_(ANN, *run)
    assert ended.code == 3, ended
    assert not office.published.exists()


# --- every attempt -----------------------------------------------------------------------


def test_the_approval_is_for_every_attempt(scheduled: Callable[..., Office]) -> None:
    """A restricted request that was approved and failed for a passing reason is tried again by itself."""
    office = scheduled(extra='pipeline: "pipeline.py:publish", output_version: "1"')
    flaky = (
        "import os\n"
        "def publish(context):\n"
        "    if os.path.exists('down'):\n"
        "        raise TimeoutError('no answer')\n"
        "    for one in context.inputs:\n"
        "        context.publisher.write_file(one.path, one.fetched)\n"
    )
    office.write("pipeline.py", flaky)
    fire(office)
    (asked,) = waiting(office)
    assert agree(office, asked["request_id"]).code == 0
    office.write("down", "")
    office.as_(SERVICE, "schedule", "run-due")
    assert office.rows("SELECT fate FROM retry_states") == [("retry",)]
    (office.folder / "down").unlink()
    change(office, "UPDATE requests SET not_before_ms = 0")
    change(office, "UPDATE retry_states SET not_before_ms = 0")
    office.as_(SERVICE, "schedule", "run-due")
    assert states(office) == [("done", "success")]
    assert len(office.governance("approved-attempt")) == 2
    assert office.rows("SELECT attempt FROM approval_uses ORDER BY attempt") == [(1,), (2,)]


# --- approvals that exclude each other -----------------------------------------------------


def test_two_that_exclude_each_other_are_told(scheduled: Callable[..., Office]) -> None:
    """Of two previews on one version the second is refused as soon as the first is approved; once that is
    published, its preview is made anew, and can be approved."""
    office = scheduled(cap=2)
    office.write("cron.yml", DAILY)
    fire(office, 2 * DAY_MS)
    one, other = (each["request_id"] for each in waiting(office))
    shown = office.as_(BOB, "approvals", "show", one, "--json").document["request"]
    assert shown["rivals"] == [other]
    assert agree(office, one).code == 0
    (left,) = waiting(office)
    assert one in left["excluded_by"]
    second = agree(office, other)
    refused(second, "KFM311")
    assert one in second.document["message"]
    office.as_(SERVICE, "schedule", "run-due")  # publishes the first
    office.as_(SERVICE, "schedule", "run-due")  # and makes the preview of the second anew
    (anew,) = waiting(office)
    assert anew["request_id"] != other
    assert anew["excluded_by"] is None
    assert anew["base_sequence"] == 1
    assert agree(office, anew["request_id"]).code == 0
    office.as_(SERVICE, "schedule", "run-due")
    assert states(office) == [("done", "success")] * 2


# --- standing approvals --------------------------------------------------------------------


def stands(office: Office, who: str = BOB, until: str = "2027-06-30") -> Ended:
    return office.as_(
        who, "approvals", "stand", "notes", "--until", until, "--rationale", "council agreed", "--json"
    )


def test_a_standing_approval_lets_every_run_begin(
    scheduled: Callable[..., Office], valid: Callable[[str, Any], None]
) -> None:
    """Until its date no run waits; each use is in the audit log; once revoked, the next one waits."""
    office = scheduled(schedule="")
    office.write("cron.yml", DAILY)
    given = stands(office)
    assert given.code == 0, given
    valid("cli-request", given.document)
    approval = given.document["request"]["request_id"]
    fire(office, 2 * DAY_MS)
    assert states(office) == [("done", "success")] * 2
    uses = office.governance("approved-attempt")
    assert [json.loads(use["details"])["request_id"] for use in uses] == [approval] * 2
    (entry,) = office.governance("standing-approval")
    assert (entry["actor"], entry["rationale"]) == ("bob", "council agreed")
    assert office.as_(BOB, "approvals", "show", approval, "--json").document["request"]["uses"] == 2
    ended = office.as_(BOB, "approvals", "revoke", approval[:13], "--rationale", "over", "--json")
    assert ended.document["request"]["state"] == "revoked"
    refused(office.as_(BOB, "approvals", "revoke", approval, "--rationale", "over", "--json"), "KFM311")
    assert office.as_(ANN, "run", "--window", "2026-01-01/P1D", "--json").result["word"] == "waiting"
    assert office.as_(SERVICE, "project").code == 0  # what was published under it stays


@pytest.mark.parametrize("moved", ["date", "rights", "code", "target", "person"])
def test_a_standing_approval_ends_with_its_terms(scheduled: Callable[..., Office], moved: str) -> None:
    """It lapses at its date; with other rights, code or targets, or a giver who approves no more, it counts
    no more: the next run waits."""
    office = scheduled()
    assert stands(office).code == 0
    people, extra, rights = PEOPLE, "", RESTRICTED
    if moved == "date":
        change(office, "UPDATE approvals SET expires_at_ms = 1")
    elif moved == "rights":
        rights = RESTRICTED.replace("CC0-1.0", "CC-BY-4.0")
    elif moved == "code":
        extra = 'output_version: "2"'
    elif moved == "person":
        people = PEOPLE.replace("{subject: bob, roles: [approve]", "{subject: bob, roles: [read]")
    configure(office, people=people, rights=rights, extra=extra)
    if moved == "target":
        config = office.folder / "kfm.yml"
        config.write_text(config.read_text().replace("path: published", "path: elsewhere"))
    assert office.as_(ANN, "run", "--window", "2026-01-01/P1D", "--json").result["word"] == "waiting"


def test_who_gave_it_asks_like_everybody(scheduled: Callable[..., Office]) -> None:
    """A standing approval does not count for a run that its giver asks for."""
    office = scheduled()
    assert stands(office, "dee").code == 0
    run = ("run", "--window", "2026-01-01/P1D", "--json")
    assert office.as_("dee-adm", *run).result["word"] == "waiting"
    assert office.as_(ANN, "run", "--window", "2026-01-02/P1D", "--json").result["word"] == "published"


def test_who_may_give_it(scheduled: Callable[..., Office]) -> None:
    """A declared person with the role approve, whom the source names, until the date that it names."""
    office = scheduled(extra="approvals: {standing: {by: [bob], until: 2027-03-31}}")
    refused(stands(office, ANN), "KFM312")
    refused(stands(office, "dee"), "KFM311")
    late = stands(office, until="2027-04-30")
    assert (late.code, late.document["code"]) == (2, "KFM200"), late
    assert stands(office, until="2027-03-31").code == 0
    office.configure(rights=RESTRICTED)  # no people: none is declared
    refused(
        office.as_(
            "bob-os", "approvals", "stand", "notes", "--until", "2027-01-01", "--rationale", "x", "--json"
        ),
        "KFM311",
    )


def test_blocked_data_can_not_be_approved_in_advance(scheduled: Callable[..., Office]) -> None:
    """What no approval lifts is not approved in advance either."""
    office = scheduled("{license: CC0-1.0, care: {label: Sacred, level: blocked}}")
    refused(stands(office), "KFM311")


@pytest.mark.parametrize(
    ("extra", "line"),
    [
        ("approvals: {standing: {by: [bobb]}}", "`bobb` is not among the people with the role approve"),
        ("approvals: {standing: {until: soon}}", "`until` can't be used"),
        ("approval: sometimes", "approval"),
    ],
)
def test_a_wrong_setting_is_told(scheduled: Callable[..., Office], extra: str, line: str) -> None:
    """`kfm config check` names what can't be right about approvals, with its line."""
    ended = scheduled(extra=extra).as_(ANN, "config", "check", "--json")
    assert ended.code == 2, ended
    assert line in ended.out, ended


def test_an_empty_reason_of_a_schedule_is_told(scheduled: Callable[..., Office]) -> None:
    """A rationale of blanks is none."""
    office = scheduled(schedule=", rationale: ' '")
    ended = office.as_(ANN, "schedule", "list", "--json")
    assert ended.code == 2, ended
    assert "`rationale` must not be empty" in ended.out + ended.err, ended
