"""A script for sixty days: what upstream answers for each day, what people do about it, and what is to become
of each window. The world plays it: a server, a folder, a service whose time is ours."""

from __future__ import annotations

import json
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random
from typing import Any, NamedTuple

import pytest

from kfm.app import App, open_app
from kfm.config.loader import load
from kfm.config.schedules import load_schedules
from kfm.datasets.completeness import completeness_of
from kfm.model.completeness import WindowVerdict
from kfm.service.incidents import deliver_incidents
from kfm.service.overdue import mark_overdue
from kfm.service.runner import dispatch_due
from kfm.service.scheduler import Scheduler, make_scheduler
from kfm.system import SystemClock
from tests.acceptance.runs.conftest import Inside
from tests.crash.project import CONTRACT, RIGHTS, Ended, table

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
START_MS = 1_772_323_200_000  # 2026-03-01T00:00:00Z
DAYS = 60
TURN_MS = 50
BEGIN_MS = START_MS + 12 * HOUR_MS  # the first scheduled time asks for the first of the days
END_MS = START_MS + DAYS * DAY_MS + 9 * HOUR_MS

# When the service looks, in minutes of each day. The schedules fire at 06:00 and 07:00; data is due at 08:00
# (levels) and 12:00 (notes), and comes at 10:00 or 15:00 where it is late.
LOOKS = (360, 420, 482, 610, 722, 910)

CONFIG = """\
version: 1
environment: test
datasets:
  - {{id: levels, title: Levels, domain: hydrology, rights: {public}}}
  - {{id: notes, title: Notes, domain: hydrology, rights: {rights}}}
sources:
  - id: gauges
    dataset: levels
    kind: http
    url: "{url}/{{window.start:date}}/levels.json"
    pagination: {{style: page-number}}
    contract: contract.odcs.yaml
    not_yet: [404]
    expect: {{by: "08:00", within: P2D}}
  - id: drops
    dataset: notes
    kind: files
    folder: incoming
    pattern: "{{window.start:date}}.csv"
    not_yet: [empty]
    expect: {{by: "12:00", within: P3D}}
publish:
  - {{kind: local, path: published}}
incidents:
  - {{kind: file, path: told.jsonl}}
"""
CRON = """\
version: 1
schedules:
  - {id: levels-daily, source: gauges, cron: "0 6 * * *"}
  - {id: notes-daily, source: drops, cron: "0 7 * * *"}
"""
WITHOUT_RIGHTS = (  # why the second dataset may not be published for a week
    "null",
    "{license: Whatever-1.0, care: {label: Public}}",
    '{license: CC0-1.0, care: {label: "Not to be shared", level: blocked}}',
)


def midnight_ms(day: int) -> int:
    return START_MS + day * DAY_MS


def name_of(day: int) -> str:
    return datetime.fromtimestamp(midnight_ms(day) / 1000, UTC).strftime("%Y-%m-%d")


# --- the script ------------------------------------------------------------------------


class Answer(NamedTuple):
    """What upstream has for a day, from a moment on."""

    from_ms: int
    body: bytes


def good(day: int) -> bytes:
    return _rows(day, 1.0)


def wrong(day: int) -> bytes:
    """Keeps the contract, and is not true."""
    return _rows(day, 40.0)


def broken(day: int) -> bytes:
    return _rows(day, 4000.0)


def nothing(_day: int) -> bytes:
    return b"[]"


def _rows(day: int, level: float) -> bytes:
    rows = [{"station": f"{name_of(day)} {number}", "level_m": level + number} for number in range(3)]
    return json.dumps(rows).encode()


class Deed(NamedTuple):
    """What a person does, and when."""

    at_ms: int
    what: str
    day: int


# Each piece of the story: what becomes of its days, one after the other. `on-time` days belong to it because
# nothing else may happen meanwhile.
PIECES = (
    ("long", "any", "any", "any"),
    ("never-dismissed", "any", "any", "any"),
    ("never",),
    ("broken-mended", "any", "any"),
    ("broken",),
    ("wrong", "on-time", "on-time", "on-time", "on-time", "on-time", "on-time"),
    ("gone", "any", "any"),
    ("away",),
    ("away", "away", "away"),
)
ANY = ("on-time", "on-time", "on-time", "late", "late", "empty")
NOTES = ("on-time", "on-time", "on-time", "late", "next-day", "never")


