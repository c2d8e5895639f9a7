"""Pages of the quarantine: runs, units, requests and dead letters, and one entry."""

from __future__ import annotations

from kfm.model.quarantine import Approval, QuarantineEntry
from kfm.model.records import Record
from kfm.reports.next_steps import step_of_held
from kfm.reports.quarantine import objects_of
from kfm.reports.requests import named
from kfm.reports.state_words import QUARANTINE_KINDS
from kfm.web.console import state_words
from kfm.web.console.actions import Offer, about_run, offer
from kfm.web.console.state_words import Word
from kfm.web.console.views.explanation import Fact, Next, allowed
from kfm.web.console.visit import (
    ROWS,
    Filter,
    NotHere,
    Paging,
    Visit,
    before_number,
    chosen,
    paged_by_number,
    short,
)

FILTERS = ("kind", "state", "dataset", "before")
KINDS = ("dead-letter", "quarantine")
STATES = ("held", "released", "resolved")
MESSAGES_SHOWN_MAX = 50


class QuarantineRow(Record, frozen=True):
    held_id: str
    href: str
    word: Word
    grain: str
    dataset_id: str
    source_id: str
    attempts: int
    error_code: str
    reason: str
    since_ms: int
    subject: str
    subject_href: str | None


class DeadMessageRow(Record, frozen=True):
    envelope: str
    queue: str
    error_code: str
    error: str
    times: int
    first_ms: int
    last_ms: int
    actions: tuple[Offer, ...]


class QuarantineView(Record, frozen=True):
    filters: tuple[Filter, ...]
    rows: tuple[QuarantineRow, ...]
    paging: Paging
    clear: str
    messages: tuple[DeadMessageRow, ...]
    messages_more: bool


def view(visit: Visit) -> QuarantineView:
    kind, dataset = visit.choice("kind", KINDS), visit.dataset()
    state = visit.choice("state", (*STATES, "any")) or "held"
    found = visit.reader.held_page(
        state=None if state == "any" else state,
        kind=kind,
        dataset_id=dataset,
        before=before_number(visit),
        limit=ROWS + 1,
    )
    last = found[ROWS - 1][0] if len(found) > ROWS else None
    dead = visit.reader.unit_reader().dead_messages("held", "", MESSAGES_SHOWN_MAX + 1)
    states = chosen("state", "State", (*STATES, "any"), state, ("quarantined", *STATES[1:], "any"))
    return QuarantineView(
        filters=(
            chosen("kind", "Kind", KINDS, kind, tuple(QUARANTINE_KINDS[each] for each in KINDS)),
            Filter(name=states.name, label=states.label, options=states.options[1:]),
            chosen("dataset", "Dataset", [each.id for each in visit.context.settings.datasets], dataset),
        ),
        rows=tuple(row(visit, each) for _, each in found[:ROWS]),
        paging=paged_by_number(visit, len(found[:ROWS]), last, "entry/entries"),
        clear=visit.href("held"),
        messages=tuple(
            DeadMessageRow(
                envelope=f"{each.envelope_hash.removeprefix('sha256:')[:12]}/{each.record_index}",
                queue=each.queue,
                error_code=each.error_code,
                error=visit.visibility.unattributed(each.error),
                times=each.times,
                first_ms=each.first_at_ms,
                last_ms=each.last_at_ms,
                actions=(offer(visit, "releaseDeadMessage", message=each.envelope_hash),),
            )
            for each in dead[:MESSAGES_SHOWN_MAX]
        ),
        messages_more=len(dead) > MESSAGES_SHOWN_MAX,
    )


def row(visit: Visit, held: QuarantineEntry) -> QuarantineRow:
    href = visit.run(held.subject) if held.grain == "run" else None
    if held.grain in ("unit", "request"):
        href = visit.at(f"{held.grain}s", held.subject)
    return QuarantineRow(
        held_id=short(held.held_id),
        href=visit.at("held", held.held_id),
        word=state_words.of_quarantined(held.kind, held.state),
        grain=held.grain,
        dataset_id=held.dataset_id,
        source_id=held.source_id,
        attempts=held.attempts,
        error_code=held.error_code,
        reason=held.reason.replace("-", " "),
        since_ms=held.held_at_ms,
        subject=f"{held.grain} {short(held.subject)}",
        subject_href=href,
    )


