"""Is it the same work again, or the next of several things?"""

from __future__ import annotations

import ast
import re

from kfm.lint.names import is_passive, is_remark, is_sleep, last
from kfm.lint.outline import Loop, Module, Trying, assigned_in, calls_in, inside, names_in

COUNTER = re.compile(
    r"(?i)attempt|retr|tries|(^|_)try|count|^_?(n|i|k|_)$|num_|fail|error|delay|backoff|wait"
)
_SCHEDULE = re.compile(r"(?i)delay|backoff|attempt|retr(y|ies)|tries|wait|sleep|interval|pause")
_FRESH = re.compile(r"(?i)rand|free|unused|next|uuid|gen|new|choice|pop|candidate|pick|resolve|mktemp|port")


def counts_attempts(module: Module, loop: ast.For) -> bool:
    """Does this loop count attempts, rather than go through different things?"""
    name = module.names.called(loop.iter) if isinstance(loop.iter, ast.Call) else ""
    counted = name in ("range", "itertools.count", "itertools.repeat", "six.moves.range", "xrange", "trange")
    targets = _targets(loop)
    if not counted:
        words = names_in([loop.iter]) | targets
        slept = [call for call in calls_in(loop.body) if is_sleep(module.names.called(call))]
        if any(targets & names_in(list(call.args)) for call in slept):
            return True
        return any(_SCHEDULE.search(word) for word in words) and not _uses(module, loop, targets)
    if any(re.search(r"(?i)attempt|retr(y|ies)|tries|(^|_)try(_|$)", target) for target in targets):
        return True
    return targets == {"_"} or not _uses(module, loop, targets)


def _uses(module: Module, loop: ast.For, targets: set[str]) -> bool:
    """Is the loop's variable an argument of the work? Then each turn does something else."""
    for node in inside(loop.body):
        if isinstance(node, ast.Assign) and targets & names_in([node.value]):
            targets = targets | {each for each in assigned_in([node]) if not COUNTER.search(each)}
    for call in calls_in(loop.body):
        name = module.names.called(call)
        if is_passive(name) or is_sleep(name) or last(name) in ("uniform", "randint", "pow", "exp", "ldexp"):
            continue
        if targets & names_in([call.func, *call.args, *(each.value for each in call.keywords)]):
            return True
    return any(
        isinstance(node, ast.Subscript) and targets & names_in([node.slice]) for node in inside(loop.body)
    )


def does_other_work(module: Module, loop: Loop, handler: ast.ExceptHandler, trying: Trying) -> bool:
    """Is something else tried next? Because the handler changes an argument or a condition of the work,
    or because each turn makes its argument anew."""
    changed = {each for each in assigned_in(handler.body) | _filled(handler.body) if not COUNTER.search(each)}
    for node in loop.body:
        made = calls_in([node]) if isinstance(node, ast.Assign) else []
        if any(_FRESH.search(last(module.names.called(call))) for call in made):
            changed |= assigned_in([node])
        elif isinstance(node, ast.Assign) and isinstance(
            node.value, ast.Name | ast.Attribute | ast.Subscript
        ):
            changed |= {name for name in assigned_in([node]) if not COUNTER.search(name)}
    changed |= {each for each in assigned_in(handler.body) if _given_on(module, loop, each)}
    for node in loop.body:
        if isinstance(node, ast.Assign) and changed & names_in([node.value]):
            changed |= assigned_in([node])
    changed -= {"self", "cls"}
    # `client = connect()` in a handler renews what the work is done with; the work stays the same.
    renewed = {
        name
        for node in inside(handler.body)
        if isinstance(node, ast.Assign) and calls_in([node.value])
        for name in assigned_in([node])
    }
    turns = _targets(loop) if isinstance(loop, ast.For) else set()
    for each in inside(trying.body):
        if isinstance(each, ast.If | ast.IfExp):
            if (changed | turns) & names_in([each.test]) and not _only_waits(module, each):
                return True
        elif isinstance(each, ast.Call) and not is_remark(module.names.called(each)):
            given = [*each.args, *(keyword.value for keyword in each.keywords)]
            if (changed - turns) & names_in(given) or _root(each.func) in changed - turns - renewed:
                return True
            if _chosen_by(each.func) & (turns | assigned_in(handler.body)) or _draws(module, given):
                return True
    return False


def _given_on(module: Module, loop: Loop, name: str) -> bool:
    """`Device(delay=delay)`: a wait that the work is told, not one between the attempts"""
    if not re.search(r"(?i)delay|wait|timeout", name) or re.search(r"(?i)attempt|retr|tries|count", name):
        return False
    return any(
        name in names_in([each.value for each in call.keywords])
        for call in calls_in(loop.body)
        if not is_sleep(module.names.called(call)) and not is_remark(module.names.called(call))
    )


def _root(node: ast.expr) -> str:
    """`current.parent.resolve` → `current`"""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _chosen_by(node: ast.expr) -> set[str]:
    """`hosts[turn].connect` → `turn`: which of several is asked"""
    return names_in([each.slice for each in ast.walk(node) if isinstance(each, ast.Subscript)])


def _draws(module: Module, given: list[ast.expr]) -> bool:
    """`bind(random_port())`: each turn with an argument of its own"""
    return any(
        re.search(r"(?i)rand|uuid|mktemp", last(module.names.called(call))) for call in calls_in(given)
    )


def _only_waits(module: Module, branch: ast.If | ast.IfExp) -> bool:
    names = [module.names.called(call) for call in calls_in([branch])]
    return all(is_sleep(name) or is_remark(name) for name in names)


def _targets(loop: ast.For) -> set[str]:
    return {each.id for each in ast.walk(loop.target) if isinstance(each, ast.Name)}


def _filled(block: list[ast.stmt]) -> set[str]:
    """`groups[:] = groups[:-1]`, `options["size"] //= 2`, `hosts.pop()`"""
    found = set()
    for node in inside(block):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
            found |= names_in([node.value])
    return found
