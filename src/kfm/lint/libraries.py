"""Retries that a library does: which calls declare one, and what their arguments say."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from kfm.lint.evidence import is_probe, raises_itself, waits_near
from kfm.lint.exceptions import is_held, is_race
from kfm.lint.findings import Mark
from kfm.lint.names import Names, last
from kfm.lint.outline import Module

ATTEMPTS_MAX = 100  # more than this is no limit: at one a minute it is most of two hours


class Declared(NamedTuple):
    """One call of a library, with its arguments by name."""

    names: Names
    call: ast.Call
    name: str  # resolved: `tenacity.retry`
    given: dict[str, ast.expr]
    is_open: bool  # `**options`: what is missing may be in there

    def value(self, name: str) -> object:
        """A literal argument; `...` if it is missing or not literal."""
        node = self.given.get(name)
        return literal(node) if node is not None else ...

    def lacks(self, *names: str) -> bool:
        return not self.is_open and not any(name in self.given for name in names)


def literal(node: ast.expr) -> object:
    """The value of a plain literal, `...` for anything else."""
    if isinstance(node, ast.Constant):
        return node.value
    if (
        isinstance(node, ast.UnaryOp)
        and isinstance(node.op, ast.USub)
        and isinstance(node.operand, ast.Constant)
    ):
        value = node.operand.value
        return -value if isinstance(value, int | float) else ...
    if (
        isinstance(node, ast.Name | ast.Attribute)
        and (getattr(node, "attr", "") or getattr(node, "id", "")) == "inf"
    ):
        return float("inf")
    return ...


def declared(names: Names, call: ast.Call, positional: tuple[str, ...]) -> Declared:
    given = {each.arg: each.value for each in call.keywords if each.arg}
    is_open = any(each.arg is None for each in call.keywords)
    for name, node in zip(positional, call.args, strict=False):
        if isinstance(node, ast.Starred):
            is_open = True
            break
        given.setdefault(name, node)
    return Declared(names, call, names.called(call), given, is_open)


def is_endless(value: object) -> bool:
    """None, infinity, or a number that nobody will live to see."""
    return value is None or (
        isinstance(value, int | float) and not isinstance(value, bool) and value >= ATTEMPTS_MAX
    )


Check = Callable[[Declared], Iterator[Mark]]
# Words without which a file needs no search for declarations, however much it imports.
WORDS = (
    "tenacity",
    "backoff",
    "stamina",
    "retrying",
    "urllib3",
    "max_retries",
    "retries",
    "aiohttp_retry",
    "Retry",
)


def check_libraries(module: Module) -> Iterator[Mark]:
    from kfm.lint import decorators, transports

    roots = decorators.ROOTS | transports.ROOTS
    if not (roots & module.names.modules) or not any(word in module.source.text for word in WORDS):
        return
    # A flaky test that is run again is no call to anybody; what a test declares is an example.
    tests = [each for each in module.functions if each.name.startswith("test")]
    spared = {id(each) for test in tests for each in test.decorator_list}
    spans = [(test.lineno, test.end_lineno or test.lineno) for test in tests]
    for node in ast.walk(module.source.tree):
        if isinstance(node, ast.Call) and id(node) not in spared:
            for mark in _check(module, node, decorators.CALLS, transports.CALLS):
                if not any(first <= node.lineno <= end for first, end in spans):
                    yield mark if not mark.sure else mark._replace(sure=not _waits(module, node, mark))
    yield from decorators.check_bare(module)


def _waits(module: Module, node: ast.Call, mark: Mark) -> bool:
    """Is it waited for a state, or is a lost race run again, by means of a retry?"""
    if mark.code not in ("KFM101", "KFM102", "KFM103"):
        return False
    if any(
        is_race(name := module.names.dotted(each)) or is_held(name)
        for each in ast.walk(node)
        if isinstance(each, ast.Name | ast.Attribute)
    ):
        return True
    repeated = _repeated(module, node)
    end = max((each.end_lineno or 0 for each in repeated[:1]), default=node.end_lineno or 0)
    if waits_near(module, node.lineno, end) or is_probe(module, repeated):
        return True
    return mark.code != "KFM102" and raises_itself(repeated)  # nobody waits for a state without a wait


def _repeated(module: Module, node: ast.Call) -> list[ast.stmt]:
    """The body of the decorated function, or of the loop over attempts."""
    for function in module.functions:
        if node in function.decorator_list:
            return list(function.body)
    for loop, _ in module.loops:
        if isinstance(loop, ast.For | ast.AsyncFor) and loop.iter is node:
            return list(loop.body)
    return []


def _check(
    module: Module, node: ast.Call, *tables: dict[tuple[str, str], tuple[tuple[str, ...], Check]]
) -> Iterator[Mark]:
    name = module.names.called(node)
    root = name.partition(".")[0]
    if root == name:
        return
    if root in ("requests", "pip") and ".urllib3." in name:  # requests.packages.urllib3.util.retry.Retry
        root = "urllib3"
    for table in tables:
        found = table.get((root, last(name)))
        if found is not None:
            positional, check = found
            for mark in check(declared(module.names, node, positional)):
                if mark.code != "KFM104":
                    yield mark
                elif not _only_asks(module, node):
                    yield mark._replace(sure=mark.sure and not _is_for_reading(module, node))


_GETS = re.compile(r"(?i)(session|client|requests|http)\w*(\(\))?\.get\(")
_ASKS_A_MODEL = re.compile(r"(?i)\bcompletions?\b|\bembeddings?\b|max_tokens")
_SENDS = re.compile(r"\.(post|patch|put|request|send)\(")


def _is_for_reading(module: Module, node: ast.Call) -> bool:
    """Is it set up inside a function that reads? Then its POST is a question that is too long for a GET."""
    from kfm.lint.effects import READS_SOMEWHERE

    if _ASKS_A_MODEL.search(module.source.text):
        return True
    if _GETS.search(module.source.text) and not _SENDS.search(module.source.text):
        return True
    around = [each for each in module.functions if each.lineno <= node.lineno <= (each.end_lineno or 0)]
    return any(READS_SOMEWHERE.search(each.name) for each in around)


def _only_asks(module: Module, node: ast.Call) -> bool:
    """Is it said close by, or by the file's name, that these requests change nothing?"""
    lines = module.source.lines[max(node.lineno - 9, 0) : (node.end_lineno or node.lineno)]
    if re.search(r"(?i)read[- ]only|idempoten|search|quer(y|ies)|embedding", "\n".join(lines)):
        return True
    path = "/".join(module.source.path.replace("\\", "/").split("/")[-2:])
    return re.search(r"(?i)search|query|embedding|llm", path) is not None
