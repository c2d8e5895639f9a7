"""From an id, a name or an error code to its explanation."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from msgspec.structs import replace

from kfm.model.dataset_changes import DatasetChange, active, lift_command, span_words
from kfm.model.errors import UsageError, all_errors
from kfm.model.feeds import feed_names
from kfm.model.incidents import Incident
from kfm.model.quantities import moment, stopped
from kfm.model.quarantine import Approval, QuarantineEntry
from kfm.model.records import Invocation, Run
from kfm.model.replays import Replay
from kfm.model.requests import UpdateRequest
from kfm.model.settings import Settings
from kfm.reports.blockers import blockers_of, lifting
from kfm.reports.coverage import cause_text, health_command
from kfm.reports.explain.invocations import explain_invocation, explain_request
from kfm.reports.explain.retired import retired_words
from kfm.reports.explain.runs import explain_attempt, explain_run, newest
from kfm.reports.explain.sentences import Explanation, Ref, Sentence, of_link, of_promotion
from kfm.reports.lookup import (
    SHOWN_CHARS_MAX,
    approvals_in,
    begins_wal_id,
    calls_in,
    find_unit,
    incidents_in,
    only,
    replays_in,
    requests_in,
    runs_in,
)
from kfm.reports.pipeline_runs import find_pass
from kfm.reports.quarantine import held_in
from kfm.reports.runs import word_of_run

if TYPE_CHECKING:
    from kfm.db.ledger_reader import LedgerReader
    from kfm.model.completeness import DatasetHealth
    from kfm.model.schedules import Schedule


_PLACE = re.compile(r"(?P<run>[0-9A-Za-z-]+)(?:#(?P<attempt>[0-9]{1,6}))?(?:/(?P<node>[a-z_-]+))?")
STALE_MAX = 10  # windows that are named
SCHEDULE, PROVIDER = "schedule:", "provider:"  # say what a name is of
_SCHEDULE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}", re.ASCII)
_CODE = re.compile(r"(?i)kfm\d{3}", re.ASCII)
_PASS = re.compile(r"last|[0-9a-fA-F-]{4,36}")  # the newest; an id, or the beginning of one


def explain_subject(
    ledger: LedgerReader,
    tables: Callable[[], Any],
    settings: Settings | None,
    what: str,
    now_ms: int,
    schedules: Callable[[], Sequence[Schedule]] = tuple,
    health: Callable[[str], DatasetHealth] | None = None,
) -> Explanation:
    """The explanation of a run, step, pipeline run, invocation, request, unit, dataset, source, schedule,
    provider, incident, approval or replay.

    `tables` opens the pipeline runs of this environment; without settings it has nothing else. `schedules`
    reads those of the configuration.
    """
    if settings is None:
        found = _in_pipelines(ledger, tables(), what, governed=False)
        assert found is not None
        return found
    names = {one for dataset in settings.datasets for one in dataset.names}
    names |= {source.id for source in settings.sources}
    if begins_wal_id(what) and what not in names:
        return _of_unit(ledger, settings, what, now_ms)
    if what.startswith((SCHEDULE, PROVIDER)):
        return _of_control(ledger, settings, what, now_ms, schedules) or _unknown(what)
    if (named := settings.source_named(what)) is not None:
        what = named.id
    what = settings.dataset_id(what) or what
    datasets = [dataset.id for dataset in settings.datasets]
    if what in feed_names(settings) and what not in datasets and health is not None:
        return Explanation(kind="dataset", id=what, reason=_health_sentence(health(what)), chain=())
    sources = [source.id for source in settings.sources]
    if what in datasets or what in sources:
        other = None
    else:
        other = _of_control(ledger, settings, what, now_ms, schedules) or _in_pipelines(
            ledger, tables(), what
        )
    found = other or explain_record(
        ledger, what, now_ms, datasets=datasets, sources=sources, settings=settings
    )
    if what not in datasets or health is None:
        return found
    return replace(found, chain=(*_health_sentences(health(what)), *found.chain))


def _health_sentences(health: DatasetHealth) -> Iterator[Sentence]:
    """How the dataset is, by all its windows: the same verdict as in every report."""
    if health.state != "paused":  # its explanation begins with that
        yield _health_sentence(health)


def _health_sentence(health: DatasetHealth) -> Sentence:
    causes = "; ".join(map(cause_text, health.causes))
    text = f"Dataset {health.dataset_id} is {health.state}{f': {causes}' if causes else ''}."
    return Sentence(
        text=f"{text} `{health_command(health)}` shows every window.",
        record=Ref(type="dataset", id=health.dataset_id),
    )


def is_code(what: str) -> bool:
    return _CODE.fullmatch(what) is not None


def explain_record(
    ledger: LedgerReader,
    wanted: str,
    now_ms: int,
    *,
    datasets: Collection[str] = (),
    sources: Collection[str] = (),
    settings: Settings | None = None,
) -> Explanation:
    """The explanation of a run, attempt, node, invocation, request, dataset or source. Reads only."""
    place = _PLACE.fullmatch(wanted)
    if place and (place["attempt"] or place["node"]):
        run = _one_run(ledger, place["run"])
        number = int(place["attempt"]) if place["attempt"] else None
        return explain_attempt(ledger, run, number, place["node"] or "")
    run_found = ledger.run(wanted)
    if run_found is not None:
        return explain_run(ledger, run_found, now_ms, settings)
    call = ledger.invocation(wanted)
    if call is not None:
        return _of_call(ledger, call, now_ms, settings)
    known = _now(ledger, wanted, now_ms, datasets, sources, settings)
    if known is not None:
        return known
    found = _beginning_with(ledger, wanted)
    if isinstance(found, Run):
        return explain_run(ledger, found, now_ms, settings)
    if isinstance(found, Invocation):
        return _of_call(ledger, found, now_ms, settings)
    if isinstance(found, UpdateRequest):
        return _of_request(ledger, found, now_ms, settings)
    if isinstance(found, QuarantineEntry):
        return _of_held(ledger, found, settings or Settings(), now_ms)
    return _of_decision(ledger, found, settings or Settings(), now_ms)


def _of_held(ledger: LedgerReader, held: QuarantineEntry, settings: Settings, now_ms: int) -> Explanation:
    """Of quarantined work: of the run, the unit or the request that it is."""
    if held.grain == "unit":
        return _of_unit(ledger, settings, held.subject, now_ms)
    return explain_record(ledger, held.subject, now_ms, settings=settings)


def _of_decision(
    ledger: LedgerReader, found: Incident | Approval | Replay, settings: Settings, now_ms: int
) -> Explanation:
    """Of what a person decides on."""
    from kfm.reports.explain.approvals import explain_approval, explain_replay
    from kfm.reports.explain.incidents import explain_incident

    if isinstance(found, Incident):
        return explain_incident(ledger, settings, found, now_ms)
    if isinstance(found, Approval):
        return explain_approval(ledger, found, now_ms)
    return explain_replay(ledger, settings, found, now_ms)


def _of_request(
    ledger: LedgerReader, request: UpdateRequest, now_ms: int, settings: Settings | None
) -> Explanation:
    run = ledger.run(request.run_id) if request.run_id else None
    lifted_by = ""
    if settings is not None and request.state == "open":
        blockers = blockers_of(settings, ledger, request.dataset_id, now_ms, request.source_id)
        lifted_by = next(map(lifting, blockers), "")
    of_run = explain_run(ledger, run, now_ms, settings) if run else None
    return explain_request(ledger, request, of_run, lifted_by)


def _of_call(ledger: LedgerReader, call: Invocation, now_ms: int, settings: Settings | None) -> Explanation:
    """An invocation that began an attempt is explained with its run; any other by itself."""
    began = call.run_id and any(
        row.invocation_id == call.invocation_id for row in ledger.attempts(call.run_id)
    )
    run = ledger.run(call.run_id) if call.run_id and began else None
    if run is None:
        return explain_invocation(ledger, call)
    of_run = explain_run(ledger, run, now_ms, settings)
    return Explanation(kind="invocation", id=call.invocation_id, reason=of_run.reason, chain=of_run.chain)


# --- a dataset or a source, now --------------------------------------------------------


def _now(
    ledger: LedgerReader,
    wanted: str,
    now_ms: int,
    datasets: Collection[str],
    sources: Collection[str],
    settings: Settings | None,
) -> Explanation | None:
    """Why it is as it is: by the newest invocation or run."""
    of_dataset = wanted in datasets
    found = (ledger.newest_invocation_of_source(wanted), ledger.newest_invocation(wanted))
    calls = [call for call in found if call is not None]
    calls.sort(key=lambda call: call.requested_at_ms, reverse=True)
    runs = ledger.runs(source_id=wanted, limit=1) or ledger.runs(dataset_id=wanted, limit=1)
    if not calls and not runs and not of_dataset and wanted not in sources:
        return None
    of_dataset = of_dataset or wanted in {call.dataset_id for call in calls} | {
        run.dataset_id for run in runs
    }
    ref = Ref(type="dataset" if of_dataset else "source", id=wanted)
    run = newest(runs)
    if calls and (run is None or calls[0].requested_at_ms >= run.start_time_ms):
        newest_one = _of_call(ledger, calls[0], now_ms, settings)
    elif run is not None:
        newest_one = explain_run(ledger, run, now_ms, settings)
    else:
        option = "" if of_dataset else f" --source {wanted}"
        text = f"No run was requested yet ({ref.type}: {wanted}). To start one: `kfm run{option}`."
        return Explanation(
            kind=ref.type,  # type: ignore[arg-type]
            id=wanted,
            reason=Sentence(text=text, record=ref),
            chain=(),
        )
    dataset_id = wanted if of_dataset else calls[0].dataset_id if calls else run.dataset_id if run else wanted
    blocked = _blocked(ledger, ref, dataset_id, settings, now_ms)
    first, *others = [*blocked, *_stale(ledger, ref, settings), newest_one.reason]
    return Explanation(
        kind=ref.type,  # type: ignore[arg-type]
        id=wanted,
        reason=first,
        chain=(*others, *_shown(ledger, dataset_id), *newest_one.chain),
    )


def _shown(ledger: LedgerReader, dataset_id: str) -> list[Sentence]:
    head = ledger.promotions(dataset_id, 1)
    if not head:
        text = f"No evidence of a version of {dataset_id}: readers see nothing."
        return [Sentence(text=text, record=Ref(type="dataset", id=dataset_id))]
    last = head[0]
    changes = ledger.change_reader()
    change = changes.change(last.run_id)
    by = f"run {last.run_id}" if change is None else change_words(change)
    text = f"Readers see version {last.sequence}, promoted at {moment(last.promoted_at_ms)} by {by}."
    withdrawn = [
        Sentence(
            text=f"Withdrawn since version {one.since_sequence}: {span_words(one)}: {stopped(one.reason)} "
            f"It is lifted with `{lift_command(one)}`.",
            record=Ref(type="dataset", id=dataset_id),
        )
        for one in active(changes.withdrawals(dataset_id))
    ]
    return [of_promotion(text, last), *withdrawn]


def change_words(change: DatasetChange) -> str:
    """A person's change, as what made a version."""
    what = {
        "rollback": f"a rollback to version {change.to_sequence}",
        "withdraw": "a withdrawal",
        "lift": "a lifted withdrawal",
        "rename": "a renaming",
    }
    made = what.get(change.kind, "its retirement")
    return f"{made} by {change.actor}, because: {change.rationale.rstrip('.')}"


