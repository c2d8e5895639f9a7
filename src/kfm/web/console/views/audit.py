"""The audit log, newest first: who did what to what, when and why; and whether it is as it was written."""

from __future__ import annotations

import re

import msgspec

from kfm.audit.chain import ChainPart, verify_part
from kfm.model.errors import UsageError
from kfm.model.quantities import counted, moment
from kfm.model.records import GovernanceEntry, Record
from kfm.reports.audit import EntryFilter, entry_sentence, page_of_entries
from kfm.reports.lookup import is_wal_id
from kfm.web.console import time_range
from kfm.web.console.state_words import Word, word
from kfm.web.console.visit import (
    ROWS,
    Filter,
    Paging,
    TypedFilter,
    Visit,
    before_number,
    paged_by_number,
    short,
    typed,
)

FILTERS = (*time_range.FILTERS, "actor", "kind", "subject", "before")
VERIFY_FILTERS = ("after",)
DETAILS_CHARS_MAX = 600
NUMBER_DIGITS_MAX = 15
_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)


class AuditRow(Record, frozen=True):
    number: int
    at_ms: int
    kind: str
    kind_href: str
    sentence: str
    subject: str
    subject_href: str | None
    actor: str
    actor_href: str
    rationale: str
    ticket: str
    details: str


class AuditView(Record, frozen=True):
    filters: tuple[Filter | TypedFilter, ...]
    rows: tuple[AuditRow, ...]
    paging: Paging
    clear: str
    entries: int
    head: str
    verify: str


def view(visit: Visit) -> AuditView:
    span = time_range.time_range(visit, usual="all")
    kind, subject, actor = (visit.query.get(name) for name in ("kind", "subject", "actor"))
    last, head = visit.reader.chain_head()
    asked = EntryFilter(
        kind=kind,
        subject=visit.visibility.meant(subject),
        actor=actor,
        since_ms=span.from_ms or None,
        until_ms=span.until_ms if span.until_ms < time_range.FAR_MS else None,
    )
    found, older = page_of_entries(
        visit.reader, asked, before=before_number(visit), limit=ROWS, hides=visit.visibility.hides_record
    )
    rows = tuple(_row(visit, link.entry, link.number) for link in found)
    paging = paged_by_number(visit, len(rows), older, "entry/entries")
    if older is not None and len(rows) < ROWS:
        paging = msgspec.structs.replace(
            paging, summary=f"{paging.summary}; looked back to entry {older:,}, older ones follow"
        )
    return AuditView(
        filters=(
            *span.filters,
            typed("actor", "Actor", actor),
            typed("kind", "Action", kind),
            typed("subject", "Subject", subject),
        ),
        rows=rows,
        paging=paging,
        clear=visit.href("audit"),
        entries=last,
        head=head,
        verify=visit.href("audit/verify", after=0),
    )


def _row(visit: Visit, recorded: GovernanceEntry, number: int) -> AuditRow:
    entry = visit.visibility.record(recorded)
    details = msgspec.json.encode(
        {name: each for name, each in entry.details.items() if each is not None}
    ).decode()
    what, href = _subject(visit, recorded)
    return AuditRow(
        number=number,
        at_ms=entry.recorded_at_ms,
        kind=entry.kind,
        kind_href=visit.href("audit", kind=entry.kind),
        sentence=entry_sentence(entry),
        subject=what or entry.subject,
        subject_href=href,
        actor=entry.actor,
        actor_href=visit.href("audit", actor=entry.actor) if entry.actor == recorded.actor else "",
        rationale=entry.rationale or "",
        ticket=entry.ticket or "",
        details="" if details == "{}" else details[:DETAILS_CHARS_MAX],
    )


def _subject(visit: Visit, entry: GovernanceEntry) -> tuple[str, str | None]:
    """What it is about, and its page; without one, it is only named."""
    subject, reader = entry.subject, visit.reader
    if _ID.fullmatch(subject):
        return _record(visit, subject)
    if is_wal_id(subject):
        known = reader.unit_reader().unit(subject)
        return f"unit {short(subject)}", visit.at("units", subject) if known is not None else None
    scope, _, name = subject.partition(":")
    if scope in ("dataset", "schedule") and name:
        is_schedule = scope == "schedule"
        known_here = any(each.id == name for each in visit.context.schedules) if is_schedule else True
        href = visit.at("schedules", name) if is_schedule else visit.dataset_page(name)
        return "", href if known_here else None
    if scope in ("provider", "domain") or subject == "all":
        return "", visit.href("board")
    declared = {each.id for each in visit.context.settings.datasets}
    return "", visit.dataset_page(subject) if subject in declared else None


def _record(visit: Visit, name: str) -> tuple[str, str | None]:
    """The record of an id; the kinds that entries are about most, first."""
    reader = visit.reader
    if reader.run(name) is not None:
        return f"run {short(name)}", visit.run(name)
    if reader.request_reader().request(name) is not None:
        return f"request {short(name)}", visit.at("requests", name)
    if reader.held_one(name) is not None:
        return f"quarantine {short(name)}", visit.at("held", name)
    change = reader.change_reader().change(name)
    if change is not None:
        return f"change {short(name)}", visit.dataset_page(change.dataset_id)
    if any(one.incident_id == name for one in reader.find_incidents(name)):
        return f"incident {short(name)}", visit.at("incidents", name)
    return short(name), None


# --- verification ------------------------------------------------------------------------


class VerifyView(Record, frozen=True):
    word: Word
    sentence: str
    detail: str
    after: str | None
    whole: bool
    command: str


def view_verify(visit: Visit) -> VerifyView:
    text = visit.query.get("after", "0")
    if not text.isascii() or not text.isdigit() or len(text) > NUMBER_DIGITS_MAX:
        raise UsageError("`after` is the number of an entry.")
    after = int(text)
    part = verify_part(visit.reader, after)
    return VerifyView(
        word=word("sound" if part.sound else "broken"),
        sentence=_verdict(part, visit),
        detail=part.finding.detail if part.finding else part.detail or "",
        after=visit.with_query(after=part.after) if part.after is not None else None,
        whole=part.sound and part.first == 1 and part.after is None,
        command="kfm audit verify",
    )


def _verdict(part: ChainPart, visit: Visit) -> str:
    at = moment(visit.now_ms)
    if part.finding is not None:
        return f"Entry {part.finding.number:,} is not as it was written."
    if part.broken_seal is not None:
        return f"The seal in entry {part.broken_seal:,} does not match the rows that it names."
    if part.end == 0:
        return "The audit log has no entries."
    seals = f"; {counted(part.seals, 'seal')} over {part.sealed:,} rows match them" if part.seals else ""
    return (
        f"Entries {part.first:,} to {part.last:,} of {part.end:,} follow on each other and are as they were "
        f"written{seals}. Checked at {at}."
    )
