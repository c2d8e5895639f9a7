"""What is on record about a dataset beside its windows and versions: tabs of its page."""

from __future__ import annotations

from kfm.model.quantities import counted, span
from kfm.model.records import Check, Record
from kfm.model.settings import Rights
from kfm.reports.dataset_extent import dataset_extent
from kfm.reports.dataset_schema import ContractStanding, TableSchema, contract_standings, dataset_schema
from kfm.reports.dataset_targets import DatasetTarget, behind_since_ms, dataset_targets
from kfm.reports.derived import dataset_graph
from kfm.reports.status import NOT_TAKEN
from kfm.reports.version_diffs import contracts_of
from kfm.web.console import state_words
from kfm.web.console.state_words import Word
from kfm.web.console.views import runs
from kfm.web.console.views.explanation import Fact
from kfm.web.console.views.maps import Map, map_of
from kfm.web.console.views.pipeline_runs import Graph, NodeSeen, graph_of
from kfm.web.console.visit import ROWS, Paging, Visit, before_position, paged_before, short

TREND_MAX = 200


def sources_of(visit: Visit, name: str) -> list[str]:
    return [each.id for each in visit.context.settings.sources if each.dataset == name]


# --- schema ----------------------------------------------------------------------------


class SchemaTab(Record, frozen=True):
    tables: tuple[TableSchema, ...]


def schema(visit: Visit, name: str) -> SchemaTab:
    with visit.context.app(visit.identity, read_only=True) as app:
        contracts = contracts_of(app.loaded, name)
        found = dataset_schema(app.ledger, name, sources_of(visit, name), app.objects.open, contracts)
    return SchemaTab(tables=tuple(found))


# --- extent ----------------------------------------------------------------------------


class ExtentTab(Record, frozen=True):
    facts: tuple[Fact, ...]
    why_not: str
    map: Map | None


def extent(visit: Visit, name: str) -> ExtentTab:
    with visit.context.app(visit.identity, read_only=True) as app:
        head = app.ledger.head(name)
        if head is None:
            return ExtentTab(facts=(), why_not="nothing is published yet", map=None)
        found = dataset_extent(head[1], sources_of(visit, name), app.objects.open)
    drawn = map_of(found)
    facts = [Fact(name="Items", text=f"{found.items:,}")]
    if found.start_ms is not None and found.end_ms is not None:
        facts.append(Fact(name="Time", text=span(found.start_ms, found.end_ms + 1)))
    if drawn is not None:
        facts.append(Fact(name="Place", text=drawn.summary))
    return ExtentTab(facts=tuple(facts), why_not=found.why_not or "", map=drawn)


# --- rights ----------------------------------------------------------------------------


class RightsTab(Record, frozen=True):
    facts: tuple[Fact, ...]
    seen: tuple[str, ...]  # what readers may see
    differs: str  # what is declared now is not what is published


_LEVELS = {
    "public": "anyone with the role read: names, records, values of rows, and where it lies",
    "review": "anyone with the role read: names, records, and where it lies; no values of rows",
    "restricted": "the roles operate and approve only: readers see a mask in place of the name, "
    "and neither texts nor content",
    "blocked": "the roles operate and approve only; no target takes it",
}


def rights(visit: Visit, name: str) -> RightsTab:
    head, declared = visit.reader.head(name), visit.context.settings.declared(name)
    now = declared.rights if declared is not None else None
    published = head[1].header.rights if head is not None else None
    shown = published or now
    if shown is None:
        return RightsTab(facts=(), seen=("No rights are declared: nothing is published.",), differs="")
    facts = [
        Fact(name="Licence", text=shown.license),
        Fact(name="CARE label", text=shown.care.label),
        Fact(name="CARE level", text=shown.care.level),
        Fact(name="Attribution", text=shown.attribution or "none is asked for"),
        Fact(name="Local Contexts", text=shown.local_contexts or "none"),
        *_sovereignty(shown),
    ]
    if declared is not None and declared.owner is not None:
        contact = f", {declared.owner.contact}" if declared.owner.contact else ""
        facts.append(Fact(name="Owner", text=f"{declared.owner.name}{contact}"))
    strictest = now if now is not None and now.care.level in ("restricted", "blocked") else shown
    return RightsTab(
        facts=tuple(facts),
        seen=(f"Content of the console and the API: {_LEVELS[strictest.care.level]}.",),
        differs="The configuration declares other rights now; the next version carries them."
        if published is not None and now is not None and now != published
        else "",
    )


