"""Present records against what the chain and its seals tell of them: edits outside the chain are found."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from kfm.audit.chain import links
from kfm.db.ledger_reader import every, every_from
from kfm.model.records import GovernanceEntry, Invocation, Record
from kfm.model.retention import ENTRY as RETENTION
from kfm.model.retention import retired_ids, short_hash, subject_of
from kfm.model.runs import ChainLink

if TYPE_CHECKING:
    from kfm.db.ledger_reader import LedgerReader

PROMOTIONS_MAX = APPROVALS_MAX = 10_000_000
EVENTS_READ = PAGES_READ = 500
FINDINGS_MAX = 20
LINEAGE = "openlineage"
NOT_DONE = ("failed", "refused", "busy")


class RecordFinding(Record, frozen=True):
    """A record that is not what was recorded of it."""

    kind: str  # promotion | switch | approval | invocation | unit
    subject: str
    detail: str
    row: int | None = None  # of the chain, where it tells of the record


class RecordsVerdict(Record, frozen=True):
    """What was compared, and the first of what does not agree."""

    compared: int = 0
    findings: tuple[RecordFinding, ...] = ()

    @property
    def sound(self) -> bool:
        return not self.findings


def compare_records(ledger: LedgerReader) -> RecordsVerdict:
    """Promotions, switches, approvals, invocations and units. Chain and seals are checked elsewhere."""
    verdict = _compared(ledger)
    if verdict.sound:
        return verdict
    # A ledger at work moves between two reads: what is wrong is so at a second look, too.
    again = {(each.kind, each.subject) for each in _compared(ledger).findings}
    kept = tuple(each for each in verdict.findings if (each.kind, each.subject) in again)
    return replace(verdict, findings=kept)


def _compared(ledger: LedgerReader) -> RecordsVerdict:
    told, compared, findings = _Told(links(ledger)), 0, []
    every_one = chain(
        _promotions(ledger, told),
        _switches(ledger, told),
        _approvals(ledger, told),
        _invocations(ledger, told),
        _units(ledger),
    )
    for compared, finding in enumerate(every_one, 1):  # noqa: B007 - it is counted
        if finding is not None:
            findings.append(finding)
        if len(findings) == FINDINGS_MAX:
            break
    return RecordsVerdict(compared=compared, findings=tuple(findings))


class _Told:
    """What the chain tells of records that can change, gathered while it passes."""

    def __init__(self, chain: Iterable[ChainLink]) -> None:
        self.promotions: dict[str, list[tuple[int, str, str]]] = {}  # dataset → row, run, version
        self.switches: dict[str, tuple[int, GovernanceEntry]] = {}
        self.deciders: dict[str, set[str]] = {}  # request for an approval → all who had a part in it
        self.invocations: dict[str, tuple[int, GovernanceEntry]] = {}
        self._retired: set[bytes] = set()  # invocations that have gone by retention
        for link in chain:
            self._note(link.number, link.entry)

    def _note(self, row: int, entry: GovernanceEntry) -> None:
        details = entry.details
        if entry.kind == "promotion":
            promoted = (row, entry.subject, str(details.get("version_id")))
            self.promotions.setdefault(str(details.get("dataset_id")), []).append(promoted)
        elif entry.kind == "switch":
            self.switches[entry.subject] = (row, entry)
        elif entry.kind == "halt":
            self.switches[f"dataset:{details.get('dataset_id')}"] = (row, entry)
        if isinstance(request_id := details.get("request_id"), str):
            self.deciders.setdefault(request_id, set()).add(entry.actor)
        if isinstance(invocation_id := details.get("invocation_id"), str):
            self.invocations[invocation_id] = (row, entry)
        if (entry.kind, entry.subject) == (RETENTION, subject_of("invocations")):
            self._retired |= retired_ids(details)

    def is_retired(self, invocation_id: str) -> bool:
        return short_hash(invocation_id) in self._retired


def _promotions(ledger: LedgerReader, told: _Told) -> Iterator[RecordFinding | None]:
    """In the order of their numbers they are what the chain tells, one by one."""
    for dataset_id in sorted({head.dataset_id for head in ledger.heads()} | told.promotions.keys()):
        rows = iter(told.promotions.get(dataset_id, ()))
        stored = ledger.promotions(dataset_id, limit=PROMOTIONS_MAX)[::-1]
        for place, one in enumerate(stored, 1):
            row, run_id, version_id = next(rows, (None, None, None))
            if (place, run_id, version_id) == (one.sequence, one.run_id, one.version_id):
                yield None
                continue
            told_as = f"told was version {place}, {version_id} of run {run_id}"
            then = told_as if row else "the chain does not tell of it"
            problem = f"it is {one.version_id} of run {one.run_id}; {then}"
            yield _promotion(dataset_id, one.sequence, problem, row)
        for sequence, (row, run_id, version_id) in enumerate(rows, len(stored) + 1):
            yield _promotion(dataset_id, sequence, f"{version_id} of run {run_id} is not there", row)


def _promotion(dataset_id: str, sequence: int, problem: str, row: int | None) -> RecordFinding:
    detail = f"version {sequence} of dataset {dataset_id}: {problem}"
    return RecordFinding(kind="promotion", subject=f"{dataset_id}/{sequence}", detail=detail, row=row)


def _switches(ledger: LedgerReader, told: _Told) -> Iterator[RecordFinding | None]:
    stored = {switch.scope: switch for switch in ledger.switches()}
    for scope in sorted(stored.keys() | told.switches.keys()):
        row, entry = told.switches.get(scope, (None, None))
        switch = stored.get(scope)
        if switch is None or entry is None:
            problem = "it is not there" if switch is None else "the chain does not tell of it"
        elif entry.kind == "halt":
            problem = "" if switch.position == "paused" else f"it is {switch.position}; a halt paused it"
        else:
            now = (switch.position, switch.actor, switch.rationale)
            then = (entry.details.get("position"), entry.actor, entry.rationale or "")
            differs = f"it is {switch.position} by {switch.actor}; told was {then[0]} by {entry.actor}"
            problem = "" if now == then else differs
        detail = f"switch {scope}: {problem}"
        yield RecordFinding(kind="switch", subject=scope, detail=detail, row=row) if problem else None


def _approvals(ledger: LedgerReader, told: _Told) -> Iterator[RecordFinding | None]:
    """Each person who requested, approved or rejected it is told of."""
    for one in ledger.approvals(limit=APPROVALS_MAX):
        known = told.deciders.get(one.request_id, set())
        deeds = {"requested": one.requested_by, "approved": one.approved_by, "rejected": one.rejected_by}
        untold = [f"{deed} by {who}" for deed, who in deeds.items() if who is not None and who not in known]
        detail = f"approval {one.request_id}: the chain does not tell that it was {', '.join(untold)}"
        yield RecordFinding(kind="approval", subject=one.request_id, detail=detail) if untold else None


# --- invocations -------------------------------------------------------------------------


def _invocations(ledger: LedgerReader, told: _Told) -> Iterator[RecordFinding | None]:
    """What entries and lineage events tell of them. Those that changed nothing are told of by neither."""
    known = {each.invocation_id: each for _, each in every(ledger.invocations_since)}
    for invocation_id, (row, entry) in told.invocations.items():
        one = known.get(invocation_id)
        if one is None and told.is_retired(invocation_id):
            continue
        problem = "it is not there"
        if one is not None:
            same = (one.actor, one.rationale, one.ticket) == (entry.actor, entry.rationale, entry.ticket)
            problem = "" if same else f"by {one.actor}, because: {one.rationale}; told was by {entry.actor}"
        yield _invocation(invocation_id, problem, row)
    for event in _events(ledger):
        facets = event.get("run", {}).get("facets", {})
        state = facets.get("kfmRunState", {})
        if state.get("kind") not in ("run", "call") or state.get("invocation_id") is None:
            continue
        one = known.get(state["invocation_id"])
        if one is None and told.is_retired(state["invocation_id"]):
            continue
        if (
            one is None or state.get("dataset_id") == one.dataset_id
        ):  # a hidden dataset has another name there
            yield _invocation(state["invocation_id"], _differs(one, event["eventType"], facets), None)


def _differs(one: Invocation | None, event_type: str, facets: dict[str, Any]) -> str:
    if one is None:
        return "it is not there, though an event tells of it"
    asked = facets.get("kfmTrigger", {})
    if asked and (asked.get("type"), asked.get("actor")) != (one.trigger_type, one.actor):
        return f"it is {one.trigger_type} by {one.actor}; its event says {asked['type']} by {asked['actor']}"
    ended = {"COMPLETE": ("success",), "FAIL": NOT_DONE, "ABORT": NOT_DONE}
    if one.outcome not in ended.get(event_type, (one.outcome,)):
        return f"its outcome is {one.outcome}; its event says {event_type}"
    return ""


def _invocation(invocation_id: str, problem: str, row: int | None) -> RecordFinding | None:
    detail = f"invocation {invocation_id}: {problem}"
    return (
        RecordFinding(kind="invocation", subject=invocation_id, detail=detail, row=row) if problem else None
    )


def _events(ledger: LedgerReader) -> Iterator[dict[str, Any]]:
    at = 1
    while page := ledger.events_between(at, 2**62, EVENTS_READ):
        for message in page:
            if message.topic == LINEAGE:
                yield msgspec.json.decode(message.body)
        at = page[-1].number + 1


# --- units -------------------------------------------------------------------------------


def _units(ledger: LedgerReader) -> Iterator[RecordFinding | None]:
    """Each is as the last page of its history left it, and no page tells of more than is there."""
    reader = ledger.unit_reader()
    for unit in every_from("", reader.states_after, lambda one: one.wal_id):
        if unit.now == unit.left:
            yield None
            continue
        left = (
            "no page of its history tells of that" if unit.left is None else f"its history says {unit.left}"
        )
        yield _unit(unit.wal_id, f"it is {unit.now}; {left}")
    at = 1
    while pages := reader.pages_between(at, 2**62, PAGES_READ):
        for page in pages:
            members = {member[0]: member[1] for member in msgspec.json.decode(page.members)}
            versions = reader.versions_of(tuple(members))
            for wal_id, version in members.items():
                if versions.get(wal_id, -1) < version:
                    yield _unit(
                        wal_id, f"page {page.number} of its history has version {version}, it has not"
                    )
        at = pages[-1].number + 1


def _unit(wal_id: str, problem: str) -> RecordFinding:
    return RecordFinding(kind="unit", subject=wal_id, detail=f"unit {wal_id}: {problem}")
