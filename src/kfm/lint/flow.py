"""Where control goes at the end of a block: on, around again, out of the loop, out of the function."""

from __future__ import annotations

import ast
import re

from kfm.lint.outline import LOOPS, TRYING, Loop, Trying

NEXT, CONTINUE, BREAK, RETURN, RAISE = "next", "continue", "break", "return", "raise"
AGAIN = frozenset((NEXT, CONTINUE))
_GIVES_UP = re.compile(
    r"(?i)^_*(exit|abort|(\w+_)?fail(ed|ure)?|die|skip|fatal|give_?up|reraise|raise_\w+|throw)$"
)


def flow(block: list[ast.stmt]) -> set[str]:
    """Every way this block can end, approximately and without recursion limits that matter."""
    ends: set[str] = set()
    for node in block:
        if isinstance(node, ast.Return):
            return ends | {RETURN}
        if isinstance(node, ast.Raise) or (isinstance(node, ast.Expr) and _gives_up(node.value)):
            return ends | {RAISE}
        if isinstance(node, ast.Break):
            return ends | {BREAK}
        if isinstance(node, ast.Continue):
            return ends | {CONTINUE}
        here = _compound(node)
        ends |= here - {NEXT}
        if NEXT not in here:
            return ends
    return ends | {NEXT}


def _compound(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.If):
        return flow(node.body) | flow(node.orelse)
    if isinstance(node, ast.With | ast.AsyncWith):
        return flow(node.body)
    if isinstance(node, TRYING):
        return _trying(node)
    if isinstance(node, LOOPS):
        inner = flow(node.body) & {RETURN, RAISE}
        forever = isinstance(node, ast.While) and is_true(node.test) and BREAK not in flow(node.body)
        return inner if forever else inner | {NEXT}
    if isinstance(node, ast.Match):
        return set().union({NEXT}, *(flow(case.body) for case in node.cases))
    return {NEXT}


def _trying(node: Trying) -> set[str]:
    last = flow(node.finalbody)
    if NEXT not in last:
        return last
    body = flow(node.body)
    if NEXT in body and node.orelse:
        body = (body - {NEXT}) | flow(node.orelse)
    return body.union(last - {NEXT}, *(flow(handler.body) for handler in node.handlers))


def _gives_up(node: ast.expr) -> bool:
    if not isinstance(node, ast.Call):
        return False
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    return _GIVES_UP.match(name) is not None


def is_true(test: ast.expr) -> bool:
    return isinstance(test, ast.Constant) and bool(test.value)


def after(loop: Loop, wanted: ast.stmt) -> list[ast.stmt] | None:
    """The statements between the end of `wanted` and the next turn of the loop that holds it."""
    waiting: list[tuple[list[ast.stmt], list[ast.stmt]]] = [(loop.body, [])]
    while waiting:
        block, rest = waiting.pop()
        for index, node in enumerate(block):
            following = block[index + 1 :] + rest
            if node is wanted:
                return following
            if isinstance(node, ast.If):
                waiting += [(node.body, following), (node.orelse, following)]
            elif isinstance(node, ast.With | ast.AsyncWith):
                waiting.append((node.body, following))
            elif isinstance(node, TRYING):
                waiting.append((node.body, node.orelse + node.finalbody + following))
                waiting.append((node.orelse, node.finalbody + following))
                waiting += [(handler.body, node.finalbody + following) for handler in node.handlers]
            elif isinstance(node, ast.Match):
                waiting += [(case.body, following) for case in node.cases]
    return None


def own(loop: Loop) -> list[ast.stmt]:
    """Every statement of a loop that is not inside an inner loop or function."""
    found: list[ast.stmt] = []
    waiting = [loop.body]
    while waiting:
        for node in waiting.pop():
            found.append(node)
            if isinstance(node, ast.If):
                waiting += [node.body, node.orelse]
            elif isinstance(node, ast.With | ast.AsyncWith):
                waiting.append(node.body)
            elif isinstance(node, TRYING):
                waiting += [node.body, node.orelse, node.finalbody]
                waiting += [handler.body for handler in node.handlers]
            elif isinstance(node, ast.Match):
                waiting += [case.body for case in node.cases]
    return found
