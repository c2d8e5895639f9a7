"""Errors of other libraries, read without importing them.

Most are told by the table alone: class names, status, code, SQLSTATE, errno, message. Here are
the few that hide what the table needs, found by the name of the package that made their class.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from kfm.calls.guard import classify_call
from kfm.model.errors import KfmError
from kfm.model.retry import (
    CAUSES_MAX,
    RETRY_AFTER_MAX_S,
    Classification,
    Failure,
    classify,
    parse_retry_after,
)

_GROUP_MAX = 100


def classify_error(error: Exception) -> Classification:
    """The class of any error. A group may be tried again only if each of its members may."""
    if isinstance(error, ExceptionGroup):
        kinds = [
            classify_error(member) if isinstance(member, Exception) else classify_call(error)
            for member in error.exceptions[:_GROUP_MAX]
        ]
        return next((kind for kind in kinds if not kind.retryable), kinds[0])
    if (known := _by_package(error)) is not None:
        return known
    return classify_call(error)


def _by_package(error: BaseException) -> Classification | None:
    for cls in type(error).__mro__:
        reader = _READERS.get(cls.__module__.partition(".")[0])
        if reader is not None:
            return reader(error)
    return None


def _chain(error: BaseException) -> Iterator[BaseException]:
    current: BaseException | None = error
    for _ in range(CAUSES_MAX):
        if current is None:
            return
        yield current
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)


# --- one reader a package ------------------------------------------------------------


def is_untrusted(error: BaseException) -> bool:
    """Was the other side's certificate refused? Also where a library raised another error from that."""
    waiting = [error]
    for _ in range(2 * CAUSES_MAX):
        if not waiting:
            return False
        cause = waiting.pop(0)
        if any(cls.__name__ == "SSLCertVerificationError" for cls in type(cause).__mro__):
            return True
        below = dict.fromkeys((cause.__cause__, cause.__context__))
        waiting += [each for each in below if each is not None]
    return False


def _httpx(error: BaseException) -> Classification | None:
    """A refused certificate comes as a ConnectError, which passes; this one does not."""
    if is_untrusted(error):
        return classify(Failure(exceptions=("SSLCertVerificationError",)))
    return None


def _neo4j(error: BaseException) -> Classification | None:
    """The driver knows of client errors that pass, such as a write to a server that no longer leads."""
    ask = getattr(error, "is_retryable", None)
    if callable(ask) and ask() is True:
        return Classification(retryable=True, error_class="neo4j-transient")
    return None


_STATUS = re.compile(r"non-2xx status code: (\d{3})\b")
_CODE = re.compile(r"<Code>(\w{1,80})</Code>")
_KIND = re.compile(r"\bHttpError \{\s+kind: (\w+)")
_TRANSPORT = {
    "Timeout": "TimeoutError",
    "Connect": "ConnectError",
    "Interrupted": "ReadError",
    "Request": "RemoteProtocolError",  # the connection was closed before there was an answer
}
_OBSTORE_CHARS_MAX = 20_000


def obstore_status(error: BaseException) -> int | None:
    """The status that a server answered obstore with; None if that is not what failed."""
    found = _STATUS.search(str(error)[:_OBSTORE_CHARS_MAX])
    return int(found[1]) if found else None


def _obstore(error: BaseException) -> Classification | None:
    """obstore says it in words only: status and answer, or the kind of a transport error."""
    message = str(error)[:_OBSTORE_CHARS_MAX]
    status, code = obstore_status(error), _CODE.search(message)
    if status is not None or code:
        return classify(Failure(http_status=status, code=code[1] if code else None))
    kind = _KIND.search(message)
    if kind and "certificate" not in message.lower():
        return classify(Failure(exceptions=(_TRANSPORT.get(kind[1], ""),)))
    return None


def _socket(error: BaseException) -> Classification | None:
    """The resolver counts its errors apart from the system's."""
    if type(error).__name__ == "gaierror":
        from socket import EAI_AGAIN

        if getattr(error, "errno", None) == EAI_AGAIN:
            return classify(Failure(errno="EAI_AGAIN"))
    return None


_READERS: dict[str, Callable[[BaseException], Classification | None]] = {
    "httpx": _httpx,
    "neo4j": _neo4j,
    "obstore": _obstore,
    "socket": _socket,
}


# --- Retry-After ---------------------------------------------------------------------


def retry_after_ms(error: BaseException, now_ms: int) -> int | None:
    """How long the other side, or a tier below, asks us to wait."""
    for cause in _chain(error):
        facts = cause.facts if isinstance(cause, KfmError) else {}
        wait_ms = facts.get("wait_ms")
        if isinstance(wait_ms, int):
            return wait_ms
        retry_after = facts.get("retry_after", _header(cause))
        if isinstance(retry_after, int | float) and not isinstance(retry_after, bool) and retry_after >= 0:
            return round(min(retry_after, RETRY_AFTER_MAX_S) * 1000)
        if isinstance(retry_after, str):
            found = parse_retry_after(retry_after, now_ms)
            if found is not None:
                return found
    return None


def _header(error: BaseException) -> Any:
    """From httpx, requests, aiohttp and urllib (`headers`), botocore (a dict), or plainly `retry_after`."""
    response = getattr(error, "response", None)
    if isinstance(response, dict):
        answer = response.get("ResponseMetadata")
        headers = answer.get("HTTPHeaders") if isinstance(answer, dict) else None
    else:
        headers = getattr(response, "headers", None) or getattr(error, "headers", None)
    ask = getattr(headers, "get", None)
    if callable(ask):
        for name in ("retry-after", "Retry-After"):
            value = ask(name)
            if value is not None:
                return value
    return getattr(error, "retry_after", None)
