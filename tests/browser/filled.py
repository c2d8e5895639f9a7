"""A project in which everything that the console shows has happened, with hostile text in all of it."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

from msgspec.structs import replace

import kfm
from kfm.app import App
from kfm.config.loader import Loaded, load
from kfm.datasets import changes
from kfm.model import breaker as breakers
from kfm.model.completeness import Dismissal
from kfm.model.keys import request_id, webhook_key
from kfm.model.records import GovernanceEntry, Justification, Trigger, Unit, governance_entry
from kfm.model.replays import ReplaySpec, Selection
from kfm.model.requests import RequestOutcome, UpdateRequest
from kfm.model.scheduled_times import account, definition_of, request_for
from kfm.model.schedules import Accounting, Instant, ScheduleState, instants
from kfm.model.times import rfc3339
from kfm.model.units import Content, IntakeBatch, IntakeUnit, RejectedRecord, wal_id
from kfm.nodd.replay import freeze, plan_of
from kfm.pipelines.project import run_pipeline
from kfm.runs.kernel import RunRequest
from kfm.service.approvals import request_release
from kfm.service.dataset_changes import make_change, span_of
from kfm.system import SystemClock
from kfm.web.request_context import WebContext
from tests.conformance.units.scene import Scene, undone

DAY_MS = 86_400_000
LAKE_DAYS = 12
TOKENS = {who: f"kfm-{who}-0123456789abcdef0123456789abcdef" for who in ("ann", "cy")}
# Markup, a template's braces, a control sequence of terminals, text that turns round, and a line's end.
HOSTILE = (
    "<script>document.title='owned'</script>\"'><img src=x onerror=alert(1)>{{7*7}}{% raw %}"
    '\x1b[31mred\u202egnp.exe\u2066\n<a href="javascript:alert(2)">x</a>' + "W" * 120
)
FILE = "<img src=x onerror=alert(3)>'\"{{7*7}}.csv"
SECRET = "hunter2-and-some-more-of-it"
SIGNED = {
    "scheme": "standard",
    "signature": "standard ok",
    "secret_index": 1,
    "checks": ["signature", "freshness"],
    "known_by": "webhook-id",
    "reason": "river.corrected",
    "sent_at_ms": 1_794_823_468_000,
}
CONFIG = """\
version: 1
environment: plains
datasets:
  - id: rivers
    domain: hydrology
    rights: {license: CC0-1.0, care: {label: Public}}
  - id: wells
    domain: hydrology
    rights: {license: CC0-1.0, care: {label: Public}}
  - id: burials
    rights: {license: CC0-1.0, care: {label: Restricted, level: restricted}}
  - id: lakes
    rights: {license: CC0-1.0, care: {label: Public}}
sources:
  - id: lake
    dataset: lakes
    kind: files
    folder: lakes
    pattern: "{window.start:%Y-%m-%d}.csv"
    window: P1D
    expect: {from: LAKES_FROM, within: P3D}
  - {id: river, dataset: rivers, kind: files, folder: incoming, window: P1D}
  - {id: well, dataset: wells, kind: files, folder: wells, window: P1D}
  - {id: mound, dataset: burials, kind: files, folder: incoming, window: P1D}
  - {id: broken, dataset: wells, kind: files, folder: wells, partition: broken, pipeline: "broken.py:publish"}
freezes:
  - {start: 2020-01-01, end: 2100-01-01, datasets: [burials], reason: the council has not agreed}
"""
CRON = """\
schedules:
  - {id: river-daily, source: river, cron: "15 7 * * *", time_zone: America/Chicago}
  - {id: well-often, source: well, every: PT2H}
  - {id: mound-weekly, source: mound, cron: "0 5 * * 1", enabled: false}
  - {id: well-each-second, source: well, every: PT1S, overlap: skip}
