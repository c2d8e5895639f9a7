"""One pass over the statements of a file: loops, handlers, functions, imports. Never recursive.

Expressions are nine tenths of a tree; leaving them alone is what keeps the linter fast.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kfm.lint.names import Names
from kfm.lint.reading import Source

Function = ast.FunctionDef | ast.AsyncFunctionDef
Loop = ast.For | ast.AsyncFor | ast.While
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
LOOPS = (ast.For, ast.AsyncFor, ast.While)
Trying = ast.Try | ast.TryStar
TRYING = (ast.Try, ast.TryStar)


class Module(NamedTuple):
    """What the rules want to know about a file."""

    source: Source
    names: Names
    functions: list[Function]
    classes: list[ast.ClassDef]
    loops: list[tuple[Loop, Function | None]]
    tries: list[tuple[Trying, Function | None]]
    withs: list[ast.With | ast.AsyncWith]
    following: dict[int, ast.stmt]  # what stands after an attempt in its block, by the attempt's id

    def text_of(self, node: ast.AST | None) -> str:
        """The lines of a node with its comments, in lower case; of the whole file if there is none."""
        if node is None:
            return self.source.text.lower()
        first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", ()))])  # type: ignore[attr-defined]
        return "\n".join(self.source.lines[first - 1 : node.end_lineno]).lower()  # type: ignore[attr-defined]


def outline(source: Source) -> Module:
    module = Module(source, Names(), [], [], [], [], [], {})
    waiting: list[tuple[list[ast.stmt], Function | None]] = [(source.tree.body, None)]
    rebound: list[ast.Assign] = []
    while waiting:
        block, function = waiting.pop()
        before: ast.stmt | None = None
        for node in block:
            kind = type(node)
            if before is not None:
                module.following[id(before)] = node
                before = None
            if kind is ast.Expr or kind is ast.Return:
                continue
            if kind is ast.Assign:
                if function is None and type(node.value) is ast.Attribute:  # type: ignore[attr-defined]
                    rebound.append(node)  # type: ignore[arg-type]
            elif kind is ast.FunctionDef or kind is ast.AsyncFunctionDef:
                module.functions.append(node)  # type: ignore[arg-type]
                waiting.append((node.body, node))  # type: ignore[attr-defined, arg-type]
            else:
                _visit(module, node, function, waiting)
                before = node if kind is ast.Try else None
    for assignment in rebound:
        module.names.rebind(assignment)
    return module


def _visit(
    module: Module,
    node: ast.stmt,
    function: Function | None,
    waiting: list[tuple[list[ast.stmt], Function | None]],
) -> None:
    if isinstance(node, ast.If):
        waiting += [(node.body, function), (node.orelse, function)]
    elif isinstance(node, LOOPS):
        module.loops.append((node, function))
        waiting += [(node.body, function), (node.orelse, function)]
    elif isinstance(node, TRYING):
        module.tries.append((node, function))
        waiting += [(node.body, function), (node.orelse, function), (node.finalbody, function)]
        waiting += [(handler.body, function) for handler in node.handlers]
    elif isinstance(node, ast.With | ast.AsyncWith):
        module.withs.append(node)
        waiting.append((node.body, function))
    elif isinstance(node, ast.ClassDef):
        module.classes.append(node)
        waiting.append((node.body, None))
    elif isinstance(node, ast.Import | ast.ImportFrom):
        module.names.learn(node)
    elif isinstance(node, ast.Match):
        waiting += [(case.body, function) for case in node.cases]


def inside(nodes: Sequence[ast.AST]) -> Iterator[ast.AST]:
    """Every node below these, but not what a function defined there would do later."""
    waiting: list[ast.AST] = list(reversed(nodes))
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, SCOPES):
            waiting.extend(ast.iter_child_nodes(node))


def calls_in(nodes: Sequence[ast.AST]) -> list[ast.Call]:
    return [node for node in inside(nodes) if isinstance(node, ast.Call)]


def names_in(nodes: Sequence[ast.AST]) -> set[str]:
    """Plain names and the last part of attributes: `attempt`, `self.attempts` → `attempts`."""
    found = set()
    for node in inside(nodes):
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Attribute):
            found.add(node.attr)
    return found


def assigned_in(nodes: Sequence[ast.AST]) -> set[str]:
    """What is bound or changed here."""
    found: set[str] = set()
    for node in inside(nodes):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(node.attr)
    return found


def comments_above(lines: list[str], number: int) -> list[str]:
    """The comments that stand directly above a line."""
    found: list[str] = []
    for index in range(number - 2, -1, -1):
        text = lines[index].strip()
        if not text.startswith("#"):
            break
        found.append(text[1:])
    return found
