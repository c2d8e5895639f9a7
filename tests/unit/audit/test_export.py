"""What an export holds, what it hides, and that a stranger can check it."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema_rs
import msgspec
import pytest
from msgspec.structs import replace

from kfm.audit import anchors, chain
from kfm.audit.chain_export import export
from kfm.audit.export_documents import ChainExport
from kfm.db.ledger import Ledger
from kfm.model import audit
from kfm.model.errors import BackendUnavailable, ChainBroken, UsageError
from kfm.model.redaction import mask
from kfm.system import PosixFiles, SystemClock
from tests.conformance.db import ledgers
from tests.conformance.db.ledgers import START_MS, Desk, entry
from tests.forger import ExportForger, missed
from tests.unit.audit.exports import KEY, SECRET, SETTINGS, exported_with_units, some_store
from tests.unit.audit.tampering import SCRIPT, verifier

pytestmark = pytest.mark.req("GOV-2", "RET-9", "RS-13")

SCHEMAS = Path(audit.__file__).resolve().parent.parent / "contracts" / "schemas"


@pytest.fixture
def store() -> Ledger:
    return some_store()


def anchor_of(store: Ledger) -> audit.Anchor:
    return anchors.made(chain.verify(store), "test", START_MS)


@pytest.fixture
def exported(store: Ledger, tmp_path: Path) -> Callable[..., tuple[Path, ChainExport]]:
    def make(**options: Any) -> tuple[Path, ChainExport]:
        folder = tmp_path / "out"
        made = export(store, SETTINGS, PosixFiles(), str(folder), [anchor_of(store)], **options)
        return folder, made

    return make


def script(folder: Path, *more: str, verifier: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-I", "-S", str(verifier or folder / "verify_audit.py"), str(folder), *more],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def valid(name: str, document: Any) -> None:
    schema = msgspec.json.decode((SCHEMAS / f"{name}.schema.json").read_bytes())
    jsonschema_rs.validator_for(schema, validate_formats=True).validate(document)


@pytest.mark.parametrize("internal", [False, True])
def test_every_file_is_valid_by_its_schema(exported: Any, internal: bool) -> None:
    """A reader of the files can rely on their shapes, masked or not."""
    folder, made = exported(internal=internal)
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        [*(one.name for one in made.files), "export.json"]
    )
    for name in ("pipeline_retry_log", "versioning_ledger", "postmortems", "reviews"):
        valid(name.replace("_", "-"), json.loads((folder / f"{name}.json").read_text()))
    valid("audit-export", json.loads((folder / "export.json").read_text()))
    for name, schema in (("audit-chain.jsonl", "audit-link"), ("anchors.jsonl", "audit-anchor")):
        for line in (folder / name).read_text().splitlines():
            valid(schema, json.loads(line))


@pytest.mark.parametrize("internal", [False, True])
def test_an_export_verifies_without_kfm(exported: Any, internal: bool) -> None:
    """The script that came with it finds it sound, and anchored to its end."""
    folder, made = exported(internal=internal)
    done = script(folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"sound: {made.chain.number} rows" in done.stdout
    assert "sound: the other files agree with the chain" in done.stdout
    assert ("withheld" in done.stdout) == (not internal)


def test_hidden_datasets_are_nowhere_in_a_public_export(exported: Any) -> None:
    """Neither id, source, title, label nor the secret in a rationale; the masked name stands for them."""
    folder, made = exported()
    everything = b"".join(path.read_bytes() for path in folder.iterdir())
    for word in (b'"kaw-sites"', b"kaw-survey", b"athering", b"Kaw Nation", b"hunter2"):
        assert word not in everything, word
    assert mask(SECRET, KEY).encode() in everything
    assert b"kaw-site is no match" in everything
    # Three of the halt, the promotion, the switch of the dataset, the title, the password.
    assert made.withheld == 7
    links = [json.loads(line) for line in (folder / "audit-chain.jsonl").read_text().splitlines()]
    assert sum("entry" not in link for link in links) == 7


def test_an_internal_export_shows_everything(exported: Any) -> None:
    """With the very words that were recorded, because a person has to be able to answer for them."""
    folder, made = exported(internal=True)
    assert made.withheld == 0
    links = [json.loads(line) for line in (folder / "audit-chain.jsonl").read_text().splitlines()]
    assert all("entry" in link for link in links)
    assert SECRET in (folder / "versioning_ledger.json").read_text()
    assert "Kaw Nation" in (folder / "pipeline_retry_log.json").read_text()


def test_the_retry_log_tells_what_was_tried_again(exported: Any, store: Ledger) -> None:
    """Attempts, delays, error classes, dataset, CARE label, pipeline, ending; calm runs are counted."""
    folder, _ = exported()
    log = json.loads((folder / "pipeline_retry_log.json").read_text())
    assert (log["runs_total"], log["attempts_total"], log["call_retries_total"]) == (6, 8, 4)
    assert len(log["runs"]) == 4
    public = [run for run in log["runs"] if run["dataset_id"] == "ks-streamflow"]
    flaky, halted = sorted(public, key=lambda run: len(run["attempts"]))
    assert flaky["care"] == {"label": "Public · Low-Risk", "level": "public"}
    assert (flaky["pipeline_id"], flaky["status"], flaky["error_classes"]) == (
        "usgs-daily",
        "success",
        ["timeout"],
    )
    assert [call["delay_ms"] for call in flaky["attempts"][0]["calls"]] == [500, 1000]
    assert halted["status"] == "failed"
    assert [attempt["ending"] for attempt in halted["attempts"]] == ["fail", "fail"]
    assert [attempt["attempt"] for attempt in halted["attempts"]] == [1, 2]
    hidden = [run for run in log["runs"] if run["masked"]]
    assert {run["dataset_id"] for run in hidden} == {mask(SECRET, KEY)}
    assert {run["pipeline_id"] for run in hidden} == {mask("kaw-survey", KEY)}
    assert hidden[0]["care"] == {"label": None, "level": "restricted"}


def test_the_versioning_ledger_leads_to_the_chain(exported: Any, store: Ledger) -> None:
    """Each version names its run, and the row that records its promotion."""
    folder, _ = exported()
    ledger = json.loads((folder / "versioning_ledger.json").read_text())
    assert sorted(one["dataset_id"] for one in ledger["datasets"]) == sorted(
        [mask(SECRET, KEY), "ks-streamflow"]
    )
    public = next(one for one in ledger["datasets"] if not one["masked"])
    (version,) = public["versions"]
    assert version["sequence"] == 1
    row = store.chain()[version["governance_entry"] - 1]
    assert (row.entry.kind, row.entry.subject) == ("promotion", version["run_id"])
    assert row.entry.details["version_id"] == version["version_id"]


def test_reviews_and_postmortems_are_taken_from_the_chain(exported: Any) -> None:
    """Shown with their words, or as a row that is withheld: no reader can say that there was none."""
    folder, _ = exported()
    for name, kinds in (("postmortems", ["postmortem"]), ("reviews", ["halt", "review"])):
        entries = json.loads((folder / f"{name}.json").read_text())["entries"]
        shown = [one for one in entries if not one["withheld"]]
        hidden = [one for one in entries if one["withheld"]]
        assert [one["kind"] for one in shown] == [one["kind"] for one in hidden] == kinds
        assert shown[0]["details"]["reason"] == "ks-streamflow must not be shown"
        assert hidden[0]["dataset_id"] == mask(SECRET, KEY)
        assert (hidden[0]["subject"], hidden[0]["details"]) == (None, {})


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("versioning_ledger.json", '"sequence": 1', '"sequence": 2'),
        ("postmortems.json", "must not be shown", "may be shown"),
        ("pipeline_retry_log.json", '"status": "failed"', '"status": "success"'),
        ("reviews.json", '"kind": "halt"', '"kind": "none"'),
    ],
)
def test_a_changed_file_beside_the_chain_is_found(exported: Any, name: str, old: str, new: str) -> None:
    """The hashes in export.json tell, and the file is named."""
    folder, _ = exported()
    text = (folder / name).read_text()
    assert old in text
    (folder / name).write_text(text.replace(old, new, 1))
    done = script(folder)
    assert done.returncode == 1
    assert f"BROKEN {name}: it is not the file that was exported" in done.stdout


def refitted(folder: Path, name: str, change: Callable[[Any], Any]) -> subprocess.CompletedProcess[str]:
    """Change a document, set its checksum right, and check against an anchor and a script from elsewhere."""
    document = json.loads((folder / name).read_text())
    change(document)
    (folder / name).write_text(json.dumps(document))
    listing = json.loads((folder / "export.json").read_text())
    for one in listing["files"]:
        data = (folder / one["name"]).read_bytes()
        one["size"], one["sha256"] = len(data), hashlib.sha256(data).hexdigest()
    (folder / "export.json").write_text(json.dumps(listing))
    (folder.parent / "kept.jsonl").write_bytes((folder / "anchors.jsonl").read_bytes())
    return script(folder, "--anchors", str(folder.parent / "kept.jsonl"), verifier=SCRIPT)


def first_version(ledger: Any) -> Any:
    (public,) = [one for one in ledger["datasets"] if not one["masked"]]
    return public["versions"][0]


def swapped(ledger: Any) -> None:
    for dataset in ledger["datasets"]:
        dataset["versions"].reverse()
        for place, version in enumerate(dataset["versions"], 1):
            version["sequence"] = place


def made_up(ledger: Any, row: int | None) -> None:
    public = next(one for one in ledger["datasets"] if not one["masked"])
    version = {**public["versions"][-1], "governance_entry": row}
    public["versions"].append(
        {**version, "sequence": version["sequence"] + 1, "version_id": "sha256:made-up"}
    )


def hidden_words(entries: list[Any]) -> None:
    next(one for one in entries if one["withheld"]).update(rationale="Consent was given.")


VERSIONS, REVIEWS = "versioning_ledger.json", "reviews.json"
FORGERIES: dict[str, tuple[str, Callable[[Any], Any], str]] = {
    "another version": (
        VERSIONS,
        lambda one: first_version(one).update(version_id="sha256:forged"),
        "version 1 of ks-streamflow is not what row",
    ),
    "a version is left out": (
        VERSIONS,
        lambda one: next(d for d in one["datasets"] if not d["masked"])["versions"].pop(),
        "of the chain is not in it",
    ),
    "all versions are left out": (VERSIONS, lambda one: one["datasets"].clear(), "of the chain is not in it"),
    "a version without a row": (VERSIONS, lambda one: made_up(one, None), "has no row in the chain"),
    "a version on a foreign row": (VERSIONS, lambda one: made_up(one, 20), "versioning_ledger.json: version"),
    "another dataset": (
        VERSIONS,
        lambda one: next(d for d in one["datasets"] if not d["masked"]).update(dataset_id="ks-groundwater"),
        "is not what row",
    ),
    "a dataset is called masked": (
        VERSIONS,
        lambda one: next(d for d in one["datasets"] if not d["masked"]).update(masked=True),
        "is not what row",
    ),
    "another time": (
        VERSIONS,
        lambda one: first_version(one).update(promoted_at="2020-01-01T00:00:00Z"),
        "is not what row",
    ),
    "another order": (VERSIONS, swapped, "does not stand in its place"),
    "another epoch": (VERSIONS, lambda one: first_version(one).update(policy_epoch=99), "is not what row"),
    "a word more": (
        VERSIONS,
        lambda one: first_version(one).update(note="reviewed"),
        "does not have the fields",
    ),
    "another reason": (
        "postmortems.json",
        lambda one: one["entries"][0]["details"].update(reason="nothing"),
        "postmortems.json: it differs from row",
    ),
    "a review is left out": (REVIEWS, lambda one: one["entries"].pop(0), "of the chain is not in it"),
    "a review is made up and called withheld": (
        REVIEWS,
        lambda one: one["entries"][0].update(withheld=True, rationale="All is well."),
        "is withheld in one of it and the chain",
    ),
    "a shown review is called withheld": (
        REVIEWS,
        lambda one: one["entries"][0].update(
            withheld=True, subject=None, actor=None, rationale=None, ticket=None, details={}
        ),
        "is withheld in one of it and the chain",
    ),
    "a withheld review gets words": (
        REVIEWS,
        lambda one: hidden_words(one["entries"]),
        "which the chain withholds",
    ),
    "another kind": (REVIEWS, lambda one: one["entries"][0].update(kind="postmortem"), "differs from row"),
    "another day": (
        REVIEWS,
        lambda one: one["entries"][0].update(recorded_at="2020-01-01T00:00:00Z"),
        "has another time",
    ),
    "a review of another dataset": (
        REVIEWS,
        lambda one: one["entries"][0].update(dataset_id="ks-groundwater"),
        "names another dataset",
    ),
    "true for 1": (
        "postmortems.json",
        lambda one: one["entries"][0]["details"].update(attempt=True),
        "differs from row",
    ),
    "another environment": (
        "pipeline_retry_log.json",
        lambda one: one.update(environment="x"),
        "environment",
    ),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_forger_who_knows_about_the_list_meets_the_chain(tmp_path: Path, forgery: str) -> None:
    """With checksums set right: every row that is shown is told as it is, and nothing is told beside them."""
    folder, _ = exported_with_units(tmp_path)
    name, change, said = FORGERIES[forgery]
    done = refitted(folder, name, change)
    assert done.returncode == 1, done.stdout
    assert said in done.stdout


def test_what_no_row_vouches_for_is_declared(tmp_path: Path) -> None:
    """An export that is as it was written says itself where the sender's word is all that there is."""
    folder, _ = exported_with_units(tmp_path)
    done = refitted(folder, VERSIONS, lambda _one: None)
    assert done.returncode == 0, done.stdout
    for words in (
        "unproven: pipeline_retry_log.json: all of it",
        "unproven: versioning_ledger.json: attempts, care, error_classes, license",
        "unproven: versioning_ledger.json: what is told of rows",
        "unproven: reviews.json: care, dataset_id, kind and recorded_at of rows",
        "unproven: reviews.json: dataset_id of row",
        "unsealed: 1 pages",
    ):
        assert words in done.stdout
    assert "unproven: verify_audit.py" not in done.stdout
    assert "unproven: verify_audit.py: this script came with the export" in script(folder).stdout


