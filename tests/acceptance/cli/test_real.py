"""The commands on the real kernel: from an empty folder to a published dataset."""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from kfm.model.times import parse_rfc3339
from tests.acceptance.cli.conftest import Called
from tests.unruly import Answer, unruly_server

Kfm = Callable[..., Called]
Valid = Callable[[str, Any], None]


@pytest.fixture
def begun(kfm: Kfm, project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project as `kfm init` makes it."""
    folder = project / "new"
    assert kfm("init", str(folder)).code == 0
    monkeypatch.chdir(folder)
    return folder


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("kind", ["folder", "http", "bucket"])
def test_init_makes_a_right_configuration(
    kfm: Kfm, project: Path, valid: Valid, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Whatever the data comes from, the new project passes its own check."""
    called = kfm("init", "new", "--from", kind, "--json")
    valid("init", called.document)
    assert sorted(called.document["files"]) == sorted(
        str(path.relative_to(project / "new")) for path in (project / "new").rglob("*") if path.is_file()
    )
    monkeypatch.chdir(project / "new")
    assert kfm("config", "check").code == 0


def test_init_overwrites_nothing(kfm: Kfm, project: Path) -> None:
    """One file that is there already, and nothing at all is written."""
    (project / "new").mkdir()
    (project / "new" / "cron.yml").write_text("mine")
    called = kfm("init", "new")
    assert called.code == 2
    assert "cron.yml is already there; nothing was written." in called.err
    assert files_of(project / "new") == {"cron.yml": b"mine"}


@pytest.mark.req("UPD-1", "UPD-3", "CLI-1")
def test_from_nothing_to_published(kfm: Kfm, begun: Path, valid: Valid) -> None:
    """Look, plan, apply, repeat, ask why: the way of a first hour."""
    assert kfm("status").out.startswith("nothing has run yet: kfm run\n")
    before = files_of(begun)
    preview = kfm("diff", "--json")
    valid("diff", preview.document)
    assert files_of(begun) == before
    shown = kfm("diff", "--plan", "plan.jsonl")
    assert "  + readings.csv  156 B" in shown.out
    assert shown.err.splitlines()[-1] == "apply it with: kfm run --plan plan.jsonl"
    applied = kfm("run", "--plan", "plan.jsonl", "--json")
    assert applied.code == 0
    valid("run", applied.document)
    assert applied.document["results"][0]["word"] == "published"
    published = begun / "published" / "example-readings" / "current" / "data" / "readings.csv"
    assert published.read_bytes() == (begun / "incoming" / "readings.csv").read_bytes()
    again = kfm("run")
    assert again.code == 0
    assert again.out.startswith("unchanged  example-readings")
    assert kfm("status").out.startswith("all clear\n")
    valid("status", kfm("status", "--json").document)
    runs = kfm("runs", "--json").document
    valid("runs", runs)
    run_id = runs["runs"][0]["run_id"]
    valid("show", kfm("show", run_id, "--json").document)
    account = kfm("explain", run_id).out
    assert "It was promoted as version 1" in account
    assert "and it was unchanged: Upstream is unchanged" in account
    valid("project", kfm("project", "--json").document)


@pytest.mark.req("CLI-1")
def test_a_plan_that_has_drifted_is_refused(kfm: Kfm, begun: Path, valid: Valid) -> None:
    """What was read is what is applied, or nothing is."""
    kfm("diff", "--plan", "plan.jsonl")
    (begun / "incoming" / "readings.csv").write_text(
        "station,observed_at,level_m\nnorth,2026-01-01T00:00:00Z,9\n"
    )
    called = kfm("run", "--plan", "plan.jsonl", "--json")
    assert called.code == 3
    valid("run", called.document)
    assert called.document["results"][0]["error"]["code"] == "KFM306"
    assert not (begun / "published").exists()


def test_data_that_breaks_its_contract_is_not_published(kfm: Kfm, begun: Path, valid: Valid) -> None:
    """Exit code 3, the checks named; the preview says it too."""
    (begun / "incoming" / "readings.csv").write_text("station,observed_at,level_m\nnorth,yesterday,9\n")
    for command in ("diff", "run"):
        called = kfm(command, "--json")
        assert called.code == 3
        valid(command, called.document)
        assert called.document["results"][0]["error"]["code"] == "KFM303"
        assert called.document["results"][0]["failed_checks"][0]["name"] == "schema.column.type:observed_at"
    assert kfm("status").out.startswith("failing: dataset example-readings")
    told = kfm("run").err.splitlines()
    assert [line.split(":")[0] for line in told[-3:]] == ["next", "note", "log"]
    assert told[-3].startswith("next: Correct the cause, then run the same work again: ")
    assert "of a class that trying again does not cure; it is quarantined" in told[-2]
    assert Path(told[-1].removeprefix("log: ")).is_file()


@pytest.mark.req("GOV-1", "GOV-3")
def test_a_switch_stops_runs_until_it_is_lifted(kfm: Kfm, begun: Path, valid: Valid) -> None:
    """Paused with a reason, refused with exit code 3, lifted with a reason."""
    set_ = kfm(
        "switch", "set", "paused", "--dataset", "example-readings", "--rationale", "checking", "--json"
    )
    valid("switch-set", set_.document)
    blocked = kfm("run")
    assert blocked.code == 3
    told, fix = blocked.err.splitlines()
    assert "kfm switch set running" not in told
    lift = "kfm switch set running --dataset example-readings --rationale TEXT"
    assert fix == f"fix: An operator lifts it with `{lift}`."
    status = kfm("status")
    assert status.out.startswith("blocked by kill switch on dataset example-readings, paused by ")
    valid("switch-list", kfm("switch", "list", "--json").document)
    kfm("switch", "set", "running", "--dataset", "example-readings", "--rationale", "checked")
    assert kfm("run").code == 0


def test_a_refusing_rule_is_named(kfm: Kfm, begun: Path) -> None:
    """The line names the rule, and the way out is one that leads somewhere."""
    text = (begun / "kfm.yml").read_text()
    (begun / "kfm.yml").write_text(text.replace("level: public", "level: blocked"))
    called = kfm("run")
    assert called.code == 3
    told, fix = called.err.splitlines()
    assert told.startswith("error KFM301: A policy gate refused this run. Rule care.blocked: ")
    assert fix.endswith("`kfm explain KFM301` says more.")


def test_a_path_that_a_pipeline_made_up(kfm: Kfm, begun: Path) -> None:
    """A pipeline that writes outside of its dataset is told what to correct: itself."""
    text = "def publish(context):\n    context.publisher.write_file('../x', b'1')\n"
    (begun / "pipelines" / "example.py").write_text(text)
    called = kfm("run")
    assert "The path '../x' can't be published: its segment '..' begins with a dot." in called.err
    assert "next: Correct the cause, then run the same work again: `kfm run --source " in called.err


def test_progress_on_a_pipe_is_one_line(begun: Path, process: Kfm) -> None:
    """What was fetched is said once, when it is there; nothing is said where nothing was."""
    assert process("run", cwd=begun).err == "fetch: 1 object, 156 B\n"
    assert process("run", cwd=begun).err == ""


@pytest.mark.req("UPD-10", "GOV-3")
def test_a_force_is_recorded_with_its_reasons(kfm: Kfm, begun: Path) -> None:
    """The account names who forced, on whose behalf, and why."""
    assert kfm("run").code == 0
    forced = kfm(
        "run", "--force", "--rationale", "gauge replaced", "--ticket", "T-7", "--actor", "ana", "--json"
    )
    assert forced.code == 0
    shown = kfm("show", forced.document["results"][0]["run_id"], "--json").document
    (call,) = [call for call in shown["invocations"] if call["ticket"]]
    assert (call["rationale"], call["ticket"], call["claimed_actor"]) == ("gauge replaced", "T-7", "ana")
    assert call["actor"] != "ana"


def test_gate_test(kfm: Kfm, begun: Path, valid: Valid) -> None:
    """The shipped fixtures hold; one that does not is a finding, exit code 1, with file and line."""
    called = kfm("gate", "test", "--json")
    assert called.code == 0
    valid("gate-test", called.document)
    fixtures = begun / "policies" / "fixtures.yaml"
    fixtures.write_text(fixtures.read_text().replace("expect: allow", "expect: deny"))
    failed = kfm("gate", "test")
    assert failed.code == 1
    assert "FAIL  " in failed.out
    assert "policies/fixtures.yaml:2: public data with an open licence is published" in failed.out
    fixtures.unlink()
    assert kfm("gate", "test").code == 2


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("name: x\n", "fixtures.yaml:1: a list of at most 10000 fixtures is expected"),
        ("- nme: x\n", "fixtures.yaml:1: 'nme' is not a word of a fixture; did you mean 'name'?"),
        (
            "\n- {name: x, action: run, dataset: {id: a}}\n",
            "fixtures.yaml:2: expect must be one of allow, deny",
        ),
        (
            "- {name: x, action: run, dataset: {id: a}, expect: maybe}",
            "fixtures.yaml:1: expect must be one of allow, deny",
        ),
        (
            "- {name: x, action: jump, dataset: {id: a}, expect: deny}",
            "fixtures.yaml:1: action must be one of ",
        ),
        ("- [", "fixtures.yaml:1: not YAML: while parsing a flow node, expected the node content"),
    ],
)
def test_faulty_fixtures_are_named(kfm: Kfm, begun: Path, text: str, sentence: str) -> None:
    """A fixture that can't be asked is an error of the file, not a finding."""
    (begun / "policies" / "fixtures.yaml").write_text(text)
    called = kfm("gate", "test")
    assert called.code == 2
    assert "error KFM208" in called.err
    assert sentence in called.err


