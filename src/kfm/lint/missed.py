"""Would anybody miss it? What the work under a silent handler was for."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kfm.lint.beside import BESIDE_FILES, COLLECTS, COMFORT, FETCHES, ON_THE_SIDE, SOMEBODY, TIDYING, WRITES
from kfm.lint.loops import is_work
from kfm.lint.names import is_remark, is_sleep, last
from kfm.lint.outline import Function, Module, Trying, calls_in, inside, names_in

Attempt = Trying | ast.With | ast.AsyncWith


def is_missed(module: Module, body: list[ast.stmt], function: Function | None, attempt: Attempt) -> bool:
    """Was something to be done here that nobody hears of if it fails?

    Work for its effect, an item that was to be collected, or a fetched answer. Values with a default,
    comfort, tidying up and whatever goes beside the work are not missed.
    """
    if function is not None and ON_THE_SIDE.search(function.name):
        return False
    if any(BESIDE_FILES.search(name) for name in _names_around(module, attempt)):
        return False
    called = [(call, module.names.called(call)) for call in calls_in(body)]
    if any(ON_THE_SIDE.search(name) for _, name in called) or _tidies([name for _, name in called]):
        return False
    for_effect = _for_effect(body)
    offered = _offered(module, body)
    for call, name in called:
        if name in offered or _is_minor(name):
            continue
        if last(name) in COLLECTS:
            if id(call) in for_effect and _is_turn(module, attempt) and is_work(module, _given(call)):
                return True
        elif id(call) in for_effect and is_work(module, [ast.Expr(call)]):
            return True
        elif "." in name and WRITES.match(last(name)):
            return True
    return _is_answer(body, function) and any(
        "." in name and name.partition(".")[0] in FETCHES for _, name in called
    )


def _tidies(names: list[str]) -> bool:
    tidying = [name for name in names if TIDYING.match(last(name))]
    if not tidying:
        return False
    return len(names) <= 3 or len(tidying) * 2 >= len(names) or tidying[0] == names[0]


def _is_minor(name: str) -> bool:
    short = last(name)
    if short in SOMEBODY or is_remark(name) or is_sleep(name):
        return True
    return TIDYING.match(short) is not None or COMFORT.match(short) is not None


def _for_effect(body: list[ast.stmt]) -> set[int]:
    """Calls whose result nobody takes: they are there for what they do. Before an assignment that ends the
    block they prepare a value."""
    if isinstance(body[-1], ast.Assign | ast.AnnAssign):
        return set()
    found = set()
    for node in inside(body):
        if isinstance(node, ast.Expr):
            value = node.value.value if isinstance(node.value, ast.Await) else node.value
            found.add(id(value))
    return found


def _offered(module: Module, body: list[ast.stmt]) -> set[str]:
    """`warm = getattr(client, "warm", None)`: what is called only where it exists."""
    return {
        name
        for node in inside(body)
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Call)
        and module.names.called(node.value) == "getattr"
        for name in names_in(list(node.targets))
    }


def _given(call: ast.Call) -> list[ast.stmt]:
    return [ast.Expr(each) for each in [*call.args, *(keyword.value for keyword in call.keywords)]]


def _is_turn(module: Module, attempt: Attempt) -> bool:
    """Is it what a loop does with each item?"""
    return any(isinstance(loop, ast.For | ast.AsyncFor) and attempt in loop.body for loop, _ in module.loops)


def _is_answer(body: list[ast.stmt], function: Function | None) -> bool:
    """Is this what the function answers, with nothing to tell a failure from an empty answer?"""
    if function is None:
        return False
    if isinstance(body[-1], ast.Return):
        return body[-1].value is not None
    end = function.body[-1]
    made = {
        target.id
        for node in body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    return isinstance(end, ast.Return) and end.value is not None and bool(made & names_in([end.value]))


def _names_around(module: Module, node: Attempt) -> Iterator[str]:
    """The classes that hold this place, and the file with its folder."""
    for each in module.classes:
        if each.lineno <= node.lineno <= (each.end_lineno or 0):
            yield each.name
    yield from module.source.path.replace("\\", "/").removesuffix(".py").rsplit("/", 2)[-2:]