"""


class Filled:
    """The project, and the ids of what pages are about."""

    def __init__(self, folder: Path, *, people: bool) -> None:
        (folder / "incoming").mkdir(parents=True)
        (folder / "wells").mkdir()
        (folder / "incoming" / FILE).write_text("day,flow\n1,2\n")
        (folder / "wells" / "w.csv").write_text("well,depth\n1,2\n")
        (folder / "broken.py").write_text(f"def publish(context):\n    raise ValueError({HOSTILE!r})\n")
        (folder / "cron.yml").write_text(CRON)
        self.first_ms = (SystemClock().now_ms() // DAY_MS - LAKE_DAYS) * DAY_MS
        config = CONFIG.replace("LAKES_FROM", day_of(self.first_ms + DAY_MS))
        (folder / "kfm.yml").write_text(config + (people_text() if people else ""))
        self.folder = folder
        self.loaded: Loaded = load(str(folder / "kfm.yml"))
        self.context = WebContext(self.loaded)
        self._fill()

    def _fill(self) -> None:
        app = App(self.loaded, read_only=False, progress=None)
        try:
            self._runs(app)
            self._lakes(app)
            self._trouble(app)
            self._units(app)
            self._replay(app)
            self._requests(app)
            self._schedules(app)
        finally:
            app.close()
        self._pass()

    def _runs(self, app: App) -> None:
        first = app.run(RunRequest(source_id="river", actor="ann", rationale=HOSTILE))
        assert first.run is not None
        self.run_id = first.run.run_id
        (self.folder / "incoming" / "b.csv").write_text("day,flow\n3,4\n")
        app.run(RunRequest(source_id="river", actor="ann"))
        failed = app.run(RunRequest(source_id="broken", actor="ann"))
        assert failed.run is not None
        self.failed_id = failed.run.run_id
        for _ in range(2):  # the second time unchanged
            app.run(RunRequest(source_id="well", actor="ann"))
        refused = app.run(RunRequest(source_id="mound", actor="ann"))
        assert refused.invocation_id is not None
        self.call_id = refused.invocation_id

    def _lakes(self, app: App) -> None:
        """Days that came, never came, failed, will not come, and were taken down."""
        (self.folder / "lakes").mkdir()
        days = [self.first_ms + number * DAY_MS for number in range(LAKE_DAYS)]
        for number, at_ms in enumerate(days[:-2]):
            if number in (3, 4):  # they do not come
                continue
            place = self.folder / "lakes" / f"{day_of(at_ms)}.csv"
            if number == 6:
                place.mkdir()  # what can't be read
            else:
                place.write_text(f"day,depth\n{number},2\n")
            app.run(RunRequest(source_id="lake", actor="ann", window_spec=f"{day_of(at_ms)}/P1D"))
        by = Justification(actor="ann", rationale=HOSTILE)
        window = span_of(app.settings, "lakes", None, f"{day_of(days[5])}/P1D")
        taken = make_change(app, lambda kernel: changes.plan_withdrawal(kernel, "lakes", window), by, None)
        assert taken.change is not None
        settled = Dismissal(
            source_id="lake",
            dataset_id="lakes",
            start_ms=days[4],
            end_ms=days[4] + DAY_MS,
            actor="ann",
            rationale=HOSTILE,
        )
        entry = governance_entry("window-dismissed", "lakes", app.ledger.now_ms(), by)
        assert app.writer.windows().dismiss([settled], entry).answer == "dismissed"

    def _trouble(self, app: App) -> None:
        store = app.kernel.store
        for provider in ("host:example.org", f"host:{HOSTILE[:60]}"):
            for _ in range(3):
                store.change_breaker(provider, breakers.on_failure)
        app.set_switch("domain:hydrology", "paused", rationale=HOSTILE, actor=HOSTILE)
        (held,) = store.held(state="held")
        self.held_id = held.held_id
        request_release(app, held, actor="ann", rationale=HOSTILE, ticket="T-1", claimed_actor=None)
        store.append_governance(
            [
                GovernanceEntry(
                    kind="note",
                    subject=HOSTILE,
                    actor=HOSTILE,
                    recorded_at_ms=store.now_ms() + number,
                    rationale=HOSTILE,
                    ticket=HOSTILE,
                    details={HOSTILE: HOSTILE},
                )
                for number in range(60)
            ]
        )

    def _units(self, app: App) -> None:
        now_ms = app.kernel.store.now_ms()
        taken = []
        for number in range(3):
            uri = f"s3://noaa-hrrr-bdp-pds/{number}-{HOSTILE}"
            name = wal_id("hrrr", uri, now_ms)
            unit = Unit(
                wal_id=name,
                dataset="hrrr",
                object_uri=uri,
                provider="aws",
                queue="weather",
                event_time_ms=now_ms,
                time_range_start_ms=now_ms,
                time_range_end_ms=now_ms + 1000,
                status="pending",
                attempts=0,
                created_at_ms=now_ms,
                updated_at_ms=now_ms,
                version=1,
            )
            taken.append(IntakeUnit(unit=unit, content=Content()))
        self.wal_id = taken[0].unit.wal_id
        dead = RejectedRecord(
            envelope_hash="sha256:" + "d" * 64, index=0, queue=HOSTILE, error_code="JUNK", error=HOSTILE
        )
        app.kernel.store.units().take_in(IntakeBatch(arrivals=tuple(taken), rejected=(dead,)))

    def _replay(self, app: App) -> None:
        """A plan that was kept, of a unit that failed."""
        store = app.kernel.store
        (claimed,) = Scene(store).claim("hrrr", limit=1)
        Scene(store).end(undone(claimed, "spent", error_code="HTTP_503"))
        spec = ReplaySpec(kfm="replay-spec/1", selection=Selection(datasets=("hrrr",)))
        by = Justification(actor="ann", rationale=HOSTILE)
        self.replay_id = freeze(app, plan_of(app, spec), by, HOSTILE[:200]).replay_id

    def _requests(self, app: App) -> None:
        store = app.kernel.store
        now_ms = store.now_ms()
        wanted = [
            asked("wait", now_ms, reason=HOSTILE, not_before_ms=now_ms + DAY_MS),
            asked("done", now_ms, actor=HOSTILE, details={HOSTILE: HOSTILE, **SIGNED}, claimed_actor=HOSTILE),
            *(
                asked(f"more-{number}", now_ms - number, not_before_ms=now_ms + DAY_MS)
                for number in range(60)
            ),
        ]
        requests = store.requests()
        requests.accept(wanted)
        self.request_id = wanted[1].request_id
        requests.keep_preview(self.request_id, self.run_id, ("sha256:" + "a" * 64, HOSTILE))

    def _schedules(self, app: App) -> None:
        """Three weeks of a day's schedule, and in each cell another fate."""
        store = app.kernel.store
        schedule = self.context.schedules[0]
        source = self.context.settings.source(schedule.source)
        now_ms = store.now_ms()
        states = store.schedule_states()
        cursor_ms = now_ms - 1
        state = ScheduleState(
            schedule_id=schedule.id,
            definition=definition_of(schedule),
            cursor_ms=cursor_ms,
            version=1,
            updated_at_ms=now_ms,
        )
        fates = ("skipped", "missed", "dropped", "redefined", "request", "request", "request")
        rows, requests = [], []
        for number, at_ms in enumerate(instants(schedule, now_ms - 17 * DAY_MS, now_ms)):
            became = fates[number % len(fates)]
            request = request_for(schedule, source, at_ms, at_ms, "schedule") if became == "request" else None
            rows.append(
                Instant(
                    schedule_id=schedule.id,
                    instant_ms=at_ms,
                    last_ms=at_ms,
                    became=became,  # type: ignore[arg-type]
                    request_id=request.request_id if request else None,
                    reason=None if request else HOSTILE,
                    at_ms=at_ms,
                )
            )
            requests += [request] if request else []
        del rows[9]  # this one has no record
        assert states.account(
            Accounting(seen=None, state=state, instants=tuple(rows), requests=tuple(requests))
        )
        paused = ScheduleState(
            schedule_id="well-often",
            definition=definition_of(self.context.schedules[1]),
            cursor_ms=now_ms - DAY_MS,
            version=1,
            updated_at_ms=now_ms,
        )
        assert states.account(Accounting(seen=None, state=paused))
        after = replace(paused, version=2, paused_at_ms=now_ms, paused_by=HOSTILE, rationale=HOSTILE)
        entry = GovernanceEntry(
            kind="schedule-pause", subject="well-often", actor="ann", recorded_at_ms=now_ms
        )
        assert states.set_paused(paused, after, entry)

        self._each_second(app)
        self._settle(app)

    def _each_second(self, app: App) -> None:
        """A service saw it first a hundred seconds ago, and no service ran since."""
        schedule = self.context.schedules[3]
        source = self.context.settings.source(schedule.source)
        seen_ms = app.kernel.store.now_ms() - 100_000
        step = account(schedule, source, None, [], seen_ms, late_ms=60_000, actor="schedule")
        assert step is not None
        assert app.kernel.store.schedule_states().account(step)

    def _settle(self, app: App) -> None:
        """What is due ends, each request in another way."""
        requests = app.kernel.store.requests()
        outcomes = ("success", "noop", "failed", "refused")
        claims = iter(lambda: requests.claim("worker", 60_000, lambda _worker: False), None)
        for number, each in enumerate(claims):
            mine = each.request_id == self.request_id
            outcome, run_id = outcomes[number % len(outcomes)], None
            if mine:
                outcome, run_id = "success", self.run_id
            ending = RequestOutcome(state="done", outcome=outcome, reason=HOSTILE, run_id=run_id)
            assert requests.settle(each, ending)

    def _pass(self) -> None:
        flow = kfm.Pipeline("flow")
        for node in (gauges, total, broken, page):
            flow.node(f"flow.{node.__name__}")(node)
        report = run_pipeline(flow, config=str(self.folder / "kfm.yml"), keep_going=True)
        self.pass_id = report.run_id

    @property
    def paths(self) -> tuple[str, ...]:
        """Every page, and every page of one thing."""
        return (
            "",
            "activity",
            "search?q=r",
            "activity?last=7d&view=timeline",
            "runs",
            f"runs/{self.run_id}",
            f"runs/{self.failed_id}",
            *(
                f"runs/{self.failed_id}?tab={tab}"
                for tab in ("log", "timeline", "graph", "changes", "evidence")
            ),
            f"do/retryRun?run_id={self.failed_id}",
            "do/setSwitch?scope=dataset:rivers",
            f"calls/{self.call_id}",
            "datasets",
            "datasets/rivers",
            "datasets/lakes",
            "datasets/lakes?state=missing",
            "datasets?order=holes&find=l",
            *(f"datasets/lakes?tab={tab}" for tab in ("schema", "extent", "rights", "runs", "trend")),
            *(f"datasets/lakes?tab={tab}" for tab in ("lineage", "contract", "targets")),
            "datasets/rivers?tab=versions&version=2&against=1",
            "pipelines",
            f"pipelines/{self.pass_id}",
            "schedules",
            "schedules/river-daily",
            "schedules/well-often",
            "schedules/well-each-second",
            "requests",
            f"requests/{self.request_id}",
            "held",
            f"held/{self.held_id}",
            "feeds",
            "feeds/hrrr",
            "messages?state=any",
            f"messages/{'d' * 64}",
            "units",
            f"units/{self.wal_id}",
            "audit",
            "no-such-page",
            "runs?status=odd",
        )


