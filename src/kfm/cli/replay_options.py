"""Options, documents and lines of `kfm replay`."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from kfm.cli.options import Finite, StateChoice, past_ms
from kfm.cli.output import clipped, one_line, table
from kfm.model.errors import UsageError
from kfm.model.quantities import counted, moment
from kfm.model.replays import MODES, ReplayPlan, ReplaySpec, Selection, check_plan
from kfm.reports.lookup import UNITS_REMEDY, begins_wal_id, find_unit, is_wal_id
from kfm.reports.state_words import UNITS, by_word, of_unit
from kfm.system import sync

FILE_BYTES_MAX = 64 * 1024 * 1024
LIMIT_MAX = 1_000_000
T = TypeVar("T")

_SELECTION = (
    click.option("--dataset", "datasets", multiple=True, metavar="NAME", help="Of this dataset. Repeatable."),
    click.option("--dataset-in", metavar="A,B,…", help="Of one of these datasets."),
    click.option(
        "--cell", "cells", multiple=True, metavar="CELL",
        help="Failed and quarantined units of units:DATASET/PRODUCT@FROM/TO. Repeatable.",
    ),
    click.option("--unit", "units", multiple=True, metavar="WAL_ID", help="This unit. Repeatable."),
    click.option(
        "--status", "statuses", multiple=True, type=StateChoice(UNITS.values(), UNITS),
        help="With this status; else whatever the mode is about. Repeatable.",
    ),
    click.option(
        "--error-code", "error_codes", multiple=True, metavar="CODE", help="With this last error. Repeatable."
    ),
    click.option("--event-time-start", metavar="TIME", help="Announced at this time or later."),
    click.option("--event-time-end", metavar="TIME", help="Announced before this time."),
    click.option("--created-after", metavar="TIME", help="Taken in at this time or later."),
    click.option("--created-before", metavar="TIME", help="Taken in before this time."),
    click.option("--attempts-max", type=click.IntRange(0), metavar="N", help="Tried at most N times."),
    click.option("--limit", type=click.IntRange(1, LIMIT_MAX), metavar="N", help="At most N units."),
    click.option(
        "--mode", type=click.Choice(MODES), default="failed-only", show_default=True,
        help="What may come back: failed units; also quarantined ones; also what had succeeded.",
    ),
    click.option(
        "--reason", default="none", show_default=True, metavar="CODE",
        help="Kind of replay: none, dlq-drain, incident, backfill, test, or one of ingest.replay_reasons.",
    ),
    click.option("--save-spec", metavar="FILE", help="Keep the selection, not the units, for `from-spec`."),
)  # fmt: skip
_PACE = (
    click.option(
        "--batch-size", type=click.IntRange(1, 1_000), default=100, show_default=True, metavar="N",
        help="Units in one transaction.",
    ),
    click.option("--max-batches", type=click.IntRange(1), metavar="N", help="Pause after N batches."),
    click.option("--rate", type=Finite(0.001, 1_000_000), metavar="N", help="At most N units a second."),
    click.option("--rationale", metavar="TEXT", help="Why. Required."),
    click.option("--ticket", metavar="ID", help="The ticket that this belongs to."),
    click.option(
        "--actor", metavar="NAME", help="On whose behalf; recorded beside the account that runs this."
    ),
    click.option("--confirm", is_flag=True, help="Do it; else a terminal is asked."),
)  # fmt: skip


def selection_options(function: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(_SELECTION):
        function = option(function)
    return function


def pace_options(function: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(_PACE):
        function = option(function)
    return function


def _whole(reader: Any, unit: str) -> str:
    """The id of a unit, of which the beginning was given. A whole one may be of none: then none is meant."""
    if is_wal_id(unit):
        return unit
    if not begins_wal_id(unit):
        raise UsageError(f"`{unit[:80]}` is not the id of a unit.", remedy=UNITS_REMEDY)
    return str(find_unit(reader, unit).unit.wal_id)


def spec_of(options: dict[str, Any], app: Any) -> ReplaySpec:
    """The selection as one record."""
    now_ms = app.ledger.now_ms()
    named = [name.strip() for name in (options["dataset_in"] or "").split(",")]
    if options["dataset_in"] is not None and not all(named):
        raise UsageError("--dataset-in takes names between commas, such as hrrr,gfs.")
    units = {_whole(app.ledger.unit_reader(), unit) for unit in options["units"]}
    selection = Selection(
        datasets=tuple(sorted({*options["datasets"], *filter(None, named)})),
        statuses=tuple(sorted(set(options["statuses"]))),
        error_codes=tuple(sorted(set(options["error_codes"]))),
        event_time_start_ms=_time(options, "event_time_start", now_ms),
        event_time_end_ms=_time(options, "event_time_end", now_ms),
        created_after_ms=_time(options, "created_after", now_ms),
        created_before_ms=_time(options, "created_before", now_ms),
        attempts_max=options["attempts_max"],
        wal_ids=tuple(sorted({*units, *_in_cells(options, app)})),
    )
    _require_span(
        "event-time-start", "event-time-end", selection.event_time_start_ms, selection.event_time_end_ms
    )
    _require_span("created-after", "created-before", selection.created_after_ms, selection.created_before_ms)
    return ReplaySpec(
        kfm="replay-spec/1",
        selection=selection,
        mode=options["mode"],
        reason=options["reason"],
        limit=options["limit"],
    )


def _in_cells(options: dict[str, Any], app: Any) -> tuple[str, ...]:
    if not options["cells"]:
        return ()
    from kfm.model.plan_cells import UnitsCell, parse_cells
    from kfm.nodd.replay import units_in

    cells = [one for one in parse_cells(",".join(options["cells"])) if isinstance(one, UnitsCell)]
    if len(cells) != len(set(options["cells"])):
        raise UsageError("A replay is of units: --cell takes units:DATASET/PRODUCT@FROM/TO.")
    return units_in(app, cells)


def names_units(options: dict[str, Any]) -> bool:
    """Do the options name units?"""
    return any(
        options[name] not in (None, ())
        for name in (
            "datasets", "dataset_in", "cells", "units", "statuses", "error_codes", "event_time_start",
            "event_time_end", "created_after", "created_before", "attempts_max", "limit",
        )
    )  # fmt: skip


def _time(options: dict[str, Any], name: str, now_ms: int) -> int | None:
    text = options[name]
    return None if text is None else past_ms(text, f"--{name.replace('_', '-')}", now_ms)


def _require_span(start: str, end: str, start_ms: int | None, end_ms: int | None) -> None:
    if start_ms is not None and end_ms is not None and end_ms <= start_ms:
        raise UsageError(f"--{end} is not after --{start}, so no unit can be meant.")


# --- files -----------------------------------------------------------------------------


def read_plan(path: str) -> ReplayPlan:
    """A frozen plan; one that was edited is none."""
    made = _read(path, ReplayPlan, "plan of `kfm replay dry-run --selection-file`")
    check_plan(made)
    return made


def read_spec(path: str) -> ReplaySpec:
    return _read(path, ReplaySpec, "selection of `--save-spec`")


def _read(path: str, kind: type[T], what: str) -> T:
    try:
        if Path(path).stat().st_size > FILE_BYTES_MAX:
            raise UsageError(f"{path} is too large to be a {what}.")
        return msgspec.json.decode(Path(path).read_bytes(), type=kind)
    except OSError as error:
        raise UsageError(f"{path} can't be read: {error.strerror}.") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{path} is no {what}: {str(error)[:200]}.") from None


def write_record(path: str, record: Any) -> None:
    """Whole or not at all."""
    text = msgspec.json.format(msgspec.json.encode(record), indent=1)
    folder = Path(path).parent
    try:
        descriptor, draft = tempfile.mkstemp(dir=folder, prefix=f".{Path(path).name}.", suffix=".tmp")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(text + b"\n")
                file.flush()
                sync(file.fileno())
            os.replace(draft, path)
        except BaseException:
            Path(draft).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise UsageError(f"{path} can't be written: {error.strerror}.") from None


UNITS_SHOWN = 20
VALUE_CHARS = 100


def plan_lines(plan: Any, *, units_shown: int = UNITS_SHOWN) -> list[str]:
    facts = [
        ("replay", plan.replay_id),
        ("digest", plan.digest),
        ("made", moment(plan.made_at_ms)),
        ("mode", f"{plan.mode}, reason {plan.reason}"),
        ("units", str(len(plan.units))),
        ("by dataset", amounts(plan.by_dataset)),
        ("by error", amounts(plan.by_error_code)),
        ("by status", amounts(by_word(plan.by_status, UNITS))),
        *(("left out", f"{counted(many, 'unit')}: {why}") for why, many in plan.left_out.items()),
    ]
    if plan.needs_approval:
        facts.append(("approval", "a second person has to agree, since work that had ended comes back"))
    lines = [f"{name.ljust(11)} {one_line(value)}" for name, value in facts]
    if plan.units and units_shown:
        lines += ["", *unit_table([(unit, None) for unit in plan.units[:units_shown]], verdicts=False)]
    hidden = len(plan.units) - units_shown
    if units_shown and hidden > 0:
        lines.append(f"… and {counted(hidden, 'unit')} more; --json and the plan's file have all")
    return lines


def unit_table(units: list[tuple[Any, str | None]], *, verdicts: bool) -> list[str]:
    header = ["UNIT", "DATASET", "STATUS", "ERROR", "TRIED", "GRANTS"]
    rows = []
    for unit, why in units:
        row = [unit.wal_id, unit.dataset, of_unit(unit.status), unit.error_code or "-", str(unit.attempts)]
        row.append(str(unit.grants))
        if verdicts:
            row.append("yes" if why is None else f"no: {why}")
        rows.append([*row, unit.object_uri])
    return table(
        [*header, *(["REPLAY"] if verdicts else []), "OBJECT"], rows, spare=("GRANTS", "TRIED", "DATASET")
    )


def amounts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {many}" for name, many in counts.items()) or "-"


# --- replays that are on record -----------------------------------------------------------


def replay_line(document: dict[str, Any]) -> str:
    summary = f"{document['replayed']} of {counted(document['units'], 'unit')} replayed"
    if document["drifted"]:
        summary += f", {document['drifted']} changed meanwhile, not touched"
    if document["waiting"]:
        summary += f", {document['waiting']} waiting"
    return f"{document['state'].ljust(9)}  {document['replay_id']}  {summary}"


def receipt_table(documents: list[dict[str, Any]]) -> list[str]:
    rows = [
        (
            one["wal_id"],
            one["receipt"] or "waiting",
            of_unit(one["now"]["status"] or "-"),
            str(one["now"]["attempts"] if one["now"]["attempts"] is not None else "-"),
            one["now"]["error_code"] or "-",
            one["object_uri"] or "-",
        )
        for one in documents
    ]
    return (
        table(("UNIT", "RECEIPT", "NOW", "TRIED", "ERROR", "OBJECT"), rows, spare=("TRIED",)) if rows else []
    )


def difference_lines(documents: list[dict[str, Any]]) -> list[str]:
    """Field by field: what is published, and what the replay would have made of it."""
    lines = []
    for one in documents:
        if not one["differences"]:
            continue
        lines += ["", f"{one['wal_id']} would have made another item of the same bytes:"]
        for field in one["differences"]:
            lines += [
                f"  {one_line(field['field'])}",
                f"    is        {_value(field['is'])}",
                f"    would be  {_value(field['would_be'])}",
            ]
    return lines


def _value(value: Any) -> str:
    return clipped(value if isinstance(value, str) else msgspec.json.encode(value).decode(), VALUE_CHARS)
