"""Small words that have to be true: reasons, remedies, states."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.acceptance.runs.conftest import Inside
from tests.acceptance.runs.test_governance import PASSING

SYNC = """\
version: 1
datasets:
  - {id: levels, rights: {license: CC0-1.0, care: {label: Public}}}
sources:
  - {id: east, dataset: levels, kind: files, folder: east}
  - {id: west, dataset: levels, kind: files, folder: west}
  - {id: both, dataset: levels, kind: sync, members: [east, west]}
publish:
  - {kind: local, path: published}
"""


FLOW = """\
import kfm

pipeline = kfm.Pipeline("p")


@pipeline.node("one")
def one():
    return 1
"""


@pytest.mark.req("UPD-3", "CLI-2")
@pytest.mark.parametrize("window", ["P0D", "PT7M", "p0d", "PT0H"])
def test_a_remedy_is_not_what_was_typed(project: Inside, window: str) -> None:
    """A length that can't be is answered with lengths that can, never with itself."""
    refused = project.kfm("run", "--window", window, "--json")
    assert refused.code == 2
    remedy = refused.document["remedy"]
    assert window.upper() not in remedy
    assert "P1D, PT6H, PT15M" in remedy
    meant = project.kfm("run", "--window", "6h", "--json").document["remedy"]
    assert meant == "A length is written as --window PT6H."


@pytest.mark.req("UPD-16", "UPD-10")
def test_a_correction_needs_a_reason(project: Inside) -> None:
    """It changes what is published although nothing else did; looking at it changes nothing."""
    project.run()
    refused = project.kfm("run", "--correction", "FIX-1", "--json")
    assert (refused.code, refused.document["code"]) == (3, "KFM304")
    assert project.rows("SELECT COUNT(*) FROM runs") == [(1,)]
    assert project.kfm("run", "--correction", "FIX-1", "--dry-run").code == 0
    assert project.run("--correction", "FIX-1", "--rationale", "sensor drift").code == 0


@pytest.mark.req("UPD-16")
def test_a_member_of_a_sync_is_not_run_alone(project: Inside) -> None:
    """The sync publishes its data; a second run, schedule or webhook of its own would do so once more."""
    project.write("kfm.yml", SYNC)
    for name in ("east", "west"):
        project.write(f"{name}/{name}.csv", "a,b\n1,2\n")
    assert project.kfm("run").code == 0
    alone = project.kfm("run", "--source", "east")
    assert alone.code == 2
    assert "`kfm run --source both`" in alone.err
    assert sorted(path.name for path in project.published.rglob("*.csv")).count("east.csv") == 1
    project.write("cron.yml", "schedules:\n  - {id: s, source: east, cron: '0 3 * * *'}\n")
    checked = project.kfm("config", "check")
    assert (checked.code, "a member of the sync `both`" in checked.err) == (2, True)
    project.write("cron.yml", "schedules:\n  - {id: s, source: both, cron: '0 3 * * *'}\n")
    project.write("kfm.yml", SYNC.replace("folder: east", "folder: east, follows: [hrrr]"))
    follows = project.kfm("config", "check")
    assert (follows.code, "would run it alone" in follows.err) == (2, True)


@pytest.mark.req("UPD-9")
def test_every_gate_that_refuses_is_told(project: Inside) -> None:
    """One after the other would be one attempt for each: all of them are told at once."""
    more = "freezes:\n  - {start: 2020-01-01, end: 2099-01-01, reason: migration}\n"
    project.configure(rights="{license: CC0-1.0, care: {label: Burials, level: blocked}}", more=more)
    project.kfm("switch", "set", "paused", "--all", "--rationale", "storm")
    told = project.kfm("run").err
    for words in ("care", "switch set running --all", "migration"):
        assert words in told, told
    assert told.count("also: gate ") == 2


@pytest.mark.req("CLI-2", "UPD-1")
@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("def publisch(context): ...\n", "has no function `publish`; did you mean `publisch`?"),
        ("def publish(context:\n", "can't be read as code: line 1"),
        ("raise SystemExit\n", "has no function `publish`"),
        ("from elsewhere import publish\n", None),
        ("if True:\n    publish = print\n", None),
        ("from elsewhere import *\n", None),
    ],
)
def test_a_check_of_the_configuration_looks_for_the_function(
    project: Inside, code: str, words: str | None
) -> None:
    """Before the run fetches; the code is read and never run, and what reading can't tell passes."""
    project.write("pipeline.py", code)
    project.configure(extra='pipeline: "pipeline.py:publish"')
    checked = project.kfm("config", "check")
    assert checked.code == (2 if words else 0), checked
    assert not words or (words in checked.err and "kfm.yml:" in checked.err)