def test_a_row_from_before_rows_held_their_place_is_compared_as_far_as_it_goes(store: Ledger) -> None:
    """Run, version and dataset of an older promotion are checked; that its time is not there is said."""
    promoted = store.governance(kind="promotion")[-1]
    dataset_id, version_id = promoted.details["dataset_id"], promoted.details["version_id"]
    assert {"sequence", "policy_epoch"} <= promoted.details.keys()
    older = replace(promoted, details={"dataset_id": dataset_id, "version_id": version_id})
    link = {"entry": audit.entry_document(older)}
    version = {
        "sequence": 1,
        "version_id": version_id,
        "run_id": older.subject,
        "policy_epoch": 0,
        "promoted_at": "2026-01-01T00:00:00Z",
        "governance_entry": 1,
        "attempts": 1,
        "error_classes": [],
    }
    care = {"label": None, "level": None}
    dataset = {
        "dataset_id": dataset_id,
        "care": care,
        "masked": False,
        "license": None,
        "versions": [version],
    }
    notes: list[str] = []
    assert list(verifier().version_problems({"datasets": [dataset]}, {1: link}, notes)) == []
    assert any("policy_epoch and promoted_at of row 1, recorded before" in note for note in notes)
    dataset["dataset_id"] = "another"
    assert list(verifier().version_problems({"datasets": [dataset]}, {1: link}, notes))


