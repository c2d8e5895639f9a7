"""Pages of runs: all, one with its changes and lineage, one invocation."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kfm.model.breaker import Breaker, providers_of
from kfm.model.errors import BackendUnavailable, UsageError
from kfm.model.quantities import counted, duration, span
from kfm.model.records import Found, Promotion, Record, Run
from kfm.model.runs import Attempt
from kfm.publish.manifest import VersionChange, diff, tally
from kfm.reports.explain.inputs import seen
from kfm.reports.explain.runs import READ_MAX, explain_run
from kfm.reports.explain.subjects import explain_record
from kfm.reports.lookup import only, runs_in
from kfm.reports.next_steps import step_of_run
from kfm.reports.state_words import RUNS, is_refusal
from kfm.web.console import state_words
from kfm.web.console.actions import Offer, about_run
from kfm.web.console.state_words import Word
from kfm.web.console.views import explanation
from kfm.web.console.views.explanation import Fact, Next, allowed
from kfm.web.console.views.pipeline_runs import (
    GRAPH_FILTERS,
    Graph,
    NodeSeen,
    PipelineRunView,
    graph,
    pipeline_run_view,
)
from kfm.web.console.views.requests import KINDS
from kfm.web.console.views.run_log import FILTERS as LOG_FILTERS
from kfm.web.console.views.run_log import RunLog, run_log
from kfm.web.console.views.timeline import Timeline, timeline, word_of
from kfm.web.console.visit import (
    ROWS,
    Filter,
    NotHere,
    Paging,
    Visit,
    before_position,
    chosen,
    paged_before,
    short,
)
from kfm.web.problems import log_error

if TYPE_CHECKING:
    from kfm.model.versions import Version

FILTERS = ("dataset", "source", "status", "before")
TABS = ("explanation", "log", "timeline", "graph", "changes", "evidence")
ONE_FILTERS = ("tab", *GRAPH_FILTERS, *LOG_FILTERS)
PHASES = {"transform": "pipeline", "publish": "promote"}  # what the log calls a step
STATUSES = ("running", "success", "failed")
_PREFIX = re.compile(r"[0-9a-f-]{4,36}", re.ASCII | re.IGNORECASE)
RETRIES_SHOWN_MAX = 200
RELATED_MAX = 5
SHOWN_MAX = 100
PROMOTIONS_MAX = 1000


class RunRow(Record, frozen=True):
    run_id: str
    href: str
    word: Word
    dataset_id: str
    dataset_href: str
    source_id: str
    source_href: str
    start_ms: int
    end_ms: int
    revision: int
    attempts: int
    trigger: str
    started_ms: int
    took_ms: int | None
    error_code: str


class RunList(Record, frozen=True):
    filters: tuple[Filter, ...]
    rows: tuple[RunRow, ...]
    paging: Paging
    clear: str


def view(visit: Visit) -> RunList:
    dataset, source = visit.dataset(), visit.source()
    status = visit.choice("status", STATUSES)
    found = visit.reader.runs(
        dataset_id=dataset,
        source_id=source,
        status=status,
        before=before_position(visit.query.get("before")),
        limit=ROWS + 1,
    )
    shown = found[:ROWS]
    last = (shown[-1].start_time_ms, shown[-1].run_id) if len(found) > ROWS else None
    settings = visit.context.settings
    return RunList(
        filters=(
            chosen("status", "Status", STATUSES, status, [RUNS[each] for each in STATUSES]),
            chosen("dataset", "Dataset", _known(dataset, [each.id for each in settings.datasets]), dataset),
            chosen("source", "Source", _known(source, [each.id for each in settings.sources]), source),
        ),
        rows=tuple(row(visit, each) for each in shown),
        paging=paged_before(visit, len(shown), last, "run"),
        clear=visit.href("runs"),
    )


def _known(now: str | None, names: list[str]) -> list[str]:
    """With the chosen name, also if only the ledger knows it."""
    return names if now is None or now in names else [*names, now]


def row(visit: Visit, run: Run) -> RunRow:
    return RunRow(
        run_id=short(run.run_id),
        href=visit.run(run.run_id),
        word=state_words.of_run(visit.reader, run),
        dataset_id=run.dataset_id,
        dataset_href=visit.href("runs", dataset=run.dataset_id),
        source_id=run.source_id,
        source_href=visit.href("runs", source=run.source_id),
        start_ms=run.window_start_ms,
        end_ms=run.window_end_ms,
        revision=run.revision,
        attempts=run.attempts,
        trigger=run.trigger_type,
        started_ms=run.start_time_ms,
        took_ms=run.end_time_ms - run.start_time_ms if run.end_time_ms is not None else None,
        error_code=run.error_code or "",
    )


class RetryRow(Record, frozen=True):
    attempt: int
    node: str
    number: int
    at_ms: int
    error_class: str
    outcome: str
    delay_ms: int
    circuit: bool


class RunView(Record, frozen=True):
    run_id: str
    title: str
    word: Word
    dataset_id: str
    source_id: str
    window: str
    why: explanation.ShownExplanation
    facts: tuple[Fact, ...]
    tab: str
    tabs: tuple[tuple[str, str, bool], ...]  # name, address, is it this one?
    steps: Graph | None
    pipeline: PipelineRunView | None
    timeline: Timeline | None
    retries: tuple[RetryRow, ...]
    gates: tuple[explanation.CallGates, ...]
    calls: tuple[explanation.CallRow, ...]
    changes: Changes | None
    lineage: RunLineage | None
    log: RunLog | None
    step: tuple[Next, ...]  # one, or none
    live_seconds: int  # how often a script looks for news
    commands: tuple[Next, ...]
    actions: tuple[Offer, ...]


def view_one(visit: Visit) -> RunView:
    run = find(visit, visit.params["run_id"])
    if run is None:
        raise NotHere("No run of that id is on record. `kfm runs` lists them.")
    allowed(visit, run.dataset_id)
    reader = visit.reader
    tab = visit.choice("tab", TABS) or TABS[0]
    attempts, retries = reader.attempts(run.run_id), reader.retries(run.run_id)
    calls = sorted(
        reader.invocations(run_id=run.run_id, limit=READ_MAX), key=lambda call: call.requested_at_ms
    )
    changes, lineage = changes_and_lineage(visit, run) if tab in ("changes", "evidence") else (None, None)
    word = state_words.of_run(visit.reader, run)
    return RunView(
        run_id=run.run_id,
        title=f"Run {short(run.run_id)}",
        word=word,
        dataset_id=run.dataset_id,
        source_id=run.source_id,
        window=span(run.window_start_ms, run.window_end_ms),
        why=explanation.shown(visit, explain_run(reader, run, visit.now_ms, visit.context.settings)),
        facts=tuple(_facts(visit, run)),
        tab=tab,
        tabs=tuple(
            (
                each.capitalize(),
                f"{visit.run(run.run_id)}{f'?tab={each}' if each != TABS[0] else ''}",
                each == tab,
            )
            for each in TABS
        ),
        steps=graph(visit, _steps(visit.run(run.run_id), run, attempts)) if tab == "graph" else None,
        pipeline=_pipeline(visit, run.run_id) if tab == "graph" else None,
        timeline=timeline(attempts, retries, visit.now_ms) if tab == "timeline" else None,
        log=run_log(visit, run) if tab == "log" else None,
        retries=tuple(
            RetryRow(
                attempt=each.attempt,
                node=each.node,
                number=each.number,
                at_ms=each.at_ms,
                error_class=each.error_class,
                outcome=each.outcome.replace("-", " "),
                delay_ms=each.delay_ms,
                circuit=each.circuit_open,
            )
            for each in retries[:RETRIES_SHOWN_MAX]
        ),
        gates=tuple(explanation.gate_rows(visit, calls)),
        calls=tuple(explanation.call_row(visit, call) for call in calls),
        changes=changes,
        lineage=lineage,
        step=tuple(_step(visit, run)),
        live_seconds=2 if tab == "log" and run.status == "running" else 10,
        commands=tuple(_commands(run)),
        actions=tuple(about_run(visit, run)),
    )


def find(visit: Visit, wanted: str) -> Run | None:
    """By its id, or by a unique prefix of it."""
    run = visit.reader.run(wanted)
    if run is not None or not _PREFIX.fullmatch(wanted):
        return run
    try:
        found: Run = only(wanted, [runs_in(visit.reader)], "")
    except UsageError:
        return None
    return found


def _pipeline(visit: Visit, run_id: str) -> PipelineRunView | None:
    """The pipeline run, if its store can be read: it may be another one than the ledger."""
    try:
        return pipeline_run_view(visit, run_id)
    except BackendUnavailable as error:
        log_error(error)
        return None


def _facts(visit: Visit, run: Run) -> list[Fact]:
    ended = run.end_time_ms
    took = duration((ended if ended is not None else visit.now_ms) - run.start_time_ms)
    facts = [
        Fact(name="Dataset", text=run.dataset_id, href=visit.dataset_page(run.dataset_id)),
        Fact(name="Source", text=run.source_id, href=visit.href("runs", source=run.source_id)),
        Fact(name="Window (UTC)", text=span(run.window_start_ms, run.window_end_ms).removesuffix(" UTC")),
        *_related(visit, run),
        Fact(name="Started (UTC)", text="", at_ms=run.start_time_ms),
        Fact(name="Ended (UTC)", text="", at_ms=ended)
        if ended is not None
        else Fact(name="Ended", text="not yet"),
        Fact(name="Took" if ended is not None else "So far", text=took),
        Fact(name="Trigger", text=run.trigger_type),
        Fact(name="Attempts", text=str(run.attempts)),
        Fact(name="Revision", text=str(run.revision)),
        Fact(name="Pipeline", text=f"{run.pipeline_id} {run.pipeline_version[:19]}"),
        Fact(name="Run", text=run.run_id, code=True),
        Fact(name="Work key", text=run.work_key, code=True),
    ]
    if run.partition:
        facts.insert(3, Fact(name="Partition", text=run.partition))
    if run.error_code:
        facts.append(Fact(name="Error", text=run.error_code, code=True))
    waiting = visit.reader.retry_state(run.run_id) if run.status == "failed" else None
    if waiting is not None and waiting.fate == "retry" and waiting.not_before_ms is not None:
        facts.append(Fact(name="Next attempt, not before (UTC)", text="", at_ms=waiting.not_before_ms))
    if run.correction:
        facts.append(Fact(name="Correction", text=run.correction))
    return facts


def _related(visit: Visit, run: Run) -> Iterator[Fact]:
    """What belongs to it: what asked for it, what it made, and what keeps it from being done."""
    for request in visit.reader.request_reader().of_run(run.run_id):
        name = f"{KINDS[request.kind]} {short(request.request_id)}"
        yield Fact(name="Request", text=name, href=visit.at("requests", request.request_id))
        if request.schedule_id is not None:
            href = visit.at("schedules", request.schedule_id)
            yield Fact(name="Schedule", text=request.schedule_id, href=href)
    made = _made(visit, run)
    if made is not None:
        href = f"{visit.dataset_page(run.dataset_id)}#versions"
        yield Fact(name="Version", text=str(made.sequence), href=href)
    for held in visit.reader.held(subject=run.run_id, limit=RELATED_MAX):
        kind = state_words.of_quarantined(held.kind, held.state).text
        name = f"{kind} {short(held.held_id)}"
        yield Fact(name="Quarantine", text=name, href=visit.at("held", held.held_id))
    for incident in visit.reader.incidents_about(run.run_id):
        name = f"{incident.error_code or incident.kind} {short(incident.incident_id)}"
        yield Fact(name="Incident", text=name, href=visit.at("incidents", incident.incident_id))
    for breaker in _breakers(visit, run):
        name = f"{breaker.provider}: {state_words.of_breaker(breaker.state).text}"
        yield Fact(name="Circuit breaker", text=name, href=f"{visit.href('board')}#circuits")


def _breakers(visit: Visit, run: Run) -> list[Breaker]:
    """The circuits of the providers that its source calls, as far as they have ever counted a failure."""
    settings = visit.context.settings
    source = next((one for one in settings.sources if one.id == run.source_id), None)
    called = providers_of(source, settings.source) if source is not None else ()
    return [one for one in visit.reader.breakers() if one.provider in called]


def _steps(at: str, run: Run, attempts: list[Attempt]) -> list[NodeSeen]:
    """The nodes in the order in which they started, each in its state after the last attempt, and with the
    lines of its log. `at`: where the page of the run is."""
    last: dict[str, Attempt] = {}
    for each in attempts:
        if each.node:
            last[each.node] = each
    names = list(last)
    found = []
    for index, name in enumerate(names):
        each = last[name]
        word = word_of(each)
        took = each.ended_at_ms - each.started_at_ms if each.ended_at_ms is not None else None
        reason = ": ".join(part for part in (each.error_code, each.error_message) if part)
        earlier = f"in attempt {each.attempt}" if each.attempt < run.attempts else ""
        found.append(
            NodeSeen(
                name=name,
                word=word,
                reason=reason or earlier,
                took_ms=took,
                reads=(names[index - 1],) if index else (),
                href=f"{at}?tab=log&attempt={each.attempt}&node={PHASES.get(name, name)}",
            )
        )
    return found


def _step(visit: Visit, run: Run) -> Iterator[Next]:
    step = step_of_run(visit.reader, run, visit.now_ms, visit.context.settings)
    if step is not None:
        yield Next(command=step.command, why=step.sentence)


def _commands(run: Run) -> Iterator[Next]:
    """Commands that show more."""
    name = short(run.run_id)
    if run.status != "success" and is_refusal(run.error_code):
        yield Next(command=f"kfm explain {name}", why="names the gate, and what would satisfy it")
    elif run.status == "success":
        yield Next(command=f"kfm lineage show {name}", why="shows its lineage events")
        yield Next(command=f"kfm export {name} --to FOLDER", why="bundles its evidence for an auditor")
    if run.error_code and run.error_code.startswith("KFM"):
        yield Next(command=f"kfm explain {run.error_code}", why="explains the error")


class ChangeRow(Record, frozen=True):
    word: Word
    what: str
    name: str
    before: str
    after: str
    size_before: int | None
    size_after: int | None


class Changes(Record, frozen=True):
    summary: str
    version: int | None
    version_id: str
    rows: tuple[ChangeRow, ...]
    more: int


class ChangedThing(Record, frozen=True):
    name: str
    address: str
    size: int | None
    mark: str


class RunLineage(Record, frozen=True):
    inputs: tuple[ChangedThing, ...]
    inputs_count: int | None  # None: what was found is not kept
    outputs: tuple[ChangedThing, ...]
    outputs_count: int


def changes_and_lineage(visit: Visit, run: Run) -> tuple[Changes, RunLineage]:
    made = _made(visit, run)
    version = visit.reader.version(made.version_id) if made else None
    return _changes(visit, run, made, version), _lineage(visit, run, version)


def _made(visit: Visit, run: Run) -> Promotion | None:
    if run.version_id is None:
        return None
    found = visit.reader.promotions(run.dataset_id, limit=PROMOTIONS_MAX)
    return next((each for each in found if each.run_id == run.run_id), None)


def _changes(visit: Visit, run: Run, made: Promotion | None, version: Version | None) -> Changes:
    if made is None or version is None:
        summary = {
            "success": "Nothing: the outcome was published already.",
            "running": "Nothing yet: a change is published as a whole.",
        }.get(run.status, "Nothing: the published version is still the one before.")
        return Changes(summary=summary, version=None, version_id="", rows=(), more=0)
    before = visit.reader.promotion(run.dataset_id, made.sequence - 1)
    old = visit.reader.version(before.version_id) if before else None
    found, figures = diff(old, version), tally(old, version)
    summary = (
        f"{counted(figures.added, 'file')} added, {figures.changed} changed, {figures.removed} removed, "
        f"{figures.unchanged} unchanged"
    )
    since = f", against version {before.sequence}" if before else ": the first version"
    return Changes(
        summary=f"{summary}{since}.",
        version=made.sequence,
        version_id=made.version_id,
        rows=tuple(map(_row, found[:SHOWN_MAX])),
        more=max(len(found) - SHOWN_MAX, 0),
    )


def _row(change: VersionChange) -> ChangeRow:
    hashes = [each[:12] if each else "" for each in (change.sha256_before, change.sha256_after)]
    return ChangeRow(
        word=state_words.word(change.kind),
        what="file" if change.what == "asset" else change.what,
        name=change.name,
        before=change.before or hashes[0],
        after=change.after or hashes[1],
        size_before=change.size_before,
        size_after=change.size_after,
    )


def _lineage(visit: Visit, run: Run, version: Version | None) -> RunLineage:
    fingerprint = seen(visit.reader, run)
    found = visit.reader.inputs(fingerprint) if fingerprint else None
    outputs = [
        ChangedThing(name=asset.path, address="", size=asset.size, mark=asset.sha256[:12])
        for item in (version.items() if version is not None else ())
        if item.source_id == run.source_id
        and (item.window_start_ms, item.window_end_ms) == (run.window_start_ms, run.window_end_ms)
        for asset in item.assets
    ]
    return RunLineage(
        inputs=tuple(map(_input, (found or ())[:SHOWN_MAX])),
        inputs_count=len(found) if found is not None else None,
        outputs=tuple(outputs[:SHOWN_MAX]),
        outputs_count=len(outputs),
    )


def _input(found: Found) -> ChangedThing:
    from kfm.model.redaction import redact_url

    mark = found.checksum or found.etag or found.version or ""
    return ChangedThing(
        name=found.path, address=redact_url(found.uri), size=found.size, mark=mark.strip('"')[:24]
    )


class InvocationView(Record, frozen=True):
    title: str
    dataset_id: str
    source_id: str
    row: explanation.CallRow
    run_href: str | None
    run_id: str
    why: explanation.ShownExplanation
    gates: tuple[explanation.CallGates, ...]
    command: str


def view_invocation(visit: Visit) -> InvocationView:
    call = visit.reader.invocation(visit.params["invocation_id"])
    if call is None:
        raise NotHere("No invocation of that id is on record. `kfm explain DATASET` names its newest one.")
    allowed(visit, call.dataset_id)
    return InvocationView(
        title=f"Invocation {short(call.invocation_id)}",
        dataset_id=call.dataset_id,
        source_id=call.source_id,
        row=explanation.call_row(visit, call),
        run_href=visit.run(call.run_id) if call.run_id else None,
        run_id=short(call.run_id) if call.run_id else "",
        why=explanation.shown(
            visit,
            explain_record(visit.reader, call.invocation_id, visit.now_ms, settings=visit.context.settings),
        ),
        gates=tuple(explanation.gate_rows(visit, [call])),
        command=f"kfm explain {short(call.invocation_id)}",
    )
