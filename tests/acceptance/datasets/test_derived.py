"""Datasets made from datasets: pinned inputs, found changes, exactly the affected windows, joined lineage."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.datasets.derived_project import DAYS, Derived, daily
from tests.acceptance.runs.conftest import Inside
from tests.crash.project import RIGHTS

pytestmark = pytest.mark.req("DAT-7")


@pytest.fixture
def project(tmp_path: Path) -> Derived:
    """Daily readings, zones without windows, and a weekly and a monthly dataset made of them."""
    made = Derived(tmp_path / "project")
    made.prepare()
    return made


def test_a_run_reads_the_heads_of_its_inputs(project: Derived) -> None:
    """Of one dataset the items of its window, of the other all; a pipeline knows them by dataset and path."""
    project.publish_inputs()
    made = project.run("exposure", daily(1))
    assert made["word"] == "published"
    assert project.files("exposure") == {
        "2026-11-01.txt": "readings/2026-11-01/2026-11-01.csv: 1 of day 1\nzones/zones.csv: a zone\n"
    }


def test_what_it_read_is_pinned(project: Derived) -> None:
    """Dataset, sequence, version and the digest of the part that was read, with the promotion of the run."""
    project.publish_inputs()
    made = project.run("exposure", daily(1))
    with project.opened() as app:
        pins = {pin.dataset_id: pin for pin in app.ledger.derived_reader().pins(made["run_id"])}
        heads = {name: app.ledger.head(name) for name in pins}
    assert pins.keys() == {"readings", "zones"}
    for name, pin in pins.items():
        assert (pin.sequence, pin.version_id) == (heads[name][0].sequence, heads[name][0].version_id)
        assert pin.part.startswith("sha256:")
    shown = json.loads(project.kfm("show", made["run_id"], "--json").out)
    assert [one["dataset_id"] for one in shown["datasets_read"]] == ["readings", "zones"]
    assert "zones" in project.kfm("explain", made["run_id"]).out


def test_bytes_come_from_the_object_store(project: Derived) -> None:
    """A target that was emptied or changed changes nothing; an object that was changed is refused."""
    project.publish_inputs()
    for path in (project.folder / "published").rglob("*.csv"):
        path.unlink()
        path.write_text("forged")
    assert project.run("exposure", daily(1))["word"] == "published"
    assert "forged" not in next(iter(project.files("exposure").values()))
    project.write("incoming/2026-11-02.csv", "1 of day 2")
    (stored,) = [
        path
        for path in (project.folder / ".kfm/objects/sha256").rglob("*")
        if path.is_file() and path.read_bytes() == b"1 of day 2"
    ]
    stored.chmod(0o600)
    stored.write_bytes(b"2 of day 1")
    assert project.kfm("run", "--source", "exposure", "--window", daily(2)).code != 0


def test_an_input_without_a_version_is_not_there_yet(project: Derived) -> None:
    """Nothing is published, the pipeline is not called, and the answer names what is missing."""
    first = project.run("exposure", daily(1))
    assert (first["outcome"], first["word"]) == ("success", "unchanged")
    assert "dataset readings has no version" in first["reason"]
    assert "dataset zones has no version" in first["reason"]
    project.run("zones")
    project.run("readings", daily(1))
    other = project.run("exposure", daily(2))
    assert other["reason"] == (
        "Not there yet: dataset readings holds nothing for 2026-11-02 00:00 … 2026-11-03 00:00 UTC. "
        "Nothing is published."
    )
    assert project.files("exposure") == {}
    assert project.run("exposure", daily(1))["word"] == "published"


def test_another_window_changes_nothing(project: Derived) -> None:
    """A promotion that does not touch what a run reads leaves it unchanged."""
    project.publish_inputs()
    project.run("exposure", daily(1))
    project.change(2)
    project.run("readings", daily(2))
    assert project.run("exposure", daily(1))["outcome"] == "noop"


def test_exactly_the_affected_windows_are_made_once(project: Derived) -> None:
    """One changed day is one request and one rebuild; a changed `current` input is one for each window."""
    project.publish_inputs()
    assert project.run_due() == {daily(day): "published" for day in DAYS}
    assert project.run_due() == {}
    project.change(2)
    project.run("readings", daily(2))
    assert project.run_due() == {daily(2): "published"}
    assert project.run_due() == {}
    project.write("shapes/zones.csv", "another zone")
    project.run("zones")
    assert project.run_due() == {daily(day): "published" for day in DAYS}
    assert project.run_due() == {}
    assert len(project.runs("exposure")) == 2 * len(DAYS) + 1


def test_a_burst_of_changes_is_one_request_for_each_window(project: Derived) -> None:
    """Changes within the time of gathering are asked for together."""
    project.publish_inputs()
    project.run_due()
    project.configure_derived(coalesce=3600)
    project.change(2)
    project.run("readings", daily(2))
    assert project.run_due() == {}
    project.change(2)
    project.run("readings", daily(2))
    project.write("shapes/zones.csv", "another zone")
    project.run("zones")
    assert project.run_due() == {}
    project.configure_derived(coalesce=0)
    assert project.run_due() == {daily(day): "published" for day in DAYS}
    asked = [one for one in project.requests("exposure") if one["window_start"].startswith("2026-11-02")]
    assert len(asked) == 2  # the first build, and this
    newest = max(asked, key=lambda one: one["accepted_at"])
    assert (newest["kind"], sorted(newest["details"]["changes"])) == ("upstream-event", ["readings", "zones"])


def test_a_change_that_is_taken_back_asks_for_nothing(project: Derived) -> None:
    """What is wanted again is what was made: there is nothing to do, and nothing is stale."""
    project.publish_inputs()
    project.run_due()
    before = (project.folder / "incoming/2026-11-02.csv").read_text()
    project.change(2)
    project.run("readings", daily(2))
    project.write("incoming/2026-11-02.csv", before)
    project.run("readings", daily(2))
    assert project.run_due() == {}


def test_derived_over_several_steps(project: Derived) -> None:
    """A change goes on from dataset to dataset, each window once."""
    project.configure_derived(deeper=True)
    project.publish_inputs()
    project.run_due()
    assert [one["window_start"][:10] for one in project.runs("monthly")] == []
    project.run_due("monthly")
    assert [one["window_start"][:10] for one in project.runs("monthly")] == ["2026-11-01"]
    project.change(2)
    project.run("readings", daily(2))
    project.run_due()
    project.run_due("monthly")
    assert len(project.runs("monthly")) == 2
    (text,) = project.files("monthly").values()
    assert "2 of day 2" in text


def test_kfm_run_makes_inputs_before_what_is_made_of_them(project: Derived) -> None:
    """One command over all sources: what is derived comes last, wherever it stands in the file."""
    ran = json.loads(
        project.kfm("run", "--json", "--window", daily(1), "--source", "exposure", "--source", "readings").out
    )
    assert [one["source_id"] for one in ran["results"]] == ["readings", "exposure"]


# --- staleness ---------------------------------------------------------------------------


def test_staleness_is_visible_until_it_is_made(project: Derived) -> None:
    """Status counts the windows, explain names them and the input; made again, they are gone."""
    project.publish_inputs()
    project.run_due()
    assert json.loads(project.kfm("status", "--json").out)["stale"] == []
    project.change(2)
    project.run("readings", daily(2))
    (stale,) = json.loads(project.kfm("status", "--json").out)["stale"]
    assert (stale["dataset_id"], stale["source_id"], stale["windows"]) == ("exposure", "exposure", 1)
    assert stale["first_window_start"].startswith("2026-11-02")
    assert "exposure: 1 window is stale" in project.kfm("status").out
    assert "2026-11-02 00:00 … 2026-11-03 00:00 UTC is stale" in project.kfm("explain", "exposure").out
    project.run_due()
    assert json.loads(project.kfm("status", "--json").out)["stale"] == []
    assert "stale" not in project.kfm("explain", "exposure").out


def test_an_input_that_is_gone_leaves_its_window_stale_and_is_asked_for_once(project: Derived) -> None:
    """kfm takes nothing down by inference: the window stays published, stale, and says what is missing."""
    project.publish_inputs()
    project.run_due()
    project.withdraw("readings", daily(2))
    assert project.run_due() == {daily(2): "unchanged"}
    assert project.run_due() == {}
    said = project.kfm("explain", "exposure").out
    assert "dataset readings holds nothing for it any more" in said
    assert any(path.startswith("2026-11-02") for path in project.files("exposure"))


def test_what_is_made_of_what_is_gone_is_withdrawn_by_the_command_that_status_prints(
    project: Derived, valid: Callable[[str, Any], None]
) -> None:
    """Status names the window, what is gone and the command; coverage says what readers see; no input that is
    still there is told to be removed; after the command all is clear."""
    project.publish_inputs()
    project.run_due()
    project.withdraw("readings", daily(2))
    project.run_due()
    found = project.kfm("status", "--json").document
    valid("cli-status", found)
    (stale,) = found["stale"]
    (gone,) = stale["gone"]
    assert (gone["window_start"][:10], gone["missing"]) == ("2026-11-02", ["readings"])
    assert found["headline"]["command"] == gone["command"]
    first = project.kfm("status").out.splitlines()[0]
    assert first.startswith(
        "behind: dataset exposure still shows 2026-11-02 00:00 … 2026-11-03 00:00 UTC, "
        "though dataset readings holds nothing for it any more"
    )
    states = {
        one["window_start"][:10]: one["state"]
        for one in project.kfm("coverage", "exposure", "--json").document["windows"]
    }
    assert states["2026-11-02"] == "published"
    newest = project.runs("exposure")[-1]["run_id"]
    said = project.kfm("explain", newest).out
    assert "zones/zones.csv was removed" not in said
    assert "dataset readings held nothing for its window" in said.lower()
    assert gone["command"] in project.kfm("explain", "exposure").out
    done = project.kfm(*gone["command"].split()[1:], "--yes", "--rationale", "its input is gone")
    assert done.code == 0, done.err
    assert not any(path.startswith("2026-11-02") for path in project.files("exposure"))
    assert project.kfm("status", "--json").document["stale"] == []
    assert project.kfm("status").out.splitlines()[0] == "all clear"


@pytest.mark.req("DAT-4")
def test_a_rollback_of_an_input_is_made_anew(project: Derived) -> None:
    """Data that was wrong is taken back upstream: what was made of it is stale, and made of the old again."""
    project.publish_inputs()
    project.run_due()
    before = project.files("exposure")
    project.change(2)
    project.run("readings", daily(2))
    project.run_due()
    assert project.files("exposure") != before
    project.roll_back("readings", len(DAYS))
    (stale,) = json.loads(project.kfm("status", "--json").out)["stale"]
    assert (stale["windows"], stale["first_window_start"][:10]) == (1, "2026-11-02")
    assert project.run_due() == {daily(2): "published"}
    assert project.files("exposure") == before
    assert project.run_due() == {}
    assert json.loads(project.kfm("status", "--json").out)["stale"] == []


@pytest.mark.req("DAT-9")
def test_what_a_change_asks_for_waits_for_a_person_too(project: Derived) -> None:
    """A derived source with `approval: required` is asked for by its inputs, and begins once approved."""
    project.configure_derived(extra="approval: required")
    project.publish_inputs()
    assert project.kfm("schedule", "run-due").code == 0
    asked = [one["state"] for one in project.requests("exposure")]
    assert asked == ["awaiting-approval"] * len(DAYS)
    assert project.files("exposure") == {}
    listed = json.loads(project.kfm("approvals", "list", "--json").out)["requests"]
    assert {(one["kind"], one["dataset_id"]) for one in listed} == {("update", "exposure")}
    assert len(listed) == len(DAYS)
    assert project.kfm("schedule", "run-due").code == 0
    assert len(project.requests("exposure")) == len(DAYS), "nothing is asked for twice"


# --- the configuration -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("derived", "problem"),
    [
        ("{readings: window, nowhere: current}", "`nowhere`, which is not there"),
        ("{zones: window}", "`zones` has no windows (source `zones`): read it as `current`"),
        ("{zones: current}", "reads nothing by window: give it `window: none`"),
        ("{readings: window, exposure: current}", "datasets are made of each other: exposure → exposure"),
        ("{readings: sometimes}", "sometimes"),
    ],
)
def test_what_can_not_be_read_is_refused_by_the_check(project: Derived, derived: str, problem: str) -> None:
    """Names, windows and circles are checked before anything runs."""
    project.configure_derived(datasets=derived)
    refused = project.kfm("config", "check")
    assert refused.code == 2
    assert problem in refused.err


def test_a_circle_over_several_steps_is_named(project: Derived) -> None:
    project.configure_derived(
        more="  - {id: back, dataset: zones, kind: dataset, window: none, datasets: {exposure: current}}\n"
    )
    refused = project.kfm("config", "check")
    assert refused.code == 2
    assert "datasets are made of each other: exposure → zones → exposure" in refused.err.replace(
        "zones → exposure → zones", "exposure → zones → exposure"
    )


def test_windows_that_do_not_lie_in_each_other_are_refused(project: Derived) -> None:
    """A week lies in no month: some of it would never be read, without a word."""
    project.configure_derived(window="PT6H")
    refused = project.kfm("config", "check")
    assert refused.code == 2
    assert "windows of P1D (source `readings`) do not lie in windows of PT6H" in refused.err


def test_a_dataset_is_not_less_restricted_than_what_it_is_made_of(project: Derived) -> None:
    """Unless the configuration says why."""
    project.configure_derived(readings_rights=RIGHTS.replace("level: public", "level: restricted"))
    refused = project.kfm("config", "check")
    assert refused.code == 2
    assert "`exposure` is public and is made of `readings`, which is restricted" in refused.err
    project.configure_derived(
        readings_rights=RIGHTS.replace("level: public", "level: restricted"),
        extra="lowers_care: Only counts are published",
    )
    assert project.kfm("config", "check").code == 0


# --- lineage -----------------------------------------------------------------------------


def test_lineage_joins_from_the_address_of_a_source_to_the_derived_file(project: Derived) -> None:
    """Walking the emitted events by namespace and name leads from the folder's file to the derived one."""
    project.publish_inputs()
    project.run("exposure", daily(1))
    edges: dict[tuple[str, str], set[tuple[str, str]]] = {}
    for event in project.events():
        if event["eventType"] != "COMPLETE":
            continue
        inputs, outputs = (
            {(one["namespace"], one["name"]) for one in event[side]} for side in ("inputs", "outputs")
        )
        for each in inputs:
            edges.setdefault(each, set()).update(outputs)
    begin = ("file", str(project.folder / "incoming/2026-11-01.csv"))
    reached, waiting = set(), [begin]
    while waiting:
        each = waiting.pop()
        if each not in reached:
            reached.add(each)
            waiting += edges.get(each, ())
    assert ("file", str(project.folder / "published/exposure/2026-11-01.txt")) in reached
    assert ("file", str(project.folder / "published/exposure")) in reached


