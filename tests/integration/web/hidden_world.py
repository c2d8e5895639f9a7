"""A project with datasets that readers must not know, and a telling text in every field of their past."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
from msgspec.structs import replace
from starlette.applications import Starlette
from starlette.routing import Mount

from kfm.app import App
from kfm.config.loader import load
from kfm.datasets import changes
from kfm.model import breaker as breakers
from kfm.model.keys import request_id, webhook_key
from kfm.model.records import GovernanceEntry, Justification, Trigger, Unit
from kfm.model.replays import ReplaySpec, Selection
from kfm.model.requests import RequestOutcome, UpdateRequest
from kfm.model.units import Content, IntakeBatch, IntakeUnit, RejectedRecord, wal_id
from kfm.model.window_plans import PlannedWindow, window_plan
from kfm.nodd.replay import freeze, plan_of
from kfm.runs.kernel import RunRequest
from kfm.service.approvals import request_release
from kfm.service.dataset_changes import make_change, span_of
from kfm.service.schedule_changes import set_paused
from kfm.web.api.routes import api_routes
from kfm.web.console.pages import console_routes
from kfm.web.request_context import WebContext
from tests.conformance.units.scene import Scene, undone
from tests.integration.web.api.world import PEOPLE, TOKENS

DAY_MS = 86_400_000
TOLD = "canary"  # is in every text of theirs
# What no reader may be shown, in any case and spelling.
TELLING = (TOLD, "osage", "burial", "sacred", "relic", "cairn", "wampum")
DATASETS = """\
version: 1
environment: test
datasets:
  - {{id: rivers, domain: hydrology, rights: {{license: CC0-1.0, care: {{label: Public}}}}}}
  - id: osage-burials
    title: Canary of the Osage burials
    domain: sacred-sites
    rights: {{license: CC0-1.0, care: {{label: Care, level: {level}}}}}
  - {{id: wampum, rights: {{license: CC0-1.0, care: {{label: x, level: {level}}}}}}}
  - {{id: cairn-ring, rights: {{license: CC0-1.0, care: {{label: x, level: {level}}}}}}}
{gone}sources:
  - {{id: river, dataset: rivers, kind: files, folder: incoming, window: P1D}}
  - id: burial-feed
    dataset: osage-burials
    kind: files
    folder: graves
    window: P1D
    pipeline: telling.py:publish
  - {{id: wampum-feed, dataset: wampum, kind: files, folder: graves, window: P1D, expect: {{within: P1D}}}}
  - {{id: ring-feed, dataset: cairn-ring, kind: files, folder: graves, window: P1D}}
  - {{id: relic-list, dataset: osage-burials, kind: http, url: "https://cairn.example/canary.csv?q=canary"}}
{gone_source}"""
GONE = "  - {id: cairn-list, title: Relics of cairns}\n"
GONE_SOURCE = "  - {id: relic-feed, dataset: cairn-list, kind: files, folder: incoming, window: P1D}\n"
CRON = """\
schedules:
  - {id: river-daily, source: river, cron: "15 7 * * *"}
  - {id: burial-weekly, source: burial-feed, cron: "0 5 * * 1"}
"""
CRON_GONE = '  - {id: relic-nightly, source: relic-feed, cron: "0 3 * * *"}\n'
PIPELINE = """\
def publish(context):
    raise ValueError("canary: osage_burials_2026.csv, grave 7 of http://cairn.example/canary?area=canary")
