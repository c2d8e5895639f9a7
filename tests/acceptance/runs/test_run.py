"""What `kfm run` does, seen from outside: updates, repetitions, revisions, plans, several sources."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.runs.conftest import Inside, http_source
from tests.crash.project import Project, finish, table
from tests.crash.upstream import Upstream

Valid = Callable[[str, Any], None]


def runs(project: Project) -> list[tuple[Any, ...]]:
    return project.rows("SELECT revision, status, attempts FROM runs ORDER BY revision")


def outcomes(project: Project) -> list[str]:
    return [row[0] for row in project.rows("SELECT outcome FROM invocations ORDER BY requested_at_ms, rowid")]


@pytest.mark.req("UPD-1", "UPD-4", "TRG-4", "CLI-1")
def test_first_update(project: Inside, valid: Valid) -> None:
    """The first run publishes what upstream has, and says so in one valid document."""
    ended = project.run()
    assert ended.code == 0, ended
    valid("cli-run", ended.document)
    result = ended.result
    assert (result["word"], result["outcome"], result["version"]) == ("published", "success", 1)
    assert [target["sequence"] for target in result["projections"]] == [1]
    shown = (project.published / "levels/current/data").rglob("*.csv")
    assert sorted(path.read_bytes() for path in shown) == sorted([table("a", 3), table("b", 4)])
    (row,) = project.rows("SELECT run_id, status, trigger_type, window_start_ms, window_end_ms FROM runs")
    assert row[:3] == (result["run_id"], "success", "manual")
    assert row[4] - row[3] == 86_400_000


@pytest.mark.req("UPD-5")
def test_again_is_unchanged(project: Inside) -> None:
    """The same command again returns the same run and changes nothing but the list of calls."""
    first = project.run()
    before = project.tree()
    second = project.run()
    assert second.code == 0, second
    assert (second.result["word"], second.result["outcome"]) == ("unchanged", "noop")
    assert second.result["run_id"] == first.result["run_id"]
    assert project.tree() == before
    assert runs(project) == [(0, "success", 1)]
    assert outcomes(project) == ["success", "noop"]
    assert project.rows("SELECT count(*) FROM promotions") == [(1,)]


@pytest.mark.req("UPD-5", "TRG-2")
def test_a_touched_file_is_unchanged(project: Inside) -> None:
    """Content decides: a file with a new time and the old bytes is no news."""
    project.run()
    project.write("incoming/a.csv", table("a", 3))
    assert project.run().result["word"] == "unchanged"


@pytest.mark.req("UPD-5", "TRG-2", "TRG-4")
def test_late_data_opens_a_revision(project: Inside) -> None:
    """Changed upstream content re-opens the same work; the version before stays as it was."""
    first = project.run()
    old = project.current()
    old_name = (project.published / "levels/current").resolve().name
    project.write("incoming/b.csv", table("b", 9))
    second = project.run()
    assert second.code == 0, second
    assert (second.result["word"], second.result["version"]) == ("published", 2)
    assert second.result["run_id"] != first.result["run_id"]
    assert runs(project) == [(0, "success", 1), (1, "success", 1)]
    keys = project.rows(
        "SELECT count(DISTINCT work_key), count(DISTINCT work_base), "
        "count(DISTINCT idempotency_key) FROM runs"
    )
    assert keys == [(2, 1, 2)]
    assert project.tree(f"levels/.versions/{old_name}") == old
    assert project.current() != old
    assert project.run().result["word"] == "unchanged"


@pytest.mark.req("UPD-3", "TRG-2")
def test_windows_are_other_work(project: Inside) -> None:
    """Each window is work of its own, however it is spelt; the words of a window do not matter."""
    assert project.kfm("run", "--json", "--window", "2026-01-01/P1D").result["word"] == "published"
    spelt = project.kfm("run", "--json", "--window", "2026-01-01T00:00:00Z/2026-01-02T00:00:00Z")
    assert spelt.result["word"] == "unchanged"
    assert project.kfm("run", "--json", "--window", "2026-01-02/P1D").result["word"] == "published"
    assert len(runs(project)) == 2


@pytest.mark.req("UPD-9", "CLI-1")
def test_broken_contract_publishes_nothing(project: Inside, valid: Valid) -> None:
    """Data that breaks its contract is refused; what was published stays; corrected data passes."""
    project.run()
    before = project.tree()
    project.write("incoming/b.csv", "station,level_m\nb-1,1000\n")
    refused = project.run()
    assert refused.code == 3, refused
    valid("cli-run", refused.document)
    assert refused.result["error"]["code"] == "KFM303"
    assert (refused.result["word"], refused.result["outcome"]) == ("blocked", "refused")
    assert project.tree() == before
    assert runs(project) == [(0, "success", 1), (1, "failed", 1)]
    assert project.rows("SELECT * FROM locks WHERE worker_id IS NOT NULL") == []
    project.write("incoming/b.csv", "station,level_m\nb-1,10\n")
    corrected = project.run()
    assert corrected.code == 0, corrected
    assert runs(project) == [(0, "success", 1), (1, "success", 2)]


@pytest.mark.req("UPD-16")
def test_correction_is_applied_once(project: Inside) -> None:
    """A correction opens a revision, is on record, and is done once however often it is asked for."""
    project.run()
    first = project.run("--correction", "FIX-1", "--rationale", "sensor drift")
    assert first.code == 0, first
    assert len(runs(project)) == 2
    second = project.run("--correction", "FIX-1", "--rationale", "sensor drift")
    assert second.code == 0, second
    assert second.result["word"] == "unchanged"
    assert "FIX-1" in second.result["reason"]
    assert len(runs(project)) == 2
    (entry,) = project.governance("correction")
    assert entry["rationale"] == "sensor drift"
    project.run("--correction", "FIX-2", "--rationale", "sensor drift")
    assert len(runs(project)) == 3


@pytest.mark.req("UPD-7")
def test_a_plan_is_applied_as_it_was_read(project: Inside, valid: Valid) -> None:
    """`diff --plan` writes nothing else, and `run --plan` publishes exactly the planned version."""
    shown = project.kfm("diff", "--json", "--window", "2026-01-01/P1D", "--plan", "plan.jsonl")
    assert shown.code == 0, shown
    valid("cli-diff", shown.document)
    assert not project.published.exists()
    planned = shown.document["results"][0]["plan"]
    applied = project.kfm("run", "--json", "--plan", "plan.jsonl")
    assert applied.code == 0, applied
    assert (applied.result["word"], applied.result["version_id"]) == ("published", planned["version_id"])


@pytest.mark.req("UPD-7", "UPD-9")
def test_a_drifted_plan_is_refused(project: Inside) -> None:
    """If upstream has changed since the plan was made, nothing is promoted, and the drift is named."""
    project.kfm("diff", "--window", "2026-01-01/P1D", "--plan", "plan.jsonl")
    project.write("incoming/b.csv", table("b", 30))
    refused = project.kfm("run", "--json", "--plan", "plan.jsonl")
    assert refused.code == 3, refused
    assert refused.result["error"]["code"] == "KFM306"
    assert not project.published.exists()
    assert project.rows("SELECT * FROM promotions") == []


@pytest.mark.req("UPD-11", "TRG-2")
def test_artifacts_are_valid(project: Inside, valid: Valid, tmp_path: Path) -> None:
    """A run leaves four artifacts; each line of each is valid, and the keys can be recomputed from them."""
    folder = tmp_path / "artifacts"
    ended = project.run("--artifacts", str(folder))
    assert ended.code == 0, ended
    schemas = {"run": "run-event", "event_log": "event-log", "publisher_trace": "publisher-trace"}
    for name, schema in schemas.items():
        lines = (folder / f"{name}.jsonl").read_text().splitlines()
        assert lines, name
        for line in lines:
            valid(schema, json.loads(line))
    record = json.loads((folder / "idempotency.json").read_bytes())
    valid("idempotency", record)
    (keys,) = project.rows("SELECT idempotency_key, work_key FROM runs")
    assert (record["idempotency_key"], record["work_key"]) == keys
    from kfm.model.keys import key_of

    documents = record["key_documents"]
    assert (key_of(documents["trigger"]), key_of(documents["work"])) == keys
    events = [json.loads(line)["event"] for line in (folder / "run.jsonl").read_text().splitlines()]
    assert (events[0], events[-1]) == ("run.start", "run.end")
    assert sorted(path.name for path in folder.iterdir()) == [
        "event_log.jsonl", "idempotency.json", "prov.jsonld", "publisher_trace.jsonl", "run.jsonl",
    ]  # fmt: skip


@pytest.mark.req("UPD-6", "UPD-11")
def test_the_trace_goes_on_to_promotion_and_targets(project: Inside, tmp_path: Path) -> None:
    """publisher_trace.jsonl shows the promotion with its version, and each target that shows it or fails."""
    folder = tmp_path / "artifacts"
    ended = project.run("--artifacts", str(folder))
    assert ended.code == 0, ended
    lines = [json.loads(line) for line in (folder / "publisher_trace.jsonl").read_text().splitlines()]
    ((promotion, version),) = project.rows("SELECT sequence, version_id FROM promotions")
    (promoted,) = [line for line in lines if line["operation"] == "promote"]
    assert (promoted["outcome"], promoted["sequence"], promoted["version_id"]) == (
        "promoted", promotion, version,
    )  # fmt: skip
    (shown,) = [line for line in lines if line["operation"] == "project"]
    assert (shown["outcome"], shown["target"], shown["sequence"]) == ("shown", "local", 1)
    assert [line["seq"] for line in lines] == list(range(1, len(lines) + 1))
    assert lines.index(promoted) < lines.index(shown)


@pytest.mark.req("UPD-11")
def test_artifacts_of_each_attempt_are_kept(project: Inside, valid: Valid) -> None:
    """A failed attempt's artifacts say how it failed and stay beside those of the next."""
    project.write("incoming/b.csv", "station,level_m\nb-1,1000\n")
    project.run()
    project.write("incoming/b.csv", "station,level_m\nb-1,10\n")
    project.run()
    records = sorted(project.state.glob("runs/*/attempt-*/idempotency.json"))
    found = [json.loads(path.read_bytes()) for path in records]
    assert [(one["attempts"], one["status"], one["error_code"]) for one in found] == [
        (1, "failed", "KFM303"),
        (2, "success", None),
    ]
    for one in found:
        valid("idempotency", one)


