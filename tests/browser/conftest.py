"""The console of a filled project, served by a real server, and a real browser that looks at it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.browser.filled import Filled
from tests.services import free_port

START_SECONDS_MAX = 20.0
TIMEOUT_MS = 15_000


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Filled:
    return Filled(tmp_path_factory.mktemp("browser") / "project", people=False)


@pytest.fixture(scope="session")
def site(chromium_path: str, filled: Filled) -> Iterator[str]:
    """Where the console is."""
    with _served(filled) as address:
        yield address


@pytest.fixture(scope="session")
def guarded_site(chromium_path: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where it is that people have to sign in."""
    with _served(Filled(tmp_path_factory.mktemp("guarded") / "project", people=True)) as address:
        yield address


@contextmanager
def _served(filled: Filled) -> Iterator[str]:
    from kfm.web.console.pages import console_app

    with served(console_app(filled.context)) as address:
        yield address


@contextmanager
def served(app: Any) -> Iterator[str]:
    """Where the console of an application is."""
    import uvicorn

    port = free_port()
    config = uvicorn.Config(app, host="127.0.0.1", port=port, log_level="warning")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    ends = time.monotonic() + START_SECONDS_MAX
    while not server.started:
        assert time.monotonic() < ends, "the server does not start"
        time.sleep(0.01)
    yield f"http://127.0.0.1:{port}/console/"
    server.should_exit = True
    thread.join(START_SECONDS_MAX)


@pytest.fixture(scope="package")
def browser(chromium_path: str) -> Iterator[Any]:
    """One for all of these tests, closed with them: as long as it is open, this thread has a running event
    loop."""
    from playwright.sync_api import sync_playwright

    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=chromium_path, args=sandbox)
        yield started
        started.close()


class Watched:
    """A tab of the browser, and all that was odd about what it met."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.asked: list[str] = []
        self.odd: list[str] = []
        page.on("request", lambda request: self.asked.append(request.url))
        page.on("console", lambda said: self.odd.append(f"console: {said.text}") if _is_ours(said) else None)
        page.on("pageerror", lambda error: self.odd.append(f"error: {error}"))
        page.on("dialog", self._dialog)

    def _dialog(self, dialog: Any) -> None:
        self.odd.append(f"dialog: {dialog.message}")
        dialog.dismiss()


def _is_ours(said: Any) -> bool:
    """That a page is a 404 on purpose is no trouble of the page."""
    return not said.text.startswith("Failed to load resource: the server responded with a status of 4")


@pytest.fixture
def tab(browser: Any) -> Iterator[Callable[..., Watched]]:
    """A new tab of a browser as it is asked for."""
    contexts = []

    def opened(**options: Any) -> Watched:
        context = browser.new_context(**options)
        context.set_default_timeout(TIMEOUT_MS)
        contexts.append(context)
        return Watched(context.new_page())

    yield opened
    for context in contexts:
        context.close()
