"""`kfm release` on the real kernel: made once, made again alike, checked by anybody."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.cli.conftest import Called

Kfm = Callable[..., Called]
Valid = Callable[[str, Any], None]
FILES = {
    "updater-telemetry.json",
    "patterns-telemetry.json",
    "focus-telemetry.json",
    "nodd-sns-telemetry.json",
    "energy.json",
    "carbon.json",
    "sbom.spdx.json",
    "manifest.zip",
    "attestation.intoto.json",
}
SECRET = "burial-mounds"
HIDDEN = f"""\
version: 1
environment: test
datasets:
  - id: levels
    rights: {{license: CC0-1.0, care: {{label: Public}}}}
  - id: {SECRET}
    rights: {{license: CC0-1.0, care: {{label: Private, level: restricted}}}}
sources:
  - {{id: daily, dataset: levels, kind: files, folder: incoming}}
  - {{id: {SECRET}-daily, dataset: {SECRET}, kind: files, folder: incoming}}
publish:
  - {{kind: local, path: published}}
"""
SIGN = "import hashlib, sys; print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest())"


def signer(program: str = SIGN) -> str:
    return f'{sys.executable} -c "{program}"'


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def ran(kfm: Kfm, project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a run, and a call that changed nothing."""
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    (project / "incoming" / "levels.csv").write_text("site,level\nA,1\n")
    assert kfm("run", "--source", "daily").code == 0
    assert kfm("run", "--source", "daily").code == 0
    return project


@pytest.mark.req("REL-1", "REL-2")
def test_a_release_is_whole_and_verifies(kfm: Kfm, ran: Path, valid: Valid) -> None:
    """One command makes all files; another finds that checksums, attestation and schemas agree."""
    made = kfm("release", "v1.0.0", "--json")
    assert made.code == 0, made.err
    valid("release", made.document)
    assert made.document["state"] == "made"
    folder = ran / "releases" / "v1.0.0"
    assert set(os.listdir(folder)) == FILES
    assert os.listdir(ran / "releases") == ["v1.0.0"]  # and nothing hidden beside it
    checked = kfm("release", "--verify", str(folder), "--json")
    assert checked.code == 0, checked.out
    valid("release-verify", checked.document)
    assert checked.document["findings"] == []
    telemetry = json.loads((folder / "updater-telemetry.json").read_text())
    assert telemetry["total"]["complete"] == 1
    assert telemetry["total"]["calls"]["noop"] == 1
    assert telemetry["total"]["cost"]["metered"] == 1
    nodes = json.loads((folder / "patterns-telemetry.json").read_text())["nodes"]
    assert {node["node"] for node in nodes} == {"fetch", "transform", "validate", "publish"}


@pytest.mark.req("REL-1")
def test_the_attestation_names_files_and_materials(kfm: Kfm, ran: Path) -> None:
    """Every other file by its digest; the chain's head, the policies and the pipelines as materials."""
    assert kfm("release", "1.0.0").code == 0
    folder = ran / "releases" / "1.0.0"
    told = json.loads((folder / "attestation.intoto.json").read_text())
    assert told["_type"] == "https://in-toto.io/Statement/v1"
    assert told["predicateType"] == "https://slsa.dev/provenance/v1"
    assert "no signature" in told["predicate"]["kfm_signature"]
    subjects = {subject["name"]: subject["digest"]["sha256"] for subject in told["subject"]}
    assert set(subjects) == FILES - {"attestation.intoto.json"}
    for name, digest in subjects.items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest
    materials = {one["name"]: one for one in told["predicate"]["buildDefinition"]["resolvedDependencies"]}
    assert {"audit-chain", "policies", "pipeline daily"} <= set(materials)
    chain = kfm("audit", "list", "--json").document
    number = materials["audit-chain"]["annotations"]["number"]
    (entry,) = [row for row in chain["entries"] if row["number"] == number]
    assert entry["hash"].removeprefix("sha256:") == materials["audit-chain"]["digest"]["sha256"]


