"""The rules about hand-written retry loops: 101, 102, 103, 105, 106, and the lost last failure (108)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from kfm_lint.confidence import by_clock, compares, is_held_up, is_inert, is_picky, is_sure, reads_again
from kfm_lint.failure_kinds import ASKS_TO_WAIT, PERMANENT, caught, is_permanent, is_throttled, statuses
from kfm_lint.findings import Mark, Placed, head
from kfm_lint.index import (
    BREAK,
    LOOPS,
    NEXT,
    RAISE,
    RETURN,
    Loop,
    Module,
    assigned_in,
    calls_in,
    flow,
    inside,
    is_passive,
    is_remark,
    is_sleep,
    is_true,
    last,
    names_in,
    own,
)
from kfm_lint.retry_loops import COUNTER, Failure, Retry, is_lost_race

# --- rules ----------------------------------------------------------------------------

_WAITS = re.compile(
    r"(?i)sleep|backoff|back_off|wait|delay|pause|throttle|cool|^join$|^select$|^poll$|retry_after"
)
_VALIDATES = re.compile(
    r"^(validate|model_validate\w*|parse_obj|validate_(python|json|schema|record|contract|document|data|payload)"
    r"|check_(schema|care|contract|consent|licen[cs]e)|assert_valid\w*|enforce_(schema|contract|care))$"
)
RETRY_AFTER = re.compile(
    r"retry[-_ ]?after|retryafter|ratelimit[-_]reset|\.backoff\b|time_to_wait|reset_(at|time)"
)


def check_loops(module: Module, found: list[Retry]) -> Iterator[Mark]:
    for retry in found:
        sure: bool | None = None
        for mark in _of_loop(module, retry):
            sure = is_sure(module, retry) if sure is None else sure
            doubt = mark.code == "KFM101" and compares(retry)
            yield mark if sure and not doubt else mark._replace(sure=False)


def _of_loop(module: Module, retry: Retry) -> Iterator[Mark]:
    yield from unbounded(module, retry)
    for failure in retry.failures:
        yield from _waiting(module, retry, failure)
        yield from _permanent(module, failure)
    yield from _ignores_retry_after(module, retry)
    yield from _validates(module, retry)
    yield from _loses_the_last(module, retry)


def refused(retry: Retry) -> bool:
    """Is it repeated only after answers which say that it was not done (409, 429)?"""
    for failure in retry.failures:
        if isinstance(failure.node, ast.ExceptHandler):
            return False
        answers = statuses(failure.node.test)
        if not answers or any(
            not isinstance(op, ast.Eq | ast.In) or max(said) >= 500 for op, said in answers
        ):
            return False
    return True


# --- 102 and 103 ---------------------------------------------------------------------


def _waiting(module: Module, retry: Retry, failure: Failure) -> Iterator[Mark]:
    path = [*failure.body, *failure.then]
    slept = [call for call in calls_in(retry.loop.body) if is_sleep(module.names.called(call))]
    waits = [call for call in slept if not _is_nothing(call)]
    if isinstance(retry.loop, ast.For) and isinstance(retry.loop.iter, ast.Call):
        maker = last(module.names.called(retry.loop.iter))
        if maker[:1].isupper() or re.search(r"(?i)retr|attempt|backoff|delay", maker):
            return  # `for attempt in Retries(…)`: the object waits, or not
    elif isinstance(retry.loop, ast.For) and isinstance(retry.loop.iter, ast.Name | ast.Attribute):
        return
    if not waits:
        if not is_lost_race(failure) and not _acts(module, retry, failure):
            where = failure.node if isinstance(failure.node, ast.ExceptHandler) else failure.node.test
            what = "fails" if isinstance(failure.node, ast.ExceptHandler) else "is refused"
            yield Mark(
                "KFM102",
                where,
                f"What {what} here is tried again at once, without any wait.",
                _is_idle(module, retry, failure),
            )
        return
    inner = {id(call) for node in inside(path) if isinstance(node, LOOPS) for call in calls_in(node.body)}
    for call in calls_in(path):
        if id(call) not in inner and call in waits and _is_fixed(module, retry, failure, call):
            wait = ast.unparse(call.args[0]) if call.args else ""
            yield Mark(
                "KFM103",
                call,
                f"Every retry waits the same time ({wait}): clients that fail together return together.",
                not is_held_up(failure),
            )


def _is_idle(module: Module, retry: Retry, failure: Failure) -> bool:
    """Does nothing pass the time, or change what is tried? A timeout may have waited long enough."""
    timed_out = bool(failure.types) and all(
        re.search(r"(?i)timeout|timedout", each) for each in failure.types
    )
    if timed_out or is_picky(failure) or by_clock(module, retry):
        return False
    return is_inert(module, failure) and not reads_again(module, retry)


def _is_nothing(call: ast.Call) -> bool:
    return bool(call.args) and isinstance(call.args[0], ast.Constant) and call.args[0].value == 0


def _acts(module: Module, retry: Retry, failure: Failure) -> bool:
    """Does the path to the next attempt do something that may wait, or that mends the cause?"""
    for call in calls_in([*failure.body, *failure.then]):
        name = module.names.called(call)
        if is_sleep(name) or last(name) in ("get", "raise_for_status"):
            continue
        if not is_passive(name) or _WAITS.search(last(name)):
            return True
    if isinstance(retry.loop, ast.While) and any(
        _WAITS.search(last(module.names.called(call))) for call in calls_in([retry.loop.test])
    ):
        return True
    if failure.types and all(each == "socket.timeout" for each in failure.types):
        return True
    if failure.types and all(re.search(r"(?i)timeout|timedout", each) for each in failure.types):
        limited = [
            call for call in calls_in(retry.work) if any(each.arg == "timeout" for each in call.keywords)
        ]
        if limited:  # a timeout has waited already
            return True
    work = set(map(id, calls_in(retry.work)))
    others = [call for call in calls_in(retry.loop.body) if id(call) not in work and not _is_nothing(call)]
    if any(_WAITS.search(last(module.names.called(call))) for call in others):
        return True
    if any(isinstance(node, ast.Yield | ast.YieldFrom | ast.Delete) for node in inside(failure.body)):
        return True
    if _renews(module, retry):
        return True
    return any(
        isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and not COUNTER.search(node.attr)
        for node in inside(failure.body)
    )


def _renews(module: Module, retry: Retry) -> bool:
    """`token = login()` at the beginning of each turn: the next attempt comes with new credentials."""
    used = names_in(retry.work)
    for node in retry.loop.body:
        if isinstance(node, ast.Assign) and assigned_in([node]) & used:
            made = [last(module.names.called(call)) for call in calls_in([node.value])]
            if any(re.search(r"(?i)credential|token|login|auth", name) for name in made):
                return True
    return False


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
            asked: list[Placed] = [failure.node] if any(map(is_throttled, failure.types)) else []
            asked += [
                node.test
                for node in inside(failure.body)
                if isinstance(node, ast.If) and _asks_to_wait(node.test) and flow(node.body) - {RAISE, RETURN}
            ]
        else:
            asked = [failure.node.test] if _asks_to_wait(failure.node.test) else []
        if not asked or _is_handed_on(module, failure):
            continue
        if not RETRY_AFTER.search(module.text_of(retry.function or retry.loop)):
            yield Mark(
                "KFM105",
                asked[0],
                "The other side says when to come back (Retry-After); this does not ask.",
                _waits_its_own_time(module, retry, failure, asked[0])
                and not RETRY_AFTER.search(module.text_of(None)),
            )
            return


def _waits_its_own_time(module: Module, retry: Retry, failure: Failure, asked: Placed) -> bool:
    """A loop that goes on at once was perhaps not asked to wait."""
    path = calls_in([*failure.body, *failure.then])
    if _is_handed_on(module, failure._replace(body=retry.loop.body)) or _may_carry_delay(module, asked):
        return False
    return any(is_sleep(module.names.called(call)) for call in path)


def _may_carry_delay(module: Module, node: Placed) -> bool:
    """Is the exception used beyond being logged? It may carry the time to wait."""
    if not isinstance(node, ast.ExceptHandler) or node.name is None:
        return False
    remarks = [call for call in calls_in(node.body) if is_passive(module.names.called(call))]
    logged = {id(each) for call in remarks for each in inside([call])}
    return any(
        isinstance(each, ast.Name) and each.id == node.name and id(each) not in logged
        for each in inside(node.body)
        if not isinstance(each, ast.Raise)
    )


def _is_handed_on(module: Module, failure: Failure) -> bool:
    """Is the answer, or are its headers, passed to a function that may read Retry-After?"""
    parts: list[ast.AST] = [*failure.body]
    if isinstance(failure.node, ast.If):
        parts.append(failure.node.test)
    for call in calls_in(parts):
        name = module.names.called(call)
        if is_passive(name) or (is_sleep(name) and not calls_in(list(call.args))):
            continue
        given = names_in([*call.args, *(each.value for each in call.keywords)])
        if any(re.match(r"(?i)headers$|resp(onse)?$|res$|r$|answer$", word) for word in given):
            return True
    return False


def _asks_to_wait(test: ast.expr) -> bool:
    return any(isinstance(op, ast.Eq | ast.In) and numbers & ASKS_TO_WAIT for op, numbers in statuses(test))


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
                    is_inert(module, failure),
                )
                return
        return
    if any(not COUNTER.search(name) for name in assigned_in(failure.body)):
        return  # another request, or mended credentials
    called = [module.names.called(call) for call in calls_in(failure.body)]
    if any(not is_passive(name) and not is_sleep(name) for name in called):
        return
    for op, numbers in statuses(failure.node.test):
        refused = sorted(numbers & PERMANENT)
        if refused and isinstance(op, ast.Eq | ast.In):
            codes = ", ".join(map(str, refused))
            yield Mark(
                "KFM106",
                failure.node.test,
                f"Answer {codes} is retried: the same request gets the same answer.",
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
    """After the last attempt, the failure is lost."""
    loop, function = retry.loop, retry.function
    if (
        function is None
        or loop is not function.body[-1]
        or loop.orelse
        or (isinstance(loop, ast.While) and is_true(loop.test))
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


# --- 101: limits ----------------------------------------------------------------------

_STOPS = re.compile(
    r"(?i)stop|shut|clos|running|alive|cancel|exit|quit|deadline|timeout|elapsed|expire|enabled|finaliz"
)


def unbounded(module: Module, retry: Retry) -> Iterator[Mark]:
    loop = retry.loop
    if all(map(is_lost_race, retry.failures)):
        return  # each time, another process has made progress, so it ends
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
    """Does the loop's own condition end it some day, or let other code end it?"""
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
        return True  # a function decides whether there is more to try
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
    """`delay = next(delays)`, `helper(error)`: other code counts, or decides."""
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
