"""What became of every instant that a schedule expects: drawn from the schedule, not from rows that exist."""

from __future__ import annotations

from itertools import groupby, islice

from kfm.core.records import Record
from kfm.core.requests import UpdateRequest
from kfm.core.schedule_coverage import Expected, coverage, is_unknown
from kfm.core.schedule_states import ScheduleState
from kfm.core.schedules import Schedule, instants, latest_instants
from kfm.core.wording import moment
from kfm.serving.console import words
from kfm.serving.console.views.requests import ended
from kfm.serving.console.visits import Visit
from kfm.serving.console.words import Word, word

ROWS_MAX = 10_000
SPOTS_MAX = 10_000
SINGLY_MAX = 100  # requests that are asked for one by one
TOGETHER_MIN = 10  # so many of the same fate, one after the other, are told in one row
RECENT, COMING = 300, 60  # instants that are shown of what fires often
DAY_MS = 86_400_000
_FATES = {"coming": "ahead", "pending": "waiting", "held": "paused"}
_WITHOUT = {
    "unaccounted": "it is past, and nobody has left a word of it",
    "pending": "it is due just now",
    "held": "it waits until the schedule is resumed",
}


class Spot(Record, frozen=True):
    """One instant."""

    at_ms: int
    word: Word
    start_ms: int
    end_ms: int
    reason: str
    href: str | None
    title: str


class Stretch(Record, frozen=True):
    """A row of the table: one instant, or several in a row that became the same without a request."""

    first_ms: int
    last_ms: int
    count: int
    word: Word
    start_ms: int
    end_ms: int
    reason: str
    href: str | None
    title: str


def spots(
    visit: Visit, schedule: Schedule, state: ScheduleState | None, start_ms: int, end_ms: int
) -> list[Spot]:
    """The instants of a span with what became of each, in order."""
    reader = visit.reader.schedule_reader()
    known = reader.instants(schedule.id, start_ms, end_ms, limit=ROWS_MAX)
    first = reader.instants(schedule.id, 0, visit.now_ms, limit=1)
    watched_ms = first[0].instant_ms if first else None
    expected = coverage(
        schedule,
        visit.place.settings.source(schedule.source),
        known,
        start_ms,
        end_ms,
        state=state,
        now_ms=visit.now_ms,
        late_ms=round(visit.place.settings.serve.late_seconds * 1000),
        limit=SPOTS_MAX,
    )
    wanted = [each.request_id for each in expected if each.request_id]
    asked = _requests(visit, schedule.id, wanted)
    return [_spot(visit, each, watched_ms, asked) for each in expected]


def _requests(visit: Visit, schedule_id: str, wanted: list[str]) -> dict[str, UpdateRequest]:
    reader = visit.reader.request_reader()
    found = {}
    if len(wanted) > SINGLY_MAX:
        found = {each.request_id: each for each in reader.requests(schedule_id=schedule_id, limit=ROWS_MAX)}
    for name in wanted:
        each = found.get(name) or reader.request(name)
        if each is not None:
            found[name] = each
    return found


def _spot(visit: Visit, each: Expected, watched_ms: int | None, asked: dict[str, UpdateRequest]) -> Spot:
    found = asked.get(each.request_id) if each.request_id else None
    if found is not None:
        mark, reason = words.of_request(found.state, found.outcome), ended(found) or each.reason or ""
    elif is_unknown(each) or (
        each.fate == "unaccounted" and (watched_ms is None or each.instant_ms < watched_ms)
    ):
        mark, reason = word("not known yet"), "no service knew the schedule"
    else:
        mark, reason = word(_FATES.get(each.fate, each.fate)), each.reason or _WITHOUT.get(each.fate, "")
    return Spot(
        at_ms=each.instant_ms,
        word=mark,
        start_ms=each.window_start_ms,
        end_ms=each.window_end_ms,
        reason=reason,
        href=visit.at("requests", found.request_id) if found else None,
        title=f"{moment(each.instant_ms)}: {mark.text}",
    )


def fitting_days(schedule: Schedule, start_ms: int, days: int) -> int:
    """So many days of a span that their instants can be shown; one at least."""
    beyond = next(islice(instants(schedule, start_ms, start_ms + days * DAY_MS), SPOTS_MAX, None), None)
    return days if beyond is None else max((beyond - start_ms) // DAY_MS, 1)


def recent(schedule: Schedule, now_ms: int) -> tuple[int, int]:
    """A span around now for what fires too often for days: the last instants, and a few ahead."""
    past = latest_instants(schedule, 0, now_ms + 1, RECENT)
    coming = list(islice(instants(schedule, now_ms + 1), COMING))
    ends = [*past, *coming] or [now_ms]
    return ends[0], ends[-1] + 1


def from_there(schedule: Schedule, start_ms: int) -> tuple[int, int]:
    """As many of them from a moment on."""
    found = list(islice(instants(schedule, start_ms), RECENT + COMING))
    return start_ms, (found[-1] if found else start_ms) + 1


def before(schedule: Schedule, start_ms: int) -> int:
    """Where as many of them begin that end there."""
    found = latest_instants(schedule, 0, start_ms, RECENT + COMING)
    return found[0] if found else start_ms


def stretches(listed: list[Spot]) -> list[Stretch]:
    """Rows, in the same order. What became a request has a row of its own."""
    rows: list[Stretch] = []
    for _, same in groupby(listed, key=lambda spot: (spot.word.text, spot.reason, spot.href)):
        many = list(same)
        alone = many[0].href is not None or len(many) < TOGETHER_MIN
        rows += [_stretch([spot]) for spot in many] if alone else [_stretch(many)]
    return rows


def _stretch(many: list[Spot]) -> Stretch:
    times = [spot.at_ms for spot in many]
    return Stretch(
        first_ms=min(times),
        last_ms=max(times),
        count=len(many),
        word=many[0].word,
        start_ms=min(spot.start_ms for spot in many),
        end_ms=max(spot.end_ms for spot in many),
        reason=many[0].reason,
        href=many[0].href,
        title=many[0].title,
    )
