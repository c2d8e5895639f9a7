"""A dataset that was wrong, and data that must go: what people do about them at the command line."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kfm.app import open_app
from kfm.config.loader import load
from kfm.datasets import changes
from kfm.model.errors import ContentGone, LockHeld
from kfm.reports.blockers import refused_calls
from kfm.runs import gc
from kfm.runs.target_updates import project as updated_targets
from tests.acceptance.runs.conftest import Inside
from tests.acceptance.runs.test_governance import BLOCKED
from tests.crash.project import RIGHTS, Ended, table

pytestmark = pytest.mark.req("DAT-4", "DAT-5")

DAYS = ("2026-01-01", "2026-01-02", "2026-01-03")
SOURCE = '{id: notes, dataset: levels, kind: files, folder: incoming, pattern: "{window.start:%Y-%m-%d}.csv"}'
TWIN_SOURCE = '{id: copies, dataset: twin, kind: files, folder: incoming, pattern: "2026-01-02.csv"}'
WHY = ("--rationale", "It was wrong.")
Valid = Callable[[str, Any], None]


def day(project: Inside, text: str, *more: str) -> Ended:
    return project.kfm("run", "--json", "--window", f"{text}/P1D", *more)


@pytest.fixture
def filled(project: Inside) -> Inside:
    """Three days in three versions."""
    project.configure(source=SOURCE)
    for text in DAYS:
        project.write(f"incoming/{text}.csv", table(text, 3))
        assert day(project, text).code == 0
    return project


def shown(project: Inside) -> list[str]:
    """The days that readers see."""
    data = project.published / "levels/current/data"
    return sorted(path.stem for path in data.rglob("*.csv"))


def blob(text: str) -> str:
    return hashlib.sha256(table(text, 3)).hexdigest()


def objects(project: Inside) -> set[str]:
    return {path.parent.name + path.name for path in (project.state / "objects/sha256").rglob("*")}


def tombstone(project: Inside) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((project.published / "levels/current/withdrawn.json").read_bytes())
    return found


def sound(project: Inside) -> None:
    ended = project.kfm("audit", "verify", "--json")
    assert ended.code == 0, ended


def test_a_rollback_is_previewed_applied_and_holds(filled: Inside, valid: Valid) -> None:
    """The old content is a new version; the dataset is paused, and the next run does not bring the bad data
    back before it is resumed."""
    preview = filled.kfm("rollback", "levels", "--to", "2", "--json")
    valid("cli-rollback", preview.document)
    plan = preview.document["plan"]
    assert (preview.code, preview.document["applied"], plan["sequence"], plan["to_sequence"]) == (
        0,
        False,
        4,
        2,
    )
    assert [one["name"] for one in plan["changes"]] == ["2026-01-03/2026-01-03.csv"]
    assert shown(filled) == list(DAYS)
    done = filled.kfm("rollback", "levels", "--to", "2", "--digest", plan["digest"], "--json", *WHY)
    valid("cli-rollback", done.document)
    assert (done.code, done.document["receipt"]["change"]["version"]) == (0, 4)
    assert shown(filled) == list(DAYS[:2])
    refused = day(filled, DAYS[2])
    assert (refused.code, shown(filled)) == (3, list(DAYS[:2]))
    assert "Rolled back to version 2" in refused.out + refused.err
    assert filled.kfm("switch", "set", "running", "--dataset", "levels", *WHY).code == 0
    assert day(filled, DAYS[2]).result["word"] == "published"
    assert shown(filled) == list(DAYS)
    sound(filled)


def test_a_plan_that_has_drifted_is_refused(filled: Inside) -> None:
    """What was looked at is applied, or nothing."""
    plan = filled.kfm("withdraw", "levels", "--window", "2026-01-02/P1D", "--json").document["plan"]
    filled.write(f"incoming/{DAYS[0]}.csv", table("revised", 5))
    assert day(filled, DAYS[0]).result["word"] == "published"
    ended = filled.kfm(
        "withdraw", "levels", "--window", "2026-01-02/P1D", "--digest", plan["digest"], "--json", *WHY
    )
    assert (ended.code, ended.document["code"]) == (3, "KFM306")
    assert filled.rows("SELECT * FROM dataset_changes") == []


def test_a_change_needs_a_reason(filled: Inside) -> None:
    """Without a rationale nothing is applied."""
    ended = filled.kfm("withdraw", "levels", "--yes", "--json")
    assert (ended.code, ended.document["code"]) == (3, "KFM304")


def test_a_withdrawn_window_stays_away_until_it_is_lifted(filled: Inside, valid: Valid) -> None:
    """Readers get a tombstone in its place; no run and no force brings it back, and lifting lets it come."""
    done = filled.kfm("withdraw", "levels", "--window", "2026-01-02/P1D", "--yes", "--json", *WHY)
    valid("cli-withdraw", done.document)
    assert (done.code, shown(filled)) == (0, [DAYS[0], DAYS[2]])
    stands = tombstone(filled)
    assert (stands["state"], stands["withdrawn"][0]["window_start"]) == (
        "partly-withdrawn",
        "2026-01-02T00:00:00Z",
    )
    forced = day(filled, DAYS[1], "--force", "--rationale", "please", "--ticket", "T-1")
    for refused in (day(filled, DAYS[1]), forced):
        assert (refused.code, refused.result["error"]["code"]) == (3, "KFM350")
        assert "--lift" in refused.result["error"]["remedy"]
    assert filled.kfm("rollback", "levels", "--to", "3", "--json").document["code"] == "KFM351"
    filled.write(f"incoming/{DAYS[0]}.csv", table("revised", 5))
    assert day(filled, DAYS[0]).result["word"] == "published", "another window is not touched"
    assert tombstone(filled)["sequence"] == 5
    lifted = filled.kfm("withdraw", "levels", "--window", "2026-01-02/P1D", "--lift", "--yes", "--json", *WHY)
    valid("cli-withdraw", lifted.document)
    assert (lifted.code, shown(filled)) == (0, [DAYS[0], DAYS[2]])
    assert lifted.document["receipt"]["change"]["version"] == 6
    assert not (filled.published / "levels/current/withdrawn.json").exists(), "nothing is withdrawn any more"
    assert day(filled, DAYS[1]).result["word"] == "published"
    assert shown(filled) == list(DAYS)
    assert not (filled.published / "levels/current/withdrawn.json").exists()
    sound(filled)


def test_the_command_of_a_refusal_is_the_way_out(filled: Inside) -> None:
    """What a refusal and `dataset show` print to lift a withdrawal lifts it, once TEXT is written."""
    assert filled.kfm("withdraw", "levels", "--window", "2026-01-02/P1D", "--yes", *WHY).code == 0
    remedy = day(filled, DAYS[1]).result["error"]["remedy"]
    (listed,) = filled.kfm("dataset", "show", "levels", "--json").document["dataset"]["withdrawn"]
    assert f"`{listed['command']}`" in remedy
    assert filled.kfm(*listed["command"].replace("TEXT", "agreed").split()[1:]).code == 0
    assert day(filled, DAYS[1]).result["word"] == "published"


def test_a_purge_leaves_no_byte_but_what_others_need(filled: Inside) -> None:
    """Old versions and their bytes go from tree and object store; another dataset's copy stays."""
    filled.configure(source=f"{SOURCE}\n  - {TWIN_SOURCE}", more="")
    config = (filled.folder / "kfm.yml").read_text()
    filled.write(
        "kfm.yml", config.replace("sources:\n", f"  - {{id: twin, rights: {RIGHTS}}}\nsources:\n", 1)
    )
    shared = filled.kfm("run", "--json", "--source", "copies", "--window", f"{DAYS[1]}/P1D")
    assert shared.code == 0, shared
    done = filled.kfm("withdraw", "levels", "--purge", "--yes", "--json", *WHY)
    assert done.code == 0, done
    purges = {one["place"]: one for one in done.document["receipt"]["purges"]}
    assert {place: one["state"] for place, one in purges.items()} == {
        "objects": "done",
        "target:local": "done",
    }
    assert {one["what"] for one in done.document["receipt"]["out_of_reach"]} >= {"artifacts", "backups"}
    assert objects(filled) & {blob(text) for text in DAYS} == {blob(DAYS[1])}
    kept = [path for path in (filled.published / "levels").rglob("*") if path.is_file()]
    assert all("00000004-" in str(path) for path in kept)
    assert {path.name for path in kept} == {
        "manifest.json",
        "collection.json",
        "dcat.jsonld",
        "withdrawn.json",
    }
    assert (filled.published / "twin/current/data").exists()
    for version in ("1", "2", "3"):
        ended = filled.kfm("rollback", "levels", "--to", version, "--json")
        assert ended.document["code"] == "KFM351"
    sound(filled)