@pytest.mark.req("REL-1")
def test_the_same_ledger_makes_the_same_bytes(kfm: Kfm, ran: Path, tmp_path: Path) -> None:
    """Another folder, time zone, language, hash seed and umask: the same bytes."""
    for name, surroundings in {
        "one": {"TZ": "America/Chicago", "LANG": "C", "PYTHONHASHSEED": "1"},
        "two": {"TZ": "Asia/Kathmandu", "LANG": "de_DE.UTF-8", "LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "77"},
    }.items():
        subprocess.run(
            [sys.executable, "-m", "kfm", "release", "v2.0.0", "--to", str(tmp_path / name)],
            env={**os.environ, **surroundings},
            check=True,
            capture_output=True,
            umask=0o077 if name == "two" else 0o022,
        )
    one, two = bytes_of(tmp_path / "one" / "v2.0.0"), bytes_of(tmp_path / "two" / "v2.0.0")
    assert set(one) == FILES
    assert one == two
    assert str(ran).encode() not in b"".join(one.values())


@pytest.mark.req("REL-1")
def test_made_again_is_unchanged_until_the_ledger_moves(kfm: Kfm, ran: Path) -> None:
    """Equal is unchanged; other content is refused, and replaced only for a reason that is kept."""
    assert kfm("release", "v1", "--json").document["state"] == "made"
    assert kfm("release", "v1", "--json").document["state"] == "unchanged"
    before = bytes_of(ran / "releases" / "v1")
    assert kfm("run", "--source", "daily").code == 0  # one more call in the ledger
    refused = kfm("release", "v1", "--json")
    assert (refused.code, refused.document["code"]) == (3, "KFM310")
    assert "updater-telemetry.json" in refused.document["message"]
    assert bytes_of(ran / "releases" / "v1") == before
    assert kfm("release", "v1", "--replace").code == 3
    assert bytes_of(ran / "releases" / "v1") == before
    replaced = kfm("release", "v1", "--replace", "--rationale", "one call was missing", "--json")
    assert replaced.document["state"] == "replaced"
    assert bytes_of(ran / "releases" / "v1") != before
    assert os.listdir(ran / "releases") == ["v1"]
    entries = [row for row in kfm("audit", "list", "--json").document["entries"] if row["kind"] == "release"]
    assert len(entries) == 2
    assert {row["rationale"] for row in entries} == {None, "one call was missing"}


def test_a_closed_span_stays_the_same(kfm: Kfm, ran: Path) -> None:
    """With an end, what happens later does not show."""
    assert kfm("release", "v0").code == 0
    period = json.loads((ran / "releases" / "v0" / "updater-telemetry.json").read_text())["period"]
    until = period["last"]  # the second call's time: the run before it counts, the call does not
    assert kfm("release", "v1", "--until", until, "--json").document["state"] == "made"
    total = json.loads((ran / "releases" / "v1" / "updater-telemetry.json").read_text())["total"]
    assert (total["complete"], total["calls"]["noop"]) == (1, 0)
    assert kfm("run", "--source", "daily").code == 0
    assert kfm("release", "v1", "--until", until, "--json").document["state"] == "unchanged"


def test_the_creation_time_can_be_told(kfm: Kfm, ran: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SOURCE_DATE_EPOCH is the time of the bill of materials; nonsense in it is an error."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    assert kfm("release", "v1").code == 0
    bill = json.loads((ran / "releases" / "v1" / "sbom.spdx.json").read_text())
    assert bill["creationInfo"]["created"] == "2023-11-14T22:13:20Z"
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "yesterday")
    assert kfm("release", "v2").code == 2


def test_without_being_told_it_is_the_ledgers_last_time(kfm: Kfm, ran: Path) -> None:
    """Not now: the last thing that was recorded."""
    assert kfm("release", "v1").code == 0
    folder = ran / "releases" / "v1"
    created = json.loads((folder / "sbom.spdx.json").read_text())["creationInfo"]["created"]
    last = json.loads((folder / "updater-telemetry.json").read_text())["period"]["last"]
    assert created[:19] == last[:19]


def test_a_release_of_nothing(kfm: Kfm, project: Path) -> None:
    """An environment in which nothing has happened yet has a release, too: zeros."""
    assert kfm("release", "v0").code == 0
    assert kfm("release", "--verify", str(project / "releases" / "v0")).code == 0


@pytest.mark.req("REL-1")
def test_signing(kfm: Kfm, ran: Path) -> None:
    """A command of the user's signs the attestation; a release that is there can be signed later."""
    signed = kfm("release", "v1", "--sign", signer(), "--json")
    assert (signed.document["state"], signed.document["signed"]) == ("made", True)
    folder = ran / "releases" / "v1"
    digest = hashlib.sha256((folder / "attestation.intoto.json").read_bytes()).hexdigest()
    assert (folder / "attestation.intoto.json.sig").read_text().strip() == digest
    assert kfm("release", "v1", "--sign", signer(), "--json").document["state"] == "unchanged"
    assert kfm("release", "v1", "--json").document["state"] == "unchanged"
    assert kfm("release", "v2", "--json").document["signed"] is False
    assert kfm("release", "v2", "--sign", signer(), "--json").document["state"] == "signed"
    assert kfm("release", "--verify", str(folder), "--json").document["signed"] is True


@pytest.mark.parametrize(
    "command",
    ["/no/such/command", signer("import sys; sys.exit('no key')"), signer("pass"), "'", " "],
    ids=["missing", "fails", "silent", "unreadable", "empty"],
)
def test_a_signer_that_fails_leaves_nothing(kfm: Kfm, ran: Path, command: str) -> None:
    """No half release: neither folder nor entry, and the error says what the command said."""
    failed = kfm("release", "v1", "--sign", command, "--json")
    assert failed.code in (1, 2)
    assert failed.document["code"] in ("KFM610", "KFM200")
    assert not (ran / "releases").exists() or os.listdir(ran / "releases") == []
    assert not [row for row in kfm("audit", "list", "--json").document["entries"] if row["kind"] == "release"]
    if "no key" in command:
        assert "no key" in failed.document["message"]


def test_a_signer_gets_no_shell(kfm: Kfm, ran: Path) -> None:
    """What looks like shell is an argument."""
    harmless = signer("import sys; print(sys.argv[1:])") + " ; touch pwned"
    assert kfm("release", "v1", "--sign", harmless).code == 0
    assert not (ran / "pwned").exists()


def _edit(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"1", b"2", 1))