def test_the_version_that_was_read_is_in_the_event(project: Derived) -> None:
    """The input dataset bears the version of its pin, as the producing run's output did."""
    project.publish_inputs()
    project.run("exposure", daily(1))
    home = str(project.folder / "published/readings")

    def versions(side: str, job: str) -> list[str]:
        return [
            one["facets"]["version"]["datasetVersion"]
            for event in project.events()
            if event["eventType"] == "COMPLETE" and event["job"]["name"] == job
            for one in event[side]
            if one["name"] == home and "version" in one["facets"]
        ]

    assert versions("inputs", "exposure") == versions("outputs", "readings")[-1:]


def test_provenance_joins(project: Derived) -> None:
    """The file and the version that the one run generated are what the other used."""
    project.publish_inputs()
    made = project.run("exposure", daily(1))
    producer = project.runs("readings")[0]["run_id"]
    used = _graph(project, made["run_id"])
    generated = _graph(project, producer)
    names = {each["@id"] for each in generated if "kfm:Output" in each["@type"]}
    assert len(names) == 1
    inputs = {each["@id"] for each in used if "kfm:Input" in each["@type"]}
    assert names <= inputs
    versions = {each["@id"] for each in used if "kfm:DatasetVersion" in each["@type"]}
    assert len(versions) == 3  # of the two inputs, and its own
    newest = _graph(project, project.runs("readings")[-1]["run_id"])
    made_version = {each["@id"] for each in newest if "prov:generatedAtTime" in each and "kfm:files" in each}
    assert made_version <= versions
    assert len(made_version) == 1
    _conforms(used)