def test_a_purge_that_is_interrupted_is_finished_by_project(filled: Inside) -> None:
    """What could not be reached is outstanding in the receipt, and done by the next `kfm project`."""
    folder = filled.published
    hidden = folder.with_name("away")
    folder.rename(hidden)
    Path(folder).write_text("not a folder")
    done = filled.kfm("withdraw", "levels", "--purge", "--yes", "--json", *WHY)
    assert done.code == 4
    states = {one["place"]: one["state"] for one in done.document["receipt"]["purges"]}
    assert states["target:local"] == "outstanding"
    folder.unlink()
    hidden.rename(folder)
    assert filled.kfm("project", "--json").code == 0
    assert shown(filled) == []
    assert filled.rows("SELECT DISTINCT state FROM purges") == [("done",)]
    assert filled.kfm("project", "--json").code == 0


def test_what_may_not_be_published_can_be_taken_down(filled: Inside) -> None:
    """A CARE block is at the top of the status with the command; neither it nor a switch stops removing."""
    filled.configure(source=SOURCE, rights=BLOCKED)
    status = filled.kfm("status", "--json").document
    assert status["headline"]["command"] == "kfm withdraw levels"
    assert [one["dataset_id"] for one in status["to_withdraw"]] == ["levels"]
    assert filled.kfm("switch", "set", "stopped", "--all", *WHY).code == 0
    refused = filled.kfm("rollback", "levels", "--to", "1", "--yes", "--json", *WHY)
    assert (refused.code, shown(filled)) == (0, [DAYS[0]]), "it only removes"
    assert filled.kfm("withdraw", "levels", "--yes", "--json", *WHY).code == 0
    assert shown(filled) == []
    assert tombstone(filled)["state"] == "withdrawn"
    assert filled.kfm("status", "--json").document["to_withdraw"] == []


def test_a_rollback_shows_nothing_new_of_blocked_data(filled: Inside) -> None:
    """What adds something for readers passes the gates, or is refused."""
    assert filled.kfm("rollback", "levels", "--to", "1", "--yes", "--json", *WHY).code == 0
    filled.configure(source=SOURCE, rights=BLOCKED)
    refused = filled.kfm("rollback", "levels", "--to", "3", "--yes", "--json", *WHY)
    assert (refused.code, refused.document["code"]) == (3, "KFM301")
    assert shown(filled) == [DAYS[0]]


def test_a_dataset_that_is_gone_from_the_configuration_is_withdrawn(filled: Inside) -> None:
    """It stays visible until it is withdrawn, and can be."""
    config = (filled.folder / "kfm.yml").read_text()
    filled.write(
        "kfm.yml", config.replace("id: levels", "id: other").replace("dataset: levels", "dataset: other")
    )
    assert shown(filled) == list(DAYS)
    done = filled.kfm("withdraw", "levels", "--yes", "--json", *WHY)
    assert (done.code, shown(filled)) == (0, []), done


