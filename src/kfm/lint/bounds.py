"""KFM101 for hand-written loops: does anything limit the attempts or the time?"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from kfm.lint.findings import Mark, head
from kfm.lint.flow import BREAK, NEXT, RAISE, RETURN, flow, is_true, own
from kfm.lint.loops import Retry, lost_a_race
from kfm.lint.names import is_passive, is_remark, last
from kfm.lint.outline import Loop, Module, assigned_in, calls_in, inside, names_in

_STOPS = re.compile(
    r"(?i)stop|shut|clos|running|alive|cancel|exit|quit|deadline|timeout|elapsed|expire|enabled|finaliz"
)


def unbounded(module: Module, retry: Retry) -> Iterator[Mark]:
    loop = retry.loop
    if all(map(lost_a_race, retry.failures)):
        return  # each time, somebody else has got on; for ever is not how long it lasts
    if isinstance(loop, ast.While):
        if not is_true(loop.test) and _limits(module, retry, loop.test):
            return
    elif not (isinstance(loop.iter, ast.Call) and _endless(module, loop.iter)):
        return
    if _has_a_clock(module, loop):
        return
    guards = [
        node.test
        for node in inside(loop.body)
        if isinstance(node, ast.Assert) or (isinstance(node, ast.If) and flow([node]) - {NEXT})
    ]
    if _may_end(retry) and any(_is_limit(module, retry, test) for test in guards):
        return
    if any(_steps(module, retry, node) for node in inside(loop.body)):
        return
    yield Mark("KFM101", head(loop), "This retries for ever: nothing limits the attempts or the time.")  # type: ignore[arg-type]


def _has_a_clock(module: Module, loop: Loop) -> bool:
    """`with timeout(30):` around it"""
    around = [
        item.context_expr
        for node in module.withs
        if node.lineno < loop.lineno and (node.end_lineno or 0) >= (loop.end_lineno or 0)
        for item in node.items
    ]
    names = [last(module.names.called(each)) for each in around if isinstance(each, ast.Call)]
    return any(re.search(r"(?i)timeout|deadline|fail_after|fail_at|move_on", name) for name in names)


def _may_end(retry: Retry) -> bool:
    """Is there a way out of the loop other than success?"""
    return any(flow(each.body + each.then) & {RAISE, RETURN, BREAK} for each in retry.failures) or any(
        isinstance(node, ast.Raise | ast.Assert | ast.Break | ast.Return) for node in own(retry.loop)
    )


def _endless(module: Module, call: ast.Call) -> bool:
    name = module.names.called(call)
    return name == "itertools.count" or (
        name == "itertools.repeat" and len(call.args) + len(call.keywords) == 1
    )


def _limits(module: Module, retry: Retry, test: ast.expr) -> bool:
    """Does the loop's own condition end it some day, or let somebody else end it?"""
    if any(isinstance(node, ast.Compare) and _orders(node) for node in ast.walk(test)):
        return True
    if any(isinstance(node, ast.Call) for node in ast.walk(test)):
        return True
    words = names_in([test]) - {"self", "cls"}
    if any(_STOPS.search(word) for word in words):
        return True
    paths = [node for failure in retry.failures for node in failure.body + failure.then]
    if words - assigned_in(retry.loop.body) or words & assigned_in(paths) or words & _counted(retry):
        return True
    return any(
        words & names_in([call]) for call in calls_in(paths) if not is_passive(module.names.called(call))
    )


def _counted(retry: Retry) -> set[str]:
    """What is counted up or down in the loop."""
    return {
        node.target.id if isinstance(node.target, ast.Name) else getattr(node.target, "attr", "")
        for node in inside(retry.loop.body)
        if isinstance(node, ast.AugAssign)
    }


def _orders(node: ast.Compare) -> bool:
    return any(isinstance(op, ast.Lt | ast.LtE | ast.Gt | ast.GtE) for op in node.ops)


def _is_limit(module: Module, retry: Retry, test: ast.expr) -> bool:
    """A guard limits the loop unless it looks at the failure, or at the answer, alone."""
    about: set[str] = {
        "isinstance",
        "hasattr",
        "getattr",
        "len",
        "any",
        "all",
        "type",
        "bool",
        "str",
        "repr",
        "args",
        "errno",
        "code",
        "status_code",
        "status",
        "response",
    }
    for failure in retry.failures:
        if isinstance(failure.node, ast.ExceptHandler) and failure.node.name:
            about.add(failure.node.name)
            about |= {failure.node.name, *_derived(failure.body, failure.node.name)}
    if names_in([test]) & _counted(retry):
        return True
    if any(isinstance(each.node, ast.If) and each.node.test is test for each in retry.failures):
        return False
    roots = {node.id for node in ast.walk(test) if isinstance(node, ast.Name)}
    if roots <= about:
        return False
    if any(isinstance(node, ast.Compare) and _orders(node) for node in ast.walk(test)):
        return True
    if any(_STOPS.search(word) for word in names_in([test])):
        return True
    decided = [module.names.called(call) for call in calls_in([test])]
    if any(not is_passive(name) and last(name) not in about for name in decided):
        return True  # somebody says whether there is more to try
    produced = assigned_in(retry.work)
    return bool(roots - about - produced - {"self", "cls"} - module.names.modules - _constants(roots))


def _constants(names: set[str]) -> set[str]:
    return {name for name in names if name[:1].isupper()}


def _derived(block: list[ast.stmt], name: str) -> set[str]:
    found: set[str] = set()
    for node in inside(block):
        if isinstance(node, ast.Assign) and name in names_in([node.value]):
            found |= assigned_in([node])
    return found


def _steps(module: Module, retry: Retry, node: ast.AST) -> bool:
    """`delay = next(delays)`, `helper(error)`: somebody counts, or decides, though not in sight."""
    if not isinstance(node, ast.Call):
        return False
    caught_as = {each.node.name for each in retry.failures if isinstance(each.node, ast.ExceptHandler)}
    given = {
        each.id
        for argument in [*node.args, *(each.value for each in node.keywords)]
        for each in ast.walk(argument)
        if isinstance(each, ast.Name)
    }
    if given & caught_as and not is_passive(module.names.called(node)):
        return True
    name = module.names.called(node)
    if last(name) in ("next", "anext", "__next__"):
        return True
    if is_remark(name) and last(name) not in ("increment", "incr", "inc"):
        return False
    return (
        re.search(
            r"(?i)increment|should_retry|can_retry|max_?(retries|attempts)|give_?up|raise_for_attempts"
            r"|is_retryable|check_(deadline|timeout|attempts)|sleep_for_retry|handle_\w*(err|exc|fail)"
            r"|_retry$|backoff|deadline",
            last(name),
        )
        is not None
    )