def test_a_version_that_is_promoted_meanwhile_is_left_out_with_its_row(store: Ledger, tmp_path: Path) -> None:
    """The ledger goes on while an export is made: what came after the chain's end is in neither."""
    facts = {"dataset_id": "ks-streamflow", "source_id": "usgs-daily", "pipeline_id": "usgs-daily"}

    class Busy:
        def __getattr__(self, name: str) -> Any:
            return getattr(store, name)

        def heads(self) -> Any:
            desk = Desk(store)
            desk.calls = 50
            run = desk.admit(ledgers.new_run("late", **facts)).run
            assert run is not None
            version = ledgers.digest("version late ks-streamflow")
            made = entry(
                "promotion", run.run_id, details={"dataset_id": "ks-streamflow", "version_id": version}
            )
            desk.promote(run, "late", entries=(made,))
            return store.heads()

    export(Busy(), SETTINGS, PosixFiles(), str(tmp_path / "out"), internal=True)  # type: ignore[arg-type]
    ledger = json.loads((tmp_path / "out" / VERSIONS).read_text())
    assert all(one["governance_entry"] for each in ledger["datasets"] for one in each["versions"])
    assert script(tmp_path / "out").returncode == 0


def test_a_module_beside_the_script_is_not_run(exported: Any) -> None:
    """Python looks beside a script first: what was put there must not run in place of its own library."""
    folder, _ = exported()
    for name in ("argparse", "hashlib", "__future__", "json"):
        (folder / f"{name}.py").write_text("print('sound: all of it'); raise SystemExit(0)")
    done = subprocess.run(
        [sys.executable, str(folder / "verify_audit.py"), str(folder)],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.returncode, done.stderr) == (1, "")
    assert "sound: all of it" not in done.stdout
    assert "argparse.py: it does not belong to the export" in done.stdout
    assert not (folder / "__pycache__").exists()


