"""Does the file of a pipeline have the function that the configuration names? Read, never run."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kfm.model.documents import gathered
from kfm.model.errors import ConfigError
from kfm.model.quantities import did_you_mean

if TYPE_CHECKING:
    from kfm.config.loader import Loaded

_EXPORTED = re.compile(r"\bexport\s+(?:async\s+)?(?:function\s*\*?|const|let|var|class)\s+([A-Za-z_$][\w$]*)")
_EXPORT_LIST = re.compile(r"\bexport\s*\{([^}]*)\}")
_DESTRUCTURED = re.compile(r"\bexport\s+(?:\*|const\s*[\[{])")  # names that reading does not tell


def require_pipeline_functions(loaded: Loaded) -> None:
    """ConfigError with every source whose function is not there."""
    problems = [
        ConfigError.at(loaded.name, loaded.lines.get(f"sources[{index}].pipeline", 1), sentence)
        for index, source in enumerate(loaded.settings.sources)
        if source.pipeline is not None
        for sentence in _problems(loaded, source.pipeline)
    ]
    if problems:
        raise gathered(problems)


def _problems(loaded: Loaded, reference: str) -> Iterator[str]:
    path, _, function = reference.rpartition(":")
    with open(loaded.resolve(path), "rb") as file:
        data = file.read()
    try:
        names = _exported(data.decode()) if path.endswith(".mjs") else _defined(data)
    except (SyntaxError, ValueError) as error:
        line = f"line {error.lineno}: " if isinstance(error, SyntaxError) and error.lineno else ""
        yield f"`{path}` can't be read as code: {line}{getattr(error, 'msg', None) or error}"
        return
    if names is not None and function not in names:
        known = sorted(name for name in names if not name.startswith("_"))
        yield f"`{path}` has no function `{function}`{did_you_mean(function, known)}"


def _defined(data: bytes) -> set[str] | None:
    """Names that a Python file gives a value; None: it takes them from elsewhere."""
    found: set[str] = set()
    for node in _statements(ast.parse(data).body):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                if alias.name == "*":
                    return None
                found.add(alias.asname or alias.name.partition(".")[0])
        else:
            found |= {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
            if found & {"globals", "exec", "setattr"}:
                return None
    return None if "__getattr__" in found else found


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Also those in an `if`, a `try`, a `with` or a loop of the module; not those in functions."""
    for node in body:
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            for part in ("body", "orelse", "finalbody"):
                yield from _statements(getattr(node, part, []))
            for handler in getattr(node, "handlers", []):
                yield from _statements(handler.body)


def _exported(text: str) -> set[str] | None:
    if _DESTRUCTURED.search(text):
        return None
    listed = (
        part.split()[-1] for names in _EXPORT_LIST.findall(text) for part in names.split(",") if part.split()
    )
    return {*_EXPORTED.findall(text), *listed}