def _conforms(graph: list[dict[str, Any]]) -> None:
    """The document keeps to the shapes that ship."""
    import pyshacl
    import rdflib

    from kfm.lineage.provenance import CONTEXT
    from tests.acceptance.cli.test_export import SHAPES

    document = json.dumps({"@context": CONTEXT, "@graph": graph})
    data = rdflib.Graph().parse(data=document, format="json-ld")
    conforms, _, text = pyshacl.validate(data, shacl_graph=rdflib.Graph().parse(SHAPES, format="turtle"))
    assert conforms, text


def test_a_masked_input_is_not_named_by_what_is_made_of_it(project: Derived) -> None:
    """Lineage, provenance and what is published name neither dataset nor files; lineage joins by mask."""
    project.publish_inputs()
    project.configure_derived(
        readings_rights=RIGHTS.replace("level: public", "level: restricted"),
        extra="lowers_care: Only counts are published",
    )
    (project.folder / ".kfm/lineage/openlineage.jsonl").unlink(missing_ok=True)
    made = project.run("exposure", daily(1))
    assert made["word"] == "published"
    told = [
        event
        for event in project.events()
        if event["run"]["facets"]["kfmRunState"]["run_id"] == made["run_id"]
    ]
    assert told
    prov = project.kfm("lineage", "prov", made["run_id"]).out
    shown = "".join(
        path.read_text() for path in (project.folder / "published/exposure").rglob("*.json") if path.is_file()
    )
    for text in (json.dumps(told), prov, shown):
        assert "readings" not in text
        assert "2026-11-01/2026-11-01.csv" not in text
        assert "zones" in text or text == shown
    joined = [
        one
        for event in told
        if event["eventType"] == "COMPLETE"
        for one in event["inputs"]
        if one["namespace"] == "masked"
    ]
    assert joined
    assert all(one["name"].startswith("masked-") for one in joined)


def _graph(project: Inside, run_id: str) -> list[dict[str, Any]]:
    shown = project.kfm("lineage", "prov", run_id)
    assert shown.code == 0, shown.err
    return list(json.loads(shown.out)["@graph"])


# --- the service -------------------------------------------------------------------------


def test_a_service_notices_a_change(project: Derived) -> None:
    """`kfm serve` asks for what a change affects, and makes it: no schedule, no command."""
    import time

    from tests.acceptance.service.served import serving

    project.publish_inputs()
    with serving(project.folder) as served:
        _until(lambda: len(project.files("exposure")) == len(DAYS), served)
        project.change(2)
        project.run("readings", daily(2))
        _until(lambda: "2 of day 2" in project.files("exposure")["2026-11-02.txt"], served)
        time.sleep(2.5)  # it has looked again
    asked = [one["window_start"][:10] for one in project.requests("exposure")]
    assert sorted(asked) == ["2026-11-01", "2026-11-02", "2026-11-02", "2026-11-03"]
    assert len(project.runs("exposure")) == len(DAYS) + 1


def _until(done: Any, served: Any) -> None:
    import time

    ends = time.monotonic() + 40
    while not done():
        assert time.monotonic() < ends, served.said
        time.sleep(0.1)
