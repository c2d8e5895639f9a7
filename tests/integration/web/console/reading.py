"""Pages as a browser without a screen reads them."""

from __future__ import annotations

import asyncio
from html.parser import HTMLParser
from typing import Any

import httpx

from kfm.web.console.pages import console_app

BASE = "http://127.0.0.1/console/"
VOID = {"meta", "link", "br", "input", "img", "hr"}


class Parsed(HTMLParser):
    """All tags with their attributes, all text, and whether what is opened is closed."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.said: list[str] = []
        self.odd: list[str] = []
        self.coded: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.odd.append(tag)

    def handle_data(self, data: str) -> None:
        self.said.append(data)
        if self.open[-1:] == ["code"]:
            self.coded.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.said).split())

    def commands(self) -> list[str]:
        """What is written as code."""
        return [" ".join(text.split()) for text in self.coded]

    def links(self) -> list[str]:
        return [str(attrs["href"]) for tag, attrs in self.tags if tag == "a"]


class Reader:
    """Asks the console of one context, and keeps its cookies."""

    def __init__(self, context: Any, **options: Any) -> None:
        self._app = console_app(context, **options)
        self.cookies = httpx.Cookies()

    def ask(self, path: str, method: str = "GET", **options: Any) -> httpx.Response:
        async def asked() -> httpx.Response:
            transport = httpx.ASGITransport(self._app)
            async with httpx.AsyncClient(transport=transport, base_url=BASE, cookies=self.cookies) as client:
                answer = await client.request(method, path, **options)
                self.cookies = client.cookies
                return answer

        return asyncio.run(asked())

    def page(self, path: str, status: int = 200) -> Parsed:
        answer = self.ask(path)
        assert answer.status_code == status, (path, answer.status_code, answer.text[:500])
        return Parsed(answer.text)
