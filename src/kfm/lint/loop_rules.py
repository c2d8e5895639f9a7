"""The rules about hand-written retry loops: 101, 102, 103, 105, 106, and the lost last failure (108)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from kfm.lint.answers import ASKS_TO_WAIT, PERMANENT, statuses
from kfm.lint.exceptions import caught, is_permanent, is_race, is_throttled
from kfm.lint.findings import Mark, head
from kfm.lint.flow import BREAK, RAISE, RETURN, flow, is_true, own
from kfm.lint.loops import Failure, Retry
from kfm.lint.names import is_remark, is_sleep, last
from kfm.lint.outline import Module, assigned_in, calls_in, inside, names_in

_STOPS = re.compile(r"(?i)stop|shut|clos|running|alive|cancel|exit|quit|deadline|timeout|elapsed|expire|enabled")
_WAITS = re.compile(r"(?i)sleep|backoff|back_off|wait|delay|pause|throttle|cool|^join$|^select$|^poll$|retry_after")
_VALIDATES = re.compile(
    r"^(validate|model_validate\w*|parse_obj|validate_(python|json|schema|record|contract|document|data|payload)"
    r"|check_(schema|care|contract|consent|licen[cs]e)|assert_valid\w*|enforce_(schema|contract|care))$"
)
RETRY_AFTER = re.compile(r"retry[-_ ]?after|retryafter|x-ratelimit-reset|ratelimit_reset")


def check_loops(module: Module, found: list[Retry]) -> Iterator[Mark]:
    for retry in found:
        yield from _unbounded(module, retry)
        for failure in retry.failures:
            yield from _waiting(module, retry, failure)
            yield from _permanent(module, failure)
        yield from _ignores_retry_after(module, retry)
        yield from _validates(module, retry)
        yield from _loses_the_last(module, retry)


# --- 101 -----------------------------------------------------------------------------


def _unbounded(module: Module, retry: Retry) -> Iterator[Mark]:
    loop = retry.loop
    if isinstance(loop, ast.While):
        if not is_true(loop.test) and _limits(module, retry, loop.test):
            return
    elif not (isinstance(loop.iter, ast.Call) and _endless(module, loop.iter)):
        return
    guards = [node for node in inside(loop.body) if isinstance(node, ast.If | ast.While)]
    if any(flow(each.body) & {RAISE, RETURN, BREAK} and _is_limit(module, retry, each.test) for each in guards):
        return
    if any(
        flow(each.orelse) & {RAISE, RETURN, BREAK} and _is_limit(module, retry, each.test)
        for each in guards
        if each.orelse
    ):
        return
    if any(_steps(module, node) for node in inside(loop.body)):
        return
    yield Mark("KFM101", head(loop), "This retries for ever: nothing limits the attempts or the time.")  # type: ignore[arg-type]


def _endless(module: Module, call: ast.Call) -> bool:
    name = module.names.called(call)
    return name == "itertools.count" or (name == "itertools.repeat" and len(call.args) + len(call.keywords) == 1)


def _limits(module: Module, retry: Retry, test: ast.expr) -> bool:
    """Does the loop's own condition end it some day, or let somebody else end it?"""
    if any(isinstance(node, ast.Compare) and _orders(node) for node in ast.walk(test)):
        return True
    if any(isinstance(node, ast.Call) for node in ast.walk(test)):
        return True
    words = names_in([test])
    if any(_STOPS.search(word) for word in words):
        return True
    counted = {
        node.target.id if isinstance(node.target, ast.Name) else getattr(node.target, "attr", "")
        for node in inside(retry.loop.body)
        if isinstance(node, ast.AugAssign)
    }
    return bool(words & counted) or bool(
        words & set().union(*(assigned_in(failure.body + failure.then) for failure in retry.failures))
    )


def _orders(node: ast.Compare) -> bool:
    return any(isinstance(op, ast.Lt | ast.LtE | ast.Gt | ast.GtE) for op in node.ops)


