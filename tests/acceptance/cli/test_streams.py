"""Streams, exit codes and endings, as other programs see them."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kfm import __version__
from kfm.cli.command_line import COMMANDS
from tests.acceptance.cli.conftest import Called
from tests.acceptance.cli.fakes import FakeApp

Kfm = Callable[..., Called]
Valid = Callable[[str, Any], None]


@pytest.mark.parametrize("flag", ["--version", "-V"])
def test_version(process: Kfm, flag: str) -> None:
    """The version is data: on stdout, alone."""
    assert process(flag) == Called(0, f"kfm {__version__}\n", "")


def test_version_imports_nothing_heavy(process: Kfm) -> None:
    """`kfm --version` needs neither the parser nor the records."""
    code = "import sys; from kfm.cli import main\ntry: main(['--version'])\nfinally: print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"click", "msgspec", "kfm.config.loader", "kfm.app"} & set(done.stdout.split())


def test_status_imports_no_parser(project: Path) -> None:
    """The everyday command needs neither click nor YAML once the configuration has been read."""
    code = "import sys; from kfm.cli import main\ntry: main(['status'])\nfinally: print(*sys.modules)"
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"click", "ruamel", "httpx", "whenever", "rich", "cedarpy", "difflib", "importlib.metadata"}
    assert not heavy & set(done.stdout.split())


def test_help_is_for_everybody(kfm: Kfm) -> None:
    """Every command has help that says what it does; bare `kfm` lists them."""
    assert kfm().out == kfm("--help").out == kfm("-h").out
    for name, (_, line) in COMMANDS.items():
        called = kfm(name, "--help")
        assert called.code == 0
        assert called.out.startswith(f"Usage: kfm {name}")
        assert line in kfm("--help").out


@pytest.mark.req("CLI-1")
def test_bad_usage(kfm: Kfm, valid: Valid) -> None:
    """Exit code 2, a line with the code, a line with the way out; as JSON the same."""
    assert kfm("runs", "--limmit", "3").err.splitlines() == [
        "error KFM200: The command can't be carried out. No such option '--limmit'. Did you mean '--limit'?",
        "fix: Read `kfm runs --help`.",
    ]
    assert kfm("stauts").err.splitlines()[0].endswith("There is no command `stauts`. Did you mean `status`?")
    for arguments in (["runs", "--json", "--limt"], ["stauts", "-o", "json"], ["runs", "--limt", "-ojson"]):
        called = kfm(*arguments)
        assert called.code == 2
        valid("error", called.document)
        assert called.document["code"] == "KFM200"


@pytest.mark.req("CLI-1")
def test_an_error_as_json_is_the_result(kfm: Kfm, project: Path, valid: Valid) -> None:
    """The document on stdout, the sentence for people on stderr."""
    (project / "kfm.yml").write_text("sorces: []\n")
    called = kfm("config", "check", "--json")
    assert called.code == 2
    valid("error", called.document)
    assert called.document["message"] in called.err
    one_line = kfm("config", "check", "-o", "jsonl").out
    assert one_line.count("\n") == 1


def test_a_defect_is_called_one(kfm: Kfm, app: FakeApp, valid: Valid) -> None:
    """An unforeseen exception is KFM600, exit code 1, with a traceback only on request."""
    app.ledger = None  # type: ignore[assignment]
    called = kfm("runs", "--json")
    assert called.code == 1
    valid("error", called.document)
    assert called.document["code"] == "KFM600"
    assert "Traceback" not in called.err
    assert "Run it again with --verbose" in called.err
    assert "Traceback" in kfm("runs", "--verbose").err


def test_set_overrides_a_setting(kfm: Kfm) -> None:
    """--set beats the file, and its mistakes are usage errors."""
    shown = kfm("config", "show", "--origin", "--set", "lease.seconds=30", "--json").document
    assert shown["settings"]["lease"]["seconds"] == 30
    assert shown["origins"]["lease.seconds"] == "flag --set lease.seconds"
    assert kfm("config", "show", "--set", "lease.seconds").code == 2


@pytest.mark.req("CLI-1", "CLI-2")
def test_config_show(kfm: Kfm, project: Path, valid: Valid) -> None:
    """Every setting with its value and origin; references are shown, values never."""
    text = (project / "kfm.yml").read_text()
    source = (
        "{id: web, dataset: levels, kind: http, url: 'http://h/', headers: {Authorization: 'env:WEB_TOKEN'}}"
    )
    (project / "kfm.yml").write_text(text.replace("publish:", f"  - {source}\npublish:"))
    os.environ["WEB_TOKEN"] = "s3cr3t"
    try:
        called = kfm("config", "show", "--origin")
        document = kfm("config", "show", "--origin", "--json")
    finally:
        del os.environ["WEB_TOKEN"]
    assert re.search(r"sources\[2\]\.headers\.Authorization +env:WEB_TOKEN +kfm\.yml:10", called.out)
    assert re.search(r"datasets\[0\]\.id +levels +kfm\.yml:4", called.out)
    assert "s3cr3t" not in called.out + document.out
    valid("config-show", document.document)
    valid("config-show", kfm("config", "show", "--json").document)
    valid("config-check", kfm("config", "check", "--json").document)


@pytest.mark.parametrize(
    ("arguments", "environ", "coloured"),
    [
        ([], {}, False),
        (["--color", "always"], {}, True),
        ([], {"FORCE_COLOR": "1"}, True),
        (["--color", "never"], {"FORCE_COLOR": "1"}, False),
        (["--color", "always", "--json"], {}, False),
    ],
)
def test_colour_is_for_terminals(
    kfm: Kfm,
    app: FakeApp,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    environ: dict[str, str],
    coloured: bool,
) -> None:
    """No colour in a pipe unless asked for; never in JSON."""
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert ("\x1b[" in kfm("run", *arguments).out) is coloured


def test_a_reader_that_has_had_enough(project: Path) -> None:
    """A closed pipe ends the command quietly."""
    command = f"{shlex.quote(sys.executable)} -m kfm config show --origin | true; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "0"
    assert done.stderr == ""


def _shell(command: str) -> tuple[int, str]:
    """The exit code of kfm, whatever its output goes to, and what it says on stderr."""
    script = f"{shlex.quote(sys.executable)} -m kfm {command}; echo ${{PIPESTATUS[0]}} >code"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True, timeout=60)
    return int(Path("code").read_text()), done.stderr


@pytest.mark.req("CLI-1")
@pytest.mark.parametrize(
    ("where", "code", "buffered"),
    [
        ("| true", 0, True),
        ("| true", 0, False),
        (">&-", 0, True),
        ("2>&-", 0, True),
        ("2>/dev/full", 0, False),
        (">&- 2>&- <&-", 0, True),
        (">/dev/full", 4, True),
        (">/dev/full", 4, False),
    ],
)
def test_output_that_can_not_be_written(
    project: Path, kfm: Kfm, monkeypatch: pytest.MonkeyPatch, where: str, code: int, buffered: bool
) -> None:
    """The work is done all the same, and its failure is the exit code; only a lost result is one too."""
    monkeypatch.setenv("PYTHONUNBUFFERED", "" if buffered else "1")
    (project / "incoming" / "a.csv").write_text("a\n1\n")
    ended, err = _shell(f"run {where}")
    assert ended == code
    assert "defect" not in err
    assert ("error KFM400" in err) is (code == 4)
    assert len(kfm("runs", "--json").document["runs"]) == 2
    text = (project / "kfm.yml").read_text()
    (project / "kfm.yml").write_text(text.replace("files, folder: incoming}", "files, folder: gone}", 1))
    assert _shell(f"run {where}")[0] == 4
    assert _shell(f"run --source none {where}")[0] == 2
    for command in ("status", "runs", "--version"):
        assert _shell(f"{command} {where}")[0] == code


_SIGNAL_DURING_IMPORT = """
import os, sys
class Sender:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), {sent})
            sum(range(1000))