def day_of(at_ms: int) -> str:
    return rfc3339(at_ms)[:10]


def people_text() -> str:
    hashes = {who: "sha256:" + sha256(token.encode()).hexdigest() for who, token in TOKENS.items()}
    return f"""\
people:
  - {{subject: ann, roles: [operate], tokens: ["{hashes["ann"]}"]}}
  - {{subject: cy, roles: [read], tokens: ["{hashes["cy"]}"]}}
  - {{subject: root, roles: [operate, approve], accounts: ["root"]}}
"""


def asked(name: str, now_ms: int, **more: object) -> UpdateRequest:
    key = webhook_key(Trigger(type="webhook", source_id="river", dataset_id="rivers", request_uuid=name))
    given = {
        "request_id": request_id(key),
        "key": key,
        "kind": "webhook",
        "source_id": "river",
        "dataset_id": "rivers",
        "window_start_ms": now_ms - DAY_MS,
        "window_end_ms": now_ms,
        "actor": "webhook:river",
        "accepted_at_ms": now_ms,
        "request_uuid": name,
        "envelope_hash": "sha256:" + "e" * 64,
        **more,
    }
    return UpdateRequest(**given)  # type: ignore[arg-type]


def gauges() -> int:
    return 1


def total(gauges: int) -> int:
    return gauges + 1


def broken(gauges: int) -> int:
    raise ValueError(HOSTILE)


def page(total: int, broken: int) -> str:
    return f"{total} {broken}"
