"""Routes of the API, made from the table of operations: access, parameters, bodies, idempotency, problems."""

from __future__ import annotations

import gzip
import re
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import Receive, Scope, Send

from kfm.model.canonical import strict_loads
from kfm.model.errors import UsageError
from kfm.model.roles import Identity
from kfm.web.api import idempotency_keys
from kfm.web.api.access import BEARER, Unauthenticated, authenticate, require
from kfm.web.api.events import EVENTS, as_stream
from kfm.web.api.operation_table import OPERATIONS
from kfm.web.api.operations import ID, NUMBER, Operation, read_query
from kfm.web.api.perform import body_of, perform
from kfm.web.api.reference_page import HTML, POLICY, reference_page
from kfm.web.listener import LOOPBACK
from kfm.web.openapi import BASE, api_openapi
from kfm.web.problems import JSON, Problem, answer, problem_of, render
from kfm.web.request_context import WebContext
from kfm.web.server import Named

BODY_BYTES_MAX = 64 * 1024
TAG_CHARS = 32
_GZIP = re.compile(r"\s*gzip\s*(;\s*q\s*=\s*(?!0(\.0*)?\s*$)[0-9.]+\s*)?")
COMPRESSED_BYTES_MIN, COMPRESSION, COMPRESSED = 1024, 5, "-gzip"
HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}


def api_routes(context: WebContext) -> list[BaseRoute]:
    """Routes to be mounted; they need no middleware and no exception handlers."""
    by_path: dict[str, dict[str, Operation]] = {}
    for operation in OPERATIONS:
        by_path.setdefault(operation.path, {})[operation.method] = operation
    # A path with a parameter of any length comes after more specific ones.
    ordered = sorted(by_path, key=lambda path: (path.endswith(":path}"), ":path}" in path))
    routes: list[BaseRoute] = [Route("/", _Page()), Route("/openapi.json", _Description())]
    routes += [Route(path, _Address(context, by_path[path])) for path in ordered]
    return [*routes, Route("/{rest:path}", _Nowhere())]


def api_app(context: WebContext, *, hosts: Sequence[str] = LOOPBACK) -> Starlette:
    """The API alone."""
    routes = [Mount(BASE, routes=api_routes(context))]
    return Starlette(routes=routes, middleware=[Middleware(Named, hosts=tuple(hosts))])


class _Answering:
    """An endpoint. Every answer, also to an error, is one that OpenAPI describes."""

    methods: tuple[str, ...] = ("GET", "HEAD", "OPTIONS")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            response = await self._to(request)
        except Exception as error:  # noqa: BLE001 - a defect is answered as a problem
            response = render(problem_of(error), HEADERS)
        _compress(request, response)
        if request.method == "HEAD":
            response.body = b""
        await response(scope, receive, send)

    async def _to(self, request: Request) -> Response:
        allow = {"Allow": ", ".join(self.methods)}
        if request.method not in self.methods:
            raise Problem(405, f"Methods: {allow['Allow']}.", headers=allow)
        if request.method == "OPTIONS":
            return Response(status_code=204, headers={**HEADERS, **allow})
        return await self.answered(request)

    async def answered(self, request: Request) -> Response:
        raise NotImplementedError


class _Description(_Answering):
    async def answered(self, request: Request) -> Response:
        _require_acceptable(request, JSON)
        _query(request, None)
        return answer(api_openapi(str(request.scope.get("root_path", ""))), headers=HEADERS)


class _Page(_Answering):
    async def answered(self, request: Request) -> Response:
        _require_acceptable(request, "text/html")
        _query(request, None)
        page = reference_page(str(request.scope.get("root_path", "")))
        return Response(page, headers={**HEADERS, "Content-Security-Policy": POLICY}, media_type=HTML)


class _Nowhere(_Answering):
    async def _to(self, request: Request) -> Response:
        base = str(request.scope.get("root_path", ""))
        raise Problem(404, f"No such path; {base}/openapi.json describes the API.")


