"""tenacity, backoff, stamina and retrying: decorators and iterators that retry what they are put on."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from kfm.lint.answers import ASKS_TO_WAIT, PERMANENT, numbers_in, statuses
from kfm.lint.effects import check_effects
from kfm.lint.exceptions import is_not_yet, is_permanent, is_throttled, types_in
from kfm.lint.findings import Mark
from kfm.lint.libraries import Check, Declared, is_endless, literal
from kfm.lint.loop_rules import RETRY_AFTER, validations
from kfm.lint.names import Names, last
from kfm.lint.outline import Function, Module

ROOTS = frozenset(("tenacity", "backoff", "stamina", "retrying"))
FOREVER = "This retries for ever: neither attempts nor time are limited."
AT_ONCE = "This retries at once, without any wait."
SAME = "Every retry waits the same time: clients that fail together return together."
ASKS = frozenset(("retry_if_result", "retry_if_not_result"))  # waiting for a state is no retry


def _tenacity(said: Declared) -> Iterator[Mark]:
    predicate = said.given.get("retry")
    polls = predicate is not None and any(
        (isinstance(node, ast.Call) and last(said.names.called(node)) in ASKS)
        or (isinstance(node, ast.Name | ast.Attribute) and is_not_yet(said.names.dotted(node)))
        for node in ast.walk(predicate)
    )
    if predicate is not None and last(_name(said.names, predicate)) == "retry_never":
        return
    stop, wait = said.given.get("stop"), said.given.get("wait")
    stops = last(_name(said.names, stop)) if stop is not None else ""
    attempts = literal(stop.args[0]) if isinstance(stop, ast.Call) and stop.args else ...
    if stops == "stop_after_attempt" and attempts == 1:
        return  # one attempt is no retry
    if not polls:
        if said.lacks("stop") or stops == "stop_never":
            yield Mark("KFM101", said.call, FOREVER)
        elif stops == "stop_after_attempt" and stop is not None and is_endless(attempts):
            yield Mark("KFM101", stop, FOREVER)
        asks_again = predicate is not None and re.search(r"(?i)pars|valid|format", ast.unparse(predicate))
        if said.lacks("wait") and not asks_again:
            yield Mark("KFM102", said.call, AT_ONCE)
        if wait is not None:
            yield from _tenacity_wait(said.names, wait)
    if predicate is not None:
        yield from _permanent_types(
            said.names, predicate, ("retry_if_exception_type", "retry_if_exception_cause_type")
        )
    callback = said.given.get("retry_error_callback")
    if isinstance(callback, ast.Lambda) and isinstance(callback.body, ast.Constant):
        yield Mark("KFM108", callback, "When the last attempt fails, the error is dropped for a constant.")


def _tenacity_wait(names: Names, wait: ast.expr) -> Iterator[Mark]:
    name = last(_name(names, wait))
    value = literal(wait.args[0]) if isinstance(wait, ast.Call) and wait.args else ...
    if isinstance(wait, ast.Call) and not wait.args and wait.keywords:
        value = literal(wait.keywords[0].value)
    if name == "wait_none" or (name == "wait_fixed" and value == 0):
        yield Mark("KFM102", wait, AT_ONCE)
    elif name == "wait_fixed":
        yield Mark("KFM103", wait, SAME)


def _name(names: Names, node: ast.expr) -> str:
    return names.called(node) if isinstance(node, ast.Call) else names.dotted(node)


def _permanent_types(names: Names, predicate: ast.expr, makers: tuple[str, ...]) -> Iterator[Mark]:
    for node in ast.walk(predicate):
        if isinstance(node, ast.Call) and last(names.called(node)) in makers and node.args:
            yield from permanent(names, node.args[0])


def permanent(names: Names, node: ast.expr) -> Iterator[Mark]:
    """A list of exceptions to retry that holds one which no retry can cure."""
    for name in types_in(names, node):
        if is_permanent(name):
            yield Mark("KFM106", node, f"{last(name)} is retried: the same data will break the same rule.")
            return


def _backoff(said: Declared) -> Iterator[Mark]:
    if said.lacks("max_tries", "max_time") or (
        "max_tries" in said.given and is_endless(said.value("max_tries")) and said.lacks("max_time")
    ):
        yield Mark("KFM101", said.call, FOREVER)
    wait = said.given.get("wait_gen")
    if wait is not None and last(_name(said.names, wait)) == "constant":
        if said.value("interval") == 0 and "on_backoff" not in said.given:
            yield Mark("KFM102", said.call, AT_ONCE)
        elif said.value("jitter") is None and "on_backoff" not in said.given:
            yield Mark("KFM103", wait, SAME)
    exceptions = said.given.get("exception")
    if exceptions is not None and "giveup" not in said.given:
        yield from permanent(said.names, exceptions)
    if said.value("raise_on_giveup") is False:
        yield Mark(
            "KFM108", said.given["raise_on_giveup"], "When the last attempt fails, the error is dropped."
        )


def _stamina(said: Declared) -> Iterator[Mark]:
    if is_endless(said.value("attempts")) and "attempts" in said.given and said.value("timeout") is None:
        yield Mark("KFM101", said.call, FOREVER)
    first, most = said.value("wait_initial"), said.value("wait_max")
    if most == 0 or (first == 0 and said.value("wait_jitter") == 0):
        yield Mark("KFM102", said.call, AT_ONCE)
    elif said.value("wait_jitter") == 0 and (
        said.value("wait_exp_base") == 1 or (first == most and first is not ...)
    ):
        yield Mark("KFM103", said.call, SAME)
    if "on" in said.given:
        yield from permanent(said.names, said.given["on"])


def _retrying(said: Declared) -> Iterator[Mark]:
    if said.lacks("stop_max_attempt_number", "stop_max_delay", "stop", "stop_func"):
        yield Mark("KFM101", said.call, FOREVER)
    waits = [name for name in said.given if name.startswith("wait")]
    if not waits and not said.is_open:
        yield Mark("KFM102", said.call, AT_ONCE)
    elif waits == ["wait_fixed"]:
        yield Mark("KFM103", said.given["wait_fixed"], SAME)


_TENACITY = ("sleep", "stop", "wait", "retry")
CALLS: dict[tuple[str, str], tuple[tuple[str, ...], Check]] = {
    ("tenacity", "retry"): ((), _tenacity),
    ("tenacity", "Retrying"): (_TENACITY, _tenacity),
    ("tenacity", "AsyncRetrying"): (_TENACITY, _tenacity),
    ("backoff", "on_exception"): (("wait_gen", "exception"), _backoff),
    ("stamina", "retry"): ((), _stamina),
    ("stamina", "retry_context"): (("on", "attempts", "timeout"), _stamina),
    ("stamina", "RetryingCaller"): (("attempts", "timeout"), _stamina),
    ("stamina", "AsyncRetryingCaller"): (("attempts", "timeout"), _stamina),
    ("retrying", "retry"): ((), _retrying),
    ("retrying", "Retrying"): ((), _retrying),
}
_RETRIERS = {(root, name) for root, name in CALLS if name in ("retry", "on_exception")}


def check_bare(module: Module) -> Iterator[Mark]:
    """`@retry` without arguments, and what the decorated function does."""
    for function in module.functions:
        for node in function.decorator_list:
            name = _name(module.names, node)
            if (name.partition(".")[0], last(name)) not in _RETRIERS:
                continue
            if not isinstance(node, ast.Call) and not name.startswith("stamina"):
                yield Mark("KFM101", node, FOREVER)
                yield Mark("KFM102", node, AT_ONCE)
            yield from check_decorated(module, function, node)
            break
    for loop, owner in module.loops:
        if isinstance(loop, ast.For | ast.AsyncFor) and isinstance(loop.iter, ast.Call):
            name = module.names.called(loop.iter)
            if (name.partition(".")[0], last(name)) in CALLS:
                yield from check_effects(module, loop.body, loop if owner is None else owner)


def check_decorated(module: Module, function: Function, decorator: ast.expr) -> Iterator[Mark]:
    yield from check_effects(module, function.body, function)
    if _takes_everything(module.names, decorator):
        yield from validations(module, function.body)
    if _waits_its_own_time(module, decorator) and not RETRY_AFTER.search(module.text_of(function)):
        yield Mark(
            "KFM105", decorator, "The other side says when to come back (Retry-After); this does not ask."
        )


def _takes_everything(names: Names, decorator: ast.expr) -> bool:
    """Without a predicate tenacity retries any exception; the others say which."""
    if not isinstance(decorator, ast.Call):
        return True
    name = names.called(decorator)
    given = {each.arg: each.value for each in decorator.keywords}
    if None in given:
        return False
    if name.startswith(("tenacity.", "retrying.")):
        return not any(key and key.startswith("retry") and key != "retry_error_callback" for key in given)
    kinds = (
        given.get("on") or given.get("exception") or (decorator.args[1] if len(decorator.args) > 1 else None)
    )
    return kinds is not None and last(names.dotted(kinds)) == "Exception" and "giveup" not in given


def _waits_its_own_time(module: Module, decorator: ast.expr) -> bool:
    """Is it about being asked to wait, with a wait that was chosen beforehand?"""
    if not isinstance(decorator, ast.Call):
        return False
    throttled = any(
        is_throttled(module.names.dotted(node))
        for node in ast.walk(decorator)
        if isinstance(node, ast.Name | ast.Attribute)
    )
    for node in ast.walk(decorator):
        if isinstance(node, ast.Compare):
            throttled = throttled or any(
                isinstance(op, ast.Eq | ast.In) and numbers & ASKS_TO_WAIT for op, numbers in statuses(node)
            )
    waits = [each.value for each in decorator.keywords if each.arg in ("wait", "wait_gen")] + decorator.args[
        :1
    ]
    known = [_name(module.names, each) for each in waits]
    return throttled and any(
        name.startswith(("tenacity.wait_", "tenacity.wait.", "backoff.")) for name in known
    )


def permanent_statuses(node: ast.expr) -> list[int]:
    return sorted(numbers_in([node]) & PERMANENT)