class Script:
    """Drawn from a seed: what is asked of the world, and what it has to come to."""

    def __init__(self, seed: int) -> None:
        chance = Random(seed)
        pieces = [list(piece) for piece in PIECES]
        pieces += [["any"] for _ in range(DAYS - 2 - sum(map(len, pieces)))]
        chance.shuffle(pieces)
        drawn = [kind if kind != "any" else chance.choice(ANY) for piece in pieces for kind in piece]
        self.levels = ["on-time", *drawn, "open"]
        self.notes = [chance.choice(NOTES) for _ in range(DAYS - 1)] + ["next-day"]
        self.refused_from = chance.randrange(5, 45)
        self.without_rights = WITHOUT_RIGHTS[seed % len(WITHOUT_RIGHTS)]
        self.away = {day + 1 for day, kind in enumerate(self.levels) if kind == "away"}
        self.answers: dict[str, list[Answer]] = {
            name_of(day): list(self._answers(day, kind)) for day, kind in enumerate(self.levels)
        }
        self.drops = {
            day: midnight_ms(day + 1) + hours * HOUR_MS
            for day, kind in enumerate(self.notes)
            if (hours := {"on-time": 5, "late": 15, "next-day": 33}.get(kind)) is not None
        }
        self.deeds = sorted(self._deeds())

    def _answers(self, day: int, kind: str) -> Iterator[Answer]:
        """The next day begins as this one is over: nothing comes before."""
        next_ms = midnight_ms(day + 1)
        if kind == "late":
            yield Answer(next_ms + 10 * HOUR_MS, good(day))
        elif kind == "long":
            yield Answer(next_ms + 3 * DAY_MS, good(day))
        elif kind == "empty":
            yield Answer(next_ms, nothing(day))
        elif kind in ("broken", "broken-mended"):
            yield Answer(next_ms, broken(day))
            if kind == "broken-mended":
                yield Answer(next_ms + 2 * DAY_MS, good(day))
        elif kind == "wrong":
            yield Answer(next_ms, wrong(day))
            yield Answer(next_ms + 4 * DAY_MS, good(day))
        elif kind not in ("never", "never-dismissed", "open"):
            yield Answer(next_ms, good(day))

    def _deeds(self) -> Iterator[Deed]:
        nine, eleven = 9 * HOUR_MS, 11 * HOUR_MS
        for day, kind in enumerate(self.levels):
            next_ms = midnight_ms(day + 1)
            if kind == "long":
                yield Deed(next_ms + 3 * DAY_MS + nine, "ask-for-all", day)
            elif kind == "never-dismissed":
                yield Deed(next_ms + 3 * DAY_MS + nine, "dismiss", day)
            elif kind == "broken-mended":
                yield Deed(next_ms + 2 * DAY_MS + nine, "ask", day)
            elif kind == "wrong":
                yield Deed(next_ms, "look-first", day)
                yield Deed(next_ms + 2 * DAY_MS + eleven, "roll-back", day)
                yield Deed(next_ms + 5 * DAY_MS + eleven, "resume", day)
            elif kind == "gone":
                yield Deed(next_ms + 2 * DAY_MS + eleven, "withdraw", day)
        since_ms = midnight_ms(self.refused_from + 1)
        yield Deed(since_ms + 3 * HOUR_MS, "lose-rights", self.refused_from)
        yield Deed(since_ms + 7 * DAY_MS + 3 * HOUR_MS, "regain-rights", self.refused_from)

    def body(self, day: str, now_ms: int) -> bytes | None:
        """None: it is not there."""
        known = [one.body for one in self.answers.get(day, []) if one.from_ms <= now_ms]
        return known[-1] if known else None

    @property
    def levels_at_the_end(self) -> dict[str, str]:
        """The state that each day has to have, by what was written for it."""
        ends = {
            "empty": "empty",
            "never": "missing",
            "never-dismissed": "dismissed",
            "broken": "quarantined",
            "gone": "withdrawn",
            "open": "overdue",
        }
        return {name_of(day): ends.get(kind, "published") for day, kind in enumerate(self.levels)}

    @property
    def notes_at_the_end(self) -> dict[str, str]:
        """`never` is asked for three days long, then missing; the last day has until noon."""
        found = {}
        for day in range(DAYS):
            there = day in self.drops and self.drops[day] < END_MS
            waits = "waiting" if day == DAYS - 1 else "overdue" if day >= DAYS - 3 else "missing"
            found[name_of(day)] = "published" if there else waits
        return found


# --- the world -------------------------------------------------------------------------


