"""Access of readers to what has no page: metrics and the catalogue, in `kfm serve` and by themselves."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, request_response
from starlette.types import ASGIApp, Receive, Scope, Send

from kfm.model.errors import KfmError
from kfm.model.roles import Identity, decide
from kfm.telemetry.exposition import CONTENT_TYPE
from kfm.web.api.access import BEARER, authenticate
from kfm.web.listener import bearer_token
from kfm.web.metrics import Scrape
from kfm.web.problems import RETRY_AFTER, answer, log_error, on_error, on_http, problem
from kfm.web.server import Named

if TYPE_CHECKING:
    from kfm.model.roles import KnownPerson

READING = ["GET", "HEAD"]
METRICS = "/metrics"
People = Callable[[], Sequence["KnownPerson"]]  # as they are declared at that moment


class ForReaders:
    """Access control: the role read where people are declared, else the one token, if there is one."""

    def __init__(self, app: ASGIApp, people: People, token: str | None = None) -> None:
        self._app = app
        self._people = people
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not self._may_read(Request(scope)):
            await problem(401, "Send a token with the role read.", headers=BEARER)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _may_read(self, request: Request) -> bool:
        people = self._people()
        if people:
            identity = authenticate(request, people)
            return isinstance(identity, Identity) and decide(identity, "read", remote=True).allowed
        if self._token is None:
            return True
        shown = bearer_token(request.headers.getlist("authorization")) or ""
        return hmac.compare_digest(shown.encode("utf-8", "replace"), self._token.encode("utf-8", "replace"))


async def live(_request: Request) -> Response:
    return answer({"status": "ok"})


class MetricsEndpoint:
    """`GET /metrics`. An error is told by its code: the next scrape may find it mended."""

    def __init__(self, scrape: Scrape) -> None:
        self._scrape = scrape

    async def __call__(self, _request: Request) -> Response:
        try:
            text = await run_in_threadpool(self._scrape.text)
        except Exception as error:  # noqa: BLE001 - its details go to the log only
            log_error(error)
            code = error.code if isinstance(error, KfmError) else KfmError.code
            return problem(503, "The metrics can't be read at present.", code, RETRY_AFTER)
        return Response(text, headers={"Cache-Control": "no-store"}, media_type=CONTENT_TYPE)


def metrics_route(scrape: Scrape, people: People, token: str | None = None) -> Route:
    endpoint = ForReaders(request_response(MetricsEndpoint(scrape)), people, token)
    return Route(METRICS, endpoint, methods=READING)


def metrics_app(
    scrape: Scrape,
    people: People,
    token: str | None,
    hosts: Sequence[str] | None,
) -> Starlette:
    """Metrics and a health check alone. `hosts`: names that are answered to; None: any, with a token."""
    handlers: Any = {HTTPException: on_http, KfmError: on_error, Exception: on_error}
    return Starlette(
        routes=[Route("/livez", live, methods=READING), metrics_route(scrape, people, token)],
        middleware=[Middleware(Named, hosts=tuple(hosts))] if hosts is not None else [],
        exception_handlers=handlers,
    )
