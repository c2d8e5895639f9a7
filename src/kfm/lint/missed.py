"""Would anybody miss it? What the work under a silent handler was for."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kfm.lint.beside import (
    BESIDE_FILES,
    COLLECTS,
    COMFORT,
    FETCHES,
    ON_THE_SIDE,
    SOMEBODY,
    TIDYING,
    WORKS,
    WRITES,
)
from kfm.lint.findings import LIKELY, SURE
from kfm.lint.loops import is_work
from kfm.lint.names import is_remark, is_sleep, last
from kfm.lint.outline import Function, Module, Trying, calls_in, inside, names_in

Attempt = Trying | ast.With | ast.AsyncWith


def is_missed(module: Module, body: list[ast.stmt], function: Function | None, attempt: Attempt) -> str:
    """Was something to be done here that nobody hears of if it fails? And how sure is that?

    Work for its effect, an item that was to be collected, or a fetched answer. Values with a default,
    comfort, tidying up and whatever goes beside the work are not missed. Sure is what is written, fetched
    or collected, and what was to be done with each item of a loop.
    """
    if function is not None and ON_THE_SIDE.search(function.name):
        return ""
    if any(BESIDE_FILES.search(name) for name in _names_around(module, attempt)):
        return ""
    called = [(call, module.names.called(call)) for call in calls_in(body)]
    if _tidies([name for _, name in called]) or any(map(ON_THE_SIDE.search, _words(called))):
        return ""
    likely = False
    for_effect = _for_effect(body, attempt)
    offered = _offered(module, body)
    perhaps = {id(call) for node in inside(body) if isinstance(node, ast.If) for call in calls_in([node])}
    for call, name in called:
        if name in offered or _is_minor(name):
            continue
        if last(name) in COLLECTS:
            if (
                id(call) in for_effect
                and _is_made(module, call)
                and is_work(module, _given(call))
                and _is_lost(module, attempt, call)
            ):
                if last(name) in ("append", "add") and not _is_tried_twice(module, attempt):
                    return SURE
                likely = True
            continue
        acts = id(call) in for_effect and WORKS.match(last(name)) and is_work(module, [ast.Expr(call)])
        if id(call) in perhaps or _asks(call):
            likely = likely or bool(acts) or ("." in name and WRITES.match(last(name)) is not None)
            continue
        if "." in name and WRITES.match(last(name)):
            return SURE
        if acts and (WRITES.match(last(name)) or _is_for_item(module, attempt, call)):
            return SURE
        likely = likely or bool(acts)
    fetched = any("." in name and name.partition(".")[0] in FETCHES for _, name in called)
    if fetched and _is_answer(body, function):
        return SURE
    return LIKELY if likely else ""


def _is_made(module: Module, call: ast.Call) -> bool:
    """Is the item more than a name put another way? `os.path.abspath(folder)` does not fail."""
    made = [module.names.called(each) for each in calls_in([*call.args])]
    return any(not name.startswith("os.path.") and last(name) not in ("str", "Path") for name in made)


def _asks(call: ast.Call) -> bool:
    """`submit("GET", path)` leaves nothing behind."""
    return any(isinstance(each, ast.Constant) and each.value in ("GET", "HEAD") for each in call.args)


def _is_tried_twice(module: Module, attempt: Attempt) -> bool:
    """Does another loop try the same items in another way? Then what fails here may do well there."""
    around = next((loop for loop, _ in module.loops if attempt in loop.body), None)
    if not isinstance(around, ast.For):
        return False
    if isinstance(around.iter, ast.Tuple | ast.List):
        return True  # `for strict in (True, False):`
    return any(
        loop is not around and isinstance(loop, ast.For) and ast.dump(loop.iter) == ast.dump(around.iter)
        for loop, _ in module.loops
        if any(isinstance(node, ast.Try) for node in loop.body)
    )


def _is_for_item(module: Module, attempt: Attempt, call: ast.Call) -> bool:
    """`for part in parts: try: load(part)`: is it done to each item, and to nothing else?"""
    subjects = {each.id for each in call.args if isinstance(each, ast.Name)}
    if isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name):
        subjects.add(call.func.value.id)
    return any(
        isinstance(loop, ast.For | ast.AsyncFor)
        and attempt in loop.body
        and subjects & names_in([loop.target])
        for loop, _ in module.loops
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


def _words(called: list[tuple[ast.Call, str]]) -> Iterator[str]:
    """The parts of what is called, and of what is handed to it by name."""
    for call, name in called:
        yield from name.split(".")
        for each in call.args:
            if isinstance(each, ast.Attribute):
                yield each.attr


def _for_effect(body: list[ast.stmt], attempt: Attempt) -> set[int]:
    """Calls whose result nobody takes: they are there for what they do.

    Before an assignment that ends the block they prepare a value; with an `else` they are a probe; and
    whoever writes `suppress` has thought of it.
    """
    if isinstance(body[-1], ast.Assign | ast.AnnAssign):
        return set()
    if not isinstance(attempt, ast.Try | ast.TryStar) or attempt.orelse:
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


def _is_lost(module: Module, attempt: Attempt, call: ast.Call) -> bool:
    """Is it an item of a loop, in a collection whose size nobody looks at afterwards?"""
    for loop, function in module.loops:
        if isinstance(loop, ast.For | ast.AsyncFor) and attempt in loop.body:
            filled = names_in([call.func]) - COLLECTS - {"self"}
            looked = [
                node.test
                for node in inside(list(function.body) if function is not None else [])
                if isinstance(node, ast.If) and node.lineno > (loop.end_lineno or 0)
            ]
            return not filled & names_in(looked)
    return False


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
