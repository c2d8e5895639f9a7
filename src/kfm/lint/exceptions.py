"""Exceptions by name: which are no failures, which never go away by trying again."""

from __future__ import annotations

import ast
import re

from kfm.lint.names import Names, last

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
# Somebody else was quicker. Looking again at once, with fresh eyes, is the right answer.
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
    """`NodeLocked`, `DeviceBusy`: somebody else is at it, and will be done."""
    return re.search(r"(?i)lock|busy|ongoing|inprogress|inuse|notready", last(name)) is not None


def is_not_yet(name: str) -> bool:
    """`NotReadyError`, `JobStillRunning`: the other side works, and we wait for it."""
    waiting = r"(?i)not_?(yet|ready|finished|available)|still|pending|inprogress|^lockerror$"
    return re.search(waiting, last(name)) is not None