def _is_limit(module: Module, retry: Retry, test: ast.expr) -> bool:
    """A guard limits the loop unless it looks at the failure, or at the answer, alone."""
    about: set[str] = {"isinstance", "str", "repr", "args", "errno", "code", "status_code", "status", "response"}
    for failure in retry.failures:
        if isinstance(failure.node, ast.ExceptHandler) and failure.node.name:
            about.add(failure.node.name)
            about |= {failure.node.name, *_derived(failure.body, failure.node.name)}
    for each in retry.failures:
        if each.node is test or (isinstance(each.node, ast.If) and each.node.test is test):
            return False
    if any(isinstance(node, ast.Compare) and _orders(node) for node in ast.walk(test)):
        roots = {node.id for node in ast.walk(test) if isinstance(node, ast.Name)}
        return not roots <= about or bool(roots & assigned_in(retry.loop.body) - about)
    roots = {node.id for node in ast.walk(test) if isinstance(node, ast.Name)}
    if roots <= about:
        return False
    produced = assigned_in(retry.work)
    changed = assigned_in(retry.loop.body) - produced - about
    words = names_in([test])
    return bool((roots - about) & changed) or any(_STOPS.search(word) for word in words) or bool(
        roots - about - produced - {"self", "cls"} - set(module.names.modules) - _constants(roots)
    )


def _constants(names: set[str]) -> set[str]:
    return {name for name in names if name[:1].isupper()}


def _derived(block: list[ast.stmt], name: str) -> set[str]:
    found: set[str] = set()
    for node in inside(block):
        if isinstance(node, ast.Assign) and name in names_in([node.value]):
            found |= assigned_in([node])
    return found


def _steps(module: Module, node: ast.AST) -> bool:
    """`delay = next(delays)`, `attempts.increment()`: somebody counts, though not in sight."""
    if not isinstance(node, ast.Call):
        return False
    name = module.names.called(node)
    if last(name) in ("next", "anext", "__next__"):
        return True
    if is_remark(name) and last(name) not in ("increment", "incr", "inc"):
        return False
    return re.search(r"(?i)increment|should_retry|can_retry|max_?(retries|attempts)|give_?up|raise_for_attempts"
                     r"|is_retryable|check_(deadline|timeout|attempts)|sleep_for_retry|handle_\w*(err|exc|fail)"
                     r"|_retry$|backoff|deadline", last(name)) is not None


# --- 102 and 103 ---------------------------------------------------------------------


def _waiting(module: Module, retry: Retry, failure: Failure) -> Iterator[Mark]:
    path = [*failure.body, *failure.then]
    slept = [call for call in calls_in(retry.loop.body) if is_sleep(module.names.called(call))]
    waits = [call for call in slept if not _is_nothing(call)]
    if not waits:
        raced = bool(failure.types) and all(map(is_race, failure.types))
        if not raced and not _acts(module, retry, failure):
            where = failure.node if isinstance(failure.node, ast.ExceptHandler) else failure.node.test
            what = "fails" if isinstance(failure.node, ast.ExceptHandler) else "is refused"
            yield Mark("KFM102", where, f"What {what} here is tried again at once, without any wait.")
        return
    for call in calls_in(path):
        if call in waits and _is_fixed(module, retry, failure, call):
            wait = ast.unparse(call.args[0]) if call.args else ""
            yield Mark("KFM103", call, f"Every retry waits the same time ({wait}): clients that fail together return together.")


def _is_nothing(call: ast.Call) -> bool:
    return bool(call.args) and isinstance(call.args[0], ast.Constant) and call.args[0].value == 0


def _acts(module: Module, retry: Retry, failure: Failure) -> bool:
    """Does the path to the next attempt do something that may wait, or that mends the cause?"""
    for call in calls_in([*failure.body, *failure.then]):
        name = module.names.called(call)
        if not is_remark(name) or _WAITS.search(last(name)):
            if not (call in calls_in(failure.body) and last(name) in ("raise_for_status",)):
                return True
    work = set(map(id, calls_in(retry.work)))
    others = [call for call in calls_in(retry.loop.body) if id(call) not in work]
    if any(_WAITS.search(last(module.names.called(call))) for call in others):
        return True
    if any(isinstance(node, ast.Yield | ast.YieldFrom) for node in inside(failure.body)):
        return True
    return any(
        isinstance(node, ast.Assign) and not isinstance(node.value, ast.Name | ast.Constant)
        and any(isinstance(target, ast.Attribute) for target in node.targets)
        for node in inside(failure.body)
    )


