"""An unchanged upstream is not enough: what stands there must still be what this call would make."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.runs.conftest import Inside

CONFIG = """version: 1
environment: settle
datasets:
  - {{id: one, rights: {{license: {licence}, care: {{label: Public}}}}}}
  - {{id: two, rights: {{license: CC0-1.0, care: {{label: Public}}}}}}
sources:
  - {{id: flow, dataset: {dataset}, kind: files, folder: incoming, mode: replace, output_version: "{version}",
      window: 2026-01-01/P1D, pipeline: "p.py:run"}}
publish:
  - {{kind: local, path: published}}
"""
PIPELINE = """def run(context):
    for entry in context.inputs:
        context.publisher.write_file(entry.path, b"{word} " + entry.read())
"""


class Setting:
    def __init__(self, project: Inside) -> None:
        self.project = project
        self.words = {"licence": "CC0-1.0", "dataset": "one", "version": "1"}
        project.write("incoming/flow.csv", "a\n")
        project.write("p.py", PIPELINE.format(word="ONE"))
        self.set()

    def set(self, **words: str) -> None:
        self.words |= words
        self.project.write("kfm.yml", CONFIG.format(**self.words))

    def run(self, *more: str) -> dict[str, Any]:
        ended = self.project.kfm("run", "--source", "flow", "--json", *more)
        result: dict[str, Any] = json.loads(ended.out)["results"][0]
        return result

    def shown(self, dataset: str = "one") -> str:
        return (self.project.folder / "published" / dataset / "current" / "data" / "flow.csv").read_text()


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    return Setting(Inside(tmp_path / "project"))


@pytest.mark.req("UPD-5", "TRG-2")
def test_a_pipeline_that_was_rolled_back_publishes_again(setting: Setting) -> None:
    """ONE, TWO, ONE again: the third run is not "unchanged", for TWO stands there."""
    setting.run()
    setting.set(version="2")
    setting.project.write("p.py", PIPELINE.format(word="TWO"))
    assert setting.run()["word"] == "published"
    setting.set(version="1")
    setting.project.write("p.py", PIPELINE.format(word="ONE"))
    assert setting.run()["word"] == "published"
    assert setting.shown() == "ONE a\n"
    assert setting.run()["outcome"] == "noop"


@pytest.mark.req("UPD-5", "TRG-2")
def test_a_source_that_moved_feeds_its_new_dataset(setting: Setting) -> None:
    """A source that names another dataset now is not done before that dataset has its data."""
    setting.run()
    setting.set(dataset="two")
    result = setting.run()
    assert (result["word"], result["dataset_id"]) == ("published", "two")
    assert setting.shown("two") == "ONE a\n"
    assert setting.run()["outcome"] == "noop"


@pytest.mark.req("UPD-9")
def test_changed_rights_are_published(setting: Setting) -> None:
    """Rights travel with the data, also when only they have changed."""
    setting.run()
    setting.set(licence="CC-BY-4.0")
    assert setting.run("--dry-run")["outcome"] == "planned"
    assert setting.run()["word"] == "published"
    manifest = setting.project.folder / "published" / "one" / "current" / "manifest.json"
    assert json.loads(manifest.read_text())["rights"]["license"] == "CC-BY-4.0"
    assert setting.run()["outcome"] == "noop"


@pytest.mark.req("UPD-16")
def test_another_correction_is_not_swallowed(setting: Setting) -> None:
    """A correction that failed does not stand for the next one."""
    setting.run()
    setting.project.write("p.py", "def run(context):\n    raise ValueError('no')\n")
    assert setting.run("--correction", "C1", "--rationale", "r", "--ticket", "t")["outcome"] == "failed"
    setting.project.write("p.py", PIPELINE.format(word="ONE"))
    assert setting.run("--correction", "C2", "--rationale", "r", "--ticket", "t")["outcome"] == "success"
    rows = setting.project.rows("SELECT correction, status FROM runs ORDER BY revision")
    assert [tuple(row) for row in rows] == [(None, "success"), ("C1", "failed"), ("C2", "success")]


@pytest.mark.req("TRG-4")
def test_lost_objects_of_the_head_stop_no_other_window(setting: Setting) -> None:
    """A promotion looks for what is new to it: what the head has was looked for when it was promoted."""
    text = CONFIG.replace("mode: replace, ", "").replace("window: 2026-01-01/P1D, ", "")
    setting.project.write("kfm.yml", text.format(**setting.words))
    assert setting.run("--window", "2026-01-01/P1D")["word"] == "published"
    for entry in (setting.project.folder / ".kfm" / "objects" / "sha256").rglob("*"):
        if entry.is_file():
            entry.unlink()
    setting.project.write("incoming/flow.csv", "b\n")
    assert setting.run("--window", "2026-01-02/P1D")["word"] == "published"
    assert setting.project.rows("SELECT MAX(sequence) FROM promotions") == [(2,)]


@pytest.mark.req("UPD-4", "UPD-6")
def test_machines_that_share_their_objects_share_their_work(
    setting: Setting, s3_endpoint: str, s3_bucket: str
) -> None:
    """Two state folders, one ledger, one bucket of objects: the second goes on where the first was."""
    from tests import services

    shared = f"""objects: s3://{s3_bucket}
objects_options: {{endpoint: "{s3_endpoint}", access_key_id: "env:S3_ID", secret_access_key: "env:S3_KEY",
  region: {services.S3_REGION}}}
store: sqlite:{setting.project.folder}/shared/ledger.db
"""
    setting.project.env |= {"S3_ID": services.S3_ACCESS_KEY, "S3_KEY": services.S3_SECRET_KEY}
    text = (
        CONFIG.replace("mode: replace, ", "").replace("window: 2026-01-01/P1D, ", "").format(**setting.words)
    )
    (setting.project.folder / "shared").mkdir()
    for machine, day in (("one", "2026-01-01"), ("two", "2026-01-02")):
        setting.project.write("kfm.yml", f"{text}{shared}state: .state-{machine}\n")
        result = setting.run("--window", f"{day}/P1D")
        assert result["word"] == "published", result
    data = setting.project.folder / "published" / "one" / "current" / "data"
    assert sorted(entry.name for entry in data.iterdir()) == ["2026-01-01", "2026-01-02"]
    assert setting.project.kfm("gc").code == 0, "of both machines, since the ledger knows of both"
