"""`kfm lineage` on the real kernel: what runs leave, where it goes, and what happens when it can't."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from kfm.model.errors import BackendUnavailable
from tests.acceptance.cli.conftest import CONFIG, Called
from tests.unit.lineage.samples import validator

Kfm = Callable[..., Called]
Valid = Callable[[str, Any], None]
EVENTS = ".kfm/lineage/openlineage.jsonl"


@pytest.fixture(autouse=True)
def _no_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "OPENLINEAGE_URL",
        "OPENLINEAGE_API_KEY",
        "OPENLINEAGE_DISABLED",
        "OPENLINEAGE__TRANSPORT__TYPE",
    ):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def ran(kfm: Kfm, project: Path) -> str:
    """A project in which one source was published; the id of the run."""
    (project / "incoming" / "a.csv").write_text("a\n1\n")
    called = kfm("run", "--source", "daily", "--json")
    assert called.code == 0, called.err
    run_id: str = called.document["results"][0]["run_id"]
    return run_id


@pytest.fixture
def dead_url() -> Iterator[str]:
    """An address at which no process listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


def use(project: Path, text: str) -> None:
    (project / "kfm.yml").write_text(CONFIG + text)


@pytest.mark.req("UPD-15", "TRG-8")
def test_a_run_leaves_a_file_of_valid_events(kfm: Kfm, project: Path, ran: str) -> None:
    """Each attempt of the run and its nodes has one start and one end, all valid, in the default file."""
    lines = (project / EVENTS).read_text(encoding="utf-8").splitlines()
    events = [json.loads(line) for line in lines]
    ids: dict[str, list[str]] = {}
    for event in events:
        validator().validate(event)
        ids.setdefault(event["run"]["runId"], []).append(event["eventType"])
    assert set(map(tuple, ids.values())) == {("START", "COMPLETE")}
    assert {event["job"]["name"] for event in events} == {
        "daily",
        "daily.fetch",
        "daily.transform",
        "daily.validate",
        "daily.publish",
    }
    assert {event["job"]["namespace"] for event in events} == {"kfm.test"}
    whole = next(e for e in events if e["job"]["name"] == "daily" and e["eventType"] == "COMPLETE")
    assert whole["inputs"][0]["name"] == str(project / "incoming" / "a.csv")
    assert whole["outputs"][0]["name"] == str(project / "published" / "levels")


@pytest.mark.req("UPD-15")
def test_events_are_shown_as_a_table_and_byte_for_byte(
    kfm: Kfm, project: Path, ran: str, valid: Valid
) -> None:
    """People see attempts; programs get the stored bytes."""
    table = kfm("lineage", "show", ran[:13])
    assert table.code == 0
    assert [line.split()[:2] for line in table.out.splitlines()[1:]] == [
        ["1", "run"],
        ["1", "fetch"],
        ["1", "transform"],
        ["1", "validate"],
        ["1", "publish"],
    ]
    assert table.out.count(" COMPLETE ") == 5
    document = kfm("lineage", "show", ran, "--json").document
    valid("lineage-show", document)
    assert document["subject"] == ran
    assert all(event["delivered_at"] for event in document["events"])
    stored = (project / EVENTS).read_text(encoding="utf-8")
    assert kfm("lineage", "show", ran, "--events").out == stored
    assert kfm("lineage", "show", ran, "--events", "-o", "jsonl").out == stored
    array = kfm("lineage", "show", ran, "--events", "--json")
    assert array.document == [json.loads(line) for line in stored.splitlines()]


def test_a_run_that_is_not_there_is_a_mistake(kfm: Kfm, project: Path) -> None:
    """Of an unknown run nothing is shown, and the way out is named."""
    called = kfm("lineage", "show", "0123456789")
    assert called.code == 2
    assert "kfm runs" in called.err


@pytest.mark.req("TRG-8")
def test_a_refused_call_can_be_shown(kfm: Kfm, project: Path, ran: str, valid: Valid) -> None:
    """An invocation that a switch refused left a start and an abort, and is found by its own id."""
    assert kfm("switch", "set", "paused", "--all", "--rationale", "test").code == 0
    (project / "incoming" / "a.csv").write_text("a\n2\n")
    assert kfm("run", "--source", "hourly").code == 3
    last = json.loads((project / EVENTS).read_text(encoding="utf-8").splitlines()[-1])
    assert last["eventType"] == "ABORT"
    call_id = last["run"]["facets"]["kfmRunState"]["invocation_id"]
    shown = kfm("lineage", "show", call_id, "--json").document
    valid("lineage-show", shown)
    assert [event["event_type"] for event in shown["events"]] == ["START", "ABORT"]
    assert "refused invocation" in kfm("lineage", "show", call_id).out
    assert "refused invocation" in kfm("lineage", "show", call_id[:-4]).out
    assert kfm("lineage", "prov", call_id[:-4]).out == kfm("lineage", "prov", call_id).out


