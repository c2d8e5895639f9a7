"""The same rules as a flake8 plugin: `flake8 --select KFM`."""

from __future__ import annotations

import ast
from argparse import ArgumentError
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from kfm_lint import __version__
from kfm_lint.checker import check_source
from kfm_lint.report import marked
from kfm_lint.rules import CODES
from kfm_lint.source import Source, lines_of


class Plugin:
    """What flake8 asks of a plugin: a name, a version, and `run()` over a tree that it has parsed."""

    name = "kfm"
    version = __version__
    every = False  # `kfm-all = true` in flake8's settings

    def __init__(self, tree: ast.Module, lines: list[str], filename: str = "stdin") -> None:
        text = "".join(lines)
        self._source = Source(filename, text, lines_of(text), tree)

    @staticmethod
    def add_options(parser: Any) -> None:
        """Also a line in flake8's settings. Installed and named as a local plugin, we are asked twice."""
        with suppress(ArgumentError):
            parser.add_option(
                "--kfm-all",
                action="store_true",
                default=False,
                parse_from_config=True,
                help="Report what is only likely, too.",
            )

    @classmethod
    def parse_options(cls, options: Any) -> None:
        cls.every = bool(getattr(options, "kfm_all", False))

    def run(self) -> Iterator[tuple[int, int, str, type[Plugin]]]:
        for finding in check_source(self._source, CODES, self.every).findings:
            text = f"{finding.code} {marked(finding.message, finding)}"
            yield finding.line, finding.column - 1, text, type(self)