def _sovereignty(shown: Rights) -> list[Fact]:
    found = shown.sovereignty
    if found is None:
        return [Fact(name="Consent", text="no authority is named")]
    agreed = f", agreement {found.agreement}" if found.agreement else ""
    return [
        Fact(name="Authority", text=found.authority),
        Fact(name="Consent", text=f"{found.consent}{agreed}"),
    ]


# --- runs and their durations -------------------------------------------------------------


class RunsTab(Record, frozen=True):
    rows: tuple[runs.RunRow, ...]
    paging: Paging
    all_href: str


def dataset_runs(visit: Visit, name: str) -> RunsTab:
    before = before_position(visit.query.get("before"))
    found = visit.reader.runs(dataset_id=name, before=before, limit=ROWS + 1)
    shown = found[:ROWS]
    last = (shown[-1].start_time_ms, shown[-1].run_id) if len(found) > ROWS else None
    return RunsTab(
        rows=tuple(runs.row(visit, each) for each in shown),
        paging=paged_before(visit, len(shown), last, "run"),
        all_href=visit.href("runs", dataset=name),
    )


class Duration(Record, frozen=True):
    run_id: str
    href: str
    word: Word
    source_id: str
    started_ms: int
    took_ms: int
    attempts: int


class TrendTab(Record, frozen=True):
    rows: tuple[Duration, ...]  # the oldest first
    usual_ms: int | None  # the median of those that succeeded
    slow_ms: int | None  # what one in twenty took longer than


