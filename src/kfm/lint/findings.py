"""What the linter has to say about one place."""

from __future__ import annotations

import ast
from typing import NamedTuple, Protocol

# How much the code itself shows. `sure` is reported; `likely` on request.
SURE, LIKELY = "sure", "likely"


class Finding(NamedTuple):
    """One rule, broken at one place. Lines and columns count from 1, columns in characters."""

    path: str
    line: int
    column: int
    end_line: int
    end_column: int
    code: str
    message: str
    confidence: str = SURE


class Mark(NamedTuple):
    """A finding before it has a file: the node it is about."""

    code: str
    node: Placed
    message: str
    sure: bool = True


class Placed(Protocol):
    """What has a place in a file: statements, expressions, handlers, keywords."""

    lineno: int
    col_offset: int
    end_lineno: int | None
    end_col_offset: int | None


def head(node: ast.stmt | ast.excepthandler) -> ast.AST:
    """The part of a compound statement that a reader should look at first."""
    if isinstance(node, ast.While | ast.If):
        return node.test
    if isinstance(node, ast.For | ast.AsyncFor):
        return node.iter
    return node
