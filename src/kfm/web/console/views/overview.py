"""The first page: blockers, what runs, what comes next, what failed."""

from __future__ import annotations

from collections.abc import Iterator

from kfm.datasets.completeness import CompletenessReader
from kfm.model.quarantine import QuarantineEntry
from kfm.model.records import Invocation, Lock, Record, Run
from kfm.model.schedules import due_ms, next_instant
from kfm.reports.blockers import OPERATOR, blocking_gate, failures
from kfm.reports.next_steps import step_of_held, step_of_run
from kfm.web.console import state_words
from kfm.web.console.state_words import Word, word
from kfm.web.console.views import blockers
from kfm.web.console.views.schedules import pattern
from kfm.web.console.visit import Visit, short

HELD_SHOWN_MAX = 10
SHOWN_MAX = 20
AHEAD_MS = 7 * 86_400_000
DUE_SHOWN_MAX = 6  # of each kind


class Headline(Record, frozen=True):
    word: Word
    sentence: str
    who: str | None = None
    command: str | None = None


class Figure(Record, frozen=True):
    name: str
    count: int
    more: bool
    tone: str
    anchor: str


class Running(Record, frozen=True):
    run_id: str
    href: str
    dataset_id: str
    source_id: str
    attempt: int
    since_ms: int
    holder: str | None
    lease_left_ms: int


class Failed(Record, frozen=True):
    word: Word
    run_id: str
    href: str
    dataset_id: str
    source_id: str
    start_ms: int
    end_ms: int
    error_code: str
    attempts: int
    ended_ms: int | None
    command: str


class HeldRow(Record, frozen=True):
    href: str
    id: str
    word: Word
    dataset_id: str
    error_code: str
    since_ms: int
    command: str


class DatasetRow(Record, frozen=True):
    dataset_id: str
    href: str
    word: Word | None
    blocked_by: str
    version: int | None
    promoted_ms: int | None
    asked_ms: int | None
    run_href: str | None
    run_id: str
    health: Word


class Overview(Record, frozen=True):
    headline: Headline
    figures: tuple[Figure, ...]
    running: tuple[Running, ...]
    due: tuple[Due, ...]
    blocked: tuple[blockers.ShownBlocker, ...]
    failed: tuple[Failed, ...]
    failed_more: int
    held: tuple[HeldRow, ...]
    held_count: int
    breakers: int
    recovering: tuple[str, ...]
    incidents: tuple[blockers.ShownTrouble, ...]
    approvals: tuple[blockers.ShownTrouble, ...]
    datasets: tuple[DatasetRow, ...]
    runs_href: str
    failed_href: str
    due_more: bool
    waiting_href: str
    held_href: str
    schedules_href: str


def view(visit: Visit) -> Overview:
    reader = visit.reader
    locks = {lock.holder.run_id: lock for lock in reader.locks() if lock.holder is not None}
    running = [
        _running(visit, run, locks.get(run.run_id)) for run in reader.runs(status="running", limit=100)
    ]
    blocked = blockers.blockers(visit)
    completeness = visit.completeness()
    failed = failures(completeness, reader)
    held = reader.held(state="held", limit=HELD_SHOWN_MAX)
    figures = reader.ahead()
    silences = reader.silences()
    incidents = [
        blockers.incident(visit, each, silences) for each in reader.incidents(state="open", limit=SHOWN_MAX)
    ]
    asked = [blockers.approval(visit, each) for each in reader.approvals(state="requested", limit=SHOWN_MAX)]
    coming, coming_more = due(visit)
    shown = [_failed(visit, run) for run in failed[: blockers.FAILED_SHOWN_MAX]]
    open_breakers = sum(each.kind == "breaker" for each in blocked)
    return Overview(
        headline=_headline(visit, blocked, shown, incidents),
        figures=(
            _figure("running", len(running), "busy", "running"),
            _figure("due", len(coming), "quiet", "due", more=coming_more),
            _figure("blockers", len(blocked), "warn", "blocked"),
            _figure("failed", len(failed), "bad", "failed"),
            _figure("quarantined", figures.held, "bad", "held"),
            _figure("circuits open", open_breakers, "warn", "blocked"),
            _figure("incidents", len(incidents), "bad", "incidents"),
            _figure("approvals", len(asked), "warn", "approvals"),
        ),
        running=tuple(running),
        due=tuple(coming),
        blocked=tuple(blocked),
        failed=tuple(shown),
        failed_more=max(len(failed) - len(shown), 0),
        held=tuple(_held(visit, each) for each in held),
        held_count=figures.held,
        breakers=open_breakers,
        recovering=tuple(blockers.recovering(visit)),
        incidents=tuple(incidents),
        approvals=tuple(asked),
        datasets=tuple(_datasets(visit, completeness)),
        runs_href=visit.href("runs"),
        due_more=coming_more,
        waiting_href=visit.href("requests", state="open"),
        failed_href=visit.href("runs", status="failed"),
        held_href=visit.href("held"),
        schedules_href=visit.href("schedules"),
    )


