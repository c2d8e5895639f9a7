"""Routes of the console: a table of pages, sessions, and errors as pages."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import parse_qs, quote

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route

from kfm import __version__
from kfm.model.errors import BackendUnavailable, UsageError
from kfm.model.roles import Identity, decide, identify
from kfm.web.console import page_templates, sign_in
from kfm.web.console.actions import PAGE
from kfm.web.console.state_words import Word
from kfm.web.console.static_files import CHART_SCRIPTS, SCRIPTS, STYLE, static_files
from kfm.web.console.views import (
    action,
    activity,
    audit,
    board,
    datasets,
    feeds,
    home,
    incidents,
    messages,
    pipeline_runs,
    planning,
    plans,
    quarantine,
    requests,
    run_log,
    runs,
    schedules,
    search,
    units,
)
from kfm.web.console.visible_text import visible
from kfm.web.console.visit import (
    REFRESH,
    REFRESH_SECONDS,
    Link,
    NotForYou,
    NotHere,
    Paging,
    TypedFilter,
    Visit,
    read_query,
)
from kfm.web.problems import TITLES, Problem, log_error
from kfm.web.request_context import WebContext
from kfm.web.visibility import Visibility, may_know

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; connect-src 'self'; style-src 'self'; "
    "img-src 'self' data:; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # Other sites learn nothing; our own forms say where they are from, which `_is_foreign` looks at.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
HTML = "text/html; charset=utf-8"
YEAR_SECONDS = 31_536_000
FIELDS_MAX = 100


class ConsolePage(NamedTuple):
    """A page: its view makes a record, its template renders it."""

    path: str
    view: Callable[[Visit], Any]
    template: str
    title: str
    filters: tuple[str, ...] = ()
    section: str = ""  # the tab that it belongs to
    live_seconds: int = 0  # how often a script looks for news; 0: what it shows does not change by itself
    charts: tuple[str, ...] = ()  # its tabs with a chart, which are not live


class Place(NamedTuple):
    """A place of the navigation: the tabs in it, of which the first is where it leads."""

    name: str
    key: str  # after `g`
    tabs: tuple[str, ...]


PAGES = (
    ConsolePage("", home.view, "home.html", "Home", section="Home", live_seconds=10),
    ConsolePage(
        "activity", activity.view, "activity.html", "Activity", activity.FILTERS, "Activity", live_seconds=30
    ),
    ConsolePage(
        "board", board.view, "board.html", "Circuits and switches", board.FILTERS, "Home", live_seconds=10
    ),
    ConsolePage("search", search.view, "search.html", "Search", search.FILTERS),
    ConsolePage("runs", runs.view, "runs.html", "Runs", runs.FILTERS, "Runs"),
    ConsolePage("runs/{run_id}", runs.view_one, "run.html", "Run", runs.ONE_FILTERS, "Runs", live_seconds=10),
    ConsolePage("calls/{invocation_id}", runs.view_invocation, "invocation.html", "Invocation", (), "Runs"),
    ConsolePage("datasets", datasets.view, "datasets.html", "Datasets", datasets.FILTERS, "Datasets"),
    ConsolePage(
        "datasets/{dataset_id}",
        datasets.view_one,
        "dataset.html",
        "Dataset",
        datasets.ONE_FILTERS,
        "Datasets",
        charts=datasets.CHARTS,
    ),
    ConsolePage(
        "pipelines",
        pipeline_runs.view,
        "pipeline_runs.html",
        "Pipeline runs",
        pipeline_runs.FILTERS,
        "Pipeline runs",
    ),
    ConsolePage(
        "pipelines/{run_id}",
        pipeline_runs.view_one,
        "pipeline_run.html",
        "Pipeline run",
        pipeline_runs.ONE_FILTERS,
        "Pipeline runs",
    ),
    ConsolePage(
        "schedules", schedules.view, "schedules.html", "Schedules", schedules.FILTERS, "Schedules", 30
    ),
    ConsolePage(
        "schedules/{schedule_id}",
        schedules.view_one,
        "schedule.html",
        "Schedule",
        schedules.ONE_FILTERS,
        "Schedules",
        30,
    ),
    ConsolePage("requests", requests.view, "requests.html", "Requests", requests.FILTERS, "Requests"),
    ConsolePage("requests/{request_id}", requests.view_one, "request.html", "Request", (), "Requests"),
    ConsolePage("held", quarantine.view, "quarantine.html", "Quarantine", quarantine.FILTERS, "Quarantine"),
    ConsolePage(
        "held/{held_id}", quarantine.view_one, "quarantine_entry.html", "Quarantine entry", (), "Quarantine"
    ),
    ConsolePage("incidents/{incident_id}", incidents.view_one, "incident.html", "Incident", (), "Home"),
    ConsolePage("feeds", feeds.view, "feeds.html", "Feeds", feeds.FILTERS, "Feeds", live_seconds=30),
    ConsolePage(
        "feeds/{feed_id}", feeds.view_one, "feed.html", "Feed", feeds.ONE_FILTERS, "Feeds", live_seconds=30
    ),
    ConsolePage("messages", messages.view, "messages.html", "Messages", messages.FILTERS, "Messages"),
    ConsolePage("messages/{message}", messages.view_one, "message.html", "Message", (), "Messages"),
    ConsolePage("units", units.view, "units.html", "Units", units.FILTERS, "Units"),
    ConsolePage("units/{wal_id}", units.view_one, "unit.html", "Unit", (), "Units"),
    ConsolePage("plans", plans.view, "plans.html", "Plans", plans.FILTERS, "Plans", live_seconds=30),
    ConsolePage("plans/new", planning.view, "plan_new.html", "New plan", planning.FILTERS, "Plans"),
    ConsolePage(
        "plans/{plan_id}", plans.view_one, "plan.html", "Plan", plans.ONE_FILTERS, "Plans", live_seconds=10
    ),
    ConsolePage(f"{PAGE}/{{operation}}", action.view, "action.html", "Change", action.CHOSEN),
    ConsolePage("audit", audit.view, "audit.html", "Audit", audit.FILTERS, "Audit"),
    ConsolePage(
        "audit/verify",
        audit.view_verify,
        "audit_verify.html",
        "Audit log verified",
        audit.VERIFY_FILTERS,
        "Audit",
    ),
)
LOG_TEXT = ConsolePage("runs/{run_id}/log.txt", run_log.text, "", "Log", ("attempt",))
ACTION = next(page for page in PAGES if page.view is action.view)
LISTS = {page.section: page for page in reversed(PAGES) if page.section and "{" not in page.path}  # the first
PLANNING = next(page for page in PAGES if page.view is planning.view)
SENT = {ACTION.path: action.sent, PLANNING.path: planning.sent}
PLACES = (
    Place("Home", "h", ("Home",)),
    Place("Datasets", "d", ("Datasets",)),
    Place("Activity", "a", ("Activity", "Runs", "Requests", "Pipeline runs", "Quarantine")),
    Place("Feeds", "f", ("Feeds", "Units", "Messages")),
    Place("Schedules", "s", ("Schedules",)),
    Place("Plans", "p", ("Plans",)),
    Place("Audit", "u", ("Audit",)),
)


def console_routes(context: WebContext, *, hide: Callable[[str], str] = str) -> list[BaseRoute]:
    """Routes to be mounted. `hide` redacts known secrets in a text."""
    console = _Console(context, hide)
    return [
        *(Route(f"/{page.path}", partial(console.answer, page), methods=["GET"]) for page in PAGES),
        Route(f"/{PAGE}/{{operation}}", partial(console.act, ACTION), methods=["POST"]),
        Route(f"/{PLANNING.path}", partial(console.act, PLANNING), methods=["POST"]),
        Route("/runs/{run_id}/log.txt", console.log_text, methods=["GET"]),
        Route("/static/{name}", console.static, methods=["GET"]),
        Route("/sign-in", console.sign_in, methods=["GET", "POST"]),
        Route("/sign-out", console.sign_out, methods=["POST"]),
        Route(
            "/{rest:path}", console.not_found, methods=["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
        ),
    ]


def console_app(context: WebContext, **options: Any) -> Starlette:
    """The console alone, at /console."""
    return Starlette(routes=[Mount("/console", routes=console_routes(context, **options))])


class _Console:
    def __init__(self, context: WebContext, hide: Callable[[str], str]) -> None:
        self._context = context
        self._hide = hide
        self._templates = page_templates.environment()
        self._sessions = sign_in.Sessions(secrets.token_bytes(32), lambda: context.people)
        self._files = static_files()
        self._served = {each.name: each for each in self._files.values()}

    # --- pages -------------------------------------------------------------------------

    async def answer(self, page: ConsolePage, request: Request) -> Response:
        identity = self._identity(request)
        if identity is None:
            return self._to_sign_in(request)
        return await run_in_threadpool(self._page, page, request, identity)

    async def log_text(self, request: Request) -> Response:
        """The log of an attempt, to be kept."""
        return await self.answer(LOG_TEXT, request)

    async def act(self, page: ConsolePage, request: Request) -> Response:
        """A change that a form asks for."""
        identity = self._identity(request)
        if identity is None:
            return self._to_sign_in(request)
        if _is_foreign(request):
            return self._problem(request, 403, "The form was not sent from this page.", identity)
        body = await _body(request)
        if body is None:
            return self._problem(request, 413, "", identity)
        form = _form(body)
        return await run_in_threadpool(self._page, page, request, identity, form)

    def _page(
        self, page: ConsolePage, request: Request, identity: Identity, form: dict[str, str] | None = None
    ) -> Response:
        status = 200
        try:
            query = {} if form is not None else read_query(request.query_params.multi_items(), page.filters)
            with self._context.reader() as reader:
                visibility = Visibility(
                    self._context.settings,
                    reader,
                    everything=may_know(identity),
                    hide=lambda text: visible(self._hide(text)),
                    schedules=self._context.schedules,
                    verbatim=(Word, Paging, TypedFilter),
                )
                visit = Visit(
                    self._context,
                    reader,
                    visibility,
                    identity,
                    base_of(request),
                    page.path.format(
                        **{name: quote(value, safe="") for name, value in request.path_params.items()}
                    ),
                    self._context.now_ms(),
                    query,
                    request.path_params,
                )
                if form is None:
                    found = page.view(visit)
                else:
                    status, found = SENT[page.path](visit, form)
                if status == 303:
                    return RedirectResponse(str(found), 303, HEADERS)
                record = visibility.record(found) if page.template else found
            if not page.template:
                return Response(record, 200, HEADERS, "text/plain; charset=utf-8")
            response = self._html(request, page.template, visit=visit, page=page, view=record)
            response.status_code = status
        except UsageError as error:
            return self._problem(request, 400, error.detail or error.message, identity)
        except Problem as error:
            return self._problem(request, error.status, error.detail, identity)
        except NotHere as error:
            return self._problem(request, 404, str(error), identity)
        except NotForYou as error:
            return self._problem(request, 403, str(error), identity)
        except BackendUnavailable as error:
            log_error(error)
            detail = f"Try again later; `kfm explain {error.code}` has details."
            return self._problem(request, 503, detail, identity)
        except Exception as error:  # noqa: BLE001 - its details go to the log only
            log_error(error)
            return self._problem(request, 500, "It was logged. `kfm doctor` looks for causes.", identity)
        if REFRESH in query:
            response.headers["Refresh"] = query[REFRESH]
        return response

    async def not_found(self, request: Request) -> Response:
        identity = self._identity(request)
        if identity is None:
            return (
                self._to_sign_in(request)
                if request.method in ("GET", "HEAD")
                else self._problem(request, 405)
            )
        status = 404 if request.method in ("GET", "HEAD") else 405
        return self._problem(request, status, "", identity)

    async def static(self, request: Request) -> Response:
        found = self._served.get(request.path_params["name"])
        if found is None:
            return await self.not_found(request)
        headers = {
            "Cache-Control": f"public, max-age={YEAR_SECONDS}, immutable",
            "X-Content-Type-Options": "nosniff",
        }
        data, headers["Vary"] = found.data, "Accept-Encoding"
        if "gzip" in request.headers.get("accept-encoding", ""):
            data, headers["Content-Encoding"] = found.packed, "gzip"
        return Response(data, headers=headers, media_type=found.media_type)

    # --- sessions ----------------------------------------------------------------------

    def _identity(self, request: Request) -> Identity | None:
        """The identity of the session; without people all may read, as on the command line."""
        if not self._context.people:
            return identify((), sign_in.ACCOUNT)
        found = self._sessions.of(_cookie(request), self._context.now_ms())
        return found if found is not None and "read" in found.roles else None

    def _to_sign_in(self, request: Request) -> Response:
        """To the form, which leads on to the page of this request."""
        base = base_of(request)
        wanted = request.url.path.removeprefix(base).strip("/")
        query = f"?{request.url.query}" if request.url.query else ""
        after = f"?next={quote(wanted + query, safe='')}" if wanted else ""
        return RedirectResponse(f"{base}/sign-in{after}", 303, HEADERS)

    async def sign_in(self, request: Request) -> Response:
        base = base_of(request)
        wanted = _own_path(request.query_params.get("next", ""))
        if not self._context.people:
            return RedirectResponse(f"{base}/", 303, HEADERS)
        if request.method != "POST":
            return self._html(request, "sign_in.html", wanted=wanted, refused=None)
        if _is_foreign(request):
            return self._problem(request, 403, "The form was not sent from this page.")
        body = await _body(request)
        if body is None:
            return self._problem(request, 413)
        token = _form(body).get("token", "").strip()
        identity, cookie = self._sessions.begin(token, self._context.now_ms())
        if not decide(identity, "read", self._context.people, remote=True).allowed:
            refused = "The token is not known. `kfm whoami` with KFM_TOKEN set shows its identity."
            response = self._html(request, "sign_in.html", wanted=wanted, refused=refused)
            response.status_code = 403
            return response
        response = RedirectResponse(f"{base}/{wanted}", 303, HEADERS)
        _set_cookie(response, request, cookie, sign_in.SESSION_MS // 1000)
        return response

    async def sign_out(self, request: Request) -> Response:
        if _is_foreign(request):
            return self._problem(request, 403, "The form was not sent from this page.")
        self._sessions.end(_cookie(request), self._context.now_ms())
        response = RedirectResponse(
            f"{base_of(request)}/{'sign-in' if self._context.people else ''}", 303, HEADERS
        )
        _set_cookie(response, request, "", 0)
        return response

    # --- rendering ---------------------------------------------------------------------

    def _problem(
        self, request: Request, status: int, detail: str = "", identity: Identity | None = None
    ) -> Response:
        response = self._html(
            request,
            "problem.html",
            status=status,
            title=TITLES[status].capitalize(),
            detail=visible(detail),
            identity=identity,
        )
        response.status_code = status
        return response

    def _html(self, request: Request, template: str, **context: Any) -> Response:
        base, page = base_of(request), context.get("page")
        visit: Visit | None = context.get("visit")
        identity = visit.identity if visit else context.get("identity")
        now_ms = visit.now_ms if visit else self._context.now_ms()
        section = page.section if page else ""
        has_chart = page is not None and visit is not None and visit.query.get("tab") in page.charts
        everything = {
            "view": None,
            "base": base,
            "style": self._files[STYLE],
            "scripts": [self._files[name] for name in (CHART_SCRIPTS if has_chart else SCRIPTS)],
            "places": _places(base, section),
            "tabs": _tabs(base, section),
            "environment": visible(self._context.settings.environment),
            "version": __version__,
            "now_ms": now_ms,
            "signed_in": identity.subject if identity and self._context.people else None,
            "masked": identity is not None and not may_know(identity),
            "again": _again(visit) if visit else (),
            "refreshing": visit.query.get(REFRESH) if visit else None,
            "live_seconds": getattr(context.get("view"), "live_seconds", page.live_seconds if page else 0),
            "may_navigate": identity is not None,
            **context,
        }
        return Response(page_templates.render(self._templates, template, **everything), 200, HEADERS, HTML)


def _places(base: str, section: str) -> list[tuple[Place, str, bool]]:
    """The places of the navigation, where each leads, and whether this page is in it."""
    return [(each, f"{base}/{LISTS[each.tabs[0]].path}", section in each.tabs) for each in PLACES]


def _tabs(base: str, section: str) -> list[tuple[str, str, bool]]:
    """The tabs of the place that this page is in, if there are several."""
    found = next((each.tabs for each in PLACES if section in each.tabs), ())
    return [(each, f"{base}/{LISTS[each].path}", each == section) for each in found] if len(found) > 1 else []


def _again(visit: Visit) -> tuple[Link, ...]:
    """Links that refresh this page, once or periodically."""
    now = visit.query.get(REFRESH)
    links = [
        Link(text=f"every {each} s", href=visit.with_query(refresh=each))
        for each in REFRESH_SECONDS
        if str(each) != now
    ]
    stop = [Link(text="stop", href=visit.with_query(refresh=None))] if now else []
    return (Link(text="now", href=visit.with_query()), *links, *stop)


def base_of(request: Request) -> str:
    """Where the console is mounted."""
    return str(request.scope.get("root_path", "")).rstrip("/")


def _own_path(text: str) -> str:
    """The path of a page of the console; empty for anything else (open redirects)."""
    path = text.partition("?")[0]
    fine = (
        len(text) <= 1000
        and text.isascii()
        and text.isprintable()
        and not any(char in text for char in "\\:\"'<> ")
    )
    return text if fine and not path.startswith("/") and ".." not in path and "//" not in path else ""


def _is_foreign(request: Request) -> bool:
    """Was the form sent by another site (CSRF)? By Sec-Fetch-Site and Origin, of which a browser sends one
    with every form. Neither is sent by programs, which have no cookie that they were not given."""
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site is not None and site != "same-origin":
        return True
    return origin is not None and origin.partition("://")[2] != request.headers.get("host", "")


async def _body(request: Request) -> bytes | None:
    """None: it is too long."""
    found = b""
    async for part in request.stream():
        found += part
        if len(found) > sign_in.FORM_BYTES_MAX:
            return None
    return found


def _form(body: bytes) -> dict[str, str]:
    """The fields of a form; of a name that is given twice, the last."""
    fields = parse_qs(body.decode("utf-8", "replace"), max_num_fields=FIELDS_MAX)
    return {name: values[-1] for name, values in fields.items()}


def _is_secure(request: Request) -> bool:
    """A proxy's header is enough to be stricter."""
    return "https" in (request.url.scheme, request.headers.get("x-forwarded-proto", ""))


def _cookie(request: Request) -> str | None:
    return request.cookies.get(sign_in.SECURE_COOKIE if _is_secure(request) else sign_in.COOKIE)


def _set_cookie(response: Response, request: Request, value: str, seconds: int) -> None:
    """Over TLS by a name that browsers let no other host and no plain connection set."""
    secure = _is_secure(request)
    response.set_cookie(
        sign_in.SECURE_COOKIE if secure else sign_in.COOKIE,
        value,
        max_age=seconds,
        path="/" if secure else base_of(request) or "/",
        httponly=True,
        samesite="strict",
        secure=secure,
    )