def test_gc(kfm: Kfm, begun: Path, valid: Valid) -> None:
    """Without options a list; removal only where it is asked for, with a rationale."""
    (begun / "kfm.yml").write_text((begun / "kfm.yml").read_text() + "limits: {versions_kept: 1}\n")
    assert kfm("run").code == 0
    assert kfm("gc").out == "nothing to remove; 1 object is kept\n"
    with (begun / "incoming" / "readings.csv").open("a") as file:
        file.write("south,2026-01-01T12:00:00Z,0.86\n")
    assert kfm("run").code == 0
    for path in (begun / ".kfm" / "objects").rglob("*"):
        os.utime(path, (0, 0))
    listed = kfm("gc", "--grace", "0")
    assert listed.code == 0
    assert listed.out.startswith("would remove 1 object, 0 leftovers and 1 old version at targets: 156 B; 1 ")
    assert listed.err == "remove it with: kfm gc --apply --grace 0 --rationale TEXT\n"
    document = kfm("gc", "--grace", "0", "--dry-run", "--json").document
    valid("gc", document)
    assert document["dry_run"]
    assert len(document["objects"]) == 1
    for flags, code in ((("--apply",), 3), (("--yes",), 3), (("--apply", "--dry-run"), 2)):
        assert kfm("gc", "--grace", "0", *flags).code == code
    assert len(kfm("gc", "--grace", "0", "--json").document["objects"]) == 1
    removed = kfm("gc", "--grace", "0", "--apply", "--rationale", "housekeeping", "--json").document
    valid("gc", removed)
    assert not removed["dry_run"]
    assert removed["removed"]["objects"] == 1
    assert kfm("gc", "--grace", "0", "--yes", "--rationale", "again").out.startswith("nothing to remove")
    assert kfm("run").out.startswith("unchanged")


