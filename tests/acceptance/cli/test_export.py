"""`kfm export` on the real kernel: whatever became of a run, its evidence is a bundle that verifies."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyshacl
import pytest
import rdflib

from tests.acceptance.cli.conftest import Called

pytestmark = pytest.mark.req("RS-8", "TRG-8")

Kfm = Callable[..., Called]
Valid = Callable[[str, Any], None]

SHAPES = Path(__file__).resolve().parents[3] / "src" / "kfm" / "contracts" / "shapes" / "prov.ttl"
CONFIG = """\
version: 1
environment: test
datasets:
  - id: levels
    rights:
      license: CC0-1.0
      care: {{label: "Public · Low-Risk", level: {level}}}
      local_contexts: "https://localcontextshub.org/projects/7"
sources:
  - id: daily
    dataset: levels
    kind: files
    folder: incoming
    output_version: "1"
    pipeline: "pipeline.py:publish"
publish:
  - {{kind: local, path: published}}
"""
PIPELINE = """\
import os, signal


def publish(context):
    {trouble}
    for each in context.inputs:
        context.publisher.write_file(each.path, each.fetched)
"""
FINE = "pass"
FAILS = "raise ValueError('no such gauge')"
DIES = "os.path.exists('died') or (open('died', 'w').close(), os.kill(os.getpid(), signal.SIGKILL))"
WINDOW = ("--source", "daily", "--window", "2026-01-01/2026-01-02")


@pytest.fixture
def laid_out(project: Path) -> Callable[..., None]:
    def lay_out(trouble: str = FINE, *, level: str = "public") -> None:
        (project / "kfm.yml").write_text(CONFIG.format(level=level))
        (project / "pipeline.py").write_text(PIPELINE.format(trouble=trouble))
        (project / "incoming" / "a.csv").write_text("gauge,level\n1,2\n")

    return lay_out


def problems(document: str) -> str:
    graph = rdflib.Graph().parse(data=document, format="json-ld")
    conforms, _, text = pyshacl.validate(graph, shacl_graph=rdflib.Graph().parse(SHAPES, format="turtle"))
    return "" if conforms else text


def run_id(kfm: Kfm) -> str:
    return str(kfm("runs", "--json").document["runs"][0]["run_id"])


def exported(kfm: Kfm, valid: Valid, *more: str, to: str = "bundle") -> Path:
    """The bundle of the newest run, checked by its own script, by kfm, and by the shapes."""
    called = kfm("export", run_id(kfm)[:13], "--to", to, "--json", *more)
    assert called.code == 0, called.err
    valid("export", called.document)
    folder = Path(called.document["path"])
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(folder / "verify.py")], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert called.document["digest"] in done.stdout
    again = kfm("export", "--verify", to, "--expect", called.document["digest"], "--json")
    valid("export-verify", again.document)
    assert (again.code, again.document["sound"]) == (0, True)
    assert problems((folder / "prov.jsonld").read_text()) == ""
    return folder


def rows(folder: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


def endings(folder: Path) -> list[tuple[int, str, str]]:
    return [(one["attempt"], one["node"], one["ending"]) for one in rows(folder, "ledger/attempts.jsonl")]


def test_a_run_that_succeeds(kfm: Kfm, laid_out: Callable[..., None], valid: Valid, project: Path) -> None:
    """Rows, events, provenance, policies and the published records are in it, word for word as published."""
    laid_out()
    assert kfm("run", *WINDOW).code == 0
    folder = exported(kfm, valid)
    assert {ending for _, _, ending in endings(folder)} == {"complete"}
    current = next(project.glob("published/**/manifest.json")).parent
    for name in ("manifest.json", "dcat.jsonld", "collection.json"):
        assert (folder / "published" / name).read_bytes() == (current / name).read_bytes()
    item = next((folder / "published" / "items").rglob("*.json"))
    assert item.read_bytes() == (current / item.relative_to(folder / "published")).read_bytes()
    state = json.loads(item.read_text())["properties"]["kfm:run_state"]
    assert state["run_id"] == run_id(kfm)
    prov = (folder / "prov.jsonld").read_text()
    assert "noEvidence" not in prov
    missing = json.loads((folder / "evidence.json").read_text())["missing"]
    assert [sentence for sentence in missing if "sealed" not in sentence] == []
    assert list((folder / "artifacts").rglob("run.jsonl"))


@pytest.mark.req("GOV-2")
def test_sealed_events_come_with_their_proofs(kfm: Kfm, laid_out: Callable[..., None], valid: Valid) -> None:
    """Once the events are sealed, the bundle proves of each that the governance chain holds it."""
    laid_out()
    assert kfm("run", *WINDOW).code == 0
    assert kfm("audit", "seal").code == 0
    folder = exported(kfm, valid)
    assert len(rows(folder, "openlineage.proofs.jsonl")) == len(rows(folder, "openlineage.jsonl")) > 0
    assert json.loads((folder / "evidence.json").read_text())["missing"] == []


def test_the_same_run_again_is_the_same_bundle(kfm: Kfm, laid_out: Callable[..., None], valid: Valid) -> None:
    """Exported twice, the archives are equal."""
    laid_out()
    assert kfm("run", *WINDOW).code == 0
    for name in ("one.zip", "two.zip"):
        assert kfm("export", run_id(kfm), "--to", name).code == 0
    assert Path("one.zip").read_bytes() == Path("two.zip").read_bytes()
    assert kfm("export", "--verify", "one.zip").code == 0


def test_done_again_by_force_it_is_still_the_first_run_that_made_it(
    kfm: Kfm, laid_out: Callable[..., None], valid: Valid
) -> None:
    """A forced run with the same outcome publishes nothing new, and its provenance claims nothing."""
    laid_out()
    assert kfm("run", *WINDOW).code == 0
    first = run_id(kfm)
    before = kfm("status", "--json").document
    called = kfm("run", *WINDOW, "--force", "--rationale", "to be sure", "--ticket", "T-1", "--json")
    assert called.code == 0, called.err
    second = called.document["results"][0]
    assert (second["word"], second["version"]) == ("unchanged", 1), before
    done = kfm("export", second["run_id"], "--to", "again")
    assert done.code == 0, done.err
    prov = Path("again/prov.jsonld").read_text()
    assert problems(prov) == ""
    assert f'"prov:wasGeneratedBy":{{"@id":"urn:kfm:run:{first}"}}' in prov
    assert "kfm:foundUnchanged" in prov
    assert "kfm:approver" in prov


def test_a_run_that_fails_and_is_retried(kfm: Kfm, laid_out: Callable[..., None], valid: Valid) -> None:
    """First the failure alone, then both attempts: each with one start and one end."""
    laid_out(FAILS)
    assert kfm("run", *WINDOW).code == 1
    folder = exported(kfm, valid)
    assert (1, "", "fail") in endings(folder)
    laid_out(FINE)
    assert kfm("run", *WINDOW).code == 0
    folder = exported(kfm, valid, to="later")
    assert {(1, "", "fail"), (2, "", "complete")} <= set(endings(folder))
    kinds = [event["eventType"] for event in rows(folder, "openlineage.jsonl")]
    assert kinds.count("START") == len(kinds) / 2


def test_a_run_that_is_killed_and_reaped(
    kfm: Kfm, process: Callable[..., Called], laid_out: Callable[..., None], valid: Valid
) -> None:
    """The dead process could not end its attempt: the process that found it did."""
    laid_out(DIES)
    assert process("run", *WINDOW).code == -9
    assert kfm("project").code == 0  # ends what dead processes left
    folder = exported(kfm, valid)
    assert (1, "", "abort") in endings(folder)
    assert kfm("run", *WINDOW).code == 0
    folder = exported(kfm, valid, to="later")
    assert {(1, "", "abort"), (2, "", "complete")} <= set(endings(folder))


def test_a_call_that_is_refused(kfm: Kfm, laid_out: Callable[..., None], valid: Valid) -> None:
    """A refusal at the door leaves no run, and still a valid document of its own."""
    laid_out()
    assert kfm("switch", "set", "paused", "--all", "--rationale", "flood").code == 0
    called = kfm("run", *WINDOW, "--json")
    assert called.code == 3
    invocation = called.document["results"][0]["invocation_id"]
    exported = kfm("export", invocation, "--json")
    valid("export", exported.document)
    assert exported.document["run_id"] is None
    text = Path(exported.document["path"]).read_text()
    assert problems(text) == ""
    assert "noEvidence" not in text
    assert '"kfm:ending":"abort"' in text
    assert "CC0-1.0" in text
    assert kfm("export", invocation).code == 2  # it is there already


@pytest.mark.req("RS-13")
def test_a_restricted_dataset_leaves_masked(kfm: Kfm, laid_out: Callable[..., None], valid: Valid) -> None:
    """Without --internal no file of the bundle names it; the rights are in it all the same."""
    laid_out()
    assert kfm("run", *WINDOW).code == 0
    laid_out(level="restricted")  # from now on
    folder = exported(kfm, valid)
    for path in folder.rglob("*"):
        if path.is_file() and path.name != "verify.py":
            text = path.read_text()
            for name in ("levels", "daily", "a.csv", "gauge"):
                assert name not in text, path
    crate = (folder / "ro-crate-metadata.json").read_text()
    assert "CC0-1.0" in crate
    assert "Public · Low-Risk" in crate
    assert "https://localcontextshub.org/projects/7" in crate
    shown = exported(kfm, valid, "--internal", to="internal")
    assert "levels" in (shown / "ledger" / "run.json").read_text()


def test_help_and_mistakes(kfm: Kfm, laid_out: Callable[..., None], project: Path) -> None:
    """Every wrong way in is told with the way out, and nothing is overwritten."""
    laid_out()
    assert kfm("run", *WINDOW).code == 0
    (project / "taken").mkdir()
    for arguments, words in (
        (("export",), "Name the run"),
        (("export", "ffff0000"), "There is no run"),
        (("export", run_id(kfm), "--to", "taken"), "already there"),
        (("export", run_id(kfm), "--verify", "x"), "nothing else"),
        (("export", "--verify", "nowhere"), "There is no bundle nowhere."),
        (("export", run_id(kfm), "--expect", "sha256:0"), "--expect goes with --verify"),
        (("export", "--verify", "taken"), "no bundle"),
    ):
        called = kfm(*arguments)
        assert called.code == 2
        assert words in called.err
    assert list((project / "taken").iterdir()) == []
    assert "RO-Crate" in kfm("export", "--help").out
    called = kfm("export", run_id(kfm))
    assert called.code == 0
    assert (project / f"evidence-{run_id(kfm)}.zip").is_file()


def test_a_damaged_bundle_is_a_finding(kfm: Kfm, laid_out: Callable[..., None], valid: Valid) -> None:
    """Exit code 1, and the file is named."""
    laid_out()
    assert kfm("run", *WINDOW).code == 0
    folder = exported(kfm, valid)
    (folder / "ledger" / "run.json").write_text("{}\n")
    called = kfm("export", "--verify", "bundle", "--json")
    valid("export-verify", called.document)
    assert called.code == 1
    assert any("ledger/run.json is not the file" in finding for finding in called.document["findings"])
    assert "wrong: ledger/run.json" in kfm("export", "--verify", "bundle").out
