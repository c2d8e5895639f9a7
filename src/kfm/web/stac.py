"""A read-only STAC API over the catalogue: core, collections, features and item search."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from kfm.db.catalogue import CatalogueReader
from kfm.model.catalogue import CollectionFigures, Search
from kfm.model.errors import KfmError
from kfm.nodd.catalogue import stac_items
from kfm.nodd.catalogue.search import find_page
from kfm.nodd.grammar import Dataset
from kfm.web.listener import LOOPBACK
from kfm.web.openapi import OPENAPI, stac_openapi
from kfm.web.problems import Problem, answer, on_error, on_http, problem
from kfm.web.query_params import BODY_BYTES_MAX, ITEMS_FIELDS, SEARCH_FIELDS, Query, from_body, from_text
from kfm.web.server import Named

CONFORMS_TO = (
    "https://api.stacspec.org/v1.0.0/core",
    "https://api.stacspec.org/v1.0.0/collections",
    "https://api.stacspec.org/v1.0.0/ogcapi-features",
    "https://api.stacspec.org/v1.0.0/item-search",
    "http://www.opengis.net/spec/ogcapi-features-1/1.0/conf/core",
    "http://www.opengis.net/spec/ogcapi-features-1/1.0/conf/oas30",
    "http://www.opengis.net/spec/ogcapi-features-1/1.0/conf/geojson",
)
Open = Callable[[], AbstractContextManager[CatalogueReader]]
Gone = Callable[[str, str | None], Problem | None]  # by collection and item: the tombstone, if there is one
FIGURES_SECONDS = 10.0
_READING = ["GET", "HEAD"]
Result = TypeVar("Result")


def stac_app(
    open_catalogue: Open,
    datasets: Mapping[str, Dataset],
    *,
    hosts: Sequence[str] | None = LOOPBACK,
    allow_origins: Sequence[str] = (),
    title: str = "kfm catalogue",
    gone: Gone = lambda _collection_id, _item_id: None,
) -> Starlette:
    """The ASGI application. A reader is opened for each request, in the thread that uses it.

    `hosts` is the allow-list of the Host header, without ports, against DNS rebinding. None: any.
    """
    api = _Api(open_catalogue, datasets, title, gone)
    routes = [
        Route("/", api.landing, methods=_READING),
        Route("/conformance", api.conformance, methods=_READING),
        Route("/api", api.definition, methods=_READING),
        Route("/livez", api.live, methods=_READING),
        Route("/readyz", api.ready, methods=_READING),
        Route("/collections", api.collections, methods=_READING),
        Route("/collections/{collection_id}", api.collection, methods=_READING),
        Route("/collections/{collection_id}/items", api.items, methods=_READING),
        Route("/collections/{collection_id}/items/{item_id}", api.item, methods=_READING),
        Route("/search", api.search, methods=[*_READING, "POST"]),
    ]
    middleware = [Middleware(Named, hosts=tuple(hosts))] if hosts is not None else []
    if allow_origins:
        middleware.append(
            Middleware(
                CORSMiddleware,
                allow_origins=list(allow_origins),
                allow_methods=["GET", "HEAD", "POST"],
                allow_headers=["Content-Type"],
            )
        )
    handlers: Any = {HTTPException: on_http, KfmError: on_error, Exception: on_error}
    return Starlette(routes=routes, middleware=middleware, exception_handlers=handlers)


class _Api:
    def __init__(self, open_catalogue: Open, datasets: Mapping[str, Dataset], title: str, gone: Gone) -> None:
        self._gone = gone
        self._open = open_catalogue
        self._datasets = datasets
        self._title = title
        self._figures: list[CollectionFigures] = []
        self._figures_until = -1.0

    async def _collections(self) -> list[CollectionFigures]:
        """All collections, cached: their figures are computed here, where no worker has done so yet."""
        now = asyncio.get_running_loop().time()
        if now >= self._figures_until:
            self._figures = await self._ask(lambda catalogue: catalogue.collections())
            self._figures_until = now + FIGURES_SECONDS
        return self._figures

    async def _ask(self, work: Callable[[CatalogueReader], Result]) -> Result:
        """In a thread, with a reader of its own: the store does not block the event loop."""

        def asked() -> Result:
            try:
                with self._open() as catalogue:
                    return work(catalogue)
            except (HTTPException, KfmError):
                raise
            except Exception as error:  # a defect: answered as an internal error
                raise KfmError(f"{type(error).__name__}: {error}") from error

        return await run_in_threadpool(asked)

    # --- catalogue and collections -----------------------------------------------------

    async def landing(self, request: Request) -> Response:
        _no_parameters(request)
        base = base_of(request)
        found = await self._collections()
        links = [
            stac_items.link("self", f"{base}/"),
            stac_items.link("root", f"{base}/"),
            stac_items.link("data", f"{base}/collections"),
            stac_items.link("conformance", f"{base}/conformance"),
            stac_items.link("search", f"{base}/search", stac_items.GEOJSON, method="GET"),
            stac_items.link("search", f"{base}/search", stac_items.GEOJSON, method="POST"),
            stac_items.link("service-desc", f"{base}/api", OPENAPI),
            *(
                stac_items.link(
                    "child",
                    f"{base}/collections/{quote(one.collection_id)}",
                    title=stac_items.title_of(self._datasets.get(one.collection_id), one),
                )
                for one in found
            ),
        ]
        return answer(
            stac_items.render_catalog(links, title=self._title, conforms_to=CONFORMS_TO), stac_items.JSON
        )

    async def conformance(self, request: Request) -> Response:
        _no_parameters(request)
        return answer({"conformsTo": CONFORMS_TO}, stac_items.JSON)

    async def definition(self, request: Request) -> Response:
        _no_parameters(request)
        return answer(stac_openapi(self._title), OPENAPI)

    async def live(self, _request: Request) -> Response:
        return answer({"status": "ok"}, stac_items.JSON)

    async def ready(self, _request: Request) -> Response:
        await self._ask(lambda catalogue: catalogue.find_items(Search(limit=1)))
        return answer({"status": "ok"}, stac_items.JSON)

    async def collections(self, request: Request) -> Response:
        _no_parameters(request)
        base = base_of(request)
        found = await self._collections()
        document = {
            "collections": [self._rendered(one, base) for one in found],
            "links": [stac_items.link("self", f"{base}/collections"), stac_items.link("root", f"{base}/")],
        }
        return answer(document, stac_items.JSON)

    async def collection(self, request: Request) -> Response:
        _no_parameters(request)
        for figures in await self._collections():
            if figures.collection_id == request.path_params["collection_id"]:
                return answer(self._rendered(figures, base_of(request)), stac_items.JSON)
        return await run_in_threadpool(self._absent, request.path_params["collection_id"])

    def _absent(self, collection_id: str, item_id: str | None = None) -> Response:
        """410 for what was withdrawn, with its tombstone; 404 for what never was."""
        found = self._gone(collection_id, item_id)
        if found is None:
            raise HTTPException(404)
        return problem(found.status, found.detail, found.code, **found.members)

    def _rendered(self, figures: CollectionFigures, base: str) -> dict[str, Any]:
        return stac_items.render_collection(self._datasets.get(figures.collection_id), figures, base)

    # --- items -------------------------------------------------------------------------

    async def item(self, request: Request) -> Response:
        _no_parameters(request)
        where, base = request.path_params, base_of(request)

        def work(catalogue: CatalogueReader) -> Response:
            found = catalogue.item(where["collection_id"], where["item_id"])
            if found is None:
                return self._absent(where["collection_id"], where["item_id"])
            return answer(stac_items.render_item(found, base), stac_items.GEOJSON)

        return await self._ask(work)

    async def items(self, request: Request) -> Response:
        collection_id, base = request.path_params["collection_id"], base_of(request)
        query = from_text(request.query_params.multi_items(), ITEMS_FIELDS, collection_id)
        address = f"{base}/collections/{quote(collection_id)}/items"

        def work(catalogue: CatalogueReader) -> Response:
            if not catalogue.find_items(Search(collections=(collection_id,), limit=1)):
                return self._absent(collection_id)
            return _page(catalogue, query, base, address)

        return await self._ask(work)

    async def search(self, request: Request) -> Response:
        base = base_of(request)
        if request.method == "POST":
            _no_parameters(request)
            query = from_body(request.headers.get("content-type", ""), await _body(request))
        else:
            query = from_text(request.query_params.multi_items(), SEARCH_FIELDS)
        return await self._ask(lambda catalogue: _page(catalogue, query, base, f"{base}/search"))


def _page(catalogue: CatalogueReader, query: Query, base: str, address: str) -> Response:
    """One page of items, with a link to the next one by the same method."""
    found, token = find_page(catalogue, query.search, query.shape)
    links = [stac_items.link("root", f"{base}/")]
    if query.body is None:
        text = urlencode(query.pairs)
        links.append(stac_items.link("self", f"{address}?{text}" if text else address, stac_items.GEOJSON))
    if token is not None and query.body is None:
        text = urlencode([*(pair for pair in query.pairs if pair[0] != "token"), ("token", token)])
        links.append(stac_items.link("next", f"{address}?{text}", stac_items.GEOJSON, method="GET"))
    elif token is not None:
        body = {**(query.body or {}), "token": token}
        links.append(
            stac_items.link("next", address, stac_items.GEOJSON, method="POST", body=body, merge=False)
        )
    document = {
        "type": "FeatureCollection",
        "features": [stac_items.render_item(one, base) for one in found],
        "links": links,
        "numberReturned": len(found),
    }
    return answer(document, stac_items.GEOJSON)


def base_of(request: Request) -> str:
    """The address of the API as the client used it, without a slash at its end."""
    # Not `base_url`: that of a mounted application lacks the path of its mount.
    path = request.scope.get("root_path", "")
    return str(request.url.replace(path=path, query="", fragment="")).rstrip("/")


def _no_parameters(request: Request) -> None:
    if request.query_params:
        raise HTTPException(400, "No parameters are allowed here.")


async def _body(request: Request) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > BODY_BYTES_MAX:
            raise HTTPException(413, f"A body has at most {BODY_BYTES_MAX:,} bytes.")
        parts.append(part)
    return b"".join(parts)