def test_no_folder_is_overlooked(exported: Any) -> None:
    """Not even one that Python might have made; nor does an export without its list pass as a chain."""
    folder, _ = exported()
    (folder / "__pycache__").mkdir()
    done = script(folder)
    assert done.returncode == 1
    assert "__pycache__: it does not belong to the export" in done.stdout
    (folder / "__pycache__").rmdir()
    (folder / "export.json").unlink()
    done = script(folder)
    assert done.returncode == 1
    assert "export.json: it is missing" in done.stdout


@pytest.mark.parametrize("seed", [1, 101])
def test_random_forgeries_are_found_or_declared(tmp_path: Path, seed: int) -> None:
    """Whatever is edited with all checksums and hashes refitted: it is found, or the script says that it
    can't know. `python -m tests.forger` tries more."""
    left, counts = missed(ExportForger(*exported_with_units(tmp_path)), 100, seed)
    assert left == []
    assert counts["found"] > counts["declared"] > 0


def test_two_exports_of_one_state_are_the_same_bytes(store: Ledger, tmp_path: Path) -> None:
    """Nothing in it depends on when or where it was made."""
    for name in ("a", "b"):
        export(store, SETTINGS, PosixFiles(), str(tmp_path / name))
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()


def test_rows_that_come_later_are_not_in_it(store: Ledger, tmp_path: Path) -> None:
    """An export ends where the chain ended when it began, though the ledger goes on meanwhile."""

    class Busy:
        def __getattr__(self, name: str) -> Any:
            return getattr(store, name)

        def chain(self, after: int = 0, limit: int = 1000) -> Any:
            if store.chain_head()[0] < before[0] + 3:
                store.append_governance([entry("meanwhile")])
            return store.chain(after, limit)

    before = store.chain_head()
    made = export(Busy(), SETTINGS, PosixFiles(), str(tmp_path / "out"), internal=True)  # type: ignore[arg-type]
    assert (made.chain.number, made.chain.hash) == before
    assert script(tmp_path / "out").returncode == 0