"""


class HiddenWorld:
    """The past was made while it was public; then one dataset was restricted, and another one removed."""

    def __init__(self, folder: Path) -> None:
        (folder / "incoming").mkdir(parents=True)
        (folder / "incoming" / "gauge.csv").write_text("day,flow\n1,2\n")
        (folder / "graves").mkdir()
        (folder / "graves" / "canary-osage.csv").write_text("day,flow\n1,2\n")
        (folder / "telling.py").write_text(PIPELINE)
        self.folder = folder
        self._configure("public", gone=True)
        self._past()
        self._configure("restricted", gone=True)
        self._refused()
        self._configure("restricted", gone=False)
        App(self.loaded, read_only=False, progress=None).close()

    def _configure(self, level: str, *, gone: bool) -> None:
        text = DATASETS.format(
            level=level, gone=GONE if gone else "", gone_source=GONE_SOURCE if gone else ""
        )
        (self.folder / "kfm.yml").write_text(text + PEOPLE)
        (self.folder / "cron.yml").write_text(CRON + (CRON_GONE if gone else ""))
        self.loaded = load(str(self.folder / "kfm.yml"))
        self.context = WebContext(self.loaded)
        self.app = Starlette(
            routes=[
                Mount("/api/v1", routes=api_routes(self.context)),
                Mount("/console", routes=console_routes(self.context)),
            ]
        )

    def _past(self) -> None:
        app = App(self.loaded, read_only=False, progress=None)
        try:
            self.public_id = str(app.run(RunRequest(source_id="river", actor="ann")).run.run_id)  # type: ignore[union-attr]
            said: dict[str, Any] = {
                "rationale": f"{TOLD} said",
                "ticket": f"{TOLD}-1",
                "claimed_actor": f"{TOLD} actor",
            }
            failed = app.run(RunRequest(source_id="burial-feed", actor=f"{TOLD} person", **said))
            assert failed.run is not None
            store = app.kernel.store
            for provider in ("cairn.example", f"{TOLD}.provider.example"):
                for _ in range(3):
                    store.change_breaker(provider, breakers.on_failure)
            for scope in ("dataset:osage-burials", "domain:sacred-sites", "replays:osage-burials"):
                app.set_switch(scope, "paused", rationale=f"{TOLD} of a switch", actor="ann")
            (held,) = store.held(state="held")
            request_release(app, held, actor="ann", **said)
            set_paused(app, self.context.schedules[1], True, **said)
            self._changes(app)
            self._requests(store, failed.run.run_id)
            self._entries(store, failed.run.run_id)
            self._units(store)
            self._plans(app)
        finally:
            app.close()

    def _changes(self, app: App) -> None:
        """Two versions of a dataset, a rollback, a withdrawal of one day and one of everything, lifted; and
        another dataset that is retired."""
        by = Justification(actor=f"{TOLD} person", rationale=f"{TOLD} of a change", ticket=f"{TOLD}-4")
        for day in ("2026-01-01", "2026-01-02"):
            (self.folder / "graves" / "canary-osage.csv").write_text(f"day,flow\n{day},2\n")
            made = app.run(RunRequest(source_id="wampum-feed", actor="ann", window_spec=f"{day}/P1D"))
            assert made.run is not None
        first = span_of(app.settings, "wampum", None, "2026-01-01/P1D")
        for plan in (
            lambda kernel: changes.plan_rollback(kernel, "wampum", 1),
            lambda kernel: changes.plan_withdrawal(kernel, "wampum"),
            lambda kernel: changes.plan_lift(kernel, "wampum"),
            lambda kernel: changes.plan_rollback(kernel, "wampum", 2),
            lambda kernel: changes.plan_withdrawal(kernel, "wampum", first),
        ):
            assert make_change(app, plan, by, None).change is not None
        assert app.run(RunRequest(source_id="ring-feed", actor="ann")).run is not None
        ended = make_change(
            app, lambda kernel: changes.plan_withdrawal(kernel, "cairn-ring", retires=True), by, None
        )
        assert ended.change is not None

    def _requests(self, store: Any, run_id: str) -> None:
        now_ms = store.now_ms()
        asked = [_asked(name, now_ms) for name in ("waiting", "done")]
        requests = store.requests()
        requests.accept([replace(asked[0], not_before_ms=now_ms + DAY_MS), asked[1]])
        requests.keep_preview(asked[1].request_id, run_id, ("sha256:" + "a" * 64, f"{TOLD} of a preview"))
        ending = RequestOutcome(state="done", outcome="failed", reason=f"{TOLD} of an end", run_id=run_id)
        for each in iter(lambda: requests.claim("worker", 60_000, lambda _worker: False), None):
            assert requests.settle(each, ending)

    def _entries(self, store: Any, run_id: str) -> None:
        """By every kind of subject that leads to the dataset, and by none."""
        subjects = (run_id, "osage-burials", "burial-feed", "schedule:burial-weekly", "dataset:osage-burials")
        told = {"rationale": f"{TOLD} of an entry", "ticket": f"{TOLD}-2"}
        details = [{"text": TOLD}] * len(subjects) + [{"dataset_id": "osage-burials", "text": TOLD}]
        store.append_governance(
            GovernanceEntry(
                kind="note",
                subject=subject,
                actor=f"{TOLD} person",
                recorded_at_ms=store.now_ms(),
                details=facts,
                **told,
            )
            for subject, facts in zip((*subjects, "all"), details, strict=True)
        )

    def _units(self, store: Any) -> None:
        now_ms, uri = store.now_ms(), f"s3://bucket/{TOLD}.csv"
        unit = Unit(
            wal_id=wal_id("wampum", uri, now_ms),
            dataset="wampum",
            object_uri=uri,
            provider="aws",
            queue=f"{TOLD}-queue",
            event_time_ms=now_ms,
            time_range_start_ms=now_ms,
            time_range_end_ms=now_ms + 1000,
            status="pending",
            attempts=0,
            created_at_ms=now_ms,
            updated_at_ms=now_ms,
            version=1,
        )
        dead = RejectedRecord(
            envelope_hash="sha256:" + "d" * 64,
            index=0,
            queue="q",
            error_code="JUNK",
            error=f"{TOLD} of a message",
        )
        store.units().take_in(
            IntakeBatch(arrivals=(IntakeUnit(unit=unit, content=Content()),), rejected=(dead,))
        )

    def _plans(self, app: App) -> None:
        """A replay that waits for its people, and windows that were asked for together."""
        store, by = app.kernel.store, Justification(actor="ann", rationale=f"{TOLD} of a plan")
        (claimed,) = Scene(store).claim("wampum")
        Scene(store).end(undone(claimed, "spent", error_code="HTTP_503"))
        spec = ReplaySpec(kfm="replay-spec/1", selection=Selection(datasets=("wampum",)))
        freeze(app, plan_of(app, spec), by, f"{TOLD} of a name")
        asked = _asked("planned", store.now_ms())
        window = PlannedWindow(
            source_id="burial-feed",
            dataset_id="osage-burials",
            start_ms=asked.window_start_ms,
            end_ms=asked.window_end_ms,
            instant_ms=None,
            was="missing",
            why=f"{TOLD} of a window",
            request_id=asked.request_id,
        )
        made = window_plan(
            app.ids.new(),
            "missing",
            "sha256:" + "b" * 64,
            "burial-feed",
            [window],
            [],
            by,
            store.now_ms(),
            TOLD,
        )
        store.requests().accept([replace(asked, not_before_ms=store.now_ms() + DAY_MS)], None, made)

    def _refused(self) -> None:
        """Of a dataset without rights there are requests, refusals and switches, and never a version."""
        app = App(self.loaded, read_only=False, progress=None)
        try:
            app.run(RunRequest(source_id="relic-feed", actor="ann", rationale=f"{TOLD} again"))
            app.set_switch("dataset:cairn-list", "stopped", rationale=f"{TOLD} of a switch", actor="ann")
            set_paused(app, self.context.schedules[2], True, rationale=f"{TOLD} of a pause")
            now_ms = app.kernel.store.now_ms()
            gone = replace(
                _asked("gone", now_ms),
                source_id="relic-feed",
                dataset_id="cairn-list",
                schedule_id="relic-nightly",
                not_before_ms=now_ms + DAY_MS,
            )
            app.kernel.store.requests().accept([gone])
        finally:
            app.close()

    # --- asking --------------------------------------------------------------------------

    def ask(self, path: str, who: str = "cy", *, cookies: Any = None, **options: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {TOKENS[who]}"}

        async def asked() -> httpx.Response:
            transport = httpx.ASGITransport(self.app)
            async with httpx.AsyncClient(transport=transport, cookies=cookies) as client:
                method = options.pop("method", "GET")
                return await client.request(method, f"http://127.0.0.1{path}", headers=headers, **options)

        return asyncio.run(asked())

    def api(self, path: str, who: str = "cy") -> httpx.Response:
        return self.ask(f"/api/v1{path}", who)

    def signed_in(self, who: str) -> httpx.Cookies:
        return self.ask("/console/sign-in", who, method="POST", data={"token": TOKENS[who]}).cookies

    def lists(self, path: str, name: str, field: str, who: str = "ann") -> list[str]:
        return [each[field] for each in self.api(path, who).json()[name]]


def _asked(name: str, now_ms: int) -> UpdateRequest:
    key = webhook_key(Trigger(type="webhook", source_id="river", dataset_id="rivers", request_uuid=name))
    return UpdateRequest(
        request_id=request_id(key),
        key=key,
        kind="webhook",
        source_id="burial-feed",
        dataset_id="osage-burials",
        window_start_ms=now_ms - DAY_MS,
        window_end_ms=now_ms,
        actor="webhook:burial-feed",
        accepted_at_ms=now_ms,
        claimed_actor=f"{TOLD} claim",
        rationale=f"{TOLD} of a request",
        ticket=f"{TOLD}-3",
        correction=f"{TOLD} corrected",
        schedule_id="burial-weekly",
        request_uuid=f"m-burial-feed-{TOLD}-{name}",
        envelope_hash="sha256:" + "e" * 64,
        details={"reason": TOLD, f"{TOLD}-key": [TOLD]},
        reason=f"{TOLD} is why",
        blocked_by="circuit:cairn.example",
    )