@pytest.mark.req("CLI-1")
def test_a_mistake_has_no_traceback(project: Inside) -> None:
    """`-v` shows where the code failed; what a person mistyped is no place in it."""
    for words in (
        ("run", "--window", "P0D", "-v"),
        ("run", "--nonsense", "-v"),
        ("run", "-c", "no.yml", "-v"),
    ):
        called = project.kfm(*words)
        assert (called.code, "Traceback" in called.err) == (2, False), called.err


@pytest.mark.req("RS-9", "RS-10")
def test_what_pipelines_need_works_without_a_configuration(tmp_path: Path) -> None:
    """Branches, garbage and the doctor need no file; one that is named must be there."""
    bare = Inside(tmp_path / "bare")
    bare.write("flow.py", FLOW)
    assert bare.kfm("pipeline", "run", "flow.py").code == 0
    assert "main" in bare.kfm("branch", "list").out
    assert bare.kfm("gc").out.startswith("nothing to remove")
    examined = bare.kfm("doctor", "--offline", "--json")
    assert examined.document["ok"], examined.out
    assert "there is no kfm.yml" in examined.document["checks"][0]["message"]
    for command in (("branch", "list"), ("gc",), ("doctor",)):
        assert bare.kfm(*command, "--config", "other.yml").code == 2
    assert bare.kfm("run").code == 2


@pytest.mark.req("CLI-1")
def test_a_failure_of_another_version_is_not_named_for_ever(project: Inside) -> None:
    """Back at the version whose work is done, status is clear: there is nothing that could be run anew."""
    project.write("pipeline.py", PASSING)
    project.configure(extra='pipeline: "pipeline.py:publish", output_version: "1"')
    assert project.run().result["word"] == "published"
    project.write("pipeline.py", "def publish(context):\n    raise ValueError('new code')\n")
    project.configure(extra='pipeline: "pipeline.py:publish", output_version: "2"')
    assert project.run().result["word"] == "failed"
    assert project.kfm("status", "--json").document["needs_attention"]
    project.configure(extra='pipeline: "pipeline.py:publish", output_version: "1"')
    assert project.run().result["word"] == "unchanged"
    assert project.kfm("status", "--json").document["needs_attention"] == []


@pytest.mark.req("CLI-1")
def test_an_attempt_that_changed_nothing_is_unchanged_everywhere(project: Inside) -> None:
    """A forced run whose outcome is what is published already: one word in its report and in every list."""
    project.run()
    forced = project.run("--force", "--rationale", "look again", "--ticket", "T-1").result
    assert forced["word"] == "unchanged"
    listed = project.kfm("runs").out.splitlines()
    assert [line.split()[2] for line in listed[1:]] == ["unchanged", "published"]
    assert "unchanged" in project.kfm("show", forced["run_id"]).out
    only = project.kfm("runs", "--status", "unchanged", "--json").document["runs"]
    assert [one["run_id"] for one in only] == [forced["run_id"]]
    assert "unchanged" in project.kfm("status").out
    asked = project.kfm("requests", "list").out.splitlines()
    assert [line.split()[3] for line in asked[1:]] == ["unchanged", "published"]


@pytest.mark.req("CLI-1", "RS-12")
def test_printed_commands_keep_the_configuration(project: Inside) -> None:
    """Where another file was named than the usual one, every command that is printed names it, too."""
    (project.folder / "kfm.yml").rename(project.folder / "other.yml")
    project.write("incoming/a.csv", "broken\n")
    named = ("-c", "other.yml")
    failed = project.kfm("run", *named)
    assert failed.code != 0
    commands = [part for part in failed.err.split("`") if part.startswith("kfm ")]
    assert commands
    assert all(" -c other.yml" in command for command in commands), commands
    assert "-c other.yml" in project.kfm("status", *named).out
    document = json.loads(project.kfm("status", *named, "--json").out)
    assert "-c" not in document["headline"]["command"]  # programs know how they called it