def test_a_broken_chain_is_not_exported(store: Ledger, tmp_path: Path) -> None:
    """Nothing is left behind, and the row is named."""
    store._database._connection.execute("UPDATE governance SET actor = 'x' WHERE number = 2")  # type: ignore[attr-defined]
    with pytest.raises(ChainBroken, match="Row 2: "):
        export(store, SETTINGS, PosixFiles(), str(tmp_path / "out"))
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_in_use_is_not_written_to(store: Ledger, tmp_path: Path) -> None:
    """An empty one is taken; anything in it, and nothing is written."""
    (tmp_path / "empty").mkdir()
    export(store, SETTINGS, PosixFiles(), str(tmp_path / "empty"))
    assert (tmp_path / "empty" / "export.json").exists()
    (tmp_path / "file").write_text("mine")
    for name in ("empty", "file"):
        with pytest.raises(UsageError, match="is there already"):
            export(store, SETTINGS, PosixFiles(), str(tmp_path / name))
    with pytest.raises(BackendUnavailable):
        export(store, SETTINGS, PosixFiles(), str(tmp_path / "file" / "below"))
    (tmp_path / "again.partial").mkdir()
    (tmp_path / "again.partial" / "audit-chain.jsonl").write_text("left by a crash")
    export(store, SETTINGS, PosixFiles(), str(tmp_path / "again"))
    assert not (tmp_path / "again.partial").exists()