def test_a_retired_dataset_ends(filled: Inside, valid: Valid) -> None:
    """A tombstone for readers, no run, and no line in the status."""
    done = filled.kfm("dataset", "retire", "levels", "--yes", "--json", *WHY)
    valid("cli-dataset-retire", done.document)
    assert (done.code, tombstone(filled)["state"]) == (0, "retired")
    assert day(filled, DAYS[0], "--source", "notes").result["error"]["code"] == "KFM350"
    assert filled.kfm("status", "--json").document["datasets"] == []
    metrics = filled.kfm("metrics").out
    assert 'dataset="levels"' not in "\n".join(
        line for line in metrics.splitlines() if line.startswith("kfm_dataset")
    )
    listed = filled.kfm("dataset", "list", "--json").document
    valid("cli-dataset-list", listed)
    assert [(one["dataset_id"], one["state"]) for one in listed["datasets"]] == [("levels", "retired")]


def test_a_person_reads_what_is_withdrawn(filled: Inside) -> None:
    """The preview names the span, versions say what they hold, and lifting says how it comes back."""
    window = ("withdraw", "levels", "--window", "2026-01-02/P1D")
    preview = filled.kfm(*window).out
    assert "version 3 → 4, without 2026-01-02 00:00 … 2026-01-03 00:00 UTC\n" in preview
    assert "  out of reach  ledger: It keeps" in preview
    assert filled.kfm(*window, "--yes", *WHY).code == 0
    listed = filled.kfm("dataset", "show", "levels").out.splitlines()
    assert "withdrawal by" in listed[3]
    assert listed[4].endswith("holds withdrawn data")
    assert listed[6].endswith("can be put back")
    assert "kfm run --missing levels" in filled.kfm(*window, "--lift", "--yes", *WHY).err
    assert filled.kfm("run", "--missing", "levels", "--yes").code == 0
    assert shown(filled) == list(DAYS)


def test_a_version_whose_objects_were_collected_is_not_offered(filled: Inside, valid: Valid) -> None:
    """What `dataset show` says can be put back can be; a version that lost its objects is said to have."""
    for words in ("revised", "again"):
        filled.write(f"incoming/{DAYS[0]}.csv", table(words, 5))
        assert day(filled, DAYS[0]).result["word"] == "published"
    filled.configure(source=SOURCE, more="limits: {versions_kept: 2}")
    offered = {5: False, 4: True, 3: True, 2: True, 1: True}
    for collected in (False, True):
        if collected:
            for path in (filled.state / "objects").rglob("*"):
                os.utime(path, (0, 0))
            assert filled.kfm("gc", "--grace", "0", "--apply", *WHY).code == 0
            offered |= {3: False, 2: False, 1: False}
        document = filled.kfm("dataset", "show", "levels", "--json").document
        valid("cli-dataset-show", document)
        versions = document["dataset"]["versions"]
        assert {one["version"]: one["can_roll_back"] for one in versions} == offered
        for version, can in offered.items():
            if version < 5:
                ended = filled.kfm("rollback", "levels", "--to", str(version), "--json")
                assert (ended.document.get("code") is None) == can, ended
    assert [one["held_back"] for one in versions] == [None, None, "collected", "collected", "collected"]
    assert "its objects were collected" in filled.kfm("dataset", "show", "levels").out


def test_versions_tell_what_made_them(filled: Inside, valid: Valid) -> None:
    """A person who chooses a version sees which can be put back; the explanation tells of each change."""
    filled.kfm("rollback", "levels", "--to", "2", "--yes", "--json", *WHY)
    filled.kfm("withdraw", "levels", "--window", "2026-01-02/P1D", "--purge", "--yes", "--json", *WHY)
    document = filled.kfm("dataset", "show", "levels", "--json").document
    valid("cli-dataset-show", document)
    versions = [(one["version"], one["by"], one["held_back"]) for one in document["dataset"]["versions"]]
    assert versions == [
        (5, "withdraw", None),
        (4, "rollback", "purged"),
        (3, "run", "purged"),
        (2, "run", "purged"),
        (1, "run", None),
    ]
    said = filled.kfm("explain", "levels").out
    assert "Readers see version 5" in said
    assert "a withdrawal by" in said
    assert "--lift" in said


def test_lineage_of_a_change_does_not_wait(filled: Inside) -> None:
    """A change sends what it tells of itself, as a run does: nothing is left for another command."""
    assert filled.kfm("rollback", "levels", "--to", "2", "--yes", *WHY).code == 0
    assert filled.kfm("withdraw", "levels", "--window", "2026-01-01/P1D", "--yes", *WHY).code == 0
    assert json.loads(filled.kfm("status", "--json").out)["lineage"]["waiting"] == 0


def test_lineage_tells_of_a_change(filled: Inside, valid: Valid) -> None:
    """OpenLineage has a start and an end of it, with the version that it made."""
    done = filled.kfm("rollback", "levels", "--to", "1", "--yes", "--json", *WHY).document
    change_id = done["receipt"]["change"]["change_id"]
    rows = filled.rows("SELECT body FROM outbox WHERE subject = ? ORDER BY number", change_id)
    events = [json.loads(body) for (body,) in rows]
    assert [event["eventType"] for event in events] == ["START", "COMPLETE"]
    for event in events:
        valid("openlineage-event", event)
        state = event["run"]["facets"]["kfmRunState"]
        assert (state["change"], state["sequence"], state["to_sequence"]) == ("rollback", 4, 1)
        assert event["outputs"][0]["facets"]["version"]["datasetVersion"] == done["plan"]["version_id"]


@pytest.mark.req("DAT-1")
def test_coverage_tells_of_removed_windows(filled: Inside) -> None:
    """What a rollback took from readers is not called published; what is withdrawn is settled."""

    def states() -> dict[str, str]:
        document = filled.kfm("coverage", "levels", "--json").document
        return {one["window_start"][:10]: one["state"] for one in document["windows"]}

    assert set(states().values()) == {"published"}
    filled.kfm("rollback", "levels", "--to", "2", "--yes", "--json", *WHY)
    rolled = states()
    assert rolled[DAYS[1]] == "published"
    assert rolled[DAYS[2]] not in ("published", "unchanged")
    filled.kfm("withdraw", "levels", "--window", "2026-01-02/P1D", "--yes", "--json", *WHY)
    assert states()[DAYS[1]] == "withdrawn"


