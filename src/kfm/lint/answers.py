"""HTTP answers as code tests them: `response.status_code in (429, 503)`, `not response.ok`."""

from __future__ import annotations

import ast
import re

from kfm.lint.names import last

_STATUS = re.compile(r"(?i)^(http_?)?status(_?code)?$|^code$|^resp(onse)?_(code|status)$|^httpstatuscode$")
SYMBOLS = {
    "TOO_MANY_REQUESTS": 429,
    "SERVICE_UNAVAILABLE": 503,
    "BAD_GATEWAY": 502,
    "GATEWAY_TIMEOUT": 504,
    "INTERNAL_SERVER_ERROR": 500,
    "BAD_REQUEST": 400,
    "FORBIDDEN": 403,
    "METHOD_NOT_ALLOWED": 405,
    "GONE": 410,
    "UNPROCESSABLE_ENTITY": 422,
    "UNPROCESSABLE_CONTENT": 422,
    "UNSUPPORTED_MEDIA_TYPE": 415,
    "UNAVAILABLE_FOR_LEGAL_REASONS": 451,
    "OK": 200,
    "too_many_requests": 429,
    "too_many": 429,
}
ASKS_TO_WAIT = frozenset((429, 503))
# The answer is about the request: sent again it gets the same answer.
PERMANENT = frozenset((400, 403, 405, 410, 415, 422, 451))


def statuses(test: ast.expr) -> list[tuple[ast.cmpop, set[int]]]:
    """(comparison, numbers) for each comparison of a status in this expression."""
    found = []
    for node in ast.walk(test):
        if not isinstance(node, ast.Compare) or len(node.ops) != 1:
            continue
        sides = [node.left, node.comparators[0]]
        if not any(_is_status(each) for each in sides):
            continue
        numbers = numbers_in(sides)
        if numbers:
            found.append((node.ops[0], numbers))
    return found


def numbers_in(nodes: list[ast.expr]) -> set[int]:
    numbers: set[int] = set()
    for each in nodes:
        for leaf in ast.walk(each):
            if isinstance(leaf, ast.Constant) and type(leaf.value) is int and 100 <= leaf.value < 600:
                numbers.add(leaf.value)
            elif isinstance(leaf, ast.Attribute) and leaf.attr in SYMBOLS:
                numbers.add(SYMBOLS[leaf.attr])
    return numbers


def _is_status(node: ast.expr) -> bool:
    if isinstance(node, ast.Call):  # getcode(), int(e.code)
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        return name in ("getcode", "get_status") or any(_is_status(each) for each in node.args)
    if isinstance(node, ast.Subscript):
        key = node.slice
        return isinstance(key, ast.Constant) and isinstance(key.value, str) and bool(_STATUS.match(key.value))
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    return _STATUS.match(name) is not None


def is_failure(test: ast.expr) -> bool:
    """Is this true when the other side could not serve us?"""
    for comparison, numbers in statuses(test):
        if isinstance(comparison, ast.Eq | ast.In | ast.GtE | ast.Gt) and min(numbers) >= 399:
            return True
        if isinstance(comparison, ast.NotEq | ast.NotIn) and all(200 <= each < 300 for each in numbers):
            return True
    return (
        isinstance(test, ast.UnaryOp)
        and isinstance(test.op, ast.Not)
        and isinstance(test.operand, ast.Attribute)
        and test.operand.attr in ("ok", "is_success")
    )


def is_success(test: ast.expr) -> bool:
    for comparison, numbers in statuses(test):
        if isinstance(comparison, ast.Eq | ast.In) and all(200 <= each < 400 for each in numbers):
            return True
        if isinstance(comparison, ast.Lt | ast.LtE) and max(numbers) in (300, 399, 400, 499, 500):
            return True
    return isinstance(test, ast.Attribute) and last(test.attr) in ("ok", "is_success")