@pytest.mark.req("TRG-4")
def test_project_fills_a_target_that_was_emptied(kfm: Kfm, begun: Path) -> None:
    """`kfm project` looks at the target itself, also where the ledger believes that it is up to date."""
    assert kfm("run").code == 0
    before = files_of(begun / "published")
    assert before
    shutil.rmtree(begun / "published")
    for _ in range(2):
        assert kfm("project") == Called(0, "shown     example-readings  local  version 1\n", "")
        assert files_of(begun / "published") == before


def test_doctor(kfm: Kfm, begun: Path, valid: Valid) -> None:
    """A healthy project: every line is ok, as JSON the same."""
    called = kfm("doctor", "--json")
    assert called.code == 0, called.out
    valid("doctor", called.document)
    names = {check["name"] for check in called.document["checks"]}
    assert {"config", "clock", "state", "store", "contract", "policies", "targets", "sources"} <= names
    assert "0 failures" in kfm("doctor").out


def _unreadable_secret(folder: Path) -> None:
    text = (folder / "kfm.yml").read_text()
    headers = "headers: {Authorization: 'env:NONE_SUCH'}"
    source = f"{{id: web, dataset: example-readings, kind: http, url: 'http://127.0.0.1:9/', {headers}}}"
    (folder / "kfm.yml").write_text(text.replace("sources:\n", f"sources:\n  - {source}\n"))