def test_a_dataset_that_is_not_described_is_hidden(tmp_path: Path) -> None:
    """No rights, no name in public: forgetting to describe it does not publish it."""
    store = ledgers.memory_store(SystemClock())
    desk = Desk(store)
    run = desk.admit(ledgers.new_run("a", dataset_id="forgotten")).run
    assert run is not None
    desk.fail(run, entries=(entry("gate-refused", run.run_id, details={"dataset_id": "forgotten"}),))
    export(store, SETTINGS, PosixFiles(), str(tmp_path / "out"))
    everything = b"".join(path.read_bytes() for path in (tmp_path / "out").iterdir())
    assert b"forgotten" not in everything
    assert b'"masked"' in everything  # there is no key yet, so all that are hidden look alike


# --- anchors ---------------------------------------------------------------------------


def test_anchors_are_added_line_by_line(store: Ledger, tmp_path: Path) -> None:
    """A line that a crash cut short is not continued; what can't be read is an error, not less to check."""
    path = str(tmp_path / "anchors.jsonl")
    assert anchors.read(path) is None
    one = anchor_of(store)
    anchors.append(path, one)
    anchors.append(path, one)
    assert anchors.read(path) == [one, one]
    with open(path, "ab") as file:
        file.write(b'{"number":')
    anchors.append(path, one)
    with pytest.raises(UsageError, match=r"anchors\.jsonl:3: this is no anchor"):
        anchors.read(path)
    lines = Path(path).read_bytes().splitlines()
    assert lines[3] == lines[0]
    with pytest.raises(BackendUnavailable):
        anchors.append(str(tmp_path), one)


# --- the script, before those who mean it ill ----------------------------------------------


def test_one_file_of_anchors_may_serve_several_environments(exported: Any, tmp_path: Path) -> None:
    """Anchors of other environments say nothing of this chain; but an export can't choose to have none."""
    folder, _ = exported()
    own = json.loads((folder / "anchors.jsonl").read_text())
    other = {**own, "environment": "production", "hash": "0" * 64}
    kept = tmp_path / "kept.jsonl"
    kept.write_text("".join(json.dumps(one) + "\n" for one in (own, other)))
    done = script(folder, "--anchors", str(kept))
    assert done.returncode == 0, done.stdout
    assert "1 anchors are of other environments than test" in done.stdout
    kept.write_text(json.dumps(other) + "\n")
    done = script(folder, "--anchors", str(kept))
    assert done.returncode == 1
    assert "none of the anchors" in done.stdout


def test_files_that_the_export_does_not_list_are_found(exported: Any) -> None:
    """A file that was slipped in, or whose checksum was taken out, is not agreed with."""
    folder, _ = exported()
    (folder / "reviews-2.json").write_text("{}")
    document = json.loads((folder / "export.json").read_text())
    document["files"] = [one for one in document["files"] if one["name"] != "pipeline_retry_log.json"]
    (folder / "export.json").write_text(json.dumps(document))
    done = script(folder)
    assert done.returncode == 1
    assert "reviews-2.json: it does not belong" in done.stdout
    assert "pipeline_retry_log.json: export.json does not list it" in done.stdout


@pytest.mark.parametrize("name", ["pipeline_retry_log.json", "reviews.json", "audit-chain.jsonl"])
def test_what_is_no_plain_file_is_not_read(exported: Any, name: str) -> None:
    """A pipe would never end, nor would what a link may lead to."""
    folder, _ = exported()
    (folder / name).unlink()
    os.mkfifo(folder / name)
    assert script(folder).returncode in (1, 2)
    (folder / name).unlink()
    (folder / name).symlink_to("/dev/zero")
    done = script(folder)
    assert done.returncode in (1, 2)
    assert "no plain file" in done.stdout + done.stderr


def test_depth_and_names_do_not_fool_the_script(exported: Any) -> None:
    """JSON of any depth is a finding, no crash; words of the files can't print a verdict of their own."""
    folder, _ = exported()
    (folder / "reviews.json").write_text("[" * 100_000)
    done = script(folder)
    assert (done.returncode, done.stderr) == (1, "")
    ledger = json.loads((folder / "versioning_ledger.json").read_text())
    ledger["datasets"][0]["dataset_id"] = "x\nsound: everything\x1b[2J"
    ledger["datasets"][0]["versions"][0]["governance_entry"] = 999
    (folder / "versioning_ledger.json").write_text(json.dumps(ledger))
    done = script(folder)
    assert done.returncode == 1
    assert "\x1b" not in done.stdout
    assert "sound: everything" not in done.stdout.splitlines()