@pytest.mark.req("DAT-10")
def test_a_withdrawal_is_told_until_every_target_shows_it(filled: Inside) -> None:
    """Its incident opens in its transaction and ends when the targets show the tombstone."""
    filled.kfm("withdraw", "levels", "--yes", "--json", *WHY)
    rows = filled.rows("SELECT kind, state FROM incidents")
    assert rows == [("withdrawn", "resolved")]


PEOPLE = """\
people:
  - {subject: ada, roles: [operate], tokens: ["env:ADA_HASH"]}
  - {subject: bea, roles: [operate, approve], tokens: ["env:BEA_HASH"]}
"""


@pytest.fixture
def by(filled: Inside) -> Callable[..., Ended]:
    """Commands of two declared persons."""
    tokens = {name: f"{name}-".ljust(40, "x") for name in ("ada", "bea")}
    filled.configure(source=SOURCE, more=PEOPLE)
    for name, token in tokens.items():
        filled.env[f"{name.upper()}_HASH"] = f"sha256:{hashlib.sha256(token.encode()).hexdigest()}"

    def called(name: str, *words: str) -> Ended:
        filled.env["KFM_TOKEN"] = tokens[name]
        return filled.kfm(*words)

    return called


def test_a_purge_waits_for_a_second_person(filled: Inside, by: Callable[..., Ended], valid: Valid) -> None:
    """Where people are declared, a purge is asked for, approved by another person, and applied as planned."""
    command = ("withdraw", "levels", "--purge", "--yes", "--json", *WHY)
    asked = by("ada", *command)
    assert (asked.code, shown(filled)) == (3, list(DAYS)), asked
    valid("cli-withdraw", asked.document)
    request = asked.document["request"]
    assert (request["kind"], request["digest"]) == ("change", asked.document["plan"]["digest"])
    own = by("ada", "approvals", "approve", request["request_id"], "--json", *WHY)
    assert own.code == 3, "nor has ada the role"
    assert by("bea", "approvals", "approve", request["request_id"], "--json", *WHY).code == 0
    done = by("ada", *command)
    assert (done.code, shown(filled)) == (0, []), done
    assert filled.rows("SELECT used_by FROM approvals") == [
        (done.document["receipt"]["change"]["change_id"],)
    ]
    assert by("ada", "rollback", "levels", "--to", "1", "--json").document["code"] == "KFM351"


@pytest.mark.req("DAT-9")
def test_a_purge_is_approved_by_who_sees_all_of_it(
    filled: Inside, by: Callable[..., Ended], valid: Valid
) -> None:
    """The approver reads the frozen plan: window, files, versions, targets, what is out of reach, and the
    reason that readers will be told; with another reason that one stays."""
    command = ("withdraw", "levels", "--window", f"{DAYS[1]}/P1D", "--purge", "--yes", "--json")
    asked = by("ada", *command, "--rationale", "Consent was withdrawn.")
    assert asked.code == 3, asked
    request, plan = asked.document["request"]["request_id"], asked.document["plan"]
    document = by("bea", "approvals", "show", request, "--json").document
    valid("cli-approvals-show", document)
    assert document["request"]["targets"] == ["local"]
    lines = [line.strip() for line in document["preview"]]
    assert "without 2026-01-02 00:00 … 2026-01-03 00:00 UTC" in lines[0]
    assert lines[1] == "readers are told: Consent was withdrawn."
    assert "removed  2026-01-02/2026-01-02.csv" in lines
    assert "purges 2 versions (2, 3), 1 object" in " ".join(lines)
    assert any(line.startswith("out of reach  backups") for line in lines)
    assert lines[-1] == f"digest {plan['digest']}"
    assert document["preview"][0] in by("bea", "approvals", "show", request).out
    assert by("bea", "approvals", "approve", request, "--json", *WHY).code == 0
    done = by("ada", *command, "--rationale", "Nothing to see here.")
    assert done.code == 0, done
    assert done.document["receipt"]["change"]["rationale"] == "Consent was withdrawn."
    assert "the rationale that was approved is used: Consent was withdrawn." in done.err
    assert [one["reason"] for one in tombstone(filled)["withdrawn"]] == ["Consent was withdrawn."]
    sound(filled)


@pytest.mark.req("DAT-9")
def test_an_approver_sees_that_a_change_has_drifted(filled: Inside, by: Callable[..., Ended]) -> None:
    """A version that was published since is named: the plan can't be applied any more."""
    asked = by("ada", "withdraw", "levels", "--purge", "--yes", "--json", *WHY)
    filled.write(f"incoming/{DAYS[0]}.csv", table("revised", 5))
    assert by("ada", "run", "--json", "--window", f"{DAYS[0]}/P1D").code == 0
    request = asked.document["request"]["request_id"]
    shown_now = by("bea", "approvals", "show", request, "--json").document["request"]
    assert "Version 4 is published since" in shown_now["excluded_by"]


