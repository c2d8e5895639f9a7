"""`kfm replay inspect`: what a replay did, and what became of its units since."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from kfm.cli.options import session_options
from kfm.cli.output import table
from kfm.cli.session import Session
from kfm.core.errors import UsageError
from kfm.core.wording import moment

RECEIPTS_SHOWN = 50
PREFIX_CHARS_MIN = 4


@click.command(name="inspect")
@click.argument("replay_id", metavar="[REPLAY]", required=False)
@click.option(
    "--limit", type=click.IntRange(1, 1_000_000), default=RECEIPTS_SHOWN, show_default=True, metavar="N",
    help="At most N units, or N replays.",
)  # fmt: skip
@session_options
def inspect(session: Session, replay_id: str | None, limit: int) -> None:
    """Show a replay: its state, the receipt of each unit, and what became of the unit since.

    Where a replay would have made another item of the same bytes, nothing was published: each field is
    shown with its value as it is and as it would have been. Without REPLAY: list replays, newest first.
    """
    from kfm.cli import replay_lines as told
    from kfm.documents.held import approval_document

    with session.app(read_only=True) as app:
        reader = app.ledger.replay_reader()
        if replay_id is None:
            _list(session, reader, limit)
            return
        replay = find_replay(reader, replay_id)
        tally, since = reader.tally(replay.replay_id), reader.since(replay.replay_id)
        found = reader.receipts(replay.replay_id, limit=limit)
        requests = app.ledger.approvals(subject=replay.replay_id)
        units = app.ledger.unit_reader()
        receipts = [told.receipt_document(one, _differing(units, one)) for one in found]
    document = {
        "replay": told.replay_document(replay, tally),
        "since": since,
        "requests": [approval_document(one) for one in requests],
        "receipts": receipts,
        "more": len(found) < len(replay.plan.units),
    }
    lines = [
        told.replay_line(document["replay"]),
        f"plan       {replay.digest}, made {moment(replay.plan.made_at_ms)}",
        f"mode       {replay.mode}, reason {replay.reason}",
        f"by         {replay.requested_by}, {moment(replay.created_at_ms)}: {replay.rationale}",
        *(f"request    {one.request_id}: {_agreement(one)}" for one in requests),
        f"since      {told.amounts(since)}",
        "",
        *told.receipt_table(receipts),
        *told.difference_lines(receipts),
    ]
    session.emit(document, lines, rows=receipts)
    if document["more"] and session.output == "text":
        session.note(f"more units are not shown: use --limit (now {limit})")


def _agreement(request: Any) -> str:
    if request.state == "requested":
        return (
            f"open, asked for by {request.requested_by}; another person runs kfm approve {request.request_id}"
        )
    return f"approved by {request.approved_by}: {request.approval_rationale}"


def _differing(units: Any, receipt: Any) -> dict[str, Any]:
    from kfm.core.replays import MISMATCH, differing

    return differing(units.history_of(receipt.wal_id)) if receipt.error_code == MISMATCH else {}


def _list(session: Session, reader: Any, limit: int) -> None:
    from kfm.cli.replay_lines import replay_document

    found = reader.replays(limit)
    documents = [replay_document(one, reader.tally(one.replay_id)) for one in found]
    rows = [
        (
            moment(one.created_at_ms).removesuffix(" UTC"),
            document["state"],
            one.mode,
            one.reason,
            f"{document['replayed']}/{document['units']}",
            one.requested_by,
            one.replay_id,
        )
        for one, document in zip(found, documents, strict=True)
    ]
    header = ("BEGUN (UTC)", "STATE", "MODE", "REASON", "REPLAYED", "BY", "REPLAY")
    session.emit({"replays": documents}, table(header, rows) if rows else ["no replays"], rows=documents)


def find_replay(reader: Any, wanted: str) -> Any:
    """By its id, or by the beginning of it if that is enough to tell."""
    found = reader.find(wanted.lower()) if len(wanted) >= PREFIX_CHARS_MIN else []
    if len(found) == 1:
        return reader.replay(found[0])
    if found:
        raise UsageError(f"Several replays begin with `{wanted[:80]}`.", remedy="Give more of the id.")
    raise UsageError(f"There is no replay `{wanted[:80]}`.", remedy="`kfm replay inspect` lists them.")


def all_receipts(reader: Any, replay_id: str) -> Iterator[Any]:
    after = ""
    while page := reader.receipts(replay_id, after):
        yield from page
        after = page[-1].wal_id
