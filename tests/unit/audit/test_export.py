"""What an export holds, what it hides, and that a stranger can check it."""

from __future__ import annotations

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

from kfm.audit import anchors, chain
from kfm.audit.chain_export import export
from kfm.audit.export_documents import ChainExport
from kfm.db.ledger import Ledger
from kfm.model import audit
from kfm.model.errors import BackendUnavailable, ChainBroken, UsageError
from kfm.model.redaction import mask
from kfm.model.runs import CallRetry
from kfm.model.settings import Care, DatasetSettings, Rights, Settings, SourceSettings, Sovereignty
from kfm.system import PosixFiles, SystemClock
from tests.conformance.db import ledgers
from tests.conformance.db.ledgers import START_MS, Desk, entry

pytestmark = pytest.mark.req("GOV-2", "RET-9", "RS-13")

SCHEMAS = Path(audit.__file__).resolve().parent.parent / "contracts" / "schemas"
KEY = "the environment's own key"
SECRET = "kaw-sites"
SETTINGS = Settings(
    environment="test",
    datasets=(
        DatasetSettings(
            id="ks-streamflow", rights=Rights(license="CC0-1.0", care=Care(label="Public · Low-Risk"))
        ),
        DatasetSettings(
            id=SECRET,
            title="Gathering places",
            rights=Rights(license="proprietary", care=Care(label="Kaw Nation", level="restricted")),
        ),
        DatasetSettings(
            id="open-but-pending",
            rights=Rights(
                license="CC0-1.0",
                care=Care(label="Public"),
                sovereignty=Sovereignty(authority="Kaw Nation", consent="pending"),
            ),
        ),
    ),
    sources=(
        SourceSettings(id="usgs-daily", dataset="ks-streamflow", kind="files"),
        SourceSettings(id="kaw-survey", dataset=SECRET, kind="files"),
    ),
)


def retry(run_id: str, number: int) -> CallRetry:
    return CallRetry(
        run_id=run_id,
        attempt=1,
        node="fetch",
        call=1,
        number=number,
        delay_ms=500 * number,
        error_class="timeout",
        retryable=True,
        outcome="retried",
        circuit_open=False,
        at_ms=START_MS + number,
    )


@pytest.fixture
def store() -> Ledger:
    """A run that published, one that was tried again, a halt; a restricted dataset with the same."""
    made = ledgers.memory_store(SystemClock())
    made.ensure_mark("mask_key", KEY)
    desk = Desk(made)
    for dataset_id, source_id in (("ks-streamflow", "usgs-daily"), (SECRET, "kaw-survey")):
        facts = {"dataset_id": dataset_id, "source_id": source_id, "pipeline_id": source_id}
        run = desk.admit(ledgers.new_run(f"a {dataset_id}", **facts)).run
        assert run is not None
        version = ledgers.digest(f"version first {dataset_id}")
        promoted = entry("promotion", run.run_id, details={"dataset_id": dataset_id, "version_id": version})
        desk.promote(run, "first", entries=(promoted,), retries=(retry(run.run_id, 1), retry(run.run_id, 2)))
        calm = desk.admit(ledgers.new_run(f"b {dataset_id}", **facts)).run
        assert calm is not None
        desk.promote(calm, None)
        run = desk.admit(ledgers.new_run(f"c {dataset_id}", **facts)).run
        assert run is not None
        halted = {"dataset_id": dataset_id, "code": "KFM302", "reason": f"{dataset_id} must not be shown"}
        entries = [entry(kind, run.run_id, details=halted) for kind in ("halt", "review", "postmortem")]
        desk.fail(run, error_code="KFM302", entries=tuple(entries))
        desk.again(made.run(run.run_id))  # type: ignore[arg-type]
        desk.fail(made.run(run.run_id))  # type: ignore[arg-type]
    made.set_switch(ledgers.switch(), entry("switch", f"dataset:{SECRET}"))
    made.append_governance(
        [
            entry("switch", "all", rationale="A person wrote about the Gathering Places here."),
            entry("switch", "all", rationale="Use https://ada:hunter2hunter2@example.org/"),
            entry("gc", "test", rationale="kaw-site is no match", details={"removed": 3}),
        ]
    )
    return made


def anchor_of(store: Ledger) -> audit.Anchor:
    return anchors.made(chain.verify(store), "test", START_MS)


@pytest.fixture
def exported(store: Ledger, tmp_path: Path) -> Callable[..., tuple[Path, ChainExport]]:
    def make(**options: Any) -> tuple[Path, ChainExport]:
        folder = tmp_path / "out"
        made = export(store, SETTINGS, PosixFiles(), str(folder), [anchor_of(store)], **options)
        return folder, made

    return make


def script(folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-I", "-S", str(folder / "verify_audit.py"), str(folder), *more],
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


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        (
            "versioning_ledger.json",
            lambda one: one["datasets"][0]["versions"][0].update(version_id="sha256:forged"),
            "versioning_ledger.json: version 1 of ks-streamflow is not what row",
        ),
        (
            "postmortems.json",
            lambda one: one["entries"][0]["details"].update(reason="nothing"),
            "postmortems.json: it differs from row",
        ),
        ("reviews.json", lambda one: one["entries"].pop(0), "of the chain is not in it"),
    ],
)
def test_a_forger_who_knows_about_the_list_meets_the_chain(
    exported: Any, name: str, change: Any, said: str
) -> None:
    """Even with the hashes in export.json set right, what is told must be what the chain records."""
    import hashlib

    folder, _ = exported()
    document = json.loads((folder / name).read_text())
    change(document)
    (folder / name).write_text(json.dumps(document))
    listing = json.loads((folder / "export.json").read_text())
    for one in listing["files"]:
        if one["name"] == name:
            one["sha256"] = hashlib.sha256((folder / name).read_bytes()).hexdigest()
    (folder / "export.json").write_text(json.dumps(listing))
    done = script(folder)
    assert done.returncode == 1
    assert said in done.stdout


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