def _is_fixed(module: Module, retry: Retry, failure: Failure, call: ast.Call) -> bool:
    """Is the time the same at each attempt? A call in it may say anything: then we are silent."""
    if not call.args or last(module.names.called(call)) not in ("sleep", "_sleep", "async_sleep"):
        return False
    value = call.args[0]
    if any(isinstance(node, ast.Call | ast.Await | ast.IfExp | ast.Subscript) for node in ast.walk(value)):
        return False
    changing = assigned_in(retry.loop.body)
    if isinstance(retry.loop, ast.For):
        changing |= {node.id for node in ast.walk(retry.loop.target) if isinstance(node, ast.Name)}
    if isinstance(failure.node, ast.ExceptHandler) and failure.node.name:
        changing.add(failure.node.name)
    words = names_in([value])
    if words & changing or any(re.search(r"(?i)attempt|tries|retry_count|retry_after|jitter|random|next", each) for each in words):
        return False
    return not any(isinstance(node, ast.Attribute) and _is_method_of_state(node) for node in ast.walk(value))


def _is_method_of_state(node: ast.Attribute) -> bool:
    """`backoff.current`: an object that counts by itself."""
    return re.search(r"(?i)current|remaining|next|backoff$|duration$", node.attr) is not None


# --- 105 and 106 ---------------------------------------------------------------------


def _ignores_retry_after(module: Module, retry: Retry) -> Iterator[Mark]:
    for failure in retry.failures:
        if isinstance(failure.node, ast.ExceptHandler):
            asked: list[ast.AST] = [failure.node] if any(map(is_throttled, failure.types)) else []
            asked += [
                node.test
                for node in inside(failure.body)
                if isinstance(node, ast.If) and _asks_to_wait(module, node.test) and flow(node.body) - {RAISE, RETURN}
            ]
        else:
            asked = [failure.node.test] if _asks_to_wait(module, failure.node.test) else []
        if asked and not RETRY_AFTER.search(module.text_of(retry.function or retry.loop)):
            yield Mark("KFM105", asked[0], "The other side says when to come back (Retry-After); this does not ask.")  # type: ignore[arg-type]
            return


def _asks_to_wait(module: Module, test: ast.expr) -> bool:
    return any(
        isinstance(op, ast.Eq | ast.In) and numbers & ASKS_TO_WAIT for op, numbers in statuses(module.names, test)
    )


def _permanent(module: Module, failure: Failure) -> Iterator[Mark]:
    if isinstance(failure.node, ast.ExceptHandler):
        for name in failure.types:
            if is_permanent(name):
                yield Mark("KFM106", failure.node, f"{last(name)} is retried: the same data will break the same rule.")
                return
        return
    for op, numbers in statuses(module.names, failure.node.test):
        refused = sorted(numbers & PERMANENT)
        if refused and isinstance(op, ast.Eq | ast.In):
            told = ", ".join(map(str, refused))
            yield Mark("KFM106", failure.node.test, f"Answer {told} is retried: the same request gets the same answer.")


def _validates(module: Module, retry: Retry) -> Iterator[Mark]:
    """A check of data inside a block whose every failure is retried."""
    if not retry.is_blanket:
        return
    owner = next(each for each in retry.failures if isinstance(each.node, ast.ExceptHandler) and not each.types)
    for node in own(retry.loop):
        if isinstance(node, ast.Try | ast.TryStar) and owner.node in node.handlers:
            spared = [each for each in node.handlers if each.type is not None and each is not owner.node]
            if any(is_permanent(name) for each in spared for name in caught(module.names, each)):
                return
            if not any(is_permanent(word) for word in names_in(owner.body)):
                yield from validations(module, node.body)
            return


def validations(module: Module, body: list[ast.stmt]) -> Iterator[Mark]:
    for call in calls_in(body):
        name = last(module.names.called(call))
        if _VALIDATES.match(name):
            yield Mark("KFM106", call, f"`{name}` stands inside what is retried on any error: bad data is retried too.")
            return


# --- 108 -----------------------------------------------------------------------------


def _loses_the_last(module: Module, retry: Retry) -> Iterator[Mark]:
    """After the last attempt, nobody hears of the failure."""
    loop, function = retry.loop, retry.function
    if function is None or loop is not function.body[-1] or loop.orelse or isinstance(loop, ast.While) and is_true(loop.test):
        return
    for failure in retry.failures:
        if not isinstance(failure.node, ast.ExceptHandler) or failure.types:
            continue
        calls = [module.names.called(call) for call in calls_in(failure.body)]
        if all(is_sleep(name) for name in calls) and not assigned_in(failure.body) and flow(failure.body) <= {"next", "continue"}:
            yield Mark("KFM108", failure.node, "When the last attempt fails, the error is dropped and the caller thinks all is well.")
