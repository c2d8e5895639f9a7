"""KFM108: a handler for everything that does nothing, around work that was meant to happen."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kfm.lint.beside import PROMISES_LITTLE
from kfm.lint.exceptions import BROAD, caught
from kfm.lint.findings import SURE, Mark
from kfm.lint.loops import Retry, is_work
from kfm.lint.missed import is_missed
from kfm.lint.names import last
from kfm.lint.outline import TRYING, Function, Module, Trying, inside
from kfm.lint.reasons import is_documented, is_reasoned

DROPPED = "Any error is dropped here: not handled, not logged, not passed on."
_LAST_WORDS = (
    "__del__",
    "__exit__",
    "__aexit__",
    "__repr__",
    "__str__",
    "__hash__",
    "__eq__",
    "__dir__",
    "__rich__",
    "_repr_html_",
)


def check_swallowed(module: Module, retries: list[Retry]) -> Iterator[Mark]:
    retried = {id(failure.node) for retry in retries for failure in retry.failures}
    aside = _within_handlers(module)
    for trying, function in module.tries:
        for handler in trying.handlers:
            if caught(module.names, handler) or id(handler) in retried or not _is_silent(handler):
                continue
            if id(trying) in aside or _has_other_ways(module, trying, handler, function):
                continue
            if _is_excused(module, trying.body, function) or is_reasoned(module, handler, trying):
                continue
            missed = is_missed(module, trying.body, function, trying)
            if missed:
                yield Mark("KFM108", handler, DROPPED, missed == SURE)
    for node in module.withs:
        if id(node) not in aside:
            yield from _suppressed(module, node)


def _is_silent(handler: ast.ExceptHandler) -> bool:
    return all(
        isinstance(node, ast.Pass | ast.Continue)
        or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        for node in handler.body
    )


def _is_excused(module: Module, body: list[ast.stmt], function: Function | None) -> bool:
    if function is not None and (function.name in _LAST_WORDS or PROMISES_LITTLE.search(function.name)):
        return True
    if is_documented(function) or any(isinstance(node, ast.Import | ast.ImportFrom) for node in body):
        return True
    return not is_work(module, body)


def _says_nothing(node: ast.stmt | None) -> bool:
    """The end, or `return`, or `return None`: whoever called learns nothing."""
    return node is None or (
        isinstance(node, ast.Return)
        and (node.value is None or (isinstance(node.value, ast.Constant) and node.value.value is None))
    )


def _has_other_ways(
    module: Module, trying: Trying, handler: ast.ExceptHandler, function: Function | None
) -> bool:
    """Success leads out, so what stands below is what is done, or answered, on failure."""
    if isinstance(trying.body[-1], ast.Raise):
        return True  # to fail was what it should do
    if any(isinstance(node, ast.Continue | ast.Break) for node in inside(trying.body + trying.orelse)):
        return True
    if not any(isinstance(node, ast.Return) for node in inside(trying.body + trying.orelse)):
        return False
    if isinstance(handler.body[-1], ast.Continue):
        return True
    if function is not None and function.body[-1].lineno > trying.lineno:
        return not _says_nothing(function.body[-1])
    then = module.following.get(id(trying))
    if then is None:  # the end of a turn: `pass` means `continue`
        return any(loop.body[-1] is trying for loop, _ in module.loops)
    return not _says_nothing(then)


def _within_handlers(module: Module) -> set[int]:
    """Attempts made while another error is being handled: that one is told, this one would hide it."""
    return {
        id(node)
        for trying, _ in module.tries
        for block in [*(handler.body for handler in trying.handlers), trying.finalbody]
        for node in inside(block)
        if isinstance(node, (*TRYING, ast.With, ast.AsyncWith))
    }


def _suppressed(module: Module, node: ast.With | ast.AsyncWith) -> Iterator[Mark]:
    for item in node.items:
        call = item.context_expr
        if not isinstance(call, ast.Call) or last(module.names.called(call)) != "suppress":
            continue
        if not any(last(module.names.dotted(each)) in BROAD for each in call.args):
            continue
        function = _function_around(module, node)
        if _is_excused(module, node.body, function) or is_reasoned(module, node, node):
            continue
        if any(isinstance(each, ast.Return) for each in inside(list(node.body))):
            continue
        missed = is_missed(module, node.body, function, node)
        if missed:
            yield Mark("KFM108", call, DROPPED, missed == SURE)


def _function_around(module: Module, node: ast.stmt) -> Function | None:
    around = [
        each for each in module.functions if each.lineno <= node.lineno <= (each.end_lineno or each.lineno)
    ]
    return max(around, key=lambda each: each.lineno, default=None)