@pytest.mark.req("UPD-16")
def test_several_sources_are_one_promotion(project: Inside, upstream: Upstream) -> None:
    """A sync publishes all members in one version, or nothing where one of them fails."""
    members = f"""{http_source(upstream).replace("id: notes", "id: gauges")}
  - {{id: tables, dataset: levels, kind: files, folder: incoming, pattern: "*.csv"}}
  - {{id: all, dataset: levels, kind: sync, members: [gauges, tables]}}"""
    project.configure(source=members)
    kept = upstream.bodies.pop("/levels.csv")
    failed = project.run()
    assert failed.code == 4, failed
    assert failed.result["error"]["code"] == "KFM404"
    assert not project.published.exists()
    upstream.bodies["/levels.csv"] = kept
    ended = project.run()
    assert ended.code == 0, ended
    assert (ended.result["source_id"], ended.result["version"]) == ("all", 1)
    data = project.published / "levels/current/data"
    assert {path.relative_to(data).parts[0] for path in data.rglob("*.csv")} == {"gauges", "tables"}
    assert project.rows("SELECT count(*) FROM promotions") == [(1,)]


@pytest.mark.req("UPD-1")
@pytest.mark.parametrize("module", ["kfm", "updater.runner"])
def test_both_names_of_the_command(project: Inside, module: str) -> None:
    """Both spellings of the command do the same, also from another folder and with a JSON configuration."""
    import sys

    from ruamel.yaml import YAML

    document = YAML(typ="safe").load((project.folder / "kfm.yml").read_text())
    project.write("kfm.json", json.dumps(document))
    (project.folder / "elsewhere").mkdir()
    command = [
        sys.executable,
        "-m",
        module,
        "run",
        "--config",
        "../kfm.json",
        "--window",
        "2026-01-01/P1D",
        "--json",
    ]
    outside = Project(project.folder / "elsewhere")
    ended = finish(outside.start(command=command))
    assert ended.code == 0, ended
    assert ended.result["word"] == "published"
    assert project.current()
