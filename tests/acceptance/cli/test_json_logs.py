"""`--log-format json`: one object a line on stderr, whatever there is to say."""

from __future__ import annotations

import io
import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema_rs
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfm.cli import logs
from kfm.cli.command_line import COMMANDS
from kfm.cli.logs import JsonLog, wanted_log_format
from kfm.cli.process import Stream, forgiving
from kfm.model.keys import attempt_id
from kfm.telemetry import log_records
from tests.acceptance.cli.conftest import SCHEMAS, Called
from tests.acceptance.cli.fakes import FakeApp, make_run

Kfm = Callable[..., Called]

VALIDATOR = jsonschema_rs.validator_for(json.loads((SCHEMAS / "log-line.schema.json").read_text()))
NOW_MS = 1_767_225_600_125


def lines_of(text: str) -> list[dict[str, Any]]:
    """Every line as an object, checked against its schema, read as strictly as can be."""
    found = []
    for line in text.splitlines():
        found.append(msgspec.json.decode(line))
        VALIDATOR.validate(found[-1])
    return found


@pytest.fixture
def begun(kfm: Kfm, project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("KFM_LOG_FORMAT", raising=False)
    folder = project / "new"
    assert kfm("init", str(folder)).code == 0
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.req("TRG-9", "UPD-15")
def test_messages_of_a_run_carry_its_ids(kfm: Kfm, begun: Path) -> None:
    """While a run is under way every message has the ids of run, attempt, trace, dataset and source."""
    called = kfm("run", "--verbose", "--log-format", "json")
    assert called.code == 0
    told = lines_of(called.err)
    assert [line["phase"] for line in told if line["message"].startswith("fetch:")] == ["fetch", "fetch"]
    (run_id,) = {line["run_id"] for line in told}
    assert {line["trace_id"] for line in told} == {attempt_id(run_id, 1).replace("-", "")}
    assert {(line["attempt"], line["dataset"], line["source"]) for line in told} == {
        (1, "example-readings", "readings")
    }
    (folder,) = (begun / ".kfm" / "runs").glob("*/attempt-*")
    for name in ("run.jsonl", "event_log.jsonl"):
        written = [json.loads(line) for line in (folder / name).read_text().splitlines()]
        assert {line["trace_id"] for line in written} == {told[0]["trace_id"]}
    assert log_records.current() == log_records.NOTHING, "the ids end with the run"


def test_results_are_not_touched(kfm: Kfm, begun: Path) -> None:
    """Standard output is the same; only messages change their form."""
    assert kfm("status", "--log-format=json").out.splitlines()[0] == kfm("status").out.splitlines()[0]


def test_errors_have_a_level(kfm: Kfm, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What went wrong is an error, the way out is information; the variable works as the flag does."""
    monkeypatch.setenv("KFM_LOG_FORMAT", "json")
    called = kfm("run", "--source", "nope")
    assert called.code == 2
    error, fix = lines_of(called.err)
    assert (error["level"], fix["level"]) == ("error", "info")
    assert error["message"].startswith("error KFM2")
    assert error["time"].endswith("Z")
    assert lines_of(kfm("run", "--nonsense").err)[0]["level"] == "error"
    assert kfm("status", "--log-format", "text", "-c", "gone.yml").err.startswith("error KFM2")


def test_failed_runs_are_told_with_their_ids(kfm: Kfm, app: FakeApp, project: Path) -> None:
    """Messages about a result carry the ids of its run, although it is over."""
    from kfm.cli.run import remark
    from kfm.cli.session import CommandSession
    from kfm.runs.kernel import RunReport

    run = make_run(attempts=2)
    report = RunReport(
        outcome="failed", word="failed", source_id="daily", dataset_id="levels", window_start_ms=0,
        window_end_ms=1, invocation_id=None, reason="because", run=run,
    )  # fmt: skip
    said = io.StringIO()
    before, sys.stderr = sys.stderr, Stream(said, json_log=JsonLog(lambda: NOW_MS))
    try:
        remark(CommandSession(), report)
    finally:
        sys.stderr = before
    (line,) = lines_of(said.getvalue())
    assert (line["run_id"], line["attempt"], line["dataset"]) == (run.run_id, 2, "levels")


def test_an_unknown_format_is_refused(kfm: Kfm, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A misspelt format is an error, in the flag and in the variable."""
    assert kfm("status", "--log-format", "xml").code == 2
    monkeypatch.setenv("KFM_LOG_FORMAT", "xml")
    called = kfm("status")
    assert called.code == 2
    assert "KFM_LOG_FORMAT is neither text nor json" in called.err


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_the_option(kfm: Kfm, project: Path, command: str) -> None:
    """Wherever messages may come from, their form can be chosen."""
    groups = [(command,)]
    for words in groups:
        shown = kfm(*words, "--help").out
        if "--log-format" not in shown:
            lines = shown.partition("Commands:")[2].splitlines()
            names = [line.split()[0] for line in lines if line.startswith("  ") and line[2] != " "]
            assert names, f"{words} has neither the option nor commands"
            groups += [(*words, name) for name in names]


@pytest.mark.req("TRG-9")
@given(st.lists(st.text(st.characters(), max_size=40), max_size=6))
def test_one_object_a_line_whatever_it_holds(texts: list[str]) -> None:
    """Line feeds of all kinds, control characters and half characters stay inside their object."""
    log = JsonLog(lambda: NOW_MS)
    for text in texts:
        told = lines_of(log(f"{text}\n"))
        assert len(told) == bool(text.strip())
    assert log.rest() == ""


@pytest.mark.parametrize(
    "text",
    [
        "two\nlines", "\x00\x1b[31mred", "\u2028\u2029\x85", "\ud800\udfff x", '{"message": "forged"}',
        '"}\n{"level": "error"', "\r", "emoji 🌾",
    ],
)  # fmt: skip
def test_hostile_messages(text: str) -> None:
    """A message can't forge a second one, and splitting lines in any way finds one object."""
    line = JsonLog(lambda: NOW_MS)(f"x{text}y\n")
    assert line.count("\n") == len(line.splitlines()) == 1
    assert line.isascii()
    (told,) = lines_of(line)
    assert told["message"][0] + told["message"][-1] == "xy"
    assert set(told) == {"time", "level", "message"}


def test_huge_messages_are_cut() -> None:
    """However long a message is, its line is bounded and says what is missing."""
    (told,) = lines_of(JsonLog(lambda: NOW_MS)("z" * 10_000_000 + "\n"))
    assert len(told["message"]) < 2 * logs.MESSAGE_CHARS_MAX
    assert told["message"].endswith(" characters more")


def test_a_message_that_comes_in_pieces_is_one() -> None:
    """`print` writes twice, and what never ends is told at the end; threads do not mix."""
    log = JsonLog(lambda: NOW_MS)
    assert log("one") == ""
    other: list[str] = []
    thread = threading.Thread(target=lambda: other.append(log("other\n")))
    thread.start()
    thread.join()
    (line,) = lines_of(log(" piece\n"))
    assert line["message"] == "one piece"
    assert lines_of(other[0])[0]["message"] == "other"
    assert log("left") == ""
    assert lines_of(log.rest())[0]["message"] == "left"


def test_the_stream_tells_what_is_left() -> None:
    """Text without a line feed at the end is not lost when the command ends."""
    said = io.StringIO()
    before, sys.stderr = sys.stderr, said
    try:
        with forgiving("json"):
            assert not sys.stderr.isatty()
            print("whole", file=sys.stderr)
            print("half", end="", file=sys.stderr)
    finally:
        sys.stderr = before
    assert [line["message"] for line in lines_of(said.getvalue())] == ["whole", "half"]


@pytest.mark.parametrize(
    ("arguments", "environment", "wanted"),
    [
        (["run"], None, "text"),
        (["run"], "json", "json"),
        (["run", "--log-format", "json"], None, "json"),
        (["run", "--log-format=text"], "json", "text"),
        (["run", "--", "--log-format", "json"], None, "text"),
        (["run", "--log-format"], "json", "json"),
        (["run", "--log-format", "xml"], None, "text"),
    ],
)
def test_form_is_known_before_the_arguments_are(
    arguments: list[str], environment: str | None, wanted: str
) -> None:
    """An error in the arguments is told in the form that they ask for."""
    assert wanted_log_format(arguments, environment) == wanted


def test_a_level_is_given_and_never_read_from_a_text() -> None:
    """Whatever word a message begins with, its level is the one that its author named."""
    log = JsonLog(lambda: NOW_MS)
    for text in ("error KFM400: x", "warning: x", "Traceback (most"):
        assert [line["level"] for line in lines_of(log(f"{text}\n"))] == ["info"]
    with log_records.correlated(run_id="r"):
        (line,) = lines_of(log.message("no contract is declared", "warning"))
    assert (line["level"], line["run_id"], line["time"]) == ("warning", "r", "2026-01-01T00:00:00.125Z")