def _figure(name: str, count: int, tone: str, anchor: str, *, more: bool = False) -> Figure:
    return Figure(name=name, count=count, more=more, tone=tone if count else "none", anchor=anchor)


def _headline(
    visit: Visit,
    blocked: list[blockers.ShownBlocker],
    failed: list[Failed],
    incidents: list[blockers.ShownTrouble],
) -> Headline:
    """The first thing to act on, in the order of `kfm status`: what is paused on purpose hides nothing that
    fails elsewhere.

    A refusal that waits for an approval comes last: it may last for long, and must not hide anything else.
    """
    hard = [each for each in blocked if each.kind not in ("replays", "refusal")]
    paused = [each for each in hard if each.is_on_purpose]
    for each in hard:
        if not each.is_on_purpose:
            return _blocked(each)
    for run in failed:
        if any(run.dataset_id in each.holds for each in paused):
            continue
        what = (
            f"Run {short(run.run_id)} of {run.dataset_id} from {run.source_id} ended with {run.error_code}."
        )
        return Headline(word=run.word, sentence=what, who=OPERATOR, command=run.command)
    for trouble in incidents:
        sentence = f"Incident about {trouble.name}: {trouble.text}."
        return Headline(word=trouble.word, sentence=sentence, who=OPERATOR, command=trouble.command)
    for each in (*paused, *(each for each in blocked if each.kind == "refusal")):
        return _blocked(each)
    if parts := sorted(visit.context.live.problems):
        sentence = f"The files of the configuration can't be used for: {', '.join(parts)}."
        return Headline(
            word=state_words.word("failed"),
            sentence=f"{sentence} What was read last stays in force; the log has the line.",
            who="an operator",
            command="kfm config check",
        )
    if not visit.reader.runs(limit=1) and not visit.reader.unit_figures():
        return Headline(
            word=state_words.word("upcoming"),
            sentence="Nothing has run yet.",
            who="an operator",
            command="kfm run" if visit.context.settings.sources else "kfm init",
        )
    return Headline(word=state_words.word("clear"), sentence="Nothing is blocked, and nothing has failed.")


def _blocked(each: blockers.ShownBlocker) -> Headline:
    sentence = f"{each.what[:1].upper()}{each.what[1:]}: {each.why}".rstrip(".") + "."
    return Headline(word=each.word, sentence=sentence, who=each.who, command=each.command)


def _running(visit: Visit, run: Run, lock: Lock | None) -> Running:
    return Running(
        run_id=short(run.run_id),
        href=visit.run(run.run_id),
        dataset_id=run.dataset_id,
        source_id=run.source_id,
        attempt=run.attempts,
        since_ms=run.start_time_ms,
        holder=short(lock.holder.worker_id) if lock and lock.holder else None,
        lease_left_ms=max(lock.lease_until_ms - visit.now_ms, 0) if lock else 0,
    )


def _failed(visit: Visit, run: Run) -> Failed:
    step = step_of_run(visit.reader, run, visit.now_ms, visit.context.settings)
    return Failed(
        word=state_words.of_run(visit.reader, run),
        run_id=short(run.run_id),
        href=visit.run(run.run_id),
        dataset_id=run.dataset_id,
        source_id=run.source_id,
        start_ms=run.window_start_ms,
        end_ms=run.window_end_ms,
        error_code=run.error_code or "an error",
        attempts=run.attempts,
        ended_ms=run.end_time_ms,
        command=step.command if step else "",
    )


def _held(visit: Visit, held: QuarantineEntry) -> HeldRow:
    step = step_of_held(visit.reader, held, visit.now_ms, visit.context.settings)
    return HeldRow(
        href=visit.at("held", held.held_id),
        id=short(held.held_id),
        word=state_words.of_quarantined(held.kind, held.state),
        dataset_id=held.dataset_id,
        error_code=held.error_code,
        since_ms=held.held_at_ms,
        command=step.command if step else f"kfm quarantine show {short(held.held_id)}",
    )


