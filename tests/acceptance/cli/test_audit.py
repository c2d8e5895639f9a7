"""`kfm audit` on a real project: from the first entry to a forged database."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from tests.acceptance.cli.conftest import Called

pytestmark = pytest.mark.req("GOV-2", "CLI-1")

Kfm = Callable[..., Called]
Valid = Callable[[str, Any], None]
UNSEEN = "from there on, a cut end or a chain that was written anew would not be seen"


@pytest.fixture
def begun(kfm: Kfm, project: Path) -> Path:
    """A project in which something was published, and a switch was set twice."""
    (project / "incoming" / "levels.csv").write_text("station,level\na,1\n")
    assert kfm("run", "--source", "daily").code == 0
    for position in ("paused", "running"):
        assert kfm("switch", "set", position, "--all", "--rationale", f"{position} for a test").code == 0
    return project


def shell(project: Path, *statements: str) -> None:
    """What a person with access to the database file could do."""
    connection = apsw.Connection(str(project / ".kfm" / "kfm.db"))
    for sql in statements:
        connection.execute(sql)
    connection.close()


def test_nothing_recorded_yet(kfm: Kfm, project: Path, valid: Valid) -> None:
    """A new project has a sound, empty chain, nothing to anchor, and no state folder after being asked."""
    called = kfm("audit", "verify")
    assert (called.code, called.out) == (0, "sound: nothing has been recorded yet\n")
    valid("audit-verify", kfm("audit", "verify", "--json").document)
    anchored = kfm("audit", "anchor", "--json")
    valid("audit-anchor", anchored.document)
    assert (anchored.code, anchored.document["added"]) == (0, False)
    assert kfm("audit", "list").out == "no entries\n"
    assert not (project / ".kfm").exists()
    assert not (project / "audit-anchors.jsonl").exists()


def test_without_an_anchor_it_is_said_plainly(kfm: Kfm, begun: Path, valid: Valid) -> None:
    """Sound, how many rows, the head, since where it is unanchored, and the command that helps."""
    called = kfm("audit", "verify")
    document = kfm("audit", "verify", "--json").document
    valid("audit-verify", document)
    assert called.out.splitlines() == [
        f"sound: 3 rows, head 3 with hash {document['head']['hash']}",
        f"unanchored since row 1: there is no anchor; {UNSEEN}",
        "unsealed: 10 events since event 1; `kfm audit seal` seals them",
    ]
    assert called.err == "anchor it with: kfm audit anchor\n"
    assert (document["sound"], document["unanchored_since"], document["finding"]) == (True, 1, None)


def test_an_anchor_is_kept_beside_the_configuration(kfm: Kfm, begun: Path, valid: Valid) -> None:
    """One line with number, hash, environment and time; a second call adds none; later rows are not in it."""
    called = kfm("audit", "anchor", "--json")
    valid("audit-anchor", called.document)
    assert called.document["added"] is True
    (line,) = (begun / "audit-anchors.jsonl").read_text().splitlines()
    assert json.loads(line) == called.document["anchor"]
    assert sorted(json.loads(line)) == ["at", "environment", "hash", "number"]
    assert "keep it elsewhere, too: git add" in called.err
    again = kfm("audit", "anchor")
    assert again.out.startswith("anchored already: row 3 ")
    assert len((begun / "audit-anchors.jsonl").read_text().splitlines()) == 1
    assert "anchored: up to row 3; 1 anchor agrees (audit-anchors.jsonl)" in kfm("audit", "verify").out
    assert "unanchored" not in kfm("audit", "verify").out
    kfm("switch", "set", "paused", "--all", "--rationale", "again")
    assert f"unanchored since row 4: {UNSEEN}" in kfm("audit", "verify").out


@pytest.mark.parametrize(
    ("statement", "row"),
    [
        ("UPDATE governance SET rationale = 'nothing happened' WHERE number = 2", 2),
        ("DELETE FROM governance WHERE number = 2", 2),
        ("DELETE FROM governance WHERE number = 3", 3),
        ("UPDATE governance SET details = '{}' WHERE number = 1", 1),
    ],
)
def test_a_forged_row_is_named(kfm: Kfm, begun: Path, valid: Valid, statement: str, row: int) -> None:
    """Exit status 1, the first row that does not fit, and no anchor and no export of such a chain."""
    shell(begun, statement)
    called = kfm("audit", "verify")
    assert called.code == 1
    assert called.out.startswith(f"BROKEN at row {row}: ")
    told = kfm("audit", "verify", "--json")
    valid("audit-verify", told.document)
    assert (told.code, told.document["finding"]["number"]) == (1, row)
    for arguments in (("anchor",), ("export", "out")):
        refused = kfm("audit", *arguments)
        assert refused.code == 1
        assert f"error KFM609: The audit log's hash chain is broken. Row {row}: " in refused.err
    assert not (begun / "audit-anchors.jsonl").exists()
    assert not (begun / "out").exists()


def test_a_cut_end_is_found_against_the_anchor(kfm: Kfm, begun: Path) -> None:
    """A forger who knows the head row too is found by the line in the file, and by nothing else."""
    kfm("audit", "anchor", "--to", "kept.jsonl")
    second = kfm("audit", "list", "--json").document["entries"][1]
    shell(
        begun,
        "DELETE FROM governance WHERE number = 3",
        f"UPDATE chain_heads SET number = 2, hash = '{second['hash']}'",
        "UPDATE switches SET position = 'paused', rationale = 'paused for a test'",
    )
    alone = kfm("audit", "verify")
    assert alone.code == 0
    assert "unanchored since row 1: there is no anchor" in alone.out
    called = kfm("audit", "verify", "--anchors", "kept.jsonl")
    assert called.code == 1
    assert called.out.startswith("BROKEN at row 3: the chain ends before it, but row 3 was anchored at ")


def test_anchors_of_another_environment_do_not_count(kfm: Kfm, begun: Path) -> None:
    """One file may serve several; the others' lines are mentioned, and not compared."""
    other = {"number": 2, "hash": "f" * 64, "environment": "elsewhere", "at": "2026-01-01T00:00:00Z"}
    (begun / "audit-anchors.jsonl").write_text(json.dumps(other) + "\n")
    called = kfm("audit", "verify")
    assert called.code == 0
    assert "1 anchor of other environments: not compared" in called.err
    assert "there is no anchor" in called.out


