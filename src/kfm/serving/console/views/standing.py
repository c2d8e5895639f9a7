"""What stands in the way: each blocker with what it blocks, since when, who can lift it and the command."""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote

from kfm.core.breaker import Breaker, recovered_at_ms, wait_ms
from kfm.core.gates import cause_and_remedy, freeze_gate, freeze_span_ms, switch_command
from kfm.core.holding import Approval
from kfm.core.incidents import SEVERITY, Incident
from kfm.core.records import Record, Run, Switch
from kfm.core.times import rfc3339
from kfm.core.wording import counted, moment
from kfm.serving.console.visits import Visit, short
from kfm.serving.console.words import Word, word

RUNS_SEEN_MAX = 500
FAILED_SHOWN_MAX = 20
OPERATOR = "an operator"


class Blocker(Record, frozen=True):
    """One thing that keeps work from beginning."""

    word: Word
    what: str  # is blocked
    why: str
    since_ms: int | None
    who: str
    command: str


class Trouble(Record, frozen=True):
    word: Word
    name: str
    text: str
    since_ms: int
    command: str


def blockers(visit: Visit) -> list[Blocker]:
    """The hardest first."""
    switches = [each for each in visit.reader.switches() if each.position != "running"]
    switches.sort(key=lambda each: (each.position != "stopped", each.scope != "all", each.set_at_ms))
    found = [*map(_switch, switches), *_freezes(visit), *_halts(visit)]
    return [
        *found,
        *(_breaker(each, visit.now_ms) for each in visit.reader.breakers() if each.state != "closed"),
    ]


def _switch(switch: Switch) -> Blocker:
    kind, _, name = switch.scope.partition(":")
    what = {"all": "everything", "replays": f"replays of {name}"}.get(kind, f"{kind} {name}")
    return Blocker(
        word=word(switch.position),
        what=what,
        why=f"Kill switch, {switch.position} by {switch.actor}: {switch.rationale}",
        since_ms=switch.set_at_ms,
        who=OPERATOR,
        command=switch_command(switch.scope),
    )


def _freezes(visit: Visit) -> Iterator[Blocker]:
    settings = visit.place.settings
    for dataset in settings.datasets if settings.freezes else ():
        gate = freeze_gate(settings.freezes, dataset.id, dataset.domain, visit.now_ms)
        if gate.allowed:
            continue
        since = [start for start, end in map(freeze_span_ms, settings.freezes) if start <= visit.now_ms < end]
        yield Blocker(
            word=word("blocked"),
            what=f"dataset {dataset.id}",
            why=cause_and_remedy(gate)[0],
            since_ms=max(since, default=None),
            who="nobody need: it ends by itself; an operator can pass it",
            command=f"kfm run --source {_source_of(visit, dataset.id)} --force --rationale TEXT --ticket ID",
        )


def _source_of(visit: Visit, dataset_id: str) -> str:
    return next((each.id for each in visit.place.settings.sources if each.dataset == dataset_id), "ID")


def _halts(visit: Visit) -> Iterator[Blocker]:
    for dataset in visit.place.settings.datasets:
        held = visit.reader.halted(dataset.id)
        if held is not None:
            yield Blocker(
                word=word("blocked"),
                what=f"dataset {dataset.id}",
                why=f"Halted for review after run {short(held.subject)}: {held.error_code}",
                since_ms=held.held_at_ms,
                who="an operator asks, somebody else approves",
                command=f"kfm quarantine release {short(held.held_id)} --rationale TEXT",
            )


def _breaker(breaker: Breaker, now_ms: int) -> Blocker:
    tried = breaker.state == "half-open"
    again = "" if tried else f"; tried again at {moment(now_ms + wait_ms(breaker, now_ms))}"
    return Blocker(
        word=word("being tried" if tried else "left alone"),
        what=f"provider {breaker.provider}",
        why=f"Its circuit is open after {counted(breaker.failures, 'failure')} in a row{again}",
        since_ms=breaker.tripped_at_ms,
        who="nobody need: it is tried by itself; an operator can close it",
        command=f"kfm breaker reset {quote(breaker.provider)} --rationale TEXT",
    )


def recovering(visit: Visit) -> list[str]:
    """Providers that are back, while what waited for them is let go bit by bit."""
    return [
        f"{each.provider} is called as usual; what waited comes back until {moment(recovered_at_ms(each))}"
        for each in visit.reader.breakers()
        if each.state == "closed" and each.closed_at_ms is not None and recovered_at_ms(each) > visit.now_ms
    ]


# --- failures ----------------------------------------------------------------------------


def failures(visit: Visit) -> list[Run]:
    """The newest run of each piece of work, where that failed: what a later one mended needs nobody."""
    failed = visit.reader.runs(status="failed", limit=RUNS_SEEN_MAX)
    if not failed:
        return []
    newest: dict[tuple[object, ...], Run] = {}
    for run in [*visit.reader.runs(limit=RUNS_SEEN_MAX), *failed]:
        held = newest.setdefault(_work(run), run)
        if (run.start_time_ms, run.revision) > (held.start_time_ms, held.revision):
            newest[_work(run)] = run
    known = {source.id for source in visit.place.settings.sources}
    return [run for run in failed if newest[_work(run)].run_id == run.run_id and run.source_id in known]


def _work(run: Run) -> tuple[object, ...]:
    return (run.source_id, run.window_start_ms, run.window_end_ms, run.partition)


def retry_command(visit: Visit, run: Run) -> str:
    """Asks for exactly this run's work again, with a reason where its budget is spent."""
    from kfm.core.grants import is_spent

    window = f"{rfc3339(run.window_start_ms)}/{rfc3339(run.window_end_ms)}"
    spent = is_spent(run, visit.reader.retry_state(run.run_id), visit.now_ms)
    return f"kfm run --source {run.source_id} --window {window}" + (
        " --rationale TEXT --ticket ID" if spent else ""
    )


# --- incidents, approvals ----------------------------------------------------------------


def incident(each: Incident) -> Trouble:
    if each.about == "provider":
        text = f"left alone after {counted(each.affected, 'failure')} in a row"
    else:
        text = f"{each.error_code} ({each.error_class}), {counted(each.affected, 'run')}, {each.kind}"
    return Trouble(
        word=word(SEVERITY[each.kind]),
        name=f"{each.about} {each.name}",
        text=text,
        since_ms=each.opened_at_ms,
        command=f"kfm incident show {short(each.incident_id)}",
    )


def approval(each: Approval) -> Trouble:
    about = each.about or f"{each.kind} of {short(each.subject)}"
    return Trouble(
        word=word("approval needed"),
        name=about,
        text=f"asked for by {each.requested_by}: {each.rationale}",
        since_ms=each.requested_at_ms,
        command=f"kfm approve {each.request_id} --rationale TEXT",
    )
