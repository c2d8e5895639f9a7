"""The service's web: webhooks, the API, the console, the catalogue and metrics under one address."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route, request_response
from starlette.types import ASGIApp, Receive, Scope, Send

from kfm.model.errors import KfmError
from kfm.model.roles import KnownPerson, decide, identify
from kfm.web.problems import answer, on_error, on_http, problem
from kfm.web.server import Named

Lifespan = Callable[[Any], AbstractAsyncContextManager[None]]
_READING = ["GET", "HEAD"]


def service_app(
    *,
    hosts: Sequence[str],
    people: Sequence[KnownPerson],
    ready: Callable[[], None],
    hooks: Sequence[BaseRoute] = (),
    api: Sequence[BaseRoute] = (),
    console: Sequence[BaseRoute] = (),
    stac: ASGIApp | None = None,
    metrics: Callable[[], tuple[str, str]] | None = None,
    lifespan: Lifespan | None = None,
    prefix: str = "",
) -> Starlette:
    """All of it. `ready` raises where the ledger can't be used; `metrics` gives a text and its type."""
    health: list[BaseRoute] = [
        Route("/livez", _live, methods=_READING),
        Route("/readyz", _ready(ready), methods=_READING),
    ]
    routes: list[BaseRoute] = [
        Route("/", _home, methods=_READING),
        *health,
        *hooks,
        Mount("/api/v1", routes=list(api)),
        Mount("/console", routes=list(console)),
    ]
    if stac is not None:
        routes.append(Mount("/stac", app=_ForReaders(stac, people)))
    if metrics is not None:
        scraped = _ForReaders(request_response(_metrics(metrics)), people)
        routes.append(Route("/metrics", scraped, methods=_READING))
    if prefix:
        routes = [*health, Mount(prefix, routes=routes)]  # whoever looks after the process knows no prefix
    handlers: Any = {HTTPException: on_http, KfmError: on_error, Exception: on_error}
    return Starlette(
        routes=routes,
        middleware=[Middleware(Named, hosts=tuple(hosts))],
        exception_handlers=handlers,
        lifespan=lifespan,
    )


async def _home(request: Request) -> Response:
    # Without a name: whoever asked knows under which one.
    return RedirectResponse(f"{request.scope.get('root_path', '')}/console/", 307)


async def _live(_request: Request) -> Response:
    return answer({"status": "ok"}, "application/json")


def _ready(ready: Callable[[], None]) -> Callable[[Request], Any]:
    async def check(_request: Request) -> Response:
        try:
            await run_in_threadpool(ready)
        except Exception as error:  # noqa: BLE001 - whatever it is, nobody should be sent here now
            code = error.code if isinstance(error, KfmError) else None
            return problem(503, "The ledger can't be used at present.", code, {"Retry-After": "5"})
        return answer({"status": "ready"}, "application/json")

    return check


def _metrics(metrics: Callable[[], tuple[str, str]]) -> Callable[[Request], Any]:
    async def scraped(_request: Request) -> Response:
        text, media_type = await run_in_threadpool(metrics)
        return Response(text, headers={"Cache-Control": "no-store"}, media_type=media_type)

    return scraped


class _ForReaders:
    """Where people are declared, only who may read passes; otherwise it is this machine's own."""

    def __init__(self, app: ASGIApp, people: Sequence[KnownPerson]) -> None:
        self._app = app
        self._people = people

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and self._people and not self._may(scope):
            refused = problem(
                401, "Show a token that may read.", None, {"WWW-Authenticate": 'Bearer realm="kfm"'}
            )
            await refused(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _may(self, scope: Scope) -> bool:
        said = [value for name, value in scope["headers"] if name == b"authorization"]
        scheme, _, token = said[0].decode("latin-1").partition(" ") if len(said) == 1 else ("", "", "")
        if scheme.lower() != "bearer":
            return False
        identity = identify(self._people, "http", token.strip())
        return decide(identity, "read", self._people, remote=True).allowed
