"""Logging by the standard library: no callables that stand in for it, one logger for each module."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from kfm.cli import logs
from kfm.runs import artifacts

SOURCES = Path(__file__).resolve().parents[2] / "src" / "kfm"
STAND_INS = {"announce", "say", "_announce", "_say"}
# What commands set up, and a foreign library that must not write to stderr.
NAMED = {"ROOT", "STEPS", "name", '"opentelemetry"'}
ROOT_ONLY = {"basicConfig", "captureWarnings", "setLoggerClass", "setLogRecordFactory", "dictConfig"}


def findings(text: str) -> list[str]:
    """What a module does that it should leave to its logger."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.arg) and node.arg in STAND_INS:
            found.append(f"{node.lineno}: parameter {node.arg}")
        elif isinstance(node, ast.keyword) and node.arg in STAND_INS:
            found.append(f"{node.value.lineno}: argument {node.arg}")
        elif isinstance(node, ast.Attribute) and node.attr in STAND_INS and isinstance(node.ctx, ast.Store):
            found.append(f"{node.lineno}: attribute {node.attr}")
        elif isinstance(node, ast.AnnAssign) and ast.unparse(node.target) in STAND_INS:
            found.append(f"{node.lineno}: field {ast.unparse(node.target)}")
        elif isinstance(node, ast.Attribute) and node.attr in ROOT_ONLY:
            found.append(f"{node.lineno}: {node.attr} configures the logging of others")
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("getLogger"):
            name = ast.unparse(node.args[0]).replace("'", '"') if node.args else "the root logger"
            if "__name__" not in name and name not in NAMED:
                found.append(f"{node.lineno}: a logger that is named {name}")
    return found


def test_every_module_logs_to_the_logger_of_its_name() -> None:
    """Nothing is handed through constructors to be called with a line, and no logger is another module's."""
    found = {str(path): found for path in SOURCES.rglob("*.py") if (found := findings(path.read_text()))}
    assert found == {}


@pytest.mark.parametrize(
    "text",
    [
        "def f(announce): ...",
        "class A:\n    say: int = 1",
        "f(say=print)",
        "self.announce = print",
        "logging.getLogger()",
        "logging.getLogger('kfm.other')",
        "logging.basicConfig()",
    ],
)
def test_the_check_finds_what_it_is_for(text: str) -> None:
    """Each way to do without a logger of one's own is found."""
    assert len(findings(text)) == 1


def test_commands_know_the_logger_of_the_steps_of_runs() -> None:
    """The name by which commands show or hide steps is that of the logger that the steps go to."""
    assert artifacts.steps.name == logs.STEPS


@pytest.mark.parametrize("module", ["kfm", "kfm.cli.status_fast", "kfm.app"])
def test_what_status_loads_does_not_load_logging(module: str) -> None:
    """`kfm status` logs nothing, and does not pay for it when it starts."""
    code = f"import sys, {module}; print('logging' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_importing_kfm_configures_no_logging() -> None:
    """The root logger of an application stays as it is, and nothing is written for want of a handler."""
    code = (
        "import logging, kfm.pipelines.project as p, tempfile\n"
        "with p.open_project(tempfile.mkdtemp()):\n"
        "    logging.getLogger('kfm.runs.executor').warning('no handler is there')\n"
        "print(logging.getLogger().handlers, logging.getLogger('kfm').level)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("[] 0\n", "")
