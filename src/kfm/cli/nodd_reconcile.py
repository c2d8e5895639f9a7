"""`kfm nodd reconcile`: what a bucket has that the ledger does not know."""

from __future__ import annotations

import sys
from typing import Any

import click
import msgspec

from kfm.cli.options import session_options
from kfm.cli.output import encode
from kfm.cli.progress import watched
from kfm.cli.session import Session
from kfm.core.errors import RationaleRequired, UsageError
from kfm.core.times import parse_rfc3339, rfc3339
from kfm.core.wording import counted

SHOWN_MAX = 20


@click.command(name="reconcile")
@click.argument("bucket", metavar="BUCKET")
@click.option("--dataset", metavar="ID", help="Only objects of this dataset.")
@click.option("--prefix", "prefixes", multiple=True, metavar="TEXT", help="Only keys that begin so.")
@click.option("--from", "start", metavar="TIME", help="Only keys that tell this time or a later one.")
@click.option("--to", "end", metavar="TIME", help="Only keys that tell an earlier time.")
@click.option("--limit", type=click.IntRange(min=1), default=1_000_000, show_default=True, metavar="N",
              help="Look at so many objects at most.")  # fmt: skip
@click.option("--open", "open_missing", is_flag=True, help="Take in what is missing, as a backfill.")
@click.option("--rationale", metavar="TEXT", help="Why; needed with --open.")
@session_options
def reconcile(session: Session, bucket: str, **wish: Any) -> int:
    """List BUCKET and compare it with the ledger: messages may be lost, a listing shows what was.

    BUCKET is a name, or an address: noaa-goes16, s3://noaa-goes16, gs://NAME, az://ACCOUNT/CONTAINER.
    Nothing is changed unless --open is given: then missing objects become units with the reason
    `backfill`, and changed ones are looked at again. `kfm worker` does the rest.

    \b
    Examples:
      kfm nodd reconcile noaa-goes16 --prefix ABI-L1b-RadC/2026/319/
      kfm nodd reconcile noaa-hrrr-bdp-pds --from 2026-11-15T00:00:00Z --open --rationale "queue was down"

    Exit codes: 0 nothing is missing, or all of it was opened · 1 something is missing · 4 no listing.
    """
    if wish["open_missing"] and not wish["rationale"]:
        raise RationaleRequired("Opening units is on record: give --rationale TEXT.")
    from kfm.wiring.reconciling import reconcile_bucket, wish_for

    asked = wish_for(
        bucket,
        dataset=wish["dataset"],
        prefixes=wish["prefixes"],
        from_ms=_time(wish["start"], "--from"),
        until_ms=_time(wish["end"], "--to"),
        limit=wish["limit"],
    )
    progress = watched(session)
    gaps: list[dict[str, Any]] = []

    def found(gap: Any) -> None:
        row = msgspec.to_builtins(gap)
        at_ms = row.pop("time_range_start_ms")
        row["time_range_start"] = None if at_ms is None else rfc3339(at_ms)
        if session.output == "jsonl":
            sys.stdout.write(encode(row, "jsonl"))
        elif len(gaps) < (10_000 if session.output == "json" else SHOWN_MAX):
            gaps.append(row)

    with session.app(read_only=not wish["open_missing"]) as app:
        progress.phase("listing")
        result = reconcile_bucket(
            app, asked, found, progress.advance, rationale=wish["rationale"] if wish["open_missing"] else None
        )
        progress.done()
    missing = result.missing + result.changed
    code = int(missing > 0 and not wish["open_missing"])
    document = {**msgspec.to_builtins(result), "gaps": gaps, "exit_code": code}
    session.emit(document, _lines(result, gaps), rows=[])
    if missing and not wish["open_missing"]:
        session.note("`--open --rationale TEXT` takes in what is missing")
    return code


def _time(text: str | None, flag: str) -> int | None:
    if text is None:
        return None
    try:
        return parse_rfc3339(text)
    except UsageError:
        raise UsageError(f"{flag} takes a time such as 2026-11-15T00:00:00Z, not `{text[:64]}`.") from None


def _lines(result: Any, gaps: list[dict[str, Any]]) -> list[str]:
    lines = [f"{gap['what']}: {gap['object_uri']}" for gap in gaps]
    left = result.missing + result.changed + result.gone - len(gaps)
    if left > 0:
        lines.append(f"and {left} more; -o jsonl prints all of them")
    lines.append(
        f"{counted(result.listed, 'object')} listed: {result.known} known, {result.missing} missing, "
        f"{result.changed} changed, {result.gone} known as removed, {result.unreadable} of no known dataset, "
        f"{result.outside} not asked for"
    )
    if result.opened:
        lines.append(f"{counted(result.opened, 'unit')} opened as backfill")
    if not result.complete:
        lines.append("there is more in the bucket: the limit was reached")
    return lines