def _datasets(visit: Visit, completeness: CompletenessReader) -> list[DatasetRow]:
    heads = {head.dataset_id: head for head in visit.reader.heads()}
    rows = []
    for name in dict.fromkeys([*completeness.names(), *sorted(heads)]):
        head, call_of = heads.get(name), visit.reader.newest_invocation(name)
        rows.append(
            DatasetRow(
                dataset_id=name,
                href=visit.dataset_page(name),
                word=state_words.of_invocation(call_of.outcome) if call_of else None,
                blocked_by=_blocked_by(visit, call_of) if call_of else "",
                version=head.sequence if head else None,
                promoted_ms=head.promoted_at_ms if head else None,
                asked_ms=call_of.requested_at_ms if call_of else None,
                run_href=_last_href(visit, call_of),
                run_id=_last_name(call_of),
                health=word(completeness.health(name).state),
            )
        )
    return rows


def _blocked_by(visit: Visit, call: Invocation) -> str:
    """The gate that refused the invocation, where it would refuse it again now."""
    if call.outcome != "refused" or call.run_id is not None:
        return ""
    gate = blocking_gate(call, visit.context.settings, visit.reader.switches(), visit.now_ms)
    return gate.gate if gate else ""


def _last_href(visit: Visit, call: Invocation | None) -> str | None:
    """The page of the run; of a refused invocation, which has no run, its own page."""
    if call is None:
        return None
    return visit.run(call.run_id) if call.run_id else visit.at("calls", call.invocation_id)


def _last_name(call: Invocation | None) -> str:
    if call is None:
        return ""
    return f"run {short(call.run_id)}" if call.run_id else f"invocation {short(call.invocation_id)}"


class Due(Record, frozen=True):
    at_ms: int | None  # None: as soon as a runner is free
    word: Word
    what: str
    why: str
    href: str | None
    link: str = ""


def due(visit: Visit) -> tuple[list[Due], bool]:
    """What comes next, the earliest first: a few of each kind; of each schedule its next scheduled time."""
    found, more = [], False
    for kind in (_requests(visit), _retries(visit), _scheduled_times(visit)):
        several = sorted(kind, key=lambda each: (each.at_ms or 0, each.what))
        found += several[:DUE_SHOWN_MAX]
        more = more or len(several) > DUE_SHOWN_MAX
    return sorted(found, key=lambda each: (each.at_ms or 0, each.what)), more


def _scheduled_times(visit: Visit) -> Iterator[Due]:
    paused = {
        name
        for name, state in visit.reader.schedule_reader().states().items()
        if state.paused_at_ms is not None
    }
    sources = {source.id: source for source in visit.context.settings.sources}
    for each in visit.context.schedules:
        at_ms = next_instant(each, visit.now_ms) if each.enabled and each.id not in paused else None
        if at_ms is None:
            continue
        dataset = sources[each.source].dataset if each.source in sources else ""
        yield Due(
            at_ms=due_ms(each, at_ms),
            word=word("upcoming"),
            what=f"{dataset or each.source} from {each.source}",
            why=f"schedule, {pattern(each)}",
            href=visit.at("schedules", each.id),
            link=each.id,
        )


def _requests(visit: Visit) -> Iterator[Due]:
    for each in visit.reader.request_reader().requests(state="open", limit=DUE_SHOWN_MAX + 1):
        yield Due(
            at_ms=each.not_before_ms if each.not_before_ms > visit.now_ms else None,
            word=word("waiting"),
            what=f"{each.dataset_id} from {each.source_id}",
            why=each.reason or f"request by {each.kind}",
            href=visit.at("requests", each.request_id),
            link=short(each.request_id),
        )


def _retries(visit: Visit) -> Iterator[Due]:
    for each in visit.reader.waiting(visit.now_ms + AHEAD_MS, limit=DUE_SHOWN_MAX + 1):
        at_ms = each.state.not_before_ms
        yield Due(
            at_ms=at_ms if at_ms and at_ms > visit.now_ms else None,
            word=word("waiting"),
            what=f"{each.run.dataset_id} from {each.run.source_id}",
            why=f"retry after attempt {each.state.attempt}: {each.state.error_class}",
            href=visit.run(each.run.run_id),
            link=short(each.run.run_id),
        )
