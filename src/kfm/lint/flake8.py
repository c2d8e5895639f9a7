"""The same rules as a flake8 plugin: `flake8 --select KFM`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kfm import __version__
from kfm.lint.checking import check_source
from kfm.lint.reading import Source, lines_of
from kfm.lint.rules import CODES


class Plugin:
    """What flake8 asks of a plugin: a name, a version, and `run()` over a tree that it has parsed."""

    name = "kfm"
    version = __version__

    def __init__(self, tree: ast.Module, lines: list[str], filename: str = "stdin") -> None:
        text = "".join(lines)
        self._source = Source(filename, text, lines_of(text), tree)

    def run(self) -> Iterator[tuple[int, int, str, type[Plugin]]]:
        for finding in check_source(self._source, CODES).findings:
            yield finding.line, finding.column - 1, f"{finding.code} {finding.message}", type(self)
