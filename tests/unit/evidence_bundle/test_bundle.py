"""Bundles of evidence: the same bytes each time, whole, and checked by a script that knows nothing of kfm."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import rdflib
from msgspec.structs import replace
from rocrate.rocrate import ROCrate

from kfm.evidence_bundle import verify_bundle
from kfm.evidence_bundle.bundle import export_run
from kfm.evidence_bundle.package import WrittenBundle
from kfm.model.audit import chained, details, sealed
from kfm.model.errors import ChecksumMismatch, RightsMissing, UsageError
from kfm.model.records import GovernanceEntry
from kfm.model.requests import AnnouncedObject, UpdateRequest
from kfm.model.settings import Care, DatasetSettings, Rights, Settings
from kfm.system import PosixFiles
from tests.forger import BundleForger, missed
from tests.unit.lineage import stories

pytestmark = pytest.mark.req("RS-8", "TRG-8")

OPEN = Settings(environment="test", datasets=(DatasetSettings(id="levels", rights=stories.RIGHTS),))
RESTRICTED = Rights(
    license="CC-BY-4.0",
    care=Care(label="Tribal · Restricted", level="restricted"),
    local_contexts="https://localcontextshub.org/projects/9",
)
CLOSED = Settings(environment="test", datasets=(DatasetSettings(id="levels", rights=RESTRICTED),))


REQUEST_ID = "5b0d1f0a-0000-8000-8000-000000000001"
ARRIVALS = UpdateRequest(
    request_id=REQUEST_ID,
    key="sha256:" + "b" * 64,
    kind="upstream-event",
    source_id="daily",
    dataset_id="levels",
    window_start_ms=stories.T0,
    window_end_ms=stories.T0 + 1,
    actor="jane",
    accepted_at_ms=stories.T0,
    state="done",
    outcome="success",
    run_id=stories.RUN_ID,
    details={"members": 3, "datasets": ["levels"]},
)
ARRIVED = AnnouncedObject(
    request_id=REQUEST_ID, unit="u-1", content_version=1, dataset="levels", object="s3://levels/a b.csv"
)


class KeyedLedger(stories.PaperLedger):
    def mark(self, name: str) -> str | None:
        return "k" * 32


def entry(kind: str, subject: str, **details: Any) -> GovernanceEntry:
    return GovernanceEntry(
        kind=kind,
        subject=subject,
        actor="jane",
        recorded_at_ms=stories.T0,
        rationale="ä reason",
        details=details,
    )


def ledger(kind: str = "retried") -> KeyedLedger:
    """A run of that kind, with a chain in which others have their say, too."""
    story = stories.EVERY[kind]()
    story.__class__ = KeyedLedger
    half = story.all_messages[: len(story.all_messages) // 2]  # the others are not sealed yet
    seal = [entry("seal", "outbox", **details(sealed("outbox", None, half)))] if half else []
    promoted = [
        replace(
            entry(
                "promotion",
                one.run_id,
                dataset_id=one.dataset_id,
                version_id=one.version_id,
                sequence=one.sequence,
                policy_epoch=one.policy_epoch,
            ),
            recorded_at_ms=one.promoted_at_ms,
        )
        for one in story.all_promotions
        if one.run_id == stories.RUN_ID
    ]
    story.links = list(
        chained(
            [
                entry("switch", "all"),
                entry("governed-retry", stories.RUN_ID, revision=0, words=["x", True, None]),
                entry("promotion", stories.OTHER_RUN, dataset_id="secret-thing"),
                entry("gate-refused", "levels", invocation_id=stories.CALLS[1]),
                *promoted,
                *seal,
                entry("gc", "objects"),
            ]
        )
    )
    story.requests, story.objects = [ARRIVALS], [ARRIVED]
    return story  # type: ignore[return-value]


def left_behind(folder: Path) -> str:
    attempt = folder / "runs" / stories.RUN_ID / "attempt-1"
    attempt.mkdir(parents=True)
    (attempt / "run.jsonl").write_text('{"event": "run.start"}\n')
    (attempt / "event_log.jsonl").write_bytes(b"x" * 3_000_000)
    (attempt / "idempotency.json.tmp").write_text("half")
    (attempt / "elsewhere").symlink_to("/etc/hostname")
    return str(folder / "runs")


def export(tmp_path: Path, name: str = "bundle", kind: str = "retried", **more: Any) -> WrittenBundle:
    runs = tmp_path / "runs"
    folder = str(runs) if runs.exists() else left_behind(tmp_path)
    settings = more.pop("settings", OPEN)
    story = more.pop("ledger", None) or ledger(kind)
    return export_run(
        story, PosixFiles(), settings, stories.RUN_ID, str(tmp_path / name), runs_folder=folder, **more
    )


def checked(path: Path, *arguments: str, timeout: int = 60) -> subprocess.CompletedProcess[str]:
    """The bundle's own script, in a Python that can see nothing but the standard library."""
    script = Path(verify_bundle.__file__)
    return subprocess.run(
        [sys.executable, "-I", "-S", str(script), str(path), *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
    )


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("kind", stories.EVERY)
def test_every_kind_of_run_can_be_exported_and_checked(tmp_path: Path, kind: str) -> None:
    """Success, failure, refusal, kill, retry, and a run from before evidence was kept: all verify."""
    bundle = export(tmp_path, kind=kind)
    done = checked(Path(bundle.path))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == f"sound: {bundle.files} files, {bundle.digest}"
    assert verify_bundle.verify(bundle.path)[:3] == (bundle.digest, bundle.files, [])
    assert (Path(bundle.path) / "verify.py").read_bytes() == Path(verify_bundle.__file__).read_bytes()


def test_the_same_ledger_gives_the_same_bytes(tmp_path: Path) -> None:
    """Twice exported, the archives are equal, and a folder holds what an archive holds."""
    one, two, folder = (export(tmp_path, name) for name in ("a.zip", "b.zip", "c"))
    assert Path(one.path).read_bytes() == Path(two.path).read_bytes()
    assert one.digest == two.digest == folder.digest
    with zipfile.ZipFile(one.path) as archive:
        assert archive.testzip() is None
        unpacked = {name: archive.read(name) for name in archive.namelist()}
    assert unpacked == files_of(Path(folder.path))
    assert checked(Path(one.path)).returncode == 0
    assert not list(tmp_path.glob("*.partial"))


def test_large_files_are_whole_and_links_are_not_followed(tmp_path: Path) -> None:
    """What an attempt left comes along byte for byte; what is half written, or points elsewhere, does not."""
    found = files_of(Path(export(tmp_path).path))
    assert found["artifacts/attempt-1/event_log.jsonl"] == b"x" * 3_000_000
    assert [name for name in found if name.startswith("artifacts/")] == [
        name for name in found if name.endswith((".jsonl",)) and name.startswith("artifacts/")
    ]


def test_foreign_readers_understand_it(tmp_path: Path) -> None:
    """rocrate opens the crate with its rights and files; rdflib reads the provenance; sha256sum agrees."""
    folder = Path(export(tmp_path).path)
    crate = ROCrate(str(folder))
    assert crate.root_dataset["identifier"] == f"urn:kfm:run:{stories.RUN_ID}"
    assert crate.root_dataset["license"]["name"] == "CC-BY-4.0"
    assert crate.get("#care-label")["value"] == stories.RIGHTS.care.label
    assert crate.get(stories.RIGHTS.local_contexts) is not None
    described = {entity.id for entity in crate.data_entities}
    assert described >= {"prov.jsonld", "openlineage.jsonl", "verify.py", "published/manifest.json"}
    assert crate.mainEntity is None
    graph = rdflib.Graph().parse(folder / "prov.jsonld", format="json-ld")
    assert len(graph) > 100
    rdflib.Graph().parse(
        folder / "published" / "dcat.jsonld", format="json-ld", publicID="https://example.org/"
    )
    done = subprocess.run(
        ["sha256sum", "--check", "--strict", "--quiet", "checksums.sha256"],
        cwd=folder,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0


@pytest.mark.parametrize("place", ["first", "middle", "last"])
def test_one_changed_byte_is_found_in_every_file(tmp_path: Path, place: str) -> None:
    """Whichever file is changed, by one byte, the script says so."""
    folder = Path(export(tmp_path).path)
    for name, data in files_of(folder).items():
        if not data:
            continue
        at = {"first": 0, "middle": len(data) // 2, "last": len(data) - 1}[place]
        changed = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        (folder / name).write_bytes(changed)
        assert verify_bundle.verify(str(folder)).findings, name
        (folder / name).write_bytes(data)
    assert verify_bundle.verify(str(folder)).findings == []


def test_a_byte_changed_in_the_archive_is_found(tmp_path: Path) -> None:
    """The archive is looked through as the folder is."""
    path = Path(export(tmp_path, "a.zip").path)
    data = bytearray(path.read_bytes())
    at = data.index(b'"eventType"')
    data[at + 1] ^= 1
    path.write_bytes(data)
    assert checked(path).returncode == 1


def test_a_damaged_archive_is_a_finding_and_no_crash(tmp_path: Path) -> None:
    """Bytes that can't be unpacked are told as such; without its list of checksums it is no bundle."""
    packed = tmp_path / "packed.zip"
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in files_of(Path(export(tmp_path).path)).items():
            archive.writestr(path, content)
        names = {one.filename: one.header_offset + 30 + len(one.filename) for one in archive.infolist()}
    for name, code in (("prov.jsonld", 1), ("checksums.sha256", 2)):
        data = bytearray(packed.read_bytes())
        data[names[name] : names[name] + 40] = b"\xff" * 40
        broken = tmp_path / f"{code}.zip"
        broken.write_bytes(data)
        done = checked(broken)
        assert done.returncode == code
        assert "Traceback" not in done.stderr


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    """A pipe in the place of a bundle, or of its list, is no bundle."""
    bundle = export(tmp_path)
    (tmp_path / "bundle" / "checksums.sha256").unlink()
    os.mkfifo(tmp_path / "bundle" / "checksums.sha256")
    os.mkfifo(tmp_path / "pipe")
    assert checked(Path(bundle.path)).returncode == checked(tmp_path / "pipe").returncode == 2


def test_the_verdict_can_not_be_forged_by_a_name(tmp_path: Path) -> None:
    """Names are shown on one line, without what would move a terminal's cursor."""
    bundle = export(tmp_path)
    (tmp_path / "bundle" / "x\nsound: 1 files\x1b[2J").write_text("")
    done = checked(Path(bundle.path))
    assert done.returncode == 1
    assert not any(line.startswith("sound") for line in done.stdout.splitlines())
    assert "\x1b" not in done.stdout


def test_many_rows_are_checked_in_time(tmp_path: Path) -> None:
    """Each row costs as much as the one before it, however many a forger put in."""
    bundle = export(tmp_path)
    rows = (json.dumps({"attempt": number, "node": "fetch"}) for number in range(30_000))
    (tmp_path / "bundle" / "ledger" / "attempts.jsonl").write_text("\n".join(rows) + "\n")
    done = checked(Path(bundle.path), timeout=30)
    assert done.returncode == 1


def test_missing_and_foreign_files_are_found(tmp_path: Path) -> None:
    """A file too few, a file too many, a link in a file's place: each is named."""
    folder = Path(export(tmp_path).path)
    for name, data in files_of(folder).items():
        if name == "checksums.sha256":
            continue
        (folder / name).unlink()
        assert any(name in finding for finding in verify_bundle.verify(str(folder)).findings), name
        (folder / name).write_bytes(data)
    (folder / "ledger" / "more.json").write_text("{}")
    assert any("ledger/more.json" in finding for finding in verify_bundle.verify(str(folder)).findings)
    (folder / "ledger" / "more.json").unlink()
    real = tmp_path / "elsewhere"
    real.write_bytes((folder / "README.md").read_bytes())
    (folder / "README.md").unlink()
    (folder / "README.md").symlink_to(real)
    assert verify_bundle.verify(str(folder)).findings
    assert checked(tmp_path / "nothing").returncode == 2


# --- contradictions that someone has made to agree with the checksums -----------------------


def resealed(folder: Path, name: str, data: bytes) -> list[str]:
    """Change a file and write checksums and description anew, as a careful forger would."""
    (folder / name).write_bytes(data)
    crate = json.loads((folder / "ro-crate-metadata.json").read_text())
    for thing in crate["@graph"]:
        if thing["@id"] == name:
            thing["sha256"], thing["contentSize"] = hashlib.sha256(data).hexdigest(), str(len(data))
    (folder / "ro-crate-metadata.json").write_text(json.dumps(crate))
    sums = {
        path: hashlib.sha256(content).hexdigest()
        for path, content in files_of(folder).items()
        if path != "checksums.sha256"
    }
    (folder / "checksums.sha256").write_text("".join(f"{sums[path]}  {path}\n" for path in sorted(sums)))
    return verify_bundle.verify(str(folder)).findings


def lines(data: bytes) -> list[bytes]:
    return data.splitlines(keepends=True)


FORGERIES: dict[str, tuple[str, Callable[[bytes], bytes], str]] = {
    "an event is dropped": ("openlineage.jsonl", lambda data: b"".join(lines(data)[1:]), "has the events"),
    "an event is doubled": ("openlineage.jsonl", lambda data: data + lines(data)[-1], "has the events"),
    "an end is rewritten": (
        "openlineage.jsonl",
        lambda data: data.replace(b"ABORT", b"COMPLETE"),
        "has the events",
    ),
    "a foreign run is slipped in": (
        "openlineage.jsonl",
        lambda data: data.replace(stories.attempt_id(stories.RUN_ID, 2).encode(), stories.OTHER_RUN.encode()),
        "no attempt at this run",
    ),
    "an attempt is dropped": (
        "ledger/attempts.jsonl",
        lambda data: b"".join(line for line in lines(data) if b'"attempt":1' not in line),
        "which is no attempt",
    ),
    "an attempt is renumbered": (
        "ledger/attempts.jsonl",
        lambda data: data.replace(b'"attempt":2', b'"attempt":3'),
        "foreign id",
    ),
    "a request of another run is slipped in": (
        "ledger/requests.jsonl",
        lambda data: data.replace(stories.RUN_ID.encode(), stories.OTHER_RUN.encode()),
        "speaks of run",
    ),
    "an announced object is slipped in": (
        "ledger/objects.jsonl",
        lambda data: data.replace(REQUEST_ID.encode(), stories.OTHER_RUN.encode()),
        "by an unknown request",
    ),
    "the run is another": (
        "ledger/run.json",
        lambda data: data.replace(stories.RUN_ID.encode(), stories.OTHER_RUN.encode()),
        "about another run",
    ),
    "the status is prettier": (
        "ledger/run.json",
        lambda data: data.replace(b'"status":"success"', b'"status":"failed"'),
        "differ in status",
    ),
    "a governance entry is dropped": (
        "governance/links.jsonl",
        lambda data: b"".join(lines(data)[:1] + lines(data)[2:]),
        "is missing",
    ),
    "a governance entry is reworded": (
        "governance/links.jsonl",
        lambda data: data.replace("ä reason".encode(), b"b reason"),
        "not as recorded",
    ),
    "a governance entry is withdrawn and its hash kept": (
        "governance/links.jsonl",
        lambda data: data.replace(b'"number":3', b'"number":33'),
        "is missing",
    ),
    "a sealed event is reworded": (
        "openlineage.jsonl",
        lambda data: data.replace(b"kfm.test", b"kfm.fake", 1),
        "not what was sealed",
    ),
    "a proof is bent": (
        "openlineage.proofs.jsonl",
        lambda data: data.replace(b'"index":0', b'"index":1', 1),
        "not what was sealed",
    ),
    "a published file is another": (
        "published/manifest.json",
        lambda data: data.replace(b"Water levels", b"Other levels"),
        "not the run's version",
    ),
    "an item's record is another": (
        "published/record.json",
        lambda data: data.replace(b"made.csv", b"fake.csv"),
        "not an item of the version",
    ),
    "a page on the way is another": (
        "published/pages.jsonl",
        lambda data: data.replace(b"[0,", b"[1,", 1),
        "not an item of the version",
    ),
    "a policy is milder": (
        f"policies/{stories.BUNDLE.removeprefix('sha256:')[:16]}.json",
        lambda data: data.replace(b"forbid", b"permit"),
        "about the policies in force",
    ),
    "provenance tells another time": (
        "prov.jsonld",
        lambda data: data.replace(b"2026-01-01T00:00:03Z", b"2026-01-01T00:00:04Z"),
        "another start",
    ),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_files_that_contradict_each_other_are_found(tmp_path: Path, forgery: str) -> None:
    """New checksums do not help: ids, events, hashes and versions must agree across the files."""
    folder = Path(export(tmp_path).path)
    name, change, words = FORGERIES[forgery]
    data = (folder / name).read_bytes()
    assert change(data) != data
    assert any(words in finding for finding in resealed(folder, name, change(data)))


def test_sealed_events_are_proven_and_others_are_counted(tmp_path: Path) -> None:
    """An event that the chain vouches for comes with its proof; how many do not is said, by both sides."""
    bundle = export(tmp_path)
    proofs = (Path(bundle.path) / "openlineage.proofs.jsonl").read_text().splitlines()
    events = (Path(bundle.path) / "openlineage.jsonl").read_text().splitlines()
    assert 0 < len(proofs) < len(events)
    assert any("not sealed yet" in sentence for sentence in bundle.missing)
    about = json.loads((Path(bundle.path) / "evidence.json").read_text())
    assert about["unproven_events"] == len(events) - len(proofs)
    said = checked(Path(bundle.path)).stdout
    assert f"proven: {len(proofs)} of {len(events)} events" in said


def test_an_edited_event_does_not_pass_without_its_proof(tmp_path: Path) -> None:
    """The gap must be declared in evidence.json; declared, the event is named as unproven."""
    folder = Path(export(tmp_path).path)
    links = [json.loads(line) for line in (folder / "governance" / "links.jsonl").read_text().splitlines()]
    proofs = lines((folder / "openlineage.proofs.jsonl").read_bytes())
    resealed(folder, "openlineage.proofs.jsonl", b"".join(proofs[1:]))
    events = (folder / "openlineage.jsonl").read_bytes()
    found = resealed(folder, "openlineage.jsonl", events.replace(b"kfm.test", b"kfm.fake", 1))
    assert any("events have no proof, and evidence.json declares" in finding for finding in found)
    about = json.loads((folder / "evidence.json").read_text())
    about["unproven_events"] += 1
    assert resealed(folder, "evidence.json", json.dumps(about).encode()) == []
    anchor = {"number": links[-1]["number"], "hash": links[-1]["hash"]}
    verdict = verify_bundle.verify(str(folder), "", [anchor])
    assert verdict.findings == []
    (named,) = [note for note in verdict.notes if note.startswith("unproven: openlineage.jsonl: lines ")]
    assert "lines 1, " in named


def test_what_nothing_vouches_for_is_listed(tmp_path: Path) -> None:
    """An anchor settles entries, sealed events and the manifest; a digest settles all; the rest is named."""
    bundle = export(tmp_path)
    folder = Path(bundle.path)
    alone = checked(folder).stdout
    (listed,) = [line for line in alone.splitlines() if line.startswith("unproven: README.md")]
    assert "governance/links.jsonl" in listed
    links = lines((folder / "governance" / "links.jsonl").read_bytes())
    end = json.loads(links[-1])
    kept = tmp_path / "kept.jsonl"
    kept.write_text(json.dumps({"number": end["number"], "hash": end["hash"], "at": "2026"}) + "\n")
    with_anchor = checked(folder, "--anchors", str(kept)).stdout
    assert f"anchored: governance entries up to {end['number']}" in with_anchor
    (listed,) = [line for line in with_anchor.splitlines() if line.startswith("unproven: README.md")]
    for name in ("governance/links.jsonl", "published/manifest.json", " openlineage.jsonl"):
        assert name not in listed
    assert "ledger/run.json" in listed
    settled = checked(folder, "--expect", bundle.digest).stdout
    assert "proven: every file" in settled
    assert "unproven" not in settled
    kept.write_text(json.dumps({"number": end["number"], "hash": "0" * 64}) + "\n")
    assert "is not the one that was anchored" in checked(folder, "--anchors", str(kept)).stdout


def test_a_module_beside_the_script_is_not_run(tmp_path: Path) -> None:
    """Nothing of the bundle runs in place of Python's own library, and no folder of it is overlooked."""
    folder = Path(export(tmp_path).path)
    for name in ("uuid", "zipfile", "hashlib", "__future__"):
        (folder / f"{name}.py").write_text("print('sound: all of it'); raise SystemExit(0)")
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "uuid.pyc").write_text("")
    done = subprocess.run(
        [sys.executable, str(folder / "verify.py")], capture_output=True, text=True, timeout=30, check=False
    )
    assert (done.returncode, done.stderr) == (1, "")
    assert "sound: all of it" not in done.stdout
    for name in ("uuid.py", "__pycache__/uuid.pyc"):
        assert f"wrong: {name} does not belong to the bundle" in done.stdout
    assert "this script came with the bundle" in done.stdout


def test_a_promotion_that_the_chain_shows_is_told(tmp_path: Path) -> None:
    """Neither left out, nor with another version, place or time."""
    folder = Path(export(tmp_path).path)
    row = (folder / "ledger" / "promotions.jsonl").read_bytes()
    for changed in (
        b"",
        row.replace(b'"sequence":2', b'"sequence":3'),
        row.replace(b'"promoted_at_ms":1', b'"promoted_at_ms":2'),
    ):
        assert changed != row
        found = resealed(folder, "ledger/promotions.jsonl", changed)
        assert any("ledger/promotions.jsonl is not what governance entry" in finding for finding in found)


def anchored_bundle(folder: Path) -> tuple[Path, list[dict[str, Any]]]:
    """A bundle for a forger, and the anchor that its reader has."""
    story = ledger()
    attempt = folder / "runs" / stories.RUN_ID / "attempt-1"
    attempt.mkdir(parents=True)
    (attempt / "run.jsonl").write_text('{"event": "run.start"}\n')
    bundle = export(folder, ledger=story)
    return Path(bundle.path), [{"number": story.links[-1].number, "hash": story.links[-1].hash}]


@pytest.mark.parametrize("seed", [1, 101])
def test_random_forgeries_are_found_or_declared(tmp_path: Path, seed: int) -> None:
    """Whatever is edited with all checksums refitted: it is found, or listed as unproven.
    `python -m tests.forger` tries more."""
    left, counts = missed(BundleForger(*anchored_bundle(tmp_path)), 100, seed)
    assert left == []
    assert counts["found"] > 0
    assert counts["declared"] > 0


def test_a_digest_from_elsewhere_settles_it(tmp_path: Path) -> None:
    """A bundle that was written anew as a whole is found by its digest alone."""
    bundle = export(tmp_path)
    assert checked(Path(bundle.path), "--expect", bundle.digest).returncode == 0
    assert checked(Path(bundle.path), "--expect", "sha256:" + "0" * 64).returncode == 1


# --- rights, masks, gaps -----------------------------------------------------------------------


@pytest.mark.req("RS-13")
def test_a_masked_dataset_stays_masked(tmp_path: Path) -> None:
    """No name, address or word of a restricted dataset is in a bundle for others; its rights are."""
    story = ledger()
    story.all_messages = stories.messages(story.all_attempts, dataset="masked-0")
    seal = entry("seal", "outbox", **details(sealed("outbox", None, story.all_messages)))
    story.links = list(
        chained([*(link.entry for link in story.links[:4]), replace(seal, actor="x", rationale=None)])
    )
    bundle = export(tmp_path, settings=CLOSED, ledger=story)
    found = files_of(Path(bundle.path))
    for name, data in found.items():
        if name == "verify.py":
            continue
        for word in (
            b"levels",
            b"daily",
            b"a b.csv",
            b"made.csv",
            b"jane",
            b"olga",
            "ä reason".encode(),
            b"secret-thing",
        ):
            assert word not in data, name
    assert "Tribal · Restricted".encode() in found["ro-crate-metadata.json"]
    assert b"localcontextshub.org/projects/9" in found["ro-crate-metadata.json"]
    assert b"openlineage.jsonl" in found["ro-crate-metadata.json"]
    assert checked(Path(bundle.path)).returncode == 0
    assert any("masked" in sentence for sentence in bundle.missing)


@pytest.mark.req("RS-13")
def test_lineage_from_before_the_mask_is_withheld(tmp_path: Path) -> None:
    """Events that were sent while the dataset was public name it: they do not leave with a masked bundle."""
    bundle = export(tmp_path, settings=CLOSED)
    assert not (Path(bundle.path) / "openlineage.jsonl").exists()
    assert any("lineage is withheld" in sentence for sentence in bundle.missing)


def test_an_internal_bundle_shows_everything_and_says_so(tmp_path: Path) -> None:
    """For those who may see it nothing is masked, and the bundle says that it must stay."""
    bundle = export(tmp_path, settings=CLOSED, internal=True)
    folder = Path(bundle.path)
    assert json.loads((folder / "evidence.json").read_text())["internal"] is True
    assert "internal use" in (folder / "README.md").read_text()
    assert b"levels" in (folder / "ledger" / "run.json").read_bytes()
    assert checked(folder).returncode == 0


def test_without_rights_nothing_leaves(tmp_path: Path) -> None:
    """No licence or no CARE label: the export is refused, and nothing is written."""
    story = ledger("failed")
    for settings in (
        Settings(datasets=(DatasetSettings(id="levels"),)),
        Settings(datasets=(DatasetSettings(id="levels", rights=Rights(license="", care=Care(label="x"))),)),
        Settings(),
    ):
        with pytest.raises(RightsMissing):
            export(tmp_path, settings=settings, ledger=story)
    assert not (tmp_path / "bundle").exists()


@pytest.mark.req("TRG-6")
def test_objects_that_are_left_out_are_counted(tmp_path: Path) -> None:
    """What asked for the run is in the bundle, as far as its limits allow; a run without requests says so."""
    bundle = export(tmp_path)
    (request,) = (Path(bundle.path) / "ledger" / "requests.jsonl").read_text().splitlines()
    assert json.loads(request)["request_id"] == REQUEST_ID
    assert "2 announced objects of its requests are left out." in bundle.missing
    story = ledger()
    story.requests, story.objects = [], []
    assert any("No request" in sentence for sentence in export(tmp_path, "old", ledger=story).missing)


def test_gaps_are_told(tmp_path: Path) -> None:
    """What was not kept is named in the bundle, not made up."""
    story = ledger("forgotten")
    story.links = []
    bundle = export(tmp_path, ledger=story)
    told = " ".join(bundle.missing)
    for words in (
        "No lineage was kept",
        "No attempt",
        "discovered upstream",
        "The version is not kept",
        "policies",
        "audit log",
    ):
        assert words in told
    assert all(sentence in (Path(bundle.path) / "README.md").read_text() for sentence in bundle.missing)


@pytest.mark.req("TRG-9")
def test_known_secrets_are_hidden(tmp_path: Path) -> None:
    """A secret of the configuration that got into a row does not get into the bundle."""
    story = ledger("failed")
    story.calls = [replace(story.calls[0], reason="said swordfish", rationale="Bearer abcdefghijkl")]
    bundle = export(tmp_path, ledger=story, hide=lambda text: text.replace("swordfish", "***"))
    everything = b"".join(files_of(Path(bundle.path)).values())
    for secret in (b"swordfish", b"abcdefghijkl", b"hunter2", b"user:secret"):
        assert secret not in everything


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    """What stands at the place already stays as it is; so does the leftover of an interrupted export."""
    (tmp_path / "bundle").mkdir()
    with pytest.raises(UsageError, match="already there"):
        export(tmp_path)
    (tmp_path / "b.zip.partial").write_text("half")
    with pytest.raises(UsageError, match="interrupted"):
        export(tmp_path, "b.zip")
    assert (tmp_path / "b.zip.partial").read_text() == "half"


def test_a_file_that_changes_meanwhile_is_not_exported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that is under way still writes: the export fails rather than hold something torn."""
    from kfm.evidence_bundle import package

    found = package.find_artifacts

    def meanwhile(files: Any, folder: str, missing: list[str]) -> Any:
        artifacts = found(files, folder, missing)
        file = Path(artifacts[0].path)
        file.write_bytes(bytes([file.read_bytes()[0] ^ 1]) * artifacts[0].size)
        return artifacts

    monkeypatch.setattr("kfm.evidence_bundle.bundle.find_artifacts", meanwhile)
    for name in ("bundle", "bundle.zip"):
        with pytest.raises(ChecksumMismatch):
            export(tmp_path, name)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["runs"]