def test_a_seal_that_fails_does_not_fail_the_run(
    kfm: Kfm, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What comes after the report may be told as trouble; the exit code is the work's."""

    def busy(*_: Any) -> list[Any]:
        raise BackendUnavailable("The ledger is busy.")

    monkeypatch.setattr("kfm.audit.chain.seal_all", busy)
    (project / "incoming" / "a.csv").write_text("a\n3\n")
    called = kfm("run", "--source", "hourly")
    assert called.code == 0
    assert "evidence: " in called.err
    assert "The ledger is busy." in called.err


@pytest.mark.req("UPD-15")
def test_a_dead_collector_delays_and_loses_nothing(
    kfm: Kfm, project: Path, valid: Valid, dead_url: str
) -> None:
    """A run succeeds while its collector is down; its events wait, and go out when there is one."""
    pytest.importorskip("openlineage.client")
    use(project, f"lineage: {{export: http, url: {dead_url!r}}}\n")
    (project / "incoming" / "a.csv").write_text("a\n1\n")
    called = kfm("run", "--source", "daily")
    assert called.code == 0
    assert len([line for line in called.err.splitlines() if line.startswith("lineage: ")]) == 1
    status = kfm("lineage", "status", "--json").document
    valid("lineage-status", status)
    assert (status["to"], status["waiting"]) == (dead_url, 10)
    failed = kfm("lineage", "deliver", "--json")
    valid("lineage-deliver", failed.document)
    assert (failed.code, failed.document["sent"], failed.document["waiting"]) == (4, 0, 10)
    assert "fix:" in failed.err
    assert "10 events waiting" in kfm("lineage", "status").out

    arrived: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            arrived.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(201)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            return

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        use(project, f"lineage: {{export: http, url: 'http://127.0.0.1:{server.server_address[1]}'}}\n")
        back = kfm("lineage", "deliver", "--wait")
        assert back.code == 0, back.err
        assert back.out.startswith("10 events sent to http://127.0.0.1")
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    run_id = kfm("runs", "--json").document["runs"][0]["run_id"]
    assert b"\n".join(arrived).decode() + "\n" == kfm("lineage", "show", run_id, "--events").out
    assert kfm("lineage", "deliver").out == "nothing was waiting\n"


def test_waiting_has_an_end(kfm: Kfm, project: Path, dead_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """--wait gives up after --timeout, and says what it waits for once."""
    pytest.importorskip("openlineage.client")
    from kfm.system import SystemClock

    passed = [0]
    monkeypatch.setattr(SystemClock, "monotonic_ms", lambda _self: passed[0])
    monkeypatch.setattr(SystemClock, "sleep_ms", lambda _self, ms: passed.__setitem__(0, passed[0] + ms))
    use(project, f"lineage: {{export: http, url: {dead_url!r}}}\n")
    (project / "incoming" / "a.csv").write_text("a\n1\n")
    assert kfm("run", "--source", "daily").code == 0
    called = kfm("lineage", "deliver", "--wait", "--timeout", "5")
    assert called.code == 4
    assert passed[0] >= 5000
    assert called.err.count("waiting:") == 1


def test_the_environment_names_the_collector(
    kfm: Kfm, project: Path, dead_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OPENLINEAGE_URL beats the file; a disabled client means that nothing goes anywhere."""
    monkeypatch.setenv("OPENLINEAGE_URL", dead_url)
    assert kfm("lineage", "status", "--json").document["to"] == dead_url
    monkeypatch.setenv("OPENLINEAGE_DISABLED", "true")
    assert kfm("lineage", "status", "--json").document["to"] is None
    monkeypatch.delenv("OPENLINEAGE_DISABLED")
    monkeypatch.delenv("OPENLINEAGE_URL")
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__TYPE", "kafka")
    status = kfm("lineage", "status", "--json")
    assert status.document["to"] == str(project / EVENTS)
    assert status.document["ignored"] == "kafka"
    assert "kafka" in status.err


def test_without_lineage_there_are_no_events(kfm: Kfm, project: Path) -> None:
    """`export: none` leaves nothing, and asking for a delivery says why there is none."""
    use(project, "lineage: {export: none}\n")
    (project / "incoming" / "a.csv").write_text("a\n1\n")
    assert kfm("run", "--source", "daily").code == 0
    run_id = kfm("runs", "--json").document["runs"][0]["run_id"]
    assert "no events" in kfm("lineage", "show", run_id).out
    assert kfm("lineage", "status").out.startswith("events go nowhere")
    called = kfm("lineage", "deliver")
    assert called.code == 2
    assert "lineage.export" in called.err
    assert not (project / EVENTS).exists()


@pytest.mark.req("RS-13")
def test_a_masked_dataset_is_masked_in_the_file(kfm: Kfm, project: Path) -> None:
    """Of a restricted dataset neither its id, nor its source, nor its files are in any event."""
    text = CONFIG.replace("care: {label: Public}", "care: {label: Private, level: restricted}")
    (project / "kfm.yml").write_text(text.replace("levels", "burial-mounds").replace("daily", "mounds-daily"))
    (project / "incoming" / "secret-place.csv").write_text("a\n1\n")
    kfm("run", "--source", "mounds-daily")
    body = (project / EVENTS).read_text(encoding="utf-8")
    for word in ("mounds", "secret-place", "incoming", str(project)):
        assert word not in body
    assert '"masked-' in body