@pytest.mark.parametrize(
    ("harm", "code", "name", "sentence"),
    [
        (
            lambda f: (f / "incoming" / "readings.csv").unlink() or (f / "incoming").rmdir(),
            4,
            "sources",
            "no folder",
        ),
        (_unreadable_secret, 1, "secrets", "The environment variable NONE_SUCH is not set."),
        (
            lambda f: (f / "contracts" / "example.odcs.yaml").write_text("kind: x\n"),
            1,
            "contract",
            "example.odcs.yaml",
        ),
        (lambda f: (f / ".kfm").mkdir() or (f / ".kfm").chmod(0o777), 1, "state", "can be written by others"),
        (
            lambda f: ((f / ".kfm").mkdir(mode=0o700), (f / ".kfm" / "kfm.db").write_bytes(b"x" * 5000)),
            4,
            "store",
            "kfm.db",
        ),
    ],
)
def test_doctor_finds_what_is_wrong(
    kfm: Kfm, begun: Path, valid: Valid, harm: Callable[[Path], Any], code: int, name: str, sentence: str
) -> None:
    """Each ailment is a failing line with a way to put it right."""
    harm(begun)
    called = kfm("doctor", "--json", *([] if name == "sources" else ["--offline"]))
    valid("doctor", called.document)
    failed = [check for check in called.document["checks"] if check["state"] == "fail"]
    assert any(check["name"] == name and sentence in check["message"] and check["fix"] for check in failed)
    assert called.code == code


def test_doctor_warns_of_a_ledger_that_others_can_read(kfm: Kfm, begun: Path) -> None:
    """A ledger outside the state folder that was made readable is named, with the command that closes it."""
    (begun / "kfm.yml").write_text("store: sqlite:ledger.db\n" + (begun / "kfm.yml").read_text())
    assert kfm("run").code == 0
    begun.chmod(0o755)
    assert "others can read" not in kfm("doctor", "--offline").out
    (begun / "ledger.db").chmod(0o644)
    called = kfm("doctor", "--offline")
    assert (called.code, f"others can read {begun}/ledger.db" in called.out) == (0, True)
    assert f"chmod 600 {begun}/ledger.db" in called.out


