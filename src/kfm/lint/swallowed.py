"""KFM108: a handler for everything that does nothing."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from kfm.lint.exceptions import BROAD, caught
from kfm.lint.findings import Mark
from kfm.lint.loops import Retry, is_work
from kfm.lint.names import last
from kfm.lint.outline import TRYING, Function, Module, Trying, calls_in, inside

DROPPED = "Any error is dropped here: not handled, not logged, not passed on."
_LAST_WORDS = ("__del__", "__exit__", "__aexit__", "__repr__", "__str__")
_ASIDE = re.compile(r"_*(test|close|shutdown|stop|terminate|cleanup|clean_up|teardown|tear_down)")
# Tidying up goes on whatever happens; an error there would hide the one that matters.
_TIDYING = re.compile(
    r"_*(force_|safe_)?(a?close|shutdown|disconnect|release|unlink|remove|rm|kill|terminate|cancel|rollback|stop|join|clean|clear"
    r"|flush|quit|logout|detach|un(register|subscribe|bind|install|lock)|deregister|dispose|destroy|__a?exit__|restore"
    r"|abort|delete|discard|free|end_|wait|disable|drop|reset|set(timeout|blocking|sockopt)|exception|warn|error"
    r"|info|debug|critical|log|print|server_close|teardown|tear_down|finali[sz]e|purge|evict|expire|invalidate|record_|track_|set_on_|set_result|set_exception)"
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
            if not _is_excused(module, trying, function):
                yield Mark("KFM108", handler, DROPPED)
    last_words = [each for each in module.functions if each.name in _LAST_WORDS]
    for node in module.withs:
        if not any(each.lineno <= node.lineno <= (each.end_lineno or 0) for each in last_words):
            yield from _suppressed(module, node)


def _is_silent(handler: ast.ExceptHandler) -> bool:
    return all(
        isinstance(node, ast.Pass | ast.Continue)
        or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        for node in handler.body
    )


def _is_excused(module: Module, trying: Trying, function: Function | None) -> bool:
    if function is not None and (function.name in _LAST_WORDS or _ASIDE.match(function.name)):
        return True
    if any(isinstance(node, ast.Import | ast.ImportFrom) for node in trying.body):
        return True
    return not is_work(module, trying.body) or _tidies(module, trying.body)


def _ends_in_value(node: ast.stmt) -> bool:
    """`return something`, not `return None`"""
    return isinstance(node, ast.Return) and not (
        node.value is None or isinstance(node.value, ast.Constant | ast.Tuple)
    )


def _has_other_ways(
    module: Module, trying: Trying, handler: ast.ExceptHandler, function: Function | None
) -> bool:
    """Success leads out and failure leads to the next way of doing it: `return a()`, else `return b()`."""
    if not any(isinstance(node, ast.Return) for node in inside(trying.body)):
        return False
    if isinstance(handler.body[-1], ast.Continue):
        return True
    if function is not None and _ends_in_value(function.body[-1]):
        return True
    then = module.following.get(id(trying))
    if then is None:  # the end of a turn: `pass` means `continue`
        return any(isinstance(loop, ast.For) and loop.body[-1] is trying for loop, _ in module.loops)
    if isinstance(then, ast.Return):
        return _ends_in_value(then)
    return isinstance(then, TRYING) or (isinstance(then, ast.Assign) and bool(calls_in([then])))


def _within_handlers(module: Module) -> set[int]:
    """Attempts made while another error is being handled: that one is told, this one would hide it."""
    return {
        id(node)
        for trying, _ in module.tries
        for block in [*(handler.body for handler in trying.handlers), trying.finalbody]
        for node in inside(block)
        if isinstance(node, TRYING)
    }


def _tidies(module: Module, body: list[ast.stmt]) -> bool:
    """Is this only tidying up, or telling about something?"""
    calls = []
    for node in inside(list(body)):
        if isinstance(node, ast.Call):
            calls.append(last(module.names.called(node)))
        elif isinstance(node, ast.Return | ast.Yield) or (isinstance(node, TRYING) and node.orelse):
            return False
    tidying = [name for name in calls if _TIDYING.match(name)]
    return bool(tidying) and (len(calls) <= 3 or len(tidying) == len(calls) or tidying[0] == calls[0])


def _suppressed(module: Module, node: ast.With | ast.AsyncWith) -> Iterator[Mark]:
    for item in node.items:
        call = item.context_expr
        if not isinstance(call, ast.Call) or last(module.names.called(call)) != "suppress":
            continue
        broad = any(last(module.names.dotted(each)) in BROAD for each in call.args)
        imports = any(isinstance(each, ast.Import | ast.ImportFrom) for each in node.body)
        if broad and not imports and is_work(module, node.body) and not _tidies(module, node.body):
            yield Mark("KFM108", call, DROPPED)
