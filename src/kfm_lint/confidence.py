"""How sure is a finding? What the code itself shows, by structure rather than by what things are called.

`sure` needs that the loop is a retry beyond doubt: its author says so (a counter of attempts, a message that
it retries), or there is nothing in it beside one call whose result is handed over; and each turn makes the
same call with the same arguments. Whatever else fires is `likely`.
"""

from __future__ import annotations

import ast
import re

from kfm_lint.failure_kinds import is_held, is_success, statuses
from kfm_lint.index import (
    LOOPS,
    RAISE,
    TRY_STATEMENTS,
    Loop,
    Module,
    assigned_in,
    calls_in,
    flow,
    inside,
    is_passive,
    is_sleep,
    last,
    names_in,
)
from kfm_lint.retry_loops import COUNTER, Failure, Retry, is_lost_race

_DECLARED = re.compile(
    r"(?i)retr(y|ies|ied)|attempt|(^|_|\b)(max_?|n_?|num_?)?tries(_|\b)|try(ing)?[ _]again"
)
_TESTS = re.compile(
    r"(^|/)(tests?|testing|conftest\.py|test_[^/]*\.py|testing[^/]*\.py|[^/]*_tests?(/|\.py)|testutils?[^/]*)(/|$)"
)
# What it says where it fails: nothing is wrong, it is not there yet.
_WAITS = re.compile(r"\bwaiting\b(?!\s*(\{|%|\d|before))|\bnot\s[\w\s]*\byet\b|\bstill\s\w+ing\b")
_READY = re.compile(
    r"(?i)\bready\b|\bwarm[-_ ]?up|\bpoll(s|ing)?\b|\bwait(s|ing)? (for|until|till|on)\b|not immediately"
    r"|becomes? available|(come|came|be) (up|online)\b|wait_(for|till|until)_"
)
_ASKS = re.compile(r"^_*(get|head|ping|options|urlopen|fetch|describe|status|info|exists)(_|$)")
_TIMED_OUT = re.compile(r"(?i)timeout|timed_?out")
_ABOVE = 5  # lines
_PARTS = 4  # of an absolute path: what stands further up is no matter of this file


def is_test(path: str) -> bool:
    """Tests wait for servers, provoke failures and drop them: other rules hold there."""
    path = path.replace("\\", "/")
    if path.startswith("/") or path[1:2] == ":":
        path = "/".join(path.split("/")[-_PARTS:])
    return _TESTS.search(path) is not None


def is_sure(module: Module, retry: Retry) -> bool:
    """Is this loop a retry of the same work, beyond doubt?"""
    if _goes_on_inside(retry) or _varies(module, retry) or by_clock(module, retry):
        return False
    if any(_WAITS.search(module.text_of(failure.node)) for failure in retry.failures):
        return False
    if waits_near(module, retry.loop.lineno, retry.loop.end_lineno or 0) or is_probe(module, retry.work):
        return False
    return is_declared(module, retry) or _is_plain(module, retry)


def is_declared(module: Module, retry: Retry) -> bool:
    """Does its author call it a retry: in a counter, in the function's name, or where it fails?"""
    loop = retry.loop
    words = assigned_in(loop.body)
    if isinstance(loop, ast.While):
        words |= names_in([loop.test])
    else:
        words |= names_in([loop.target, loop.iter])
    if retry.function is not None:
        words.add(retry.function.name)
    if any(map(_DECLARED.search, words)):
        return True
    return any(_DECLARED.search(module.text_of(failure.node)) for failure in retry.failures)


def _goes_on_inside(retry: Retry) -> bool:
    """A loop inside the attempt reads on: the next attempt does not begin where the last one did."""
    return any(isinstance(node, (*LOOPS, ast.Yield, ast.YieldFrom)) for node in inside(retry.work))