def _stale(ledger: LedgerReader, ref: Ref, settings: Settings | None) -> list[Sentence]:
    """The windows of a derived dataset or source whose inputs have changed since, the oldest first."""
    if settings is None:
        return []
    from kfm.model.derived import derived_sources
    from kfm.reports.derived import stale_of, stale_sentence

    found = [
        one
        for source in derived_sources(settings)
        if ref.id in (source.id, source.dataset)
        for one in stale_of(ledger, source)
    ]
    sentences = [Sentence(text=stale_sentence(one), record=ref) for one in found[:STALE_MAX]]
    if len(found) > STALE_MAX:
        sentences.append(Sentence(text=f"And {len(found) - STALE_MAX} more windows are stale.", record=ref))
    return sentences


def _blocked(
    ledger: LedgerReader, ref: Ref, dataset_id: str, settings: Settings | None, now_ms: int
) -> list[Sentence]:
    """What keeps new work from beginning now, the hardest first: that comes before all that was done."""
    if settings is None:
        return []
    name = f"{ref.type.capitalize()} {ref.id}"
    sentences = []
    source_id = ref.id if ref.type == "source" else None
    for each in blockers_of(settings, ledger, dataset_id, now_ms, source_id):
        text = f"{name} is {stopped(each.sentence)} {lifting(each)}"
        links = ledger.links(each.scope, limit=1) if each.scope else []
        sentences.append(of_link(text, links[0]) if links else Sentence(text=text, record=ref))
    return sentences


