"""Answers, and what went wrong as RFC 9457 says it: JSON with a type, a title, a status and a detail."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from kfm.core.errors import BackendUnavailable, KfmError, UsageError

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