class StoryClock:
    """Time of the story: it moves by hand, and by a millisecond whenever it is read, so that no two moments
    are the same."""

    def __init__(self) -> None:
        self._now_ms = BEGIN_MS
        self._lock = threading.Lock()

    def now_ms(self) -> int:
        with self._lock:
            self._now_ms += 1
            return self._now_ms

    def sleep_ms(self, delay_ms: int) -> None:
        """Other threads of a command get their turn."""
        time.sleep(min(max(0, delay_ms), TURN_MS) / 1000)
        with self._lock:
            self._now_ms += max(0, delay_ms)

    def move_to(self, at_ms: int) -> None:
        with self._lock:
            assert at_ms >= self._now_ms, "the story has come further than its script"
            self._now_ms = at_ms

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """For everything in this process: the service, commands, the API."""
        monkeypatch.setattr(SystemClock, "now_ms", lambda _self: self.now_ms())
        monkeypatch.setattr(SystemClock, "monotonic_ms", lambda _self: self.now_ms())
        monkeypatch.setattr(SystemClock, "sleep_ms", lambda _self, delay_ms: self.sleep_ms(delay_ms))


class Late(NamedTuple):
    """A window past its time that no other incident tells of."""

    dataset_id: str
    source_id: str
    start_ms: int