@pytest.mark.req("DAT-6")
def test_a_target_that_takes_it_no_more_is_cleared(filled: Inside) -> None:
    """What a target shows and does not take is withdrawn there alone; the others go on showing it."""
    config = (filled.folder / "kfm.yml").read_text()
    two = config.replace("path: published}\n", "path: published}\n  - {kind: local, name: old, path: old}\n")
    filled.write("kfm.yml", two)
    assert filled.kfm("project", "--json").code == 0
    old = filled.folder / "old/levels"
    ended = filled.kfm("withdraw", "levels", "--target", "old", "--json")
    assert ended.document["code"] == "KFM200", "it takes the dataset"
    filled.write("kfm.yml", two.replace("path: old}", "path: old, datasets: [other-*]}"))
    done = filled.kfm("withdraw", "levels", "--target", "old", "--purge", "--yes", "--json", *WHY)
    assert done.code == 0, done
    assert json.loads((old / "current/withdrawn.json").read_bytes())["state"] == "withdrawn"
    assert not list(old.rglob("*.csv"))
    assert shown(filled) == list(DAYS)
    assert not (filled.published / "levels/current/withdrawn.json").exists()
    filled.write(f"incoming/{DAYS[0]}.csv", table("revised", 5))
    assert day(filled, DAYS[0]).result["word"] == "published"
    assert not list(old.rglob("*.csv"))
    assert filled.kfm("project", "--json").code == 0
    lifted = filled.kfm("withdraw", "levels", "--target", "old", "--lift", "--yes", "--json", *WHY)
    assert lifted.code == 0, lifted
    assert filled.kfm("withdraw", "levels", "--window", "2026-01-02/P1D", "--yes", *WHY).code == 0
    assert not list(old.rglob("*.csv")), "it takes nothing: what only removes elsewhere would be new here"
    assert filled.kfm("withdraw", "levels", "--window", "2026-01-02/P1D", "--lift", "--yes", *WHY).code == 0
    assert day(filled, DAYS[1]).result["word"] == "published"
    filled.write("kfm.yml", two)
    filled.write(f"incoming/{DAYS[0]}.csv", table("again", 6))
    assert day(filled, DAYS[0]).result["word"] == "published"
    assert len(list((old / "current").rglob("*.csv"))) == len(DAYS)
    sound(filled)


def two_targets(project: Inside) -> tuple[str, str]:
    """The configuration with a second target, `old`, that takes the dataset; and one where it does not."""
    config = (project.folder / "kfm.yml").read_text()
    two = config.replace("path: published}\n", "path: published}\n  - {kind: local, name: old, path: old}\n")
    return two, two.replace("path: old}", "path: old, datasets: [other-*]}")


@pytest.fixture
def withdrawn_at_old(filled: Inside) -> Inside:
    """Two targets showed the dataset; from one of them it was withdrawn."""
    two, without = two_targets(filled)
    filled.write("kfm.yml", two)
    assert filled.kfm("project", "--json").code == 0
    filled.write("kfm.yml", without)
    assert filled.kfm("withdraw", "levels", "--target", "old", "--yes", "--json", *WHY).code == 0
    assert list((filled.folder / "old/levels/.versions").rglob("*.csv"))
    return filled


@pytest.mark.req("DAT-6")
def test_a_purge_after_a_withdrawal_from_one_target_ends(withdrawn_at_old: Inside) -> None:
    """Bytes of a dataset that is withdrawn from a target already can still be purged there."""
    done = withdrawn_at_old.kfm("withdraw", "levels", "--target", "old", "--purge", "--yes", "--json", *WHY)
    assert (done.code, [one["state"] for one in done.document["receipt"]["purges"]]) == (0, ["done"]), done
    assert not list((withdrawn_at_old.folder / "old").rglob("*.csv"))
    assert shown(withdrawn_at_old) == list(DAYS)
    sound(withdrawn_at_old)


@pytest.mark.req("DAT-6")
def test_a_target_shows_its_tombstone_under_each_number(withdrawn_at_old: Inside) -> None:
    """A target from which the dataset is withdrawn is not looked for, and gets nothing but tombstones."""
    old = withdrawn_at_old.folder / "old/levels/current"
    withdrawn_at_old.write(f"incoming/{DAYS[0]}.csv", table("revised", 5))
    assert day(withdrawn_at_old, DAYS[0]).result["word"] == "published"
    assert json.loads((old / "withdrawn.json").read_bytes())["sequence"] == 5
    config = (withdrawn_at_old.folder / "kfm.yml").read_text()
    withdrawn_at_old.write("kfm.yml", config.replace("datasets: [other-*]", "datasets: [levels]"))
    with withdrawn_at_old._surroundings(), open_app(load()) as app:
        assert updated_targets(app.kernel) == [], "it is as it should be"


@pytest.mark.req("DAT-6")
@pytest.mark.parametrize("takes_first", [True, False])
def test_a_target_that_takes_it_again_shows_it_after_a_lift(
    withdrawn_at_old: Inside, takes_first: bool
) -> None:
    """Readers there see the data again, and no tombstone."""
    project, old = withdrawn_at_old, withdrawn_at_old.folder / "old/levels/current"
    config = (project.folder / "kfm.yml").read_text().replace("datasets: [other-*]", "datasets: [levels]")
    if takes_first:
        project.write("kfm.yml", config)
    lifted = project.kfm("withdraw", "levels", "--target", "old", "--lift", "--yes", "--json", *WHY)
    assert lifted.code == 0, lifted
    if not takes_first:
        assert not list(old.rglob("*.csv")), "it does not take it yet"
        project.write("kfm.yml", config)
        assert project.kfm("project", "--json").code == 0
    assert sorted(path.stem for path in old.rglob("*.csv")) == list(DAYS)
    assert not (old / "withdrawn.json").exists()
    assert shown(project) == list(DAYS)


# --- what a change makes of windows ------------------------------------------------------


def windows(project: Inside, dataset: str = "levels") -> dict[str, dict[str, Any]]:
    """The windows of a dataset, by their first day."""
    ended = project.kfm("coverage", dataset, "--json")
    assert ended.code == 0, ended
    return {(one["window_start"] or "none")[:10]: one for one in ended.document["windows"]}


def resume(project: Inside) -> None:
    assert project.kfm("switch", "set", "running", "--dataset", "levels", *WHY).code == 0


def content(project: Inside, text: str) -> bytes:
    (path,) = (project.published / "levels/current/data").rglob(f"{text}.csv")
    return path.read_bytes()


