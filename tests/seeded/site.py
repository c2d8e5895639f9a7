"""The world as a service has it, console and API, asked in this process by its people."""

from __future__ import annotations

import asyncio
import html
import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from starlette.applications import Starlette
from starlette.routing import Mount

from kfm.config.loader import load
from kfm.web.api.routes import api_routes
from kfm.web.console.pages import console_routes
from kfm.web.request_context import WebContext
from tests.world.keeping import looking_at
from tests.world.story import TOKENS

CONSOLE, API = "/console/", "/api/v1"
LINK = re.compile(r'<a\b[^>]*?\bhref="([^"]*)"[^>]*>(.*?)</a>', re.DOTALL)
COMMAND = re.compile(r'<code class="command">(.*?)</code>', re.DOTALL)
TAG = re.compile(r"<[^>]+>")
# A thread with a browser has an event loop that runs already.
_ASIDE = ThreadPoolExecutor(1)


class Site:
    """One configuration with its ledger; the token identifies the caller."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.loaded = load(str(folder / "kfm.yml"))
        self.context = WebContext(self.loaded)
        self.app = Starlette(
            routes=[
                Mount("/api/v1", routes=api_routes(self.context)),
                Mount("/console", routes=console_routes(self.context)),
            ]
        )
        self._visitors: dict[str, Visitor] = {}

    def as_person(self, who: str) -> Visitor:
        """Signed in, once."""
        if who not in self._visitors:
            self._visitors[who] = Visitor(self, TOKENS[who])
        return self._visitors[who]


class Visitor:
    """A person with a session of the console, and a token for the API."""

    def __init__(self, site: Site, token: str) -> None:
        self._site = site
        self._bearer = {"Authorization": f"Bearer {token}"}
        self.cookies = httpx.Cookies()
        self.ask("/console/sign-in", "POST", data={"token": token})

    def ask(self, path: str, method: str = "GET", **options: Any) -> httpx.Response:
        headers = {**(self._bearer if path.startswith(API) else {}), **options.pop("headers", {})}

        async def asked() -> httpx.Response:
            transport = httpx.ASGITransport(self._site.app)
            async with httpx.AsyncClient(
                transport=transport, base_url="http://127.0.0.1", cookies=self.cookies
            ) as client:
                answer = await client.request(method, path, headers=headers, **options)
                self.cookies = client.cookies
                return answer

        return _ASIDE.submit(asyncio.run, asked()).result()

    def page(self, path: str = "", status: int = 200) -> str:
        """The text of a page of the console."""
        answer = self.ask(path if path.startswith("/") else f"{CONSOLE}{path}")
        assert answer.status_code == status, (path, answer.status_code, plain(answer.text)[:400])
        return answer.text

    def api(self, path: str, status: int = 200) -> Any:
        answer = self.ask(f"{API}{path}")
        assert answer.status_code == status, (path, answer.status_code, answer.text[:400])
        return answer.json()

    def post(self, action: str, form: Mapping[str, str], **headers: str) -> httpx.Response:
        """A form of the console is sent."""
        return self.ask(f"{CONSOLE}do/{action}", "POST", data=dict(form), headers=headers)


def plain(page: str) -> str:
    """What a page says, without its markup."""
    return " ".join(html.unescape(TAG.sub(" ", page)).split())


def links(page: str) -> list[tuple[str, str]]:
    """Addresses and texts of the links of a page, in order."""
    return [(html.unescape(href), plain(text)) for href, text in LINK.findall(page)]


def commands(page: str) -> list[str]:
    """Commands that a page prints, to be pasted."""
    return [plain(text) for text in COMMAND.findall(page)]


@contextmanager
def site_of(folder: Path) -> Iterator[Site]:
    """Everything in this process is at the world's last moment meanwhile."""
    with looking_at(folder):
        yield Site(folder)
