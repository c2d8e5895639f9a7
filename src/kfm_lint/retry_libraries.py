"""Retries that a library does: decorators such as tenacity, HTTP clients such as urllib3 and botocore."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from kfm_lint.confidence import is_probe, raises_itself, waits_near
from kfm_lint.effects import READS_SOMEWHERE, check_effects
from kfm_lint.failure_kinds import (
    ASKS_TO_WAIT,
    PERMANENT,
    is_held,
    is_not_yet,
    is_permanent,
    is_race,
    is_throttled,
    numbers_in,
    statuses,
    types_in,
)
from kfm_lint.findings import Mark
from kfm_lint.index import Function, Module, Names, last
from kfm_lint.loop_rules import RETRY_AFTER, validations

# --- declarations ---------------------------------------------------------------------

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
    """None, infinity, or a number too large to be a limit."""
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
    roots = DECORATOR_ROOTS | TRANSPORT_ROOTS
    if not (roots & module.names.modules) or not any(word in module.source.text for word in WORDS):
        return
    # A flaky test that is run again is no call to another system; what a test declares is an example.
    tests = [each for each in module.functions if each.name.startswith("test")]
    spared = {id(each) for test in tests for each in test.decorator_list}
    spans = [(test.lineno, test.end_lineno or test.lineno) for test in tests]
    for node in ast.walk(module.source.tree):
        if isinstance(node, ast.Call) and id(node) not in spared:
            for mark in _check(module, node, DECORATOR_CALLS, TRANSPORT_CALLS):
                if not any(first <= node.lineno <= end for first, end in spans):
                    yield mark if not mark.sure else mark._replace(sure=not _waits(module, node, mark))
    yield from check_bare(module)


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
    return mark.code != "KFM102" and raises_itself(repeated)  # waiting for a state needs a wait


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


# --- tenacity, backoff, stamina, retrying ---------------------------------------------

DECORATOR_ROOTS = frozenset(("tenacity", "backoff", "stamina", "retrying"))
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
DECORATOR_CALLS: dict[tuple[str, str], tuple[tuple[str, ...], Check]] = {
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
_RETRIERS = {(root, name) for root, name in DECORATOR_CALLS if name in ("retry", "on_exception")}


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
            if (name.partition(".")[0], last(name)) in DECORATOR_CALLS:
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


# --- urllib3, requests, botocore, aiohttp_retry ---------------------------------------

TRANSPORT_ROOTS = frozenset(("urllib3", "requests", "botocore", "boto3", "aiobotocore", "aiohttp_retry"))
_COUNTS = ("total", "connect", "read", "redirect", "status", "other")


def _urllib3(said: Declared) -> Iterator[Mark]:
    counts = {name: said.value(name) for name in _COUNTS if name in said.given}
    total = counts.get("total", ...)
    if total in (0, False):
        return  # no retries at all
    if not said.given:
        return  # a default to read from, or a type to compare with
    if counts and not any(value not in (0, False) for name, value in counts.items() if name != "redirect"):
        return  # redirects only
    parts = [value for value in counts.values() if value is not None]
    if is_endless(total) and (total is not None or not (parts or said.is_open)):
        yield Mark("KFM101", said.call, FOREVER)
    if said.lacks("backoff_factor") or said.value("backoff_factor") == 0:
        # Where only 413, 429 and 503 are repeated, urllib3 waits as long as the answer says.
        retried = numbers_in([said.given["status_forcelist"]]) if "status_forcelist" in said.given else {500}
        yield Mark(
            "KFM102",
            said.call,
            "backoff_factor is 0 here: urllib3 retries without any wait.",
            not retried <= {413, 429, 503},
        )
    if said.value("respect_retry_after_header") is False:
        yield Mark(
            "KFM105",
            said.given["respect_retry_after_header"],
            "The Retry-After of the other side is switched off.",
        )
    for name in ("allowed_methods", "method_whitelist"):
        for mark in _methods(said, name):
            yield mark._replace(sure=not _only_refusals(said))
    if "status_forcelist" in said.given:
        yield from _statuses(said, "status_forcelist")


def _only_refusals(said: Declared) -> bool:
    """Is it repeated after 429 alone? That answer says that nothing was done."""
    asked = numbers_in([said.given["status_forcelist"]]) if "status_forcelist" in said.given else set()
    return asked == {429} and all(said.value(name) in (0, False) for name in ("connect", "read"))


def _methods(said: Declared, name: str) -> Iterator[Mark]:
    node = said.given.get(name)
    if node is None:
        return
    if literal(node) in (None, False) and literal(node) is not ...:
        yield Mark(
            "KFM104",
            node,
            "Every method is retried, POST and PATCH too, and nothing says that this is harmless.",
        )
        return
    verbs = {
        leaf.value
        for leaf in ast.walk(node)
        if isinstance(leaf, ast.Constant) and isinstance(leaf.value, str)
    }
    risky = sorted(verb.upper() for verb in verbs if verb.upper() in ("POST", "PATCH"))
    if risky:
        yield Mark(
            "KFM104",
            node,
            f"{' and '.join(risky)} is retried, and nothing says that doing it twice is harmless.",
        )


def _statuses(said: Declared, name: str) -> Iterator[Mark]:
    refused = permanent_statuses(said.given[name])
    if refused:
        codes = ", ".join(map(str, refused))
        yield Mark(
            "KFM106", said.given[name], f"Answer {codes} is retried: the same request gets the same answer."
        )


def _adapter(said: Declared) -> Iterator[Mark]:
    """A bare number becomes a Retry whose backoff_factor is 0."""
    name = "max_retries" if "max_retries" in said.given else "retries"
    value = said.value(name)
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        yield Mark("KFM102", said.given[name], "A bare number of retries means no wait between them.")
        if is_endless(value):
            yield Mark("KFM101", said.given[name], FOREVER)


def _botocore(said: Declared) -> Iterator[Mark]:
    node = said.given.get("retries")
    if not isinstance(node, ast.Dict):
        return
    for key, value in zip(node.keys, node.values, strict=True):
        named = literal(key) if key is not None else ...
        number = literal(value)
        if named in ("max_attempts", "total_max_attempts") and isinstance(number, int) and is_endless(number):
            yield Mark("KFM101", value, f"{number} attempts are no limit.")


def _aiohttp(said: Declared) -> Iterator[Mark]:
    if is_endless(said.value("attempts")) and "attempts" in said.given:
        yield Mark("KFM101", said.call, FOREVER)
    if said.name.endswith("ExponentialRetry"):
        if said.value("start_timeout") == 0:
            yield Mark("KFM102", said.call, AT_ONCE)
        elif said.value("factor") == 1:
            yield Mark("KFM103", said.call, SAME)
    yield from _methods(said, "methods")
    if "statuses" in said.given:
        yield from _statuses(said, "statuses")
    if "exceptions" in said.given:
        yield from permanent(said.names, said.given["exceptions"])


_RETRY = ("total", "connect", "read", "redirect", "status", "other")
TRANSPORT_CALLS: dict[tuple[str, str], tuple[tuple[str, ...], Check]] = {
    ("urllib3", "Retry"): (_RETRY, _urllib3),
    ("requests", "HTTPAdapter"): ((), _adapter),
    ("urllib3", "PoolManager"): ((), _adapter),
    ("urllib3", "HTTPConnectionPool"): ((), _adapter),
    ("urllib3", "HTTPSConnectionPool"): ((), _adapter),
    ("botocore", "Config"): ((), _botocore),
    ("aiobotocore", "AioConfig"): ((), _botocore),
    ("aiohttp_retry", "ExponentialRetry"): (("attempts", "start_timeout", "max_timeout", "factor"), _aiohttp),
    ("aiohttp_retry", "JitterRetry"): (("attempts",), _aiohttp),
    ("aiohttp_retry", "RandomRetry"): (("attempts",), _aiohttp),
    ("aiohttp_retry", "FibonacciRetry"): (("attempts",), _aiohttp),
}