def test_a_window_that_a_rollback_changed_is_done_again(filled: Inside) -> None:
    """Upstream as it was before the rollback counts as new: readers get it with the next run, and until then
    the coverage names the run whose content they see."""
    first = windows(filled)[DAYS[0]]["run_id"]
    filled.write(f"incoming/{DAYS[0]}.csv", table("revised", 5))
    revised = day(filled, DAYS[0]).result["run_id"]
    assert windows(filled)[DAYS[0]]["run_id"] == revised
    assert filled.kfm("rollback", "levels", "--to", "3", "--yes", "--json", *WHY).code == 0
    seen = windows(filled)[DAYS[0]]
    assert (seen["state"], seen["run_id"], seen["code"]) == ("published", first, "rolled-back")
    assert windows(filled)[DAYS[1]]["code"] is None
    assert "an earlier revision, put back by a rollback" in filled.kfm("coverage", "levels").out
    resume(filled)
    planned = filled.kfm("diff", "--window", f"{DAYS[0]}/P1D", "--json").result
    assert planned["word"] != "unchanged", planned
    again = day(filled, DAYS[0])
    assert again.result["word"] == "published", again
    assert content(filled, DAYS[0]) == table("revised", 5)
    seen = windows(filled)[DAYS[0]]
    assert (seen["run_id"], seen["code"]) == (again.result["run_id"], None)
    assert day(filled, DAYS[0]).result["word"] == "unchanged"
    assert day(filled, DAYS[1]).result["word"] == "unchanged", "a rollback did not touch it"


def test_a_rollback_of_a_rollback_needs_no_run(filled: Inside) -> None:
    """Where the head shows what the newest run published, nothing is done again."""
    filled.write(f"incoming/{DAYS[0]}.csv", table("revised", 5))
    newest = day(filled, DAYS[0]).result["run_id"]
    for version in ("3", "4"):
        assert filled.kfm("rollback", "levels", "--to", version, "--yes", "--json", *WHY).code == 0
    seen = windows(filled)[DAYS[0]]
    assert (seen["state"], seen["run_id"], seen["code"]) == ("published", newest, None)
    resume(filled)
    assert day(filled, DAYS[0]).result["word"] == "unchanged"


@pytest.mark.req("DAT-8")
@pytest.mark.parametrize("mode", ["merge", "replace"])
def test_a_snapshot_that_was_rolled_back_is_done_again(project: Inside, mode: str) -> None:
    """A source without windows brings back what upstream has, once the dataset is resumed."""
    project.configure(
        source=f"{{id: notes, dataset: levels, kind: files, folder: incoming, pattern: a.csv, "
        f"window: none, mode: {mode}}}"
    )
    project.write("incoming/a.csv", table("one", 3))
    assert project.kfm("run", "--json").result["word"] == "published"
    project.write("incoming/a.csv", table("two", 3))
    assert project.kfm("run", "--json").result["word"] == "published"
    assert project.kfm("rollback", "levels", "--to", "1", "--yes", "--json", *WHY).code == 0
    assert content(project, "a") == table("one", 3)
    resume(project)
    assert project.kfm("run", "--json").result["word"] == "published"
    assert content(project, "a") == table("two", 3)


@pytest.mark.req("DAT-1")
def test_an_old_dismissal_does_not_come_back(project: Inside) -> None:
    """A dismissal ends with the data that came after it, whatever becomes of that data."""
    project.configure(source=SOURCE)
    for text in DAYS[:2]:
        project.write(f"incoming/{text}.csv", table(text, 3))
        assert day(project, text).code == 0
    day(project, DAYS[2])
    assert project.kfm("dismiss", "levels", f"{DAYS[2]}/P1D", "--json", *WHY).code == 0
    dismissed = windows(project)[DAYS[2]]
    assert (dismissed["state"], dismissed["reason"]) == ("dismissed", "It was wrong.")
    assert "It was wrong." in project.kfm("coverage", "levels").out
    project.write(f"incoming/{DAYS[2]}.csv", table(DAYS[2], 3))
    assert day(project, DAYS[2]).result["word"] == "published"
    assert project.kfm("rollback", "levels", "--to", "2", "--yes", "--json", *WHY).code == 0
    removed = windows(project)[DAYS[2]]
    assert (removed["state"], removed["code"], removed["reason"]) == ("missing", "rolled-back", None)
    assert "a rollback removed it" in project.kfm("coverage", "levels").out
    resume(project)
    assert project.kfm("run", "--missing", "levels", "--yes").code == 0
    assert shown(project) == list(DAYS)
    window = ("withdraw", "levels", "--window", f"{DAYS[2]}/P1D", "--yes", *WHY)
    assert project.kfm(*window).code == 0
    assert project.kfm(*window, "--lift").code == 0
    removed = windows(project)[DAYS[2]]
    assert (removed["state"], removed["code"]) == ("missing", "withdrawal-lifted")


def refusals(project: Inside) -> list[str]:
    """What the console shows as refused."""
    with project._surroundings(), open_app(load()) as app:
        return [one.what for one in refused_calls(app.settings, app.ledger, [], app.ledger.now_ms())]


@pytest.mark.req("DAT-1")
def test_coverage_tells_why_after_a_lift(filled: Inside) -> None:
    """While it is withdrawn the coverage has the reason; afterwards it says that the withdrawal was lifted,
    not that a gate refuses what it no longer refuses."""
    window = ("withdraw", "levels", "--window", f"{DAYS[1]}/P1D", "--yes", *WHY)
    assert filled.kfm(*window).code == 0
    assert day(filled, DAYS[1]).code == 3
    withdrawn = windows(filled)[DAYS[1]]
    assert (withdrawn["state"], withdrawn["reason"]) == ("withdrawn", "It was wrong.")
    assert refusals(filled) == ["dataset levels"]
    assert filled.kfm(*window, "--lift").code == 0
    assert refusals(filled) == []
    lifted = windows(filled)[DAYS[1]]
    assert (lifted["state"], lifted["code"]) == ("missing", "withdrawal-lifted")
    assert "its withdrawal was lifted" in filled.kfm("coverage", "levels").out
    assert filled.kfm("status", "--json").document["headline"]["state"] == "incomplete"


