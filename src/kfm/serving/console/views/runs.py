"""All runs, newest first."""

from __future__ import annotations

from kfm.core.records import Record, Run
from kfm.serving.console import words
from kfm.serving.console.visits import (
    ROWS,
    Filter,
    Paging,
    Visit,
    chosen,
    paged_before,
    place_in,
    short,
)
from kfm.serving.console.words import Word

FILTERS = ("dataset", "source", "status", "before")
STATUSES = ("running", "success", "failed")


class Row(Record, frozen=True):
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


class Runs(Record, frozen=True):
    filters: tuple[Filter, ...]
    rows: tuple[Row, ...]
    paging: Paging
    clear: str


def view(visit: Visit) -> Runs:
    dataset, source = visit.dataset(), visit.source()
    status = visit.choice("status", STATUSES)
    found = visit.reader.runs(
        dataset_id=dataset,
        source_id=source,
        status=status,
        before=place_in(visit.query.get("before")),
        limit=ROWS + 1,
    )
    shown = found[:ROWS]
    last = (shown[-1].start_time_ms, shown[-1].run_id) if len(found) > ROWS else None
    settings = visit.place.settings
    return Runs(
        filters=(
            chosen("status", "Status", STATUSES, status, ("running", "succeeded", "failed")),
            chosen("dataset", "Dataset", _known(dataset, [each.id for each in settings.datasets]), dataset),
            chosen("source", "Source", _known(source, [each.id for each in settings.sources]), source),
        ),
        rows=tuple(row(visit, each) for each in shown),
        paging=paged_before(visit, len(shown), last, "run"),
        clear=visit.href("runs"),
    )


def _known(now: str | None, names: list[str]) -> list[str]:
    """Also what only the ledger knows can be chosen."""
    return names if now is None or now in names else [*names, now]


def row(visit: Visit, run: Run) -> Row:
    return Row(
        run_id=short(run.run_id),
        href=visit.run(run.run_id),
        word=words.of_run(run.status, run.error_code),
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
