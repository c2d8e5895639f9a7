"""A project that has queues and nothing else: commands speak of what there is, not of what is missing."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

CONFIG = """\
version: 1
environment: test
ingest:
  queues:
    - {name: spool, kind: folder, path: spool}
"""
RECORD = {
    "eventVersion": "2.1",
    "eventSource": "aws:s3",
    "eventTime": "2026-01-01T00:00:00.000Z",
    "eventName": "ObjectCreated:Put",
    "s3": {
        "bucket": {"name": "noaa-mrms-pds"},
        "object": {
            "key": "CONUS/PrecipRate_00.00/20260101/MRMS_PrecipRate_00.00_20260101-000000.grib2.gz",
            "size": 1,
            "eTag": "e",
            "sequencer": "01",
        },
    },
}

Kfm = Callable[..., Any]


@pytest.fixture
def spool(project: Path) -> Path:
    (project / "kfm.yml").write_text(CONFIG)
    folder = project / "spool"
    folder.mkdir()
    return folder


def test_status_names_the_command_that_helps(spool: Path, kfm: Kfm) -> None:
    """Without sources `kfm run` has nothing to do: the first line says so, and no empty table follows."""
    assert kfm("status").out.splitlines()[0] == "nothing was taken in yet: kfm worker"
    (spool / "one.json").write_text(json.dumps({"Records": [RECORD]}))
    kfm("worker", "--until-idle")
    assert list(spool.iterdir()) == []  # nothing of the worker's own stays, either
    lines = kfm("status").out.splitlines()
    assert lines[0] == "all clear"
    assert "announced objects:" in lines
    assert not any("LAST RUN" in line for line in lines)


def test_configuration_is_told_with_its_queues(spool: Path, kfm: Kfm) -> None:
    """The check counts queues; whether signatures are asked for is no secret."""
    assert "1 queue" in kfm("config", "check").out
    shown = kfm("config", "show", "--json").document["settings"]["ingest"]["queues"][0]
    assert shown["signatures"] == "off"
    assert "***" not in kfm("config", "show").out


def test_doctor_misses_no_target(spool: Path, kfm: Kfm) -> None:
    """Where nothing is published, no target is missing."""
    assert "no target" not in kfm("doctor").out


@pytest.mark.parametrize("ask", ["integrity: head", "metadata: header"])
def test_a_missing_extra_is_told_before_anything_is_claimed(
    spool: Path, kfm: Kfm, monkeypatch: pytest.MonkeyPatch, ask: str
) -> None:
    """A policy that has buckets read needs the client for it; the message stays in the queue."""
    monkeypatch.setitem(sys.modules, "obstore", None)
    with (spool.parent / "kfm.yml").open("a") as file:
        file.write(f"  policies: [{{datasets: [mrms], {ask}}}]\n")
    (spool / "one.json").write_text(json.dumps({"Records": [RECORD]}))
    answer = kfm("worker", "--until-idle")
    assert answer.code == 2
    assert "pip install 'kfm[objects]'" in answer.err
    assert (spool / "one.json").exists()
    assert "fail  extras: objects is needed" in kfm("doctor").out


def test_options_that_no_client_takes_are_told_before_anything_is_claimed(spool: Path, kfm: Kfm) -> None:
    """A slip in `object_options` would otherwise be every unit's trouble."""
    with (spool.parent / "kfm.yml").open("a") as file:
        file.write("  policies: [{datasets: [mrms], integrity: head}]\n")
        file.write('  object_options: {"s3://*": {regoin: us-east-1}}\n')
    (spool / "one.json").write_text(json.dumps({"Records": [RECORD]}))
    answer = kfm("worker", "--until-idle")
    assert answer.code == 2
    assert "regoin" in answer.err
    assert (spool / "one.json").exists()


@pytest.mark.parametrize("options", ['queues: [{name: q, url: "https://sqs.us-east-1.amazonaws.com/1/q", '
    'options: {endpoint_url: "http://me:hunter2@h"}}]',
    'object_options: {"s3://*": {endpoint: "http://me:hunter2@h"}}'])  # fmt: skip
def test_credentials_in_an_endpoint_are_refused_and_not_shown(project: Path, kfm: Kfm, options: str) -> None:
    """An address among options is an address like any other."""
    (project / "kfm.yml").write_text(f"version: 1\ningest:\n  {options}\n")
    answer = kfm("config", "show")
    assert answer.code == 2
    assert "holds credentials" in answer.err
    assert "hunter2" not in answer.out + answer.err


def test_a_path_that_no_file_system_takes_is_a_wrong_setting(spool: Path, kfm: Kfm) -> None:
    """It is told with its line, and is no defect."""
    (spool.parent / "kfm.yml").write_text(CONFIG.replace("path: spool", 'path: "spo\\0ol"'))
    answer = kfm("worker", "--once")
    assert (answer.code, "kfm.yml:5" in answer.err) == (2, True)


def test_a_dead_message_does_not_command_a_terminal(
    spool: Path, kfm: Kfm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its bytes go to a pipe as they are; a terminal gets none that it would obey."""
    (spool / "odd.json").write_text("not \x1b[31mJSON\nat all")
    kfm("worker", "--until-idle")
    (one,) = kfm("nodd", "dead", "list", "--json").document["dead"]
    said = ("nodd", "dead", "show", one["message"].removeprefix("sha256:"), "--body")
    assert kfm(*said).out == "not \x1b[31mJSON\nat all\n"
    monkeypatch.setattr("kfm.cli.nodd.is_terminal", lambda: True)
    assert kfm(*said).out == "not  [31mJSON\nat all\n"


def test_a_worker_leaves_alone_what_only_others_know(spool: Path, kfm: Kfm) -> None:
    """Workers with different configurations may share a ledger: one that does not know a dataset says so."""
    known = spool.parent / "knows.yml"
    known.write_text(CONFIG + "  generic: [{bucket: own, dataset: own-data}]\n")
    record = json.loads(json.dumps(RECORD))
    record["s3"]["bucket"]["name"] = "own"
    (spool / "one.json").write_text(json.dumps({"Records": [record]}))
    kfm("switch", "set", "paused", "--dataset", "own-data", "--rationale", "not yet", "-c", str(known))
    kfm("worker", "--until-idle", "-c", str(known))
    kfm("switch", "set", "running", "--dataset", "own-data", "--rationale", "now", "-c", str(known))
    report = kfm("worker", "--until-idle", "--json").document
    assert (report["waiting"], report["tasks"]["failed"]) == (1, 0)
    assert "ingest.generic" in report["blocked"]["own-data"]
    report = kfm("worker", "--until-idle", "--json", "-c", str(known)).document
    assert (report["waiting"], report["tasks"]["succeeded"]) == (0, 1)


@pytest.mark.parametrize("rate", ["nan", "inf"])
def test_a_rate_is_a_number(spool: Path, kfm: Kfm, rate: str) -> None:
    """What no clock can keep is bad usage, not a defect."""
    answer = kfm("worker", "--once", "--rate", rate)
    assert (answer.code, "--rate" in answer.err) == (2, True)


def test_an_input_that_is_closed_is_told(spool: Path, kfm: Kfm, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some who start programs close their input."""
    monkeypatch.setattr("sys.stdin", None)
    answer = kfm("worker", "--once", "--stdin")
    assert (answer.code, "Standard input is closed" in answer.err) == (2, True)