sys.meta_path.insert(0, Sender())
from kfm.cli import main
main({arguments!r})
"""


@pytest.mark.req("CLI-1")
@pytest.mark.parametrize("module", ["kfm.cli.command_line", "click", "msgspec", "kfm.cli.runs", "kfm.app"])
@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_during_an_import(project: Path, module: str, sent: signal.Signals) -> None:
    """While the command is being loaded a signal waits; then it ends the command as always."""
    code = _SIGNAL_DURING_IMPORT.format(module=module, sent=int(sent), arguments=["runs"])
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr.splitlines()[0] == "error KFM930: The run was cancelled."
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["run", "--set", "state=kfm.yml/x"], 4, "kfm.yml/x for the state can't be made: not a directory."),
        (["run", "--set", "state=kfm.yml"], 4, "/kfm.yml for the state can't be made: file exists."),
        (["run", "--set", "state=/proc/x"], 4, "/proc/x for the state can't be made: no such file"),
        (["run", "--source", "daily", "--artifacts", "art"], 4, "Is a directory (art/run.jsonl)."),
        (["diff", "--source", "daily", "--artifacts", "art"], 4, "Is a directory (art/run.jsonl)."),
        (["run", "--correction", "a\udcff"], 2, "An argument is not valid UTF-8: 'a\\xff'."),
        (["run", "--force", "--rationale", "\udcff"], 2, "An argument is not valid UTF-8: '\\xff'."),
        (["status", "-c", "\udcff"], 2, "An argument is not valid UTF-8: '\\xff'."),
        (["run", "--config", "folder.yml"], 2, "folder.yml:8: `pipe.py` is a folder, not a file"),
    ],
)
def test_bad_input_is_not_called_a_defect(
    kfm: Kfm, project: Path, arguments: list[str], code: int, sentence: str
) -> None:
    """What cannot be used is named."""
    (project / "art" / "run.jsonl").mkdir(parents=True)
    (project / "pipe.py").mkdir()
    text = (project / "kfm.yml").read_text()
    named = text.replace("folder: incoming}", "folder: incoming, pipeline: 'pipe.py:go'}", 1)
    (project / "folder.yml").write_text(named)
    called = kfm(*arguments)
    assert called.code == code
    assert sentence in called.err
    assert "defect" not in called.err


@pytest.mark.req("CLI-1")
@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_cleanly(project: Path, sent: signal.Signals) -> None:
    """SIGTERM and Ctrl-C: what was begun is tidied up, the exit code is 130, and a sentence says so."""
    code = (
        "import sys, time, kfm.app\nfrom contextlib import contextmanager\n"
        "@contextmanager\n"
        "def slow(loaded, **_):\n"
        "    try:\n        print('ready', file=sys.stderr, flush=True)\n"
        # Short sleeps: a signal between the last look at it and the sleep would wait for the sleep's end.
        "        for _ in range(600): time.sleep(0.05)\n        yield\n"
        "    finally:\n        print('tidied', file=sys.stderr, flush=True)\n"
        "kfm.app.open_app = slow\n"
        "from kfm.cli import main\nmain(['runs'])\n"
    )
    running = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
    assert running.stderr is not None
    assert running.stderr.readline() == "ready\n"
    running.send_signal(sent)
    _, err = running.communicate(timeout=20)
    assert running.returncode == 130
    assert err.splitlines()[:2] == ["tidied", "error KFM930: The run was cancelled."]


def test_completion_and_man_pages_come_from_the_parser(kfm: Kfm, project: Path) -> None:
    """Every command is in the completion's answer and has a manual page."""
    for shell in ("bash", "zsh", "fish"):
        assert "_KFM_COMPLETE" in kfm("completion", shell).out
    called = kfm("man", "pages")
    names = {path.name for path in (project / "pages").iterdir()}
    assert {"kfm.1", "kfm-switch-set.1", *(f"kfm-{name}.1" for name in COMMANDS)} <= names
    assert len(called.out.splitlines()) == len(names)
    page = (project / "pages" / "kfm-run.1").read_text()
    assert page.startswith('.TH "KFM-RUN"')
    assert "\\-\\-dry\\-run" in page


def test_completion_answers(process: Kfm) -> None:
    """The shell asks, the parser answers."""
    environ = {**os.environ, "_KFM_COMPLETE": "bash_complete", "COMP_WORDS": "kfm st", "COMP_CWORD": "1"}
    assert process(env=environ).out.split() == ["plain,status", "plain,store"]


def test_no_input_means_no_question(kfm: Kfm, app: FakeApp) -> None:
    """Where no person can be asked, a question is an error with a way out."""
    from kfm.cli.session import CommandSession
    from kfm.model.errors import UsageError

    assert CommandSession(yes=True).confirm("really?")
    with pytest.raises(UsageError, match="no terminal to ask"):
        CommandSession(no_input=True).confirm("really?")


def test_start_is_quick(process: Kfm) -> None:
    """A generous bound, so that a heavy import at the top is noticed; the benchmark has the real one."""
    process("--version")
    began = time.monotonic()
    process("--version")
    assert time.monotonic() - began < 1.0
