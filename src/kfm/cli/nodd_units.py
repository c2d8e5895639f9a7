"""`kfm nodd units | show | watermarks`: units and how far datasets are complete."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from kfm.cli.options import past_ms, session_options
from kfm.cli.output import instant, one_line, table, utc
from kfm.cli.session import CommandSession
from kfm.model.records import UNIT_STATUSES
from kfm.model.wording import duration, moment
from kfm.reports.lookup import find_unit

LIMIT_MAX = 100_000


@click.command(name="units")
@click.option("--dataset", metavar="NAME", default="", help="Only of this dataset.")
@click.option("--status", type=click.Choice(UNIT_STATUSES), default=None, help="Only with this status.")
@click.option("--error-code", metavar="CODE", default="", help="Only those whose last error has this code.")
@click.option("--since", metavar="TIME", help="Only those that changed since then: RFC 3339, or 2h, 3d.")
@click.option(
    "--limit", type=click.IntRange(1, LIMIT_MAX), default=50, help="At most so many.", show_default=True
)
@session_options
def units(
    session: CommandSession, dataset: str, status: str | None, error_code: str, since: str | None, limit: int
) -> None:
    """List units: the newest time that they cover first.

    A unit is one announced object in the ingest ledger. `kfm nodd show UNIT` has all of one, `kfm explain
    UNIT` what it waits for; `kfm replay` replays those that failed or were quarantined.
    """
    from kfm.model.units import UnitFilter
    from kfm.reports.units import unit_document

    with session.app(read_only=True) as app:
        wanted = UnitFilter(
            dataset=dataset,
            status=status or "",
            error_code=error_code,
            since_ms=0 if since is None else past_ms(since, "--since", app.clock.now_ms()),
            limit=limit + 1,
        )
        found = app.ledger.unit_reader().find_units(wanted)
    shown, more = found[:limit], len(found) > limit
    documents = [unit_document(unit) for unit in shown]
    lines = unit_rows(shown) if shown else ["no units"]
    session.emit({"units": documents, "more": more}, lines, rows=documents)
    if more and session.output == "text":
        session.note(f"more units are not shown: use --limit (now {limit})")


@click.command(name="show")
@click.argument("unit", metavar="UNIT")
@session_options
def show(session: CommandSession, unit: str) -> None:
    """Show one unit: its record, its object, and everything that it went through.

    UNIT is its id (wal_id), as it is in lists, lineage events, spans and the catalogue.
    """
    show_unit(session, unit)


def show_unit(session: CommandSession, wanted: str) -> None:
    from kfm.reports.units import stored_document

    with session.app(read_only=True) as app:
        reader = app.ledger.unit_reader()
        stored = find_unit(reader, wanted)
        document = stored_document(stored, reader.history_of(wanted), app.ledger.now_ms())
    session.emit(document, stored_lines(document))


# --- watermarks ------------------------------------------------------------------------


@click.command(name="watermarks")
@click.argument("names", nargs=-1, metavar="[DATASET]...")
@session_options
def watermarks(session: CommandSession, names: tuple[str, ...]) -> None:
    """How far each dataset has come.

    NEWEST is the newest time that the catalogue covers, LAG how long ago that is, OLDEST OPEN the earliest
    time of a unit that is still to be worked on: of what was announced before it, nothing is left to do.
    """
    with session.app(read_only=True) as app:
        reader, now_ms = app.ledger.unit_reader(), app.ledger.now_ms()
        documents = [
            document for document in _watermarks(reader, now_ms) if not names or document["dataset"] in names
        ]
    rows = [
        (
            one["dataset"],
            utc(one["newest"]).removesuffix(" UTC") if one["newest"] else "-",
            duration(one["lag_ms"]) if one["lag_ms"] is not None else "-",
            utc(one["oldest_open"]["at"]).removesuffix(" UTC") if one["oldest_open"] else "-",
            str(one["open"]),
            str(one["given_up"]),
        )
        for one in documents
    ]
    header = ("DATASET", "NEWEST (UTC)", "LAG", "OLDEST OPEN (UTC)", "OPEN", "GIVEN UP")
    session.emit({"watermarks": documents}, table(header, rows) if rows else ["no units yet"], rows=documents)


def _watermarks(reader: Any, now_ms: int) -> list[dict[str, Any]]:
    totals = reader.totals()
    found = []
    for dataset in sorted({dataset for dataset, _ in totals if dataset}):
        amounts = {name: totals.get((dataset, name), (0, None))[0] for name in UNIT_STATUSES}
        newest_ms = totals.get((dataset, "watermark"), (0, None))[1]
        waiting = amounts["pending"] + amounts["in_progress"]
        oldest = reader.oldest_open(dataset) if waiting else None
        found.append(
            {
                "dataset": dataset,
                "newest": instant(newest_ms),
                "lag_ms": None if newest_ms is None else max(0, now_ms - newest_ms),
                "open": waiting,
                "given_up": amounts["failed"] + amounts["quarantined"],
                "oldest_open": None if oldest is None else _open(oldest),
            }
        )
    return found


def _open(stored: Any) -> dict[str, Any]:
    unit = stored.unit
    times = (unit.time_range_start_ms, unit.event_time_ms, unit.created_at_ms)
    at_ms = next(at_ms for at_ms in times if at_ms is not None)
    return {"wal_id": unit.wal_id, "at": instant(at_ms), "since": instant(unit.created_at_ms)}


def stored_lines(document: dict[str, Any]) -> list[str]:
    unit, budget = document["unit"], document["budget"]
    facts = [(name.replace("_", " "), _text(unit[name])) for name in unit if unit[name] not in (None, {})]
    facts += [
        (f"object {name}".replace("_", " "), _text(value))
        for name, value in document["object"].items()
        if value not in (None, False)
    ]
    if budget["due"] is not None:
        facts.append(("due", utc(budget["due"])))
    width = max(len(name) for name, _ in facts)
    rows = [
        (
            utc(move["at"]).removesuffix(" UTC"),
            move["event"],
            move["status"],
            str(move["attempts"]),
            move["worker_id"] or "-",
            _text(move["details"]) if move["details"] else "",
        )
        for move in document["history"]
    ]
    header = ("AT (UTC)", "EVENT", "STATUS", "ATTEMPT", "WORKER", "DETAILS")
    return [*(f"{name.ljust(width)}  {value}" for name, value in facts), "", *table(header, rows)]


def unit_rows(units: Any) -> list[str]:
    rows = [
        (
            moment(unit.updated_at_ms).removesuffix(" UTC"),
            unit.dataset,
            unit.status,
            str(unit.attempts),
            unit.last_error_code or "-",
            unit.wal_id,
            unit.object_uri,
        )
        for unit in units
    ]
    return table(("CHANGED (UTC)", "DATASET", "STATUS", "ATTEMPTS", "ERROR", "UNIT", "OBJECT"), rows)


def _text(value: Any) -> str:
    return one_line(value if isinstance(value, str) else msgspec.json.encode(value).decode())