def test_an_anchor_behind_the_break_is_not_denied(kfm: Kfm, begun: Path) -> None:
    """A break before the first anchor does not make the report say that there is none; it says what to do."""
    kfm("audit", "anchor")
    shell(begun, "UPDATE governance SET actor = 'eve' WHERE number = 2")
    called = kfm("audit", "verify")
    assert called.code == 1
    assert "there is no anchor" not in called.out
    assert "no anchor was reached before the break" in called.out
    assert "docs/how-to/audit.md" in called.err


def test_an_unknown_kind(kfm: Kfm, begun: Path) -> None:
    """The caller who mistypes a kind is told which there are."""
    assert (begun / "kfm.yml").is_file()
    called = kfm("audit", "list", "--kind", "swich")
    assert (called.code, called.out) == (0, "no entries\n")
    assert "kinds on record: " in called.err
    assert "switch" in called.err


@pytest.mark.parametrize(
    ("content", "said"),
    [(None, "There is no file kept.jsonl."), ("nonsense\n", "kept.jsonl:1: this is no anchor")],
)
def test_anchors_that_cannot_be_read_are_an_error(
    kfm: Kfm, begun: Path, content: str | None, said: str
) -> None:
    """Checking less than was asked for would look like success."""
    if content is not None:
        (begun / "kept.jsonl").write_text(content)
    called = kfm("audit", "verify", "--anchors", "kept.jsonl")
    assert called.code == 2
    assert said in called.err


def test_entries_are_listed_newest_first(kfm: Kfm, begun: Path, valid: Valid) -> None:
    """With their rows; filtered by kind and subject; more are announced."""
    listed = kfm("audit", "list", "--json")
    valid("audit-list", listed.document)
    assert [(one["number"], one["kind"]) for one in listed.document["entries"]] == [
        (3, "switch"), (2, "switch"), (1, "promotion"),
    ]  # fmt: skip
    run_id = listed.document["entries"][2]["subject"]
    for arguments in (("--kind", "promotion"), ("--subject", run_id)):
        (one,) = kfm("audit", "list", "--json", *arguments).document["entries"]
        assert one["number"] == 1
    short = kfm("audit", "list", "--limit", "1")
    assert "running for a test" in short.out
    assert "more entries are not shown: use --limit (now 1)" in short.err
    lines = kfm("audit", "list", "-o", "jsonl").out.splitlines()
    assert [json.loads(line)["number"] for line in lines] == [3, 2, 1]