def trend(visit: Visit, name: str) -> TrendTab:
    """How long the last runs took; those of refused or running ones tell nothing."""
    found = [
        run
        for run in visit.reader.runs(dataset_id=name, limit=TREND_MAX)
        if run.end_time_ms is not None and run.status in ("success", "failed")
    ]
    good = sorted((run.end_time_ms or 0) - run.start_time_ms for run in found if run.status == "success")
    rows = [
        Duration(
            run_id=short(run.run_id),
            href=visit.run(run.run_id),
            word=state_words.of_run(visit.reader, run),
            source_id=run.source_id,
            started_ms=run.start_time_ms,
            took_ms=(run.end_time_ms or 0) - run.start_time_ms,
            attempts=run.attempts,
        )
        for run in reversed(found)
    ]
    return TrendTab(
        rows=tuple(rows),
        usual_ms=good[len(good) // 2] if good else None,
        slow_ms=good[len(good) * 19 // 20] if good else None,
    )


# --- contract ----------------------------------------------------------------------------


class CheckRow(Record, frozen=True):
    name: str
    published: Word | None  # None: not made there
    last: Word | None
    detail: str


class ContractTable(Record, frozen=True):
    source_id: str
    contract: str
    about: str
    window: str
    why_not: str
    run_id: str
    run_href: str | None
    run_ms: int | None
    run_summary: str
    rows: tuple[CheckRow, ...]


class ContractTab(Record, frozen=True):
    tables: tuple[ContractTable, ...]


def contract(visit: Visit, name: str) -> ContractTab:
    with visit.context.app(visit.identity, read_only=True) as app:
        found = contract_standings(app, name, contracts_of(app.loaded, name), visit.context.folder)
    return ContractTab(tables=tuple(_contract(visit, one) for one in found))


def _contract(visit: Visit, one: ContractStanding) -> ContractTable:
    failed = {check.name: check for check in one.last.failed} if one.last is not None else {}
    rows = [_check(check.name, check, failed.get(check.name), one.last is not None) for check in one.checks]
    seen = {check.name for check in one.checks}
    rows += [_check(name, None, check, True) for name, check in failed.items() if name not in seen]
    last = one.last
    return ContractTable(
        source_id=one.source_id,
        contract=one.contract,
        about=f"{one.contract_id} {one.contract_version}, {one.status}: "
        f"{counted(one.tables, 'table')}, {counted(one.columns, 'column')}",
        window=span(one.start_ms, one.end_ms) if one.start_ms is not None and one.end_ms is not None else "",
        why_not=one.why_not or "",
        run_id=short(last.run_id) if last is not None else "",
        run_href=visit.run(last.run_id) if last is not None else None,
        run_ms=last.at_ms if last is not None else None,
        run_summary=f"{len(last.failed)} of {counted(last.checks, 'check')} failed" if last else "",
        rows=tuple(sorted(rows, key=_worst_first)),
    )


def _check(name: str, published: Check | None, failed: Check | None, is_run: bool) -> CheckRow:
    details = [each.detail for each in (failed, published) if each is not None]
    return CheckRow(
        name=name,
        published=_verdict(published.passed) if published is not None else None,
        last=_verdict(failed is None) if is_run else None,
        detail=details[0] if details else "",
    )


def _worst_first(row: CheckRow) -> tuple[bool, bool, str]:
    failed = [word is not None and word.text == "failed" for word in (row.published, row.last)]
    return not failed[0], not failed[1], row.name


def _verdict(passed: bool) -> Word:
    return state_words.word("passed" if passed else "failed")


# --- targets -----------------------------------------------------------------------------


class TargetRow(Record, frozen=True):
    target: str
    kind: str
    word: Word
    version: int | None
    head: int | None
    behind: int
    since_ms: int | None
    why: str


class TargetsTab(Record, frozen=True):
    rows: tuple[TargetRow, ...]


def targets(visit: Visit, name: str) -> TargetsTab:
    with visit.context.app(visit.identity, read_only=True) as app:
        ledger = app.ledger
        head = next(iter(ledger.promotions(name, 1)), None)
        renames = ledger.change_reader().renames()
        found = dataset_targets(app, name, head, ledger.projected(), renames)
        return TargetsTab(rows=tuple(_target(one, behind_since_ms(ledger, name, one)) for one in found))


def _target(one: DatasetTarget, since_ms: int | None) -> TargetRow:
    return TargetRow(
        target=one.target,
        kind=one.kind,
        word=state_words.word(one.state),
        version=one.version,
        head=one.head,
        behind=one.behind,
        since_ms=since_ms,
        why=NOT_TAKEN[one.taking] if one.taking != "taken" else "",
    )


# --- lineage -----------------------------------------------------------------------------


class LineageTab(Record, frozen=True):
    graph: Graph
    hidden: int  # datasets that this reader may not know


def lineage(visit: Visit, name: str) -> LineageTab:
    """From the sources to what is derived of it and to the targets, as configured and on record."""
    with visit.context.app(visit.identity, read_only=True) as app:
        cells, reads = dataset_graph(app.ledger, app.settings)
        head = next(iter(app.ledger.promotions(name, 1)), None)
        renames = app.ledger.change_reader().renames()
        shown = dataset_targets(app, name, head, app.ledger.projected(), renames)
    around = {name, *_ahead(name, reads, upwards=True), *_ahead(name, reads, upwards=False)}
    hides = visit.visibility.hides
    fed = {source.id: source.dataset for source in visit.context.settings.sources}
    of = {
        cell.id: fed.get(cell.id[len("source:") :], "") if _is_source(cell.id) else cell.id for cell in cells
    }
    hidden = {cell.id for cell in cells if cell.id in around and hides(of[cell.id])}
    nodes = [
        NodeSeen(
            name=cell.id,
            word=state_words.word(cell.word),
            reason=cell.reason,
            reads=tuple(each for each in reads[cell.id] if each in around and each not in hidden),
            href=visit.href("runs", source=cell.id.removeprefix("source:"))
            if _is_source(cell.id)
            else visit.dataset_page(cell.id),
        )
        for cell in cells
        if cell.id in around and cell.id not in hidden
    ]
    nodes += [
        NodeSeen(
            name=f"target:{one.target}",
            word=state_words.word(one.state),
            reason=f"version {one.version}" if one.version else one.kind,
            reads=(name,),
            href=visit.with_query(tab="targets"),
        )
        for one in shown
        if one.taking == "taken" or one.version
    ]
    return LineageTab(graph=graph_of(nodes), hidden=sum(not _is_source(each) for each in hidden))


def _is_source(node: str) -> bool:
    return node.startswith("source:")


def _ahead(name: str, reads: dict[str, tuple[str, ...]], *, upwards: bool) -> set[str]:
    """What a node is made of, or what is made of it, however far."""
    links: dict[str, set[str]] = {}
    for node, upstream in reads.items():
        for each in upstream:
            if upwards:
                links.setdefault(node, set()).add(each)
            else:
                links.setdefault(each, set()).add(node)
    found: set[str] = set()
    waiting = [name]
    while waiting:
        for each in links.get(waiting.pop(), ()):
            if each not in found:
                found.add(each)
                waiting.append(each)
    return found