# --- beginnings of ids -------------------------------------------------------------------


def _beginning_with(
    ledger: LedgerReader, wanted: str
) -> Run | Invocation | UpdateRequest | Incident | Approval | Replay | QuarantineEntry:
    found: Run | Invocation | UpdateRequest | Incident | Approval | Replay | QuarantineEntry = only(
        wanted,
        [
            runs_in(ledger),
            calls_in(ledger),
            requests_in(ledger.request_reader()),
            incidents_in(ledger),
            approvals_in(ledger),
            replays_in(ledger.replay_reader()),
            held_in(ledger),
        ],
        "`kfm runs` lists runs, `kfm requests list` requests, `kfm status` datasets; "
        "`kfm show RUN --json` has the ids of invocations.",
        short=_short(wanted),
        none=f"There is no run, request, dataset or other record `{wanted[:SHOWN_CHARS_MAX]}`."
        + retired_words(ledger),
    )
    return found


def _one_run(ledger: LedgerReader, wanted: str) -> Run:
    run: Run = ledger.run(wanted) or only(
        wanted, [runs_in(ledger)], "`kfm runs` lists them.", short=_short(wanted)
    )
    return run


def _short(wanted: str) -> str:
    """Three digits are most likely those of an error code."""
    if re.fullmatch(r"\d{3}", wanted):
        return f"For the error code: `kfm explain KFM{wanted}`."
    return "`kfm runs` lists them."


