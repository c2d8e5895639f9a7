"""KFM108: a handler for everything that does nothing, around work that was meant to happen."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from kfm_lint.failure_kinds import BROAD, caught
from kfm_lint.findings import SURE, Mark
from kfm_lint.ignored_calls import BEST_EFFORT, lost_work
from kfm_lint.index import TRY_STATEMENTS, Function, Module, TryStatement, comments_above, inside, last
from kfm_lint.retry_loops import Retry, is_work

# --- handlers -------------------------------------------------------------------------

DROPPED = "Any error is dropped here: not handled, not logged, not passed on."
_LAST_METHODS = (
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
            lost = lost_work(module, trying.body, function, trying)
            if lost:
                yield Mark("KFM108", handler, DROPPED, lost == SURE)
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
    if function is not None and (function.name in _LAST_METHODS or BEST_EFFORT.search(function.name)):
        return True
    if is_documented(function) or any(isinstance(node, ast.Import | ast.ImportFrom) for node in body):
        return True
    return not is_work(module, body)


def _says_nothing(node: ast.stmt | None) -> bool:
    """The end, or `return`, or `return None`: the caller learns nothing."""
    return node is None or (
        isinstance(node, ast.Return)
        and (node.value is None or (isinstance(node.value, ast.Constant) and node.value.value is None))
    )


def _has_other_ways(
    module: Module, trying: TryStatement, handler: ast.ExceptHandler, function: Function | None
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
    """Attempts made while another error is being handled: that one is reported, this one would hide it."""
    return {
        id(node)
        for trying, _ in module.tries
        for block in [*(handler.body for handler in trying.handlers), trying.finalbody]
        for node in inside(block)
        if isinstance(node, (*TRY_STATEMENTS, ast.With, ast.AsyncWith))
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
        lost = lost_work(module, node.body, function, node)
        if lost:
            yield Mark("KFM108", call, DROPPED, lost == SURE)


def _function_around(module: Module, node: ast.stmt) -> Function | None:
    around = [
        each for each in module.functions if each.lineno <= node.lineno <= (each.end_lineno or each.lineno)
    ]
    return max(around, key=lambda each: each.lineno, default=None)


# --- comments that give the reason ----------------------------------------------------

WORDS_MIN = 4  # "should not happen" is a hope
# What a comment says to other tools; a reason may follow.
_DIRECTIVE = re.compile(
    r"(?i)\b(noqa(:\s*[a-z]+\d+(\s*,\s*[a-z]+\d+)*)?|pylint:\s*[\w-]+\s*=\s*[\w,-]+(\s*,\s*[\w-]+)*"
    r"|type:\s*ignore(\[[\w,-]*\])?|pragma:\s*no\s*\w+|noinspection\s+\w+(\s*,\s*\w+)*|nosec(:?\s+b\d+)?"
    r"|nosemgrep\S*|mypy:\s*\S+|lgtm\S*|codeql\S*|pyright:\s*\S+|ruff:\s*\S+|yapf:\s*\S+|skipcq\S*"
    r"|(bare|broad)-except(ion)?)"
)
_WORD = re.compile(r"[^\W\d_][\w'’]*")
_DOCUMENTED = re.compile(
    r"(?i)best[- ]?effort|silent|\bignor|never (raise|fail|break|block|let)|swallow|suppress|non-?fatal"
    r"|fail-?safe|fire[- ]and[- ]forget"
)
_BEFOREHAND = re.compile(
    r"(?i)best[- ]?effort|ignor|optional|if (we|it|you|this|possible|available|not|there)|silent"
    r"|doesn't|won't|not (fatal|critical|important)|never (fail|raise|break|block)|"
    r"(may|might|can|could) (fail|not|raise|be)|n['o]?t (care|fail|matter|break|crash|raise|block)"
    r"|(try|attempt) to|swallow|suppress|fall ?back"
    r"|whatever|harmless|reason|because|otherwise|workaround|dropped|in case|just in|clean"
)


def is_reasoned(module: Module, node: ast.stmt | ast.excepthandler, attempt: ast.stmt) -> bool:
    """Does a comment at the handler say why, or one above the attempt that it may fail?"""
    lines = module.source.lines
    last = max(node.lineno, *(each.end_lineno or 0 for each in getattr(node, "body", [node])[:1]))
    if node is attempt:  # `with suppress(…):`, whose body is the work
        last = node.lineno
    said = [line.partition("#")[2] for line in lines[node.lineno - 1 : last]]
    said += comments_above(lines, node.lineno)
    if words(" ".join(said)) >= WORDS_MIN:
        return True
    return any(_BEFOREHAND.search(line) for line in comments_above(lines, attempt.lineno))


def is_documented(function: ast.FunctionDef | ast.AsyncFunctionDef | None) -> bool:
    """Does the function promise no more than a try?"""
    return (
        function is not None
        and _DOCUMENTED.search(ast.get_docstring(function, clean=False) or "") is not None
    )


def words(comment: str) -> int:
    return len(_WORD.findall(_DIRECTIVE.sub(" ", comment.replace("#", " "))))
