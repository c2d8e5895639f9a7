"""What somebody says about a replay: which units, in what way, how fast."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from kfm.cli.past import past_ms
from kfm.core.errors import UsageError
from kfm.core.records import UNIT_STATUSES
from kfm.core.replays import MODES, ReplayPlan, ReplaySpec, Selection, check_plan
from kfm.documents.finding import is_wal_id

FILE_BYTES_MAX = 64 * 1024 * 1024
LIMIT_MAX = 1_000_000
T = TypeVar("T")

_SELECTION = (
    click.option("--dataset", "datasets", multiple=True, metavar="NAME", help="Of this dataset. Repeatable."),
    click.option("--dataset-in", metavar="A,B,…", help="Of one of these datasets."),
    click.option("--unit", "units", multiple=True, metavar="WAL_ID", help="This unit. Repeatable."),
    click.option(
        "--status", "statuses", multiple=True, type=click.Choice(UNIT_STATUSES),
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
    click.option("--save-spec", metavar="FILE", help="Keep the wish, not the units, for `from-spec`."),
)  # fmt: skip
_PACE = (
    click.option(
        "--batch-size", type=click.IntRange(1, 1_000), default=100, show_default=True, metavar="N",
        help="Units in one transaction.",
    ),
    click.option("--max-batches", type=click.IntRange(1), metavar="N", help="Pause after N batches."),
    click.option("--rate", type=click.FloatRange(0.001), metavar="N", help="At most N units a second."),
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


def spec_of(wish: dict[str, Any], now_ms: int) -> ReplaySpec:
    """The wish as one record."""
    named = [name.strip() for name in (wish["dataset_in"] or "").split(",")]
    if wish["dataset_in"] is not None and not all(named):
        raise UsageError("--dataset-in takes names between commas, such as hrrr,gfs.")
    for unit in wish["units"]:
        if not is_wal_id(unit):
            raise UsageError(f"`{unit[:80]}` is not the id of a unit.", remedy="`kfm nodd units` lists them.")
    selection = Selection(
        datasets=tuple(sorted({*wish["datasets"], *filter(None, named)})),
        statuses=tuple(sorted(set(wish["statuses"]))),
        error_codes=tuple(sorted(set(wish["error_codes"]))),
        event_time_start_ms=_time(wish, "event_time_start", now_ms),
        event_time_end_ms=_time(wish, "event_time_end", now_ms),
        created_after_ms=_time(wish, "created_after", now_ms),
        created_before_ms=_time(wish, "created_before", now_ms),
        attempts_max=wish["attempts_max"],
        wal_ids=tuple(sorted(set(wish["units"]))),
    )
    _require_span(
        "event-time-start", "event-time-end", selection.event_time_start_ms, selection.event_time_end_ms
    )
    _require_span("created-after", "created-before", selection.created_after_ms, selection.created_before_ms)
    return ReplaySpec(
        kfm="replay-spec/1",
        selection=selection,
        mode=wish["mode"],
        reason=wish["reason"],
        limit=wish["limit"],
    )


def names_units(wish: dict[str, Any]) -> bool:
    """Is anything said about which units are meant?"""
    return any(
        wish[name] not in (None, ())
        for name in (
            "datasets", "dataset_in", "units", "statuses", "error_codes", "event_time_start",
            "event_time_end", "created_after", "created_before", "attempts_max", "limit",
        )
    )  # fmt: skip


def _time(wish: dict[str, Any], name: str, now_ms: int) -> int | None:
    text = wish[name]
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
    return _read(path, ReplaySpec, "wish of `--save-spec`")


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
                os.fsync(file.fileno())
            os.replace(draft, path)
        except BaseException:
            Path(draft).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise UsageError(f"{path} can't be written: {error.strerror}.") from None
