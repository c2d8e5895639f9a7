"""The web application of `kfm serve`: webhooks, API, console, STAC catalogue, metrics and health checks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route

from kfm.app import open_app
from kfm.model.errors import KfmError
from kfm.model.redaction import redact
from kfm.nodd.dataset_registry import load_registry
from kfm.service.dispatcher import run_request_of
from kfm.web.accept_queue import AcceptQueue
from kfm.web.api.routes import api_routes
from kfm.web.console.pages import console_routes
from kfm.web.gone import gone_for_readers
from kfm.web.listener import LOOPBACK
from kfm.web.metrics import Scrape
from kfm.web.previews import preview_document
from kfm.web.problems import Problem, answer, on_error, on_http, problem
from kfm.web.readers import METRICS, READING, ForReaders, live, metrics_route
from kfm.web.request_context import WebContext
from kfm.web.server import HEALTH, Named
from kfm.web.stac import stac_app
from kfm.web.webhooks import Failures, Webhooks, hook_routes

if TYPE_CHECKING:
    from kfm.db.catalogue import CatalogueReader
    from kfm.model.requests import UpdateRequest
    from kfm.runs.kernel import RunReport


class WebApplication:
    """The routes of one service, and the queue through which requests are accepted."""

    def __init__(self, context: WebContext) -> None:
        self._context = context
        self._accept_queue = AcceptQueue(context.requests, committed=context.wake)
        self._scrape = Scrape(partial(open_app, context.loaded, read_only=True, what="kfm serve"))

    def asgi(self, hosts: Sequence[str], prefix: str = "") -> Starlette:
        """All routes, below `prefix`, for requests that name one of `hosts` or this machine."""
        health: list[BaseRoute] = [
            Route("/livez", live, methods=READING),
            Route("/readyz", self._ready, methods=READING),
        ]
        routes: list[BaseRoute] = [
            Route("/", _home, methods=READING),
            *health,
            *hook_routes(self._webhooks()),
            Mount("/api/v1", routes=api_routes(self._context)),
            Mount("/console", routes=console_routes(self._context, hide=self._redacted)),
            Mount("/stac", app=ForReaders(self._stac(), lambda: self._context.people)),
            metrics_route(self._scrape, lambda: self._context.people),
        ]
        if prefix:
            routes = [*health, Mount(prefix, routes=routes)]  # health checks do not pass the proxy
        handlers: Any = {HTTPException: on_http, KfmError: on_error, Exception: on_error}
        return Starlette(
            routes=routes,
            middleware=[
                Middleware(
                    Named,
                    hosts=(*LOOPBACK, *(host.lower() for host in hosts)),
                    is_open=partial(self._is_open, prefix),
                )
            ],
            exception_handlers=handlers,
            lifespan=self._lifespan,
        )

    @asynccontextmanager
    async def _lifespan(self, _app: Any) -> AsyncIterator[None]:
        self._accept_queue.start()
        try:
            yield
        finally:
            await run_in_threadpool(self._accept_queue.close)
            await run_in_threadpool(partial(self._context.enter_refusals, closing=True))

    def _is_open(self, prefix: str, path: str) -> bool:
        """Is a path answered under any host name? Metrics only where a token is asked for."""
        inside = path.removeprefix(prefix)
        return inside in HEALTH or (inside == METRICS and bool(self._context.people))

    async def _ready(self, _request: Request) -> Response:
        if self._context.is_stopping():  # what is sent here now may find nothing that answers
            return problem(503, "The service is stopping.", headers={"Connection": "close"})
        try:
            await run_in_threadpool(self._read_ledger)
        except Exception as error:  # noqa: BLE001 - whatever the cause, no work must be sent here now
            code = error.code if isinstance(error, KfmError) else None
            return problem(503, "The ledger can't be used at present.", code, {"Retry-After": "5"})
        return answer({"status": "ready"})

    def _redacted(self, text: str) -> str:
        """A text of the records, which have passed the filter of free text already."""
        return redact(self._context.loaded.discretion.hide(text))

    def _read_ledger(self) -> None:
        with self._context.reader() as ledger:
            ledger.request_reader().next_due_ms()

    def _webhooks(self) -> Webhooks:
        context, loaded = self._context, self._context.loaded
        return Webhooks(
            lambda: context.live.webhooks,
            now_ms=context.now_ms,
            accept=self._accept_queue.accept,
            preview=self._preview,
            failures=Failures(context.folder, context.now_ms),
            decoy=token_urlsafe(32),
            redact=loaded.discretion.said,
            body_max=loaded.settings.serve.body_bytes_max,
        )

    async def _preview(self, request: UpdateRequest) -> dict[str, Any]:
        loaded = self._context.loaded

        def previewed() -> RunReport:
            with open_app(loaded, read_only=True, what="kfm serve") as app:
                return app.preview(run_request_of(request))

        report = await run_in_threadpool(previewed)
        return preview_document(report, loaded.settings.dataset(request.dataset_id))

    def _stac(self) -> Starlette:
        @contextmanager
        def catalogue() -> Iterator[CatalogueReader]:
            with self._context.reader() as ledger:
                yield ledger.catalogue()

        def gone(collection_id: str, item_id: str | None) -> Problem | None:
            with open_app(self._context.loaded, read_only=True, what="kfm serve") as app:
                return gone_for_readers(app, self._context.schedules, collection_id, item_id)

        datasets = {dataset.name: dataset for dataset in load_registry().datasets}
        return stac_app(catalogue, datasets, hosts=None, gone=gone)


async def _home(request: Request) -> Response:
    # A path, not an address: behind a proxy the name of this server is another one.
    return RedirectResponse(f"{request.scope.get('root_path', '')}/console/", 307)