def _repack(path: Path) -> None:
    """A manifest whose own list is right, but whose files are others."""
    with zipfile.ZipFile(path) as old:
        members = {name: old.read(name) for name in old.namelist()}
    members["ledger/runs.jsonl"] = b"{}\n"
    with zipfile.ZipFile(path, "w") as new:
        for name, data in members.items():
            new.writestr(name, data)


TAMPERINGS: dict[str, Callable[[Path], object]] = {
    **{f"edited {name}": lambda folder, name=name: _edit(folder / name) for name in sorted(FILES)},
    **{f"no {name}": lambda folder, name=name: (folder / name).unlink() for name in sorted(FILES)},
    "one more": lambda folder: (folder / "extra.json").write_text("{}"),
    "a folder more": lambda folder: (folder / "extra").mkdir(),
    "a link": lambda folder: (
        (folder / "energy.json").unlink(),
        (folder / "energy.json").symlink_to("carbon.json"),
    ),
    "repacked": lambda folder: _repack(folder / "manifest.zip"),
    "cut archive": lambda folder: (folder / "manifest.zip").write_bytes(b"PK\x03\x04"),
    "no JSON": lambda folder: (folder / "carbon.json").write_text("{"),
}


@pytest.mark.req("REL-1")
def test_tampering_is_found(kfm: Kfm, ran: Path, tmp_path: Path, valid: Valid) -> None:
    """Whatever is edited, removed or added, the findings name it."""
    assert kfm("release", "v1").code == 0
    for number, (name, tamper) in enumerate(TAMPERINGS.items()):
        folder = tmp_path / f"copy{number}"
        shutil.copytree(ran / "releases" / "v1", folder)
        tamper(folder)
        found = kfm("release", "--verify", str(folder), "--json")
        assert found.code == 1, name
        valid("release-verify", found.document)
        assert found.document["findings"], name


@pytest.mark.req("REL-2")
def test_attested_anew_it_must_still_fit_the_schema(kfm: Kfm, ran: Path) -> None:
    """A document that was edited together with all its checksums is still found by its schema."""
    assert kfm("release", "v1").code == 0
    folder = ran / "releases" / "v1"
    carbon = folder / "carbon.json"
    carbon.write_text(carbon.read_text().replace('"modelled"', '"measured"'))
    found = kfm("release", "--verify", str(folder), "--json").document["findings"]
    assert any("schema" in one["problem"] for one in found if one["file"] == "carbon.json")


@pytest.mark.req("RS-13")
def test_restricted_datasets_are_masked(kfm: Kfm, project: Path) -> None:
    """A dataset that may not be named is in no file of a release, nor in the ledger's export."""
    (project / "kfm.yml").write_text(HIDDEN)
    (project / "incoming" / "levels.csv").write_text("site,level\nA,1\n")
    kfm("run", "--source", "daily")
    kfm("run", "--source", f"{SECRET}-daily")
    assert kfm("release", "v1").code == 0
    folder = project / "releases" / "v1"
    everything = b"".join(bytes_of(folder).values())  # the archive is stored, not compressed
    assert SECRET.encode() not in everything
    assert b"masked-" in everything
    assert b"levels" in everything


def test_no_words_of_people_are_exported(kfm: Kfm, ran: Path) -> None:
    """Who asked, and why, stays in the ledger."""
    from kfm.config.loader import actor

    forced = kfm(
        "run", "--source", "daily", "--force", "--rationale", "plums in the icebox", "--ticket", "T-1"
    )
    assert forced.code == 0, forced.err
    assert kfm("release", "v1").code == 0
    with zipfile.ZipFile(ran / "releases" / "v1" / "manifest.zip") as archive:
        ledger = b"".join(archive.read(name) for name in archive.namelist() if name.startswith("ledger/"))
    assert b"plums" not in ledger
    assert f'"{actor()}"'.encode() not in ledger


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("v1", "--verify", "x"),
        ("--verify", "x", "--replace"),
        ("--verify", "nowhere"),
        ("../v1",),
        ("v1", "--since", "soon"),
        ("v1", "--since", "2026-02-01", "--until", "2026-01-01"),
    ],
)
def test_wrong_usage(kfm: Kfm, project: Path, arguments: tuple[str, ...]) -> None:
    """What can't be meant is refused before anything is written."""
    assert kfm("release", *arguments).code == 2
    assert not (project / "releases").exists()


def test_a_folder_that_can_not_be_written(kfm: Kfm, ran: Path) -> None:
    """The message names the folder and the way out."""
    (ran / "file").write_text("")
    failed = kfm("release", "v1", "--to", str(ran / "file"))
    assert failed.code == 4
    assert "--to" in failed.err