class World(Inside):
    """The project, its upstream and its service; `play` is the whole story."""

    script: Script
    clock: StoryClock
    url: str

    def prepare(self, script: Script, clock: StoryClock, url: str) -> None:
        self.script, self.clock, self.url = script, clock, url
        self.looked_at = 0  # the version before the wrong one
        self.overdue: dict[str, set[Late]] = {"levels": set(), "notes": set()}
        self.overdue_changes: dict[str, list[str]] = defaultdict(list)
        self.write("contract.odcs.yaml", CONTRACT)
        self.write("cron.yml", CRON)
        (self.folder / "incoming").mkdir()
        self.configure_rights(RIGHTS)

    def configure_rights(self, rights: str) -> None:
        self.write("kfm.yml", CONFIG.format(public=RIGHTS, rights=rights, url=self.url))

    # --- sixty days ---

    def play(self) -> None:
        with self._surroundings(), ExitStack() as stack:
            service = stack.enter_context(self._service())
            for day in range(DAYS + 1):
                if day in self.script.away:
                    stack.close()
                elif day - 1 in self.script.away:
                    service = stack.enter_context(self._service())
                self._day(day, None if day in self.script.away else service)

    def _day(self, day: int, service: tuple[App, Scheduler] | None) -> None:
        for minute in LOOKS:
            at_ms = midnight_ms(day) + minute * MINUTE_MS
            if not BEGIN_MS <= at_ms <= END_MS:
                continue
            self._act_until(at_ms)
            self.clock.move_to(at_ms)
            if service is not None:
                self._look(*service)

    @contextmanager
    def _service(self) -> Iterator[tuple[App, Scheduler]]:
        """As `kfm serve` puts it together, without its threads."""
        with open_app(load(None, {})) as app:
            yield app, make_scheduler(app, load_schedules(app.loaded))

    def _look(self, app: App, scheduler: Scheduler) -> None:
        """What the threads of a service do at one moment."""
        scheduler.step()
        dispatch_due(app, "all")
        mark_overdue(app)
        deliver_incidents(app)
        self.observe(app)

    # --- people ---

    def _act_until(self, at_ms: int) -> None:
        """Files are dropped, and people act, when their time has come."""
        deeds = self.script.deeds
        while deeds and deeds[0].at_ms <= at_ms:
            deed = deeds.pop(0)
            self._drop(deed.at_ms)
            self.clock.move_to(max(deed.at_ms, self.clock.now_ms()))
            getattr(self, "_" + deed.what.replace("-", "_"))(deed.day)
        self._drop(at_ms)

    def _drop(self, now_ms: int) -> None:
        drops = self.script.drops
        for day in [day for day, at_ms in drops.items() if at_ms <= now_ms]:
            path = self.folder / "incoming" / f"{name_of(day)}.csv"
            if not path.exists():
                path.write_bytes(table(name_of(day), 3))

    def _ask_for_all(self, _day: int) -> None:
        """Whatever is missing: what does not come all the same stays what it is."""
        self._done("run", "--missing", "levels", "--yes", codes=(0, 1, 3, 4, 5))

    def _ask(self, day: int) -> None:
        """What was quarantined runs again, since upstream has other data."""
        self._done("run", "--source", "gauges", "--window", f"{name_of(day)}/P1D")

    def _dismiss(self, day: int) -> None:
        self._done("dismiss", "levels", f"{name_of(day)}/P1D", "--yes", "--rationale", "the gauge was away")

    def _withdraw(self, day: int) -> None:
        why = ("--rationale", "the owner of the gauge asked for it")
        self._done("withdraw", "levels", "--window", f"{name_of(day)}/P1D", "--yes", *why)

    def _look_first(self, _day: int) -> None:
        """Which version readers had before the wrong one."""
        shown = self._done("dataset", "show", "levels", "--json").document
        self.looked_at = int(shown["dataset"]["versions"][0]["version"])

    def _roll_back(self, _day: int) -> None:
        why = ("--rationale", "the levels are in another unit")
        self._done("rollback", "levels", "--to", str(self.looked_at), "--yes", *why)

    def _resume(self, day: int) -> None:
        self._done("switch", "set", "running", "--dataset", "levels", "--rationale", "upstream has mended it")
        self._done(
            "run", "--missing", "levels", "--yes", "--from", name_of(day), "--to", name_of(day + 6),
            codes=(0, 5),
        )  # fmt: skip

    def _lose_rights(self, _day: int) -> None:
        self.configure_rights(self.script.without_rights)

    def _regain_rights(self, _day: int) -> None:
        self.configure_rights(RIGHTS)

    def _done(self, *arguments: str, codes: tuple[int, ...] = (0,)) -> Ended:
        ended = self.kfm(*arguments)
        assert ended.code in codes, (arguments, ended)
        return ended

    # --- what is seen meanwhile ---

    def observe(self, app: App) -> None:
        """No hole is silent at any moment. What is overdue is remembered: so often it has to be told."""
        completeness = completeness_of(app)
        told = self.told_of()
        for dataset_id, before in self.overdue.items():
            windows = completeness.coverage(dataset_id).windows
            for one in windows:
                self._is_told(one, told)
            now = {Late(dataset_id, one.source_id, one.start_ms) for one in windows if one.needs_overdue}
            if bool(now) != bool(before):
                self.overdue_changes[dataset_id].append("open" if now else "resolved")
            self.overdue[dataset_id] = now

    def _is_told(self, one: WindowVerdict, told: dict[tuple[str, int], set[str]]) -> None:
        kinds = told.get((one.source_id, one.start_ms), set())
        if one.needs_overdue:
            assert "overdue" in kinds, (self.now, one, kinds)
        elif one.state in ("failed", "quarantined"):
            assert "quarantine" in kinds, (self.now, one, kinds)
        else:
            assert one.is_settled or not one.is_late, (self.now, one)
            assert "overdue" not in kinds, (self.now, one, kinds)

    @property
    def now(self) -> str:
        return datetime.fromtimestamp(self.clock.now_ms() / 1000, UTC).isoformat()

    @staticmethod
    def start_ms(text: str) -> int:
        return int(datetime.fromisoformat(text).timestamp() * 1000)

    def told_of(self) -> dict[tuple[str, int], set[str]]:
        """The windows that open incidents are about, and of which kinds."""
        found: dict[tuple[str, int], set[str]] = defaultdict(set)
        for source_id, start_ms, kind in self.rows(
            "SELECT s.source_id, s.window_start_ms, i.kind FROM incident_subjects s"
            " JOIN incidents i ON i.cause = s.cause WHERE i.state = 'open'"
        ):
            found[source_id, start_ms].add(kind)
        return found

    def told(self) -> list[dict[str, Any]]:
        """What the hook got, in order."""
        path = self.folder / "told.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


# --- upstream --------------------------------------------------------------------------


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    script: Script
    clock: StoryClock


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, format: str, *args: Any) -> None: ...

    def do_GET(self) -> None:
        """Each day is one page; after it there is a page of nothing."""
        path, _, query = self.path.partition("?")
        body = self.server.script.body(path.split("/")[1], self.server.clock.now_ms())
        if body is not None and query != "page=1":
            body = b"[]"
        self.send_response_only(404 if body is None else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body or b"")))
        self.end_headers()
        self.wfile.write(body or b"")


@contextmanager
def upstream(script: Script, clock: StoryClock) -> Iterator[str]:
    """Answers by the script and its time; the address."""
    with _Server(("127.0.0.1", 0), _Handler) as server:
        server.script, server.clock = script, clock
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
