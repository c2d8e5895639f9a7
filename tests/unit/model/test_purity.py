"""The model decides; it never reads a clock, a random number, a file or a network."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import kfm.model

FOLDER = Path(kfm.model.__file__).parent
FORBIDDEN = {
    "time",
    "random",
    "uuid",
    "secrets",
    "os",
    "pathlib",
    "socket",
    "sqlite3",
    "subprocess",
    "threading",
    "apsw",
    "httpx",
}


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.name)
def test_module_imports_nothing_impure(path: Path) -> None:
    """No module of the model imports, even lazily, what could make an answer depend on when or where."""
    imported = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            imported |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            imported.add(node.module.partition(".")[0])
    assert not imported & FORBIDDEN


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.name)
def test_module_asks_no_clock_for_the_time(path: Path) -> None:
    """No module of the model calls now() or today()."""
    called = {
        node.func.attr
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    }
    assert not called & {"now", "utcnow", "today", "now_in_system_tz", "today_in_system_tz"}
