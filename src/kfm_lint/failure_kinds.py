"""Kinds of failure: HTTP statuses and exceptions that pass, that never pass, and that are no failures."""

from __future__ import annotations

import ast
import re

from kfm_lint.index import Names, last

# --- HTTP statuses --------------------------------------------------------------------

_STATUS = re.compile(r"(?i)^(http_?)?status(_?code)?$|^code$|^resp(onse)?_(code|status)$|^httpstatuscode$")
SYMBOLS = {
    "TOO_MANY_REQUESTS": 429,
    "SERVICE_UNAVAILABLE": 503,
    "BAD_GATEWAY": 502,
    "GATEWAY_TIMEOUT": 504,
    "INTERNAL_SERVER_ERROR": 500,
    "BAD_REQUEST": 400,
    "FORBIDDEN": 403,
    "METHOD_NOT_ALLOWED": 405,
    "GONE": 410,
    "UNPROCESSABLE_ENTITY": 422,
    "UNPROCESSABLE_CONTENT": 422,
    "UNSUPPORTED_MEDIA_TYPE": 415,
    "UNAVAILABLE_FOR_LEGAL_REASONS": 451,
    "OK": 200,
    "too_many_requests": 429,
    "too_many": 429,
}
ASKS_TO_WAIT = frozenset((429, 503))
# The answer is about the request: sent again it gets the same answer.
PERMANENT = frozenset((400, 403, 405, 410, 415, 422, 451))


def statuses(test: ast.expr) -> list[tuple[ast.cmpop, set[int]]]:
    """(comparison, numbers) for each comparison of a status in this expression."""
    found = []
    for node in ast.walk(test):
        if not isinstance(node, ast.Compare) or len(node.ops) != 1:
            continue
        sides = [node.left, node.comparators[0]]
        if not any(_is_status(each) for each in sides):
            continue
        numbers = numbers_in(sides)
        if numbers:
            found.append((node.ops[0], numbers))
    return found


def numbers_in(nodes: list[ast.expr]) -> set[int]:
    numbers: set[int] = set()
    for each in nodes:
        for leaf in ast.walk(each):
            if isinstance(leaf, ast.Constant) and type(leaf.value) is int and 100 <= leaf.value < 600:
                numbers.add(leaf.value)
            elif isinstance(leaf, ast.Attribute) and leaf.attr in SYMBOLS:
                numbers.add(SYMBOLS[leaf.attr])
    return numbers


def _is_status(node: ast.expr) -> bool:
    if isinstance(node, ast.Call):  # getcode(), int(e.code)
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        return name in ("getcode", "get_status") or any(_is_status(each) for each in node.args)
    if isinstance(node, ast.Subscript):
        key = node.slice
        return isinstance(key, ast.Constant) and isinstance(key.value, str) and bool(_STATUS.match(key.value))
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    return _STATUS.match(name) is not None


def is_failure(test: ast.expr) -> bool:
    """Is this true when the other side could not serve us?"""
    for comparison, numbers in statuses(test):
        if isinstance(comparison, ast.Eq | ast.In | ast.GtE | ast.Gt) and min(numbers) >= 399:
            return True
        if isinstance(comparison, ast.NotEq | ast.NotIn) and all(200 <= each < 300 for each in numbers):
            return True
    return (
        isinstance(test, ast.UnaryOp)
        and isinstance(test.op, ast.Not)
        and isinstance(test.operand, ast.Attribute)
        and test.operand.attr in ("ok", "is_success")
    )


def is_success(test: ast.expr) -> bool:
    for comparison, numbers in statuses(test):
        if isinstance(comparison, ast.Eq | ast.In) and all(200 <= each < 400 for each in numbers):
            return True
        if isinstance(comparison, ast.Lt | ast.LtE) and max(numbers) in (300, 399, 400, 499, 500):
            return True
    return isinstance(test, ast.Attribute) and last(test.attr) in ("ok", "is_success")


# --- exceptions -----------------------------------------------------------------------

BROAD = frozenset(("Exception", "BaseException"))
# Control flow, or a look-up that found nothing: what follows is no retry of a failure.
NO_FAILURE = frozenset(
    "KeyError IndexError LookupError AttributeError StopIteration StopAsyncIteration GeneratorExit NameError "
    "KeyboardInterrupt InterruptedError FileExistsError ImportError ModuleNotFoundError UnicodeError "
    "UnicodeDecodeError UnicodeEncodeError ZeroDivisionError Empty Full QueueEmpty QueueFull ValueError "
    "TypeError SystemExit ChildProcessError ProcessLookupError EOFError NoSuchProcess RecursionError "
    "CancelledError EndOfStream WouldBlock SyntaxError DoesNotExist FileNotFoundError "
    "NotADirectoryError IsADirectoryError OverflowError SSLWantReadError SSLWantWriteError WantReadError "
    "WantWriteError InterruptedSystemCall".split()
)
WAITED_TOO_LONG = frozenset(
    "Empty Full QueueEmpty TimeoutError timeout BlockingIOError TimeoutExpired Timeout ReadTimeout "
    "TIMEOUT".split()
)
_ABOUT = r"(Validation|Schema|Contract|CARE|Care|Sovereignty|Consent|Governance|Licen[cs]e)"
_VERDICT = r"(Error|Exception|Violation|Violated|Failure|Denied|Failed|Broken|Invalid|Refused|Mismatch)"
_PERMANENT = re.compile(
    rf"^_?\w*{_ABOUT}\w*{_VERDICT}$|^{_VERDICT}{_ABOUT}\w*$|^Invalid(Schema|Document|Record|Payload)\w*$"
    r"|^(GateDenied|PolicyDenied|PolicyViolation\w*|UnprocessableEntity\w*|HTTPUnprocessableEntity)$"
)
# A lost race. Reading again at once is the right answer.
_RACE = re.compile(
    r"(?i)duplicate|conflict|integrity|exists|inconsistent|versionmismatch|stale|concurrent|optimistic|precondition|race|changed|modified|notfound|nosuch|doesnotexist|watcherror"
)
_TEMPORARY = re.compile(r"(?i)timeout|unavailable|stale|conflict|connection|registry")
_THROTTLED = re.compile(r"(?i)(toomanyrequests|ratelimit|throttl|slowdown)")


def caught(names: Names, handler: ast.ExceptHandler) -> list[str]:
    """The exceptions of a handler; empty if it takes everything."""
    if handler.type is None:
        return []
    found = types_in(names, handler.type)
    return [] if any(last(each) in BROAD for each in found) else found


def types_in(names: Names, node: ast.expr) -> list[str]:
    elements = node.elts if isinstance(node, ast.Tuple | ast.List | ast.Set) else [node]
    return [names.dotted(each) or "?" for each in elements]


def is_permanent(name: str) -> bool:
    """Is it about the data or the permission? Then the same attempt has the same end."""
    short = last(name)
    return _PERMANENT.match(short) is not None and _TEMPORARY.search(short) is None


def is_throttled(name: str) -> bool:
    return _THROTTLED.search(last(name)) is not None


def is_race(name: str) -> bool:
    return _RACE.search(last(name)) is not None


def is_held(name: str) -> bool:
    """`NodeLocked`, `DeviceBusy`: held by another process, which will finish."""
    return re.search(r"(?i)lock|busy|ongoing|inprogress|inuse|notready", last(name)) is not None


def is_not_yet(name: str) -> bool:
    """`NotReadyError`, `JobStillRunning`: the other side works, and we wait for it."""
    waiting = r"(?i)not_?(yet|ready|finished|available)|still|pending|inprogress|^lockerror$"
    return re.search(waiting, last(name)) is not None