# --- schedules and providers -------------------------------------------------------------


def _of_control(
    ledger: LedgerReader,
    settings: Settings,
    wanted: str,
    now_ms: int,
    schedules: Callable[[], Sequence[Schedule]],
) -> Explanation | None:
    """Of a schedule or of a provider's breaker; None: it is neither."""
    provider = wanted.removeprefix(PROVIDER)
    if not wanted.startswith(SCHEDULE):
        for breaker in ledger.breakers():
            if breaker.provider == provider:
                from kfm.reports.explain.incidents import explain_breaker

                return explain_breaker(ledger, settings, breaker, now_ms)
    if not _SCHEDULE.fullmatch(wanted.removeprefix(SCHEDULE)):
        return None
    from kfm.reports.explain.schedules import explain_schedule, find_schedule

    schedule = find_schedule(schedules(), wanted)
    return explain_schedule(ledger, settings, schedule, now_ms) if schedule is not None else None


def _unknown(wanted: str) -> NoReturn:
    kind, _, name = wanted.partition(":")
    lists = {"schedule": "kfm schedule list", "provider": "kfm breaker list"}
    raise UsageError(f"There is no {kind} `{name[:SHOWN_CHARS_MAX]}`.", remedy=f"`{lists[kind]}` names them.")


# --- units and pipeline runs -------------------------------------------------------------


def _of_unit(ledger: LedgerReader, settings: Settings, wal_id: str, now_ms: int) -> Explanation:
    from kfm.model.breaker import circuit_name
    from kfm.reports.explain.units import explain_unit, is_catalogued

    reader = ledger.unit_reader()
    stored = find_unit(reader, wal_id)
    wal_id = stored.unit.wal_id
    return explain_unit(
        stored,
        reader.history_of(wal_id),
        ledger.switches(),
        settings,
        now_ms,
        ledger.request_reader().of_unit(wal_id, stored.content_version),
        ledger.breaker(circuit_name(stored.unit.provider)),
        is_catalogued=is_catalogued(ledger, stored.unit),
    )


def _in_pipelines(
    ledger: LedgerReader, tables: Any, what: str, *, governed: bool = True
) -> Explanation | None:
    """The explanation of a pipeline run, or of a node of one; None: it means something else.

    `governed`: there is a configuration, so that a name may be one of its datasets, or of a run.
    """
    run, slash, node = what.partition("/")
    if not slash and not _PASS.fullmatch(run) and governed and tables.get(run) is None:
        return None  # no pipeline run has such an id
    if governed and ledger.run(run) is not None and not slash:
        return None  # a governed run: its pipeline is one part of it
    try:
        found = find_pass(tables, run)
    except UsageError:
        if not governed:
            raise
        return None
    if slash and node not in dict(found.graph):
        if not governed or ledger.run(found.run_id) is None:
            from kfm.model.quantities import did_you_mean

            known = [name for name, _ in found.graph]
            raise UsageError(
                stopped(f"Run {found.run_id} has no node `{node}`{did_you_mean(node, known)}"),
                remedy=f"`kfm graph {found.run_id}` shows them.",
            )
        return None
    from kfm.reports.explain.pipeline_runs import explain_node, explain_pipeline_run

    if not slash:
        return explain_pipeline_run(tables, found)
    whole = ledger.run(found.run_id)
    return explain_node(tables, found, node, whole, word_of_run(ledger, whole) if whole is not None else "")


def error_page(code: str) -> dict[str, Any]:
    from kfm_lint.rules import page as rule_page

    if (rule := rule_page(code)) is not None:
        return rule
    for error in all_errors():
        if error.code == code:
            headline, _, rest = inspect.cleandoc(error.__doc__ or "").partition("\n")
            return {
                "kind": "error",
                "code": code,
                "name": error.__name__,
                "message": headline,
                "page": rest.strip(),
                "remedy": error.remedy,
                "exit_code": error.exit_code,
                "docs": f"docs/reference/errors.md#{code.lower()}",
            }
    from kfm.model.quantities import did_you_mean

    codes = [error.code for error in all_errors()]
    raise UsageError(
        f"There is no error {code}{did_you_mean(code, codes)}",
        remedy="docs/reference/errors.md lists them all.",
    )
