"""What was given up: runs and units in quarantine, dead letters, and messages that could not be taken in."""

from __future__ import annotations

from kfm.core.holding import Held
from kfm.core.records import Record
from kfm.serving.console import words
from kfm.serving.console.visits import ROWS, Filter, Paging, Visit, chosen, paged, short
from kfm.serving.console.words import Word

FILTERS = ("kind", "state", "dataset", "page")
KINDS = ("dead-letter", "quarantine")
STATES = ("held", "released", "resolved")
MESSAGES_SHOWN_MAX = 50


class Row(Record, frozen=True):
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


class Message(Record, frozen=True):
    envelope: str
    queue: str
    error_code: str
    error: str
    times: int
    first_ms: int
    last_ms: int


class HeldView(Record, frozen=True):
    filters: tuple[Filter, ...]
    rows: tuple[Row, ...]
    paging: Paging
    clear: str
    messages: tuple[Message, ...]
    messages_more: bool


def view(visit: Visit) -> HeldView:
    kind, dataset = visit.choice("kind", KINDS), visit.dataset()
    state = visit.choice("state", (*STATES, "any")) or "held"
    skipped = (visit.page() - 1) * ROWS
    found = visit.reader.held(
        state=None if state == "any" else state, kind=kind, dataset_id=dataset, limit=skipped + ROWS + 1
    )[skipped:]
    dead = visit.reader.unit_reader().dead_messages("held", "", MESSAGES_SHOWN_MAX + 1)
    states = chosen("state", "State", (*STATES, "any"), state)
    return HeldView(
        filters=(
            chosen("kind", "Kind", KINDS, kind, ("dead letter", "quarantined")),
            Filter(name=states.name, label=states.label, value=state, options=states.options[1:]),
            chosen("dataset", "Dataset", [each.id for each in visit.place.settings.datasets], dataset),
        ),
        rows=tuple(row(visit, each) for each in found[:ROWS]),
        paging=paged(visit, len(found), "entries"),
        clear=visit.href("held"),
        messages=tuple(
            Message(
                envelope=f"{each.envelope_hash.removeprefix('sha256:')[:12]}/{each.record_index}",
                queue=each.queue,
                error_code=each.error_code,
                error=each.error,
                times=each.times,
                first_ms=each.first_at_ms,
                last_ms=each.last_at_ms,
            )
            for each in dead[:MESSAGES_SHOWN_MAX]
        ),
        messages_more=len(dead) > MESSAGES_SHOWN_MAX,
    )


def row(visit: Visit, held: Held) -> Row:
    href = visit.run(held.subject) if held.grain == "run" else None
    if held.grain == "unit":
        href = visit.at("units", held.subject)
    return Row(
        held_id=short(held.held_id),
        href=visit.at("held", held.held_id),
        word=words.of_held(held.kind, held.state),
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