@pytest.mark.req("RET-9")
def test_an_export_can_be_checked_by_anybody(kfm: Kfm, begun: Path, valid: Valid) -> None:
    """The chain, its anchors, the ledgers and the script; a changed byte in any ledger is found."""
    kfm("audit", "anchor")
    called = kfm("audit", "export", "out", "--json")
    assert called.code == 0
    valid("audit-export", called.document)
    assert {path.name for path in (begun / "out").iterdir()} == {
        "audit-chain.jsonl", "anchors.jsonl", "pipeline_retry_log.json", "versioning_ledger.json",
        "postmortems.json", "reviews.json", "export.json", "verify_audit.py",
    }  # fmt: skip
    versions = json.loads((begun / "out" / "versioning_ledger.json").read_text())
    (version,) = versions["datasets"][0]["versions"]
    assert (versions["datasets"][0]["dataset_id"], version["governance_entry"]) == ("levels", 1)

    def check() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-I", "out/verify_audit.py", "out", "--anchors", "audit-anchors.jsonl"],
            capture_output=True,
            text=True,
            check=False,
        )

    assert check().returncode == 0
    for path in (begun / "out").iterdir():
        if path.name in ("verify_audit.py", "export.json"):
            continue  # the check itself, and the list of the others
        before = path.read_bytes()
        path.write_bytes(before.replace(b"e", b"a", 1))
        assert check().returncode == 1, path.name
        path.write_bytes(before)
    assert check().returncode == 0
    assert kfm("audit", "export", "out").code == 2
    internal = kfm("audit", "export", "all", "--internal")
    assert "this export masks nothing: do not publish it" in internal.err


def test_old_ledgers_are_taken_in(kfm: Kfm, begun: Path) -> None:
    """Rows from before the chain are said to be unchained until the next entry."""
    shell(
        begun,
        "UPDATE governance SET hash = ''",
        f"UPDATE chain_heads SET number = 0, hash = '{'0' * 64}'",
    )
    called = kfm("audit", "verify")
    assert called.code == 0
    assert "unchained: 3 rows from before the ledger was a chain; the next entry takes them in" in called.out
    assert "3 old rows wait for the next entry" in kfm("audit", "anchor").out
    assert "rows from before it was a chain" in kfm("audit", "export", "out").err
    kfm("switch", "set", "paused", "--all", "--rationale", "x")
    assert kfm("audit", "verify").out.startswith("sound: 4 rows, head 4 ")


