"""The rules about hand-written retry loops: 101, 102, 103, 105, 106, and the lost last failure (108)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from kfm.lint.answers import ASKS_TO_WAIT, PERMANENT, statuses
from kfm.lint.exceptions import caught, is_permanent, is_race, is_throttled
from kfm.lint.findings import Mark, head
from kfm.lint.flow import BREAK, RAISE, RETURN, flow, is_true, own
from kfm.lint.loops import COUNTER, Failure, Retry
from kfm.lint.names import is_remark, is_sleep, last
from kfm.lint.outline import LOOPS, Module, assigned_in, calls_in, inside, names_in

_STOPS = re.compile(
    r"(?i)stop|shut|clos|running|alive|cancel|exit|quit|deadline|timeout|elapsed|expire|enabled"
)
_WAITS = re.compile(
    r"(?i)sleep|backoff|back_off|wait|delay|pause|throttle|cool|^join$|^select$|^poll$|retry_after"
)
_VALIDATES = re.compile(
    r"^(validate|model_validate\w*|parse_obj|validate_(python|json|schema|record|contract|document|data|payload)"
    r"|check_(schema|care|contract|consent|licen[cs]e)|assert_valid\w*|enforce_(schema|contract|care))$"
)
RETRY_AFTER = re.compile(r"retry[-_ ]?after|retryafter|ratelimit[-_]reset")


def check_loops(module: Module, found: list[Retry]) -> Iterator[Mark]:
    for retry in found:
        yield from _unbounded(module, retry)
        for failure in retry.failures:
            yield from _waiting(module, retry, failure)
            yield from _permanent(module, failure)
        yield from _ignores_retry_after(module, retry)
        yield from _validates(module, retry)
        yield from _loses_the_last(module, retry)


def refused(module: Module, retry: Retry) -> bool:
    """Is it repeated only after answers which say that it was not done (409, 429)?"""
    for failure in retry.failures:
        if isinstance(failure.node, ast.ExceptHandler):
            return False
        answers = statuses(module.names, failure.node.test)
        if not answers or any(
            not isinstance(op, ast.Eq | ast.In) or max(said) >= 500 for op, said in answers
        ):
            return False
    return True


# --- 101 -----------------------------------------------------------------------------


def _unbounded(module: Module, retry: Retry) -> Iterator[Mark]:
    loop = retry.loop
    if isinstance(loop, ast.While):
        if not is_true(loop.test) and _limits(module, retry, loop.test):
            return
    elif not (isinstance(loop.iter, ast.Call) and _endless(module, loop.iter)):
        return
    guards = [
        node.test
        for node in inside(loop.body)
        if isinstance(node, ast.Assert) or (isinstance(node, ast.If) and flow([node]) - {"next"})
    ]
    if _may_end(retry) and any(_is_limit(module, retry, test) for test in guards):
        return
    if any(_steps(module, retry, node) for node in inside(loop.body)):
        return
    yield Mark("KFM101", head(loop), "This retries for ever: nothing limits the attempts or the time.")  # type: ignore[arg-type]


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
        words & names_in([call]) for call in calls_in(paths) if not is_remark(module.names.called(call))
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
    if given & caught_as and not is_remark(module.names.called(node)):
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
    inner = {id(call) for node in inside(path) if isinstance(node, LOOPS) for call in calls_in(node.body)}
    for call in calls_in(path):
        if id(call) not in inner and call in waits and _is_fixed(module, retry, failure, call):
            wait = ast.unparse(call.args[0]) if call.args else ""
            yield Mark(
                "KFM103",
                call,
                f"Every retry waits the same time ({wait}): clients that fail together return together.",
            )


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
        isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and not COUNTER.search(node.attr)
        for node in inside(failure.body)
    )


def _is_fixed(module: Module, retry: Retry, failure: Failure, call: ast.Call) -> bool:
    """Is the time the same at each attempt? A call in it may say anything: then we are silent."""
    if len(call.args) != 1 or last(module.names.called(call)) not in ("sleep", "_sleep", "async_sleep"):
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
    if words & changing or any(
        re.search(r"(?i)attempt|tries|retry_count|retry_after|jitter|random|next", each) for each in words
    ):
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
                if isinstance(node, ast.If)
                and _asks_to_wait(module, node.test)
                and flow(node.body) - {RAISE, RETURN}
            ]
        else:
            asked = [failure.node.test] if _asks_to_wait(module, failure.node.test) else []
        if asked and not RETRY_AFTER.search(module.text_of(retry.function or retry.loop)):
            yield Mark(
                "KFM105", asked[0], "The other side says when to come back (Retry-After); this does not ask."
            )  # type: ignore[arg-type]
            return


def _asks_to_wait(module: Module, test: ast.expr) -> bool:
    return any(
        isinstance(op, ast.Eq | ast.In) and numbers & ASKS_TO_WAIT
        for op, numbers in statuses(module.names, test)
    )


def _permanent(module: Module, failure: Failure) -> Iterator[Mark]:
    if isinstance(failure.node, ast.ExceptHandler):
        mends = any(
            isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store)
            for node in inside(failure.body)
        )
        for name in failure.types:
            if is_permanent(name) and not mends:
                yield Mark(
                    "KFM106",
                    failure.node,
                    f"{last(name)} is retried: the same data will break the same rule.",
                )
                return
        return
    for op, numbers in statuses(module.names, failure.node.test):
        refused = sorted(numbers & PERMANENT)
        if refused and isinstance(op, ast.Eq | ast.In):
            told = ", ".join(map(str, refused))
            yield Mark(
                "KFM106",
                failure.node.test,
                f"Answer {told} is retried: the same request gets the same answer.",
            )


def _validates(module: Module, retry: Retry) -> Iterator[Mark]:
    """A check of data inside a block whose every failure is retried."""
    if not retry.is_blanket:
        return
    owner = next(
        each for each in retry.failures if isinstance(each.node, ast.ExceptHandler) and not each.types
    )
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
            yield Mark(
                "KFM106",
                call,
                f"`{name}` stands inside what is retried on any error: bad data is retried too.",
            )
            return


# --- 108 -----------------------------------------------------------------------------


def _loses_the_last(module: Module, retry: Retry) -> Iterator[Mark]:
    """After the last attempt, nobody hears of the failure."""
    loop, function = retry.loop, retry.function
    if (
        function is None
        or loop is not function.body[-1]
        or loop.orelse
        or isinstance(loop, ast.While)
        and is_true(loop.test)
    ):
        return
    for failure in retry.failures:
        if not isinstance(failure.node, ast.ExceptHandler) or failure.types:
            continue
        calls = [module.names.called(call) for call in calls_in(failure.body)]
        if (
            all(is_sleep(name) for name in calls)
            and not assigned_in(failure.body)
            and flow(failure.body) <= {"next", "continue"}
        ):
            yield Mark(
                "KFM108",
                failure.node,
                "When the last attempt fails, the error is dropped and the caller thinks all is well.",
            )
