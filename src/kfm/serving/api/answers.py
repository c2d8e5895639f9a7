"""Answers, and what went wrong as RFC 9457 says it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.responses import Response

from kfm.core.errors import (
    BackendUnavailable,
    BudgetSpent,
    Busy,
    KfmError,
    MalformedJson,
    NotApproved,
    PlanDrifted,
    RationaleRequired,
    Refused,
    RoleMissing,
    SwitchThrown,
    UsageError,
)
from kfm.serving.problems import PROBLEM, RETRY_SECONDS, note

HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}
TITLES = {
    400: "The request can't be understood",
    401: "Nobody is known by this",
    403: "This is refused",
    404: "There is nothing here",
    405: "This can't be done here",
    406: "There is no such form of it",
    409: "Things stand in the way",
    413: "The request is too large",
    415: "The body is not JSON",
    422: "What is asked for can't be done",
    500: "Something went wrong",
    503: "The ledger can't be reached at present",
}
# The first that fits decides.
_STATUS: tuple[tuple[type[KfmError], int], ...] = (
    (MalformedJson, 400),
    (UsageError, 422),
    (RationaleRequired, 422),
    (BudgetSpent, 422),
    (RoleMissing, 403),
    (NotApproved, 409),
    (PlanDrifted, 409),
    (SwitchThrown, 409),
    (Refused, 403),
    (Busy, 409),
    (BackendUnavailable, 503),
)


class Problem(Exception):
    """A request that is answered with what is wrong with it."""

    def __init__(
        self,
        status: int,
        detail: str,
        error: KfmError | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.error = error
        self.headers = dict(headers or {})


def answer(document: Any, status: int, media_type: str, headers: Mapping[str, str] | None = None) -> Response:
    data = document if isinstance(document, bytes) else msgspec.json.encode(document)
    return Response(data, status, {**HEADERS, **(headers or {})}, media_type=media_type)


def problem_answer(problem: Problem) -> Response:
    error = problem.error
    document: dict[str, Any] = {
        "type": error.as_document()["docs"] if error is not None else "about:blank",
        "title": TITLES[problem.status],
        "status": problem.status,
        "detail": problem.detail,
    }
    if error is not None:
        way_out = error.way_out if error.way_out != UsageError.remedy else "/openapi.json describes it."
        document |= {"code": error.code, "remedy": way_out}
    return answer(document, problem.status, PROBLEM, problem.headers)


def problem_of(error: Exception) -> Problem:
    """Our own errors say what is wrong; of others nothing is told, and they are written down here."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, KfmError):
        status = next((status for kind, status in _STATUS if isinstance(error, kind)), 500)
        if status < 500:
            return Problem(status, error.detail or error.message, error)
        note(error)
        if status == 503:
            return Problem(503, TITLES[503], error, {"Retry-After": str(RETRY_SECONDS)})
    else:
        note(error)
    return Problem(500, TITLES[500], KfmError(remedy="The messages of the server say more."))


def missing(what: str) -> Problem:
    return Problem(404, f"There is no {what} of that name.")