def test_doctor_warns_of_misspelt_variables(kfm: Kfm, begun: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable that means nothing is named with the one that was meant; that is no failure."""
    monkeypatch.setenv("KFM_STROE", "x")
    called = kfm("doctor", "--offline")
    assert called.code == 0
    assert "KFM_STROE means nothing to kfm; did you mean `KFM_STORE`?" in called.out


S3_TARGET = """
  - kind: s3
    url: s3://pub/k
    options: {%s}
"""
NO_BUCKET = b"<?xml version='1.0'?><Error><Code>NoSuchBucket</Code><BucketName>pub</BucketName></Error>"
NOTHING = b"<?xml version='1.0'?><ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>"


def _publish_to_s3(folder: Path, options: str) -> None:
    text = (folder / "kfm.yml").read_text()
    (folder / "kfm.yml").write_text(text.replace("publish:\n", "publish:" + S3_TARGET % options))


@pytest.mark.req("CLI-2", "UPD-6")
@pytest.mark.parametrize("command", [("config", "check"), ("run",), ("doctor", "--offline")])
def test_a_wrong_option_of_a_bucket_is_named_with_its_line(
    kfm: Kfm, begun: Path, command: tuple[str, ...]
) -> None:
    """Before anything is done, with the word that was meant, and not as a panic of a library."""
    _publish_to_s3(begun, "aws_regoin: us-east-1")
    lines = (begun / "kfm.yml").read_text().splitlines()
    line = next(number for number, text in enumerate(lines, 1) if "regoin" in text)
    called = kfm(*command)
    assert called.code == 2
    assert f"kfm.yml:{line}: " in called.err
    assert "did you mean `aws_region`?" in called.err
    assert "panic" not in called.err


@pytest.mark.req("UPD-6")
@pytest.mark.parametrize(("status", "body", "state"), [(404, NO_BUCKET, "fail"), (200, NOTHING, "ok")])
def test_doctor_tries_a_bucket(kfm: Kfm, begun: Path, status: int, body: bytes, state: str) -> None:
    """Its list is asked for, as a target would be; a bucket that is not there is told as such."""
    pytest.importorskip("obstore")
    with unruly_server() as store:
        store.on("/pub", Answer(status, body, {"Content-Type": "application/xml"}))
        _publish_to_s3(begun, f"region: us-east-1, skip_signature: 'true', endpoint: '{store.url}'")
        called = kfm("doctor", "--json")
    (told,) = [check for check in called.document["checks"] if check["name"] == "buckets"]
    assert told["state"] == state, told
    assert ("There is no bucket s3://pub/k." in told["message"]) == (state == "fail")
    assert called.code == (4 if state == "fail" else 0)
    assert {asked.method for asked in store.asked} == {"GET"}


@pytest.mark.req("UPD-6")
def test_a_run_says_that_the_bucket_is_missing(kfm: Kfm, begun: Path) -> None:
    """Not that some file in it is."""
    pytest.importorskip("obstore")
    with unruly_server() as store:
        store.otherwise = Answer(404, NO_BUCKET, {"Content-Type": "application/xml"})
        _publish_to_s3(begun, f"region: us-east-1, skip_signature: 'true', endpoint: '{store.url}'")
        called = kfm("run")
    assert "There is no bucket s3://pub/k." in called.err + called.out


@pytest.mark.req("TRG-8", "UPD-16")
def test_the_true_origin_is_recorded(kfm: Kfm, begun: Path) -> None:
    """An input names the address that answered where a redirect led there: in ledger, lineage, provenance."""
    with unruly_server() as upstream:
        upstream.file("/true.csv", b"a,b\n1,2\n")
        there = f"{upstream.url}/true.csv".replace("127.0.0.1", "localhost")
        url = upstream.on("/data.csv", Answer(302, headers={"Location": f"{there}?X-Amz-Signature=s3cr3t"}))
        source = f"  - {{id: web, dataset: example-readings, kind: http, url: '{url}', allow: [localhost]}}\n"
        text = (begun / "kfm.yml").read_text()
        (begun / "kfm.yml").write_text(text.replace("sources:\n", "sources:\n" + source))
        called = kfm("run", "--source", "web", "--json")
    assert called.code == 0, called.err
    origin = f"{there}?X-Amz-Signature=***"
    ledger = sqlite3.connect(begun / ".kfm" / "kfm.db")
    (found,) = ledger.execute("SELECT found FROM inputs").fetchone()
    assert json.loads(found)[0]["origin"] == origin
    (run_id,) = ledger.execute("SELECT run_id FROM runs").fetchone()
    ledger.close()
    events = [json.loads(line) for line in kfm("lineage", "show", run_id, "--events").out.splitlines()]
    contents = [one["facets"]["kfmContent"] for event in events for one in event["inputs"]]
    assert origin in {content.get("origin") for content in contents}
    told = kfm("lineage", "prov", run_id).out
    assert "true.csv" in told
    assert "s3cr3t" not in told + found


@pytest.mark.req("CLI-2")
def test_doctor_gives_no_secret_away(kfm: Kfm, begun: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A redirect to another host gets none of the secret headers; a proxy of the environment gets nothing."""
    with unruly_server() as upstream, unruly_server() as other, unruly_server() as proxy:
        stranger = other.on("/there", Answer()).replace("127.0.0.1", "localhost")
        url = upstream.on("/data", Answer(302, headers={"Location": stranger}))
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        monkeypatch.setenv("UPSTREAM_KEY", "s3cr3t-key-value")
        text = (begun / "kfm.yml").read_text()
        source = (
            f"  - {{id: web, dataset: example-readings, kind: http, url: '{url}', allow: [localhost],"
            " headers: {X-Api-Key: 'env:UPSTREAM_KEY', Private-Token: 'env:UPSTREAM_KEY'}}\n"
        )
        (begun / "kfm.yml").write_text(text.replace("sources:\n", "sources:\n" + source))
        called = kfm("doctor", "--json")
    assert proxy.asked == []
    assert [asked.headers.get("x-api-key") for asked in upstream.asked] == ["s3cr3t-key-value"]
    assert len(other.asked) == 1
    assert not {"x-api-key", "private-token"} & set(other.asked[0].headers)
    told = {check["message"] for check in called.document["checks"] if check["name"] == "reach"}
    assert told == {
        "web: beside public addresses it may reach 127.0.0.1 (its own address), localhost (`allow`)"
    }


@pytest.mark.req("UPD-16")
def test_doctor_tells_of_a_redirect_that_a_run_would_refuse(kfm: Kfm, begun: Path) -> None:
    """It asks through the same client as a run, and names the setting that would allow it."""
    with unruly_server() as upstream:
        url = upstream.on(
            "/data", Answer(302, headers={"Location": "http://169.254.169.254/latest/meta-data"})
        )
        text = (begun / "kfm.yml").read_text()
        source = f"  - {{id: web, dataset: example-readings, kind: http, url: '{url}'}}\n"
        (begun / "kfm.yml").write_text(text.replace("sources:\n", "sources:\n" + source))
        called = kfm("doctor", "--json")
    failed = [check for check in called.document["checks"] if check["state"] == "fail"]
    assert "169.254.169.254" in failed[0]["message"]
    assert "`allow`" in failed[0]["fix"]


def test_doctor_asks_addresses(kfm: Kfm, begun: Path, valid: Valid, monkeypatch: pytest.MonkeyPatch) -> None:
    """An address is asked with HEAD, as a run would; not at all where a run would be refused."""
    import threading
    from http.server import BaseHTTPRequestHandler, HTTPServer

    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            asked.append(f"{self.command} {self.path}")
            place = self.path.partition("?")[0]
            self.send_response({"/ok": 200, "/gone": 404, "/closed": 403, "/broken": 503}[place])
            self.end_headers()

        def log_message(self, *_: Any) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    base = f"http://127.0.0.1:{server.server_port}"
    sources = "".join(
        f"  - {{id: {name}, dataset: example-readings, kind: http, url: '{base}/{name}'}}\n"
        for name in ("gone", "closed", "broken")
    )
    sources += (
        f"  - {{id: ok, dataset: example-readings, kind: http, url: '{base}/ok', window: P1D, "
        "params: {day: '{window.start:%Y}', key: 'env:ANY_KEY'}}\n"
        f"  - {{id: secret, dataset: secret, kind: http, url: '{base}/never'}}\n"
    )
    monkeypatch.setenv("ANY_KEY", "k1")
    sources += "  - {id: dead, dataset: example-readings, kind: http, url: 'http://127.0.0.1:9/x'}\n"
    text = (begun / "kfm.yml").read_text()
    blocked = "{license: CC0-1.0, care: {label: Closed, level: blocked}}"
    text = text.replace(
        "datasets:\n", f"datasets:\n  - {{id: secret, domain: hydrology, rights: {blocked}}}\n"
    )
    (begun / "kfm.yml").write_text(text.replace("sources:\n", f"sources:\n{sources}"))
    try:
        called = kfm("doctor", "--json")
    finally:
        server.shutdown()
        server.server_close()
    valid("doctor", called.document)
    states = {
        check["message"].split(":")[0]: check["state"]
        for check in called.document["checks"]
        if check["name"] == "sources"
    }
    assert states == {
        "ok": "ok",
        "gone": "warn",
        "closed": "fail",
        "broken": "fail",
        "dead": "fail",
        "secret": "warn",
        "readings": "ok",
    }
    assert called.code == 4
    year = datetime.now(UTC).year
    *others, last = asked
    assert others == ["HEAD /gone", "HEAD /closed", "HEAD /broken"]
    assert last in [f"HEAD /ok?day={each}&key=k1" for each in (year - 1, year)]
    assert "k1" not in called.out
    assert "secret: not asked, because a run would be refused: The dataset" in called.out


def test_output_is_clean_on_a_pipe(begun: Path, process: Kfm) -> None:
    """Data on stdout, messages and progress on stderr, also when both go to files."""
    called = process("run", "--json", cwd=begun)
    assert called.code == 0
    assert called.document["exit_code"] == 0
    assert "\x1b" not in called.out + called.err


def test_long_output_goes_through_the_pager(begun: Path) -> None:
    """On a terminal, what does not fit goes through PAGER; without one it is simply printed."""
    import pty
    import sys

    for pager, wanted in (("sed s/^/paged:/", True), ("", False)):
        leader, follower = pty.openpty()
        environ = {**os.environ, "PAGER": pager, "LINES": "10", "COLUMNS": "80"}
        command = [sys.executable, "-m", "kfm", "config", "show"]
        streams = {"stdin": follower, "stdout": follower}
        subprocess.run(command, cwd=begun, env=environ, check=True, timeout=60, **streams)
        os.close(follower)
        shown = os.read(leader, 65536)
        os.close(leader)
        assert (b"paged:SETTING" in shown) is wanted
        assert b"SETTING" in shown


def test_steps_on_a_terminal(begun: Path) -> None:
    """On a terminal the steps are told with their times on stderr, and stdout stays data."""
    import pty
    import sys

    leader, follower = pty.openpty()
    done = subprocess.run(
        [sys.executable, "-m", "kfm", "run"],
        stdout=subprocess.PIPE,
        stderr=follower,
        cwd=begun,
        check=False,
        timeout=60,
    )
    os.close(follower)
    drawn = os.read(leader, 65536)
    os.close(leader)
    assert done.returncode == 0
    assert done.stdout.decode().startswith("published")
    assert re.search(rb"fetch .+ transform .+ validate .+ publish .+s", drawn)


@pytest.mark.req("UPD-4")
@pytest.mark.parametrize("name", ["runs.jsonl", "runs.parquet", "runs.feather"])
def test_the_ledger_as_a_file(kfm: Kfm, begun: Path, name: str) -> None:
    """`kfm runs --export FILE` writes the whole ledger in the form that the name asks for."""
    kfm("run")
    called = kfm("runs", "--export", name)
    assert (called.code, called.out) == (0, f"{name}: 1 run\n")
    assert (begun / name).stat().st_size > 0
    assert kfm("runs", "--export", "runs.xlsx").code == 2


@pytest.mark.req("UPD-4")
@pytest.mark.parametrize("form", ["jsonl", "parquet", "feather"])
def test_the_export_has_times_as_text_and_every_invocation(kfm: Kfm, begun: Path, form: str) -> None:
    """Rows of runs have `start_time_utc` and `end_time_utc`; each call is a row of its own export."""
    kfm("run")
    kfm("run")  # a call that became no run
    assert kfm("runs", "--export", f"runs.{form}").code == 0
    called = kfm("runs", "--export", f"calls.{form}", "--invocations")
    assert (called.code, called.out) == (0, f"calls.{form}: 2 invocations\n")
    runs, calls = exported(begun / f"runs.{form}"), exported(begun / f"calls.{form}")
    (run,) = runs
    for name in ("start_time", "end_time", "window_start", "window_end"):
        assert parse_rfc3339(run[f"{name}_utc"]) == run[f"{name}_ms"]
    assert [(call["run_id"], call["outcome"]) for call in calls] == [
        (run["run_id"], "success"),
        (run["run_id"], "noop"),
    ]
    assert all(parse_rfc3339(call["requested_at_utc"]) == call["requested_at_ms"] for call in calls)
    assert json.loads(calls[0]["gates"])
    assert kfm("runs", "--invocations").code == 2


def exported(path: Path) -> list[dict[str, Any]]:
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text().splitlines()]
    from arro3.io import read_ipc, read_parquet

    table = (read_parquet if path.suffix == ".parquet" else read_ipc)(str(path)).read_all()
    columns = {name: table[name].to_pylist() for name in table.column_names}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
