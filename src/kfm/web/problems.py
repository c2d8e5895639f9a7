"""Problem details (RFC 9457) and other answers."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from kfm.model.errors import (
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

PROBLEM = "application/problem+json"
RETRY_SECONDS = 5
_TITLES = {
    400: "The request can't be understood",
    401: "This is not signed, or nobody's",
    403: "This is refused",
    404: "There is nothing here",
    405: "This can't be done here",
    408: "The request took too long",
    409: "This was asked for before",
    413: "The request is too large",
    415: "The body is not JSON",
    421: "This server does not answer to that name",
    500: "Something went wrong",
    503: "The ledger can't be used at present",
}


def answer(
    document: Any, media_type: str, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    kept = {"Cache-Control": "no-cache", "X-Content-Type-Options": "nosniff", **(headers or {})}
    return Response(msgspec.json.encode(document), status, kept, media_type=media_type)


def problem(
    status: int,
    detail: str,
    code: str | None = None,
    headers: Mapping[str, str] | None = None,
    *,
    title: str | None = None,
    **more: Any,
) -> Response:
    """`code` and `description` are for readers of STAC's older form; `more` are members of its own kind."""
    document = {
        "type": f"docs/reference/errors.md#{code.lower()}" if code else "about:blank",
        "title": title or _TITLES[status] if code else HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        "code": code or str(status),
        "description": detail,
        **more,
    }
    return answer(document, PROBLEM, status, headers)


def on_http(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    detail = error.detail if error.status_code not in (404, 405) else ""
    if error.status_code == 405 and (allowed := (error.headers or {}).get("Allow")):
        detail = f"Understood are {allowed}."
    return problem(error.status_code, detail or _TITLES.get(error.status_code, ""), headers=error.headers)


def on_error(_request: Request, error: Exception) -> Response:
    """Our own errors say what is wrong; nothing is told of others, which are written down here."""
    if isinstance(error, UsageError):
        return problem(400, error.detail or error.message, error.code)
    if isinstance(error, BackendUnavailable):
        note(error)
        return problem(503, _TITLES[503], error.code, {"Retry-After": str(RETRY_SECONDS)})
    note(error)
    return problem(500, _TITLES[500], KfmError.code)


def note(error: Exception) -> None:
    code, text = (
        (error.code, error.message)
        if isinstance(error, KfmError)
        else (KfmError.code, f"{type(error).__name__}: {error}")
    )
    sys.stderr.write(f"error {code}: {' '.join(text.split())}\n")
    sys.stderr.flush()


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


def api_answer(
    document: Any, status: int, media_type: str, headers: Mapping[str, str] | None = None
) -> Response:
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
    return api_answer(document, problem.status, PROBLEM, problem.headers)


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