def _varies(module: Module, retry: Retry) -> bool:
    """Is an argument of the work, or what it is asked of, made anew in each turn?"""
    loop = retry.loop
    changed = assigned_in(_beside(retry))
    # `while host := hosts.pop():` takes the next one.
    changed |= assigned_in([loop.test]) if isinstance(loop, ast.While) else names_in([loop.target])
    changed -= {"self", "cls"}
    for node in inside(retry.work):
        if isinstance(node, ast.Assign) and changed & names_in([node.value]) and not calls_in([node.value]):
            changed |= assigned_in([node])
    work: list[ast.stmt] = retry.work if retry.work is not loop.body else loop.body[:1]
    for call in calls_in(work):
        name = module.names.called(call)
        if is_passive(name) or is_sleep(name):
            continue
        given = names_in([*call.args, *(each.value for each in call.keywords)])
        if (given | _root(call.func)) & changed:
            return True
        if any(isinstance(each, ast.Call) and module.names.called(each) == "next" for each in call.args):
            return True
    return False


def _beside(retry: Retry) -> list[ast.AST]:
    """What is bound in the loop, but not by what is attempted."""
    if retry.work is retry.loop.body:
        return [node for node in inside(retry.work) if isinstance(node, ast.AugAssign)]
    held = {id(node) for node in inside(retry.work)}
    return [
        node
        for node in inside(retry.loop.body)
        if isinstance(node, ast.Name | ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and id(node) not in held
    ]


def _root(node: ast.expr) -> set[str]:
    """`response.json()["items"]` → `response`"""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Await | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return {node.id} if isinstance(node, ast.Name) else set()


def _is_plain(module: Module, retry: Retry) -> bool:
    """Nothing but one call, whose result is handed over, and a failure that leads to it again."""
    loop = retry.loop
    if not all(is_inert(module, failure) for failure in retry.failures):
        return False
    tries = [node for node in loop.body if isinstance(node, TRY_STATEMENTS)]
    if not tries:
        refused = all(isinstance(each.node, ast.If) and _refuses(loop, each.node) for each in retry.failures)
        return refused and _is_handed_over(retry, loop.body[0], loop.body[1:])
    others = [call for node in loop.body if node is not tries[0] for call in calls_in([node])]
    if any(not is_passive(name) and not is_sleep(name) for name in map(module.names.called, others)):
        return False
    then = [*retry.work[1:], *tries[0].orelse, *loop.body[loop.body.index(tries[0]) + 1 :]]
    return _is_handed_over(retry, retry.work[0], then) or _is_flag(loop, retry.work)


def _is_handed_over(retry: Retry, first: ast.stmt, then: list[ast.stmt]) -> bool:
    """`return call()`, or `x = call()` and then `return x`. A loop that counts and ends with `break` may as
    well wait for something to come up."""
    value = getattr(first, "value", None)
    value = value.value if isinstance(value, ast.Await) else value
    if not isinstance(value, ast.Call):
        return False
    if isinstance(first, ast.Return):
        return True
    if not isinstance(first, ast.Assign):
        return False
    if isinstance(retry.loop, ast.While) and retry.function is not None:
        then = [*then, *(node for node in retry.function.body if node.lineno > retry.loop.lineno)]
    exits = [node.value for node in then if isinstance(node, ast.Return) and node.value is not None]
    return any(assigned_in([first]) & _root(each) for each in exits)


def _is_flag(loop: ast.AST, work: list[ast.stmt]) -> bool:
    """`while not done:` around a call and `done = True`"""
    if not isinstance(loop, ast.While) or len(work) != 2:
        return False
    call, flag = work
    return (
        isinstance(call, ast.Expr)
        and isinstance(flag, ast.Assign)
        and isinstance(flag.value, ast.Constant)
        and bool(assigned_in([flag]) & names_in([loop.test]))
    )


def _refuses(loop: Loop, node: ast.If) -> bool:
    """Does it name an answer that says: not now? In a loop that counts, any failure is one."""
    return isinstance(loop, ast.For) or any(min(numbers) >= 429 for _, numbers in statuses(node.test))


def reads_again(module: Module, retry: Retry) -> bool:
    """Does a turn begin with a look at how things are, or with new input? Then the next one may do better,
    however soon it comes."""
    work = {id(node) for node in inside(retry.work)}
    for node in inside(retry.loop.body):
        if isinstance(node, ast.Assign) and id(node) not in work and retry.work is not retry.loop.body:
            value = node.value.value if isinstance(node.value, ast.Await) else node.value
            if isinstance(value, ast.Call) and not is_passive(module.names.called(value)):
                return node.lineno < retry.work[0].lineno
    seen: set[str] = set()
    for node in retry.work:
        for call in calls_in([node]):
            given = names_in([*call.args, *(each.value for each in call.keywords)])
            if given & seen and not is_passive(module.names.called(call)):
                return True  # `write(key, version=looked.version)`
        if isinstance(node, ast.Assign) and calls_in([node.value]):
            seen |= assigned_in([node])
    return False


def is_picky(failure: Failure) -> bool:
    """Does the handler let only one cause through? The author knows it, and knows perhaps that it is over
    at once."""
    name = failure.node.name if isinstance(failure.node, ast.ExceptHandler) else None
    return name is not None and any(
        isinstance(node, ast.If)
        and name in names_in([node.test])
        and (
            RAISE in flow(node.body)
            or RAISE in flow(node.orelse)
            or _TIMED_OUT.search(ast.unparse(node.test))
        )
        for node in failure.body
    )


def is_held_up(failure: Failure) -> bool:
    """Is it about a lock, or about something that is not there yet? By the exception, or by one message that
    the handler looks for."""
    if failure.types and all(is_lost_race(failure) or is_held(each) for each in failure.types):
        return True
    return isinstance(failure.node, ast.ExceptHandler) and any(
        isinstance(node, ast.If) and _looks_for(node) for node in inside(failure.body)
    )


def _looks_for(node: ast.If) -> bool:
    """`if "busy" in str(error): sleep(1)`, `if "busy" not in str(error): raise`"""
    for each in ast.walk(node.test):
        if not isinstance(each, ast.Compare) or not isinstance(each.left, ast.Constant):
            continue
        if isinstance(each.left.value, str) and isinstance(each.ops[0], ast.In | ast.NotIn):
            return isinstance(each.ops[0], ast.NotIn) is (RAISE in flow(node.body))
    return False


def compares(retry: Retry) -> bool:
    """Is something measured on the way to the next attempt? It may be what limits the loop."""
    return any(
        isinstance(node, ast.Compare)
        and any(isinstance(op, ast.Lt | ast.LtE | ast.Gt | ast.GtE) for op in node.ops)
        and not statuses(node)
        for failure in retry.failures
        for node in inside([*failure.body, *failure.then])
    )


def by_clock(module: Module, retry: Retry) -> bool:
    """`while time.time() < end:` is how one waits for something."""
    if not isinstance(retry.loop, ast.While):
        return False
    return any(module.names.called(call).startswith("time.") for call in calls_in([retry.loop.test]))


def waits_near(module: Module, first: int, last_: int) -> bool:
    """Do these lines, or the few above them, say that something is waited for?"""
    lines = module.source.lines[max(first - 1 - _ABOVE, 0) : last_]
    return _READY.search("\n".join(lines)) is not None


def raises_itself(body: list[ast.stmt]) -> bool:
    """`if not order.is_done: raise NotDone`: what is repeated looks at a state and calls it a failure."""
    return any(isinstance(node, ast.Raise) and node.exc is not None for node in inside(body))


def is_probe(module: Module, body: list[ast.stmt]) -> bool:
    """A probe: something is requested and the response is not used."""
    for node in inside(body):
        value = node.value if isinstance(node, ast.Expr) else None
        if isinstance(node, ast.Assign) and assigned_in([node]) == {"_"}:
            value = node.value
        value = value.value if isinstance(value, ast.Await) else value
        name = module.names.called(value) if isinstance(value, ast.Call) else ""
        if _ASKS.match(last(name)) and not is_passive(name):
            return True
    for node in inside(body):
        if isinstance(node, ast.If) and is_success(node.test):
            exits = [each for each in node.body if isinstance(each, ast.Return | ast.Break)]
            values = [each.value for each in exits if isinstance(each, ast.Return)]
            if exits and all(each is None or isinstance(each, ast.Constant) for each in values):
                return True
    return False


def is_inert(module: Module, failure: Failure) -> bool:
    """Between the failure and the next attempt nothing is repaired: only logged, counted, waited for."""
    path = [*failure.body, *failure.then]
    calls = calls_in(path)
    waits = [call for call in calls if is_sleep(module.names.called(call))]
    logged = {id(call) for wait in waits for call in calls_in([wait])}
    for call in calls:
        if id(call) not in logged and not is_passive(module.names.called(call)):
            return False
    return all(COUNTER.search(name) for name in assigned_in(path))
