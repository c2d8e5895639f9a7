"""Problem details (RFC 9457): one renderer, one table of titles."""

from __future__ import annotations

import logging
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
    ContentGone,
    KfmError,
    MalformedJson,
    NotApproved,
    PlanDrifted,
    RationaleRequired,
    Refused,
    RoleMissing,
    SwitchThrown,
    UsageError,
    outage_of,
)
from kfm.model.quantities import visible_json

JSON = "application/json"
PROBLEM = "application/problem+json"
RETRY_AFTER = {"Retry-After": "5"}
TITLES = {  # the phrases of RFC 9110, whatever Python's version has
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    406: "Not Acceptable",
    408: "Request Timeout",
    409: "Conflict",
    410: "Gone",
    413: "Content Too Large",
    415: "Unsupported Media Type",
    421: "Misdirected Request",
    422: "Unprocessable Content",
    500: "Internal Server Error",
    503: "Service Unavailable",
}
_HEADERS = {"Cache-Control": "no-cache", "X-Content-Type-Options": "nosniff"}
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
    (ContentGone, 410),
    (Refused, 403),
    (Busy, 409),
    (BackendUnavailable, 503),
)
logger = logging.getLogger(__name__)


class Problem(Exception):
    """A request that is answered with problem details."""

    def __init__(
        self,
        status: int,
        detail: str,
        error: KfmError | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        code: str | None = None,
        members: Mapping[str, Any] | None = None,
    ) -> None:
        """`error` gives the code and the remedy; `members` are further members of the document."""
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.error = error
        self.headers = dict(headers or {})
        self.code = error.code if error is not None else code
        self.title = TITLES.get(status) or HTTPStatus(status).phrase
        self.members = dict(members or {})

    def document(self) -> dict[str, Any]:
        document: dict[str, Any] = {
            "type": f"docs/reference/errors.md#{self.code.lower()}" if self.code else "about:blank",
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
        }
        if self.code is not None:
            document["code"] = self.code
        if self.error is not None:
            reads_help = type(self.error) is UsageError and self.error.own_remedy is None
            document["remedy"] = "/openapi.json describes it." if reads_help else self.error.way_out
        return document | self.members


def problem_schema(*, stac: bool = False) -> dict[str, Any]:
    """The JSON schema of a problem; of a STAC API with the two members that its clients expect."""
    text = {"type": "string"}
    properties = {
        "type": {**text, "format": "uri-reference", "description": "The page of the error."},
        "title": text,
        "status": {"type": "integer", "minimum": 400, "maximum": 599},
        "detail": text,
        "code": {**text, "pattern": "^(KFM[0-9]{3}|[1-5][0-9]{2})$" if stac else "^KFM[0-9]{3}$"},
        "remedy": {**text, "description": "What to do about it."},
        "candidates": {
            "type": "array",
            "items": text,
            "description": "Whole ids of the records that a short id may mean.",
        },
        "tombstone": {
            "type": "object",
            "description": "Of what was withdrawn: what, since when and why, as far as it may be told.",
        },
    }
    if stac:
        properties["description"] = {**text, "description": "The same as `detail`."}
    return {
        "type": "object",
        "required": ["detail", "status", "title", "type"],
        "properties": properties,
    }


def answer(
    document: Any, media_type: str = JSON, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """A document of JSON."""
    text = visible_json(msgspec.json.encode(document).decode())
    return Response(text.encode(), status, {**_HEADERS, **(headers or {})}, media_type=media_type)


def render(problem: Problem, headers: Mapping[str, str] | None = None) -> Response:
    """The response for a problem; `headers` are those of every response of its surface."""
    return answer(problem.document(), PROBLEM, problem.status, {**(headers or {}), **problem.headers})


def problem(
    status: int,
    detail: str,
    code: str | None = None,
    headers: Mapping[str, str] | None = None,
    **members: Any,
) -> Response:
    """The response for a problem outside the API: with `code` and `description` as clients of STAC expect."""
    older = {"code": code or str(status), "description": detail}
    found = Problem(status, detail, headers=headers, code=code, members=older | members)
    return render(found)


def missing(what: str) -> Problem:
    return Problem(404, f"There is no {what} with this id.")


def problem_of(error: Exception) -> Problem:
    """The problem that an exception becomes. Details of unexpected errors go to the log only."""
    if isinstance(error, Problem):
        return error
    status = next((status for kind, status in _STATUS if isinstance(error, kind)), 500)
    if isinstance(error, KfmError) and status < 500:
        return Problem(status, error.detail or error.message, error)
    return _server_problem(error)


def on_error(_request: Request, error: Exception) -> Response:
    """Starlette's handler of exceptions outside the API, where only parameters can be at fault."""
    if isinstance(error, UsageError):
        return problem(400, error.detail or error.message, error.code)
    found = _server_problem(error)
    return problem(found.status, found.detail, found.code, found.headers)


def on_http(_request: Request, error: Exception) -> Response:
    """Starlette's handler of HTTPException."""
    assert isinstance(error, HTTPException)
    detail = error.detail if error.status_code not in (404, 405) else ""
    if error.status_code == 405 and (allowed := (error.headers or {}).get("Allow")):
        detail = f"Methods: {allowed}."
    phrase = HTTPStatus(error.status_code).phrase
    return problem(error.status_code, detail or f"{phrase}.", headers=error.headers)


def _server_problem(error: Exception) -> Problem:
    log_error(error)
    if isinstance(error, BackendUnavailable):
        return Problem(503, "The ledger can't be used at present.", error, RETRY_AFTER)
    return Problem(500, "Something went wrong.", KfmError(remedy="The log of the server says more."))


def log_error(error: Exception) -> None:
    code, text = (
        (error.code, error.message)
        if isinstance(error, KfmError)
        else (KfmError.code, f"{type(error).__name__}: {error}")
    )
    logger.error("error %s: %s", code, " ".join(text.split()), extra={"code": code, **outage_of(error)})
