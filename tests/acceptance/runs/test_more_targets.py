"""Runs that show their versions on a branch and in catalogues elsewhere."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.acceptance.runs.conftest import Inside
from tests.unit.publish.test_catalogue_targets import Catalogue, serving

pytestmark = pytest.mark.req("UPD-6", "UPD-16")
ASSETS = "https://data.example/kfm"


def targets(catalogue: Catalogue) -> str:
    stac = f"{{kind: stac, url: '{catalogue.address}', options: {{assets: '{ASSETS}', token: 'env:STAC'}}}}"
    dcat = f"{{kind: dcat, url: '{catalogue.address}/records', options: {{assets: '{ASSETS}'}}}}"
    return f"  - {{kind: branch, options: {{branch: shown}}}}\n  - {stac}\n  - {dcat}\n"


def configure(project: Inside, catalogue: Catalogue) -> None:
    project.env["STAC"] = "s3cret-of-the-catalogue"
    project.configure(more=targets(catalogue))


def test_a_run_shows_its_version_everywhere(project: Inside, tmp_path: Path) -> None:
    """Branch, STAC API and DCAT record show what was promoted; the trace has a line for each target."""
    with serving() as catalogue:
        configure(project, catalogue)
        assert project.kfm("config", "check").code == 0
        ended = project.run("--artifacts", str(tmp_path / "a"))
        assert ended.code == 0, ended
        reported = {one["target"]: one["sequence"] for one in ended.result["projections"]}
        assert reported == {"local": 1, "branch": 1, "stac": 1, "dcat": 1}
        assert catalogue.collections["levels"]["kfm:sequence"] == 1
        (item,) = catalogue.items.values()
        assert all(asset["href"].startswith(ASSETS) for asset in item["assets"].values())
        (record,) = map(json.loads, catalogue.records.values())
        assert record["dcterms:identifier"] == "levels"
    shown = project.kfm("branch", "show", "shown", "--json")
    assert shown.code == 0, shown
    listed = json.dumps(shown.document)
    assert "levels/manifest.json" in listed
    assert "a.csv" in listed
    lines = (tmp_path / "a" / "publisher_trace.jsonl").read_text().splitlines()
    traced = [json.loads(line) for line in lines if '"project"' in line]
    assert {line["target"]: line["outcome"] for line in traced} == dict.fromkeys(reported, "shown")


def test_a_catalogue_that_is_away_is_due_again(project: Inside, tmp_path: Path) -> None:
    """The run has succeeded, its catalogues are named as behind, and `kfm project` brings them up to date."""
    with serving() as catalogue:
        configure(project, catalogue)
        catalogue.broken = True
        ended = project.run("--artifacts", str(tmp_path / "a"))
        assert ended.code == 4, ended
        assert (ended.result["word"], project.rows("SELECT status FROM runs")) == (
            "published",
            [("success",)],
        )
        failed = {one["target"] for one in ended.result["projections"] if one["error"] is not None}
        assert failed == {"stac", "dcat"}
        lines = (tmp_path / "a" / "publisher_trace.jsonl").read_text().splitlines()
        traced = [json.loads(line) for line in lines if '"failed"' in line]
        assert {line["target"]: line["error_code"] for line in traced} == dict.fromkeys(failed, "KFM406")
        assert "s3cret-of-the-catalogue" not in ended.out + ended.err
        catalogue.broken = False
        assert project.kfm("project").code == 0
        assert catalogue.collections["levels"]["kfm:sequence"] == 1
        assert catalogue.records