class _Address(_Answering):
    def __init__(self, context: WebContext, operations: dict[str, Operation]) -> None:
        self._context = context
        self._operations = operations
        reading = ("GET", "HEAD") if "GET" in operations else ()
        self.methods = (*reading, *(name for name in operations if name != "GET"), "OPTIONS")

    async def answered(self, request: Request) -> Response:
        operation = self._operations["GET" if request.method == "HEAD" else request.method]
        identity = authenticate(request, self._context.people)
        if isinstance(identity, Unauthenticated):
            raise Problem(401, identity.detail, headers=BEARER)
        assert operation.role is not None
        what = f"{operation.method} {operation.shown_path}"
        await run_in_threadpool(require, self._context, identity, operation.role, what)
        _require_acceptable(request, operation.media_type)
        path = {name: str(value) for name, value in request.path_params.items() if name in operation.fields}
        for name, value in path.items():
            if re.fullmatch(ID, value) is None:
                raise Problem(404, f"`{name}` is not a valid id.")
        query = _query(request, operation)
        if operation.media_type == EVENTS and query["cursor"] is None:
            query["cursor"] = _last_event(request)
        body, key = None, None
        if operation.body is not None:
            key = idempotency_keys.read_key(request.headers.getlist("idempotency-key"))
            body = body_of(strict_loads(await _read(request), bytes_max=BODY_BYTES_MAX), operation.body)
        base = str(request.scope.get("root_path", ""))
        values = {"path": path, "query": query, "body": body, "key": key, "base": base}
        response = await run_in_threadpool(_work, self._context, identity, operation, **values)
        is_tagged = operation.method == "GET" and operation.media_type != EVENTS
        return _unless_known(request, response) if is_tagged else response


def _compress(request: Request, response: Response) -> None:
    """With gzip, where the client takes that and the answer is long enough to gain by it."""
    offered = ",".join(request.headers.getlist("accept-encoding")).lower().split(",")
    if not any(map(_GZIP.fullmatch, offered)) or len(response.body) < COMPRESSED_BYTES_MIN:
        return
    response.body = gzip.compress(response.body, COMPRESSION, mtime=0)
    response.headers["Content-Encoding"] = "gzip"
    response.headers["Content-Length"] = str(len(response.body))
    response.headers["Vary"] = "Accept-Encoding"
    if "ETag" in response.headers:  # of other bytes than without
        response.headers["ETag"] = f'{response.headers["ETag"][:-1]}{COMPRESSED}"'


def _unless_known(request: Request, response: Response) -> Response:
    """An answer with its entity tag; none, where the client has the same one already."""
    tag = f'"{sha256(response.body).hexdigest()[:TAG_CHARS]}"'
    response.headers["ETag"] = tag
    known = [one.strip() for text in request.headers.getlist("if-none-match") for one in text.split(",")]
    compressed = f'{tag[:-1]}{COMPRESSED}"'
    if response.status_code != 200 or not {tag, f"W/{tag}", compressed, "*"} & set(known):
        return response
    theirs = compressed if compressed in known else tag
    return Response(status_code=304, headers={**HEADERS, "ETag": theirs})


def _work(context: WebContext, identity: Identity, operation: Operation, **values: Any) -> Response:
    reply = perform(context, identity, operation, **values)
    headers = {**HEADERS, **reply.headers}
    if operation.media_type == EVENTS:
        headers["Cache-Control"] = "no-store"
        return Response(as_stream(reply.document), 200, headers, media_type=EVENTS)
    return answer(reply.document, operation.media_type, reply.status or operation.status, headers)


# --- parameters and bodies -----------------------------------------------------------


def _query(request: Request, operation: Operation | None) -> dict[str, Any]:
    try:
        return read_query(
            request.query_params.multi_items(), () if operation is None else operation.parameters
        )
    except UsageError as error:
        raise Problem(400, error.detail, error) from None


def _last_event(request: Request) -> str | None:
    found = request.headers.get("last-event-id", "")
    if found and re.fullmatch(NUMBER, found) is None:
        raise Problem(400, "`Last-Event-ID` is not an id of an event.")
    return found or None


def _require_acceptable(request: Request, media_type: str) -> None:
    """Problem 406 if the client accepts no media type of the answer."""
    accepted = ",".join(request.headers.getlist("accept")).strip()
    if not accepted:
        return
    family = f"{media_type.partition('/')[0]}/*"
    for part in accepted.split(",")[:100]:
        kind, *options = (each.strip().lower() for each in part.split(";"))
        refused = any(re.fullmatch(r"q\s*=\s*0(\.0*)?", each) for each in options)
        if kind in ("*/*", family, media_type, JSON) and not refused:
            return
    raise Problem(406, f"The answer is {media_type}.")


async def _read(request: Request) -> bytes:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != JSON:
        raise Problem(415, f"Send the body as {JSON}.")
    too_large = Problem(413, f"A body has at most {BODY_BYTES_MAX:,} bytes.")
    length = request.headers.get("content-length", "0")
    if length.isascii() and length.isdigit() and int(length[:18]) > BODY_BYTES_MAX:
        raise too_large
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > BODY_BYTES_MAX:
            raise too_large
        parts.append(part)
    return b"".join(parts)