@pytest.mark.req("DAT-1")
def test_a_window_that_was_refused_while_withdrawn_is_missing_after_the_lift(filled: Inside) -> None:
    """Also one that never had data: the refusal ended with the withdrawal."""
    whole = ("withdraw", "levels", "--yes", *WHY)
    assert filled.kfm(*whole).code == 0
    assert day(filled, "2026-01-04").code == 3
    assert filled.kfm(*whole, "--lift").code == 0
    assert windows(filled)["2026-01-04"]["state"] == "missing"
    assert {one["state"] for one in windows(filled).values()} == {"missing"}


@pytest.mark.req("DAT-1", "DAT-8")
def test_a_replaced_dataset_has_no_data_after_a_lift(project: Inside) -> None:
    """Where each window replaces the one before it, the head decides, too: the last one is missing."""
    project.configure(source=SOURCE[:-1] + ", mode: replace}")
    for text in DAYS:
        project.write(f"incoming/{text}.csv", table(text, 3))
        assert day(project, text).code == 0
    whole = ("withdraw", "levels", "--yes", *WHY)
    assert project.kfm(*whole).code == 0
    assert project.kfm(*whole, "--lift").code == 0
    states = {name: one["state"] for name, one in windows(project).items()}
    assert states == {DAYS[0]: "published", DAYS[1]: "published", DAYS[2]: "missing"}
    assert project.kfm("run", "--missing", "levels", "--yes").code == 0
    assert shown(project) == [DAYS[2]]
    assert project.kfm("rollback", "levels", "--to", "2", "--yes", "--json", *WHY).code == 0
    assert windows(project)[DAYS[2]]["code"] == "rolled-back"


# --- what people are told ----------------------------------------------------------------


@pytest.mark.req("DAT-1")
def test_a_dataset_that_is_withdrawn_is_not_called_fresh(filled: Inside, valid: Valid) -> None:
    """Its health is that it is withdrawn, in every report; nothing is wrong, and the first line tells."""
    assert filled.kfm("withdraw", "levels", "--yes", *WHY).code == 0
    coverage = filled.kfm("coverage", "levels", "--json").document
    valid("cli-coverage", coverage)
    assert coverage["health"]["state"] == "withdrawn"
    assert {one["state"] for one in coverage["windows"]} == {"withdrawn"}
    status = filled.kfm("status", "--json").document
    valid("cli-status", status)
    assert status["headline"]["sentence"] == "all clear; 1 dataset is withdrawn"
    assert [one["health"]["state"] for one in status["datasets"]] == ["withdrawn"]
    assert 'kfm_dataset_health{dataset="levels",health="withdrawn"} 1' in filled.kfm("metrics").out
    assert filled.kfm("withdraw", "levels", "--lift", "--yes", *WHY).code == 0
    assert filled.kfm("coverage", "levels", "--json").document["health"]["state"] == "late"


def test_a_retired_dataset_is_told_as_retired(filled: Inside, valid: Valid) -> None:
    """No command that is refused is offered, no version to put back, and a run of everything passes over
    it."""
    filled.configure(
        source=SOURCE[:-1] + ', expect: {from: "2026-01-01", within: P1D}}', more="limits: {versions_kept: 9}"
    )
    due = {name: one["due_at"] for name, one in windows(filled).items() if name in DAYS}
    done = filled.kfm("dataset", "retire", "levels", "--yes", *WHY)
    assert "can be taken out of the configuration now" in done.err
    status = filled.kfm("status", "--json").document
    assert (status["headline"]["state"], status["headline"]["sentence"]) == (
        "clear",
        "all clear; 1 dataset is retired",
    )
    assert filled.kfm("coverage", "--json").document["datasets"][0]["state"] == "retired"
    assert {name: one["due_at"] for name, one in windows(filled).items()} == due
    assert "due " not in filled.kfm("coverage", "levels").out.split("WINDOW")[0]
    assert filled.kfm("dataset", "retire", "levels", "--purge", "--yes", *WHY).code == 0
    versions = filled.kfm("dataset", "show", "levels", "--json").document["dataset"]["versions"]
    assert not any(one["can_roll_back"] for one in versions)
    refused = filled.kfm("rollback", "levels", "--to", "4", "--json")
    assert (refused.code, refused.document["code"]) == (3, "KFM351")
    assert "levels is retired since version" in refused.document["message"]
    graph = filled.kfm("graph", "--datasets", "--json").document
    valid("cli-graph-datasets", graph)
    assert [one["word"] for one in graph["nodes"] if one["kind"] == "dataset"] == ["retired"]
    bare = filled.kfm("run", "--json")
    assert (bare.code, bare.document["results"]) == (0, [])
    assert "dataset levels is retired" in bare.err
    assert filled.kfm("run", "--source", "notes", "--json").code == 3, "who names it is refused"


def test_the_graph_marks_what_is_paused_or_withdrawn(filled: Inside) -> None:
    """A dataset that is not updated on purpose does not look as usual."""
    assert filled.kfm("rollback", "levels", "--to", "1", "--yes", *WHY).code == 0
    assert "‖ levels" in filled.kfm("graph", "--datasets").out
    assert filled.kfm("withdraw", "levels", "--yes", *WHY).code == 0
    assert "† levels" in filled.kfm("graph", "--datasets").out


