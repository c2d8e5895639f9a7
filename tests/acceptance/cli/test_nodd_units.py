"""Asking about announced objects, from the queue to the catalogue, as a person types it."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from hashlib import md5, sha256
from pathlib import Path
from typing import Any

import pytest

from kfm import __version__
from kfm.config.loader import actor
from tests.nodd_objects import grib2

CONFIG = """\
version: 1
environment: test
datasets:
  - id: levels
    domain: hydrology
    rights: {license: CC0-1.0, care: {label: Public}}
sources:
  - {id: daily, dataset: levels, kind: files, folder: incoming}
publish:
  - {kind: local, path: published}
ingest:
  queues:
    - {name: spool, kind: folder, path: spool}
  policies:
    - {datasets: [hrrr], integrity: magic}
  mirrors: {noaa-hrrr-bdp-pds: mirror}
"""
MRMS = "CONUS/PrecipRate_00.00/20260101/MRMS_PrecipRate_00.00_20260101-{hour:02d}0000.grib2.gz"
HRRR = "hrrr.20260101/conus/hrrr.t00z.wrfsfcf06.grib2"
SECRET = "the sender's own words"


def message(bucket: str, key: str, **more: Any) -> str:
    record = {
        "eventVersion": "2.1",
        "eventSource": "aws:s3",
        "eventTime": "2026-01-01T00:00:00.000Z",
        "eventName": "ObjectCreated:Put",
        "s3": {"bucket": {"name": bucket}, "object": {"key": key, "size": 7, "eTag": "e", "sequencer": "01"}},
    }
    return json.dumps({"Records": [record], **more})


@pytest.fixture
def units(project: Path, kfm: Callable[..., Any]) -> Callable[[str], str]:
    """A ledger with two units that are done, one in quarantine, and a dead message; gives ids by key."""
    (project / "kfm.yml").write_text(CONFIG)
    mirrored = project / "mirror" / HRRR
    mirrored.parent.mkdir(parents=True)
    mirrored.write_bytes(b"GRIB, but longer than announced")
    spool = project / "spool"
    spool.mkdir()
    for hour in range(2):
        (spool / f"{hour}.json").write_text(message("noaa-mrms-pds", MRMS.format(hour=hour)))
    (spool / "wrong.json").write_text(message("noaa-hrrr-bdp-pds", HRRR))
    (spool / "unknown.json").write_text(message("no-such-bucket", "k", note=SECRET))
    worked = kfm("worker", "--until-idle")
    assert worked.code == 0, worked.err

    def id_of(part: str) -> str:
        listed = kfm("nodd", "units", "--json").document["units"]
        (one,) = (unit["wal_id"] for unit in listed if part in unit["object_uri"])
        return str(one)

    return id_of


@pytest.mark.req("WAL-17")
def test_units_can_be_listed_and_shown(units: Any, kfm: Any, valid: Any) -> None:
    """Lists have what was asked for; one unit is shown with everything that it went through."""
    listed = kfm("nodd", "units", "--json")
    valid("nodd-units", listed.document)
    assert len(listed.document["units"]) == 3
    done = kfm(
        "nodd", "units", "--dataset", "mrms", "--status", "succeeded", "--since", "1h", "--json"
    ).document
    assert {unit["dataset"] for unit in done["units"]} == {"mrms"}
    assert len(done["units"]) == 2
    one = units("000000.grib2")
    for command in (("nodd", "show"), ("show",)):
        shown = kfm(*command, one, "--json")
        valid("nodd-show", shown.document)
        assert [move["event"] for move in shown.document["history"]] == ["created", "claimed", "succeeded"]
    assert "claimed" in kfm("nodd", "show", one).out
    few = kfm("nodd", "units", "--limit", "1")
    assert len(few.out.splitlines()) == 2
    assert "--limit" in few.err
    assert kfm("nodd", "units", "--since", "yesterday").code == 2
    missing = kfm("nodd", "show", "0" * 13 + "-" + "0" * 20)
    assert (missing.code, "There is no unit" in missing.err) == (2, True)


def test_watermarks_and_status(units: Any, kfm: Any, valid: Any) -> None:
    """How far each dataset has come, and what stands still, is told without looking at single units."""
    told = kfm("nodd", "watermarks", "--json").document
    valid("nodd-watermarks", told)
    (mrms,) = (one for one in told["watermarks"] if one["dataset"] == "mrms")
    assert (mrms["newest"], mrms["open"]) == ("2026-01-01T01:00:00.000Z", 0)
    assert "mrms" in kfm("nodd", "watermarks", "mrms").out
    status = kfm("status", "--json").document
    valid("status", status)
    assert [one["dataset"] for one in status["units"]["datasets"]] == ["hrrr", "mrms"]
    assert status["units"]["dead_messages"] == 1
    assert "announced objects:" in kfm("status").out


@pytest.mark.req("TRG-7", "RET-2")
def test_a_unit_that_stands_still_says_why_and_how_to_go_on(units: Any, kfm: Any, valid: Any) -> None:
    """Explain and quarantine name the cause and the replay that brings the unit back."""
    stuck = units("hrrr")
    unit = kfm("nodd", "show", stuck, "--json").document["unit"]
    account = kfm("explain", stuck, "--json")
    valid("explain", account.document)
    top = kfm("explain", stuck).out.splitlines()[0]
    assert unit["last_error_code"] in top
    assert f"kfm replay run --unit {stuck}" in top
    held = kfm("quarantine", "list", "--json").document["held"]
    valid("quarantine-list", {"held": held, "more": False})
    (entry,) = held
    assert (entry["grain"], entry["subject"]) == ("unit", stuck)
    shown = kfm("quarantine", "show", stuck)
    (step,) = [line for line in shown.out.splitlines() if line.startswith("next  ")]
    assert f"kfm replay run --unit {stuck}" in step
    assert "`replay_quarantined: [" in shown.out  # without that, the command above brings nothing back
    refused = kfm("quarantine", "release", stuck, "--rationale", "x")
    assert refused.code == 2
    assert "kfm replay run" in refused.err


@pytest.mark.usefixtures("units")
@pytest.mark.req("WAL-20", "TRG-9")
def test_dead_messages_are_told_without_their_words(kfm: Any, valid: Any, project: Path) -> None:
    """Lists and reports have the hash; the message itself comes only where --body asks for it."""
    listed = kfm("nodd", "dead", "list", "--json")
    valid("nodd-dead-list", listed.document)
    (one,) = listed.document["dead"]
    start = one["message"].removeprefix("sha256:")[:8]
    shown = kfm("nodd", "dead", "show", start, "--json")
    valid("nodd-dead-show", shown.document)
    for called in (listed, shown, kfm("nodd", "dead", "list"), kfm("nodd", "dead", "show", start)):
        assert SECRET not in called.out + called.err
    body = kfm("nodd", "dead", "show", start, "--body")
    assert json.loads(body.out)["note"] == SECRET
    assert kfm("nodd", "dead", "release", start).code != 0
    released = kfm("nodd", "dead", "release", start, "--rationale", "Not ours: password=hunter-22", "--json")
    valid("nodd-dead-release", released.document)
    assert released.document["released"] == 1
    assert kfm("nodd", "dead", "list").out == "no dead messages\n"
    (entry,) = kfm("audit", "list", "--kind", "dead-message-release", "--json").document["entries"]
    assert entry["rationale"].startswith("Not ours: ")
    assert "hunter-22" not in entry["rationale"]
    for path in project.rglob("*.jsonl"):
        assert SECRET not in path.read_text()
    assert kfm("nodd", "dead", "show", "ffffffff").code == 2
    assert kfm("nodd", "dead", "show", "ff").code == 2


@pytest.mark.usefixtures("units")
@pytest.mark.req("WAL-20", "TRG-9")
def test_who_may_only_read_sees_no_message(kfm: Any, project: Path) -> None:
    """The message itself is for those who may operate; the list is for everybody who may read."""
    (one,) = kfm("nodd", "dead", "list", "--json").document["dead"]
    people = f"people:\n  - {{subject: ann, roles: [read], accounts: [{actor()}]}}\n"
    (project / "kfm.yml").write_text(CONFIG + people)
    assert kfm("nodd", "dead", "list").code == 0
    refused = kfm("nodd", "dead", "show", one["message"], "--body")
    assert refused.code == 3
    assert SECRET not in refused.out + refused.err
    assert kfm("nodd", "dead", "release", one["message"], "--rationale", "x").code == 3


@pytest.mark.req("WAL-17")
def test_lineage_and_provenance_of_a_unit(units: Any, kfm: Any, valid: Any, project: Path) -> None:
    """The worker delivers events; `show` prints the same bytes again, and `prov` names the unit."""
    delivered = kfm("lineage", "deliver", "--json")
    valid("lineage-deliver", delivered.document)
    status = kfm("lineage", "status", "--json")
    valid("lineage-status", status.document)
    assert status.document["units"]["waiting"] == 0
    one = units("000000.grib2")
    sent = (project / ".kfm" / "lineage" / "openlineage.jsonl").read_text().splitlines(keepends=True)
    events = kfm("lineage", "show", one, "--events").out
    assert events == "".join(line for line in sent if one in line)
    assert len(events.splitlines()) == 2
    told = kfm("lineage", "show", one, "--json").document
    valid("lineage-show", told)
    assert {event["kind"] for event in told["events"]} == {"unit"}
    document = json.loads(kfm("lineage", "prov", one).out)
    activities = [thing for thing in document["@graph"] if "kfm:UnitAttempt" in thing["@type"]]
    assert [thing["kfm:walId"] for thing in activities] == [one]
    assert activities[0]["dcterms:identifier"] == told["events"][0]["lineage_id"]


@pytest.mark.req("WAL-17")
def test_a_unit_is_found_by_its_lineage_run_and_activity(units: Any, kfm: Any) -> None:
    """An OpenLineage run, or an activity of PROV, leads back to the unit, wherever a unit may be named."""
    one = units("010000.grib2")
    document = json.loads(kfm("lineage", "prov", one).out)
    (activity,) = [thing for thing in document["@graph"] if "kfm:UnitAttempt" in thing["@type"]]
    run = kfm("lineage", "show", one, "--json").document["events"][0]["lineage_id"]
    assert activity["@id"] == f"urn:kfm:attempt:{run}"
    for name in (run, activity["@id"]):
        assert kfm("nodd", "show", name, "--json").document["unit"]["wal_id"] == one
        assert kfm("explain", name, "--json").document["id"] == one
        assert kfm("lineage", "show", name, "--json").document["subject"] == one
        assert json.loads(kfm("lineage", "prov", name).out) == document
    unknown = "00000000-0000-5000-8000-000000000000"
    for command in (("nodd", "show"), ("explain",), ("lineage", "show")):
        assert kfm(*command, unknown).code == 2


@pytest.mark.req("TRG-8")
def test_provenance_of_a_unit_names_software_policies_and_checksum(
    units: Any, kfm: Any, project: Path
) -> None:
    """Which kfm worked on it, under which policies, and the SHA-256 where all bytes were read."""
    (project / "kfm.yml").write_text(CONFIG.replace("integrity: magic", "integrity: full"))
    key = HRRR.replace("f06", "f07")
    data = grib2()
    (project / "mirror" / key).write_bytes(data)
    said = message("noaa-hrrr-bdp-pds", key).replace('"size": 7', f'"size": {len(data)}')
    said = said.replace('"eTag": "e"', f'"eTag": "{md5(data).hexdigest()}"')
    (project / "spool" / "full.json").write_text(said)
    assert kfm("worker", "--until-idle").code == 0
    one = units("wrfsfcf07")
    assert kfm("nodd", "show", one, "--json").document["unit"]["status"] == "succeeded"
    digest = sha256(data).hexdigest()
    events = [json.loads(line) for line in kfm("lineage", "show", one, "--events").out.splitlines()]
    assert {event["inputs"][0]["facets"]["kfmContent"]["sha256"] for event in events} == {digest}
    text = kfm("lineage", "prov", one).out
    assert "urn:kfm:software:kfm:unknown" not in text
    assert "urn:kfm:policies:unknown" not in text
    graph = json.loads(text)["@graph"]
    (read,) = [thing for thing in graph if "kfm:ObjectVersion" in thing["@type"]]
    assert read["spdx:checksum"]["spdx:checksumValue"]["@value"] == digest
    assert "kfm:noEvidence" not in read
    (software,) = [thing for thing in graph if "prov:SoftwareAgent" in thing["@type"]]
    assert software["kfm:version"] == __version__
    (plan,) = [thing for thing in graph if "prov:Plan" in thing["@type"]]
    assert plan["kfm:policy"]
    other = json.loads(kfm("lineage", "prov", units("000000.grib2")).out)["@graph"]
    assert all("spdx:checksum" not in thing for thing in other if "kfm:ObjectVersion" in thing["@type"])


@pytest.mark.req("GOV-2")
def test_history_is_sealed_and_checked(units: Any, kfm: Any, valid: Any, project: Path) -> None:
    """What is not sealed is declared, sealing covers it, and a changed page makes the check fail."""
    assert "of units since page" in kfm("audit", "verify").out
    sealed = kfm("audit", "seal", "--json")
    valid("audit-seal", sealed.document)
    assert sealed.document["pages"] > 0
    sound = kfm("audit", "verify", "--json")
    valid("audit-verify", sound.document)
    assert (sound.code, sound.document["units"]["unsealed"]) == (0, 0)
    with closing(sqlite3.connect(project / ".kfm" / "kfm.db", isolation_level=None)) as database:
        database.execute("UPDATE unit_pages SET worker_id = 'me' WHERE event = 'claimed'")
    broken = kfm("audit", "verify")
    assert broken.code == 1
    assert broken.out.startswith("BROKEN seal in row")
    assert "Pages of units" in broken.out


@pytest.mark.usefixtures("units")
@pytest.mark.req("GOV-2")
def test_an_export_of_history_can_be_checked_without_kfm(kfm: Any, project: Path) -> None:
    """The pages that were exported are held against the seals by a script that needs only Python."""
    assert kfm("audit", "seal").code == 0
    spool = project / "spool" / "later.json"
    spool.write_text(message("noaa-mrms-pds", MRMS.format(hour=7)))
    assert kfm("worker", "--until-idle").code == 0
    assert kfm("audit", "export", "out", "--units").code == 0

    def check() -> Any:
        script = [sys.executable, "-I", "-S", "out/verify_audit.py", "out"]
        return subprocess.run(script, capture_output=True, text=True, check=False)

    sound = check()
    assert (sound.returncode, sound.stderr) == (0, "")
    assert "pages of the history of units by 1 seals" in sound.stdout
    assert "unsealed: 3 pages of it" in sound.stdout
    pages = project / "out" / "unit-pages.jsonl"
    text = pages.read_text()
    pages.write_text(text.replace('"event":"claimed"', '"event":"seized"', 1))
    changed = check()
    assert changed.returncode == 1
    assert "BROKEN unit-pages.jsonl: it is not what row 3 of the chain has sealed" in changed.stdout


@pytest.mark.req("RS-13")
def test_an_export_withholds_pages_about_masked_datasets(units: Any, kfm: Any, project: Path) -> None:
    """Of a page about a dataset that must not be named there is only the hash, and it still verifies."""
    config = CONFIG.replace("sources:", "  - {id: hrrr, domain: weather}\nsources:")
    (project / "kfm.yml").write_text(config)
    stuck = units("hrrr")
    assert kfm("audit", "seal").code == 0
    assert kfm("audit", "export", "out", "--units").code == 0
    text = (project / "out" / "unit-pages.jsonl").read_text()
    assert stuck not in text
    assert "withheld-page/1" in text
    script = [sys.executable, "-I", "-S", "out/verify_audit.py", "out"]
    assert subprocess.run(script, capture_output=True, check=False).returncode == 0
    assert kfm("audit", "export", "inside", "--units", "--internal").code == 0
    assert stuck in (project / "inside" / "unit-pages.jsonl").read_text()


@pytest.mark.req("WAL-16")
def test_metrics_have_the_units(units: Any, kfm: Any) -> None:
    """`kfm metrics` has the counters of units by their documented names."""
    lines = kfm("metrics").out.splitlines()
    assert 'nodd_sns_wal_records_total{dataset="mrms",status="succeeded"} 2' in lines
    assert 'nodd_sns_wal_attempts_histogram_count{dataset="mrms"} 2' in lines
    assert 'nodd_sns_dead_messages_total{error_code="BUCKET_UNKNOWN"} 1' in lines


@pytest.mark.req("WAL-3", "WAL-13")
def test_a_unit_is_quarantined_by_hand(kfm: Any, valid: Any, project: Path) -> None:
    """With a rationale, which the audit log keeps; workers leave it out, and it is told how it comes back."""
    (project / "kfm.yml").write_text(CONFIG)
    (project / "spool").mkdir()
    (project / "spool" / "0.json").write_text(message("noaa-mrms-pds", MRMS.format(hour=0)))
    assert kfm("switch", "set", "stopped", "--dataset", "mrms", "--rationale", "wait").code == 0
    kfm("worker", "--until-idle")
    (unit,) = kfm("nodd", "units", "--json").document["units"]
    assert unit["status"] == "pending"
    assert kfm("quarantine", "add", unit["wal_id"]).code == 3
    added = kfm("quarantine", "add", unit["wal_id"], "--rationale", "out of order", "--json")
    assert added.code == 0, added.err
    valid("quarantine-add", added.document)
    assert (added.document["was"], added.document["held"]["error_code"]) == ("pending", "BY_HAND")
    kfm("switch", "set", "running", "--dataset", "mrms", "--rationale", "go on")
    kfm("worker", "--until-idle")
    (unit,) = kfm("nodd", "units", "--json").document["units"]
    assert (unit["status"], unit["attempts"]) == ("quarantined", 0)
    assert "out of order" in kfm("explain", unit["wal_id"]).out
    entries = kfm("audit", "list", "--json").document["entries"]
    assert [one["rationale"] for one in entries if one["kind"] == "quarantine"] == ["out of order"]
    again = kfm("quarantine", "add", unit["wal_id"], "--rationale", "twice")
    assert (again.code, "is quarantined" in again.err) == (2, True)


@pytest.mark.req("WAL-18", "WAL-2")
def test_a_newer_version_that_is_ignored_is_told_as_newer(kfm: Any, project: Path) -> None:
    """By the worker and by `explain`: what the policy leaves out is not called old."""
    policy = "    - {datasets: [mrms], reissue: ignore}\n"
    (project / "kfm.yml").write_text(CONFIG.replace("  policies:\n", f"  policies:\n{policy}"))
    (project / "spool").mkdir()
    said = message("noaa-mrms-pds", MRMS.format(hour=0))
    (project / "spool" / "0.json").write_text(said)
    kfm("worker", "--until-idle")
    (project / "spool" / "1.json").write_text(said.replace('"e"', '"f"').replace('"01"', '"02"'))
    worked = kfm("worker", "--until-idle", "--json").document["tasks"]
    assert (worked["reissues_ignored"], worked["stale"]) == (1, 0)
    (unit,) = kfm("nodd", "units", "--json").document["units"]
    told = kfm("explain", unit["wal_id"]).out
    assert "a newer version was announced" in told
    assert "older" not in told
