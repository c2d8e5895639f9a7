"""A dataset that was wrong, and data that must go: what people do about them at the command line."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

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
    done = filled.kfm("rollback", "levels", "--to", "2", "--plan", plan["digest"], "--json", *WHY)
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
        "withdraw", "levels", "--window", "2026-01-02/P1D", "--plan", plan["digest"], "--json", *WHY
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
    assert day(filled, DAYS[1]).result["word"] == "published"
    assert shown(filled) == list(DAYS)
    assert not (filled.published / "levels/current/withdrawn.json").exists()
    sound(filled)


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
    assert status["headline"]["command"] == "kfm withdraw levels --rationale TEXT"
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
    assert day(filled, DAYS[0]).result["error"]["code"] == "KFM350"
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


def test_a_purge_waits_for_a_second_person(filled: Inside) -> None:
    """Where people are declared, a purge is asked for, approved by another person, and applied as planned."""
    tokens = {name: f"{name}-".ljust(40, "x") for name in ("ada", "bea")}
    filled.configure(source=SOURCE, more=PEOPLE)
    for name, token in tokens.items():
        filled.env[f"{name.upper()}_HASH"] = f"sha256:{hashlib.sha256(token.encode()).hexdigest()}"

    def by(name: str, *words: str) -> Ended:
        filled.env["KFM_TOKEN"] = tokens[name]
        return filled.kfm(*words)

    command = ("withdraw", "levels", "--purge", "--yes", "--json", *WHY)
    asked = by("ada", *command)
    assert (asked.code, shown(filled)) == (3, list(DAYS)), asked
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
    filled.write("kfm.yml", two)
    filled.write(f"incoming/{DAYS[0]}.csv", table("again", 6))
    assert day(filled, DAYS[0]).result["word"] == "published"
    assert len(list((old / "current").rglob("*.csv"))) == len(DAYS)
    sound(filled)
