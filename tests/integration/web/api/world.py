"""A project with people, a past and a service's API over it, called as a client calls it."""

from __future__ import annotations

import asyncio
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import msgspec

from kfm.app import App
from kfm.config.loader import Loaded, load
from kfm.model import breaker as breakers
from kfm.runs.kernel import RunRequest
from kfm.web.api.routes import api_app
from kfm.web.request_context import WebContext

BASE = "http://127.0.0.1/api/v1"
TOKENS = {who: f"kfm-{who}-0123456789abcdef0123456789abcdef" for who in ("ann", "bob", "cy")}
SECRET = "hunter2-and-some-more-of-it"
CONFIG = """\
version: 1
environment: test
datasets:
  - id: rivers
    domain: hydrology
    rights: {license: CC0-1.0, care: {label: Public}}
  - id: burials
    rights: {license: CC0-1.0, care: {label: Restricted, level: restricted}}
sources:
  - {id: river, dataset: rivers, kind: files, folder: incoming, window: P1D}
  - {id: mound, dataset: burials, kind: files, folder: incoming, window: P1D}
  - id: broken
    dataset: rivers
    kind: files
    folder: incoming
    window: P1D
    partition: broken
    pipeline: broken.py:publish
"""
BROKEN = f'def publish(context):\n    raise ValueError("no such column; password={SECRET}")\n'
CRON = """\
schedules:
  - {id: river-daily, source: river, cron: "15 7 * * *", time_zone: America/Chicago}
"""


def hashed(token: str) -> str:
    return "sha256:" + sha256(token.encode()).hexdigest()


PEOPLE = f"""\
people:
  - {{subject: ann, roles: [operate], tokens: ["{hashed(TOKENS["ann"])}"]}}
  - {{subject: bob, roles: [approve], tokens: ["{hashed(TOKENS["bob"])}"]}}
  - {{subject: cy, roles: [read], tokens: ["{hashed(TOKENS["cy"])}"]}}
"""


class World:
    """One project; the token identifies the caller."""

    def __init__(self, folder: Path, *, people: bool = True) -> None:
        (folder / "incoming").mkdir(parents=True)
        (folder / "incoming" / "a.csv").write_text("day,flow\n1,2\n")
        (folder / "broken.py").write_text(BROKEN)
        (folder / "cron.yml").write_text(CRON)
        (folder / "kfm.yml").write_text(CONFIG + (PEOPLE if people else ""))
        self.folder = folder
        self.loaded: Loaded = load(str(folder / "kfm.yml"))
        self.context = WebContext(self.loaded)
        self.app = api_app(self.context)

    def past(self) -> World:
        """One run that went well, one that was given up, and a provider in trouble."""
        app = self.opened()
        try:
            self.run_id = _run_id(app.run(RunRequest(source_id="river", actor="ann")))
            self.failed_id = _run_id(app.run(RunRequest(source_id="broken", actor="ann")))
            for _ in range(3):
                app.kernel.store.change_breaker("host:example.org", breakers.on_failure)
        finally:
            app.close()
        return self

    def opened(self) -> App:
        return App(self.loaded, read_only=False, progress=None)

    def ask(self, method: str, path: str, who: str | None = "ann", **options: Any) -> httpx.Response:
        headers = {**_shown(who), **options.pop("headers", {})}
        address = path if path.startswith("http") else f"{BASE}{path}"

        async def asked() -> httpx.Response:
            transport = httpx.ASGITransport(self.app, raise_app_exceptions=True)
            async with httpx.AsyncClient(transport=transport) as client:
                return await client.request(method, address, headers=headers, **options)

        return asyncio.run(asked())

    def get(self, path: str, who: str | None = "ann", **options: Any) -> Any:
        answer = self.ask("GET", path, who, **options)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def change(
        self, path: str, who: str | None = "ann", key: str | None = None, **body: Any
    ) -> httpx.Response:
        headers = {} if key is None else {"Idempotency-Key": key}
        return self.ask("POST", path, who, headers=headers, json={"rationale": "because", **body})

    def entries(self, kind: str) -> list[Any]:
        with self.context.reader() as ledger:
            return [msgspec.to_builtins(one) for one in ledger.governance(kind=kind)]


def _shown(who: str | None) -> dict[str, str]:
    return {} if who is None else {"Authorization": f"Bearer {TOKENS.get(who, who)}"}


def _run_id(report: Any) -> str:
    assert report.run is not None, report
    return str(report.run.run_id)
