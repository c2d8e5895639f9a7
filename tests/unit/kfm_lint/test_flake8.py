"""The rules inside flake8, and as a pre-commit hook."""

from __future__ import annotations

import ast
import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from kfm.lint.flake8 import Plugin

pytestmark = pytest.mark.req("RET-10")

ROOT = Path(__file__).resolve().parents[3]
CODE = """\
import time
def read(device):
    for attempt in range(5):
        try:
            return device.read()
        except DeviceError:
            time.sleep(1)
    raise GaveUp
"""


def test_the_plugin_reports_in_flake8s_terms() -> None:
    """Line from 1, column from 0, text that begins with the code."""
    plugin = Plugin(ast.parse(CODE), CODE.splitlines(keepends=True), "read.py")
    ((line, column, text, kind),) = plugin.run()
    assert (line, column, kind) == (7, 12, Plugin)
    assert text.startswith("KFM103 ")
    assert (Plugin.name, bool(Plugin.version)) == ("kfm", True)


def test_the_entry_point_is_declared() -> None:
    """Installing kfm is all that it takes; flake8 wants codes to begin with the name."""
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = project["entry-points"]["flake8.extension"]
    assert declared == {"KFM": "kfm.lint.flake8:Plugin"}
    found = importlib.metadata.EntryPoint("KFM", declared["KFM"], "flake8.extension").load()
    assert found is Plugin


def test_real_flake8_runs_it(tmp_path: Path) -> None:
    """flake8 finds the same, at the same place, and honours our waivers."""
    pytest.importorskip("flake8")
    (tmp_path / "read.py").write_text(CODE)
    (tmp_path / "waived.py").write_text(
        CODE.replace("(1)", "(1)  # kfm: allow KFM103 it answers once a second")
    )
    (tmp_path / ".flake8").write_text(
        "[flake8]\nselect = KFM\n[flake8:local-plugins]\nextension =\n    KFM = kfm.lint.flake8:Plugin\n"
    )
    command = [sys.executable, "-m", "flake8", "--jobs", "1", "read.py", "waived.py"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    lines = set(ran.stdout.splitlines())
    assert len(lines) == 1, ran
    assert lines.pop().startswith("read.py:7:13: KFM103 ")


def test_a_setting_asks_for_what_is_likely(tmp_path: Path) -> None:
    """`kfm-all = true` in flake8's settings; without it, only what is sure."""
    pytest.importorskip("flake8")
    likely = "try:\n    configure_everything()\nexcept Exception:\n    pass\n"
    (tmp_path / "top.py").write_text(likely)
    command = [sys.executable, "-m", "flake8", "--jobs", "1", "top.py"]
    plugin = "[flake8:local-plugins]\nextension =\n    KFM = kfm.lint.flake8:Plugin\n"
    for setting, said in (("", ""), ("kfm-all = true\n", "top.py:3:1: KFM108 [likely] ")):
        (tmp_path / ".flake8").write_text(f"[flake8]\nselect = KFM\n{setting}{plugin}")
        ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert ran.stderr == ""
        assert ran.stdout.startswith(said)
        assert bool(ran.stdout) is bool(said)


def test_the_hook_can_be_used() -> None:
    """The hook file has what pre-commit requires, and calls a command that exists."""
    from kfm.cli.main import COMMANDS

    (hook,) = YAML(typ="safe", pure=True).load((ROOT / ".pre-commit-hooks.yaml").read_text())
    assert {"id", "name", "entry", "language"} <= hook.keys()
    assert hook["id"] == "kfm-lint"
    assert hook["language"] == "python"
    assert hook["types_or"] == ["python", "pyi"]
    program, command = hook["entry"].split()
    assert program == "kfm"
    assert command in COMMANDS