def test_a_preview_says_what_becomes_of_readers(filled: Inside, valid: Valid) -> None:
    """Also where all of it goes, and which withdrawal or retirement a lift ends; nothing to lift is a
    sentence."""
    none = filled.kfm("withdraw", "levels", "--lift", "--json").document
    assert none["message"].endswith("Nothing of levels is withdrawn, so there is nothing to lift.")
    whole = filled.kfm("withdraw", "levels").out
    assert "version 3 → 4, empty: readers get a tombstone in the place of all of it\n" in whole
    assert filled.kfm("withdraw", "levels", "--window", f"{DAYS[1]}/P1D", "--yes", *WHY).code == 0
    other = filled.kfm("withdraw", "levels", "--lift", "--json").document["message"]
    assert "2026-01-02T00:00:00Z/2026-01-03T00:00:00Z of levels is withdrawn since version 4." in other
    lift = filled.kfm("withdraw", "levels", "--window", f"{DAYS[1]}/P1D", "--lift").out
    assert "the same content; 2026-01-02 00:00 … 2026-01-03 00:00 UTC may be published again\n" in lift
    assert filled.kfm("dataset", "retire", "levels", "--yes", *WHY).code == 0
    twice = filled.kfm("dataset", "retire", "levels", "--json").document["message"]
    assert twice.endswith("levels is retired since version 5 already.")
    ended = filled.kfm("withdraw", "levels", "--lift", "--json").document
    valid("cli-withdraw", ended)
    assert ended["plan"]["ends_retirement"] is True
    assert "all of it may be published again, and it is not retired any more" in (
        filled.kfm("withdraw", "levels", "--lift").out
    )


@pytest.mark.req("DAT-6")
def test_a_withdrawal_from_one_target_says_what_it_does(withdrawn_at_old: Inside) -> None:
    """The number of the version moves everywhere, the content nowhere else."""
    preview = withdrawn_at_old.kfm("withdraw", "levels", "--target", "old", "--purge").out
    assert "version 4 → 5, the same content; target old shows a tombstone in its place\n" in preview
    assert "no new version" not in withdrawn_at_old.kfm("withdraw", "--help").out


@pytest.mark.req("DAT-10")
def test_what_readers_can_still_see_is_the_first_line(filled: Inside, valid: Valid) -> None:
    """A take-down that has not reached a target is at the top of the status, with the command that brings
    it there."""
    folder = filled.published
    hidden = folder.with_name("away")
    folder.rename(hidden)
    Path(folder).write_text("not a folder")
    assert filled.kfm("withdraw", "levels", "--window", f"{DAYS[1]}/P1D", "--yes", *WHY).code == 4
    status = filled.kfm("status", "--json").document
    valid("cli-status", status)
    assert (status["headline"]["state"], status["headline"]["command"]) == ("failing", "kfm project")
    assert status["headline"]["sentence"] == (
        "readers at target local still see version 3 of dataset levels, withdrawn with version 4"
    )
    assert "withdrawn, and not gone yet:" in filled.kfm("status").out
    folder.unlink()
    hidden.rename(folder)
    assert filled.kfm("project").code == 0
    assert filled.kfm("status", "--json").document["still_shown"] == []


# --- slips of the hand ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ("--source", ""),
        ("--window", ""),
        ("--target", ""),
        ("--source", "note"),
        ("--source", "n\x1b[31mRED"),
        ("--window", "2026-01-01/P1D", "--window", "2026-01-02/P1D"),
    ],
)
def test_a_slip_takes_nothing_down(filled: Inside, arguments: tuple[str, ...]) -> None:
    """An unset variable, a mistyped source, two spans: refused before anything goes."""
    ended = filled.kfm("withdraw", "levels", *arguments, "--purge", "--yes", *WHY)
    assert ended.code == 2, ended
    assert "\x1b" not in ended.err
    assert shown(filled) == list(DAYS)
    assert "KFM200" in ended.err


def test_a_mistyped_source_is_suggested(filled: Inside) -> None:
    """The sources that the dataset has things of are known."""
    assert "did you mean `notes`" in filled.kfm("withdraw", "levels", "--source", "note").err


def test_a_day_is_a_day_of_the_source(project: Inside) -> None:
    """A span without times is in the time zone of the sources, as in every other command: one day goes, and
    not its neighbour."""
    project.configure(source=SOURCE[:-1] + ", time_zone: America/Chicago}")
    for text in DAYS:
        project.write(f"incoming/{text}.csv", table(text, 3))
        assert day(project, text).code == 0
    done = project.kfm("withdraw", "levels", "--window", "2026-01-02/P1D", "--yes", *WHY)
    assert done.code == 0, done
    assert shown(project) == ["2026-01-01", "2026-01-03"]


def test_a_snapshot_has_no_days(project: Inside) -> None:
    """A source without windows is withdrawn as a whole, and says so."""
    project.configure(source="{id: notes, dataset: levels, kind: files, folder: incoming, window: none}")
    assert project.kfm("run").code == 0
    ended = project.kfm("withdraw", "levels", "--window", "2026-01-02/P1D", "--yes", *WHY)
    assert ended.code == 2
    assert "has no windows: it is withdrawn as a whole" in ended.err
    assert shown(project)


def test_no_version_is_too_great_to_be_refused(filled: Inside) -> None:
    """A number that no ledger can hold is refused as such, not as a defect."""
    ended = filled.kfm("rollback", "levels", "--to", "9223372036854775808")
    assert ended.code == 2, ended
    assert "--to is too great a number" in ended.err


def test_no_rollback_counts_on_objects_that_a_collection_is_taking(
    project: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planned while a slice goes on, it would be applied after it: its objects would be gone. It is refused,
    and what was collected is told afterwards."""
    project.configure(source=SOURCE, more="limits: {versions_kept: 1}")
    for rows in (3, 4):
        project.write("incoming/2026-01-01.csv", table("2026-01-01", rows))
        assert day(project, "2026-01-01").code == 0
    for path in (project.state / "objects/sha256").rglob("*"):
        os.utime(path, (0, 0))
    refused: list[str] = []
    slice_of = gc._collect_slice

    def while_it_goes_on(*given: Any) -> Any:
        with pytest.raises(LockHeld) as raised:
            changes.plan_rollback(given[0], "levels", 1)
        refused.append(raised.value.message)
        return slice_of(*given)

    monkeypatch.setattr(gc, "_collect_slice", while_it_goes_on)
    with project._surroundings(), open_app(load()) as app:
        kernel = app.kernel
        _, removed = gc.carry_out(kernel, kernel.objects, actor="ada", rationale="disk", grace_ms=0)
        assert (removed.objects, len(refused)) == (1, 1)
        with pytest.raises(ContentGone):
            changes.plan_rollback(kernel, "levels", 1)
