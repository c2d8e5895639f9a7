"""`kfm-lint`: the linter's own command, which needs nothing of kfm."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kfm_lint import __version__
from kfm_lint.command import main
from kfm_lint.rules import CODES

pytestmark = pytest.mark.req("RET-10")

BAD = """\
import time
def read(device):
    for attempt in range(5):
        try:
            return device.read()
        except DeviceError:
            time.sleep(1)
    raise GaveUp
"""


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "bad.py").write_text(BAD)
    (tmp_path / "good.py").write_text("def add(a, b):\n    return a + b\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("code")
def test_findings_are_the_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    """1 with findings and 0 without; findings on stdout, the count on stderr."""
    assert main(["--format", "concise", "."]) == 1
    said = capsys.readouterr()
    assert said.out.startswith("bad.py:7:13: KFM103 ")
    assert said.err == "1 finding in 2 files\n"
    assert main(["good.py"]) == 0
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("form", ["full", "concise", "json", "github", "sarif"])
def test_it_reports_what_kfm_lint_reports(code: Path, form: str, capsys: pytest.CaptureFixture[str]) -> None:
    """`kfm lint` and `kfm-lint` print the same bytes."""
    assert main(["--format", form, "."]) == 1
    own = capsys.readouterr().out
    command = [sys.executable, "-m", "kfm", "lint", "--format", form, "."]
    ran = subprocess.run(command, cwd=code, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 1, ran.stderr
    assert ran.stdout == own
    if form in ("json", "sarif"):
        assert json.loads(own)


@pytest.mark.usefixtures("code")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere"], "There is no file or folder nowhere."),
        (["--select", "KFM9", "."], "there is no rule KFM9"),
        (["--select", "", "."], "names no rule"),
        (["--explain", "E501"], "There is no rule E501."),
        ([], "No file or folder is named."),
    ],
)
def test_bad_usage(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2 with the way out, and nothing on stdout."""
    assert main(arguments) == 2
    shown = capsys.readouterr()
    assert said in shown.err
    assert "fix: " in shown.err
    assert shown.out == ""


@pytest.mark.usefixtures("code")
def test_choosing_rules(capsys: pytest.CaptureFixture[str]) -> None:
    """`--select`, `--ignore` and `--exclude` leave findings out."""
    for arguments in (["--ignore", "KFM103"], ["--select", "KFM108"], ["--exclude", "bad.py"]):
        assert main([*arguments, "."]) == 0
    assert capsys.readouterr().out == ""


def test_a_rule_can_be_read_without_kfm(capsys: pytest.CaptureFixture[str]) -> None:
    """`--explain` prints message, reason and way out of every rule."""
    for rule in sorted(CODES):
        assert main(["--explain", rule.lower()]) == 0
        shown = capsys.readouterr().out
        assert shown.startswith(f"{rule} ")
        assert "\nfix: " in shown


def test_module_and_command_are_the_same() -> None:
    """`python -m kfm_lint` answers as `kfm-lint` does."""
    by_module = [sys.executable, "-m", "kfm_lint", "--version"]
    by_command = [str(Path(sys.executable).with_name("kfm-lint")), "--version"]
    for command in (by_module, by_command):
        ran = subprocess.run(command, capture_output=True, text=True, timeout=30)
        assert ran.stdout == f"kfm-lint {__version__}\n"
