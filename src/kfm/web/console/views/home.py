"""The first page: what needs someone, by cause; what runs and what comes; how every dataset is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from statistics import median

import msgspec

from kfm.datasets.completeness import CompletenessReader
from kfm.model.breaker import recovered_at_ms
from kfm.model.completeness import DatasetHealth, WindowVerdict
from kfm.model.quantities import counted, duration, moment
from kfm.model.records import Lock, Record, Run
from kfm.model.schedules import due_ms, next_instant
from kfm.reports.coverage import cause_text
from kfm.reports.feeds import comes_back
from kfm.reports.needs import Need, headline, needs
from kfm.reports.next_steps import held_of_run
from kfm.web.console.actions import Offer, about_run, circuit, offer, plan
from kfm.web.console.state_words import Word, word
from kfm.web.console.views import board
from kfm.web.console.views.coverage import DAY_MS, worst_word
from kfm.web.console.views.schedules import pattern, refused_then
from kfm.web.console.visit import Link, Visit, short

AHEAD_MS = DAY_MS
ACTS_MAX = 2  # of a cause; its pages have the others
AHEAD_SHOWN_MAX = 12
RUNNING_SHOWN_MAX = 100
USUAL_OF = 20  # runs of a source, from which its usual time is told
DAYS = 30
NOTHING = Word(text="no window", tone="faint", sign="")
_WORDS = {
    "shown": "failing",
    "halted": "stopped",
    "circuit": "circuit open",
    "given up": "dead letter",
    "frozen": "paused",
    "approval": "waiting for approval",
}


class NeedRow(Record, frozen=True):
    word: Word
    names: tuple[Link, ...]
    more_names: int
    what: str
    facts: str
    since_ms: int | None
    links: tuple[Link, ...]
    actions: tuple[Offer, ...]
    command: str
    dataset_id: str = ""  # a masked one that it is about: texts of it are withheld


class Running(Record, frozen=True):
    name: str
    href: str
    since_ms: int
    facts: str
    is_slow: bool
    action: Offer


class Due(Record, frozen=True):
    at_ms: int | None  # None: as soon as a runner is free
    what: str
    why: str
    href: str
    is_refused: bool = False


class Cell(Record, frozen=True):
    word: Word
    title: str


class DatasetLine(Record, frozen=True):
    dataset_id: str
    href: str
    word: Word
    age: str
    why: str
    version: int | None
    days: tuple[Cell, ...]


class Home(Record, frozen=True):
    sentence: str
    tone: str
    needs: tuple[NeedRow, ...]
    running: tuple[Running, ...]
    due: tuple[Due, ...]
    due_more: bool
    notes: tuple[str, ...]
    datasets: tuple[DatasetLine, ...]
    legend: tuple[Word, ...]
    first_day: str
    is_new: bool
    schedules_href: str
    waiting_href: str
    board: Link


def view(visit: Visit) -> Home:
    settings, reader = visit.context.settings, visit.reader
    completeness = visit.completeness()
    lines, healths = _datasets(visit, completeness)
    found = needs(settings, reader, completeness, visit.now_ms, healths)
    rows = tuple(_need(visit, each) for each in found)
    coming = _alike(sorted(_ahead(visit), key=lambda each: (each.at_ms or 0, each.what)))
    seen = {cell.word.text: cell.word for line in lines for cell in line.days if cell.word is not NOTHING}
    worst = next((each.kind for each in found), None)
    is_new = not reader.runs(limit=1) and not reader.unit_figures()
    return Home(
        sentence="Nothing has run yet." if is_new and not found else headline(healths, found),
        tone="good" if worst is None else "warn" if found[0].is_on_purpose else "bad",
        needs=rows,
        running=tuple(_running(visit)),
        due=tuple(coming[:AHEAD_SHOWN_MAX]),
        due_more=len(coming) > AHEAD_SHOWN_MAX,
        notes=tuple(_notes(visit)),
        datasets=tuple(lines),
        legend=tuple(seen.values()),
        first_day=moment(visit.now_ms // DAY_MS * DAY_MS - (DAYS - 1) * DAY_MS)[:10],
        is_new=is_new,
        schedules_href=visit.href("schedules"),
        waiting_href=visit.href("requests", state="open"),
        board=Link(text=board.summary(visit), href=visit.href("board")),
    )


def _notes(visit: Visit) -> Iterator[str]:
    for each in visit.reader.breakers():
        if each.state == "closed" and each.closed_at_ms is not None and recovered_at_ms(each) > visit.now_ms:
            until = moment(recovered_at_ms(each))
            yield f"{each.provider} has recovered; the work that waited starts until {until}."
    if parts := sorted(visit.context.live.problems):
        yield (
            f"The files of the configuration can't be used for: {', '.join(parts)}. What was read last "
            "stays in force; `kfm config check` names the line."
        )


# --- what needs someone ------------------------------------------------------------------


def _need(visit: Visit, need: Need) -> NeedRow:
    count = counted(need.count, need.unit) if need.count else ""
    links = tuple(_links(visit, need))
    names = tuple(Link(text=name, href=_about(visit, need, name)) for name in need.about[:3])
    return NeedRow(
        word=word(_WORDS.get(need.kind, need.kind)),
        names=names,
        more_names=max(len(need.about) - len(names), 0),
        what=need.what,
        facts=" · ".join(part for part in (count, need.by and f"by {need.by}", need.then) if part),
        since_ms=need.since_ms,
        links=links,
        actions=tuple(islice(_actions(visit, need), ACTS_MAX - len(links))),
        command=need.command,
        dataset_id="" if need.kind == "circuit" else next(filter(visit.visibility.hides, need.about), ""),
    )


def _about(visit: Visit, need: Need, name: str) -> str:
    if need.kind == "circuit":
        return f"{visit.href('board')}#circuits"
    known = name in {each.id for each in visit.context.settings.datasets}
    return visit.dataset_page(name) if known else visit.href("datasets")


def _links(visit: Visit, need: Need) -> Iterator[Link]:
    if need.run_id is not None:
        yield Link(text="Explain", href=visit.run(need.run_id))
    elif need.incident_id is not None:
        yield Link(text="Incident", href=visit.at("incidents", need.incident_id))
    elif need.kind in ("late", "incomplete"):
        one = visit.dataset_page(need.about[0]) + "#open"
        yield Link(text="Windows", href=one if len(need.about) == 1 else visit.href("datasets"))
    elif need.kind == "given up":
        one = visit.href("held", dataset=need.about[0])
        yield Link(text="Entries", href=one if len(need.about) == 1 else visit.href("held"))
    elif need.kind == "paused" and not need.scope:
        yield Link(text="Schedules", href=visit.href("schedules"))


def _planned(visit: Visit, need: Need) -> Iterator[Offer]:
    """The exact set that would be brought back."""
    name = need.about[0] if len(need.about) == 1 else None
    code = need.what.partition(":")[0]
    known = {each.id for each in visit.context.settings.datasets}
    if need.unit == "object" or (need.kind == "failing" and name not in known):
        ingest = visit.context.settings.ingest
        standing = "quarantined" if need.kind == "given up" and not need.is_spent else "failed"
        if all(comes_back(each, standing, code, ingest) for each in need.about):
            yield plan(
                visit, f"Replay {need.count}", kind="replay", dataset=name, error=code, mode="backfill"
            )
    elif name not in known or need.count < 1:
        return
    elif need.kind == "failing" and need.count > 1:
        run = visit.reader.run(need.run_id) if need.run_id is not None else None
        held = run is not None and held_of_run(visit.reader, run) is not None
        state = "quarantined" if held else "failed"
        yield plan(visit, f"Retry {need.count}", kind="missing", dataset=name, state=state)
    elif need.kind in ("late", "incomplete"):
        yield plan(visit, f"Backfill {need.count}", kind="missing", dataset=name)


def _actions(visit: Visit, need: Need) -> Iterator[Offer]:
    yield from _planned(visit, need)
    run = visit.reader.run(need.run_id) if need.kind == "failing" and need.run_id is not None else None
    if run is not None:
        yield from about_run(visit, run)[:1]  # its page has the others
    elif need.scope:
        yield offer(visit, "setSwitch", "Resume", scope=need.scope, position="running")
    elif need.kind == "circuit":
        yield from circuit(visit, need.about[0])
    elif need.kind == "shown":
        yield offer(visit, "withdraw", dataset_id=need.about[0])
    elif need.incident_id is not None:
        yield offer(visit, "acknowledgeIncident", incident_id=need.incident_id)
    elif need.request_id is not None:
        for name in ("approve", "reject"):
            yield offer(visit, name, request_id=need.request_id)


# --- what runs, what comes ---------------------------------------------------------------


def _running(visit: Visit) -> Iterator[Running]:
    locks = {lock.holder.run_id: lock for lock in visit.reader.locks() if lock.holder is not None}
    for run in visit.reader.runs(status="running", limit=RUNNING_SHOWN_MAX):
        took_ms, usual_ms = max(visit.now_ms - run.start_time_ms, 0), _usual_ms(visit, run)
        lock = locks.get(run.run_id)
        facts = [
            duration(took_ms),
            f"usually {duration(usual_ms)}" if usual_ms is not None else "",
            f"attempt {run.attempts}" if run.attempts > 1 else "",
            _lease(visit, lock),
        ]
        yield Running(
            name=f"{run.dataset_id} from {run.source_id}",
            href=visit.run(run.run_id),
            since_ms=run.start_time_ms,
            facts=" · ".join(filter(None, facts)),
            is_slow=usual_ms is not None and took_ms > 3 * max(usual_ms, 1000),
            action=offer(visit, "cancelRun", run_id=run.run_id),
        )


def _lease(visit: Visit, lock: Lock | None) -> str:
    if lock is None or lock.holder is None:
        return "no worker has it: the next one takes it over"
    left = max(lock.lease_until_ms - visit.now_ms, 0)
    return f"worker {short(lock.holder.worker_id)}, lease {duration(left)}"


def _usual_ms(visit: Visit, run: Run) -> int | None:
    """The median of what the last runs of its source took."""
    known = visit.reader.runs(source_id=run.source_id, status="success", limit=USUAL_OF)
    took = [one.end_time_ms - one.start_time_ms for one in known if one.end_time_ms is not None]
    return int(median(took)) if took else None


def _ahead(visit: Visit) -> Iterator[Due]:
    """What starts without a person within a day: scheduled times, waiting requests, retries."""
    until_ms = visit.now_ms + AHEAD_MS
    for each in visit.reader.request_reader().requests(state="open", limit=AHEAD_SHOWN_MAX + 1):
        if each.not_before_ms > until_ms:
            continue
        yield Due(
            at_ms=each.not_before_ms if each.not_before_ms > visit.now_ms else None,
            what=each.dataset_id,
            why=each.reason or f"request by {each.kind}",
            href=visit.at("requests", each.request_id),
        )
    for waiting in visit.reader.waiting(until_ms, limit=AHEAD_SHOWN_MAX + 1):
        at_ms = waiting.state.not_before_ms
        yield Due(
            at_ms=at_ms if at_ms and at_ms > visit.now_ms else None,
            what=waiting.run.dataset_id,
            why=f"retry after attempt {waiting.state.attempt}: {waiting.state.error_class}",
            href=visit.run(waiting.run.run_id),
        )
    yield from _scheduled(visit, until_ms)


def _alike(found: Sequence[Due]) -> list[Due]:
    """Those at one time for one reason are one line."""
    together: dict[tuple[int | None, str], list[Due]] = {}
    for each in found:
        together.setdefault((each.at_ms, each.why), []).append(each)
    lines = []
    for several in together.values():
        names = list(dict.fromkeys(each.what for each in several))
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        times = f" ×{len(several)}" if len(several) > len(names) else ""
        lines.append(msgspec.structs.replace(several[0], what=f"{', '.join(names[:3])}{more}{times}"))
    return lines


def _scheduled(visit: Visit, until_ms: int) -> Iterator[Due]:
    """The next scheduled time of each schedule, also of those that will come to nothing, and why."""
    states = visit.reader.schedule_reader().states()
    sources = {source.id: source for source in visit.context.settings.sources}
    for each in visit.context.schedules:
        at_ms = next_instant(each, visit.now_ms) if each.enabled else None
        if at_ms is None or due_ms(each, at_ms) > until_ms:
            continue
        refused = refused_then(visit, each, states.get(each.id), at_ms)
        yield Due(
            at_ms=due_ms(each, at_ms),
            what=sources[each.source].dataset if each.source in sources else each.source,
            why=refused or f"schedule, {pattern(each)}",
            href=visit.at("schedules", each.id),
            is_refused=bool(refused),
        )


# --- how every dataset is ----------------------------------------------------------------


def _datasets(
    visit: Visit, completeness: CompletenessReader
) -> tuple[list[DatasetLine], list[DatasetHealth]]:
    heads = {head.dataset_id: head for head in visit.reader.heads()}
    today_ms = visit.now_ms // DAY_MS * DAY_MS
    lines, healths = [], []
    for name in dict.fromkeys([*completeness.names(), *sorted(heads)]):
        coverage = completeness.coverage(name, today_ms - (DAYS - 1) * DAY_MS, today_ms + DAY_MS)
        health, head = coverage.health, heads.get(name)
        newest_ms = health.newest_ms
        lines.append(
            DatasetLine(
                dataset_id=name,
                href=visit.dataset_page(name),
                word=word(health.state),
                age=duration(visit.now_ms - newest_ms) if newest_ms and newest_ms < visit.now_ms else "",
                why=cause_text(health.causes[0]) if health.causes else "",
                version=head.sequence if head else None,
                days=tuple(_days(coverage.windows, today_ms)),
            )
        )
        healths.append(health)
    return lines, healths


def _days(windows: Sequence[WindowVerdict], today_ms: int) -> Iterator[Cell]:
    """The last days, each with the worst of its windows."""
    first_ms = today_ms - (DAYS - 1) * DAY_MS
    by_day: dict[int, list[WindowVerdict]] = {}
    for one in windows:
        if not one.is_all_time and one.start_ms >= first_ms:
            by_day.setdefault(one.start_ms // DAY_MS, []).append(one)
    for number in range(DAYS):
        at_ms = first_ms + number * DAY_MS
        found = by_day.get(at_ms // DAY_MS, [])
        shown = worst_word([word(one.state) for one in found]) if found else NOTHING
        yield Cell(word=shown, title=f"{moment(at_ms)[:10]}: {_told(shown, [one.state for one in found])}")


def _told(shown: Word, states: Sequence[str]) -> str:
    """The word of a day; of several windows how many are in each state, that word first."""
    if len(states) < 2:
        return shown.text
    counts = Counter(word(one).text for one in states)
    return ", ".join(f"{counts[text]} {text}" for text in sorted(counts, key=lambda one: one != shown.text))