class ApprovalAsked(Record, frozen=True):
    word: Word
    request_id: str
    by: str
    at_ms: int
    rationale: str
    approved: str


class QuarantineEntryView(Record, frozen=True):
    title: str
    row: QuarantineRow
    message: str
    facts: tuple[Fact, ...]
    asked: tuple[ApprovalAsked, ...]
    commands: tuple[Next, ...]
    actions: tuple[Offer, ...]


def view_one(visit: Visit) -> QuarantineEntryView:
    held = visit.reader.held_one(visit.params["held_id"])
    if held is None:
        raise NotHere("No entry of that id is on record. `kfm quarantine list --all` lists all.")
    allowed(visit, held.dataset_id)
    asked = visit.reader.approvals(subject=held.held_id)
    step = step_of_held(visit.reader, held, visit.now_ms, visit.context.settings)
    return QuarantineEntryView(
        title=f"{'Dead letter' if held.kind == 'dead-letter' else 'Quarantine'} {short(held.held_id)}",
        row=row(visit, held),
        message=held.error_message,
        facts=tuple(_facts(visit, held)),
        asked=tuple(map(_asked, asked)),
        commands=() if step is None else (Next(command=step.command, why=step.sentence),),
        actions=tuple(_actions(visit, held)),
    )


def _facts(visit: Visit, held: QuarantineEntry) -> list[Fact]:
    facts = [
        Fact(name="Quarantined since (UTC)", text="", at_ms=held.held_at_ms),
        Fact(
            name=held.grain.capitalize(),
            text=held.subject,
            href=row(visit, held).subject_href,
            code=True,
        ),
        Fact(name="Dataset", text=held.dataset_id, href=visit.dataset_page(held.dataset_id)),
        Fact(name="Source", text=held.source_id),
        Fact(name="Attempts", text=f"{held.attempts} ({', '.join(held.error_classes)})"),
        Fact(name="Reason", text=held.reason.replace("-", " ")),
        Fact(name="Payload hash", text=held.payload_hash or "no payload", code=True),
        Fact(name="Code", text=held.code_sha, code=True),
        Fact(name="Key", text=held.idempotency_key, code=True),
    ]
    for incident in visit.reader.incidents_about(held.subject):
        name = f"{incident.error_code or incident.kind} {short(incident.incident_id)}"
        href = visit.at("incidents", incident.incident_id)
        facts.append(Fact(name="Incident", text=name, href=href))
    objects, count = objects_of(visit.reader, held)
    if objects:
        facts.append(Fact(name="Announced", text=named(objects, count), code=True))
    if held.released_at_ms is not None:
        facts.append(Fact(name=f"{held.state.capitalize()} (UTC)", text="", at_ms=held.released_at_ms))
        facts.append(Fact(name="By", text=held.released_by or ""))
    return [fact for fact in facts if fact.text or fact.at_ms is not None]


def _asked(approval: Approval) -> ApprovalAsked:
    approved = f"{approval.approved_by}: {approval.approval_rationale}" if approval.approved_by else ""
    if approval.rejected_by:
        approved = f"rejected by {approval.rejected_by}: {approval.rejection_rationale}"
    return ApprovalAsked(
        word=state_words.of_approval(approval.status),
        request_id=approval.request_id,
        by=approval.requested_by,
        at_ms=approval.requested_at_ms,
        rationale=approval.rationale,
        approved=approved,
    )


def _actions(visit: Visit, held: QuarantineEntry) -> list[Offer]:
    if held.state != "held" or held.grain not in ("run", "request"):
        return []
    discard = offer(visit, "discardHeld", held_id=held.held_id)
    run = visit.reader.run(held.subject) if held.grain == "run" else None
    return [*about_run(visit, run), discard] if run is not None else [discard]