def test_a_long_chain_is_watched(kfm: Kfm, begun: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Progress goes to stderr, so that the result stays alone on stdout."""
    monkeypatch.setattr("kfm.audit.chain.PAGE_ROWS", 1)
    monkeypatch.setattr("kfm.cli.audit.ROWS_TOLD", 2)
    called = kfm("audit", "verify", "--json")
    assert called.document["rows"] == 3
    assert called.err.startswith("checked 2 of 3 rows\n")


def test_help_teaches(kfm: Kfm, project: Path) -> None:
    """Each command says what it is for and what it can't do."""
    assert "only against an anchor" in " ".join(kfm("audit", "verify", "--help").out.split())
    assert "commit it to git" in " ".join(kfm("audit", "anchor", "--help").out.split())
    assert "verify_audit.py" in kfm("audit", "export", "--help").out


def test_events_are_sealed_and_a_changed_one_is_found(kfm: Kfm, begun: Path, valid: Valid) -> None:
    """`audit seal` covers what runs posted; verify counts what is sealed and names a seal that is broken."""
    before = kfm("audit", "verify", "--json").document["events"]
    assert (before["sealed"], before["unsealed"], before["unsealed_since"]) == (0, 10, 1)
    sealed = kfm("audit", "seal", "--json").document
    valid("audit-seal", sealed)
    assert (sealed["events"], sealed["seals"]) == (10, 1)
    assert kfm("audit", "seal").out == "nothing to seal: no event since the last seal\n"
    after = kfm("audit", "verify", "--json").document
    valid("audit-verify", after)
    assert (after["sound"], after["events"]["sealed"], after["events"]["unsealed"]) == (True, 10, 0)
    shell(begun, "UPDATE outbox SET body = body || ' ' WHERE number = 4")
    called = kfm("audit", "verify")
    assert called.code == 1
    assert called.out.startswith("BROKEN seal in row 4")
    told = kfm("audit", "verify", "--json").document
    valid("audit-verify", told)
    assert (told["sound"], told["finding"], told["events"]["broken_seal"]) == (False, None, 4)


def test_a_ledger_without_its_head_is_broken(kfm: Kfm, begun: Path, valid: Valid) -> None:
    """What names the last row is gone: that is told as a break at that row, and writing says so, too."""
    shell(begun, "DELETE FROM chain_heads")
    called = kfm("audit", "verify")
    assert called.code == 1
    assert called.out.startswith("BROKEN at row 3: ")
    assert "its head, is gone" in called.out
    document = kfm("audit", "verify", "--json").document
    valid("audit-verify", document)
    assert (document["finding"]["number"], document["finding"]["problem"]) == (3, "head")
    refused = kfm("switch", "set", "paused", "--all", "--rationale", "x")
    assert (refused.code, "KFM405" in refused.err) == (4, True)
    assert "kfm audit verify" in refused.err


@pytest.mark.parametrize(
    ("statements", "said", "row"),
    [
        (["UPDATE promotions SET version_id = 'sha256:0'"], "version 1 of dataset levels: it is sha256:0", 1),
        (["UPDATE promotions SET sequence = 2"], "version 2 of dataset levels: ", 1),
        (["DELETE FROM promotions"], "version 1 of dataset levels: ", 1),
        (["UPDATE switches SET position = 'stopped'"], "switch all: it is stopped by ", 3),
        (["UPDATE switches SET actor = 'eve'"], "switch all: it is running by eve; told was ", 3),
        (["UPDATE switches SET rationale = 'no reason'"], "switch all: ", 3),
        (["DELETE FROM switches"], "switch all: it is not there", 3),
        (
            ["INSERT INTO switches VALUES ('dataset:levels', 'paused', 'x', 'eve', 1)"],
            "switch dataset:levels: the chain does not tell of it",
            None,
        ),
        (["UPDATE invocations SET actor = 'eve'"], "it is manual by eve; its event says manual by ", None),
        (
            ["UPDATE invocations SET outcome = 'failed'"],
            "its outcome is failed; its event says COMPLETE",
            None,
        ),
        (["DELETE FROM invocations"], "it is not there, though an event tells of it", None),
    ],
)
def test_a_record_that_was_edited_by_itself_is_named(
    kfm: Kfm, begun: Path, valid: Valid, statements: list[str], said: str, row: int | None
) -> None:
    """The chain fits together, but a promotion, a switch or an invocation is not what was recorded of it."""
    assert kfm("audit", "verify").code == 0
    shell(begun, "PRAGMA foreign_keys = OFF", *statements)
    called = kfm("audit", "verify")
    assert called.code == 1
    told = called.out.splitlines()[0]
    assert told.startswith("BROKEN record: ")
    assert said in told
    assert (f"(row {row} of the chain)" in told) == (row is not None)
    document = kfm("audit", "verify", "--json").document
    valid("audit-verify", document)
    assert document["sound"] is False
    assert document["finding"] is None


def test_a_unit_that_was_edited_by_itself_is_named(kfm: Kfm, project: Path, valid: Valid) -> None:
    """A unit's state is what the last page of its history says, and no page tells of more."""
    (project / "kfm.yml").write_text(
        (project / "kfm.yml").read_text()
        + "ingest:\n  queues:\n    - {name: spool, kind: folder, path: spool}\n"
    )
    (project / "spool").mkdir()
    key = "CONUS/PrecipRate_00.00/20260101/MRMS_PrecipRate_00.00_20260101-000000.grib2.gz"
    (project / "spool" / "one.json").write_text(announced("noaa-mrms-pds", key))
    assert kfm("worker", "--until-idle").code == 0
    assert kfm("audit", "seal").code == 0
    assert kfm("audit", "verify").code == 0
    (unit,) = kfm("nodd", "units", "--json").document["units"]
    told = f"BROKEN record: unit {unit['wal_id']}: "
    for statement, undo, said in (
        ("status = 'quarantined'", "status = 'succeeded'", "it is quarantined (version 3, attempts 1)"),
        ("attempts = 7", "attempts = 1", "its history says succeeded (version 3, attempts 1)"),
        ("version = 2", "version = 3", "page 3 of its history has version 3, it has not"),
    ):
        shell(project, f"UPDATE units SET {statement}")
        called = kfm("audit", "verify")
        assert called.code == 1
        assert told in called.out
        assert said in called.out
        shell(project, f"UPDATE units SET {undo}")
    assert kfm("audit", "verify").code == 0
    shell(project, "DELETE FROM units")
    assert told in kfm("audit", "verify").out
    valid("audit-verify", kfm("audit", "verify", "--json").document)


def announced(bucket: str, key: str) -> str:
    record = {
        "eventVersion": "2.1",
        "eventSource": "aws:s3",
        "eventTime": "2026-01-01T00:00:00.000Z",
        "eventName": "ObjectCreated:Put",
        "s3": {"bucket": {"name": bucket}, "object": {"key": key, "size": 7, "eTag": "e", "sequencer": "01"}},
    }
    return json.dumps({"Records": [record]})


@pytest.mark.req("GOV-3")
def test_an_approval_that_was_never_given_is_named(kfm: Kfm, begun: Path) -> None:
    """Each person who had a part in an approval is in the chain."""
    shell(
        begun,
        "INSERT INTO approvals (request_id, kind, subject, dataset_id, digest, requested_by, requested_names,"
        " requested_at_ms, rationale, about, state, approved_by, approved_at_ms)"
        " VALUES ('r1', 'attempt', 'run', 'levels', 'd', 'bob', '[]', 1, 'x', 'x', 'approved', 'eve', 2)",
    )
    called = kfm("audit", "verify")
    assert called.code == 1
    assert "approval r1: the chain does not tell that it was requested by bob, approved by eve" in called.out
