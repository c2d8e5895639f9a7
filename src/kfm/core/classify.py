"""Is an error worth another try? Decided by the table in `contracts/retry.json` alone."""

from __future__ import annotations

import errno
from functools import cache

import msgspec

from kfm.core.errors import KfmError
from kfm.core.retry_rules import Family, Verdict, retry_rules

CAUSES_MAX = 8


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about an error, as plain values."""

    exceptions: tuple[str, ...] = ()  # class names, most specific first
    http_status: int | None = None
    code: str | None = None  # a provider's code, a SQLSTATE, or one of ours
    errno: str | None = None  # its name, such as EAGAIN
    message: str = ""


class Classification(msgspec.Struct, frozen=True):
    retryable: bool
    error_class: str


UNKNOWN = Classification(retryable=False, error_class="unknown")


def classify(failure: Failure) -> Classification:
    """The most telling sign first: code, status, errno, exception, message. Unknown is not retryable."""
    if failure.code is not None:
        found = _by_code(failure.code)
        if found is not None:
            return found
    if failure.http_status is not None:
        retryable = failure.http_status in retry_rules().http_retryable
        return Classification(retryable=retryable, error_class=f"HTTP_{failure.http_status}")
    if failure.errno is not None and failure.errno in _table("errnos"):
        return _table("errnos")[failure.errno]
    for name in failure.exceptions:
        if name in _table("exceptions"):
            return _table("exceptions")[name]
    for rule in retry_rules().messages:
        if rule.exception in failure.exceptions and rule.contains in failure.message:
            return Classification(retryable=rule.retryable, error_class=rule.error_class)
    return UNKNOWN


def classify_exception(error: BaseException) -> Classification:
    """As `classify`, and where an error says nothing, what it was raised from decides."""
    current: BaseException | None = error
    for _ in range(CAUSES_MAX):
        if current is None:
            break
        found = classify(failure_of(current))
        if found != UNKNOWN:
            return found
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)
    return UNKNOWN


def failure_of(error: BaseException) -> Failure:
    """The plain values of an exception, from whichever library it came."""
    names = tuple(
        cls.__name__ for cls in type(error).__mro__ if cls not in (object, BaseException, Exception)
    )
    number = getattr(error, "errno", None)
    return Failure(
        exceptions=names,
        http_status=_http_status(error),
        code=_code(error),
        errno=errno.errorcode.get(number) if isinstance(number, int) else None,
        message=str(error)[:1000],
    )


def _http_status(error: BaseException) -> int | None:
    response = getattr(error, "response", None)
    if isinstance(response, dict):  # botocore's shape; its code, where known, was asked before
        answer = response.get("ResponseMetadata")
        value = answer.get("HTTPStatusCode") if isinstance(answer, dict) else None
        return value if type(value) is int and 100 <= value <= 599 else None
    for holder in (response, error):
        for field in ("status_code", "status"):
            value = getattr(holder, field, None)
            if type(value) is int and 100 <= value <= 599:
                return value
    return None


def _code(error: BaseException) -> str | None:
    response = getattr(error, "response", None)
    if isinstance(response, dict):  # botocore's shape
        answer = response.get("Error")
        code = answer.get("Code") if isinstance(answer, dict) else None
        return code if isinstance(code, str) else None
    for field in ("code", "sqlstate"):
        value = getattr(error, field, None)
        if isinstance(value, str) and value:
            # The base class's own code says nothing: look further.
            return (
                None
                if isinstance(error, KfmError) and value in (KfmError.code, "KFM601", "KFM607")
                else value
            )
    return None


def _by_code(code: str) -> Classification | None:
    if code in _table("codes"):
        return _table("codes")[code]
    prefixes: dict[str, Verdict] = retry_rules().code_prefixes
    for prefix, verdict in prefixes.items():
        if code.startswith(prefix):
            return Classification(retryable=verdict.retryable, error_class=verdict.error_class)
    return None


@cache
def _table(name: str) -> dict[str, Classification]:
    """The families turned inside out: from a name to its class."""
    families: dict[str, Family] = getattr(retry_rules(), name)
    return {
        member: Classification(retryable=family.retryable, error_class=error_class)
        for error_class, family in families.items()
        for member in family.names
    }
